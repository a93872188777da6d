//! The bodies of push, ack and reset → borrowed requests, in one pass.
//!
//! A body is an object; unknown keys are ignored, at every level of these three; a known key twice is a fault. Payloads are handed out as
//! slices of the body.

use std::borrow::Cow;

use mayfly_shards::{CALL_ITEMS_MAX, DEFAULT_PARTITION, QUEUE_MODE, Verdict};

use super::fault::Fault;
use super::id::{self, MessageId};
use super::inbox;
use super::json::{Scanner, Text};
use super::name;

/// What a push names; its payloads went to the caller one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRequest<'a> {
    /// Valid name.
    pub queue: Cow<'a, str>,
    /// Valid name, `Default` when none was given.
    pub partition: Cow<'a, str>,
}

/// An ack call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckRequest<'a> {
    /// Valid name.
    pub queue: Cow<'a, str>,
    /// Valid name, or [`QUEUE_MODE`].
    pub group: Cow<'a, str>,
    /// At most [`CALL_ITEMS_MAX`], in the order given.
    pub acks: Vec<Ack<'a>>,
}

/// One ack of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The id as the client spelled it inside its quotes: what the answer repeats.
    pub spelled_id: &'a [u8],
    /// The id read; None: unreadable, which is the outcome `unknown`.
    pub id: Option<MessageId<'a>>,
    /// What the client said of the delivery.
    pub verdict: Verdict,
}

impl<'a> Ack<'a> {
    /// Says that a delivery is done.
    pub(super) fn completion(spelled_id: &'a [u8], id: Option<MessageId<'a>>) -> Self {
        Self { spelled_id, id, verdict: Verdict::Completed }
    }
}

/// Reads a push. Every payload is given to `payload` in order, before the rest of the body is known to be right: on a fault the caller
/// drops what it got. An empty list of messages gives none.
///
/// # Errors
/// The first thing that is wrong with the body.
pub fn push<'a>(body: &'a [u8], mut payload: impl FnMut(&'a [u8])) -> Result<PushRequest<'a>, Fault> {
    let mut scanner = Scanner::new(body);
    let (mut queue, mut partition, mut messages) = (None, None, None);
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"queue" => set_once(&mut queue, "queue", || required_name(scanner, "queue")),
        b"partition" => set_once(&mut partition, "partition", || optional_name(scanner, "partition")),
        b"messages" => set_once(&mut messages, "messages", || read_messages(scanner, &mut payload)),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    messages.ok_or(Fault::Missing("messages"))?;
    Ok(PushRequest {
        queue: queue.ok_or(Fault::Missing("queue"))?,
        partition: partition.flatten().unwrap_or(Cow::Borrowed(DEFAULT_PARTITION)),
    })
}

fn read_messages<'a>(scanner: &mut Scanner<'a>, payload: &mut impl FnMut(&'a [u8])) -> Result<(), Fault> {
    array(scanner, "messages", |scanner| {
        let mut text = None;
        object(scanner, "messages[]", |scanner, key| match &*key.word() {
            b"payload" => set_once(&mut text, "messages[].payload", || Ok(scanner.value()?)),
            _ => skip(scanner),
        })?;
        payload(text.ok_or(Fault::Missing("messages[].payload"))?);
        Ok(())
    })
}

/// Reads an ack call.
///
/// # Errors
/// The first thing that is wrong with the body. An unreadable id is none.
pub fn ack(body: &[u8]) -> Result<AckRequest<'_>, Fault> {
    let mut scanner = Scanner::new(body);
    let (mut queue, mut group, mut acks) = (None, None, None);
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"queue" => set_once(&mut queue, "queue", || required_name(scanner, "queue")),
        b"group" => set_once(&mut group, "group", || read_group(scanner, "group")),
        b"acks" => set_once(&mut acks, "acks", || read_acks(scanner)),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    Ok(AckRequest {
        queue: queue.ok_or(Fault::Missing("queue"))?,
        group: group.unwrap_or(Cow::Borrowed(QUEUE_MODE)),
        acks: acks.ok_or(Fault::Missing("acks"))?,
    })
}

/// Reads how the kill switch is to stand.
///
/// # Errors
/// The first thing that is wrong with the body.
pub fn switch(body: &[u8]) -> Result<bool, Fault> {
    let mut scanner = Scanner::new(body);
    let mut enabled = None;
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"enabled" => set_once(&mut enabled, "enabled", || match scanner.value()? {
            b"true" => Ok(true),
            b"false" => Ok(false),
            _ => Err(Fault::WrongType { field: "enabled", expected: "a boolean" }),
        }),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    enabled.ok_or(Fault::Missing("enabled"))
}

/// A group; null and the empty name are queue mode.
pub(super) fn read_group<'a>(scanner: &mut Scanner<'a>, field: &'static str) -> Result<Cow<'a, str>, Fault> {
    let group = optional_string(scanner, field)?.map_or(Ok(Cow::Borrowed("")), |text| decode(text, field))?;
    if group.is_empty() {
        return Ok(Cow::Borrowed(QUEUE_MODE));
    }
    name::check(&group, field)?;
    Ok(group)
}

fn read_acks<'a>(scanner: &mut Scanner<'a>) -> Result<Vec<Ack<'a>>, Fault> {
    let mut acks = Vec::new();
    array(scanner, "acks", |scanner| {
        let (mut id, mut status, mut error) = (None, None, None);
        object(scanner, "acks[]", |scanner, key| match &*key.word() {
            b"id" => set_once(&mut id, "acks[].id", || string(scanner, "acks[].id")),
            b"status" => set_once(&mut status, "acks[].status", || string(scanner, "acks[].status")),
            b"error" => set_once(&mut error, "acks[].error", || skip(scanner)),
            _ => skip(scanner),
        })?;
        let id = id.ok_or(Fault::Missing("acks[].id"))?;
        acks.push(Ack { spelled_id: id.spelled(), id: read_id(id), verdict: status.map_or(Verdict::Completed, verdict) });
        Ok(())
    })?;
    Ok(acks)
}

/// An id that is no Unicode text, or none of ours, is unreadable.
pub(super) fn read_id(text: Text<'_>) -> Option<MessageId<'_>> {
    match text.decode()? {
        Cow::Borrowed(text) => id::parse(text),
        Cow::Owned(text) => id::parse(&text).map(MessageId::into_owned),
    }
}

/// The published words for a completion; any other word returns the delivery.
fn verdict(status: Text<'_>) -> Verdict {
    match &*status.word() {
        b"completed" | b"success" | b"acked" | b"ok" => Verdict::Completed,
        _ => Verdict::Nack,
    }
}

/// Reads a reset: the queue's name.
///
/// # Errors
/// The first thing that is wrong with the body.
pub fn reset(body: &[u8]) -> Result<Cow<'_, str>, Fault> {
    let mut scanner = Scanner::new(body);
    let mut queue = None;
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"queue" => set_once(&mut queue, "queue", || required_name(scanner, "queue")),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    queue.ok_or(Fault::Missing("queue"))
}

/// Walks an object; `field` takes each value.
#[inline]
pub(super) fn object<'a>(
    scanner: &mut Scanner<'a>,
    what: &'static str,
    mut field: impl FnMut(&mut Scanner<'a>, Text<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if !scanner.take(b'{') {
        return wrong_type(scanner, what, "an object");
    }
    let mut is_first = true;
    while let Some(key) = scanner.key(&mut is_first)? {
        field(scanner, key)?;
    }
    Ok(())
}

/// Walks an array of at most [`CALL_ITEMS_MAX`] elements; `element` takes each.
#[inline]
pub(super) fn array<'a>(
    scanner: &mut Scanner<'a>,
    what: &'static str,
    mut element: impl FnMut(&mut Scanner<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if !scanner.take(b'[') {
        return wrong_type(scanner, what, "an array");
    }
    let mut is_first = true;
    let mut element_count = 0;
    while scanner.element(&mut is_first)? {
        if element_count == CALL_ITEMS_MAX {
            return Err(Fault::TooManyItems(what));
        }
        element_count += 1;
        element(scanner)?;
    }
    Ok(())
}

/// The fault of a value that is not what it must be: not JSON at all, or JSON of another type.
pub(super) fn wrong_type<T>(scanner: &mut Scanner<'_>, field: &'static str, expected: &'static str) -> Result<T, Fault> {
    scanner.value()?;
    Err(Fault::WrongType { field, expected })
}

#[inline]
pub(super) fn set_once<T>(slot: &mut Option<T>, field: &'static str, read: impl FnOnce() -> Result<T, Fault>) -> Result<(), Fault> {
    if slot.is_some() {
        return Err(Fault::Twice(field));
    }
    *slot = Some(read()?);
    Ok(())
}

#[inline]
pub(super) fn skip(scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    scanner.value()?;
    Ok(())
}

#[inline]
pub(super) fn string<'a>(scanner: &mut Scanner<'a>, field: &'static str) -> Result<Text<'a>, Fault> {
    if scanner.token() != b'"' {
        return wrong_type(scanner, field, "a string");
    }
    Ok(scanner.string()?)
}

/// A string, or None for null.
fn optional_string<'a>(scanner: &mut Scanner<'a>, field: &'static str) -> Result<Option<Text<'a>>, Fault> {
    if scanner.token() == b'n' {
        scanner.value()?;
        return Ok(None);
    }
    string(scanner, field).map(Some)
}

fn decode<'a>(text: Text<'a>, field: &'static str) -> Result<Cow<'a, str>, Fault> {
    text.decode().ok_or(Fault::NotUnicode(field))
}

pub(super) fn required_name<'a>(scanner: &mut Scanner<'a>, field: &'static str) -> Result<Cow<'a, str>, Fault> {
    let name = decode(string(scanner, field)?, field)?;
    name::check(&name, field)?;
    Ok(name)
}

/// The name of a queue, which an inbox is not.
pub(super) fn required_queue<'a>(scanner: &mut Scanner<'a>, field: &'static str) -> Result<Cow<'a, str>, Fault> {
    let name = required_name(scanner, field)?;
    if inbox::is_inbox(&name) { Err(Fault::NameReserved(field)) } else { Ok(name) }
}

pub(super) fn optional_name<'a>(scanner: &mut Scanner<'a>, field: &'static str) -> Result<Option<Cow<'a, str>>, Fault> {
    let Some(text) = optional_string(scanner, field)? else { return Ok(None) };
    let name = decode(text, field)?;
    name::check(&name, field)?;
    Ok(Some(name))
}

#[cfg(test)]
mod tests;
