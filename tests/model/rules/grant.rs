//! Grants: what a tenant may use, and what it uses.

use mayfly_shards::{Allowance, Answer, Refusal, Tenant, Usage};

use super::Model;
use crate::facts::{Ask, Name};

/// Whose grant a request needs. CHOICE: what makes or takes nothing is asked for by whoever splits one request into commands.
pub(super) fn needed(ask: &Ask) -> Option<Tenant> {
    match ask {
        Ask::Push { queue, .. } | Ask::Pop { queue, .. } | Ask::Call { queue, .. } | Ask::Configure { queue, .. } => Some(queue.tenant),
        _ => None,
    }
}

impl Model {
    pub(super) fn allowance(&self, tenant: Tenant) -> Allowance {
        self.grants.iter().find(|(of, _)| *of == tenant).map_or(self.settings.allowance, |(_, allowance)| *allowance)
    }

    /// CHOICE: what the tenant holds stays; whoever waits for it and may not any more is told so at once.
    pub(super) fn grant(&mut self, tenant: Tenant, allowance: Option<Allowance>) {
        self.grants.retain(|(of, _)| *of != tenant);
        self.grants.extend(allowance.map(|allowance| (tenant, allowance)));
        self.forget_other_rates(tenant);
        if self.allowance(tenant).is_enabled {
            return;
        }
        let pops = self.waiters.iter().filter(|w| w.queue.tenant == tenant).map(|w| w.ticket);
        let calls = self.calls.iter().filter(|call| call.tenant == tenant).map(|call| call.ticket);
        let turned_away: Vec<u64> = pops.chain(calls).collect();
        self.waiters.retain(|w| w.queue.tenant != tenant);
        for ticket in turned_away {
            self.hang_up_call(ticket);
            self.answer(ticket, Answer::Refused(Refusal::NotGranted));
        }
    }

    /// Whether a tenant may hold so many bytes more in a queue, which may have to be made, and so many parked pops and calls more.
    ///
    /// CHOICE: before anything is evicted for it.
    pub(super) fn check_tenant(&self, name: &Name, bytes: u64, parked: u64) -> Result<(), Refusal> {
        let (used, allowance) = (self.usage(name.tenant), self.allowance(name.tenant));
        let queues = u64::from(self.find_existing(name).is_none());
        let is_beyond = |used: u64, more: u64, max: u64| more > 0 && used + more > max;
        if is_beyond(used.parked, parked, allowance.parked_max) {
            Err(Refusal::TooManyParked)
        } else if is_beyond(used.bytes, bytes, allowance.bytes_max) {
            Err(Refusal::TenantBytes)
        } else if is_beyond(used.queues, queues, allowance.queues_max) {
            Err(Refusal::TenantQueues)
        } else {
            Ok(())
        }
    }

    pub(crate) fn usage(&self, tenant: Tenant) -> Usage {
        let queues = || self.queues.iter().filter(|q| q.name.tenant == tenant);
        let sum = |counts: &[(Tenant, u64)]| counts.iter().filter(|(of, _)| *of == tenant).map(|(_, count)| count).sum();
        let parked = self.waiters.iter().filter(|w| w.queue.tenant == tenant).count();
        let calling = self.calls.iter().filter(|call| call.tenant == tenant).count();
        Usage {
            pushed: sum(&self.pushed),
            delivered: sum(&self.delivered),
            bytes: queues().map(|q| q.bytes()).sum(),
            queues: queues().filter(|q| q.exists).count() as u64,
            parked: (parked + calling) as u64,
        }
    }
}
