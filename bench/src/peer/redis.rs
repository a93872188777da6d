//! Redis and Valkey as queues: lists with blocking pops, publish and subscribe for fan-out; commands pipelined. A request names the list
//! that takes its reply. Responders and consumers take batches (BLMPOP … COUNT, since 7.0).
//!
//! A connection each for callers too, as their users have it: one that waits in BRPOP answers nothing else, so a client's pool gives every
//! waiting caller its own. Push and pop leave in one write, which is the best that a client library does.

use super::resp::{Reader, Value, command};
use mayfly_generator::session::{Event, Flow, PAYLOAD_BYTES, RESPONDER_BATCH, Role, Session, Stream, inbox_name, payload};

/// A session. A leased stream needs [`super::streams`].
pub fn session(role: Role) -> Option<Box<dyn Session>> {
    match role {
        Role::Producer(stream) | Role::Consumer { stream, .. } if stream.flow == Flow::Leased => None,
        _ => Some(Box::new(Lists::new(role))),
    }
}

struct Lists {
    role: Role,
    /// What starts an operation.
    operation: Vec<u8>,
    /// The blocking pop, or the subscription.
    pop: Vec<u8>,
    payload: String,
    made_count: usize,
}

impl Lists {
    fn new(role: Role) -> Self {
        let (mut operation, mut pop, payload) = (Vec::new(), Vec::new(), payload(PAYLOAD_BYTES));
        match role {
            Role::Caller { index } => {
                let inbox = format!("inbox-{index}");
                command(&mut operation, &["LPUSH", "requests", &format!("{inbox} {payload}")]);
                command(&mut operation, &["BRPOP", &inbox, "0"]);
            }
            Role::Responder => pop_many(&mut pop, "requests", RESPONDER_BATCH),
            Role::Producer(stream) => produce(&mut operation, stream),
            Role::Consumer { stream, .. } if stream.flow == Flow::FanOut => command(&mut pop, &["SUBSCRIBE", &key(stream)]),
            Role::Consumer { stream, .. } => pop_many(&mut pop, &key(stream), stream.batch),
            Role::Parked => command(&mut pop, &["BRPOP", "parked", "0"]),
            Role::Callers { .. } | Role::Inboxes { .. } => {}
        }
        Self { role, operation, pop, payload, made_count: 0 }
    }

    fn array(&self, mut reader: Reader<'_>, out: &mut Vec<u8>) -> Option<Event> {
        reader.array()?;
        let kind = reader.text()?;
        match self.role {
            Role::Caller { .. } => Some(Event::Done(1)),
            Role::Responder => {
                for _ in 0..reader.array()? {
                    let (inbox, _) = reader.text()?.split_once(' ')?;
                    command(out, &["LPUSH", inbox, &self.payload]);
                }
                out.extend_from_slice(&self.pop);
                Some(Event::Nothing)
            }
            Role::Consumer { stream, .. } if stream.flow == Flow::FanOut => Some(match kind {
                "message" => Event::Done(1),
                "subscribe" => Event::Ready,
                _ => Event::Fault(kind.into()),
            }),
            Role::Consumer { .. } => {
                out.extend_from_slice(&self.pop);
                reader.array().map(Event::Done)
            }
            Role::Callers { .. } | Role::Parked | Role::Producer(_) | Role::Inboxes { .. } => None,
        }
    }
}

fn key(stream: Stream) -> String {
    format!("stream-{}", stream.channel)
}

fn pop_many(out: &mut Vec<u8>, key: &str, count: usize) {
    command(out, &["BLMPOP", "0", "1", key, "RIGHT", "COUNT", &count.to_string()]);
}

/// One LPUSH of the batch, or as many PUBLISH as messages: that command takes one.
fn produce(out: &mut Vec<u8>, stream: Stream) {
    let (key, payload) = (key(stream), payload(stream.payload_bytes));
    if stream.flow == Flow::FanOut {
        for _ in 0..stream.batch {
            command(out, &["PUBLISH", &key, &payload]);
        }
    } else {
        let mut words = vec!["LPUSH", &key];
        words.resize(stream.batch + 2, &payload);
        command(out, &words);
    }
}

impl Session for Lists {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&self.pop);
        !matches!(self.role, Role::Consumer { stream, .. } if stream.flow == Flow::FanOut)
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if let Role::Inboxes { index } = self.role {
            let inbox = inbox_name(index, self.made_count);
            self.made_count += 1;
            command(out, &["LPUSH", &inbox, &self.payload]);
            command(out, &["RPOP", &inbox]);
        } else {
            out.extend_from_slice(&self.operation);
        }
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (reader, length) = Reader::answer(input)?;
        let first = { reader }.next()?;
        let event = match first {
            Value::Integer(_) => Some(Event::Nothing),
            Value::Bulk(Some(_)) if matches!(self.role, Role::Inboxes { .. }) => Some(Event::Done(1)),
            Value::Array(Some(_)) => self.array(reader, out),
            _ => None,
        };
        Some((length, event.unwrap_or_else(|| Event::Fault(format!("{first:?}")))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_generator::session::events_however_split;

    #[test]
    fn a_responder_answers_a_batch_and_blocks_again() {
        let input = b"*2\r\n$8\r\nrequests\r\n*2\r\n$9\r\ninbox-7 x\r\n$9\r\ninbox-8 y\r\n:1\r\n:1\r\n";
        let (events, out) = events_however_split(|| session(Role::Responder).expect("a session"), input);
        assert_eq!(events, [Event::Nothing, Event::Nothing, Event::Nothing]);
        let (mut expected, body) = (Vec::new(), payload(64));
        command(&mut expected, &["LPUSH", "inbox-7", &body]);
        command(&mut expected, &["LPUSH", "inbox-8", &body]);
        command(&mut expected, &["BLMPOP", "0", "1", "requests", "RIGHT", "COUNT", "64"]);
        assert_eq!(out.as_bytes(), expected);
    }

    #[test]
    fn calls_batches_and_subscriptions_are_counted() {
        let caller = b":1\r\n*2\r\n$7\r\ninbox-0\r\n$2\r\nok\r\n-ERR no\r\n";
        let (events, _) = events_however_split(|| session(Role::Caller { index: 0 }).expect("a session"), caller);
        assert_eq!(events, [Event::Nothing, Event::Done(1), Event::Fault("Error(\"ERR no\")".into())]);

        let mut stream = Stream { channel: 0, batch: 2, payload_bytes: 1, flow: Flow::OneWay };
        let consumer = b"*2\r\n$8\r\nstream-0\r\n*2\r\n$1\r\nx\r\n$1\r\nx\r\n";
        let (events, _) = events_however_split(|| session(Role::Consumer { stream, group: 0 }).expect("a session"), consumer);
        assert_eq!(events, [Event::Done(2)]);

        stream.flow = Flow::FanOut;
        let subscriber = b"*3\r\n$9\r\nsubscribe\r\n$8\r\nstream-0\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$8\r\nstream-0\r\n$1\r\nx\r\n";
        let (events, _) = events_however_split(|| session(Role::Consumer { stream, group: 0 }).expect("a session"), subscriber);
        assert_eq!(events, [Event::Ready, Event::Done(1)]);
    }
}
