//! How many shards a node runs and on which CPUs: pure arithmetic over what was typed and what the host allows.
//!
//! - `--cpus` names the shards' CPUs; without it they are those that the process may use, less the first (left to the control core)
//!   when there are three or more.
//! - One shard a CPU, and no more than the cgroup quota has whole CPUs for; `--shards` overrides both.
//! - Shards are pinned, one a CPU, unless there are more of them than CPUs, or a quota grants fewer CPUs than it shows: then the quota
//!   may be spent on any of them, and every container of a host pinned to its first CPUs would be the worst of choices.

use std::fmt;

use mayfly_shards::SHARDS_MAX;

/// What was typed about cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreSettings {
    /// `--shards`: shards to run.
    pub shard_count: Option<usize>,
    /// `--cpus`: the CPUs that shards may run on, sorted, each once.
    pub cpus: Option<Vec<usize>>,
    /// `--pin`: whether each shard is bound to one CPU.
    pub pin: Option<bool>,
}

/// The shards of this node and the CPUs they run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Shards, one core each; at least 1, at most [`SHARDS_MAX`].
    pub shard_count: usize,
    /// The CPUs the shards run on, sorted; never empty.
    pub cpus: Vec<usize>,
    /// Whether shard `i` is bound to `cpus[i]`. Otherwise every shard may run on all of them.
    pub pinned: bool,
}

impl Cores {
    /// The CPU that shard `shard_index` is bound to, when it is.
    #[must_use]
    pub fn pinned_cpu(&self, shard_index: usize) -> Option<usize> {
        if self.pinned { self.cpus.get(shard_index).copied() } else { None }
    }

    /// Whether polling before sleep can pay: each shard has a CPU that no other shard needs.
    #[must_use]
    pub fn may_spin(&self) -> bool {
        self.pinned
    }
}

/// Why the core settings cannot be met on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoresRefused {
    /// `--cpus` names a CPU outside the process's affinity.
    CpuNotAllowed {
        /// The first such CPU.
        cpu: usize,
        /// The CPUs that this process may use.
        allowed: Vec<usize>,
    },
    /// `--pin on` with more shards than CPUs.
    PinnedShardsExceedCpus {
        /// Shards asked for.
        shard_count: usize,
        /// The CPUs there are for them.
        cpus: Vec<usize>,
    },
    /// More CPUs than a node can have shards, and no `--shards` that says how many.
    TooManyShards {
        /// Shards that would run.
        shard_count: usize,
    },
}

impl fmt::Display for CoresRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuNotAllowed { cpu, allowed } => {
                write!(
                    f,
                    "--cpus names CPU {cpu}, which this process may not use; expected CPUs of {} (see `taskset -cp $$`)",
                    CpuList(allowed)
                )
            }
            Self::PinnedShardsExceedCpus { shard_count, cpus } => write!(
                f,
                "--shards {shard_count} cannot be pinned, one a CPU, to {} CPUs ({}); expected --shards {} or fewer, or --pin off",
                cpus.len(),
                CpuList(cpus),
                cpus.len()
            ),
            Self::TooManyShards { shard_count } => write!(f, "{shard_count} shards are too many; expected --shards 1 to {SHARDS_MAX}"),
        }
    }
}

/// Shards and their CPUs from what was typed, the process's affinity (sorted, not empty) and the cgroup's quota in CPUs.
///
/// # Errors
/// [`CoresRefused`] says which setting this host cannot meet.
pub fn plan(typed: &CoreSettings, affinity: &[usize], quota_cpus: Option<f64>) -> Result<Cores, CoresRefused> {
    let cpus = match &typed.cpus {
        Some(listed) => match listed.iter().find(|cpu| !affinity.contains(cpu)) {
            Some(&cpu) => return Err(CoresRefused::CpuNotAllowed { cpu, allowed: affinity.to_vec() }),
            None => listed.clone(),
        },
        None => affinity.get(usize::from(affinity.len() >= 3)..).unwrap_or(affinity).to_vec(),
    };
    let quota_whole = quota_cpus.map_or(usize::MAX, |quota| (quota as usize).max(1));
    let shard_count = typed.shard_count.unwrap_or_else(|| cpus.len().min(quota_whole));
    if shard_count > SHARDS_MAX {
        return Err(CoresRefused::TooManyShards { shard_count });
    }
    let fits = shard_count <= cpus.len();
    if typed.pin == Some(true) && !fits {
        return Err(CoresRefused::PinnedShardsExceedCpus { shard_count, cpus });
    }
    let pinned = typed.pin.unwrap_or(fits && quota_whole >= affinity.len());
    Ok(Cores { shard_count, cpus, pinned })
}

/// Prints CPU numbers as ranges: `0-3,5`.
#[derive(Debug)]
pub struct CpuList<'a>(pub &'a [usize]);

impl fmt::Display for CpuList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consecutive = self.0.chunk_by(|left, right| left + 1 == *right);
        for (index, range) in consecutive.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match range {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [only] => write!(f, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(shards: Option<usize>, cpus: Option<&[usize]>, pin: Option<bool>) -> CoreSettings {
        CoreSettings { shard_count: shards, cpus: cpus.map(<[usize]>::to_vec), pin }
    }

    #[test]
    fn shards_follow_affinity_quota_and_settings() {
        let none = typed(None, None, None);
        // Settings, affinity, quota → shards, CPUs, pinned.
        type Row<'a> = (CoreSettings, &'a [usize], Option<f64>, (usize, &'a [usize], bool));
        #[rustfmt::skip]
        let table: Vec<Row<'_>> = vec![
            (none.clone(), &[0], None, (1, &[0], true)),
            (none.clone(), &[0, 1], None, (2, &[0, 1], true)),
            (none.clone(), &[0, 1, 2], None, (2, &[1, 2], true)),
            (none.clone(), &[4, 5, 6, 7], None, (3, &[5, 6, 7], true)),
            (none.clone(), &[7], None, (1, &[7], true)),
            (none.clone(), &[0, 1, 2, 3], Some(2.5), (2, &[1, 2, 3], false)),
            (none.clone(), &[0, 1, 2, 3], Some(0.5), (1, &[1, 2, 3], false)),
            (none, &[0, 1], Some(2.0), (2, &[0, 1], true)),
            (typed(Some(4), None, None), &[0, 1], None, (4, &[0, 1], false)),
            (typed(Some(1), None, None), &[0, 1], None, (1, &[0, 1], true)),
            (typed(None, Some(&[0, 1, 2]), None), &[0, 1, 2, 3], None, (3, &[0, 1, 2], true)),
            (typed(Some(2), Some(&[1]), None), &[0, 1], None, (2, &[1], false)),
            (typed(None, None, Some(false)), &[0, 1], None, (2, &[0, 1], false)),
            (typed(Some(1), None, Some(true)), &[0, 1], Some(1.0), (1, &[0, 1], true)),
        ];
        for (settings, affinity, quota, (shard_count, cpus, pinned)) in table {
            let planned = plan(&settings, affinity, quota);
            assert_eq!(planned, Ok(Cores { shard_count, cpus: cpus.to_vec(), pinned }), "{settings:?} {affinity:?} {quota:?}");
        }
    }

    #[test]
    fn what_the_host_cannot_meet_is_refused_by_name() {
        #[rustfmt::skip]
        let table: Vec<(CoreSettings, &[usize], &str)> = vec![
            (typed(None, Some(&[0, 9]), None), &[0, 1], "--cpus names CPU 9, which this process may not use; expected CPUs of 0-1"),
            (typed(Some(4), None, Some(true)), &[0, 1], "--shards 4 cannot be pinned, one a CPU, to 2 CPUs (0-1); expected --shards 2 or fewer, or --pin off"),
        ];
        for (settings, affinity, line) in table {
            let refused = plan(&settings, affinity, None).map_err(|refused| refused.to_string());
            assert!(refused.as_ref().is_err_and(|text| text.starts_with(line)), "{refused:?}");
        }
        let every: Vec<usize> = (0..400).collect();
        assert_eq!(plan(&CoreSettings::default(), &every, None), Err(CoresRefused::TooManyShards { shard_count: 399 }));
    }

    #[test]
    fn a_pinned_shard_has_a_cpu_of_its_own() {
        let cores = Cores { shard_count: 2, cpus: vec![3, 5], pinned: true };
        assert_eq!((cores.pinned_cpu(0), cores.pinned_cpu(1), cores.pinned_cpu(2)), (Some(3), Some(5), None));
        assert_eq!(Cores { pinned: false, ..cores }.pinned_cpu(0), None);
    }

    #[test]
    fn cpu_lists_print_as_ranges() {
        assert_eq!(CpuList(&[0, 1, 2, 5, 7, 8]).to_string(), "0-2,5,7-8");
    }
}
