//! Redis' and Valkey's streams: XADD, XREADGROUP, XACK. What they have of leases, and of groups that each get everything. Trimmed to about
//! 10,000 entries, as an entry that is acked stays in the stream.

use super::resp::{Reader, Value, command};
use mayfly_generator::session::{Event, Flow, Role, Session, Stream, payload};

/// A session of a producer or a consumer.
pub fn session(role: Role) -> Option<Box<dyn Session>> {
    match role {
        Role::Producer(stream) => {
            let (key, payload, mut operation) = (key(stream), payload(stream.payload_bytes), Vec::new());
            for _ in 0..stream.batch {
                command(&mut operation, &["XADD", &key, "MAXLEN", "~", "10000", "*", "p", &payload]);
            }
            Some(Box::new(Streams { operation, consumer: None }))
        }
        Role::Consumer { stream, group } => Some(Box::new(Streams { operation: Vec::new(), consumer: Some(Consumer::new(stream, group)) })),
        _ => None,
    }
}

struct Streams {
    operation: Vec<u8>,
    consumer: Option<Consumer>,
}

struct Consumer {
    key: String,
    group: String,
    read: Vec<u8>,
    is_leased: bool,
    is_ready: bool,
}

fn key(stream: Stream) -> String {
    format!("stream-{}", stream.channel)
}

impl Consumer {
    fn new(stream: Stream, group: usize) -> Self {
        let (key, group, mut read) = (key(stream), format!("group-{group}"), Vec::new());
        let is_leased = stream.flow == Flow::Leased;
        let batch = stream.batch.to_string();
        let mut words = vec!["XREADGROUP", "GROUP", &group, "consumer", "COUNT", &batch, "BLOCK", "0"];
        if !is_leased {
            words.push("NOACK");
        }
        words.extend(["STREAMS", &key, ">"]);
        command(&mut read, &words);
        Self { key, group, read, is_leased, is_ready: false }
    }

    /// `[[key, [[id, [field, value]], …]]]`: acks what it leased, and reads on in the same write.
    fn read(&self, mut reader: Reader<'_>, out: &mut Vec<u8>) -> Option<Event> {
        reader.array()?;
        reader.array()?;
        reader.text()?;
        let count = reader.array()?;
        if self.is_leased {
            let mut words = vec!["XACK", &self.key, &self.group];
            for _ in 0..count {
                reader.array()?;
                words.push(reader.text()?);
                for _ in 0..reader.array()? {
                    reader.text()?;
                }
            }
            command(out, &words);
        }
        out.extend_from_slice(&self.read);
        Some(if self.is_leased { Event::Nothing } else { Event::Done(count) })
    }
}

impl Session for Streams {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(consumer) = &self.consumer else { return true };
        command(out, &["XGROUP", "CREATE", &consumer.key, &consumer.group, "$", "MKSTREAM"]);
        out.extend_from_slice(&consumer.read);
        false
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.operation);
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (reader, length) = Reader::answer(input)?;
        let first = { reader }.next()?;
        let event = match (first, &mut self.consumer) {
            // The id of an entry.
            (Value::Bulk(Some(_)), None) => Some(Event::Nothing),
            (Value::Simple("OK"), Some(consumer)) if !consumer.is_ready => {
                consumer.is_ready = true;
                Some(Event::Ready)
            }
            (Value::Integer(count), Some(_)) => usize::try_from(count).ok().map(Event::Done),
            (Value::Array(Some(_)), Some(consumer)) => consumer.read(reader, out),
            _ => None,
        };
        Some((length, event.unwrap_or_else(|| Event::Fault(format!("{first:?}")))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_generator::session::events_however_split;

    const READ: &[u8] = b"+OK\r\n*1\r\n*2\r\n$8\r\nstream-0\r\n*2\r\n\
        *2\r\n$3\r\n1-0\r\n*2\r\n$1\r\np\r\n$1\r\nx\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\np\r\n$1\r\nx\r\n";

    fn consumer(flow: Flow) -> Box<dyn Session> {
        session(Role::Consumer { stream: Stream { channel: 0, batch: 2, payload_bytes: 1, flow }, group: 4 }).expect("a session")
    }

    #[test]
    fn what_was_leased_is_acked_and_counts_then() {
        let input = [READ, b":2\r\n"].concat();
        let (events, out) = events_however_split(|| consumer(Flow::Leased), &input);
        assert_eq!(events, [Event::Ready, Event::Nothing, Event::Done(2)]);
        let mut expected = Vec::new();
        command(&mut expected, &["XACK", "stream-0", "group-4", "1-0", "1-1"]);
        let read = ["XREADGROUP", "GROUP", "group-4", "consumer", "COUNT", "2", "BLOCK", "0", "STREAMS", "stream-0", ">"];
        command(&mut expected, &read);
        // The first read left with the opening.
        assert_eq!(out.as_bytes(), expected);
    }

    #[test]
    fn without_acks_a_read_counts_at_once() {
        let (events, out) = events_however_split(|| consumer(Flow::FanOut), READ);
        assert_eq!(events, [Event::Ready, Event::Done(2)]);
        assert!(out.contains("NOACK") && !out.contains("XACK"), "{out}");
    }
}
