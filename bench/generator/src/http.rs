//! The broker's own wire, for Mayfly and for QueenMQ's published broker: plain push and pop (a client's push and next pop leave in one
//! write, and so do an ack and the next pop), or `call` and `reply` with `next`.

use std::fmt::Write as _;

use crate::request::{self, Answer, Kind};
use crate::session::{self, Event, Flow, PAYLOAD_BYTES, RESPONDER_BATCH, Role, Session, Stream, inbox_name};

const GROUP: &str = "workers";

/// How requests and replies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Over plain push and pop. The one that has every role.
    Plain,
    /// `call` and `reply`; requests are settled by the delivery, as everywhere where there are no acks.
    Call,
    /// `call` and `reply`; a request is leased, and its reply acks it.
    CallLeased,
}

impl Style {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Call, Self::CallLeased];

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Call => "call",
            Self::CallLeased => "call-leased",
        }
    }
}

/// A session; the names of its queues begin with `prefix`, of characters that neither JSON nor a query escapes.
#[must_use]
pub fn session(style: Style, prefix: &str, role: Role) -> Option<Box<dyn Session>> {
    match (style, role) {
        (Style::Plain, _) => Some(Box::new(Plain::new(prefix, role))),
        (_, Role::Caller { .. }) => Some(Box::new(Caller::new(prefix))),
        (_, Role::Responder) => Some(Box::new(Responder::new(prefix, style == Style::Call))),
        _ => None,
    }
}

/// The queue that a role takes from or sends to; None: it makes new ones, or shares that of others.
#[must_use]
pub fn queue(prefix: &str, role: Role) -> Option<String> {
    match role {
        Role::Caller { index } => Some(inbox(prefix, index)),
        Role::Responder => Some(requests(prefix)),
        Role::Producer(stream) => Some(channel(prefix, stream)),
        Role::Parked => Some(format!("{prefix}parked")),
        Role::Callers { .. } | Role::Consumer { .. } | Role::Inboxes { .. } => None,
    }
}

pub(crate) fn requests(prefix: &str) -> String {
    format!("{prefix}requests")
}

fn inbox(prefix: &str, index: usize) -> String {
    format!("{prefix}inbox-{index}")
}

fn channel(prefix: &str, stream: Stream) -> String {
    format!("{prefix}stream-{}", stream.channel)
}

/// JSON text of `length` bytes.
pub(crate) fn payload(length: usize) -> String {
    format!("\"{}\"", session::payload(length - 2))
}

/// Plain push and pop, every role.
struct Plain {
    role: Role,
    /// One operation.
    operation: Vec<u8>,
    /// The pop that follows an answer.
    pop: Vec<u8>,
    /// Where a consumer acks.
    queue: String,
    /// Messages whose ack is under way.
    leased_count: usize,
    made_count: usize,
}

impl Plain {
    fn new(prefix: &str, role: Role) -> Self {
        let (mut operation, mut pop) = (Vec::new(), Vec::new());
        match role {
            Role::Caller { index } => {
                let inbox = inbox(prefix, index);
                let request = format!("{{\"replyTo\":\"{inbox}\",\"data\":{}}}", payload(PAYLOAD_BYTES));
                request::push(&mut operation, &requests(prefix), &request, 1);
                request::pop(&mut pop, &inbox, "&wait=true&autoAck=true");
                operation.extend_from_slice(&pop);
            }
            // One request a pop: four requests a call, as the published clients do it.
            Role::Responder => request::pop(&mut pop, &requests(prefix), "&group=workers&wait=true&autoAck=true"),
            Role::Producer(stream) => request::push(&mut operation, &channel(prefix, stream), &payload(stream.payload_bytes), stream.batch),
            Role::Consumer { stream, group } => {
                let acks = if stream.flow == Flow::Leased { "" } else { "&autoAck=true" };
                // Where there is one consumer, queue mode, as it comes.
                let group = if stream.flow == Flow::FanOut { format!("&group=group-{group}") } else { String::new() };
                let rest = format!("{group}&batch={}&wait=true{acks}", stream.batch);
                request::pop(&mut pop, &channel(prefix, stream), &rest);
            }
            Role::Parked => request::pop(&mut pop, &format!("{prefix}parked"), "&wait=true&timeout=300000&autoAck=true"),
            Role::Callers { .. } | Role::Inboxes { .. } => {}
        }
        let queue = queue_of_acks(prefix, role);
        Self { role, operation, pop, queue, leased_count: 0, made_count: 0 }
    }

    fn popped(&mut self, answer: Answer<'_>, out: &mut Vec<u8>) -> Event {
        let count = memchr::memmem::find_iter(answer.body.as_bytes(), "\"id\":\"").count();
        match self.role {
            Role::Parked => return Event::Fault("a parked pop was answered".into()),
            Role::Responder => {
                for inbox in answer.reply_queues() {
                    request::push(out, inbox, &payload(PAYLOAD_BYTES), 1);
                }
            }
            Role::Consumer { stream, .. } if stream.flow == Flow::Leased && count > 0 => {
                request::ack(out, &self.queue, "", answer.ids());
                self.leased_count = count;
            }
            _ => {}
        }
        let is_over = matches!(self.role, Role::Caller { .. } | Role::Inboxes { .. }) && count > 0;
        if !is_over {
            out.extend_from_slice(&self.pop);
        }
        if count == 0 || self.leased_count > 0 || matches!(self.role, Role::Responder) { Event::Nothing } else { Event::Done(count) }
    }
}

/// Where a consumer acks.
fn queue_of_acks(prefix: &str, role: Role) -> String {
    if let Role::Consumer { stream, .. } = role { channel(prefix, stream) } else { String::new() }
}

impl Session for Plain {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        if !matches!(self.role, Role::Caller { .. }) {
            out.extend_from_slice(&self.pop);
        }
        true
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if let Role::Inboxes { index } = self.role {
            let inbox = inbox_name(index, self.made_count);
            self.made_count += 1;
            request::push(out, &inbox, &payload(PAYLOAD_BYTES), 1);
            request::pop(out, &inbox, "&autoAck=true");
        } else {
            out.extend_from_slice(&self.operation);
        }
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (answer, length) = Answer::parse(input)?;
        let event = match answer.kind() {
            Kind::Pushed => Event::Nothing,
            Kind::Popped => self.popped(answer, out),
            Kind::Acked => Event::Done(std::mem::take(&mut self.leased_count)),
            Kind::Refused if matches!(self.role, Role::Producer(_)) => Event::Refused,
            Kind::Refused => Event::Fault(answer.body.into()),
        };
        Some((length, event))
    }
}

/// One `call` after the other.
struct Caller {
    call: Vec<u8>,
}

impl Caller {
    fn new(prefix: &str) -> Self {
        let (mut call, queue) = (Vec::new(), requests(prefix));
        request::post(&mut call, "call", &format!("{{\"queue\":\"{queue}\",\"payload\":{}}}", payload(PAYLOAD_BYTES)));
        Self { call }
    }
}

impl Session for Caller {
    fn open(&mut self, _out: &mut Vec<u8>) -> bool {
        true
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.call);
    }

    fn receive(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (answer, length) = Answer::parse(input)?;
        let event = match answer.status {
            200 if answer.body.starts_with("{\"payload\":") => Event::Done(1),
            404 => Event::Missing,
            _ => Event::Fault(answer.body.into()),
        };
        Some((length, event))
    }
}

/// Answers all it got and asks for the next in one request.
pub(crate) struct Responder {
    queue: String,
    is_auto_ack: bool,
}

impl Responder {
    pub(crate) fn new(prefix: &str, is_auto_ack: bool) -> Self {
        Self { queue: requests(prefix), is_auto_ack }
    }

    /// The messages that an answer brings, without the results before them, which have ids too; the error is what it means otherwise.
    pub(crate) fn messages(answer: Answer<'_>) -> Result<Answer<'_>, Event> {
        match answer.status {
            200 => {}
            404 => return Err(Event::Missing),
            _ => return Err(Event::Fault(answer.body.into())),
        }
        let start = memchr::memmem::find(answer.body.as_bytes(), b"\"messages\":").unwrap_or(answer.body.len());
        Ok(Answer { body: &answer.body[start..], ..answer })
    }

    /// Appends a request with these replies, as JSON.
    pub(crate) fn reply(&self, replies: &str, out: &mut Vec<u8>) {
        let (queue, batch, is_auto_ack) = (&self.queue, RESPONDER_BATCH, self.is_auto_ack);
        let next = format!("{{\"batch\":{batch},\"wait\":true,\"autoAck\":{is_auto_ack}}}");
        request::post(out, "reply", &format!("{{\"queue\":\"{queue}\",\"group\":\"{GROUP}\",\"replies\":[{replies}],\"next\":{next}}}"));
    }
}

impl Session for Responder {
    fn open(&mut self, out: &mut Vec<u8>) -> bool {
        self.reply("", out);
        true
    }

    fn start(&mut self, _out: &mut Vec<u8>) {}

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Event)> {
        let (answer, length) = Answer::parse(input)?;
        let messages = match Self::messages(answer) {
            Ok(messages) => messages,
            Err(event) => return Some((length, event)),
        };
        let mut replies = String::new();
        for (id, reply_to) in messages.ids().zip(messages.reply_queues()) {
            let comma = if replies.is_empty() { "" } else { "," };
            let _ = write!(replies, "{comma}{{\"id\":\"{id}\",\"replyTo\":\"{reply_to}\",\"payload\":{}}}", payload(PAYLOAD_BYTES));
        }
        self.reply(&replies, out);
        Some((length, Event::Nothing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::events_however_split;

    fn plain(role: Role) -> Box<dyn Session> {
        session(Style::Plain, "", role).expect("a session")
    }

    fn call(role: Role) -> Box<dyn Session> {
        session(Style::Call, "", role).expect("a session")
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn message(id: usize, inbox: &str) -> String {
        format!("{{\"id\":\"e:1:Default:{id}\",\"partition\":\"Default\",\"attempts\":1,\"payload\":\"x\",\"replyTo\":\"{inbox}\"}}")
    }

    #[test]
    fn a_plain_call_is_a_push_and_a_pop() {
        let input =
            answer("201 Created", "{\"pushed\":1}") + &answer("200 OK", &format!("{{\"queue\":\"q\",\"messages\":[{}]}}", message(1, "")));
        let (events, out) = events_however_split(|| plain(Role::Caller { index: 3 }), input.as_bytes());
        assert_eq!(events, [Event::Nothing, Event::Done(1)]);
        assert_eq!(out, "");
    }

    #[test]
    fn a_consumer_acks_what_it_leased_and_pops_in_the_same_write() {
        let stream = Stream { channel: 0, batch: 2, payload_bytes: 64, flow: Flow::Leased };
        let popped = format!("{{\"queue\":\"q\",\"messages\":[{},{}]}}", message(1, ""), message(2, ""));
        let acked = "{\"results\":[{\"id\":\"e:1:Default:1\",\"outcome\":\"acked\"},{\"id\":\"e:1:Default:2\",\"outcome\":\"acked\"}]}";
        let input = answer("200 OK", &popped) + &answer("200 OK", acked);
        let (events, out) = events_however_split(|| plain(Role::Consumer { stream, group: 1 }), input.as_bytes());
        assert_eq!(events, [Event::Nothing, Event::Done(2)]);
        assert!(out.contains("\"acks\":[{\"id\":\"e:1:Default:1\"},{\"id\":\"e:1:Default:2\"}]"), "{out}");
        assert_eq!(out.matches("GET /api/v1/ephemeral/pop?queue=stream-0&batch=2&wait=true HTTP").count(), 1);
    }

    #[test]
    fn a_responder_answers_every_request_of_a_batch_and_asks_for_the_next() {
        let results = "\"results\":[{\"id\":\"e:1:Default:9\",\"outcome\":\"acked\"}]";
        let body = format!("{{{results},\"messages\":[{},{}]}}", message(1, "r:a"), message(2, "r:b"));
        let (events, out) = events_however_split(|| call(Role::Responder), answer("200 OK", &body).as_bytes());
        assert_eq!(events, [Event::Nothing]);
        let reply = |id, inbox| format!("{{\"id\":\"e:1:Default:{id}\",\"replyTo\":\"{inbox}\",\"payload\":{}}}", payload(64));
        let replies =
            format!("\"replies\":[{},{}],\"next\":{{\"batch\":64,\"wait\":true,\"autoAck\":true}}", reply(1, "r:a"), reply(2, "r:b"));
        assert!(out.contains(&replies), "{out}");
    }

    #[test]
    fn a_server_without_call_is_told_apart_from_a_fault() {
        let (missing, fault) = (answer("404 Not Found", "{\"code\":\"no_such_route\"}"), answer("504 Timeout", "{\"code\":\"no_reply\"}"));
        let (events, _) = events_however_split(|| call(Role::Caller { index: 0 }), (missing + &fault).as_bytes());
        assert_eq!(events, [Event::Missing, Event::Fault("{\"code\":\"no_reply\"}".into())]);
    }
}
