//! What a user would take instead, each over its own protocol: one file a protocol, one [`Session`] a connection.
//!
//! A session turns what a connection does in a shape (its [`Role`]) into bytes, and the server's bytes into [`Event`]s. It reads no clock and
//! touches no socket; [`crate::fleet`] moves the bytes, [`crate::field`] says what is measured. Every message carries the same number of
//! payload bytes beside what its protocol needs to address it.
//!
//! A session has one member, who does one operation after the other, or several, where a protocol lets callers share a connection.

pub mod beanstalkd;
pub mod http;
pub mod launch;
pub mod nats;
pub mod raw;
pub mod redis;
pub mod resp;
pub mod streams;

use std::fmt;
use std::path::Path;
use std::process::Command;

/// How a stream of messages is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// By one consumer, settled by the delivery.
    OneWay,
    /// By one consumer that leases and acks.
    Leased,
    /// By several groups, each of which gets everything; settled by the delivery.
    FanOut,
}

/// A stream of messages from one producer.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Its number: each has a queue of its own.
    pub channel: usize,
    /// Messages that a producer sends at once.
    pub batch: usize,
    /// Bytes of each payload.
    pub payload_bytes: usize,
    /// How it is taken.
    pub flow: Flow,
}

/// What one connection does.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// Calls and waits for the reply at an inbox of its own.
    Caller {
        /// Its number among the callers.
        index: usize,
    },
    /// So many callers of one process that share a connection, each with a call of its own under way.
    Callers {
        /// How many.
        count: usize,
    },
    /// Answers requests, as many at once as its protocol gives it.
    Responder,
    /// Sends a batch each time it is told to.
    Producer(Stream),
    /// Takes what the producer of its stream sends.
    Consumer {
        /// The stream.
        stream: Stream,
        /// Its group.
        group: usize,
    },
    /// Makes an inbox, uses it for one message, and never again.
    Inboxes {
        /// Its number among such connections.
        index: usize,
    },
    /// Waits for a message that never comes.
    Parked,
}

/// What bytes of a server mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing that is measured: an acknowledgement, a ping.
    Nothing,
    /// What [`Session::open`] asked for is in place.
    Ready,
    /// So many operations are complete.
    Done(usize),
    /// The call of this member of the session is complete.
    Replied(usize),
    /// What was started is refused and has left no trace.
    Refused,
    /// The server does not have what this role needs.
    Missing,
    /// Something that does not belong in a measurement, with its text.
    Fault(String),
}

/// One connection's side of a protocol.
pub trait Session {
    /// Appends what the connection sends first. False: [`Event::Ready`] comes when it may start.
    fn open(&mut self, out: &mut Vec<u8>) -> bool;

    /// Appends one operation.
    fn start(&mut self, out: &mut Vec<u8>);

    /// How many operations may be under way, one for each member.
    fn member_count(&self) -> usize {
        1
    }

    /// Appends one operation of a member.
    fn start_member(&mut self, _member: usize, out: &mut Vec<u8>) {
        self.start(out);
    }

    /// Takes one item off the front of `input`, and appends what answers it: the item's length and meaning. None: not all is here.
    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)>;
}

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
pub const PEERS: [Peer; 13] = [
    peer("mayfly", http::plain, launch::mayfly, "mayfly"),
    peer("mayfly-call", http::call, launch::mayfly, "mayfly"),
    peer("mayfly-call-leased", http::call_leased, launch::mayfly, "mayfly"),
    peer("nats", nats::session, launch::nats, "nats-server"),
    Peer { is_shared: true, ..peer("nats-shared", nats::shared, launch::nats, "nats-server") },
    peer("redis", redis::session, launch::redis, "redis-server"),
    peer("redis-streams", streams::session, launch::redis, "redis-server"),
    peer("valkey", redis::session, launch::valkey, "valkey-server"),
    peer("valkey-streams", streams::session, launch::valkey, "valkey-server"),
    peer("beanstalkd", beanstalkd::session, launch::beanstalkd, "beanstalkd"),
    peer("queenmq", http::plain, launch::queenmq, "queen"),
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

/// The most requests that a responder takes at once.
pub(crate) const RESPONDER_BATCH: usize = 64;

/// Bytes of a request's, a reply's and an inbox's payload.
pub(crate) const PAYLOAD_BYTES: usize = 64;

/// A payload of `length` bytes of text.
pub(crate) fn payload(length: usize) -> String {
    "x".repeat(length)
}

/// The inbox `count` of an `index`: names as long as published clients make them, 42 bytes.
pub(crate) fn inbox_name(index: usize, count: usize) -> String {
    format!("inbox-7f3a1c52-9d0e-4b7a-8c21-{index:04}{count:08}")
}

/// The line at the front of `input`, without its end, and its length with it.
pub(crate) fn line(input: &[u8]) -> Option<(&str, usize)> {
    let end = memchr::memchr(b'\n', input)?;
    let text = std::str::from_utf8(&input[..end]).unwrap_or("not text");
    Some((text.trim_end_matches('\r'), end + 1))
}

/// Everything that `session` makes of `input`, given in two parts split at every place: the same events and answers each time.
#[cfg(test)]
pub(crate) fn events_however_split(make: impl Fn() -> Box<dyn Session>, input: &[u8]) -> (Vec<Event>, String) {
    let run = |split: usize| {
        let (mut session, mut out, mut events) = (make(), Vec::new(), Vec::new());
        session.open(&mut out);
        session.start(&mut out);
        out.clear();
        let mut held: Vec<u8> = Vec::new();
        for part in [&input[..split], &input[split..]] {
            held.extend_from_slice(part);
            while let Some((length, event)) = session.receive(&held, &mut out) {
                held.drain(..length);
                events.push(event);
                if held.is_empty() {
                    break;
                }
            }
        }
        assert!(held.is_empty(), "left: {held:?}");
        (events, String::from_utf8(out).expect("text"))
    };
    let whole = run(input.len());
    for split in 0..input.len() {
        assert_eq!(run(split), whole, "split at {split}");
    }
    whole
}
