//! One group's position in one ring, and its deliveries that are not settled.
//!
//! Invariants: `next` never goes back; a message below `next` without an entry, or with a `Settled` one, is settled for the group;
//! entries are in order of seq, the first is not settled, and settled ones are never many more than the others, so that one message kept
//! on lease does not make the entries of all behind it pile up; `ready` holds exactly the seqs of entries awaiting redelivery;
//! `leased` counts entries on lease; every lease has its end in `ends` (which may hold ends of leases that are over).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use crate::queue::GroupIndex;
use crate::time::Time;
use crate::waiters::WaiterList;

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    /// Leased to a consumer until `lease_end`.
    Leased,
    /// Its lease ran out: waits for redelivery, and a late ack of it still counts.
    Expired,
    /// Nacked, or taken back from a broken answer: waits for redelivery.
    Returned,
    /// Done for this group.
    Settled,
}

impl DeliveryState {
    fn awaits_redelivery(self) -> bool {
        matches!(self, Self::Expired | Self::Returned)
    }
}

/// A message that was delivered to the group and is not behind it yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) seq: u64,
    pub(crate) lease_end: Time,
    /// How often it was delivered.
    pub(crate) delivery: u32,
    /// Attempts charged so far.
    pub(crate) attempts: u32,
    pub(crate) state: DeliveryState,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) group: GroupIndex,
    /// Every message below is delivered; the first held one at or above is next.
    pub(crate) next: u64,
    /// A private group's: every message below was passed unread.
    pub(crate) began_at: u64,
    /// Of the ring's `appended`, those not pending by position any more.
    pub(crate) seen: u64,
    pub(crate) leased: u32,
    /// Pops of this group parked on this partition by name.
    pub(crate) waiters: WaiterList,
    outstanding: Option<Box<Outstanding>>,
}

#[derive(Debug, Default)]
struct Outstanding {
    deliveries: VecDeque<Delivered>,
    /// Entries that are settled.
    settled_count: usize,
    ready: BTreeSet<u64>,
    ends: BinaryHeap<Reverse<(Time, u64)>>,
}

/// Ends of leases that are over, and entries that are settled, are swept once they outnumber the others by this.
const STALE_SPARE: usize = 32;

impl Cursor {
    /// At the beginning of a ring of which `seen` messages are gone.
    pub(crate) fn new(group: GroupIndex, seen: u64) -> Self {
        Self { group, next: 0, began_at: 0, seen, leased: 0, waiters: WaiterList::default(), outstanding: None }
    }

    /// Messages awaiting redelivery.
    pub(crate) fn ready_count(&self) -> usize {
        self.outstanding.as_ref().map_or(0, |outstanding| outstanding.ready.len())
    }

    /// The first message awaiting redelivery.
    pub(crate) fn first_ready(&self) -> Option<u64> {
        self.outstanding.as_ref()?.ready.first().copied()
    }

    /// The delivery of `seq` that is not settled.
    pub(crate) fn unsettled(&self, seq: u64) -> Option<&Delivered> {
        let deliveries = &self.outstanding.as_ref()?.deliveries;
        let index = find(deliveries, seq).ok()?;
        Some(&deliveries[index]).filter(|delivered| delivered.state != DeliveryState::Settled)
    }

    /// Whether the group is done with `seq`.
    pub(crate) fn is_settled(&self, seq: u64) -> bool {
        seq < self.next && self.unsettled(seq).is_none()
    }

    /// Unsettled deliveries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Delivered> {
        self.outstanding
            .iter()
            .flat_map(|outstanding| outstanding.deliveries.iter())
            .filter(|delivered| delivered.state != DeliveryState::Settled)
    }

    /// Unsettled deliveries of the seqs from `first` to `last`, in order.
    pub(crate) fn unsettled_within(&self, first: u64, last: u64) -> impl Iterator<Item = &Delivered> {
        let deliveries = self.outstanding.iter().flat_map(move |outstanding| {
            let from = outstanding.deliveries.partition_point(|delivered| delivered.seq < first);
            outstanding.deliveries.range(from..)
        });
        let is_within = move |delivered: &&Delivered| delivered.seq <= last;
        deliveries.take_while(is_within).filter(|delivered| delivered.state != DeliveryState::Settled)
    }

    /// The next delivery of `seq` as (delivery, attempts): what a message carries that is given now.
    pub(crate) fn upcoming(&self, seq: u64) -> (u32, u32) {
        self.unsettled(seq).map_or((1, 1), |delivered| (delivered.delivery + 1, delivered.attempts + 1))
    }

    /// Leases `seq` until `lease_end`.
    pub(crate) fn lease(&mut self, seq: u64, delivery: u32, attempts: u32, lease_end: Time) {
        let outstanding = self.outstanding.get_or_insert_default();
        outstanding.put(Delivered { seq, lease_end, delivery, attempts, state: DeliveryState::Leased });
        outstanding.ends.push(Reverse((lease_end, seq)));
        self.leased += 1;
        let live = self.leased as usize;
        outstanding.sweep_ends(live);
    }

    /// `seq` waits for redelivery with so many deliveries and attempts behind it.
    pub(crate) fn make_ready(&mut self, seq: u64, delivery: u32, attempts: u32, state: DeliveryState) {
        debug_assert!(state.awaits_redelivery());
        let outstanding = self.outstanding.get_or_insert_default();
        let before = outstanding.put(Delivered { seq, lease_end: Time::NEVER, delivery, attempts, state });
        if before == Some(DeliveryState::Leased) {
            self.leased -= 1;
        }
        outstanding.ready.insert(seq);
    }

    /// The group is done with `seq`, a message below `next`.
    pub(crate) fn settle(&mut self, seq: u64) {
        let Some(outstanding) = &mut self.outstanding else { return };
        let Ok(index) = find(&outstanding.deliveries, seq) else { return };
        match outstanding.deliveries[index].state {
            DeliveryState::Leased => self.leased -= 1,
            DeliveryState::Expired | DeliveryState::Returned => {
                outstanding.ready.remove(&seq);
            }
            DeliveryState::Settled => return,
        }
        outstanding.deliveries[index].state = DeliveryState::Settled;
        outstanding.settled_count += 1;
        outstanding.trim();
    }

    /// Takes the next lease that ran out.
    pub(crate) fn pop_lease_end(&mut self, now: Time) -> Option<Delivered> {
        let outstanding = self.outstanding.as_mut()?;
        while let Some(Reverse((at, seq))) = outstanding.ends.peek().copied() {
            if at > now {
                return None;
            }
            outstanding.ends.pop();
            if let Some(delivered) = outstanding.lease_ending(at, seq) {
                return Some(*delivered);
            }
        }
        None
    }

    /// When the next lease ends.
    pub(crate) fn next_lease_end(&mut self) -> Time {
        let Some(outstanding) = self.outstanding.as_mut() else { return Time::NEVER };
        while let Some(Reverse((at, seq))) = outstanding.ends.peek().copied() {
            if outstanding.lease_ending(at, seq).is_some() {
                return at;
            }
            outstanding.ends.pop();
        }
        Time::NEVER
    }

    /// Gives memory back that an idle cursor does not need.
    pub(crate) fn release_memory(&mut self) {
        if self.outstanding.as_ref().is_some_and(|outstanding| outstanding.deliveries.is_empty()) {
            self.outstanding = None;
        }
    }

    /// Forgets every delivery and stands behind everything below `next`.
    pub(crate) fn move_to(&mut self, next: u64, seen: u64) {
        self.next = self.next.max(next);
        self.seen = seen;
        self.leased = 0;
        self.outstanding = None;
    }
}

fn find(deliveries: &VecDeque<Delivered>, seq: u64) -> Result<usize, usize> {
    // Acks mostly come in order: the first entry is the likely one.
    match deliveries.front() {
        Some(first) if first.seq == seq => Ok(0),
        _ => deliveries.binary_search_by_key(&seq, |delivered| delivered.seq),
    }
}

impl Outstanding {
    /// Writes an entry; the state it had before.
    fn put(&mut self, delivered: Delivered) -> Option<DeliveryState> {
        let seq = delivered.seq;
        if self.deliveries.back().is_none_or(|last| last.seq < seq) {
            self.deliveries.push_back(delivered);
            return None;
        }
        match find(&self.deliveries, seq) {
            Ok(index) => {
                let before = self.deliveries[index].state;
                self.settled_count -= usize::from(before == DeliveryState::Settled);
                self.ready.remove(&seq);
                self.deliveries[index] = delivered;
                Some(before)
            }
            Err(index) => {
                self.deliveries.insert(index, delivered);
                None
            }
        }
    }

    /// Drops settled entries in front, and all of them once they are most: each is moved at most twice in its life on average.
    fn trim(&mut self) {
        while self.deliveries.front().is_some_and(|first| first.state == DeliveryState::Settled) {
            self.deliveries.pop_front();
            self.settled_count -= 1;
        }
        if self.settled_count > self.deliveries.len() / 2 + STALE_SPARE {
            self.deliveries.retain(|delivered| delivered.state != DeliveryState::Settled);
            self.deliveries.shrink_to(2 * self.deliveries.len());
            self.settled_count = 0;
        }
    }

    fn lease_ending(&self, at: Time, seq: u64) -> Option<&Delivered> {
        let delivered = &self.deliveries[find(&self.deliveries, seq).ok()?];
        (delivered.state == DeliveryState::Leased && delivered.lease_end == at).then_some(delivered)
    }

    fn sweep_ends(&mut self, live: usize) {
        if self.ends.len() <= 2 * live + STALE_SPARE {
            return;
        }
        let mut ends = std::mem::take(&mut self.ends);
        ends.retain(|Reverse((at, seq))| self.lease_ending(*at, *seq).is_some());
        self.ends = ends;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leased(count: u64) -> Cursor {
        let mut cursor = Cursor::new(GroupIndex(0), 0);
        for seq in 0..count {
            cursor.next = seq + 1;
            cursor.lease(seq, 1, 1, Time(1_000));
        }
        cursor
    }

    #[test]
    fn one_lease_does_not_keep_the_entries_of_all_behind_it() {
        let mut cursor = leased(1);
        for seq in 1..100_000 {
            cursor.next = seq + 1;
            cursor.lease(seq, 1, 1, Time(1_000 + seq));
            cursor.settle(seq);
        }
        let outstanding = cursor.outstanding.as_ref().expect("one lease");
        assert!(outstanding.deliveries.capacity() < 500 && outstanding.ends.len() < 500, "{outstanding:?}");
        assert!(!cursor.is_settled(0) && (1..100_000).all(|seq| cursor.is_settled(seq)));
    }

    #[test]
    fn settling_in_any_order_leaves_exactly_the_others() {
        let mut cursor = leased(1_000);
        for step in 0..1_000_u64 {
            let seq = step * 7_919 % 1_000;
            if seq % 10 != 0 {
                cursor.settle(seq);
                cursor.settle(seq);
            }
        }
        assert!(cursor.iter().map(|delivered| delivered.seq).eq((0..1_000).step_by(10)));
        assert_eq!(cursor.leased, 100);
        for seq in (0..1_000).step_by(10) {
            cursor.make_ready(seq, 1, 1, DeliveryState::Returned);
            cursor.settle(seq);
        }
        assert!(cursor.iter().next().is_none() && cursor.leased == 0);
        assert_eq!(cursor.outstanding.as_ref().map(|outstanding| (outstanding.deliveries.len(), outstanding.settled_count)), Some((0, 0)));
    }
}
