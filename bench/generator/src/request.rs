//! Requests of the broker's wire as bytes, and the little of its answers that a load generator reads.

use std::io::Write;
use std::sync::OnceLock;

/// The payload of every one-way message: 64 bytes of JSON.
pub const PAYLOAD: &str = "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"";

/// The header line of a token, for every request of this process.
static AUTHORIZATION: OnceLock<String> = OnceLock::new();

/// Has every request carry a token from now on; the first one counts.
pub fn authorize(token: &str) {
    AUTHORIZATION.get_or_init(|| format!("authorization: Bearer {token}\r\n"));
}

fn authorization() -> &'static str {
    AUTHORIZATION.get().map_or("", String::as_str)
}

/// Appends a POST to a route of the family (`push`, `ack`).
pub fn post(output: &mut Vec<u8>, route: &str, body: &str) {
    let (length, token) = (body.len(), authorization());
    let head = format_args!("POST /api/v1/ephemeral/{route} HTTP/1.1\r\nhost: bench\r\n{token}content-length: {length}\r\n\r\n");
    output.write_fmt(head).expect("a vector takes everything");
    output.extend_from_slice(body.as_bytes());
}

/// Appends a push of the same payload, `count` times.
pub fn push(output: &mut Vec<u8>, queue: &str, payload: &str, count: usize) {
    let message = format!("{{\"payload\":{payload}}}");
    let messages = vec![message; count].join(",");
    post(output, "push", &format!("{{\"queue\":\"{queue}\",\"messages\":[{messages}]}}"));
}

/// Appends a pop; `rest` is the query behind the queue, such as `&wait=true`.
pub fn pop(output: &mut Vec<u8>, queue: &str, rest: &str) {
    let token = authorization();
    let head = format_args!("GET /api/v1/ephemeral/pop?queue={queue}{rest} HTTP/1.1\r\nhost: bench\r\n{token}\r\n");
    output.write_fmt(head).expect("a vector takes everything");
}

/// Appends a GET of a route of the family.
pub fn get(output: &mut Vec<u8>, route: &str) {
    let token = authorization();
    let head = format_args!("GET /api/v1/ephemeral/{route} HTTP/1.1\r\nhost: bench\r\n{token}\r\n");
    output.write_fmt(head).expect("a vector takes everything");
}

/// Appends the deletion of a queue.
pub fn delete(output: &mut Vec<u8>, queue: &str) {
    let token = authorization();
    let head = format_args!("DELETE /api/v1/ephemeral/queue/{queue} HTTP/1.1\r\nhost: bench\r\n{token}\r\n");
    output.write_fmt(head).expect("a vector takes everything");
}

/// Appends a request of the node's metrics.
pub fn metrics(output: &mut Vec<u8>) {
    output.extend_from_slice(b"GET /metrics HTTP/1.1\r\nhost: bench\r\n\r\n");
}

/// Appends an ack of the given ids.
pub fn ack<'a>(output: &mut Vec<u8>, queue: &str, group: &str, ids: impl Iterator<Item = &'a str>) {
    let mut acks = String::new();
    for id in ids {
        acks.push_str(if acks.is_empty() { "{\"id\":\"" } else { ",{\"id\":\"" });
        acks.push_str(id);
        acks.push_str("\"}");
    }
    post(output, "ack", &format!("{{\"queue\":\"{queue}\",\"group\":\"{group}\",\"acks\":[{acks}]}}"));
}

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The status code; 0: the bytes are no answer of the broker.
    pub status: u16,
    /// The whole body.
    pub body: &'a str,
}

/// What an answer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A push that was taken.
    Pushed,
    /// A pop.
    Popped,
    /// An ack.
    Acked,
    /// A refusal.
    Refused,
}

impl<'a> Answer<'a> {
    /// Takes one answer, framed by Content-Length, off the front of `input`: the answer and its length in bytes; None: not all is here.
    /// What no broker answers is taken whole, as a refusal of status 0: a measurement of anything else means nothing.
    #[must_use]
    pub fn parse(input: &'a [u8]) -> Option<(Self, usize)> {
        const FOREIGN: Answer<'_> = Answer { status: 0, body: "not an answer of the broker" };
        if !input.starts_with(b"HTTP/1.1 ".get(..input.len().min(9))?) {
            return Some((FOREIGN, input.len()));
        }
        let head_length = input.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let Some((status, body_length)) = read_head(&input[..head_length]) else { return Some((FOREIGN, input.len())) };
        let length = head_length + body_length;
        let body = input.get(head_length..length)?;
        Some((Self { status, body: std::str::from_utf8(body).unwrap_or("not text") }, length))
    }

    /// What it answers.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.body.get(..4) {
            _ if !(100..400).contains(&self.status) => Kind::Refused,
            Some("{\"pu") => Kind::Pushed,
            Some("{\"re") => Kind::Acked,
            _ => Kind::Popped,
        }
    }

    /// The ids of a pop's messages, in order.
    pub fn ids(&self) -> impl Iterator<Item = &'a str> {
        values(self.body, "\"id\":\"")
    }

    /// Where the requests of a pop want their replies.
    pub fn reply_queues(&self) -> impl Iterator<Item = &'a str> {
        values(self.body, "\"replyTo\":\"")
    }
}

/// The status and the Content-Length of a head.
fn read_head(head: &[u8]) -> Option<(u16, usize)> {
    let head = std::str::from_utf8(head).ok()?;
    let length = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim())
    });
    Some((head.get(9..12)?.parse().ok()?, length?.parse().ok()?))
}

fn values<'a>(body: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    body.split(key).skip(1).filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 49\r\n\r\n{\"queue\":\"q\",\"messages\":[{\"id\":\"a\"},{\"id\":\"b\"}]} HTTP/1.1";
        assert!((0..88).all(|length| Answer::parse(&input[..length]).is_none()));
        let (answer, length) = Answer::parse(input).expect("whole");
        assert_eq!((answer.status, answer.kind(), length), (200, Kind::Popped, 88));
        assert_eq!(answer.ids().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn what_no_broker_answers_is_a_refusal() {
        for foreign in ["-ERR unknown command\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "220 ready"] {
            let (answer, length) = Answer::parse(foreign.as_bytes()).expect("is taken");
            assert_eq!((answer.status, answer.kind(), length), (0, Kind::Refused, foreign.len()));
        }
        assert!(Answer::parse(b"HTTP/").is_none());
    }

    #[test]
    fn the_payload_has_64_bytes() {
        assert_eq!(PAYLOAD.len(), 64);
    }
}
