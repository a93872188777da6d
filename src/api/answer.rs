//! Answers of the queue operations, appended to a connection's output as JSON.
//!
//! A pop's answer is a stream: [`pop_begin`], [`pop_message`] for each message, [`pop_end`]; payloads go from the ring into `out` and
//! nowhere in between.

use std::time::SystemTime;

use mayfly_shards::{DEFAULT_PARTITION, Delivery, Outcome, inbox_of};

use super::id::{self, Incarnation};
use super::inbox;
use super::json::append_string;
use super::timestamp;

/// A push's answer.
pub fn pushed(out: &mut Vec<u8>, pushed_count: usize) {
    out.extend_from_slice(b"{\"pushed\":");
    append_number(out, pushed_count as u64);
    out.push(b'}');
}

/// The beginning of a pop's answer.
pub fn pop_begin(out: &mut Vec<u8>, queue: &str) {
    out.extend_from_slice(b"{\"queue\":");
    append_string(out, queue);
    out.extend_from_slice(b",\"messages\":[");
}

/// How messages are spelled. Between the messages of a partition only numbers and payloads differ; the rest is kept for the next one.
#[derive(Debug)]
pub struct Spelling {
    incarnation: Incarnation,
    /// Of the message spelled last.
    partition: String,
    /// A comma, then a message up to its seq.
    head: Vec<u8>,
    /// From behind its delivery up to its payload, of a message that was delivered once and has no inbox.
    middle: Vec<u8>,
}

/// The end of [`Spelling::middle`] that differs for other messages.
const FIRST_ATTEMPT: &[u8] = b"1,\"payload\":";
/// Most bytes of a message's numbers, its inbox and its end.
const NUMBERS_BYTES_MAX: usize = 128;

impl Spelling {
    /// The spelling of a node's messages.
    #[must_use]
    pub fn new(incarnation: Incarnation) -> Self {
        let mut spelling = Self { incarnation, partition: String::new(), head: Vec::new(), middle: Vec::new() };
        spelling.learn(DEFAULT_PARTITION);
        spelling
    }

    fn learn(&mut self, partition: &str) {
        let Self { incarnation, head, middle, .. } = self;
        head.clear();
        head.extend_from_slice(b",{\"id\":\"");
        let spelled = id::append_beginning(head, incarnation, partition);
        middle.clear();
        middle.extend_from_slice(b"\",\"partition\":\"");
        middle.extend_from_slice(&head[spelled]);
        middle.extend_from_slice(b"\",\"attempts\":");
        middle.extend_from_slice(FIRST_ATTEMPT);
        self.partition.clear();
        self.partition.push_str(partition);
    }
}

/// One message, behind [`pop_begin`] or another one.
pub fn pop_message(out: &mut Vec<u8>, spelling: &mut Spelling, delivery: &Delivery<'_>) {
    if spelling.partition != delivery.partition {
        spelling.learn(delivery.partition);
    }
    let Spelling { incarnation, head, middle, .. } = spelling;
    out.reserve(head.len() + middle.len() + NUMBERS_BYTES_MAX + delivery.payload.len());
    let is_first = out.last() != Some(&b'}');
    out.extend_from_slice(&head[usize::from(is_first)..]);
    id::append_numbers(out, incarnation.spelled(delivery.seq), delivery.delivery);
    let moved = delivery.inbox.map(|inbox| (Incarnation::new(inbox.incarnation), inbox.number));
    match moved.as_ref().map(|(of, number)| (of, *number)).or(inbox_of(delivery.seq).map(|number| (&*incarnation, number))) {
        None if delivery.attempts == 1 => out.extend_from_slice(middle),
        inbox => {
            out.extend_from_slice(&middle[..middle.len() - FIRST_ATTEMPT.len()]);
            append_number(out, u64::from(delivery.attempts));
            if let Some((incarnation, number)) = inbox {
                out.extend_from_slice(b",\"replyTo\":\"");
                inbox::append(out, incarnation, number);
                out.push(b'"');
            }
            out.extend_from_slice(b",\"payload\":");
        }
    }
    out.extend_from_slice(delivery.payload);
    out.push(b'}');
}

/// One message as a server-sent event: the object that a pop has, on one line.
pub fn event(out: &mut Vec<u8>, spelling: &mut Spelling, delivery: &Delivery<'_>) {
    out.extend_from_slice(b"id: ");
    id::append_text(out, &spelling.incarnation, delivery.partition, delivery.seq, delivery.delivery);
    out.extend_from_slice(b"\nevent: message\ndata: ");
    let object_at = out.len();
    pop_message(out, spelling, delivery);
    // Inside of a JSON string there are none.
    for byte in out[object_at..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    out.extend_from_slice(b"\n\n");
}

/// A comment, by which a quiet stream is known to be alive.
pub fn event_comment(out: &mut Vec<u8>) {
    out.extend_from_slice(b": keep-alive\n\n");
}

/// The end of a pop's answer.
pub fn pop_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}

/// An ack's answer: every id as the client spelled it inside its quotes, with its outcome, in the order of the call.
pub fn acked<'a>(out: &mut Vec<u8>, results: impl IntoIterator<Item = (&'a [u8], Outcome)>) {
    out.extend_from_slice(b"{\"results\":[");
    for (index, (spelled_id, outcome)) in results.into_iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"id\":\"" } else { b",{\"id\":\"" });
        out.extend_from_slice(spelled_id);
        out.extend_from_slice(b"\",\"outcome\":\"");
        out.extend_from_slice(outcome_word(outcome).as_bytes());
        out.extend_from_slice(b"\"}");
    }
    out.extend_from_slice(b"]}");
}

pub(super) fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Acked => "acked",
        Outcome::Redelivered => "redelivered",
        Outcome::Stale => "stale",
        Outcome::Unknown => "unknown",
    }
}

/// A configure's answer: the declaration as it was sent.
pub fn configured(out: &mut Vec<u8>, queue: &str, options_text: &[u8], updated_at: SystemTime) {
    out.extend_from_slice(b"{\"queue\":");
    append_string(out, queue);
    out.extend_from_slice(b",\"options\":");
    out.extend_from_slice(options_text);
    out.extend_from_slice(b",\"updatedAt\":\"");
    timestamp::append(out, updated_at);
    out.extend_from_slice(b"\"}");
}

/// A reset's answer.
pub fn reset(out: &mut Vec<u8>, queue: &str, dropped_count: u64) {
    out.extend_from_slice(b"{\"queue\":");
    append_string(out, queue);
    out.extend_from_slice(b",\"dropped\":");
    append_number(out, dropped_count);
    out.push(b'}');
}

/// A delete's answer.
pub fn deleted(out: &mut Vec<u8>, queue: &str, deleted: bool, declared: bool) {
    out.extend_from_slice(b"{\"queue\":");
    append_string(out, queue);
    out.extend_from_slice(b",\"deleted\":");
    append_bool(out, deleted);
    out.extend_from_slice(b",\"declared\":");
    append_bool(out, declared);
    out.push(b'}');
}

/// How the kill switch stands.
pub fn switched(out: &mut Vec<u8>, is_enabled: bool, is_mirrored: bool) {
    out.extend_from_slice(b"{\"ephemeralEnabled\":");
    append_bool(out, is_enabled);
    out.extend_from_slice(b",\"mirrored\":");
    append_bool(out, is_mirrored);
    out.push(b'}');
}

/// Appends a number in decimal.
pub(super) fn append_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn append_bool(out: &mut Vec<u8>, is_true: bool) {
    out.extend_from_slice(if is_true { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests;
