//! NATS' text protocol: <https://docs.nats.io/reference/reference-protocols/nats-protocol>. Calls as its clients make them: one inbox
//! subscription a client (`_INBOX.x.*`), a reply subject a call; responders of one queue group. It has no lease outside JetStream, which
//! is another class of storage.
//!
//! Callers are driven in both ways that its users have: a connection each, as processes of one caller, or all on one, as the goroutines or
//! tasks of one process, whose client matches replies to calls by the last token of their subject.

use std::io::Write;

use mayfly_generator::session::{Event, Flow, PAYLOAD_BYTES, Role, Session, inbox_name, line, payload};

/// A session. Leased streams are not to be had.
pub fn session(role: Role) -> Option<Box<dyn Session>> {
    match role {
        Role::Producer(stream) | Role::Consumer { stream, .. } if stream.flow == Flow::Leased => None,
        _ => Some(Box::new(Nats::new(role))),
    }
}

/// A session of callers that share a connection, or of a responder; nothing else differs from [`session`].
pub fn shared(role: Role) -> Option<Box<dyn Session>> {
    match role {
        Role::Callers { count } => Some(Box::new(Shared { nats: Nats::new(role), call_counts: vec![0; count] })),
        Role::Responder => session(role),
        _ => None,
    }
}

struct Nats {
    role: Role,
    payload: String,
    started_count: usize,
}

impl Nats {
    fn new(role: Role) -> Self {
        let length = match role {
            Role::Producer(stream) => stream.payload_bytes,
            _ => PAYLOAD_BYTES,
        };
        Self { role, payload: payload(length), started_count: 0 }
    }

    fn publish(&self, subject: &str, reply: &str, out: &mut Vec<u8>) {
        let space = if reply.is_empty() { "" } else { " " };
        let _ = write!(out, "PUB {subject}{space}{reply} {}\r\n{}\r\n", self.payload.len(), self.payload);
    }

    fn message(&self, head: &str, out: &mut Vec<u8>) -> Event {
        match self.role {
            // MSG <subject> <sid> [reply-to] <#bytes>
            Role::Responder => match head.split(' ').nth(3) {
                Some(reply) => {
                    self.publish(reply, "", out);
                    Event::Nothing
                }
                None => Event::Fault(head.into()),
            },
            Role::Parked => Event::Fault("a parked subscription got a message".into()),
            _ => Event::Done(1),
        }
    }
}

impl Session for Nats {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\n");
        let _ = match self.role {
            Role::Caller { index } => write!(out, "SUB _INBOX.{index}.* 1\r\n"),
            Role::Callers { .. } => out.write_all(b"SUB _INBOX.shared.* 1\r\n"),
            Role::Responder => write!(out, "SUB requests workers 1\r\n"),
            Role::Consumer { stream, .. } => write!(out, "SUB stream.{} 1\r\n", stream.channel),
            Role::Parked => write!(out, "SUB parked workers 1\r\n"),
            Role::Producer(_) | Role::Inboxes { .. } => Ok(()),
        };
        out.extend_from_slice(b"PING\r\n");
        false
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        let count = self.started_count;
        self.started_count += 1;
        match self.role {
            Role::Caller { index } => self.publish("requests", &format!("_INBOX.{index}.{count}"), out),
            Role::Producer(stream) => {
                let subject = format!("stream.{}", stream.channel);
                for _ in 0..stream.batch {
                    self.publish(&subject, "", out);
                }
            }
            Role::Inboxes { index } => {
                // One message, then the server forgets it.
                let inbox = inbox_name(index, count);
                let _ = write!(out, "SUB {inbox} {count}\r\nUNSUB {count} 1\r\n");
                self.publish(&inbox, "", out);
            }
            Role::Callers { .. } | Role::Responder | Role::Consumer { .. } | Role::Parked => {}
        }
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (head, length) = line(input)?;
        if head.starts_with("MSG ") {
            let bytes: usize = head.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            let end = length + bytes + 2;
            return (input.len() >= end).then(|| (end, self.message(head, out)));
        }
        let event = match head {
            "PONG" => Event::Ready,
            "PING" => {
                out.extend_from_slice(b"PONG\r\n");
                Event::Nothing
            }
            "+OK" => Event::Nothing,
            _ if head.starts_with("INFO ") => Event::Nothing,
            _ => Event::Fault(head.into()),
        };
        Some((length, event))
    }
}

/// Many callers on one connection. The token of a reply subject is the member and the number of its call.
struct Shared {
    nats: Nats,
    /// Calls that each member has made; the last is under way.
    call_counts: Vec<usize>,
}

impl Shared {
    /// The member that a message answers; None: it answers no call that is under way.
    fn member(&self, head: &str) -> Option<usize> {
        let subject = head.split(' ').nth(1)?;
        let (member, count) = subject.strip_prefix("_INBOX.shared.")?.split_once('-')?;
        let (member, count) = (member.parse().ok()?, count.parse::<usize>().ok()?);
        (*self.call_counts.get(member)? == count).then_some(member)
    }
}

impl Session for Shared {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        self.nats.open(out)
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        self.start_member(0, out);
    }

    fn member_count(&self) -> usize {
        self.call_counts.len()
    }

    fn start_member(&mut self, member: usize, out: &mut Vec<u8>) {
        self.call_counts[member] += 1;
        self.nats.publish("requests", &format!("_INBOX.shared.{member}-{}", self.call_counts[member]), out);
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (length, event) = self.nats.receive(input, out)?;
        let event = match event {
            Event::Done(_) => match line(input).and_then(|(head, _)| self.member(head)) {
                Some(member) => Event::Replied(member),
                None => Event::Fault("a reply to no call that is under way".into()),
            },
            event => event,
        };
        Some((length, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_generator::session::{Stream, events_however_split};

    #[test]
    fn a_responder_replies_to_each_message_of_a_read() {
        let text =
            "INFO {\"server_id\":\"x\"}\r\nPONG\r\nMSG requests 1 _INBOX.3.7 4\r\na\r\nb\r\nPING\r\nMSG requests 1 _INBOX.4.8 0\r\n\r\n";
        let (events, out) = events_however_split(|| session(Role::Responder).expect("a session"), text.as_bytes());
        assert_eq!(events, [Event::Nothing, Event::Ready, Event::Nothing, Event::Nothing, Event::Nothing]);
        let body = payload(64);
        assert_eq!(out, format!("PUB _INBOX.3.7 64\r\n{body}\r\nPONG\r\nPUB _INBOX.4.8 64\r\n{body}\r\n"));
    }

    #[test]
    fn a_call_names_an_inbox_of_its_own_and_errors_are_faults() {
        let (mut caller, mut out) = (session(Role::Caller { index: 3 }).expect("a session"), Vec::new());
        caller.start(&mut out);
        caller.start(&mut out);
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("PUB requests _INBOX.3.0 64\r\n") && text.contains("PUB requests _INBOX.3.1 64\r\n"), "{text}");
        let input = b"MSG _INBOX.3.0 1 2\r\nok\r\n-ERR 'Unknown Protocol Operation'\r\n";
        let (events, _) = events_however_split(|| session(Role::Caller { index: 3 }).expect("a session"), input);
        assert_eq!(events, [Event::Done(1), Event::Fault("-ERR 'Unknown Protocol Operation'".into())]);
    }

    #[test]
    fn callers_that_share_a_connection_get_the_replies_of_their_own_calls() {
        let (mut callers, mut out) = (shared(Role::Callers { count: 3 }).expect("a session"), Vec::new());
        assert_eq!(callers.member_count(), 3);
        callers.open(&mut out);
        [2, 0, 2].into_iter().for_each(|member| callers.start_member(member, &mut out));
        let text = String::from_utf8(out).expect("text");
        let subjects: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("PUB requests ")).collect();
        assert_eq!(subjects, ["_INBOX.shared.2-1 64", "_INBOX.shared.0-1 64", "_INBOX.shared.2-2 64"]);
        assert!(text.contains("SUB _INBOX.shared.* 1\r\n"), "{text}");
        let mut reply = |token: &str| {
            let input = format!("MSG _INBOX.shared.{token} 1 2\r\nok\r\n");
            callers.receive(input.as_bytes(), &mut Vec::new()).map(|(length, event)| (length == input.len(), event))
        };
        assert_eq!(reply("2-2"), Some((true, Event::Replied(2))));
        assert_eq!(reply("0-1"), Some((true, Event::Replied(0))));
        for foreign in ["2-1", "1-1", "3-1", "x"] {
            assert!(matches!(reply(foreign), Some((true, Event::Fault(_)))), "{foreign}");
        }
    }

    #[test]
    fn there_is_no_lease() {
        assert!(session(Role::Producer(Stream { channel: 0, batch: 1, payload_bytes: 64, flow: Flow::Leased })).is_none());
    }
}
