//! Names of reply inboxes: `reply:<incarnation>:<number>`, minted for a call and gone with it.
//!
//! One spelling for each: the incarnation is 16 lower hex digits, the number lower hex without leading zeros. A name of this shape is no
//! queue, whether or not there is such a call; any other name is a queue's.

use std::borrow::Cow;

use super::id::{self, Incarnation};

const PREFIX: &str = "reply:";

/// Whom an answer, or an ordinary push, is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A call's inbox of this incarnation, by its number.
    Inbox(u64),
    /// One of another incarnation, with its number as spelled.
    Elsewhere {
        /// Whose.
        incarnation: u64,
        /// See [`Incarnation::seq_of`].
        number: u64,
    },
    /// A queue.
    Queue(Cow<'a, str>),
}

/// Appends an inbox's name.
pub fn append(out: &mut Vec<u8>, incarnation: &Incarnation, number: u64) {
    out.extend_from_slice(PREFIX.as_bytes());
    out.extend_from_slice(incarnation.hex());
    out.push(b':');
    let number = incarnation.spelled(number);
    let digit_count = (64 - number.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digit_count).rev().map(|place| id::HEX_DIGITS[(number >> (4 * place) & 15) as usize]));
}

/// Whether a name is an inbox's.
#[must_use]
pub fn is_inbox(name: &str) -> bool {
    parse(name).is_some()
}

/// What a valid name means on the node of this incarnation.
#[must_use]
pub fn target<'a>(name: Cow<'a, str>, incarnation: &Incarnation) -> Target<'a> {
    match parse(&name) {
        None => Target::Queue(name),
        Some((of, number)) if of == incarnation.number => Target::Inbox(incarnation.seq_of(number)),
        Some((of, number)) => Target::Elsewhere { incarnation: of, number },
    }
}

/// Incarnation and number of an inbox's name.
fn parse(name: &str) -> Option<(u64, u64)> {
    let (incarnation, number) = name.strip_prefix(PREFIX)?.split_once(':')?;
    let is_canonical = !number.starts_with('0') && number.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let number = if is_canonical { u64::from_str_radix(number, 16).ok()? } else { return None };
    Some((id::parse_incarnation(incarnation)?, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(incarnation: u64, number: u64) -> String {
        let mut out = Vec::new();
        append(&mut out, &Incarnation::new(incarnation), number);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_name_leads_back_to_its_inbox_on_its_own_node_alone() {
        for number in [1, 0xf, 0x10, 0xabc_def, u64::MAX] {
            let name = name(7, number);
            assert_eq!(target(Cow::Borrowed(&name), &Incarnation::new(7)), Target::Inbox(number), "{name}");
            assert_eq!(target(Cow::Borrowed(&name), &Incarnation::new(8)), Target::Elsewhere { incarnation: 7, number });
        }
        assert_eq!(name(255, 0x2a), "reply:00000000000000ff:2a");
    }

    #[test]
    fn any_other_spelling_is_a_queues() {
        let hex = "00000000000000ff";
        for name in [
            "reply",
            "reply:",
            "reply:ff:1",
            &format!("reply:{hex}"),
            &format!("reply:{hex}:"),
            &format!("reply:{hex}:0"),
            &format!("reply:{hex}:01"),
            &format!("reply:{hex}:A"),
            &format!("reply:{hex}:+1"),
            &format!("reply:{hex}:1:1"),
            &format!("reply:{hex}:10000000000000000"),
            &format!(" reply:{hex}:1"),
            &format!("Reply:{hex}:1"),
        ] {
            assert!(!is_inbox(name), "{name}");
            assert_eq!(target(Cow::Borrowed(name), &Incarnation::new(255)), Target::Queue(Cow::Borrowed(name)));
        }
    }
}
