//! beanstalkd's text protocol, <https://github.com/beanstalkd/beanstalkd/blob/master/doc/protocol.txt>: a queue is a tube, every job is
//! leased (reserve) and acked (delete). Commands are pipelined.

use std::io::Write;

use mayfly_generator::session::{Event, Flow, PAYLOAD_BYTES, Role, Session, inbox_name, line, payload};

/// A session. A tube's job goes to one consumer: there is no fan-out.
pub fn session(role: Role) -> Option<Box<dyn Session>> {
    match role {
        Role::Producer(stream) | Role::Consumer { stream, .. } if stream.flow == Flow::FanOut => None,
        _ => Some(Box::new(Tubes { role, made_count: 0, watching_due: 0 })),
    }
}

struct Tubes {
    role: Role,
    made_count: usize,
    /// Answers to `watch` and `ignore` that are to come before it is ready.
    watching_due: usize,
}

fn put(out: &mut Vec<u8>, body: &str) {
    let _ = write!(out, "put 0 0 60 {}\r\n{body}\r\n", body.len());
}

impl Tubes {
    fn watch(&mut self, tube: &str, out: &mut Vec<u8>) {
        let _ = write!(out, "watch {tube}\r\nignore default\r\n");
        self.watching_due = 2;
    }

    fn reserved(&self, id: &str, body: &str, out: &mut Vec<u8>) -> Event {
        match self.role {
            Role::Caller { .. } => {
                let _ = write!(out, "delete {id}\r\n");
                Event::Done(1)
            }
            Role::Responder => {
                let Some((inbox, _)) = body.split_once(' ') else { return Event::Fault(body.into()) };
                let _ = write!(out, "use {inbox}\r\n");
                put(out, &payload(PAYLOAD_BYTES));
                let _ = write!(out, "delete {id}\r\nreserve\r\n");
                Event::Nothing
            }
            Role::Consumer { stream, .. } => {
                let _ = write!(out, "delete {id}\r\nreserve\r\n");
                if stream.flow == Flow::Leased { Event::Nothing } else { Event::Done(1) }
            }
            Role::Inboxes { index } => {
                let _ = write!(out, "delete {id}\r\nignore {}\r\n", inbox_name(index, self.made_count - 1));
                Event::Nothing
            }
            Role::Callers { .. } | Role::Producer(_) | Role::Parked => Event::Fault("a job that nobody put".into()),
        }
    }

    fn watching(&mut self) -> Event {
        self.watching_due = self.watching_due.saturating_sub(1);
        match (self.role, self.watching_due) {
            (_, 1..) => Event::Nothing,
            (Role::Inboxes { .. }, 0) => Event::Done(1),
            (_, 0) => Event::Ready,
        }
    }
}

impl Session for Tubes {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        match self.role {
            Role::Caller { index } => {
                out.extend_from_slice(b"use requests\r\n");
                self.watch(&format!("inbox-{index}"), out);
            }
            Role::Responder => self.watch("requests", out),
            Role::Producer(stream) => {
                let _ = write!(out, "use stream-{}\r\n", stream.channel);
            }
            Role::Consumer { stream, .. } => self.watch(&format!("stream-{}", stream.channel), out),
            Role::Parked => self.watch("parked", out),
            Role::Callers { .. } | Role::Inboxes { .. } => {}
        }
        // One at a time: it answers nothing behind a reserve that waits, a delete neither.
        if matches!(self.role, Role::Responder | Role::Parked | Role::Consumer { .. }) {
            out.extend_from_slice(b"reserve\r\n");
        }
        matches!(self.role, Role::Producer(_) | Role::Inboxes { .. })
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        match self.role {
            Role::Caller { index } => {
                put(out, &format!("inbox-{index} {}", payload(PAYLOAD_BYTES)));
                out.extend_from_slice(b"reserve\r\n");
            }
            Role::Producer(stream) => {
                let body = payload(stream.payload_bytes);
                for _ in 0..stream.batch {
                    put(out, &body);
                }
            }
            Role::Inboxes { index } => {
                let inbox = inbox_name(index, self.made_count);
                self.made_count += 1;
                self.watching_due = 2;
                let _ = write!(out, "use {inbox}\r\n");
                put(out, &payload(PAYLOAD_BYTES));
                let _ = write!(out, "watch {inbox}\r\nreserve\r\n");
            }
            Role::Callers { .. } | Role::Responder | Role::Consumer { .. } | Role::Parked => {}
        }
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (head, length) = line(input)?;
        let mut words = head.split(' ');
        let event = match words.next()? {
            "INSERTED" | "USING" => Event::Nothing,
            "WATCHING" => self.watching(),
            "DELETED" if matches!(self.role, Role::Consumer { stream, .. } if stream.flow == Flow::Leased) => Event::Done(1),
            "DELETED" => Event::Nothing,
            "RESERVED" => {
                let (id, bytes) = (words.next()?, words.next()?.parse::<usize>().ok()?);
                let body = input.get(length..length + bytes + 2)?;
                let body = std::str::from_utf8(&body[..bytes]).unwrap_or("not text");
                return Some((length + bytes + 2, self.reserved(id, body, out)));
            }
            _ => Event::Fault(head.into()),
        };
        Some((length, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_generator::session::{Stream, events_however_split};

    #[test]
    fn a_responder_replies_deletes_and_reserves_in_one_write() {
        let input = b"WATCHING 2\r\nWATCHING 1\r\nRESERVED 12 9\r\ninbox-7 x\r\nUSING inbox-7\r\nINSERTED 13\r\nDELETED\r\n";
        let (events, out) = events_however_split(|| session(Role::Responder).expect("a session"), input);
        assert_eq!(events, [Event::Nothing, Event::Ready, Event::Nothing, Event::Nothing, Event::Nothing, Event::Nothing]);
        assert_eq!(out, format!("use inbox-7\r\nput 0 0 60 64\r\n{}\r\ndelete 12\r\nreserve\r\n", payload(64)));
    }

    #[test]
    fn a_leased_job_counts_when_it_is_deleted_and_a_used_inbox_when_it_is_forgotten() {
        let stream = Stream { channel: 0, batch: 1, payload_bytes: 1, flow: Flow::Leased };
        let input = b"WATCHING 2\r\nWATCHING 1\r\nRESERVED 1 1\r\nx\r\nDELETED\r\nBURIED\r\n";
        let (events, _) = events_however_split(|| session(Role::Consumer { stream, group: 0 }).expect("a session"), input);
        assert_eq!(events, [Event::Nothing, Event::Ready, Event::Nothing, Event::Done(1), Event::Fault("BURIED".into())]);

        let input = b"USING i\r\nINSERTED 1\r\nWATCHING 2\r\nRESERVED 1 1\r\nx\r\nDELETED\r\nWATCHING 1\r\n";
        let (events, _) = events_however_split(|| session(Role::Inboxes { index: 0 }).expect("a session"), input);
        assert_eq!(events.last(), Some(&Event::Done(1)));
        assert_eq!(events.iter().filter(|event| **event != Event::Nothing).count(), 1);
    }
}
