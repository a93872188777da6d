//! The agreed state, a value: changes go in, in the order of the log, and what they did comes out.
//!
//! Invariants: the same changes in the same order give the same state; of two changes of a queue, or of a grant, that carry a version
//! the higher holds;
//! a deletion with a version is remembered until it is settled, so that an older declaration that arrives late does not come back.

use std::collections::BTreeMap;

use mayfly_shards::{QueueName, Tenant};

use super::change::{Change, Declaration, Grant};
use super::members::Members;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    declarations: Register<QueueName, Declaration>,
    grants: Register<Tenant, Granted>,
    is_enabled: bool,
    cluster: Option<u128>,
    members: Members,
}

impl Default for State {
    fn default() -> Self {
        Self {
            declarations: Register::default(),
            grants: Register::default(),
            is_enabled: true,
            cluster: None,
            members: Members::default(),
        }
    }
}

impl State {
    /// Applies a change. Whether it took effect: a change that is older than what is known of its queue or grant does not.
    pub fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Declare { queue, declaration } => self.declarations.put(queue.clone(), declaration.clone()),
            Change::Undeclare { queue, version } | Change::Delete { queue, version } => self.declarations.take(queue.clone(), *version),
            Change::Grant { tenant, grant: Some(grant), version } => self.grants.put(*tenant, Granted { grant: *grant, version: *version }),
            Change::Grant { tenant, grant: None, version } => self.grants.take(*tenant, *version),
            Change::Cluster { id } => self.cluster.replace(*id) != Some(*id),
            Change::Switch { is_enabled } => {
                self.is_enabled = *is_enabled;
                true
            }
            Change::Member { member } => self.members.put(member),
            Change::Expel { id } => self.members.take(*id),
            Change::Epoch { number } => self.members.raise_epoch(*number),
            Change::Settle { version } => {
                self.declarations.settle(*version);
                self.grants.settle(*version);
                true
            }
        }
    }

    /// What is declared, in order of tenant and name.
    pub fn declarations(&self) -> impl ExactSizeIterator<Item = (&QueueName, &Declaration)> {
        self.declarations.held.iter()
    }

    /// Changes that [`Self::changes`] has, but for one or two.
    #[must_use]
    pub fn len(&self) -> usize {
        self.declarations.len() + self.grants.len()
    }

    /// Whether nothing is declared, deleted or granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a queue is declared as.
    #[must_use]
    pub fn declaration(&self, queue: &QueueName) -> Option<&Declaration> {
        self.declarations.held.get(queue)
    }

    /// The version of a queue's deletion, while it is remembered.
    #[must_use]
    pub fn deletion(&self, queue: &QueueName) -> Option<u64> {
        self.declarations.gone.get(queue).copied()
    }

    /// What is granted, in order of tenant.
    pub fn grants(&self) -> impl Iterator<Item = (Tenant, &Grant)> {
        self.grants.held.iter().map(|(tenant, granted)| (*tenant, &granted.grant))
    }

    /// What a tenant may use; None: nothing was granted.
    #[must_use]
    pub fn grant(&self, tenant: Tenant) -> Option<&Grant> {
        self.grants.held.get(&tenant).map(|granted| &granted.grant)
    }

    /// The version of a tenant's grant; None: it has none, or nothing was granted.
    #[must_use]
    pub fn grant_version(&self, tenant: Tenant) -> Option<u64> {
        self.grants.held.get(&tenant).and_then(|granted| granted.version)
    }

    /// The version of a grant's end, while it is remembered.
    #[must_use]
    pub fn revocation(&self, tenant: Tenant) -> Option<u64> {
        self.grants.gone.get(&tenant).copied()
    }

    /// The highest version of all that is known, and of what is remembered as gone.
    #[must_use]
    pub fn version_max(&self) -> u64 {
        self.declarations.version_max().max(self.grants.version_max())
    }

    /// The highest version of what is remembered as gone; None: nothing is.
    #[must_use]
    pub fn deletion_max(&self) -> Option<u64> {
        self.declarations.gone.values().chain(self.grants.gone.values()).copied().max()
    }

    /// Whether the family serves.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Which cluster this is; None: nothing has asked yet.
    #[must_use]
    pub const fn cluster(&self) -> Option<u128> {
        self.cluster
    }

    /// The cluster's nodes; none: this node is alone.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// Changes that tell somebody who knows this state what `later` has different: it took the place of this one, and the changes between
    /// are not known. A queue that is not declared any more keeps what it holds: whether it was deleted too is not known either.
    #[must_use]
    pub fn difference(&self, later: &Self) -> Vec<Change> {
        let declared = later.declarations.held.iter().filter(|(queue, declaration)| self.declaration(queue) != Some(declaration));
        let declared = declared.map(|(queue, of)| Change::Declare { queue: queue.clone(), declaration: of.clone() });
        let undeclared = self.declarations.held.keys().filter(|queue| later.declaration(queue).is_none());
        let undeclared = undeclared.map(|queue| Change::Undeclare { queue: queue.clone(), version: None });
        let granted = later.grants.held.iter().filter(|(tenant, of)| self.grants.held.get(tenant) != Some(of));
        let granted = granted.map(|(tenant, of)| Change::Grant { tenant: *tenant, grant: Some(of.grant), version: of.version });
        let revoked = self.grants.held.keys().filter(|tenant| !later.grants.held.contains_key(tenant));
        let revoked = revoked.map(|tenant| Change::Grant { tenant: *tenant, grant: None, version: None });
        let switch = (self.is_enabled != later.is_enabled).then_some(Change::Switch { is_enabled: later.is_enabled });
        undeclared.chain(declared).chain(revoked).chain(granted).chain(switch).collect()
    }

    /// Changes that make an empty state this one: a snapshot of it.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let deletions = self.declarations.gone.iter();
        let deletions = deletions.map(|(queue, version)| Change::Undeclare { queue: queue.clone(), version: Some(*version) });
        let declarations = self.declarations.held.iter();
        let declarations =
            declarations.map(|(queue, declaration)| Change::Declare { queue: queue.clone(), declaration: declaration.clone() });
        let revocations = self.grants.gone.iter();
        let revocations = revocations.map(|(tenant, version)| Change::Grant { tenant: *tenant, grant: None, version: Some(*version) });
        let grants = self.grants.held.iter();
        let grants = grants.map(|(tenant, of)| Change::Grant { tenant: *tenant, grant: Some(of.grant), version: of.version });
        let cluster = self.cluster.map(|id| Change::Cluster { id });
        let members = self.members.rows().iter().map(|member| Change::Member { member: member.clone() });
        let epoch = (self.members.epoch() > 0).then_some(Change::Epoch { number: self.members.epoch() });
        let rest = [Change::Switch { is_enabled: self.is_enabled }].into_iter().chain(cluster).chain(members).chain(epoch);
        deletions.chain(declarations).chain(revocations).chain(grants).chain(rest).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Granted {
    grant: Grant,
    version: Option<u64>,
}

/// Has a number in PostgreSQL, perhaps.
trait Versioned {
    fn version(&self) -> Option<u64>;
}

impl Versioned for Declaration {
    fn version(&self) -> Option<u64> {
        self.version
    }
}

impl Versioned for Granted {
    fn version(&self) -> Option<u64> {
        self.version
    }
}

/// What is held under a key, and the versions under which keys went, until they are settled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Register<K, V> {
    held: BTreeMap<K, V>,
    gone: BTreeMap<K, u64>,
}

impl<K, V> Default for Register<K, V> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), gone: BTreeMap::new() }
    }
}

impl<K: Ord, V: Versioned> Register<K, V> {
    fn put(&mut self, key: K, value: V) -> bool {
        if self.is_older(&key, value.version()) {
            return false;
        }
        self.gone.remove(&key);
        self.held.insert(key, value);
        true
    }

    fn take(&mut self, key: K, version: Option<u64>) -> bool {
        if self.is_older(&key, version) {
            return false;
        }
        self.held.remove(&key);
        if let Some(version) = version {
            self.gone.insert(key, version);
        }
        true
    }

    fn len(&self) -> usize {
        self.held.len() + self.gone.len()
    }

    fn settle(&mut self, version: u64) {
        self.gone.retain(|_, of| *of > version);
    }

    fn is_older(&self, key: &K, version: Option<u64>) -> bool {
        let held = self.held.get(key).and_then(Versioned::version);
        let known = held.max(self.gone.get(key).copied());
        matches!((version, known), (Some(version), Some(known)) if version < known)
    }

    fn version_max(&self) -> u64 {
        self.held.values().filter_map(Versioned::version).chain(self.gone.values().copied()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::{Member, NodeId, Standing};
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName { tenant: Tenant::DEFAULT, name: name.into() }
    }

    fn declare(name: &str, text: &str, version: Option<u64>) -> Change {
        let declaration = Declaration { options_text: text.as_bytes().into(), updated_at_ms: 7, version };
        Change::Declare { queue: queue(name), declaration }
    }

    fn member(id: u64, standing: Standing) -> Change {
        Change::Member { member: Member { id: NodeId(id), peer: "a:1".into(), incarnation: id, shard_count: 1, standing } }
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
    fn grants_follow_their_versions_too() {
        let grant =
            |bytes| Grant { is_enabled: true, bytes_max: Some(bytes), queues_max: None, messages_per_second_max: None, parked_max: None };
        let mut state = State::default();
        assert!(state.apply(&Change::Grant { tenant: Tenant(4), grant: Some(grant(2)), version: Some(2) }));
        assert!(!state.apply(&Change::Grant { tenant: Tenant(4), grant: Some(grant(1)), version: Some(1) }));
        assert!(!state.apply(&Change::Grant { tenant: Tenant(4), grant: None, version: Some(1) }));
        assert_eq!(state.grant(Tenant(4)), Some(&grant(2)));
        assert!(state.apply(&Change::Grant { tenant: Tenant(4), grant: None, version: Some(3) }));
        assert_eq!((state.grant(Tenant(4)), state.revocation(Tenant(4)), state.deletion_max()), (None, Some(3), Some(3)));
        state.apply(&Change::Settle { version: 3 });
        assert_eq!(state.version_max(), 0);
    }

    #[test]
    fn a_snapshots_changes_make_the_same_state() {
        let mut state = State::default();
        let grant = Grant { is_enabled: true, bytes_max: Some(1), queues_max: None, messages_per_second_max: Some(0), parked_max: None };
        for change in [
            declare("a", "{}", None),
            declare("b", "{}", Some(3)),
            Change::Delete { queue: queue("c"), version: Some(9) },
            Change::Grant { tenant: Tenant(4), grant: Some(grant), version: Some(4) },
            Change::Grant { tenant: Tenant(5), grant: None, version: Some(6) },
            Change::Cluster { id: 77 },
            Change::Switch { is_enabled: false },
            member(1, Standing::Joining),
            member(1, Standing::Live),
            member(2, Standing::Down),
            member(3, Standing::Live),
            Change::Expel { id: NodeId(3) },
        ] {
            assert!(state.apply(&change));
        }
        let mut again = State::default();
        for change in state.changes() {
            assert!(again.apply(&change));
        }
        assert_eq!(again, state);
    }

    #[test]
    fn the_difference_of_two_states_leads_from_one_to_the_other() {
        let grant =
            |queues| Grant { is_enabled: true, bytes_max: None, queues_max: queues, messages_per_second_max: None, parked_max: None };
        let mut before = State::default();
        for change in [
            declare("same", "{}", None),
            declare("other", "{}", None),
            declare("gone", "{}", None),
            Change::Grant { tenant: Tenant(1), grant: Some(grant(None)), version: None },
            Change::Grant { tenant: Tenant(2), grant: Some(grant(None)), version: None },
        ] {
            before.apply(&change);
        }
        let mut after = before.clone();
        for change in [
            declare("other", "{ }", None),
            declare("new", "{}", None),
            Change::Delete { queue: queue("gone"), version: None },
            Change::Grant { tenant: Tenant(1), grant: Some(grant(Some(7))), version: None },
            Change::Grant { tenant: Tenant(2), grant: None, version: None },
            Change::Switch { is_enabled: false },
        ] {
            after.apply(&change);
        }
        let difference = before.difference(&after);
        assert_eq!(difference.len(), 6, "{difference:?}");
        difference.iter().for_each(|change| assert!(before.apply(change)));
        assert_eq!(before, after);
        assert!(before.difference(&after).is_empty());
    }
}
