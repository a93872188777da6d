//! One connection's side of a protocol: what it does in a loop (its [`Role`]) becomes bytes, and the server's bytes become [`Event`]s.
//!
//! A session reads no clock and touches no socket; [`crate::fleet`] moves the bytes, [`crate::loops`] says what is measured. Every message
//! carries the same number of payload bytes beside what its protocol needs to address it. A session has one member, who does one operation
//! after the other, or several, where a protocol lets callers share a connection.

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

    /// Appends what all operations of a turn say together. Called after the last of them and after what was received, perhaps twice.
    fn finish_turn(&mut self, _out: &mut Vec<u8>) {}

    /// Takes one item off the front of `input`, and appends what answers it: the item's length and meaning. None: not all is here.
    /// An item of several meanings is given again for each, with the length 0 until the last.
    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)>;
}

/// The most requests that a responder takes at once.
pub const RESPONDER_BATCH: usize = 64;

/// Bytes of a request's, a reply's and an inbox's payload.
pub const PAYLOAD_BYTES: usize = 64;

/// A payload of `length` bytes of text.
pub fn payload(length: usize) -> String {
    "x".repeat(length)
}

/// The inbox `count` of an `index`: names as long as published clients make them, 42 bytes.
pub fn inbox_name(index: usize, count: usize) -> String {
    format!("inbox-7f3a1c52-9d0e-4b7a-8c21-{index:04}{count:08}")
}

/// The line at the front of `input`, without its end, and its length with it.
pub fn line(input: &[u8]) -> Option<(&str, usize)> {
    let end = memchr::memchr(b'\n', input)?;
    let text = std::str::from_utf8(&input[..end]).unwrap_or("not text");
    Some((text.trim_end_matches('\r'), end + 1))
}

/// Everything that `session` makes of `input`, given in two parts split at every place: the same events and answers each time.
///
/// # Panics
/// When a split makes a difference, or bytes are left.
#[cfg(any(test, feature = "testing"))]
pub fn events_however_split(make: impl Fn() -> Box<dyn Session>, input: &[u8]) -> (Vec<Event>, String) {
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
