//! Where a shard books what it frees and counts: the shared budgets, and the totals that metrics read.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::command::{DropCause, Refusal};
use crate::limits::{MESSAGE_OVERHEAD_BYTES, WAITER_OVERHEAD_BYTES};
use crate::payload::Payload;
use crate::tenant::{NodeBudget, TenantBudget};

/// Messages and payload bytes that a step freed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freed {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Freed {
    pub(crate) fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }

    pub(crate) fn add_payload(&mut self, payload: Option<&Payload>) {
        if let Some(payload) = payload {
            self.messages += 1;
            self.bytes += payload.len() as u64;
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) budget: Arc<NodeBudget>,
    pub(crate) pushed: u64,
    pub(crate) popped: u64,
    pub(crate) acked: u64,
    pub(crate) redelivered: u64,
    pub(crate) stale: u64,
    pub(crate) handed_over: u64,
    pub(crate) adopted: u64,
    pub(crate) dropped: [u64; DropCause::ALL.len()],
}

impl Ledger {
    pub(crate) fn new(budget: Arc<NodeBudget>) -> Self {
        let dropped = [0; DropCause::ALL.len()];
        Self { budget, pushed: 0, popped: 0, acked: 0, redelivered: 0, stale: 0, handed_over: 0, adopted: 0, dropped }
    }

    /// What the node is charged for messages.
    pub(crate) fn node_bytes(messages: u64, payload_bytes: u64) -> u64 {
        payload_bytes + messages * MESSAGE_OVERHEAD_BYTES
    }

    /// Counts messages that were pushed.
    pub(crate) fn count_pushed(&mut self, tenant: &TenantBudget, count: u64) {
        self.pushed += count;
        tenant.pushed.fetch_add(count, Relaxed);
    }

    /// Counts messages that were delivered.
    pub(crate) fn count_delivered(&mut self, tenant: &TenantBudget, count: u64) {
        self.popped += count;
        tenant.delivered.fetch_add(count, Relaxed);
    }

    pub(crate) fn release_messages(&self, tenant: &TenantBudget, freed: Freed) {
        self.budget.bytes.release(Self::node_bytes(freed.messages, freed.bytes));
        tenant.bytes.release(freed.bytes);
    }

    /// Charges a parked pop, or nothing.
    pub(crate) fn charge_waiter(&self, tenant: &TenantBudget) -> Result<(), Refusal> {
        if !tenant.parked.charge(1) {
            return Err(Refusal::TooManyParked);
        }
        if !self.budget.bytes.charge(WAITER_OVERHEAD_BYTES) {
            tenant.parked.release(1);
            return Err(Refusal::NodeBytes);
        }
        Ok(())
    }

    /// Charges a parked pop for which there was room a moment ago.
    pub(crate) fn charge_waiter_unbounded(&self, tenant: &TenantBudget) {
        tenant.parked.charge_unbounded(1);
        self.budget.bytes.charge_unbounded(WAITER_OVERHEAD_BYTES);
    }

    pub(crate) fn release_waiter(&self, tenant: &TenantBudget) {
        tenant.parked.release(1);
        self.budget.bytes.release(WAITER_OVERHEAD_BYTES);
    }

    pub(crate) fn release_queue(&self, tenant: &TenantBudget) {
        self.budget.release_queue(tenant);
    }
}
