//! The bodies of call and reply → borrowed requests, in one pass, by the rules of [`super::request`]; and their answers.
//!
//! What stands in a query for a pop stands in JSON here: numbers are integers and clamped, switches are booleans, null is not given, and
//! anything else is a fault.

use std::borrow::Cow;

use mayfly_shards::{BATCH_MAX, DEFAULT_PARTITION, Outcome, QUEUE_MODE, Refusal, Span};

use super::answer;
use super::error::Failure;
use super::fault::Fault;
use super::id::Incarnation;
use super::inbox::{self, Target};
use super::json::Scanner;
use super::query::{PopRequest, TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX};
use super::request::{
    Ack, array, object, optional_name, read_group, read_id, required_name, required_queue, set_once, skip, string, wrong_type,
};
use super::subscriber;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRequest<'a> {
    /// Valid name of a queue.
    pub queue: Cow<'a, str>,
    /// Valid name, `Default` when none was given.
    pub partition: Cow<'a, str>,
    /// As spelled.
    pub payload: &'a [u8],
    /// How long to wait for the answer.
    pub timeout: Span,
    /// Refused when nobody listens.
    pub fail_fast: bool,
}

/// Answers to requests, and maybe a pop for more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyRequest<'a> {
    /// Valid name: where the requests came from.
    pub queue: Cow<'a, str>,
    /// Valid name, or [`QUEUE_MODE`].
    pub group: Cow<'a, str>,
    /// At most `CALL_ITEMS_MAX`, in the order given.
    pub replies: Vec<Reply<'a>>,
    /// What is popped when they are given.
    pub next: Option<PopRequest<'a>>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The request it settles.
    pub ack: Ack<'a>,
    /// Where it goes.
    pub to: Target<'a>,
    /// As spelled.
    pub payload: &'a [u8],
}

/// What became of one reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplyOutcome {
    /// It was pushed, and its request acked with this outcome.
    Acked(Outcome),
    /// It was refused; its request is as it was.
    Refused(Refusal),
}

/// Reads a call.
///
/// # Errors
/// The first thing that is wrong with the body.
pub fn call(body: &[u8]) -> Result<CallRequest<'_>, Fault> {
    let mut scanner = Scanner::new(body);
    let (mut queue, mut partition, mut payload, mut timeout, mut fail_fast) = (None, None, None, None, None);
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"queue" => set_once(&mut queue, "queue", || required_queue(scanner, "queue")),
        b"partition" => set_once(&mut partition, "partition", || optional_name(scanner, "partition")),
        b"payload" => set_once(&mut payload, "payload", || Ok(scanner.value()?)),
        b"timeout" => set_once(&mut timeout, "timeout", || read_integer(scanner, "timeout", 0, TIMEOUT_MS_MAX)),
        b"failFast" => set_once(&mut fail_fast, "failFast", || read_bool(scanner, "failFast")),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    Ok(CallRequest {
        queue: queue.ok_or(Fault::Missing("queue"))?,
        partition: partition.flatten().unwrap_or(Cow::Borrowed(DEFAULT_PARTITION)),
        payload: payload.ok_or(Fault::Missing("payload"))?,
        timeout: Span::from_millis(u64::from(timeout.flatten().unwrap_or(TIMEOUT_MS_DEFAULT))),
        fail_fast: fail_fast.flatten().unwrap_or(false),
    })
}

/// Reads a reply; inboxes are those of `incarnation`.
///
/// # Errors
/// The first thing that is wrong with the body. An unreadable id is none.
pub fn reply<'a>(body: &'a [u8], incarnation: &Incarnation) -> Result<ReplyRequest<'a>, Fault> {
    let mut scanner = Scanner::new(body);
    let (mut queue, mut group, mut replies, mut next) = (None, None, None, None);
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"queue" => set_once(&mut queue, "queue", || required_name(scanner, "queue")),
        b"group" => set_once(&mut group, "group", || read_group(scanner, "group")),
        b"replies" => set_once(&mut replies, "replies", || read_replies(scanner, incarnation)),
        b"next" => set_once(&mut next, "next", || unless_null(scanner, read_next)),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    let queue: Cow<'a, str> = queue.ok_or(Fault::Missing("queue"))?;
    let group = group.unwrap_or(Cow::Borrowed(QUEUE_MODE));
    let replies = replies.ok_or(Fault::Missing("replies"))?;
    let next = next.flatten().map(|next| next.complete(&queue, &group)).transpose()?;
    Ok(ReplyRequest { queue, group, replies, next })
}

fn read_replies<'a>(scanner: &mut Scanner<'a>, incarnation: &Incarnation) -> Result<Vec<Reply<'a>>, Fault> {
    let mut replies = Vec::new();
    array(scanner, "replies", |scanner| {
        let (mut id, mut to, mut payload) = (None, None, None);
        object(scanner, "replies[]", |scanner, key| match &*key.word() {
            b"id" => set_once(&mut id, "replies[].id", || string(scanner, "replies[].id")),
            b"replyTo" => set_once(&mut to, "replies[].replyTo", || required_name(scanner, "replies[].replyTo")),
            b"payload" => set_once(&mut payload, "replies[].payload", || Ok(scanner.value()?)),
            _ => skip(scanner),
        })?;
        let id = id.ok_or(Fault::Missing("replies[].id"))?;
        let to = to.ok_or(Fault::Missing("replies[].replyTo"))?;
        replies.push(Reply {
            ack: Ack::completion(id.spelled(), read_id(id)),
            to: inbox::target(to, incarnation),
            payload: payload.ok_or(Fault::Missing("replies[].payload"))?,
        });
        Ok(())
    })?;
    Ok(replies)
}

/// `next` as it was given.
#[derive(Default)]
struct Next<'a> {
    queue: Option<Option<Cow<'a, str>>>,
    partition: Option<Option<Cow<'a, str>>>,
    group: Option<Option<Cow<'a, str>>>,
    batch: Option<Option<u32>>,
    wait: Option<Option<bool>>,
    timeout_ms: Option<Option<u32>>,
    auto_ack: Option<Option<bool>>,
    commit_on_delivery: Option<Option<bool>>,
}

fn read_next<'a>(scanner: &mut Scanner<'a>) -> Result<Next<'a>, Fault> {
    let mut next = Next::default();
    object(scanner, "next", |scanner, key| match &*key.word() {
        b"queue" => set_once(&mut next.queue, "next.queue", || unless_null(scanner, |scanner| required_queue(scanner, "next.queue"))),
        b"partition" => set_once(&mut next.partition, "next.partition", || optional_name(scanner, "next.partition")),
        b"group" => set_once(&mut next.group, "next.group", || unless_null(scanner, |scanner| read_group(scanner, "next.group"))),
        b"batch" => set_once(&mut next.batch, "next.batch", || read_integer(scanner, "next.batch", 1, BATCH_MAX)),
        b"wait" => set_once(&mut next.wait, "next.wait", || read_bool(scanner, "next.wait")),
        b"timeout" => set_once(&mut next.timeout_ms, "next.timeout", || read_integer(scanner, "next.timeout", 0, TIMEOUT_MS_MAX)),
        b"autoAck" => set_once(&mut next.auto_ack, "next.autoAck", || read_bool(scanner, "next.autoAck")),
        b"commitOnDelivery" => {
            set_once(&mut next.commit_on_delivery, "next.commitOnDelivery", || read_bool(scanner, "next.commitOnDelivery"))
        }
        _ => skip(scanner),
    })?;
    Ok(next)
}

/// None for null.
fn unless_null<'a, T>(scanner: &mut Scanner<'a>, read: impl FnOnce(&mut Scanner<'a>) -> Result<T, Fault>) -> Result<Option<T>, Fault> {
    if scanner.token() == b'n' { skip(scanner).map(|()| None) } else { read(scanner).map(Some) }
}

impl<'a> Next<'a> {
    /// The pop it means beside a reply of this queue and group.
    fn complete(self, queue: &Cow<'a, str>, group: &Cow<'a, str>) -> Result<PopRequest<'a>, Fault> {
        let queue = self.queue.flatten().unwrap_or_else(|| queue.clone());
        if inbox::is_inbox(&queue) {
            return Err(Fault::NameReserved("queue"));
        }
        self.group.iter().flatten().try_for_each(|group| subscriber::check_group(group, "next.group"))?;
        let is_on = |switch: Option<Option<bool>>| switch.flatten().unwrap_or(false);
        let timeout_ms = self.timeout_ms.flatten().unwrap_or(TIMEOUT_MS_DEFAULT);
        Ok(PopRequest {
            queue,
            partition: self.partition.flatten(),
            group: self.group.flatten().unwrap_or_else(|| group.clone()),
            batch: self.batch.flatten().unwrap_or(1),
            wait: (is_on(self.wait) && timeout_ms > 0).then(|| Span::from_millis(u64::from(timeout_ms))),
            auto_ack: is_on(self.auto_ack) || is_on(self.commit_on_delivery),
        })
    }
}

/// An integer in decimal, negative or as large as it likes, clamped; None for null.
fn read_integer(scanner: &mut Scanner<'_>, field: &'static str, least: u32, most: u32) -> Result<Option<u32>, Fault> {
    let text = scanner.value()?;
    if text == b"null" {
        return Ok(None);
    }
    let (is_negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::WrongType { field, expected: "an integer" });
    }
    let number = digits.iter().fold(0, |number: u32, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    Ok(Some(if is_negative { least } else { number.clamp(least, most) }))
}

/// None for null.
fn read_bool(scanner: &mut Scanner<'_>, field: &'static str) -> Result<Option<bool>, Fault> {
    match scanner.token() {
        b't' | b'f' | b'n' => Ok(match scanner.value()? {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }),
        _ => wrong_type(scanner, field, "true or false"),
    }
}

/// A call's answer.
pub fn answered(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(b"{\"payload\":");
    out.extend_from_slice(payload);
    out.push(b'}');
}

/// The results of a reply, up to but without the end of the object: every id as spelled, in the order of the request.
pub fn results<'a>(out: &mut Vec<u8>, results: impl IntoIterator<Item = (&'a [u8], &'a ReplyOutcome)>) {
    out.extend_from_slice(b"{\"results\":[");
    for (index, (spelled_id, outcome)) in results.into_iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"id\":\"" } else { b",{\"id\":\"" });
        out.extend_from_slice(spelled_id);
        out.extend_from_slice(b"\",\"outcome\":\"");
        match outcome {
            ReplyOutcome::Acked(outcome) => out.extend_from_slice(answer::outcome_word(*outcome).as_bytes()),
            ReplyOutcome::Refused(refusal) => {
                out.extend_from_slice(b"refused\",\"code\":\"");
                out.extend_from_slice(Failure::from(*refusal).row().code.as_bytes());
            }
        }
        out.extend_from_slice(b"\"}");
    }
    out.push(b']');
}

/// Behind [`results`]: the beginning of the messages of the pop that came with the reply.
pub const MESSAGES: &[u8] = b",\"messages\":[";

/// Behind [`results`]: the pop that came with the reply was refused.
pub fn next_refused(out: &mut Vec<u8>, failure: &Failure) {
    out.extend_from_slice(MESSAGES);
    out.extend_from_slice(b"],\"next\":{\"outcome\":\"refused\",\"code\":\"");
    out.extend_from_slice(failure.row().code.as_bytes());
    out.extend_from_slice(b"\"}}");
}

#[cfg(test)]
mod tests;
