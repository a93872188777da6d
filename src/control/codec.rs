//! A change as the text of a log entry: one byte that names the format, then one JSON object without a line break.

use std::borrow::Cow;
use std::fmt;

use mayfly_shards::{QueueName, Tenant};
use serde::{Deserialize, Serialize};

use super::change::{Change, Declaration, Grant};
use super::members::{Member, NodeId, Standing};

/// The format that is written, and the only one that can be read.
const FORMAT: u8 = b'1';

/// A change as it is spelled. Its names stay: logs hold them.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Spelled<'a> {
    Declare { tenant: String, queue: Cow<'a, str>, options: Cow<'a, str>, updated_at_ms: u64, version: Option<u64> },
    Undeclare { tenant: String, queue: Cow<'a, str>, version: Option<u64> },
    Delete { tenant: String, queue: Cow<'a, str>, version: Option<u64> },
    Grant { tenant: String, grant: Option<SpelledGrant>, version: Option<u64> },
    Cluster { id: String },
    Switch { is_enabled: bool },
    Settle { version: u64 },
    Member { id: u64, peer: Cow<'a, str>, incarnation: u64, shard_count: u16, standing: SpelledStanding },
    Expel { id: u64 },
    Epoch { number: u64 },
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SpelledStanding {
    Joining,
    Live,
    Leaving,
    Down,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpelledGrant {
    is_enabled: bool,
    bytes_max: Option<u64>,
    queues_max: Option<u64>,
    messages_per_second_max: Option<u64>,
    parked_max: Option<u64>,
}

/// Text that is no change.
#[derive(Debug)]
pub enum Unreadable {
    /// Of a format that this version does not know.
    Format(Option<u8>),
    /// Not what the format says.
    Text(serde_json::Error),
    /// A name that is none.
    Name,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(Some(format)) => write!(f, "format {:?} is of another version of mayfly", char::from(*format)),
            Self::Format(None) => f.write_str("it is empty"),
            Self::Text(error) => error.fmt(f),
            Self::Name => f.write_str("a tenant or text in it is none"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// Spells a change.
#[must_use]
pub fn encode(change: &Change) -> Vec<u8> {
    let mut out = vec![FORMAT];
    // Text and numbers, into a Vec: nothing can fail.
    let _ = serde_json::to_writer(&mut out, &spell(change));
    out
}

/// Reads a change back.
///
/// # Errors
/// [`Unreadable`].
pub fn decode(text: &[u8]) -> Result<Change, Unreadable> {
    match text.split_first() {
        Some((&FORMAT, json)) => read(serde_json::from_slice(json).map_err(Unreadable::Text)?),
        found => Err(Unreadable::Format(found.map(|(format, _)| *format))),
    }
}

fn spell(change: &Change) -> Spelled<'_> {
    let tenant_of = |queue: &QueueName| spell_tenant(queue.tenant);
    match change {
        Change::Declare { queue, declaration } => Spelled::Declare {
            tenant: tenant_of(queue),
            queue: Cow::Borrowed(&queue.name),
            options: String::from_utf8_lossy(&declaration.options_text),
            updated_at_ms: declaration.updated_at_ms,
            version: declaration.version,
        },
        Change::Undeclare { queue, version } => {
            Spelled::Undeclare { tenant: tenant_of(queue), queue: Cow::Borrowed(&queue.name), version: *version }
        }
        Change::Delete { queue, version } => {
            Spelled::Delete { tenant: tenant_of(queue), queue: Cow::Borrowed(&queue.name), version: *version }
        }
        Change::Grant { tenant, grant, version } => {
            Spelled::Grant { tenant: spell_tenant(*tenant), grant: grant.map(spell_grant), version: *version }
        }
        Change::Cluster { id } => Spelled::Cluster { id: format!("{id:032x}") },
        Change::Switch { is_enabled } => Spelled::Switch { is_enabled: *is_enabled },
        Change::Settle { version } => Spelled::Settle { version: *version },
        Change::Member { member: Member { id, peer, incarnation, shard_count, standing } } => Spelled::Member {
            id: id.0,
            peer: Cow::Borrowed(peer),
            incarnation: *incarnation,
            shard_count: *shard_count,
            standing: spell_standing(*standing),
        },
        Change::Expel { id } => Spelled::Expel { id: id.0 },
        Change::Epoch { number } => Spelled::Epoch { number: *number },
    }
}

fn spell_grant(grant: Grant) -> SpelledGrant {
    let Grant { is_enabled, bytes_max, queues_max, messages_per_second_max, parked_max } = grant;
    SpelledGrant { is_enabled, bytes_max, queues_max, messages_per_second_max, parked_max }
}

const fn spell_standing(standing: Standing) -> SpelledStanding {
    match standing {
        Standing::Joining => SpelledStanding::Joining,
        Standing::Live => SpelledStanding::Live,
        Standing::Leaving => SpelledStanding::Leaving,
        Standing::Down => SpelledStanding::Down,
    }
}

const fn read_standing(standing: SpelledStanding) -> Standing {
    match standing {
        SpelledStanding::Joining => Standing::Joining,
        SpelledStanding::Live => Standing::Live,
        SpelledStanding::Leaving => Standing::Leaving,
        SpelledStanding::Down => Standing::Down,
    }
}

fn spell_tenant(tenant: Tenant) -> String {
    format!("{:032x}", tenant.0)
}

fn read(spelled: Spelled<'_>) -> Result<Change, Unreadable> {
    Ok(match spelled {
        Spelled::Declare { tenant, queue, options, updated_at_ms, version } => Change::Declare {
            queue: read_queue(&tenant, &queue)?,
            declaration: Declaration { options_text: options.as_bytes().into(), updated_at_ms, version },
        },
        Spelled::Undeclare { tenant, queue, version } => Change::Undeclare { queue: read_queue(&tenant, &queue)?, version },
        Spelled::Delete { tenant, queue, version } => Change::Delete { queue: read_queue(&tenant, &queue)?, version },
        Spelled::Grant { tenant, grant, version } => Change::Grant { tenant: read_tenant(&tenant)?, grant: grant.map(read_grant), version },
        Spelled::Cluster { id } => Change::Cluster { id: u128::from_str_radix(&id, 16).map_err(|_| Unreadable::Name)? },
        Spelled::Switch { is_enabled } => Change::Switch { is_enabled },
        Spelled::Settle { version } => Change::Settle { version },
        Spelled::Member { id, peer, incarnation, shard_count, standing } => Change::Member {
            member: Member { id: NodeId(id), peer: peer.into(), incarnation, shard_count, standing: read_standing(standing) },
        },
        Spelled::Expel { id } => Change::Expel { id: NodeId(id) },
        Spelled::Epoch { number } => Change::Epoch { number },
    })
}

fn read_grant(grant: SpelledGrant) -> Grant {
    let SpelledGrant { is_enabled, bytes_max, queues_max, messages_per_second_max, parked_max } = grant;
    Grant { is_enabled, bytes_max, queues_max, messages_per_second_max, parked_max }
}

fn read_queue(tenant: &str, name: &str) -> Result<QueueName, Unreadable> {
    Ok(QueueName { tenant: read_tenant(tenant)?, name: name.into() })
}

fn read_tenant(text: &str) -> Result<Tenant, Unreadable> {
    u128::from_str_radix(text, 16).map(Tenant).map_err(|_| Unreadable::Name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_standing(standing: Standing) -> Change {
        let member = Member { id: NodeId(3), peer: "[::1]:6633".into(), incarnation: u64::MAX, shard_count: 256, standing };
        Change::Member { member }
    }

    #[test]
    fn every_change_comes_back_as_it_was() {
        let queue = QueueName { tenant: Tenant(u128::MAX - 5), name: "a \"b\"/\u{e9}:%".into() };
        let grant =
            Grant { is_enabled: true, bytes_max: Some(u64::MAX), queues_max: Some(0), messages_per_second_max: None, parked_max: None };
        let options_text = b"{ \"maxLength\" :\n 7, \"ttlSeconds\":1e400 }".as_slice().into();
        let declaration = Declaration { options_text, updated_at_ms: u64::MAX, version: Some(3) };
        for change in [
            Change::Declare { queue: queue.clone(), declaration },
            Change::Undeclare { queue: queue.clone(), version: None },
            Change::Delete { queue, version: Some(u64::MAX) },
            Change::Grant { tenant: Tenant::DEFAULT, grant: Some(grant), version: Some(4) },
            Change::Grant { tenant: Tenant(0), grant: None, version: None },
            Change::Cluster { id: u128::MAX >> 3 },
            Change::Switch { is_enabled: false },
            Change::Settle { version: 9 },
            Change::Expel { id: NodeId(4) },
            Change::Epoch { number: u64::MAX },
        ]
        .into_iter()
        .chain([Standing::Joining, Standing::Live, Standing::Leaving, Standing::Down].map(in_standing))
        {
            let text = encode(&change);
            assert!(!text.contains(&b'\n'));
            assert_eq!(decode(&text).expect("readable"), change);
        }
    }

    #[test]
    fn another_format_and_other_text_are_told_apart() {
        assert!(matches!(decode(b""), Err(Unreadable::Format(None))));
        assert!(matches!(decode(b"2{}"), Err(Unreadable::Format(Some(b'2')))));
        assert!(matches!(decode(b"1{}"), Err(Unreadable::Text(_))));
        assert!(matches!(decode(br#"1{"grant":{"tenant":"x","grant":null}}"#), Err(Unreadable::Name)));
    }
}
