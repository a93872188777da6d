//! Message ids: `e:<incarnation>:<partition>:<seq>`, and `.<n>` behind it from a group's second delivery of the message on.
//!
//! One spelling for each id: the incarnation is 16 lower hex digits, seq and n are decimal without leading zeros or signs, n is 2 or more.
//! Any other spelling is unreadable. Ids are read from both ends, because a partition may contain `:` and `.`.

use std::borrow::Cow;

use super::json::append_escaped;
use super::name;
use super::veil::Veil;

/// A node's start, as it stands in ids: a random number, and its text.
#[derive(Clone, Debug)]
pub struct Incarnation {
    /// The number.
    pub number: u64,
    hex: [u8; HEX_DIGIT_COUNT],
    veil: Veil,
}

const HEX_DIGIT_COUNT: usize = 16;
pub(super) const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Incarnation {
    /// The incarnation of this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        let mut hex = [0; HEX_DIGIT_COUNT];
        for (index, digit) in hex.iter_mut().enumerate() {
            *digit = HEX_DIGITS[(number >> (60 - 4 * index) & 15) as usize];
        }
        Self { number, hex, veil: Veil::default() }
    }

    /// The same, of a node of several tenants.
    #[must_use]
    pub fn veiled(self, veil: Veil) -> Self {
        Self { veil, ..self }
    }

    /// The message's number that an id, or an inbox's name, of this incarnation means.
    #[must_use]
    pub fn seq_of(&self, spelled: u64) -> u64 {
        self.veil.uncover(spelled)
    }

    /// What stands in ids for a message's number.
    #[must_use]
    pub fn spelled(&self, seq: u64) -> u64 {
        self.veil.cover(seq)
    }

    /// 16 lower hex digits.
    pub(super) fn hex(&self) -> &[u8] {
        &self.hex
    }
}

/// What an id says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId<'a> {
    /// Of the node that delivered; another one's makes the ack stale.
    pub incarnation: u64,
    /// Valid name.
    pub partition: Cow<'a, str>,
    /// The message's number as spelled: see [`Incarnation::seq_of`].
    pub spelled_seq: u64,
    /// Which delivery to the group: 1 for the first.
    pub delivery: u32,
}

impl MessageId<'_> {
    /// The same, independent of the text it was read from.
    #[must_use]
    pub fn into_owned(self) -> MessageId<'static> {
        MessageId { partition: Cow::Owned(self.partition.into_owned()), ..self }
    }
}

/// Appends an id up to its seq, as the inside of a JSON string: the partition is escaped. Returns where in `out` the escaped partition
/// stands.
pub(super) fn append_beginning(out: &mut Vec<u8>, incarnation: &Incarnation, partition: &str) -> std::ops::Range<usize> {
    append_incarnation(out, incarnation);
    let start = out.len();
    append_escaped(out, partition);
    let end = out.len();
    out.push(b':');
    start..end
}

/// Appends an id as plain text.
pub(super) fn append_text(out: &mut Vec<u8>, incarnation: &Incarnation, partition: &str, seq: u64, delivery: u32) {
    append_incarnation(out, incarnation);
    out.extend_from_slice(partition.as_bytes());
    out.push(b':');
    append_numbers(out, incarnation.spelled(seq), delivery);
}

fn append_incarnation(out: &mut Vec<u8>, incarnation: &Incarnation) {
    out.extend_from_slice(b"e:");
    out.extend_from_slice(&incarnation.hex);
    out.push(b':');
}

/// Appends the rest of an id, behind its partition's colon.
pub(super) fn append_numbers(out: &mut Vec<u8>, seq: u64, delivery: u32) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(seq).as_bytes());
    if delivery > 1 {
        out.push(b'.');
        out.extend_from_slice(digits.format(delivery).as_bytes());
    }
}

/// Reads an id; None: it is none of ours, whichever node's.
#[must_use]
pub fn parse(text: &str) -> Option<MessageId<'_>> {
    let (incarnation, rest) = text.strip_prefix("e:")?.split_once(':')?;
    let incarnation = parse_incarnation(incarnation)?;
    let (partition, number) = rest.rsplit_once(':')?;
    name::check(partition, "partition").ok()?;
    let (seq, delivery) = match number.split_once('.') {
        Some((seq, delivery)) => (seq, u32::try_from(parse_decimal(delivery)?).ok().filter(|&n| n >= 2)?),
        None => (number, 1),
    };
    Some(MessageId { incarnation, partition: Cow::Borrowed(partition), spelled_seq: parse_decimal(seq)?, delivery })
}

pub(super) fn parse_incarnation(hex: &str) -> Option<u64> {
    let is_canonical = hex.len() == HEX_DIGIT_COUNT && hex.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if is_canonical { u64::from_str_radix(hex, 16).ok() } else { None }
}

fn parse_decimal(digits: &str) -> Option<u64> {
    let is_canonical = digits.bytes().all(|digit| digit.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if is_canonical { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
