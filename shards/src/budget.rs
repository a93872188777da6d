//! Numbers with ceilings: what may be held or spent, and one queue's counters.
//!
//! Bounds and rates are shared by the shards of a node: charged by compare-and-swap, so a bound holds exactly under any number of
//! pushers, and taken back whole on refusal. Both may change while they are in use: what is held stays, and what no longer fits is
//! refused; a charge that began before the change may still count by the old number. A queue that lives on one core counts plainly;
//! when a second core opens a part of it the counters move into one shared cell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::time::{Span, Time};

/// A number with a ceiling.
#[derive(Debug)]
pub struct Bound {
    used: AtomicU64,
    max: AtomicU64,
}

impl Bound {
    /// Nothing used of `max`.
    #[must_use]
    pub const fn new(max: u64) -> Self {
        Self { used: AtomicU64::new(0), max: AtomicU64::new(max) }
    }

    /// Charges `amount` whole, or nothing. Equal to the bound is allowed; nothing more always fits, also above a bound that shrank.
    pub fn charge(&self, amount: u64) -> bool {
        amount == 0 || charge_up_to(&self.used, amount, self.max.load(Relaxed))
    }

    /// Whether more is charged than the ceiling allows: what was admitted before may come back.
    pub(crate) fn is_over(&self) -> bool {
        self.used.load(Relaxed) > self.max.load(Relaxed)
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

    /// From now on at most `max`; what is used beyond stays.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Relaxed);
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
    per_second: AtomicU64,
    burst: AtomicU64,
    /// When the bucket is full again (nanoseconds of `Time`).
    full_at: AtomicU64,
}

impl Rate {
    /// `per_second` messages, at most `burst` at once.
    #[must_use]
    pub const fn new(per_second: u64, burst: u64) -> Self {
        Self { per_second: AtomicU64::new(per_second), burst: AtomicU64::new(burst), full_at: AtomicU64::new(0) }
    }

    /// No limit.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self::new(0, 0)
    }

    /// Another rate, which begins with a full bucket; the same one goes on as it stands.
    pub fn set(&self, per_second: u64, burst: u64) {
        let (pace_before, burst_before) = (self.per_second.swap(per_second, Relaxed), self.burst.swap(burst, Relaxed));
        if (pace_before, burst_before) != (per_second, burst) {
            self.full_at.store(0, Relaxed);
        }
    }

    /// Spends `messages`; more than the burst spends the whole burst.
    ///
    /// # Errors
    /// The span after which it fits; nothing is spent.
    pub fn spend(&self, now: Time, messages: u64) -> Result<(), Span> {
        let (per_second, burst) = (self.per_second.load(Relaxed), self.burst.load(Relaxed).max(1));
        if per_second == 0 {
            return Ok(());
        }
        let cost = span_of(messages.min(burst), per_second);
        let window = span_of(burst, per_second);
        let emptied_until = now.0.saturating_add(window);
        let mut wait = Span(0);
        let spent = self.full_at.fetch_update(Relaxed, Relaxed, |full_at| {
            // Never emptier than empty: a spend that met the change of a rate halfway may have gone by its old burst.
            let after = full_at.clamp(now.0, emptied_until).saturating_add(cost);
            wait = Span(after.saturating_sub(emptied_until));
            (wait.0 == 0).then_some(after)
        });
        spent.map(|_| ()).map_err(|_| wait)
    }

    /// Whether nothing that was spent counts any more.
    pub(crate) fn is_full(&self, now: Time) -> bool {
        self.full_at.load(Relaxed) <= now.0
    }
}

fn span_of(messages: u64, per_second: u64) -> u64 {
    (u128::from(messages) * 1_000_000_000 / u128::from(per_second)).min(u128::from(u64::MAX)) as u64
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
    fn a_bound_that_shrinks_keeps_what_is_held_and_refuses_more() {
        let bound = Bound::new(10);
        assert!(bound.charge(8));
        bound.set_max(5);
        assert!(!bound.charge(1) && bound.charge(0), "nothing more always fits");
        bound.release(3);
        assert!(!bound.charge(1), "equal is full");
        bound.set_max(6);
        assert!(bound.charge(1));
        assert_eq!(bound.used(), 6);
    }

    #[test]
    fn another_rate_begins_full_and_the_same_goes_on() {
        let rate = Rate::new(1, 2);
        let start = Time(5_000_000_000);
        assert_eq!(rate.spend(start, 2), Ok(()));
        rate.set(1, 2);
        assert_eq!(rate.spend(start, 1), Err(Span(1_000_000_000)));
        assert!(!rate.is_full(start));
        rate.set(10, 4);
        assert_eq!(rate.spend(start, 4), Ok(()));
        assert_eq!(rate.spend(start, 1), Err(Span(100_000_000)));
        rate.set(0, 0);
        assert_eq!(rate.spend(start, 1_000_000), Ok(()));
        assert!(rate.is_full(start));
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
