//! The tenants that a shard met lately, so that it need not lock the node's list to find them.
//!
//! Invariants: a tenant that was used within `TENANT_IDLE` is remembered, one that was not for twice as long is not, unless what it
//! spent of its rate still counts; whoever drops the last queue, call or charge of a tenant here has found it here before, so that it
//! is looked at again and goes from the node when nothing keeps it.

use std::sync::Arc;

use ahash::{AHashMap, RandomState};

use crate::limits::TENANT_IDLE;
use crate::name::Tenant;
use crate::tenant::{NodeBudget, TenantBudget};
use crate::time::{Span, Time};

/// Tenants given up in one step, and how long until the next: an attacker may have brought tens of thousands.
const LEAVING_STEP: usize = 1_024;
const LEAVING_PAUSE: Span = Span::from_millis(1);

type Table = AHashMap<Tenant, Arc<TenantBudget>>;

/// See the module.
pub(crate) struct Tenants {
    node: Arc<NodeBudget>,
    default_tenant: Arc<TenantBudget>,
    /// The last one found, which is in `young` too.
    recent: Option<Arc<TenantBudget>>,
    /// Used since the tables were last turned.
    young: Table,
    /// Used in the turn before.
    old: Table,
    /// Not used for two turns.
    leaving: Vec<Arc<TenantBudget>>,
    /// When the tables are turned next; None: they are empty.
    turn_at: Option<Time>,
    now: Time,
}

impl Tenants {
    pub(crate) fn new(node: Arc<NodeBudget>, hash_seed: u64) -> Self {
        let hasher = RandomState::with_seeds(!hash_seed, hash_seed, hash_seed.rotate_left(16), 0x243f_6a88_85a3_08d3);
        Self {
            default_tenant: node.default_tenant(),
            node,
            recent: None,
            young: Table::with_hasher(hasher.clone()),
            old: Table::with_hasher(hasher),
            leaving: Vec::new(),
            turn_at: None,
            now: Time(0),
        }
    }

    /// Whether a tenant may use the family.
    pub(crate) fn admits(&mut self, tenant: Tenant) -> bool {
        match self.find(tenant) {
            Some(budget) => budget.is_enabled(),
            None => self.node.admits_unknown(),
        }
    }

    /// A tenant that the node knows.
    pub(crate) fn find(&mut self, tenant: Tenant) -> Option<&Arc<TenantBudget>> {
        self.look_up(tenant, NodeBudget::find)
    }

    /// A tenant, made known if need be; None: there are too many.
    pub(crate) fn obtain(&mut self, tenant: Tenant) -> Option<&Arc<TenantBudget>> {
        self.look_up(tenant, NodeBudget::obtain)
    }

    /// A tenant for which something was agreed on, however many there are.
    pub(crate) fn agreed(&mut self, tenant: Tenant) -> &Arc<TenantBudget> {
        self.look_up(tenant, NodeBudget::obtain_agreed).unwrap_or_else(|| unreachable!("there is no bound"))
    }

    /// A tenant to which something is charged.
    pub(crate) fn charged(&mut self, tenant: Tenant) -> &Arc<TenantBudget> {
        self.find(tenant).unwrap_or_else(|| unreachable!("a tenant is known while anything is charged to it"))
    }

    fn look_up(
        &mut self,
        tenant: Tenant,
        on_node: impl FnOnce(&NodeBudget, Tenant) -> Option<Arc<TenantBudget>>,
    ) -> Option<&Arc<TenantBudget>> {
        if tenant == Tenant::DEFAULT {
            return Some(&self.default_tenant);
        }
        if self.recent.as_ref().is_none_or(|recent| recent.tenant != tenant) {
            let found = match self.young.get(&tenant) {
                Some(budget) => Arc::clone(budget),
                None => {
                    let found = self.old.remove(&tenant).or_else(|| on_node(&self.node, tenant))?;
                    self.young.insert(tenant, Arc::clone(&found));
                    self.turn_at = self.turn_at.or(Some(self.now + TENANT_IDLE));
                    found
                }
            };
            self.recent = Some(found);
        }
        self.recent.as_ref()
    }

    /// When [`Tenants::expire`] has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.turn_at
    }

    /// Gives up the tenants that were not used for a while.
    pub(crate) fn expire(&mut self, now: Time) {
        self.now = now;
        if self.turn_at.is_none_or(|at| at > now) {
            return;
        }
        if self.leaving.is_empty() {
            self.turn(now);
        }
        let kept = self.leaving.len().saturating_sub(LEAVING_STEP);
        let (spent, gone): (Vec<_>, Vec<_>) = self.leaving.drain(kept..).partition(|budget| !budget.rate.is_full(now));
        self.young.extend(spent.into_iter().map(|budget| (budget.tenant, budget)));
        if !gone.is_empty() {
            let names: Vec<Tenant> = gone.iter().map(|budget| budget.tenant).collect();
            drop(gone);
            self.node.forget_unused(names, now);
        }
        if self.leaving.is_empty() {
            self.leaving = Vec::new();
            let is_empty = self.young.is_empty() && self.old.is_empty();
            self.turn_at = (!is_empty).then_some(now + TENANT_IDLE);
        } else {
            self.turn_at = Some(now + LEAVING_PAUSE);
        }
    }

    /// What was used in this turn becomes old, what was not leaves.
    fn turn(&mut self, now: Time) {
        self.recent = None;
        let hasher = self.old.hasher().clone();
        let young = std::mem::replace(&mut self.young, Table::with_hasher(hasher));
        let old = std::mem::replace(&mut self.old, young);
        self.leaving.extend(old.into_values());
        self.now = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Allowance;

    fn node(allowance: Allowance) -> (Arc<NodeBudget>, Tenants) {
        let node = Arc::new(NodeBudget::new(1 << 20, allowance));
        let tenants = Tenants::new(Arc::clone(&node), 1);
        (node, tenants)
    }

    fn let_pass(tenants: &mut Tenants, until: Time) {
        while let Some(at) = tenants.next_deadline().filter(|at| *at <= until) {
            tenants.expire(at);
        }
        tenants.expire(until);
    }

    #[test]
    fn an_unused_tenant_leaves_no_memory_and_nothing_to_do() {
        let (node, mut tenants) = node(Allowance::UNBOUNDED);
        tenants.expire(Time(1));
        assert!(tenants.find(Tenant(9)).is_none() && tenants.next_deadline().is_none(), "asking makes nothing");
        for tenant in 2..5_000 {
            assert!(tenants.obtain(Tenant(tenant)).is_some());
        }
        assert_eq!(node.tenant_count(), 4_999);
        let_pass(&mut tenants, Time(1) + TENANT_IDLE);
        assert!(tenants.find(Tenant(9)).is_some());
        let_pass(&mut tenants, Time(1) + TENANT_IDLE + TENANT_IDLE + Span::from_millis(100));
        assert_eq!(node.tenant_count(), 2, "only the default tenant and the one that was used");
        let_pass(&mut tenants, Time(1) + Span(4 * TENANT_IDLE.0));
        assert_eq!((node.tenant_count(), tenants.next_deadline()), (1, None));
        assert!(tenants.young.capacity() == 0 && tenants.old.capacity() == 0 && tenants.leaving.capacity() == 0);
    }

    #[test]
    fn the_last_of_several_shards_that_knew_a_tenant_lets_it_go() {
        let (node, mut one) = node(Allowance::UNBOUNDED);
        let mut other = Tenants::new(Arc::clone(&node), 2);
        assert!(one.obtain(Tenant(9)).is_some());
        let_pass(&mut other, Time(1_000));
        assert!(other.find(Tenant(9)).is_some());
        let_pass(&mut one, Time(0) + Span(3 * TENANT_IDLE.0));
        assert_eq!(node.tenant_count(), 2);
        let_pass(&mut other, Time(0) + Span(3 * TENANT_IDLE.0));
        assert_eq!(node.tenant_count(), 1);
    }

    #[test]
    fn a_tenant_is_remembered_while_what_it_spent_counts() {
        let (node, mut tenants) = node(Allowance { messages_per_second: 1, burst_messages: 600, ..Allowance::UNBOUNDED });
        tenants.expire(Time(1));
        assert_eq!(tenants.obtain(Tenant(9)).expect("room").rate.spend(Time(1), 600), Ok(()));
        let_pass(&mut tenants, Time(1) + Span::from_secs(599));
        assert_eq!(node.tenant_count(), 2);
        let_pass(&mut tenants, Time(1) + Span::from_secs(600) + Span(3 * TENANT_IDLE.0));
        assert_eq!(node.tenant_count(), 1);
    }

    #[test]
    fn who_may_follows_the_grants() {
        let (node, mut tenants) = node(Allowance { is_enabled: false, ..Allowance::UNBOUNDED });
        assert!(!tenants.admits(Tenant(9)) && !tenants.admits(Tenant::DEFAULT));
        node.apply_grant(Tenant(9), Some(Allowance::UNBOUNDED));
        assert!(tenants.admits(Tenant(9)) && !tenants.admits(Tenant(8)));
        node.apply_grant(Tenant(9), Some(Allowance { is_enabled: false, ..Allowance::UNBOUNDED }));
        assert!(!tenants.admits(Tenant(9)));
        assert_eq!(node.tenant_count(), 2, "asking makes nobody known");
    }
}
