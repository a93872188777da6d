//! How each peer is started: stock settings, but for what keeps it in memory, on loopback, and able to hold the connections of a shape.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds after which the brokers of the HTTP wire collect an unused queue, so that a run sees the memory come back (stock: 300).
pub const IMPLICIT_IDLE_S: u64 = 5;

/// Where a server runs.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The folder of programs.
    pub programs: &'a Path,
    /// Where it serves.
    pub address: SocketAddr,
    /// An empty folder of its own.
    pub scratch: &'a Path,
    /// The CPU it is pinned to.
    pub cpu: Option<usize>,
}

impl Place<'_> {
    fn command(&self, program: &str) -> Command {
        // It ends with the load, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(cpu) = self.cpu {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        command.arg(self.programs.join(program));
        command.current_dir(self.scratch).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn port(&self) -> String {
        self.address.port().to_string()
    }
}

/// A node, as it comes: a shard on each CPU that it may use.
#[must_use]
pub fn mayfly(place: &Place<'_>) -> Command {
    let mut command = place.command("mayfly");
    command.args(["serve", "--log", "warn", "--listen", &place.address.to_string()]);
    command.env("MAYFLY_IMPLICIT_IDLE_S", IMPLICIT_IDLE_S.to_string()).stderr(Stdio::inherit());
    command
}

/// NATS core, no JetStream.
#[must_use]
pub fn nats(place: &Place<'_>) -> Command {
    let mut command = place.command("nats-server");
    command.args(["--addr", "127.0.0.1", "--port", &place.port()]);
    command
}

/// Redis without snapshots; its connection limit raised from 10,000.
#[must_use]
pub fn redis(place: &Place<'_>) -> Command {
    redis_like(place, "redis-server")
}

/// Valkey, in the same way.
#[must_use]
pub fn valkey(place: &Place<'_>) -> Command {
    redis_like(place, "valkey-server")
}

fn redis_like(place: &Place<'_>, program: &str) -> Command {
    let mut command = place.command(program);
    command.args(["--bind", "127.0.0.1", "--port", &place.port(), "--save", "", "--appendonly", "no", "--maxclients", "19900"]);
    command
}

/// beanstalkd without its log.
#[must_use]
pub fn beanstalkd(place: &Place<'_>) -> Command {
    let mut command = place.command("beanstalkd");
    command.args(["-l", "127.0.0.1", "-p", &place.port()]);
    command
}

/// QueenMQ's published broker, its rate limit lifted (stock: 5,000 messages a second). PostgreSQL is named by PG_HOST, PG_PORT and so on.
#[must_use]
pub fn queenmq(place: &Place<'_>) -> Command {
    let mut command = place.command("queen");
    command.env("PORT", place.port()).env("QUEEN_BIND_ADDR", "127.0.0.1").env("RUST_LOG", "error");
    command.env("QUEEN_EPHEMERAL_RATE", "2000000000").env("QUEEN_EPHEMERAL_BURST", "2000000000");
    command.env("QUEEN_EPHEMERAL_IMPLICIT_IDLE_S", IMPLICIT_IDLE_S.to_string()).env("FILE_BUFFER_DIR", place.scratch);
    command
}

/// The two raw limits.
#[must_use]
pub fn raw(place: &Place<'_>) -> Command {
    let mut command = place.command("raw_limit");
    command.arg(place.address.to_string());
    command
}
