//! A server under test, started for one shape and ended with it: a node of one shard on one CPU, or any command.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A running server. Dropping it ends the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it serves.
    pub address: SocketAddr,
}

impl Server {
    /// Starts `program serve` with one shard on `cpu` and the given environment, and waits until it takes connections.
    ///
    /// # Errors
    /// It does not start, or takes none within 5 s.
    pub fn start(program: &Path, cpu: usize, environment: &[(&str, &str)]) -> io::Result<Self> {
        let address = free_address()?;
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(program);
        command.args(["serve", "--shards", "1", "--pin", "on", "--log", "warn", "--listen", &address.to_string()]);
        command.envs(environment.iter().copied());
        Self::launch(command, address, Duration::from_secs(5))
    }

    /// Runs `command`, which serves at `address`, and waits until it takes connections.
    ///
    /// # Errors
    /// It does not start, or takes none within `patience`.
    pub fn launch(mut command: Command, address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let mut server = Self { child: command.spawn()?, address };
        let end = Instant::now() + patience;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > end || server.child.try_wait()?.is_some() {
                return Err(io::Error::other("the server did not start"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
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
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()? {
            let line = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            total_ns += line.split(' ').nth(field)?.parse::<u64>().ok()?;
        }
        (total_ns > 0).then(|| Duration::from_nanos(total_ns))
    }

    fn ticked(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // Behind the name in parentheses, which may hold spaces, user and system ticks are fields 12 and 13.
        let fields = stat.rsplit(") ").next().unwrap_or("").split(' ').skip(11).take(2);
        Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10)
    }

    /// Resident bytes, counted page by page (`status` is off by up to 64 pages a CPU). 0: it is gone.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id())).unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap_or("");
        line.trim().trim_end_matches(" kB").parse::<u64>().map_or(0, |kib| kib * 1024)
    }
}

/// A loopback port that is free now, and until the server takes it, unless another process is quicker: then the server says so and ends.
///
/// # Errors
/// There is none.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
