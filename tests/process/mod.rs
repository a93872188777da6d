//! A built node as a child process on a free loopback port. It ends with its guard, by its own pid.

#![allow(dead_code, unreachable_pub, reason = "shared by test files that each use a part")]

pub mod client;
pub mod trials;

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a node may take to serve; generous, for busy test machines.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a stopped node may take to drain.
const STOP_MAX: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// `mayfly` with no setting of the caller's environment.
pub fn mayfly() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_mayfly")))
}

/// `mayfly serve` with `arguments`.
pub fn serve(shards: usize, arguments: &[&str]) -> Command {
    let mut command = mayfly();
    command.args(["serve", "--shards", &shards.to_string()]).args(arguments);
    command
}

/// Raises this process's limit of open files, which its nodes inherit, as far as it goes: the limit.
pub fn raise_open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let hard = limits.lines().find(|line| line.starts_with("Max open files")).and_then(|line| line.split_whitespace().nth(4));
    let hard = hard.expect("a limit of open files");
    let pid = std::process::id().to_string();
    let raised = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={hard}:{hard}")]).status().expect("prlimit runs");
    assert!(raised.success());
    hard.parse().unwrap_or(usize::MAX)
}

/// A folder that no other node of any test has, in the system's temporary one; it is not made.
pub fn unused_folder() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("mayfly-test-{}-{since:x}-{number}", std::process::id()))
}

/// Where a command's node keeps its data.
fn data_dir(command: &Command) -> Option<PathBuf> {
    let is_it = |(name, _): &(&OsStr, _)| *name == "MAYFLY_DATA_DIR";
    command.get_envs().find(is_it)?.1.map(PathBuf::from)
}

/// Takes every setting of the caller's environment away from a command, and gives it a data folder of its own.
pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name == "PORT" || ["MAYFLY_", "QUEEN_", "JWT_", "PG_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("MAYFLY_DATA_DIR", unused_folder());
    command
}

/// A command that ended by itself.
pub struct Ended {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard error.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

/// Runs a command to its end, which is near: one that goes on is killed.
pub fn run(mut command: Command) -> Ended {
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("spawns");
    while child.try_wait().expect("its status").is_none() {
        if started.elapsed() > START_MAX {
            let _ = child.kill();
        }
        sleep(POLL_EVERY);
    }
    let took = started.elapsed();
    if let Some(folder) = data_dir(&command) {
        // Most were not made.
        let _ = std::fs::remove_dir_all(folder);
    }
    let output = child.wait_with_output().expect("its output");
    Ended { code: output.status.code(), stderr: String::from_utf8_lossy(&output.stderr).into_owned(), took }
}

/// A serving node.
pub struct Node {
    /// Where it serves.
    pub address: SocketAddr,
    child: Child,
    log: Arc<Mutex<String>>,
    /// Its data folder, which goes with it.
    folder: Option<PathBuf>,
}

impl Node {
    /// Starts `command` (a `mayfly serve …` without `--listen`) on a free port and waits until it says where it serves.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("spawns");
        let log = collect(child.stderr.take().expect("is piped"));
        let folder = data_dir(&command);
        let deadline = Instant::now() + START_MAX;
        loop {
            let address = served_address(&log.lock().expect("unpoisoned"));
            if let Some(address) = address {
                return Self { address, child, log, folder };
            }
            let ended = child.try_wait().expect("its status");
            if ended.is_some() || Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                panic!("no node: {ended:?}\n{}", log.lock().expect("unpoisoned"));
            }
            sleep(POLL_EVERY);
        }
    }

    /// Leaves its data folder for another node.
    pub fn keep_folder(&mut self) -> PathBuf {
        self.folder.take().expect("a data folder")
    }

    /// Ends it at once, as a power cut of its process would.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Whether `GET /health` answers 200.
    pub fn is_healthy(&self) -> bool {
        self.get("/health").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
    }

    /// The whole answer to a GET on a connection of its own.
    pub fn get(&self, target: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).as_bytes())?;
        io::read_to_string(stream)
    }

    /// The value of a metric without labels.
    #[track_caller]
    pub fn metric(&self, client: &mut client::Client, name: &str) -> u64 {
        let text = String::from_utf8(client.ask(client::get("/metrics")).body).expect("text");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_else(|| panic!("{name} in {text}"));
        value.parse().expect("a number")
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("unpoisoned").clone()
    }

    /// How it ended, when it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("its status")
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Sends SIGTERM and waits: how it ended, and its log.
    pub fn stop(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let deadline = Instant::now() + STOP_MAX;
        loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                return (status, self.log());
            }
            assert!(Instant::now() < deadline, "the node did not stop\n{}", self.log());
            sleep(POLL_EVERY);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Reads a child's output as it comes, so that the child never waits for its reader.
fn collect(output: ChildStderr) -> Arc<Mutex<String>> {
    let collected = Arc::new(Mutex::new(String::new()));
    let log = Arc::clone(&collected);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut log = log.lock().expect("unpoisoned");
            log.push_str(&line);
            log.push('\n');
        }
    });
    collected
}

/// The address in a node's banner, of either log format.
fn served_address(log: &str) -> Option<SocketAddr> {
    let banner = log.lines().find(|line| line.contains("mayfly serves"))?;
    let (_, after) = banner.split_once("address=").or_else(|| banner.split_once("\"address\":\""))?;
    after.split([' ', '"']).next()?.parse().ok()
}
