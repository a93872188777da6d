//! Rows and log against each other: what the log is to take from the rows, and what rows are to take from the log. Pure.
//!
//! A row wins when its version is higher. What is declared and has no row is gone from PostgreSQL, but only if it was known, at the same
//! version, before the rows were read: a configure may have come while they were. A row whose version is lower although nothing changed
//! meanwhile comes out of an older copy of the database, or was written around the trigger: then the later `updated_at` wins, the row on
//! a tie. What has no version was never a row, and becomes one. Rows of no cluster yet are filled with all that they lack.
//!
//! Two readings without a change between them leave nothing to do; the property test holds this against every order of events.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_shards::{QueueName, Tenant};

use super::super::change::{Change, Declaration, Grant};
use super::super::state::State;
use super::row::{Row, Rows};
use crate::api::declaration::DeclaredOptions;

/// Versions of what was declared and granted before rows were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    declarations: BTreeMap<QueueName, Option<u64>>,
    grants: BTreeMap<Tenant, Option<u64>>,
}

impl Known {
    /// Of a state.
    #[must_use]
    pub fn of(state: &State) -> Self {
        Self {
            declarations: state.declarations().map(|(queue, declaration)| (queue.clone(), declaration.version)).collect(),
            grants: state.grants().map(|(tenant, _)| (tenant, state.grant_version(tenant))).collect(),
        }
    }
}

/// What follows from a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// For the log.
    pub changes: Vec<Change>,
    /// For the rows.
    pub writes: Writes,
}

/// What rows are to take from the log. Each holds only for a row that still has the version seen; None: for none at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Rows that say this.
    pub declarations: Vec<(QueueName, DeclaredOptions, Option<u64>)>,
    /// Rows that get a new version.
    pub renewed_declarations: Vec<(QueueName, u64)>,
    /// Rows that say this.
    pub grants: Vec<(Tenant, Grant, Option<u64>)>,
    /// Rows that get a new version.
    pub renewed_grants: Vec<(Tenant, u64)>,
}

impl Writes {
    /// Whether there is nothing to write.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        let Self { declarations, renewed_declarations, grants, renewed_grants } = self;
        declarations.is_empty() && renewed_declarations.is_empty() && grants.is_empty() && renewed_grants.is_empty()
    }
}

/// What rows and state have to say to each other. `known` is of the time before the rows were read; `is_first`: they are of no cluster yet.
#[must_use]
pub fn reconcile(known: &Known, state: &State, rows: &Rows, is_first: bool) -> Plan {
    let mut plan = Plan::default();
    reconcile_declarations(known, state, rows, is_first, &mut plan);
    reconcile_grants(known, state, rows, is_first, &mut plan);
    plan
}

fn reconcile_declarations(known: &Known, state: &State, rows: &Rows, is_first: bool, plan: &mut Plan) {
    let keys: BTreeSet<&QueueName> = state.declarations().map(|(queue, _)| queue).chain(rows.declarations.keys()).collect();
    for queue in keys {
        let declared = state.declaration(queue);
        let options = declared.and_then(|declaration| DeclaredOptions::read(&declaration.options_text).ok());
        let held = declared.map(|declaration| Held {
            version: declaration.version,
            updated_at_ms: declaration.updated_at_ms,
            is_unchanged: known.declarations.get(queue) == Some(&declaration.version),
        });
        let row = rows.declarations.get(queue);
        match judge(held, state.deletion(queue), row, is_first, |value| Some(*value) == options) {
            Verdict::Agree => {}
            Verdict::RowWins(row, value) => {
                // The client's spelling stays while it means the same.
                let same = declared.filter(|_| options == Some(value));
                let options_text = same.map_or_else(|| value.plain_text().into_bytes().into(), |same| same.options_text.clone());
                let declaration = Declaration { options_text, updated_at_ms: row.updated_at_ms, version: Some(row.version) };
                plan.changes.push(Change::Declare { queue: queue.clone(), declaration });
            }
            Verdict::RowLacks(seen) => plan.writes.declarations.extend(options.map(|options| (queue.clone(), options, seen))),
            Verdict::RowIsOld(seen) => plan.writes.renewed_declarations.push((queue.clone(), seen)),
            Verdict::RowVanished(version) => plan.changes.push(Change::Undeclare { queue: queue.clone(), version: Some(version) }),
        }
    }
}

fn reconcile_grants(known: &Known, state: &State, rows: &Rows, is_first: bool, plan: &mut Plan) {
    let keys: BTreeSet<Tenant> = state.grants().map(|(tenant, _)| tenant).chain(rows.grants.keys().copied()).collect();
    for tenant in keys {
        let grant = state.grant(tenant).copied();
        let version = state.grant_version(tenant);
        // Of grants the log knows no time: in doubt the row holds.
        let held = grant.map(|_| Held { version, updated_at_ms: 0, is_unchanged: known.grants.get(&tenant) == Some(&version) });
        let row = rows.grants.get(&tenant);
        match judge(held, state.revocation(tenant), row, is_first, |value| Some(*value) == grant) {
            Verdict::Agree => {}
            Verdict::RowWins(row, value) => plan.changes.push(Change::Grant { tenant, grant: Some(value), version: Some(row.version) }),
            Verdict::RowLacks(seen) => plan.writes.grants.extend(grant.map(|grant| (tenant, grant, seen))),
            Verdict::RowIsOld(seen) => plan.writes.renewed_grants.push((tenant, seen)),
            Verdict::RowVanished(version) => plan.changes.push(Change::Grant { tenant, grant: None, version: Some(version) }),
        }
    }
}

/// What the log holds under a key.
#[derive(Clone, Copy)]
struct Held {
    version: Option<u64>,
    updated_at_ms: u64,
    /// Since before the rows were read.
    is_unchanged: bool,
}

enum Verdict<'a, V> {
    /// Nothing to do, or not yet.
    Agree,
    /// The log takes what the row says.
    RowWins(&'a Row<V>, V),
    /// The row is to say what the log holds.
    RowLacks(Option<u64>),
    /// The row holds, and needs a version that the log does not know yet.
    RowIsOld(u64),
    /// The row is gone, with the log at this version.
    RowVanished(u64),
}

fn judge<'a, V: Copy>(
    held: Option<Held>,
    gone: Option<u64>,
    row: Option<&'a Row<V>>,
    is_first: bool,
    is_held: impl Fn(&V) -> bool,
) -> Verdict<'a, V> {
    match (held, row) {
        (None, None) => Verdict::Agree,
        // A deletion that is newer came while rows were read; or the row is out of an older copy, and wins when the deletion is settled.
        (None, Some(row)) => match row.value {
            Some(value) if gone.is_none_or(|gone| gone < row.version) => Verdict::RowWins(row, value),
            _ => Verdict::Agree,
        },
        (Some(held), None) => match held.version {
            _ if !held.is_unchanged => Verdict::Agree,
            Some(version) if !is_first => Verdict::RowVanished(version),
            _ => Verdict::RowLacks(None),
        },
        (Some(held), Some(row)) => {
            let Some(value) = row.value else { return Verdict::Agree };
            let is_late = row.updated_at_ms >= held.updated_at_ms;
            match held.version {
                None if is_late => Verdict::RowWins(row, value),
                Some(version) if row.version > version => Verdict::RowWins(row, value),
                Some(version) if row.version == version && is_held(&value) => Verdict::Agree,
                _ if !held.is_unchanged => Verdict::Agree,
                Some(_) if is_late => Verdict::RowIsOld(row.version),
                _ => Verdict::RowLacks(Some(row.version)),
            }
        }
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
