//! A server under test, started for one shape and ended with it: a node of one shard on one CPU, or any command.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use mayfly_generator::process::Process;

/// A running server. Dropping it ends the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// What it uses.
    pub process: Process,
    /// Where it serves.
    pub address: SocketAddr,
    /// Its data folder, which goes with it.
    folder: Option<PathBuf>,
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
        let folder = std::env::temp_dir().join(format!("mayfly-bench-{}-{}", std::process::id(), address.port()));
        command.env("MAYFLY_DATA_DIR", &folder).envs(environment.iter().copied());
        let mut server = Self::launch(command, address, Duration::from_secs(5))?;
        server.folder = Some(folder);
        Ok(server)
    }

    /// Runs `command`, which serves at `address`, and waits until it takes connections.
    ///
    /// # Errors
    /// It does not start, or takes none within `patience`.
    pub fn launch(mut command: Command, address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let child = command.spawn()?;
        let mut server = Self { process: Process::of(child.id()), child, address, folder: None };
        let end = Instant::now() + patience;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > end || server.child.try_wait()?.is_some() {
                return Err(io::Error::other("the server did not start"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
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
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
