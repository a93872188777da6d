//! Answers of the queue operations, appended to a connection's output as JSON.
//!
//! A pop's answer is a stream: [`pop_begin`], [`pop_message`] for each message, [`pop_end`]; payloads go from the ring into `out` and
//! nowhere in between.

use std::time::SystemTime;

use mayfly_shards::{Delivery, Outcome, inbox_of};

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

/// One message, behind [`pop_begin`] or another one.
pub fn pop_message(out: &mut Vec<u8>, incarnation: &Incarnation, delivery: &Delivery<'_>) {
    if out.last() == Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"id\":\"");
    let partition = id::append(out, incarnation, delivery.partition, delivery.seq, delivery.delivery);
    out.extend_from_slice(b"\",\"partition\":\"");
    out.extend_from_within(partition);
    out.extend_from_slice(b"\",\"attempts\":");
    append_number(out, u64::from(delivery.attempts));
    if let Some(number) = inbox_of(delivery.seq) {
        out.extend_from_slice(b",\"replyTo\":\"");
        inbox::append(out, incarnation, number);
        out.push(b'"');
    }
    out.extend_from_slice(b",\"payload\":");
    out.extend_from_slice(delivery.payload);
    out.push(b'}');
}

/// One message as a server-sent event: the object that a pop has, on one line.
pub fn event(out: &mut Vec<u8>, incarnation: &Incarnation, delivery: &Delivery<'_>) {
    out.extend_from_slice(b"id: ");
    id::append_text(out, incarnation, delivery.partition, delivery.seq, delivery.delivery);
    out.extend_from_slice(b"\nevent: message\ndata: ");
    let object_at = out.len();
    pop_message(out, incarnation, delivery);
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
