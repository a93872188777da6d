//! Query strings (and the raw queue segment of a path) → requests. Unknown keys are ignored; of a key given twice the last counts; a
//! number or word that cannot be read means its default.

use std::borrow::Cow;

use mayfly_net::http::path;
use mayfly_net::http::query::{Pair, pairs};
use mayfly_shards::{BATCH_MAX, QUEUE_MODE, Span};

use super::fault::Fault;
use super::inbox;
use super::name;
use super::subscriber;

/// Longest wait of a pop.
pub const TIMEOUT_MS_MAX: u32 = 300_000;
/// Wait of a pop that names none.
pub const TIMEOUT_MS_DEFAULT: u32 = 30_000;

/// A pop, from a query or beside a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopRequest<'a> {
    /// Valid name.
    pub queue: Cow<'a, str>,
    /// Valid name; None: any.
    pub partition: Option<Cow<'a, str>>,
    /// Valid name, or [`QUEUE_MODE`].
    pub group: Cow<'a, str>,
    /// 1 to [`BATCH_MAX`].
    pub batch: u32,
    /// How long to wait for a message; None: not at all (a wait of no time is none).
    pub wait: Option<Span>,
    /// Settled at delivery (`autoAck` or `commitOnDelivery`).
    pub auto_ack: bool,
}

impl PopRequest<'_> {
    /// The same, independent of the text it was read from.
    #[must_use]
    pub fn into_owned(self) -> PopRequest<'static> {
        PopRequest {
            queue: Cow::Owned(self.queue.into_owned()),
            partition: self.partition.map(|partition| Cow::Owned(partition.into_owned())),
            group: Cow::Owned(self.group.into_owned()),
            batch: self.batch,
            wait: self.wait,
            auto_ack: self.auto_ack,
        }
    }
}

/// A listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuesRequest<'a> {
    /// Only names that begin so.
    pub prefix: Cow<'a, str>,
    /// Only names greater than this.
    pub after: Cow<'a, str>,
    /// Most rows, at least 1; `usize::MAX` when none was given.
    pub limit: usize,
    /// Ask no other node (`scope=node`).
    pub is_node_only: bool,
}

/// A queue's depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepthRequest<'a> {
    /// Valid name.
    pub queue: Cow<'a, str>,
    /// Valid name; None: none asked for.
    pub group: Option<Cow<'a, str>>,
    /// Ask no other node (`scope=node`).
    pub is_node_only: bool,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeRequest<'a> {
    /// Valid name.
    pub queue: Cow<'a, str>,
    /// Valid name; None: any.
    pub partition: Option<Cow<'a, str>>,
    /// Valid name; None: a private one.
    pub group: Option<Cow<'a, str>>,
}

/// Reads a subscription. A token in `access_token` is read with the identity.
///
/// # Errors
/// A name is missing or invalid.
pub fn subscribe(query: &[u8]) -> Result<SubscribeRequest<'_>, Fault> {
    let (mut queue, mut partition, mut group) = (None, None, None);
    for pair in pairs(query) {
        match &*pair.key() {
            b"queue" => queue = Some(pair),
            b"partition" => partition = Some(pair),
            b"group" => group = Some(pair),
            _ => {}
        }
    }
    Ok(SubscribeRequest { queue: popped_queue(queue)?, partition: optional_name(partition, "partition")?, group: popped_group(group)? })
}

/// A name that messages can be taken from.
fn popped_queue(pair: Option<Pair<'_>>) -> Result<Cow<'_, str>, Fault> {
    let queue = required_name(pair, "queue")?;
    if inbox::is_inbox(&queue) { Err(Fault::NameReserved("queue")) } else { Ok(queue) }
}

/// A group that a client may name.
fn popped_group(pair: Option<Pair<'_>>) -> Result<Option<Cow<'_, str>>, Fault> {
    let group = optional_name(pair, "group")?;
    group.iter().try_for_each(|group| subscriber::check_group(group, "group"))?;
    Ok(group)
}

/// Reads a pop.
///
/// # Errors
/// A name is missing or invalid.
pub fn pop(query: &[u8]) -> Result<PopRequest<'_>, Fault> {
    let (mut queue, mut partition, mut group) = (None, None, None);
    let (mut batch, mut is_waiting, mut timeout_ms) = (1, false, TIMEOUT_MS_DEFAULT);
    let (mut auto_ack, mut commit_on_delivery) = (false, false);
    for pair in pairs(query) {
        match &*pair.key() {
            b"queue" => queue = Some(pair),
            b"partition" => partition = Some(pair),
            b"group" => group = Some(pair),
            b"batch" => batch = integer(pair, 1, BATCH_MAX).unwrap_or(1),
            b"wait" => is_waiting = is_true(pair),
            b"timeout" => timeout_ms = integer(pair, 0, TIMEOUT_MS_MAX).unwrap_or(TIMEOUT_MS_DEFAULT),
            b"autoAck" => auto_ack = is_true(pair),
            b"commitOnDelivery" => commit_on_delivery = is_true(pair),
            _ => {}
        }
    }
    Ok(PopRequest {
        queue: popped_queue(queue)?,
        partition: optional_name(partition, "partition")?,
        group: popped_group(group)?.unwrap_or(Cow::Borrowed(QUEUE_MODE)),
        batch,
        wait: (is_waiting && timeout_ms > 0).then(|| Span::from_millis(u64::from(timeout_ms))),
        auto_ack: auto_ack || commit_on_delivery,
    })
}

/// Reads a listing's parameters.
///
/// # Errors
/// `prefix` or `after` is not UTF-8.
pub fn queues(query: &[u8]) -> Result<QueuesRequest<'_>, Fault> {
    let (mut prefix, mut after) = (None, None);
    let (mut limit, mut is_node_only) = (usize::MAX, false);
    for pair in pairs(query) {
        match &*pair.key() {
            b"prefix" => prefix = Some(pair),
            b"after" => after = Some(pair),
            b"limit" => limit = integer(pair, 1, u32::MAX).map_or(usize::MAX, |limit| limit as usize),
            b"scope" => is_node_only = is_node_scope(pair),
            _ => {}
        }
    }
    Ok(QueuesRequest { prefix: text(prefix, "prefix")?, after: text(after, "after")?, limit, is_node_only })
}

/// Reads a depth's parameters; `segment` is the path's, still encoded.
///
/// # Errors
/// A name is invalid.
pub fn depth<'a>(segment: &'a [u8], query: &'a [u8]) -> Result<DepthRequest<'a>, Fault> {
    let (mut group, mut is_node_only) = (None, false);
    for pair in pairs(query) {
        match &*pair.key() {
            b"group" => group = Some(pair),
            b"scope" => is_node_only = is_node_scope(pair),
            _ => {}
        }
    }
    Ok(DepthRequest { queue: segment_name(segment)?, group: optional_name(group, "group")?, is_node_only })
}

/// Reads which queue a delete means: that of the path, whose segment is still encoded, or of the parameter `queue` on the path without
/// one.
///
/// # Errors
/// The name is missing or invalid.
pub fn delete<'a>(segment: Option<&'a [u8]>, query: &'a [u8]) -> Result<Cow<'a, str>, Fault> {
    match segment {
        Some(segment) => segment_name(segment),
        None => required_name(pairs(query).filter(|pair| *pair.key() == *b"queue").last(), "queue"),
    }
}

fn segment_name(segment: &[u8]) -> Result<Cow<'_, str>, Fault> {
    let queue = path::decode(segment).map_err(|_| Fault::NotUnicode("queue"))?;
    name::check(&queue, "queue")?;
    Ok(queue)
}

/// A parameter's text; none is the empty one.
fn text<'a>(pair: Option<Pair<'a>>, field: &'static str) -> Result<Cow<'a, str>, Fault> {
    pair.map_or(Ok(Cow::Borrowed("")), |pair| pair.value().map_err(|_| Fault::NotUnicode(field)))
}

fn required_name<'a>(pair: Option<Pair<'a>>, field: &'static str) -> Result<Cow<'a, str>, Fault> {
    let name = text(Some(pair.ok_or(Fault::Missing(field))?), field)?;
    name::check(&name, field)?;
    Ok(name)
}

/// An empty name is as good as none.
fn optional_name<'a>(pair: Option<Pair<'a>>, field: &'static str) -> Result<Option<Cow<'a, str>>, Fault> {
    let name = text(pair, field)?;
    if name.is_empty() {
        return Ok(None);
    }
    name::check(&name, field)?;
    Ok(Some(name))
}

fn is_node_scope(pair: Pair<'_>) -> bool {
    pair.value().is_ok_and(|value| value == "node")
}

/// The words for yes; `false`, `0`, `no` and whatever else mean the default, which is no for every switch there is.
fn is_true(pair: Pair<'_>) -> bool {
    pair.value().is_ok_and(|value| matches!(&*value, "true" | "1" | "yes"))
}

/// An integer in decimal, negative or as large as it likes, clamped; None: it cannot be read.
fn integer(pair: Pair<'_>, least: u32, most: u32) -> Option<u32> {
    let value = pair.value().ok()?;
    let (is_negative, digits) = value.strip_prefix('-').map_or((false, &*value), |digits| (true, digits));
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number = digits.bytes().fold(0, |number: u32, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    Some(if is_negative { least } else { number.clamp(least, most) })
}

#[cfg(test)]
mod tests;
