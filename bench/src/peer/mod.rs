//! What a user would take instead, each over its own protocol: one file a protocol, one [`Session`] a connection.

pub mod beanstalkd;
pub mod launch;
pub mod nats;
pub mod raw;
pub mod redis;
pub mod resp;
pub mod streams;

use std::fmt;
use std::path::Path;
use std::process::Command;

use mayfly_generator::http::{self, Style};
use mayfly_generator::session::{Role, Session};
use mayfly_generator::shared;

/// A server and one way of using it.
#[derive(Clone, Copy)]
pub struct Peer {
    /// Its name; `--only` takes all that begin so.
    pub name: &'static str,
    /// The session of a role. None: it has nothing of the kind.
    pub session: fn(Role) -> Option<Box<dyn Session>>,
    /// Its callers share one connection ([`Role::Callers`]).
    pub is_shared: bool,
    /// The command that serves.
    pub launch: fn(&launch::Place<'_>) -> Command,
    /// The program, as it is called in the folder of programs.
    pub program: &'static str,
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Peer {
    /// The sessions of `roles`, members in their order. None: it has nothing of the kind.
    #[must_use]
    pub fn sessions(&self, roles: impl Iterator<Item = Role>) -> Option<Vec<Box<dyn Session>>> {
        let mut roles: Vec<Role> = roles.collect();
        let count = roles.iter().take_while(|role| matches!(role, Role::Caller { .. })).count();
        if self.is_shared && count > 0 {
            roles.splice(..count, [Role::Callers { count }]);
        }
        roles.into_iter().map(self.session).collect()
    }

    /// Whether its program is in `programs`.
    #[must_use]
    pub fn is_installed(&self, programs: &Path) -> bool {
        programs.join(self.program).exists()
    }
}

/// Every peer, in the order of a round; ours first.
pub const PEERS: [Peer; 14] = [
    peer("mayfly", |role| http::session(Style::Plain, "", role), launch::mayfly, "mayfly"),
    peer("mayfly-call", |role| http::session(Style::Call, "", role), launch::mayfly, "mayfly"),
    peer("mayfly-call-leased", |role| http::session(Style::CallLeased, "", role), launch::mayfly, "mayfly"),
    Peer { is_shared: true, ..peer("mayfly-shared", |role| shared::session("", role), launch::mayfly, "mayfly") },
    peer("nats", nats::session, launch::nats, "nats-server"),
    Peer { is_shared: true, ..peer("nats-shared", nats::shared, launch::nats, "nats-server") },
    peer("redis", redis::session, launch::redis, "redis-server"),
    peer("redis-streams", streams::session, launch::redis, "redis-server"),
    peer("valkey", redis::session, launch::valkey, "valkey-server"),
    peer("valkey-streams", streams::session, launch::valkey, "valkey-server"),
    peer("beanstalkd", beanstalkd::session, launch::beanstalkd, "beanstalkd"),
    peer("queenmq", |role| http::session(Style::Plain, "", role), launch::queenmq, "queen"),
    peer("relay", raw::relay, launch::raw, "raw_limit"),
    peer("echo", raw::echo, launch::raw, "raw_limit"),
];

const fn peer(
    name: &'static str,
    session: fn(Role) -> Option<Box<dyn Session>>,
    launch: fn(&launch::Place<'_>) -> Command,
    program: &'static str,
) -> Peer {
    Peer { name, session, is_shared: false, launch, program }
}
