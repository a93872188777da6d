//! What may be held: the node's bytes, a tenant's bytes, queues, parked pops and rate, and one queue's counters.
//!
//! Node and tenant budgets are shared by the shards of a node: charged by compare-and-swap, so a bound holds exactly under any
//! number of pushers, and taken back whole on refusal. A queue that lives on one core counts plainly; when a second core opens a
//! part of it the counters move into one shared cell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::command::Refusal;
use crate::limits::QUEUE_OVERHEAD_BYTES;
use crate::name::Tenant;
use crate::time::{Span, Time};

/// A number with a ceiling.
#[derive(Debug)]
pub struct Bound {
    used: AtomicU64,
    max: u64,
}

impl Bound {
    /// Nothing used of `max`.
    #[must_use]
    pub const fn new(max: u64) -> Self {
        Self { used: AtomicU64::new(0), max }
    }

    /// Charges `amount` whole, or nothing. Equal to the bound is allowed.
    pub fn charge(&self, amount: u64) -> bool {
        charge_up_to(&self.used, amount, self.max)
    }

    /// Charges past the ceiling: for what was admitted before (a returned answer).
    pub fn charge_unbounded(&self, amount: u64) {
        self.used.fetch_add(amount, Relaxed);
    }

    /// Gives `amount` back.
    pub fn release(&self, amount: u64) {
        let before = self.used.fetch_sub(amount, Relaxed);
        debug_assert!(before >= amount, "released {amount} of {before}");
    }

    /// In use now.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

fn charge_up_to(cell: &AtomicU64, amount: u64, max: u64) -> bool {
    cell.fetch_update(Relaxed, Relaxed, |used| used.checked_add(amount).filter(|sum| *sum <= max)).is_ok()
}

/// Messages a second with a burst: the generic cell rate algorithm, one word of state. A rate of 0 admits everything.
#[derive(Debug)]
pub struct Rate {
    per_second: u64,
    burst: u64,
    /// When the bucket is full again (nanoseconds of `Time`).
    full_at: AtomicU64,
}

impl Rate {
    /// `per_second` messages, at most `burst` at once.
    #[must_use]
    pub const fn new(per_second: u64, burst: u64) -> Self {
        Self { per_second, burst: if burst == 0 { 1 } else { burst }, full_at: AtomicU64::new(0) }
    }

    /// No limit.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self::new(0, 0)
    }

    /// Spends `messages`; more than the burst spends the whole burst.
    ///
    /// # Errors
    /// The span after which it fits; nothing is spent.
    pub fn spend(&self, now: Time, messages: u64) -> Result<(), Span> {
        if self.per_second == 0 {
            return Ok(());
        }
        let cost = self.span_of(messages.min(self.burst));
        let window = self.span_of(self.burst);
        let mut wait = Span(0);
        let spent = self.full_at.fetch_update(Relaxed, Relaxed, |full_at| {
            let after = full_at.max(now.0).saturating_add(cost);
            wait = Span(after.saturating_sub(now.0.saturating_add(window)));
            (wait.0 == 0).then_some(after)
        });
        spent.map(|_| ()).map_err(|_| wait)
    }

    fn span_of(&self, messages: u64) -> u64 {
        (u128::from(messages) * 1_000_000_000 / u128::from(self.per_second)).min(u128::from(u64::MAX)) as u64
    }
}

/// One tenant's bounds on this node.
#[derive(Debug)]
pub struct TenantBudget {
    /// Payload bytes held.
    pub bytes: Bound,
    /// Queues.
    pub queues: Bound,
    /// Parked pops.
    pub parked: Bound,
    /// Messages pushed a second.
    pub rate: Rate,
}

impl TenantBudget {
    /// No bound but the rate.
    #[must_use]
    pub const fn with_rate(rate: Rate) -> Self {
        Self { bytes: Bound::new(u64::MAX), queues: Bound::new(u64::MAX), parked: Bound::new(u64::MAX), rate }
    }
}

/// The node's bound and its tenants'.
#[derive(Debug)]
pub struct NodeBudget {
    /// Payload bytes plus the overheads of `limits`.
    pub bytes: Bound,
    tenant: TenantBudget,
}

impl NodeBudget {
    /// At most `max_bytes`, every tenant alike.
    #[must_use]
    pub const fn new(max_bytes: u64, tenant: TenantBudget) -> Self {
        Self { bytes: Bound::new(max_bytes), tenant }
    }

    /// A tenant's budget. While tenancy is off there is one.
    #[must_use]
    pub fn tenant(&self, _tenant: Tenant) -> &TenantBudget {
        &self.tenant
    }

    /// Charges for one more queue of a tenant, or nothing.
    pub(crate) fn charge_queue(&self, tenant: Tenant) -> Result<(), Refusal> {
        let queues = &self.tenant(tenant).queues;
        if !queues.charge(1) {
            return Err(Refusal::TenantQueues);
        }
        if !self.bytes.charge(QUEUE_OVERHEAD_BYTES) {
            queues.release(1);
            return Err(Refusal::NodeBytes);
        }
        Ok(())
    }

    /// The same past the bounds: for a queue that was agreed on before.
    pub(crate) fn charge_agreed_queue(&self, tenant: Tenant) {
        self.tenant(tenant).queues.charge_unbounded(1);
        self.bytes.charge_unbounded(QUEUE_OVERHEAD_BYTES);
    }

    fn release_queue(&self, tenant: Tenant) {
        self.tenant(tenant).queues.release(1);
        self.bytes.release(QUEUE_OVERHEAD_BYTES);
    }
}

/// Room for a queue that is not made yet: kept while its declaration is being agreed on, given back when this is dropped. Dropped after
/// the queue was made and charged for itself, it leaves no moment in which another takes the room.
#[derive(Debug)]
pub struct Reservation(Option<(Arc<NodeBudget>, Tenant)>);

impl Reservation {
    /// Of no room: what needs none.
    #[must_use]
    pub const fn nothing() -> Self {
        Self(None)
    }

    pub(crate) fn of_queue(budget: Arc<NodeBudget>, tenant: Tenant) -> Result<Self, Refusal> {
        budget.charge_queue(tenant)?;
        Ok(Self(Some((budget, tenant))))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((budget, tenant)) = self.0.take() {
            budget.release_queue(tenant);
        }
    }
}

/// What a queue holds on the node, against its own bounds.
#[derive(Debug)]
pub(crate) enum QueueCounters {
    /// The queue lives on one core. A node's memory ends long before four billion messages do.
    Plain { messages: u32, bytes: u64, partitions: u32 },
    /// Several cores hold parts of it.
    Shared(Arc<SharedCounters>),
}

/// See [`QueueCounters::Shared`].
#[derive(Debug, Default)]
pub struct SharedCounters {
    messages: AtomicU64,
    bytes: AtomicU64,
    partitions: AtomicU64,
}

impl SharedCounters {
    /// Gives back.
    pub(crate) fn release(&self, count: u64, size: u64) {
        self.messages.fetch_sub(count, Relaxed);
        self.bytes.fetch_sub(size, Relaxed);
    }
}

impl Default for QueueCounters {
    fn default() -> Self {
        Self::Plain { messages: 0, bytes: 0, partitions: 0 }
    }
}

impl QueueCounters {
    /// Moves the counters where several cores reach them.
    pub(crate) fn share(&mut self) -> Arc<SharedCounters> {
        match self {
            Self::Shared(shared) => Arc::clone(shared),
            Self::Plain { messages, bytes, partitions } => {
                let shared = Arc::new(SharedCounters {
                    messages: AtomicU64::new(u64::from(*messages)),
                    bytes: AtomicU64::new(*bytes),
                    partitions: AtomicU64::new(u64::from(*partitions)),
                });
                *self = Self::Shared(Arc::clone(&shared));
                shared
            }
        }
    }

    /// Messages, payload bytes, partitions.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        match self {
            Self::Plain { messages, bytes, partitions } => (u64::from(*messages), *bytes, u64::from(*partitions)),
            Self::Shared(shared) => (shared.messages.load(Relaxed), shared.bytes.load(Relaxed), shared.partitions.load(Relaxed)),
        }
    }

    /// Charges messages and bytes together, or neither. Nothing more always fits, also above a bound that shrank.
    pub(crate) fn charge(&mut self, count: u64, size: u64, max_messages: u64, max_bytes: u64) -> bool {
        match self {
            Self::Plain { messages, bytes, .. } => {
                let fits = (count == 0 || u64::from(*messages) + count <= max_messages) && (size == 0 || *bytes + size <= max_bytes);
                if fits {
                    *messages += count as u32;
                    *bytes += size;
                }
                fits
            }
            Self::Shared(shared) => {
                if count > 0 && !charge_up_to(&shared.messages, count, max_messages) {
                    return false;
                }
                let fits = size == 0 || charge_up_to(&shared.bytes, size, max_bytes);
                if !fits {
                    shared.messages.fetch_sub(count, Relaxed);
                }
                fits
            }
        }
    }

    /// Gives `made` back and charges `wanted` in one, or neither: how a push takes over the room that was made for it.
    pub(crate) fn exchange(&mut self, made: (u64, u64), wanted: (u64, u64), max: (u64, u64)) -> bool {
        let more = (wanted.0.saturating_sub(made.0), wanted.1.saturating_sub(made.1));
        let less = (made.0.saturating_sub(wanted.0), made.1.saturating_sub(wanted.1));
        let fits = self.charge(more.0, more.1, max.0, max.1);
        if fits {
            self.release(less.0, less.1);
        }
        fits
    }

    /// Charges past the bounds: for what was admitted before.
    pub(crate) fn charge_unbounded(&mut self, count: u64, size: u64) {
        self.charge(count, size, u64::MAX, u64::MAX);
    }

    /// Gives back.
    pub(crate) fn release(&mut self, count: u64, size: u64) {
        match self {
            Self::Plain { messages, bytes, .. } => {
                *messages -= count as u32;
                *bytes -= size;
            }
            Self::Shared(shared) => shared.release(count, size),
        }
    }

    /// One more partition, unless there are `max` already.
    pub(crate) fn open_partition(&mut self, max: u64) -> bool {
        match self {
            Self::Plain { partitions, .. } => {
                let fits = u64::from(*partitions) < max;
                *partitions += u32::from(fits);
                fits
            }
            Self::Shared(shared) => charge_up_to(&shared.partitions, 1, max),
        }
    }

    /// One partition fewer.
    pub(crate) fn close_partition(&mut self) {
        match self {
            Self::Plain { partitions, .. } => *partitions -= 1,
            Self::Shared(shared) => {
                shared.partitions.fetch_sub(1, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_admits_its_equal_and_nothing_more() {
        let bound = Bound::new(10);
        assert!(bound.charge(4) && bound.charge(6));
        assert!(!bound.charge(1));
        bound.release(1);
        assert!(bound.charge(1) && !bound.charge(u64::MAX));
    }

    #[test]
    fn a_rate_admits_its_burst_then_its_pace() {
        let rate = Rate::new(100, 10);
        let start = Time(5_000_000_000);
        assert_eq!(rate.spend(start, 10), Ok(()));
        assert_eq!(rate.spend(start, 1), Err(Span(10_000_000)));
        assert_eq!(rate.spend(start + Span(10_000_000), 1), Ok(()));
        assert_eq!(rate.spend(start + Span(10_000_000), 1), Err(Span(10_000_000)));
    }

    #[test]
    fn a_push_above_the_burst_spends_the_whole_burst() {
        let rate = Rate::new(100, 10);
        let start = Time(5_000_000_000);
        assert_eq!(rate.spend(start, 1_000), Ok(()));
        assert_eq!(rate.spend(start, 10), Err(Span(100_000_000)));
    }

    #[test]
    fn shared_counters_take_over_what_was_counted() {
        let mut counters = QueueCounters::default();
        assert!(counters.charge(2, 20, 3, 30) && counters.open_partition(2));
        counters.share();
        assert_eq!(counters.totals(), (2, 20, 1));
        assert!(!counters.charge(2, 1, 3, 30) && !counters.charge(1, 11, 3, 30));
        assert_eq!(counters.totals(), (2, 20, 1), "a refused charge leaves nothing");
        assert!(counters.charge(1, 10, 3, 30));
        counters.release(3, 30);
        assert_eq!(counters.totals(), (0, 0, 1));
    }
}
