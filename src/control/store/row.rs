//! What rows say: a declaration, a grant, or nothing that this node understands.
//!
//! Rows may be edited by hand. One that says nothing counts as there, so that what is declared under its key stays as it is.

use std::collections::BTreeMap;

use mayfly_shards::{QueueName, Tenant};

use super::super::change::Grant;
use crate::api::declaration::{DeclaredOptions, check_queue};

/// All rows, as one reading found them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Of `mayfly.ephemeral_queues`.
    pub declarations: BTreeMap<QueueName, Row<DeclaredOptions>>,
    /// Of `mayfly.ephemeral_quota`.
    pub grants: BTreeMap<Tenant, Row<Grant>>,
    /// Rows that say nothing, with why.
    pub misfits: Vec<Misfit>,
}

/// One row under a key that is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<V> {
    /// From the sequence.
    pub version: u64,
    /// By the server's clock, milliseconds of the Unix epoch.
    pub updated_at_ms: u64,
    /// What it says; None: nothing, see [`Rows::misfits`].
    pub value: Option<V>,
}

/// A row that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misfit {
    /// Table and key.
    pub row: String,
    /// From the sequence: an edit gives the row another.
    pub version: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// The fields of a row of `mayfly.ephemeral_queues`.
#[derive(Clone, Copy, Debug)]
pub struct QueueFields<'a> {
    /// A UUID as text.
    pub tenant: Option<&'a str>,
    /// Any text.
    pub queue: Option<&'a str>,
    /// JSON.
    pub options: Option<&'a str>,
    /// None: no trigger ran.
    pub version: Option<i64>,
    /// Milliseconds of the Unix epoch.
    pub updated_at_ms: Option<i64>,
}

/// The fields of a row of `mayfly.ephemeral_quota`.
#[derive(Clone, Copy, Debug)]
pub struct QuotaFields<'a> {
    /// A UUID as text.
    pub tenant: Option<&'a str>,
    /// Whether the family may be used.
    pub is_enabled: Option<bool>,
    /// max_bytes, max_queues, max_msgs_per_sec, max_parked.
    pub bounds: [Option<i64>; 4],
    /// None: no trigger ran.
    pub version: Option<i64>,
    /// Milliseconds of the Unix epoch.
    pub updated_at_ms: Option<i64>,
}

impl Rows {
    /// Takes in a row of `mayfly.ephemeral_queues`.
    pub fn add_queue(&mut self, fields: QueueFields<'_>) {
        let version = unsigned(fields.version);
        let (tenant, name) = (fields.tenant.unwrap_or("NULL"), fields.queue.unwrap_or("NULL"));
        let mut misfit = |reason: String| {
            let shown: String = name.chars().take(80).collect();
            self.misfits.push(Misfit { row: format!("mayfly.ephemeral_queues ({tenant}, {shown:?})"), version, reason });
        };
        let key = match (fields.tenant.and_then(parse_uuid), fields.queue.map(|name| check_queue(name).map(|()| name))) {
            (Some(tenant), Some(Ok(name))) => QueueName { tenant: Tenant(tenant), name: name.into() },
            (None, _) => return misfit("tenant_id must be a UUID".to_owned()),
            (_, None) => return misfit("queue must be text".to_owned()),
            (_, Some(Err(fault))) => return misfit(fault.to_string()),
        };
        let value = match fields.options.map(|text| DeclaredOptions::read(text.as_bytes())) {
            Some(Ok(options)) => Some(options),
            Some(Err(fault)) => {
                misfit(fault.to_string());
                None
            }
            None => {
                misfit("options must be an object".to_owned());
                None
            }
        };
        self.declarations.insert(key, Row { version, updated_at_ms: unsigned(fields.updated_at_ms), value });
    }

    /// Takes in a row of `mayfly.ephemeral_quota`.
    pub fn add_quota(&mut self, fields: QuotaFields<'_>) {
        let version = unsigned(fields.version);
        let tenant = fields.tenant.unwrap_or("NULL");
        let mut misfit = |reason: &str| {
            self.misfits.push(Misfit { row: format!("mayfly.ephemeral_quota ({tenant})"), version, reason: reason.to_owned() })
        };
        let Some(key) = fields.tenant.and_then(parse_uuid) else { return misfit("tenant_id must be a UUID") };
        let bounds = fields.bounds.map(|bound| bound.map(u64::try_from).transpose());
        let value = match (fields.is_enabled, bounds) {
            (Some(is_enabled), [Ok(bytes_max), Ok(queues_max), Ok(messages_per_second_max), Ok(parked_max)]) => {
                Some(Grant { is_enabled, bytes_max, queues_max, messages_per_second_max, parked_max })
            }
            (None, _) => {
                misfit("enabled must be true or false");
                None
            }
            _ => {
                misfit("a bound must not be negative");
                None
            }
        };
        self.grants.insert(Tenant(key), Row { version, updated_at_ms: unsigned(fields.updated_at_ms), value });
    }
}

fn unsigned(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

/// A UUID as PostgreSQL writes one: 36 characters with dashes.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<u128> {
    let is_dashed = text.len() == 36 && text.bytes().enumerate().all(|(at, byte)| (byte == b'-') == matches!(at, 8 | 13 | 18 | 23));
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    if is_dashed && digits.len() == 32 { u128::from_str_radix(&digits, 16).ok() } else { None }
}

/// The text of a UUID.
#[must_use]
pub fn uuid_text(number: u128) -> String {
    let digits = format!("{number:032x}");
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &str = "00000000-0000-0000-0000-000000000001";

    fn of_options(options: Option<&str>) -> Rows {
        let mut rows = Rows::default();
        rows.add_queue(QueueFields { tenant: Some(TENANT), queue: Some("q"), options, version: Some(3), updated_at_ms: Some(5) });
        rows
    }

    #[test]
    fn a_uuid_is_read_as_it_is_written() {
        for number in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            assert_eq!(parse_uuid(&uuid_text(number)), Some(number));
        }
        assert_eq!(uuid_text(1), TENANT);
        for text in [
            "",
            "1",
            "00000000-0000-0000-0000-00000000000g",
            "00000000-0000-0000-0000-0000000000001",
            "000000000000-0000-0000-0000-00000001",
        ] {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }

    #[test]
    fn a_row_is_a_declaration_or_says_why_not() {
        let rows = of_options(Some(r#"{"ttlSeconds": 5}"#));
        let row = rows.declarations.values().next().expect("a row");
        assert_eq!((row.version, row.updated_at_ms, row.value.and_then(|options| options.ttl_seconds)), (3, 5, Some(5)));
        assert!(rows.misfits.is_empty());
        for options in
            [Some(r#"{"ttl": 5}"#), Some(r#"{"ttlSeconds": "5"}"#), Some(r#"{"ttlSeconds": 1.5}"#), Some("[]"), Some("null"), None]
        {
            let rows = of_options(options);
            assert_eq!(rows.declarations.values().next().map(|row| row.value), Some(None), "{options:?}");
            assert_eq!(rows.misfits.len(), 1, "{options:?}");
        }
    }

    #[test]
    fn a_bad_key_is_no_row_at_all() {
        for (tenant, queue) in [(None, Some("q")), (Some(TENANT), None), (Some(TENANT), Some("")), (Some(TENANT), Some("a\nb"))] {
            let mut rows = Rows::default();
            rows.add_queue(QueueFields { tenant, queue, options: Some("{}"), version: Some(1), updated_at_ms: None });
            assert_eq!((rows.declarations.len(), rows.misfits.len()), (0, 1), "{tenant:?} {queue:?}");
            assert!(!rows.misfits[0].row.contains('\n'));
        }
    }

    #[test]
    fn a_grants_bounds_are_not_negative() {
        let quota = |is_enabled, bound| {
            let mut rows = Rows::default();
            let bounds = [bound, None, None, None];
            rows.add_quota(QuotaFields { tenant: Some(TENANT), is_enabled, bounds, version: Some(1), updated_at_ms: None });
            rows
        };
        let value = |rows: &Rows| rows.grants.get(&Tenant(1)).and_then(|row| row.value);
        assert_eq!(value(&quota(Some(true), Some(7))).and_then(|grant| grant.bytes_max), Some(7));
        for rows in [quota(Some(true), Some(-1)), quota(None, None)] {
            assert_eq!((value(&rows), rows.grants.len(), rows.misfits.len()), (None, 1, 1));
        }
    }
}
