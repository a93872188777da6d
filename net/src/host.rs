//! What this machine and this process allow, asked before anything starts: each refusal says its cause and a remedy in one line.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use crate::ring::probe::{self, Refusal};
use crate::ring::syscalls;

/// The oldest kernel with everything the driver uses: multishot receive came with 6.0, the last repairs of it with 6.1.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// Locked memory that an executor's rings need.
pub const MEMLOCK_MIN_BYTES: u64 = 512 * 1024;

/// Why a node cannot run here.
#[derive(Debug)]
pub enum HostError {
    /// The kernel is older than 6.1.
    KernelTooOld {
        /// As `uname -r` prints it.
        release: String,
    },
    /// `kernel.io_uring_disabled` forbids io_uring to this process.
    RingDisabled {
        /// The value of the setting: 1 or 2.
        setting: String,
    },
    /// Something between this process and the kernel forbids it: a seccomp filter or a security module.
    RingForbidden(io::Error),
    /// The ring was refused for another reason (memory, descriptors).
    RingRefused(io::Error),
    /// The kernel does not know an operation.
    OperationMissing(&'static str),
    /// RLIMIT_MEMLOCK is below [`MEMLOCK_MIN_BYTES`] and may not be raised.
    MemlockTooSmall {
        /// The limit.
        limit_bytes: u64,
    },
    /// A question to the kernel failed that never fails.
    Unreadable(&'static str, io::Error),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelTooOld { release } => {
                write!(
                    f,
                    "Linux {release} is too old: {}.{} or later is needed for io_uring's multishot receive",
                    KERNEL_MIN.0, KERNEL_MIN.1
                )
            }
            Self::RingDisabled { setting } => write!(
                f,
                "io_uring is switched off (kernel.io_uring_disabled = {setting}): run `sysctl kernel.io_uring_disabled=0`, or with the value 1 \
                 join the group of kernel.io_uring_group"
            ),
            Self::RingForbidden(error) => write!(
                f,
                "io_uring is refused ({error}), usually by a container's seccomp filter: allow io_uring_setup, io_uring_enter and \
                 io_uring_register, for example with docker run --security-opt seccomp=unconfined"
            ),
            Self::RingRefused(error) => write!(
                f,
                "the kernel refused an io_uring: {error}; raise the limits of memory (ulimit -l, the cgroup's memory.max) and of descriptors \
                 (ulimit -n)"
            ),
            Self::OperationMissing(name) => write!(f, "this kernel's io_uring lacks {name}: Linux 6.1 or later is needed"),
            Self::MemlockTooSmall { limit_bytes } => write!(
                f,
                "the limit of locked memory is {} KiB and {} KiB are needed: raise it with `ulimit -l {}`, LimitMEMLOCK= of systemd, or docker \
                 run --ulimit memlock=-1",
                limit_bytes / 1024,
                MEMLOCK_MIN_BYTES / 1024,
                MEMLOCK_MIN_BYTES / 1024
            ),
            Self::Unreadable(what, error) => write!(f, "cannot read {what}: {error}"),
        }
    }
}

impl std::error::Error for HostError {}

/// What a node can use.
#[derive(Clone, Debug)]
pub struct Host {
    /// CPUs that this process may run on, ascending.
    pub cpus: Vec<usize>,
    /// CPUs' worth of time that cgroups grant, when they limit it.
    pub cpu_quota: Option<f64>,
    /// Descriptors that this process may open, the soft limit raised to the hard one.
    pub descriptors_max: u64,
}

impl Host {
    /// Asks everything.
    ///
    /// # Errors
    /// The first thing that keeps a node from running here.
    pub fn probe() -> Result<Self, HostError> {
        check_memlock()?;
        check_ring()?;
        Ok(Self {
            cpus: syscalls::allowed_cpus().map_err(|error| HostError::Unreadable("the CPU affinity", error))?,
            cpu_quota: cpu_quota(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default()),
            descriptors_max: raise_descriptors().map_err(|error| HostError::Unreadable("the limit of descriptors", error))?,
        })
    }
}

/// Keeps the calling thread on one CPU.
///
/// # Errors
/// The CPU does not exist or is not among [`Host::cpus`].
pub fn pin_this_thread(cpu: usize) -> io::Result<()> {
    syscalls::pin_this_thread(cpu)
}

fn check_ring() -> Result<(), HostError> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if kernel_version(&release).is_some_and(|version| version < KERNEL_MIN) {
        return Err(HostError::KernelTooOld { release: release.trim().to_owned() });
    }
    probe::probe().map_err(|refusal| match refusal {
        Refusal::Operation(name) => HostError::OperationMissing(name),
        Refusal::Ring(error) | Refusal::Register(error) | Refusal::Buffers(error) => explain(error),
    })
}

fn explain(error: io::Error) -> HostError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => match fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
            Ok(setting) if matches!(setting.trim(), "1" | "2") => HostError::RingDisabled { setting: setting.trim().to_owned() },
            _ => HostError::RingForbidden(error),
        },
        Some(libc::ENOSYS) => HostError::RingForbidden(error),
        _ => HostError::RingRefused(error),
    }
}

/// Raises the soft limit up to the hard one if that is needed and enough.
fn check_memlock() -> Result<(), HostError> {
    let (soft, hard) = syscalls::limit(libc::RLIMIT_MEMLOCK).map_err(|error| HostError::Unreadable("the limit of locked memory", error))?;
    if soft >= MEMLOCK_MIN_BYTES || (hard >= MEMLOCK_MIN_BYTES && syscalls::set_limit(libc::RLIMIT_MEMLOCK, hard, hard).is_ok()) {
        return Ok(());
    }
    Err(HostError::MemlockTooSmall { limit_bytes: soft })
}

fn raise_descriptors() -> io::Result<u64> {
    let (soft, hard) = syscalls::limit(libc::RLIMIT_NOFILE)?;
    if soft < hard && syscalls::set_limit(libc::RLIMIT_NOFILE, hard, hard).is_ok() {
        return Ok(hard);
    }
    Ok(soft)
}

fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The smallest quota of the process's cgroup and those above it, of either version of cgroups. `membership` is the text of
/// `/proc/self/cgroup`.
fn cpu_quota(mount: &Path, membership: &str) -> Option<f64> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        match controllers {
            "" => smallest_quota(mount, group, unified_quota),
            _ if controllers.split(',').any(|controller| controller == "cpu") => {
                let named = mount.join(controllers);
                let mount = if named.is_dir() { named } else { mount.join("cpu") };
                smallest_quota(&mount, group, legacy_quota)
            }
            _ => None,
        }
    };
    membership.lines().filter_map(of_line).reduce(f64::min)
}

/// A group that is not visible here (no cgroup namespace) is skipped; the visible root is what the container was given.
fn smallest_quota(mount: &Path, group: &str, quota: fn(&Path) -> Option<f64>) -> Option<f64> {
    let groups = Path::new(group.trim_start_matches('/')).ancestors();
    groups.filter_map(|group| quota(&mount.join(group))).reduce(f64::min)
}

fn unified_quota(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut fields = text.split_whitespace();
    quotient(fields.next()?, fields.next()?)
}

fn legacy_quota(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    quotient(read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())
}

/// `None` for "max" and -1: no quota.
fn quotient(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("mayfly-host-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        root
    }

    #[test]
    fn the_smallest_quota_on_the_way_up_counts() {
        let root = tree("v2", &[("cpu.max", "max 100000\n"), ("a/cpu.max", "150000 100000\n"), ("a/b/cpu.max", "200000 100000\n")]);
        assert_eq!(cpu_quota(&root, "0::/a/b\n"), Some(1.5));
        assert_eq!(cpu_quota(&root, "0::/\n"), None);
        assert_eq!(cpu_quota(&root, "0::/a/not/visible\n"), Some(1.5));
        fs::remove_dir_all(root).expect("removable");
    }

    #[test]
    fn a_legacy_quota_counts_and_minus_one_is_none() {
        let files = [("cpu,cpuacct/g/cpu.cfs_quota_us", "50000\n"), ("cpu,cpuacct/g/cpu.cfs_period_us", "100000\n")];
        let root = tree("v1", &files);
        assert_eq!(cpu_quota(&root, "4:memory:/g\n3:cpu,cpuacct:/g\n"), Some(0.5));
        fs::write(root.join(files[0].0), "-1\n").expect("writable");
        assert_eq!(cpu_quota(&root, "3:cpu,cpuacct:/g\n"), None);
        fs::remove_dir_all(root).expect("removable");
    }

    #[test]
    fn kernel_releases_are_read() {
        assert_eq!(kernel_version("6.18.44-fc-v782\n"), Some((6, 18)));
        assert_eq!(kernel_version("5.15.0"), Some((5, 15)));
        assert_eq!(kernel_version(""), None);
    }

    #[test]
    fn this_host_passes_or_says_why_in_one_line() {
        match Host::probe() {
            Ok(host) => assert!(!host.cpus.is_empty() && host.descriptors_max > 0),
            Err(error) => assert!(!error.to_string().contains('\n')),
        }
    }
}
