//! What a process on this host has used so far, from /proc.

use std::time::Duration;

/// A process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pid: u32,
}

impl Process {
    /// The process of an id.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self { pid }
    }

    /// CPU time of the process: of its threads by the scheduler's nanoseconds, else by the clock ticks of `stat` (10 ms each).
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.scheduled(0).unwrap_or_else(|| self.ticked())
    }

    /// Time in which its threads could have run and another had the CPU: other work, or each other. None: the kernel does not count it.
    #[must_use]
    pub fn waited_time(&self) -> Option<Duration> {
        self.scheduled(1)
    }

    /// A field of the scheduler's statistics, over all threads.
    fn scheduled(&self, field: usize) -> Option<Duration> {
        let mut total_ns = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid)).ok()? {
            let line = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            total_ns += line.split(' ').nth(field)?.parse::<u64>().ok()?;
        }
        (total_ns > 0).then(|| Duration::from_nanos(total_ns))
    }

    fn ticked(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // Behind the name in parentheses, which may hold spaces, user and system ticks are fields 12 and 13.
        let fields = stat.rsplit(") ").next().unwrap_or("").split(' ').skip(11).take(2);
        Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10)
    }

    /// Resident bytes, counted page by page (`status` is off by up to 64 pages a CPU). 0: it is gone.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap_or("");
        line.trim().trim_end_matches(" kB").parse::<u64>().map_or(0, |kib| kib * 1024)
    }
}
