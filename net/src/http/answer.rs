//! Answers: a head and a body appended to a connection's output, without formatting machinery and without a copy of the
//! body where it can be written in place.
//!
//! An ordinary answer has three header lines: `content-type`, `content-length`, `date`. There is no `server`.

use super::{DateText, Head, Method, Status, Version};

/// The interim answer to [`super::Decoded::Continue`].
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Digits kept for a length that is not known yet: ten billion bytes fit in no answer.
const LENGTH_DIGITS: usize = 10;

/// What the connection does after an answer, as the answer must say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It lives on, as HTTP/1.1 assumes.
    Kept,
    /// It lives on, which HTTP/1.0 has to be told.
    KeptAlive,
    /// It is closed.
    Closed,
}

/// How the answer to a request is delivered: all that is left of the request's head when it is answered later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What happens to the connection.
    pub connection: Connection,
    /// The answer to HEAD: its length is told, its body is not sent.
    pub is_head_only: bool,
}

impl Delivery {
    /// For what no request could be read from: with a body, and the last one.
    pub const REFUSAL: Self = Self { connection: Connection::Closed, is_head_only: false };

    /// As the request asks.
    #[must_use]
    pub fn of(head: &Head<'_>) -> Self {
        let connection = match (head.keep_alive, head.version) {
            (false, _) => Connection::Closed,
            (true, Version::Http10) => Connection::KeptAlive,
            (true, Version::Http11) => Connection::Kept,
        };
        Self { connection, is_head_only: head.method == Method::Head }
    }

    /// The same, and the last answer of its connection.
    #[must_use]
    pub fn closing(self) -> Self {
        Self { connection: Connection::Closed, ..self }
    }
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `application/json`.
    Json,
    /// Prometheus text exposition, version 0.0.4.
    Metrics,
    /// `text/html`, UTF-8.
    Html,
}

impl ContentType {
    const fn line(self) -> &'static str {
        match self {
            Self::Json => "content-type: application/json\r\n",
            Self::Metrics => "content-type: text/plain; version=0.0.4; charset=utf-8\r\n",
            Self::Html => "content-type: text/html; charset=utf-8\r\n",
        }
    }
}

/// What an answer's head says besides its length and date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The status.
    pub status: Status,
    /// What the body is.
    pub content_type: ContentType,
    /// The route's methods, as `allow` lists them: with 405.
    pub allow: Option<&'a str>,
    /// How to prove who asks, as `www-authenticate` says it: with 401.
    pub authenticate: Option<&'a str>,
    /// Seconds until asking again makes sense.
    pub retry_after_s: Option<u32>,
}

impl Answer<'_> {
    /// An ordinary JSON answer.
    #[must_use]
    pub const fn json(status: Status) -> Self {
        Self { status, content_type: ContentType::Json, allow: None, authenticate: None, retry_after_s: None }
    }

    /// Appends the whole answer to `out`.
    pub fn append(&self, out: &mut Vec<u8>, delivery: Delivery, date: &DateText, body: &[u8]) {
        self.append_until_length(out);
        append_decimal(out, body.len() as u64);
        self.append_after_length(out, delivery, date);
        if !delivery.is_head_only {
            out.extend_from_slice(body);
        }
    }

    /// Appends the head with room for the length. What the caller appends to `out` next is the body, until
    /// [`OpenAnswer::finish`]; meanwhile nothing may be taken off the front of `out`.
    #[must_use = "the answer has no length before it is finished"]
    pub fn open(&self, out: &mut Vec<u8>, delivery: Delivery, date: &DateText) -> OpenAnswer {
        self.append_until_length(out);
        let length_at = out.len();
        // White space before a value is legal, where leading zeros might be read as another base.
        out.extend_from_slice(&[b' '; LENGTH_DIGITS]);
        self.append_after_length(out, delivery, date);
        OpenAnswer { length_at, body_at: out.len(), is_head_only: delivery.is_head_only }
    }

    fn append_until_length(&self, out: &mut Vec<u8>) {
        if self.content_type == ContentType::Json {
            out.extend_from_slice(self.status.json_head().as_bytes());
        } else {
            out.extend_from_slice(self.status.line().as_bytes());
            out.extend_from_slice(self.content_type.line().as_bytes());
        }
        out.extend_from_slice(b"content-length: ");
    }

    fn append_after_length(&self, out: &mut Vec<u8>, delivery: Delivery, date: &DateText) {
        out.extend_from_slice(b"\r\ndate: ");
        out.extend_from_slice(date.as_bytes());
        if let Some(methods) = self.allow {
            out.extend_from_slice(b"\r\nallow: ");
            out.extend_from_slice(methods.as_bytes());
        }
        if let Some(challenge) = self.authenticate {
            out.extend_from_slice(b"\r\nwww-authenticate: ");
            out.extend_from_slice(challenge.as_bytes());
        }
        if let Some(seconds) = self.retry_after_s {
            out.extend_from_slice(b"\r\nretry-after: ");
            append_decimal(out, u64::from(seconds));
        }
        out.extend_from_slice(match delivery.connection {
            Connection::Kept => b"\r\n\r\n",
            Connection::KeptAlive => b"\r\nconnection: keep-alive\r\n\r\n",
            Connection::Closed => b"\r\nconnection: close\r\n\r\n",
        });
    }
}

/// An answer whose body is being appended.
#[derive(Debug)]
#[must_use = "the answer has no length before it is finished"]
pub struct OpenAnswer {
    length_at: usize,
    body_at: usize,
    is_head_only: bool,
}

impl OpenAnswer {
    /// Writes the length of what was appended since [`Answer::open`] into the head; drops the body for HEAD.
    ///
    /// # Panics
    /// When `out` is shorter than it was then, or the body longer than ten digits can tell: a head that lies about its
    /// length would put the connection out of step.
    pub fn finish(self, out: &mut Vec<u8>) {
        assert!(out.len() >= self.body_at, "the output was cut under an open answer");
        let (digits, first_at) = decimal((out.len() - self.body_at) as u64);
        let digits = &digits[first_at..];
        assert!(digits.len() <= LENGTH_DIGITS, "an answer of ten billion bytes");
        let end = self.length_at + LENGTH_DIGITS;
        out[end - digits.len()..end].copy_from_slice(digits);
        if self.is_head_only {
            out.truncate(self.body_at);
        }
    }
}

/// The digits of `number` at the array's end, and where they begin.
fn decimal(mut number: u64) -> ([u8; 20], usize) {
    let mut digits = [b'0'; 20];
    let mut first_at = digits.len();
    loop {
        first_at -= 1;
        digits[first_at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return (digits, first_at);
        }
    }
}

fn append_decimal(out: &mut Vec<u8>, number: u64) {
    let (digits, first_at) = decimal(number);
    out.extend_from_slice(&digits[first_at..]);
}
