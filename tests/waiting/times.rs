//! Lateness, its percentiles, and what the machine itself is late by.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Times in order, for percentiles: microseconds, below zero what came early.
pub(crate) struct Times(Vec<i64>);

impl Times {
    pub(crate) fn of(mut times: Vec<i64>) -> Self {
        assert!(!times.is_empty());
        times.sort_unstable();
        Self(times)
    }

    /// The time that `part` of 1 do not exceed.
    pub(crate) fn at(&self, part: f64) -> i64 {
        self.0[((self.0.len() - 1) as f64 * part).ceil() as usize]
    }

    pub(crate) fn print(&self, what: &str) {
        let (min, p50, p99, p999, max) = (self.at(0.0), self.at(0.5), self.at(0.99), self.at(0.999), self.at(1.0));
        println!("{what}, us: {} samples, min {min}, p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}", self.0.len());
    }

    /// Whether they are within limits, each of a part of them. Asserts that nothing came early: no machine is to blame for that.
    #[track_caller]
    pub(crate) fn within(&self, limits: &[(f64, i64)]) -> Result<(), String> {
        assert!(self.at(0.0) >= 0, "early by {} us", -self.at(0.0));
        match limits.iter().find(|(part, limit)| self.at(*part) > *limit) {
            None => Ok(()),
            Some((part, limit)) => Err(format!("{part} of them: {} us, at most {limit}", self.at(*part))),
        }
    }
}

/// Microseconds since `from`.
pub(crate) fn since_us(from: Instant) -> i64 {
    from.elapsed().as_micros() as i64
}

/// The thread that calls.
pub(crate) const HERE: Pid = Pid::from_raw(0);

/// Where a node's cores run: the CPUs of each, of its other threads where none is bound to fewer.
pub(crate) fn cpus_of_cores(pid: u32) -> Vec<CpuSet> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let ids = tasks.map(|task| task.expect("a thread").file_name().to_string_lossy().parse().expect("a number"));
    // One that has ended meanwhile is no core.
    let sets: Vec<_> = ids.filter_map(|id| sched_getaffinity(Pid::from_raw(id)).ok()).collect();
    let count = |set: &CpuSet| (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).count();
    let fewest = sets.iter().map(count).min().expect("a thread");
    sets.into_iter().filter(|set| count(set) == fewest).collect()
}

/// How late a thread wakes on some CPUs that only sleeps, in microseconds.
pub(crate) fn oversleep(cpus: &CpuSet, span: Duration) -> i64 {
    sched_setaffinity(HERE, cpus).expect("the node may use them too");
    let asleep = Instant::now();
    sleep(span);
    since_us(asleep) - span.as_micros() as i64
}

/// How long the threads of a process ran, and how long they waited for a CPU, in nanoseconds; nothing where the kernel does not say.
pub(crate) fn scheduled(pid: u32) -> (u64, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let mut fields = text.split_whitespace().map(|field| field.parse().unwrap_or(0));
        (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
    };
    tasks.map_while(Result::ok).map(of_task).fold((0, 0), |(ran, waited), (ran_too, waited_too)| (ran + ran_too, waited + waited_too))
}
