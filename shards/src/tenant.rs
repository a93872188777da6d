//! Tenants of a node: what each may use, and what it uses.
//!
//! A tenant's cell is shared by the shards of the node. Every queue keeps its own reference to it, so that charging needs neither a
//! lock nor a look-up; each shard also remembers the tenants that it met lately ([`crate::tenants`]). The node's list is locked when a
//! shard meets a tenant for the first time in a while, when a grant changes, and when somebody asks for all.
//!
//! Invariants: there is at most one cell of a tenant; a cell is in the list while anything is charged to it, a shard or a queue refers
//! to it, or its tenant has a grant, and else goes; at most `TENANTS_MAX` tenants without a grant are in the
//! list, and beyond those that have declarations.

#![expect(clippy::disallowed_types, reason = "the list is the node's, not a shard's: see above when it is locked")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::budget::{Bound, Rate};
use crate::command::Refusal;
use crate::limits::{QUEUE_OVERHEAD_BYTES, TENANTS_MAX};
use crate::name::Tenant;
use crate::time::Time;

/// What a tenant may use on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Whether it may use anything at all.
    pub is_enabled: bool,
    /// Payload bytes held.
    pub bytes_max: u64,
    /// Queues.
    pub queues_max: u64,
    /// Parked pops and calls.
    pub parked_max: u64,
    /// Messages pushed a second; 0: without limit.
    pub messages_per_second: u64,
    /// Messages pushed at once, where there is a rate.
    pub burst_messages: u64,
}

impl Allowance {
    /// Everything.
    pub const UNBOUNDED: Self = Self {
        is_enabled: true,
        bytes_max: u64::MAX,
        queues_max: u64::MAX,
        parked_max: u64::MAX,
        messages_per_second: 0,
        burst_messages: 0,
    };
}

/// What a tenant uses on a node, and what it did since the node knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Messages pushed, ever.
    pub pushed: u64,
    /// Messages delivered, redeliveries included, ever.
    pub delivered: u64,
    /// Payload bytes held.
    pub bytes: u64,
    /// Queues.
    pub queues: u64,
    /// Parked pops and calls.
    pub parked: u64,
}

/// One tenant's cell.
#[derive(Debug)]
pub(crate) struct TenantBudget {
    /// Whose.
    pub(crate) tenant: Tenant,
    is_enabled: AtomicBool,
    /// Payload bytes held.
    pub(crate) bytes: Bound,
    /// Queues.
    pub(crate) queues: Bound,
    /// Parked pops and calls.
    pub(crate) parked: Bound,
    /// Messages pushed a second.
    pub(crate) rate: Rate,
    pub(crate) pushed: AtomicU64,
    pub(crate) delivered: AtomicU64,
}

impl TenantBudget {
    fn new(tenant: Tenant, allowance: &Allowance) -> Self {
        Self {
            tenant,
            is_enabled: AtomicBool::new(allowance.is_enabled),
            bytes: Bound::new(allowance.bytes_max),
            queues: Bound::new(allowance.queues_max),
            parked: Bound::new(allowance.parked_max),
            rate: Rate::new(allowance.messages_per_second, allowance.burst_messages),
            pushed: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
        }
    }

    fn allow(&self, allowance: &Allowance) {
        self.is_enabled.store(allowance.is_enabled, Relaxed);
        self.bytes.set_max(allowance.bytes_max);
        self.queues.set_max(allowance.queues_max);
        self.parked.set_max(allowance.parked_max);
        self.rate.set(allowance.messages_per_second, allowance.burst_messages);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    /// Whether it would be missed: something is held, or what was spent still counts.
    pub(crate) fn matters(&self, now: Time) -> bool {
        let held = [&self.bytes, &self.queues, &self.parked];
        held.iter().any(|bound| bound.used() > 0) || !self.rate.is_full(now)
    }

    fn usage(&self) -> Usage {
        Usage {
            pushed: self.pushed.load(Relaxed),
            delivered: self.delivered.load(Relaxed),
            bytes: self.bytes.used(),
            queues: self.queues.used(),
            parked: self.parked.used(),
        }
    }
}

/// A tenant in the node's list.
#[derive(Debug)]
struct Listed {
    budget: Arc<TenantBudget>,
    is_granted: bool,
}

#[derive(Debug, Default)]
struct List {
    tenants: BTreeMap<Tenant, Listed>,
    ungranted_count: usize,
}

/// The node's bound and its tenants.
#[derive(Debug)]
pub struct NodeBudget {
    /// Payload bytes plus the overheads of `limits`.
    pub bytes: Bound,
    /// Of tenants without a grant.
    allowance: Allowance,
    /// `Tenant::DEFAULT`, which never goes.
    default_tenant: Arc<TenantBudget>,
    list: Mutex<List>,
}

impl NodeBudget {
    /// At most `max_bytes`; a tenant without a grant has this allowance.
    #[must_use]
    pub fn new(max_bytes: u64, allowance: Allowance) -> Self {
        let default_tenant = Arc::new(TenantBudget::new(Tenant::DEFAULT, &allowance));
        let listed = Listed { budget: Arc::clone(&default_tenant), is_granted: false };
        let list = List { tenants: BTreeMap::from([(Tenant::DEFAULT, listed)]), ungranted_count: 1 };
        Self { bytes: Bound::new(max_bytes), allowance, default_tenant, list: Mutex::new(list) }
    }

    /// What a tenant may use from now on: by its grant, or, withdrawn, as every tenant without one. What it holds stays.
    pub fn apply_grant(&self, tenant: Tenant, grant: Option<Allowance>) {
        let mut list = self.list();
        let is_granted = grant.is_some();
        let allowance = grant.unwrap_or(self.allowance);
        let was_granted = list.tenants.get(&tenant).map(|listed| listed.is_granted);
        if was_granted.is_none() && !is_granted {
            return;
        }
        let make = || Listed { budget: Arc::new(TenantBudget::new(tenant, &allowance)), is_granted };
        let listed = list.tenants.entry(tenant).or_insert_with(make);
        listed.is_granted = is_granted;
        listed.budget.allow(&allowance);
        list.ungranted_count -= usize::from(was_granted == Some(false));
        list.ungranted_count += usize::from(!is_granted);
        // What was spent of a grant's rate goes with the grant.
        forget_unused(&mut list, tenant, Time::NEVER);
    }

    /// What a tenant uses; all zero for one that the node does not know.
    #[must_use]
    pub fn usage(&self, tenant: Tenant) -> Usage {
        self.list().tenants.get(&tenant).map(|listed| listed.budget.usage()).unwrap_or_default()
    }

    /// Tenants that the node knows.
    #[must_use]
    pub fn tenant_count(&self) -> usize {
        self.list().tenants.len()
    }

    pub(crate) fn default_tenant(&self) -> Arc<TenantBudget> {
        Arc::clone(&self.default_tenant)
    }

    /// Whether a tenant that the node does not know may use anything.
    pub(crate) fn admits_unknown(&self) -> bool {
        self.allowance.is_enabled
    }

    pub(crate) fn find(&self, tenant: Tenant) -> Option<Arc<TenantBudget>> {
        self.list().tenants.get(&tenant).map(|listed| Arc::clone(&listed.budget))
    }

    /// The tenant's cell, made if there is none; None: there are too many tenants.
    pub(crate) fn obtain(&self, tenant: Tenant) -> Option<Arc<TenantBudget>> {
        self.obtain_up_to(tenant, TENANTS_MAX)
    }

    /// The tenant's cell, made if there is none, however many there are: for what was agreed on before.
    pub(crate) fn obtain_agreed(&self, tenant: Tenant) -> Option<Arc<TenantBudget>> {
        self.obtain_up_to(tenant, usize::MAX)
    }

    fn obtain_up_to(&self, tenant: Tenant, max: usize) -> Option<Arc<TenantBudget>> {
        let mut list = self.list();
        if let Some(listed) = list.tenants.get(&tenant) {
            return Some(Arc::clone(&listed.budget));
        }
        if list.ungranted_count >= max {
            return None;
        }
        let budget = Arc::new(TenantBudget::new(tenant, &self.allowance));
        list.tenants.insert(tenant, Listed { budget: Arc::clone(&budget), is_granted: false });
        list.ungranted_count += 1;
        Some(budget)
    }

    /// A shard has dropped its references to these tenants: those that nobody needs go.
    pub(crate) fn forget_unused(&self, tenants: impl IntoIterator<Item = Tenant>, now: Time) {
        let mut list = self.list();
        tenants.into_iter().for_each(|tenant| forget_unused(&mut list, tenant, now));
    }

    fn list(&self) -> MutexGuard<'_, List> {
        // Nothing between lock and unlock can leave it half changed.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeBudget {
    /// Charges for one more queue of a tenant, or nothing.
    pub(crate) fn charge_queue(&self, tenant: &TenantBudget) -> Result<(), Refusal> {
        if !tenant.queues.charge(1) {
            return Err(Refusal::TenantQueues);
        }
        if !self.bytes.charge(QUEUE_OVERHEAD_BYTES) {
            tenant.queues.release(1);
            return Err(Refusal::NodeBytes);
        }
        Ok(())
    }

    /// The same past the bounds: for a queue that was agreed on before.
    pub(crate) fn charge_agreed_queue(&self, tenant: &TenantBudget) {
        tenant.queues.charge_unbounded(1);
        self.bytes.charge_unbounded(QUEUE_OVERHEAD_BYTES);
    }

    pub(crate) fn release_queue(&self, tenant: &TenantBudget) {
        tenant.queues.release(1);
        self.bytes.release(QUEUE_OVERHEAD_BYTES);
    }
}

/// Room for a queue that is not made yet: kept while its declaration is being agreed on, given back when this is dropped. Dropped after
/// the queue was made and charged for itself, it leaves no moment in which another takes the room.
#[derive(Debug)]
pub struct Reservation(Option<(Arc<NodeBudget>, Arc<TenantBudget>)>);

impl Reservation {
    /// Of no room: what needs none.
    #[must_use]
    pub const fn nothing() -> Self {
        Self(None)
    }

    pub(crate) fn of_queue(node: Arc<NodeBudget>, tenant: Arc<TenantBudget>) -> Result<Self, Refusal> {
        node.charge_queue(&tenant)?;
        Ok(Self(Some((node, tenant))))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((node, tenant)) = self.0.take() {
            node.release_queue(&tenant);
            let name = tenant.tenant;
            drop(tenant);
            // Every shard may have lost sight of the tenant meanwhile; one that has not remembers what was spent of its rate.
            node.forget_unused([name], Time::NEVER);
        }
    }
}

/// References are only given out under the lock: a cell that has none but the list's own cannot get one meanwhile.
fn forget_unused(list: &mut List, tenant: Tenant, now: Time) {
    let is_unused = |listed: &Listed| !listed.is_granted && Arc::strong_count(&listed.budget) == 1 && !listed.budget.matters(now);
    if list.tenants.get(&tenant).is_some_and(is_unused) {
        list.tenants.remove(&tenant);
        list.ungranted_count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDED: Allowance = Allowance { bytes_max: 10, messages_per_second: 2, burst_messages: 4, ..Allowance::UNBOUNDED };
    const NOW: Time = Time(9_000_000_000);

    #[test]
    fn a_tenant_that_holds_nothing_and_has_no_grant_is_forgotten() {
        let node = NodeBudget::new(100, Allowance::UNBOUNDED);
        let cell = node.obtain(Tenant(7)).expect("room");
        assert!(Arc::ptr_eq(&cell, &node.obtain(Tenant(7)).expect("room")), "one cell a tenant");
        node.forget_unused([Tenant(7)], NOW);
        assert_eq!(node.tenant_count(), 2, "somebody refers to it");
        assert!(cell.parked.charge(1));
        drop(cell);
        node.forget_unused([Tenant(7)], NOW);
        assert_eq!(node.tenant_count(), 2, "something is charged to it");
        node.find(Tenant(7)).expect("known").parked.release(1);
        node.forget_unused([Tenant(7), Tenant::DEFAULT], NOW);
        assert_eq!(node.tenant_count(), 1, "only the default tenant stays");
    }

    #[test]
    fn what_was_spent_is_remembered_until_it_no_longer_counts() {
        let node = NodeBudget::new(100, BOUNDED);
        assert_eq!(node.obtain(Tenant(7)).expect("room").rate.spend(NOW, 4), Ok(()));
        node.forget_unused([Tenant(7)], NOW);
        assert!(node.obtain(Tenant(7)).expect("room").rate.spend(NOW, 1).is_err());
        node.forget_unused([Tenant(7)], Time(NOW.0 + 2_000_000_000));
        assert_eq!(node.tenant_count(), 1);
    }

    #[test]
    fn a_grant_replaces_the_allowance_and_its_withdrawal_brings_it_back() {
        let node = NodeBudget::new(100, Allowance { is_enabled: false, ..BOUNDED });
        node.apply_grant(Tenant(7), Some(Allowance { bytes_max: 50, ..Allowance::UNBOUNDED }));
        let cell = node.find(Tenant(7)).expect("granted");
        assert!(cell.is_enabled() && cell.bytes.charge(50) && cell.rate.spend(NOW, 1_000).is_ok());
        assert_eq!(node.usage(Tenant(7)), Usage { bytes: 50, ..Usage::default() });
        node.apply_grant(Tenant(7), None);
        assert!(!cell.is_enabled() && !cell.bytes.charge(1));
        assert_eq!(node.usage(Tenant(7)).bytes, 50, "what it holds stays");
        cell.bytes.release(50);
        drop(cell);
        node.forget_unused([Tenant(7)], NOW);
        assert_eq!(node.tenant_count(), 1);
    }

    #[test]
    fn a_grant_of_a_tenant_that_never_came_leaves_nothing_behind() {
        let node = NodeBudget::new(100, Allowance::UNBOUNDED);
        node.apply_grant(Tenant(7), Some(BOUNDED));
        node.forget_unused([Tenant(7)], NOW);
        assert_eq!(node.tenant_count(), 2, "its grant keeps it");
        node.apply_grant(Tenant(7), None);
        node.apply_grant(Tenant(8), None);
        assert_eq!(node.tenant_count(), 1);
    }

    #[test]
    fn tenants_without_a_grant_are_bounded_and_those_with_one_are_not() {
        let node = NodeBudget::new(100, Allowance::UNBOUNDED);
        for tenant in 2..=TENANTS_MAX as u128 {
            assert!(node.obtain(Tenant(tenant)).is_some());
        }
        let next = Tenant(TENANTS_MAX as u128 + 1);
        assert!(node.obtain(next).is_none() && node.obtain(Tenant(2)).is_some());
        node.apply_grant(next, Some(BOUNDED));
        assert!(node.obtain(next).is_some());
        node.apply_grant(Tenant(2), Some(BOUNDED));
        assert!(node.obtain(Tenant(u128::MAX)).is_some(), "a granted one makes room");
        node.forget_unused([Tenant(3)], NOW);
        assert!(node.obtain(Tenant(u128::MAX - 1)).is_some(), "so does one that is forgotten");
        assert!(node.obtain(Tenant(u128::MAX - 2)).is_none());
    }
}
