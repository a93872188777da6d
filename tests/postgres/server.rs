//! A PostgreSQL server of the test's own: in a temporary folder, on a free loopback port, ended with its guard by its own pid.
//!
//! initdb refuses root, so root runs it as the user `postgres` that Debian's package makes.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

const START_MAX: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(20);
/// The superuser's.
pub(crate) const PASSWORD: &str = "right";

/// Where the newest server's programs are.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists()).collect())
        .unwrap_or_default();
    found.sort();
    found.pop().expect("PostgreSQL's server is installed (Debian: postgresql; scripts/test installs it)")
});

/// A folder that initdb made, to copy: it takes longer than all else.
static TEMPLATE: LazyLock<Folder> = LazyLock::new(|| {
    let folder = Folder::new();
    remove_at_exit(&folder.0);
    let password = folder.0.join("password");
    std::fs::write(&password, PASSWORD).expect("a file");
    let data = folder.0.join("data");
    let mut initdb = as_postgres(program("initdb"));
    initdb.args(["--no-sync", "--auth=scram-sha-256", "--username=mayfly", "--encoding=UTF8", "--locale=C.UTF-8"]);
    initdb.arg(format!("--pwfile={}", password.display())).arg("--pgdata").arg(&data);
    let made = initdb.output().expect("initdb runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
});

/// Nothing that is static is dropped: a shell that waits for this process's end removes the folder.
fn remove_at_exit(folder: &Path) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat >/dev/null; rm -rf \"$0\""]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::null());
    // Its input is this process's end of a pipe, held until the process is no more.
    std::mem::forget(shell.spawn().expect("sh runs"));
}

/// A folder that goes with its guard.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("mayfly-postgres-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("a folder of everybody");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn program(name: &str) -> Command {
    Command::new(PROGRAMS.join(name))
}

/// A command as a user that may run a server: this one, unless it is root.
fn as_postgres(mut command: Command) -> Command {
    let id = |flag| {
        let told = Command::new("id").args([flag, "postgres"]).output().expect("id runs");
        String::from_utf8_lossy(&told.stdout).trim().parse::<u32>().expect("there is a user postgres")
    };
    let own = Command::new("id").arg("-u").output().expect("id runs").stdout;
    if own == b"0\n" {
        command.uid(id("-u")).gid(id("-g"));
    }
    command.current_dir("/");
    command
}

/// A server.
pub(crate) struct Server {
    pub(crate) port: u16,
    folder: Folder,
    child: Option<Child>,
}

impl Server {
    /// Starts one with an empty database.
    pub(crate) fn start() -> Self {
        let mut server = Self::prepare();
        server.resume();
        server
    }

    /// One that is not started yet.
    pub(crate) fn prepare() -> Self {
        let folder = Folder::new();
        let copied = Command::new("cp").arg("-a").arg(TEMPLATE.0.join("data")).arg(&folder.0).status().expect("cp runs");
        assert!(copied.success());
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        Self { port, folder, child: None }
    }

    /// Starts it, on its port, with what it held.
    pub(crate) fn resume(&mut self) {
        let deadline = Instant::now() + START_MAX;
        let log = self.folder.0.join("log");
        loop {
            // What a killed server leaves may take a moment to go.
            let child = self.spawn(&log);
            if is_up(self.port, child, &mut self.child, deadline) {
                break;
            }
            assert!(Instant::now() < deadline, "no server: {}", std::fs::read_to_string(&log).unwrap_or_default());
        }
    }

    fn spawn(&self, log: &Path) -> Child {
        let output = std::fs::File::options().create(true).append(true).open(log).expect("a log");
        let mut postgres = as_postgres(program("postgres"));
        postgres.arg("-D").arg(self.folder.0.join("data")).args(["-p", &self.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "max_connections=20",
            "shared_buffers=8MB",
            "dynamic_shared_memory_type=mmap",
        ] {
            postgres.args(["-c", setting]);
        }
        postgres.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn().expect("postgres runs")
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let segment = self.shared_memory();
            // Its children end when they see that it is gone.
            child.kill().expect("is its parent");
            child.wait().expect("its status");
            if let Some(segment) = segment {
                // The kernel keeps it for ever; marked, it goes with the last child.
                let _ = Command::new("ipcrm").args(["-m", &segment]).stderr(Stdio::null()).status();
            }
        }
    }

    /// The id of its one System V segment: in the seventh line of its pid file, behind the key.
    fn shared_memory(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.folder.0.join("data/postmaster.pid")).ok()?;
        Some(text.lines().nth(6)?.split_whitespace().nth(1)?.to_owned())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// A URL of it.
    pub(crate) fn url(&self) -> String {
        url(self.port, PASSWORD)
    }

    /// What psql prints: rows by line, fields by `|`.
    #[track_caller]
    pub(crate) fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    pub(crate) fn try_sql(&self, statements: &str) -> Result<String, String> {
        let output = self.psql().arg("-c").arg(statements).output().expect("psql runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// psql for this server.
    pub(crate) fn psql(&self) -> Command {
        let mut psql = program("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "mayfly", "-d", "postgres", "-p", &self.port.to_string()]);
        psql.env("PGPASSWORD", PASSWORD).stdin(Stdio::null());
        psql
    }
}

/// Whether the child serves; one that ended is given up.
fn is_up(port: u16, mut child: Child, slot: &mut Option<Child>, deadline: Instant) -> bool {
    while Instant::now() < deadline {
        if child.try_wait().expect("its status").is_some() {
            return false;
        }
        let mut ready = program("pg_isready");
        ready.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
        if TcpStream::connect(("127.0.0.1", port)).is_ok() && ready.status().is_ok_and(|status| status.success()) {
            *slot = Some(child);
            return true;
        }
        sleep(POLL_EVERY);
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn url(port: u16, password: &str) -> String {
    format!("postgres://mayfly:{password}@127.0.0.1:{port}/postgres")
}
