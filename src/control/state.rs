//! The agreed state, a value: changes go in, in the order of the log, and what they did comes out.
//!
//! Invariants: the same changes in the same order give the same state; of two changes of a queue that carry a version the higher holds;
//! a deletion with a version is remembered until it is settled, so that an older declaration that arrives late does not come back.

use std::collections::BTreeMap;

use mayfly_shards::{QueueName, Tenant};

use super::change::{Change, Declaration, Grant};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    declarations: BTreeMap<QueueName, Declaration>,
    /// Versions of deletions that are not settled.
    deletions: BTreeMap<QueueName, u64>,
    grants: BTreeMap<Tenant, Grant>,
    is_enabled: bool,
}

impl Default for State {
    fn default() -> Self {
        Self { declarations: BTreeMap::new(), deletions: BTreeMap::new(), grants: BTreeMap::new(), is_enabled: true }
    }
}

impl State {
    /// Applies a change. Whether it took effect: a change of a queue that is older than what is known of it does not.
    pub fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Declare { queue, declaration } => {
                if self.is_older(queue, declaration.version) {
                    return false;
                }
                self.deletions.remove(queue);
                self.declarations.insert(queue.clone(), declaration.clone());
            }
            Change::Undeclare { queue, version } | Change::Delete { queue, version } => {
                if self.is_older(queue, *version) {
                    return false;
                }
                self.declarations.remove(queue);
                if let Some(version) = version {
                    self.deletions.insert(queue.clone(), *version);
                }
            }
            Change::Grant { tenant, grant: Some(grant) } => {
                self.grants.insert(*tenant, *grant);
            }
            Change::Grant { tenant, grant: None } => {
                self.grants.remove(tenant);
            }
            Change::Switch { is_enabled } => self.is_enabled = *is_enabled,
            Change::Settle { version } => self.deletions.retain(|_, of| *of > *version),
        }
        true
    }

    fn is_older(&self, queue: &QueueName, version: Option<u64>) -> bool {
        let declared = self.declarations.get(queue).and_then(|declaration| declaration.version);
        let known = declared.max(self.deletions.get(queue).copied());
        matches!((version, known), (Some(version), Some(known)) if version < known)
    }

    /// What is declared, in order of tenant and name.
    pub fn declarations(&self) -> impl ExactSizeIterator<Item = (&QueueName, &Declaration)> {
        self.declarations.iter()
    }

    /// Changes that [`Self::changes`] has, but for one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.declarations.len() + self.deletions.len() + self.grants.len()
    }

    /// Whether nothing is declared, deleted or granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a queue is declared as.
    #[must_use]
    pub fn declaration(&self, queue: &QueueName) -> Option<&Declaration> {
        self.declarations.get(queue)
    }

    /// What is granted, in order of tenant.
    pub fn grants(&self) -> impl Iterator<Item = (Tenant, &Grant)> {
        self.grants.iter().map(|(tenant, grant)| (*tenant, grant))
    }

    /// What a tenant may use; None: nothing was granted.
    #[must_use]
    pub fn grant(&self, tenant: Tenant) -> Option<&Grant> {
        self.grants.get(&tenant)
    }

    /// Whether the family serves.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Changes that make an empty state this one: a snapshot of it.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let deletions = self.deletions.iter().map(|(queue, version)| Change::Undeclare { queue: queue.clone(), version: Some(*version) });
        let declarations =
            self.declarations.iter().map(|(queue, declaration)| Change::Declare { queue: queue.clone(), declaration: declaration.clone() });
        let grants = self.grants.iter().map(|(tenant, grant)| Change::Grant { tenant: *tenant, grant: Some(*grant) });
        deletions.chain(declarations).chain(grants).chain([Change::Switch { is_enabled: self.is_enabled }]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName { tenant: Tenant::DEFAULT, name: name.into() }
    }

    fn declare(name: &str, text: &str, version: Option<u64>) -> Change {
        let declaration = Declaration { options_text: text.as_bytes().into(), updated_at_ms: 7, version };
        Change::Declare { queue: queue(name), declaration }
    }

    fn text_of<'a>(state: &'a State, name: &str) -> Option<&'a str> {
        state.declaration(&queue(name)).map(|declaration| std::str::from_utf8(&declaration.options_text).expect("text"))
    }

    #[test]
    fn the_last_declaration_holds() {
        let mut state = State::default();
        assert!(state.apply(&declare("a", "{}", None)) && state.apply(&declare("a", "{\"ttlSeconds\":1}", None)));
        assert_eq!(text_of(&state, "a"), Some("{\"ttlSeconds\":1}"));
        assert!(state.apply(&Change::Delete { queue: queue("a"), version: None }));
        assert_eq!(text_of(&state, "a"), None);
    }

    #[test]
    fn the_higher_version_holds_in_whatever_order_they_come() {
        let mut state = State::default();
        assert!(state.apply(&declare("a", "{\"ttlSeconds\":2}", Some(2))));
        assert!(!state.apply(&declare("a", "{\"ttlSeconds\":1}", Some(1))));
        assert!(!state.apply(&Change::Delete { queue: queue("a"), version: Some(1) }));
        assert_eq!(text_of(&state, "a"), Some("{\"ttlSeconds\":2}"));
    }

    #[test]
    fn a_deletion_is_remembered_until_it_is_settled() {
        let mut state = State::default();
        assert!(state.apply(&Change::Delete { queue: queue("a"), version: Some(5) }));
        assert!(!state.apply(&declare("a", "{}", Some(4))));
        state.apply(&Change::Settle { version: 4 });
        assert!(!state.apply(&declare("a", "{}", Some(4))));
        state.apply(&Change::Settle { version: 5 });
        assert!(state.apply(&declare("a", "{}", Some(4))));
    }

    #[test]
    fn a_snapshots_changes_make_the_same_state() {
        let mut state = State::default();
        let grant = Grant { is_enabled: true, bytes_max: Some(1), queues_max: None, messages_per_second_max: Some(0), parked_max: None };
        for change in [
            declare("a", "{}", None),
            declare("b", "{}", Some(3)),
            Change::Delete { queue: queue("c"), version: Some(9) },
            Change::Grant { tenant: Tenant(4), grant: Some(grant) },
            Change::Switch { is_enabled: false },
        ] {
            assert!(state.apply(&change));
        }
        let mut again = State::default();
        for change in state.changes() {
            assert!(again.apply(&change));
        }
        assert_eq!(again, state);
    }
}
