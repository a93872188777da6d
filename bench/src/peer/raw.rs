//! What no broker can beat: the same pattern of messages with nothing to parse. `raw_limit` serves both; a connection says in three bytes
//! what it is (a letter and a channel), then sends bare payloads.
//!
//! - relay: a caller's 64 bytes go to a responder, its 64 bytes back to the caller; a producer's bytes go to every consumer of its channel.
//! - echo: a caller's 64 bytes come straight back.

use mayfly_generator::session::{Event, Flow, PAYLOAD_BYTES, Role, Session, payload};

/// A session through the relay.
pub fn relay(role: Role) -> Option<Box<dyn Session>> {
    let (kind, channel, answer_bytes) = match role {
        Role::Caller { .. } => (b'C', 0, PAYLOAD_BYTES),
        Role::Responder => (b'R', 0, PAYLOAD_BYTES),
        Role::Producer(stream) if stream.flow != Flow::Leased => (b'P', stream.channel, 1),
        Role::Consumer { stream, .. } if stream.flow != Flow::Leased => (b'S', stream.channel, stream.payload_bytes),
        _ => return None,
    };
    Some(Box::new(Raw { role, hello: Some(hello(kind, channel)), answer_bytes }))
}

/// A session with the echo: responders have nothing to do.
pub fn echo(role: Role) -> Option<Box<dyn Session>> {
    match role {
        Role::Caller { .. } | Role::Responder => Some(Box::new(Raw { role, hello: Some(hello(b'E', 0)), answer_bytes: PAYLOAD_BYTES })),
        _ => None,
    }
}

fn hello(kind: u8, channel: usize) -> [u8; 3] {
    let [low, high, ..] = channel.to_le_bytes();
    [kind, low, high]
}

struct Raw {
    role: Role,
    hello: Option<[u8; 3]>,
    answer_bytes: usize,
}

impl Session for Raw {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        out.extend(self.hello.take().into_iter().flatten());
        true
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        let (count, bytes) = match self.role {
            Role::Producer(stream) => (stream.batch, stream.payload_bytes),
            _ => (1, PAYLOAD_BYTES),
        };
        out.extend_from_slice(payload(count * bytes).as_bytes());
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let count = input.len() / self.answer_bytes;
        if count == 0 {
            return None;
        }
        let event = match self.role {
            Role::Responder => {
                out.extend_from_slice(&input[..count * self.answer_bytes]);
                Event::Nothing
            }
            Role::Producer(_) => Event::Fault("an answer to a producer".into()),
            _ => Event::Done(count),
        };
        Some((count * self.answer_bytes, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_payloads_count() {
        let (mut caller, mut out) = (relay(Role::Caller { index: 0 }).expect("a session"), Vec::new());
        caller.open(&mut out);
        caller.start(&mut out);
        assert_eq!((&out[..3], out.len()), (&b"C\0\0"[..], 67));
        assert_eq!(caller.receive(&out[3..66], &mut Vec::new()), None);
        assert_eq!(caller.receive(&out[..67], &mut Vec::new()), Some((64, Event::Done(1))));
        let mut responder = relay(Role::Responder).expect("a session");
        assert_eq!(responder.receive(&[7; 130], &mut out), Some((128, Event::Nothing)));
        assert_eq!(out.len(), 67 + 128);
    }
}
