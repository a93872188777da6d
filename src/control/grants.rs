//! The grants that hold on this node, as far as they are carried out: for whoever is asked, and for the budgets.
//!
//! Invariant: what is read here is in force. The control core alone changes it, in the order of the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mayfly_shards::{Allowance, NodeBudget, Tenant};

use super::change::Grant;

/// See the module.
#[derive(Debug)]
pub struct Grants {
    in_force: Mutex<BTreeMap<Tenant, Grant>>,
    budget: Arc<NodeBudget>,
    /// Of a tenant without a grant; its rate is that of a grant that names none.
    allowance: Allowance,
}

impl Grants {
    /// No grants.
    #[must_use]
    pub fn new(budget: Arc<NodeBudget>, allowance: Allowance) -> Self {
        Self { in_force: Mutex::default(), budget, allowance }
    }

    /// Puts a grant in force, or withdraws it. Every core still has to turn away who may not wait any more.
    pub fn apply(&self, tenant: Tenant, grant: Option<Grant>) {
        let mut grants = self.grants();
        match grant {
            Some(grant) => grants.insert(tenant, grant),
            None => grants.remove(&tenant),
        };
        self.budget.apply_grant(tenant, grant.map(|grant| self.meant(&grant)));
    }

    /// What a tenant is granted; one without a grant has what every such tenant has.
    #[must_use]
    pub fn in_force(&self, tenant: Tenant) -> Grant {
        let without = Grant {
            is_enabled: self.allowance.is_enabled,
            bytes_max: None,
            queues_max: None,
            messages_per_second_max: None,
            parked_max: None,
        };
        self.grants().get(&tenant).copied().unwrap_or(without)
    }

    /// Every grant, in order of tenant.
    #[must_use]
    pub fn all(&self) -> Vec<(Tenant, Grant)> {
        self.grants().iter().map(|(tenant, grant)| (*tenant, *grant)).collect()
    }

    fn meant(&self, grant: &Grant) -> Allowance {
        let rate = grant.messages_per_second_max.filter(|rate| *rate > 0);
        let default_rate = (self.allowance.messages_per_second, self.allowance.burst_messages);
        let (messages_per_second, burst_messages) = rate.map_or(default_rate, |rate| (rate, rate.saturating_mul(2)));
        Allowance {
            is_enabled: grant.is_enabled,
            bytes_max: grant.bytes_max.unwrap_or(u64::MAX),
            queues_max: grant.queues_max.unwrap_or(u64::MAX),
            parked_max: grant.parked_max.unwrap_or(u64::MAX),
            messages_per_second,
            burst_messages,
        }
    }

    fn grants(&self) -> MutexGuard<'_, BTreeMap<Tenant, Grant>> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grants_rate_replaces_the_nodes_and_bursts_twice_as_much() {
        let allowance = Allowance { messages_per_second: 5, burst_messages: 7, ..Allowance::UNBOUNDED };
        let grants = Grants::new(Arc::new(NodeBudget::new(1, allowance)), allowance);
        let rate = |per_second| {
            let grant = Grant { messages_per_second_max: per_second, ..grants.in_force(Tenant(9)) };
            let Allowance { messages_per_second, burst_messages, .. } = grants.meant(&grant);
            (messages_per_second, burst_messages)
        };
        assert_eq!([rate(None), rate(Some(0)), rate(Some(40))], [(5, 7), (5, 7), (40, 80)]);
        assert_eq!(rate(Some(u64::MAX)), (u64::MAX, u64::MAX));
    }
}
