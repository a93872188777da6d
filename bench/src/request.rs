//! Requests of the broker's wire as bytes, and the little of its answers that a load generator reads.

use std::io::Write;

/// The payload of every one-way message: 64 bytes of JSON.
pub const PAYLOAD: &str = "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"";

/// Appends a POST to a route of the family (`push`, `ack`).
pub fn post(output: &mut Vec<u8>, route: &str, body: &str) {
    let length = body.len();
    let head = format_args!("POST /api/v1/ephemeral/{route} HTTP/1.1\r\nhost: bench\r\ncontent-length: {length}\r\n\r\n");
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
    let head = format_args!("GET /api/v1/ephemeral/pop?queue={queue}{rest} HTTP/1.1\r\nhost: bench\r\n\r\n");
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
    /// The status code.
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
    ///
    /// # Panics
    /// When the input is not what the broker answers: a benchmark against anything else means nothing.
    #[must_use]
    pub fn parse(input: &'a [u8]) -> Option<(Self, usize)> {
        let head_length = input.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&input[..head_length]).expect("a head is text");
        let field = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim())
        });
        let length = head_length + field.and_then(|value| value.parse::<usize>().ok()).expect("answers have a Content-Length");
        let body = input.get(head_length..length)?;
        let status = head.get(9..12).and_then(|code| code.parse().ok()).expect("a status line");
        Some((Self { status, body: std::str::from_utf8(body).expect("bodies are text") }, length))
    }

    /// What it answers.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.body.get(..4) {
            _ if self.status >= 400 => Kind::Refused,
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
    fn the_payload_has_64_bytes() {
        assert_eq!(PAYLOAD.len(), 64);
    }
}
