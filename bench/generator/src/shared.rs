//! Calls of many callers over one connection, by plain push and pop: as a process with many tasks has it. Requests that start in one turn
//! go in one push, all of them name one inbox, and a pop of that inbox takes as many replies as are there.
//!
//! A reply is matched by the id that its request carries and the responder echoes: the member and the number of its call.
//!
//! Invariant: at most one pop is under way, and after a turn there is one exactly if a call is under way. A push behind it waits for its
//! answer, as everything does on a connection of HTTP; that answer comes, as a call is under way.

use std::fmt::Write as _;

use crate::http::{Responder, payload, requests};
use crate::request::{self, Answer, Kind};
use crate::session::{Event, PAYLOAD_BYTES, Role, Session};

/// The most replies that one pop takes.
const INBOX_BATCH: usize = 256;

/// A session of callers that share a connection, or of a responder that answers such; the names of its queues begin with `prefix`.
#[must_use]
pub fn session(prefix: &str, role: Role) -> Option<Box<dyn Session>> {
    match role {
        Role::Callers { count } => Some(Box::new(Callers::new(prefix, count))),
        Role::Responder => Some(Box::new(Echo { responder: Responder::new(prefix, true) })),
        _ => None,
    }
}

/// A member's calls.
#[derive(Clone, Copy, Default)]
struct Calls {
    /// How many were made; the last may be under way.
    count: usize,
    is_under_way: bool,
}

/// All callers of a process.
struct Callers {
    /// Where requests go.
    queue: String,
    inbox: String,
    /// The pop of the inbox.
    pop: Vec<u8>,
    members: Vec<Calls>,
    /// Calls that are under way, of all members.
    under_way_count: usize,
    is_popping: bool,
    /// The messages of the next push, as JSON.
    messages: String,
    /// Members whose reply was in the answer that is being handed out, the next one last, and that answer's length.
    replied: Vec<usize>,
    answer_length: usize,
}

impl Callers {
    fn new(prefix: &str, count: usize) -> Self {
        let (inbox, mut pop) = (format!("{prefix}inbox-shared"), Vec::new());
        request::pop(&mut pop, &inbox, &format!("&wait=true&autoAck=true&batch={INBOX_BATCH}"));
        Self {
            queue: requests(prefix),
            inbox,
            pop,
            members: vec![Calls::default(); count],
            under_way_count: 0,
            is_popping: false,
            messages: String::new(),
            replied: Vec::new(),
            answer_length: 0,
        }
    }

    /// Ends the call that a reply with this id answers: its member. None: none is under way that has it.
    fn end_call(&mut self, id: &str) -> Option<usize> {
        let (member, count) = id.split_once('-')?;
        let (member, count) = (member.parse::<usize>().ok()?, count.parse::<usize>().ok()?);
        let calls = self.members.get_mut(member)?;
        if !calls.is_under_way || calls.count != count {
            return None;
        }
        calls.is_under_way = false;
        self.under_way_count -= 1;
        Some(member)
    }

    /// Takes the replies out of a pop's answer; the error is the fault in them.
    fn popped(&mut self, body: &str) -> Result<(), String> {
        self.is_popping = false;
        for message in body.split("\"payload\":").skip(1) {
            let id = message.strip_prefix("{\"id\":\"").and_then(|rest| rest.split('"').next()).unwrap_or_default();
            let member = self.end_call(id).ok_or_else(|| format!("a reply to no call that is under way: {id}"))?;
            self.replied.push(member);
        }
        self.replied.reverse();
        Ok(())
    }

    /// The next of the replies in the answer at the front of the input, which is taken with the last of them.
    fn next_reply(&mut self) -> Option<(usize, Event)> {
        let member = self.replied.pop()?;
        Some((if self.replied.is_empty() { self.answer_length } else { 0 }, Event::Replied(member)))
    }
}

impl Session for Callers {
    fn open(&mut self, _out: &mut Vec<u8>) -> bool {
        true
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        self.start_member(0, out);
    }

    fn member_count(&self) -> usize {
        self.members.len()
    }

    fn start_member(&mut self, member: usize, _out: &mut Vec<u8>) {
        let calls = &mut self.members[member];
        *calls = Calls { count: calls.count + 1, is_under_way: true };
        self.under_way_count += 1;
        let (comma, inbox, count) = (if self.messages.is_empty() { "" } else { "," }, &self.inbox, calls.count);
        let request = format_args!("{{\"id\":\"{member}-{count}\",\"replyTo\":\"{inbox}\",\"data\":{}}}", payload(PAYLOAD_BYTES));
        let _ = write!(self.messages, "{comma}{{\"payload\":{request}}}");
    }

    fn finish_turn(&mut self, out: &mut Vec<u8>) {
        if !self.messages.is_empty() {
            request::post(out, "push", &format!("{{\"queue\":\"{}\",\"messages\":[{}]}}", self.queue, self.messages));
            self.messages.clear();
        }
        if self.under_way_count > 0 && !self.is_popping {
            out.extend_from_slice(&self.pop);
            self.is_popping = true;
        }
    }

    fn receive(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Option<(usize, Event)> {
        if let Some(next) = self.next_reply() {
            return Some(next);
        }
        let (answer, length) = Answer::parse(input)?;
        let event = match answer.kind() {
            Kind::Pushed => Event::Nothing,
            Kind::Popped => match self.popped(answer.body) {
                Ok(()) => {
                    self.answer_length = length;
                    return Some(self.next_reply().unwrap_or((length, Event::Nothing)));
                }
                Err(fault) => {
                    self.replied.clear();
                    Event::Fault(fault)
                }
            },
            Kind::Acked | Kind::Refused => Event::Fault(answer.body.into()),
        };
        Some((length, event))
    }
}

/// Answers all it got, at the inbox and with the id that each request names, and asks for the next in one request.
struct Echo {
    responder: Responder,
}

impl Session for Echo {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        self.responder.open(out)
    }

    fn start(&mut self, _out: &mut Vec<u8>) {}

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (answer, length) = Answer::parse(input)?;
        let messages = match Responder::messages(answer) {
            Ok(messages) => messages,
            Err(event) => return Some((length, event)),
        };
        // A message's own id, then the one in its payload.
        let (mut ids, mut inboxes, mut replies) = (messages.ids(), messages.reply_queues(), String::new());
        while let (Some(message), Some(request), Some(inbox)) = (ids.next(), ids.next(), inboxes.next()) {
            let comma = if replies.is_empty() { "" } else { "," };
            let data = payload(PAYLOAD_BYTES);
            let reply = format_args!("{{\"id\":\"{request}\",\"data\":{data}}}");
            let _ = write!(replies, "{comma}{{\"id\":\"{message}\",\"replyTo\":\"{inbox}\",\"payload\":{reply}}}");
        }
        self.responder.reply(&replies, out);
        Some((length, Event::Nothing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::events_however_split;

    const POP: &str = "GET /api/v1/ephemeral/pop?queue=p-inbox-shared&wait=true&autoAck=true&batch=256 HTTP/1.1";

    fn callers(count: usize) -> Box<dyn Session> {
        session("p-", Role::Callers { count }).expect("a session")
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    /// A pop's answer with replies of these ids.
    fn popped(ids: &[&str]) -> String {
        let message =
            |id: &&str| format!("{{\"id\":\"e:1:Default:9\",\"partition\":\"Default\",\"payload\":{{\"id\":\"{id}\",\"data\":\"x\"}}}}");
        let messages: Vec<String> = ids.iter().map(message).collect();
        answer("200 OK", &format!("{{\"queue\":\"p-inbox-shared\",\"messages\":[{}]}}", messages.join(",")))
    }

    /// What a turn says that starts calls of `members`.
    fn turn(session: &mut dyn Session, members: &[usize]) -> String {
        let mut out = Vec::new();
        members.iter().for_each(|member| session.start_member(*member, &mut out));
        // A connection may be named twice in a turn.
        session.finish_turn(&mut out);
        session.finish_turn(&mut out);
        String::from_utf8(out).expect("text")
    }

    /// Everything that is made of `input`, which has to be taken whole.
    fn events(session: &mut dyn Session, input: &str) -> Vec<Event> {
        let (mut rest, mut events) = (input.as_bytes(), Vec::new());
        while !rest.is_empty() {
            let (length, event) = session.receive(rest, &mut Vec::new()).expect("whole answers");
            rest = &rest[length..];
            events.push(event);
        }
        events
    }

    fn is_fault(event: &Event) -> bool {
        matches!(event, Event::Fault(_))
    }

    #[test]
    fn requests_of_a_turn_go_in_one_push_and_one_pop_follows() {
        let mut session = callers(3);
        assert_eq!(session.member_count(), 3);
        let text = turn(&mut *session, &[2, 0]);
        let message =
            |id| format!("{{\"payload\":{{\"id\":\"{id}\",\"replyTo\":\"p-inbox-shared\",\"data\":{}}}}}", payload(PAYLOAD_BYTES));
        let push = format!("{{\"queue\":\"p-requests\",\"messages\":[{},{}]}}{POP}", message("2-1"), message("0-1"));
        assert!(text.starts_with("POST /api/v1/ephemeral/push ") && text.contains(&push), "{text}");
        assert_eq!((text.matches("POST ").count(), text.matches("GET ").count()), (1, 1), "{text}");
    }

    #[test]
    fn one_pop_is_under_way_while_a_call_is() {
        let mut session = callers(2);
        assert_eq!(turn(&mut *session, &[]), "");
        assert!(turn(&mut *session, &[0]).ends_with("host: bench\r\n\r\n"));
        let later = turn(&mut *session, &[1]);
        assert!(later.contains("\"1-1\"") && !later.contains("GET "), "{later}");
        // Empty: once more. One of two: once more. None left: no more.
        for (ids, pop_count) in [(&[][..], 1), (&["1-1"], 1), (&["0-1"], 0)] {
            let _ = events(&mut *session, &popped(ids));
            let text = turn(&mut *session, &[]);
            assert_eq!((text.matches(POP).count(), text.contains("POST ")), (pop_count, false), "{ids:?}: {text}");
        }
    }

    #[test]
    fn each_reply_of_an_answer_is_matched_and_a_foreign_one_is_a_fault() {
        let mut session = callers(3);
        turn(&mut *session, &[0, 1, 2]);
        let input = answer("201 Created", "{\"pushed\":3}") + &popped(&["2-1", "0-1"]);
        assert_eq!(events(&mut *session, &input), [Event::Nothing, Event::Replied(2), Event::Replied(0)]);
        turn(&mut *session, &[2]);
        // Of an earlier call, answered already, of nobody, of no such form.
        for foreign in ["2-1", "0-1", "3-1", "1", "x-1", ""] {
            let events = events(&mut *session, &popped(&[foreign]));
            assert!(events.len() == 1 && is_fault(&events[0]), "{foreign}: {events:?}");
        }
        assert_eq!(events(&mut *session, &popped(&["1-1", "2-2"])), [Event::Replied(1), Event::Replied(2)]);
    }

    #[test]
    fn a_payload_that_is_no_reply_and_a_refusal_are_faults() {
        for input in [
            answer("200 OK", "{\"queue\":\"q\",\"messages\":[{\"id\":\"e:1:Default:1\",\"payload\":\"x\"}]}"),
            answer("429 Too Many Requests", "{\"code\":\"over_limit\"}"),
            answer("200 OK", "{\"results\":[]}"),
        ] {
            let mut session = callers(1);
            turn(&mut *session, &[0]);
            assert!(events(&mut *session, &input).iter().all(is_fault), "{input}");
        }
    }

    #[test]
    fn answers_may_be_split_anywhere() {
        // The call of member 0 is started.
        let input = answer("201 Created", "{\"pushed\":1}") + &popped(&[]) + &popped(&["0-1"]) + &popped(&["0-1"]);
        let (events, out) = events_however_split(|| callers(2), input.as_bytes());
        assert_eq!(events[..3], [Event::Nothing, Event::Nothing, Event::Replied(0)]);
        assert!(events.len() == 4 && is_fault(&events[3]) && out.is_empty(), "{events:?}");
    }

    #[test]
    fn several_replies_in_one_answer_may_be_split_anywhere() {
        let input = popped(&["1-1", "0-1", "2-1"]) + &answer("201 Created", "{\"pushed\":1}");
        let make = || {
            let mut session = callers(3);
            [1, 2].into_iter().for_each(|member| session.start_member(member, &mut Vec::new()));
            session
        };
        let (events, _) = events_however_split(make, input.as_bytes());
        assert_eq!(events, [Event::Replied(1), Event::Replied(0), Event::Replied(2), Event::Nothing]);
    }

    #[test]
    fn a_responder_echoes_the_id_to_the_inbox_that_the_payload_names() {
        let request = |count: usize| {
            let payload = format!("{{\"id\":\"7-{count}\",\"replyTo\":\"in-{count}\",\"data\":\"x\"}}");
            format!("{{\"id\":\"e:1:Default:{count}\",\"partition\":\"Default\",\"attempts\":1,\"payload\":{payload}}}")
        };
        let body =
            format!("{{\"results\":[{{\"id\":\"e:1:Default:9\",\"outcome\":\"acked\"}}],\"messages\":[{},{}]}}", request(1), request(2));
        let (events, out) = events_however_split(|| session("p-", Role::Responder).expect("a session"), answer("200 OK", &body).as_bytes());
        assert_eq!(events, [Event::Nothing]);
        let reply = |count: usize| {
            let payload = format!("{{\"id\":\"7-{count}\",\"data\":{}}}", payload(PAYLOAD_BYTES));
            format!("{{\"id\":\"e:1:Default:{count}\",\"replyTo\":\"in-{count}\",\"payload\":{payload}}}")
        };
        let rest = "\"next\":{\"batch\":64,\"wait\":true,\"autoAck\":true}}";
        assert!(out.ends_with(&format!("\"replies\":[{},{}],{rest}", reply(1), reply(2))), "{out}");
    }

    #[test]
    fn other_roles_are_not_to_be_had() {
        assert!(session("", Role::Caller { index: 0 }).is_none() && session("", Role::Parked).is_none());
    }
}
