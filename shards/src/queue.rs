//! One shard's part of a queue: its partitions here, its groups, its counters, and the moves a message can make. Policy (who may,
//! who waits, which core is asked) is elsewhere.
//!
//! Invariants: `held` and `bytes` are the sums over the rings; a group's `pending` is the sum over the rings; a message is held while
//! some known group has not settled it, and while there is no group.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::budget::QueueCounters;
use crate::command::DropCause;
use crate::cursor::DeliveryState;
use crate::deadlines::DeadlineId;
use crate::group::Group;
use crate::groups::Groups;
use crate::handover::Request;
use crate::ledger::{Freed, Ledger};
use crate::link::Link;
use crate::name::{QueueName, Tenant};
use crate::options::Options;
use crate::payload::Payload;
use crate::ring::{Pick, Ring};
use crate::rings::Rings;
use crate::tenant::TenantBudget;
use crate::time::Time;

/// A queue in its shard's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueIndex(pub(crate) u32);

/// A partition in its queue's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RingIndex(pub(crate) u32);

/// A group in its queue's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupIndex(pub(crate) u16);

/// Of each ring that holds something when its first message was pushed, that message's seq, and the ring; the oldest of all is at the top.
/// What came from another node has new seqs, but is as old as it is.
pub(crate) type Heads = BinaryHeap<Reverse<(Time, u64, RingIndex)>>;

/// A delivery: which message, and to which group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) ring: RingIndex,
    pub(crate) seq: u64,
    pub(crate) group: GroupIndex,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The tenant's.
    pub(crate) budget: Arc<TenantBudget>,
    pub(crate) name: Arc<str>,
    /// Grows with every reset and delete; of the home, which gives it to the other parts.
    pub(crate) generation: u64,
    pub(crate) options: Arc<Options>,
    pub(crate) groups: Groups,
    pub(crate) rings: Rings,
    pub(crate) counters: QueueCounters,
    /// Messages ever appended to this part.
    pub(crate) appended: u64,
    pub(crate) held: u64,
    pub(crate) bytes: u64,
    /// What few queues need: none while there is nothing to say.
    pub(crate) aside: Option<Box<Aside>>,
    pub(crate) used_at: Time,
    /// When a pop of any partition was last answered; 0: never.
    pub(crate) answered_at: Time,
    pub(crate) deadline: DeadlineId,
    pub(crate) link: Link,
    /// The oldest message of each ring, roughly; made when dropOldest first has to look beyond one ring.
    pub(crate) heads: Option<Box<Heads>>,
    pub(crate) is_declared: bool,
    /// False while only parked pops keep the entry, after a delete.
    pub(crate) exists: bool,
}

/// What few queues need of themselves, apart, so that an inbox stays small.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside {
    /// Dropped for bounds, ttl, retry.
    pub(crate) drops: [u64; 3],
    /// The entry of the log that declared it last.
    pub(crate) declared_at: u64,
}

/// What a pop takes, beside from where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking {
    pub(crate) group: GroupIndex,
    pub(crate) auto_ack: bool,
    pub(crate) lease_end: Time,
}

/// A message given to a group: what the answer and the receipt need.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) seq: u64,
    pub(crate) delivery: u32,
    pub(crate) attempts: u32,
    pub(crate) pushed_at: Time,
    pub(crate) payload: Payload,
    pub(crate) request: Option<Request>,
}

impl Queue {
    pub(crate) fn new(budget: Arc<TenantBudget>, name: Arc<str>, generation: u64, options: Arc<Options>, now: Time) -> Self {
        Self {
            budget,
            name,
            generation,
            options,
            groups: Groups::default(),
            rings: Rings::default(),
            counters: QueueCounters::default(),
            appended: 0,
            held: 0,
            bytes: 0,
            aside: None,
            used_at: now,
            answered_at: Time(0),
            deadline: DeadlineId::NONE,
            link: Link::Alone,
            heads: None,
            is_declared: false,
            exists: true,
        }
    }

    /// Whose.
    pub(crate) fn tenant(&self) -> Tenant {
        self.budget.tenant
    }

    /// What letters call it.
    pub(crate) fn full_name(&self) -> QueueName {
        QueueName { tenant: self.tenant(), name: Arc::clone(&self.name) }
    }

    /// Registers a group at the oldest message held, a private one behind everything: `end` is above every seq there is and not above
    /// any to come. The caller has checked that there is room for it.
    pub(crate) fn add_group(&mut self, name: Arc<str>, end: u64, now: Time) -> GroupIndex {
        let index = self.groups.add(Group::new(name, self.appended - self.held, now));
        if self.groups.get(index).is_private {
            let passed: u64 = self.rings.iter_mut().map(|(_, ring)| ring.pass_all(index, end)).sum();
            self.groups.get_mut(index).seen += passed;
        }
        index
    }

    /// What a group has not been given here, and what waits to be given again.
    pub(crate) fn pending(&self, group: GroupIndex) -> u64 {
        let group = self.groups.get(group);
        self.appended - group.seen + u64::from(group.ready)
    }

    /// Appends messages, already charged.
    pub(crate) fn append(
        &mut self,
        ring: RingIndex,
        now: Time,
        payloads: impl ExactSizeIterator<Item = Payload>,
        mut next_seq: impl FnMut() -> u64,
    ) {
        let count = payloads.len() as u64;
        let ring_mut = self.rings.get_mut(ring);
        let bytes_before = ring_mut.bytes;
        let was_empty = ring_mut.held == 0;
        ring_mut.reserve(count as usize);
        ring_mut.used_at = now;
        for payload in payloads {
            ring_mut.append(next_seq(), now, payload);
        }
        self.appended += count;
        self.held += count;
        self.bytes += ring_mut.bytes - bytes_before;
        for bystander in self.groups.bystanders(&ring_mut.partition) {
            let end = ring_mut.slots().next_back().map_or(0, |last| last.seq + 1);
            self.groups.get_mut(bystander).seen += ring_mut.pass_all(bystander, end);
        }
        if was_empty {
            self.note_head(ring);
        }
    }

    /// Gives the message at `pick` to a group.
    pub(crate) fn give(&mut self, ring: RingIndex, pick: Pick, taking: Taking, freed: &mut Freed) -> Given {
        let group_count = self.groups.count();
        let group = self.groups.get_mut(taking.group);
        let ring = self.rings.get_mut(ring);
        let cursor = ring.cursor_mut(taking.group);
        let (delivery, attempts) = if pick.is_redelivery { cursor.upcoming(pick.seq) } else { (1, 1) };
        if pick.is_redelivery {
            group.ready -= 1;
        } else {
            cursor.next = pick.seq + 1;
            cursor.seen += 1;
            group.seen += 1;
        }
        if !taking.auto_ack {
            cursor.lease(pick.seq, delivery, attempts, taking.lease_end);
            group.leased += 1;
        }
        let slot = ring.slot(pick.index);
        let (pushed_at, request) = (slot.pushed_at, ring.request(pick.seq));
        let slot = ring.slot(pick.index);
        let payload = match (taking.auto_ack, &slot.payload) {
            (false, Some(payload)) => Payload::clone(payload),
            (true, Some(payload)) => {
                let shared = (slot.settled_count + 1 < group_count).then(|| Payload::clone(payload));
                let settled = ring.settle(pick.index, taking.group, group_count);
                freed.add_payload(settled.as_ref());
                shared.or(settled).unwrap_or_else(|| Payload::from([]))
            }
            (_, None) => unreachable!("a pick is a held message"),
        };
        Given { seq: pick.seq, delivery, attempts, pushed_at, payload, request }
    }

    /// A group is done with a message that was leased to it or awaits redelivery.
    pub(crate) fn settle(&mut self, place: Place, now: Time, freed: &mut Freed) {
        let Place { ring, seq, group } = place;
        let group_count = self.groups.count();
        let ring = self.rings.get_mut(ring);
        self.groups.get_mut(group).forget_delivery(ring.cursor(group).and_then(|cursor| cursor.unsettled(seq)), now);
        if let Some(index) = ring.find_held(seq) {
            freed.add_payload(ring.settle(index, group, group_count).as_ref());
        }
    }

    /// A leased message comes back to its group: awaits redelivery, or is dropped when its attempts are used up. Whether it was dropped.
    pub(crate) fn take_back(&mut self, place: Place, state: DeliveryState, now: Time, ledger: &mut Ledger, freed: &mut Freed) -> bool {
        let Place { ring, seq, group } = place;
        let Some(delivered) = self.rings.get(ring).cursor(group).and_then(|cursor| cursor.unsettled(seq)).copied() else { return false };
        if delivered.attempts >= self.options.attempts_max() {
            self.settle(place, now, freed);
            self.count_drop(DropCause::Retry, ledger);
            return true;
        }
        self.give_back(place, (delivered.delivery, delivered.attempts), state, now);
        ledger.redelivered += 1;
        false
    }

    fn count_drop(&mut self, cause: DropCause, ledger: &mut Ledger) {
        if (cause as usize) < 3 {
            self.aside.get_or_insert_default().drops[cause as usize] += 1;
        }
        ledger.dropped[cause as usize] += 1;
    }

    /// `seq` awaits redelivery to its group, in its place, with so many deliveries and charged attempts `behind` it.
    pub(crate) fn give_back(&mut self, place: Place, behind: (u32, u32), state: DeliveryState, now: Time) {
        let Place { ring, seq, group } = place;
        let cursor = self.rings.get_mut(ring).cursor_mut(group);
        let group = self.groups.get_mut(group);
        group.forget_delivery(cursor.unsettled(seq), now);
        group.ready += 1;
        cursor.make_ready(seq, behind.0, behind.1, state);
    }

    /// Takes the oldest message of a ring out, leased or not, and tells every group.
    pub(crate) fn evict_first(&mut self, ring: RingIndex, cause: DropCause, now: Time, ledger: &mut Ledger, freed: &mut Freed) {
        if self.rings.get(ring).first().is_some() {
            self.evict(ring, 0, cause, now, ledger, freed);
        }
    }

    /// Takes the message held at `index` out, leased or not, and tells every group.
    pub(crate) fn evict(&mut self, ring: RingIndex, index: usize, cause: DropCause, now: Time, ledger: &mut Ledger, freed: &mut Freed) {
        let ring = self.rings.get_mut(ring);
        let seq = ring.slot(index).seq;
        let mut passed: SmallVec<[GroupIndex; 8]> = SmallVec::new();
        for cursor in &mut ring.cursors {
            passed.push(cursor.group);
            let group = self.groups.get_mut(cursor.group);
            if cursor.next > seq {
                group.forget_delivery(cursor.unsettled(seq), now);
                cursor.settle(seq);
            } else {
                if index == 0 {
                    cursor.next = seq + 1;
                }
                cursor.seen += 1;
                group.miss(cause);
            }
        }
        // A group without a cursor stands at the beginning: the message was ahead of it.
        for (other, group) in self.groups.iter_mut() {
            if !passed.contains(&other) {
                group.miss(cause);
            }
        }
        freed.add_payload(ring.free(index).as_ref());
        self.count_drop(cause, ledger);
    }

    /// Drops everything a ring holds: messages dropped.
    pub(crate) fn clear_ring(&mut self, ring: RingIndex, freed: &mut Freed) -> u64 {
        let ring = self.rings.get_mut(ring);
        let (messages, bytes) = ring.clear();
        freed.messages += messages;
        freed.bytes += bytes;
        messages
    }

    /// Every group has seen everything: after all rings were cleared.
    pub(crate) fn move_groups_to_end(&mut self, now: Time) {
        let appended = self.appended;
        for (_, group) in self.groups.iter_mut() {
            group.move_to_end(appended, now);
        }
    }

    /// Moves a group's cursor in a ring past `seq`; held messages that it passes so are its to be given, as if returned unread.
    pub(crate) fn pass_over(&mut self, ring: RingIndex, seq: u64, group: GroupIndex) {
        let ring = self.rings.get_mut(ring);
        let next = ring.cursor_mut(group).next;
        let passed: Vec<u64> =
            ring.slots().filter(|slot| slot.payload.is_some() && (next..=seq).contains(&slot.seq)).map(|slot| slot.seq).collect();
        let entry = self.groups.get_mut(group);
        let cursor = ring.cursor_mut(group);
        for passed in passed {
            cursor.seen += 1;
            entry.seen += 1;
            entry.ready += 1;
            cursor.make_ready(passed, 0, 0, DeliveryState::Returned);
        }
        cursor.next = cursor.next.max(seq + 1);
    }

    /// Books what a step freed.
    pub(crate) fn release(&mut self, freed: Freed, ledger: &Ledger) {
        if freed.messages == 0 {
            return;
        }
        self.held -= freed.messages;
        self.bytes -= freed.bytes;
        self.counters.release(freed.messages, freed.bytes);
        ledger.release_messages(&self.budget, freed);
    }

    /// Books what was evicted for a push: it stays charged to the counters until the push takes it over.
    pub(crate) fn book_evicted(&mut self, freed: Freed) {
        self.held -= freed.messages;
        self.bytes -= freed.bytes;
    }

    /// What dropOldest would evict for a push that lacks so much: exact, and linear in what is held.
    pub(crate) fn would_evict(&self, partition: &str, lacks: (u64, u64)) -> (u64, u64) {
        let mut all: Vec<(bool, u64, u64)> = self
            .rings
            .iter()
            .flat_map(|(_, ring)| {
                ring.slots().filter_map(|slot| Some((*ring.partition != *partition, slot.seq, slot.payload.as_ref()?.len() as u64)))
            })
            .collect();
        all.sort_unstable();
        let mut made = (0, 0);
        for (_, _, size) in all {
            if made.0 >= lacks.0 && made.1 >= lacks.1 {
                break;
            }
            made = (made.0 + 1, made.1 + size);
        }
        made
    }

    /// A ring holds something, or something older, from now on.
    pub(crate) fn note_head(&mut self, ring: RingIndex) {
        let Some(first) = self.rings.get(ring).first() else { return };
        if let Some(heads) = &mut self.heads {
            heads.push(Reverse((first.pushed_at, first.seq, ring)));
        }
        self.rings.note_holding(ring);
    }

    /// The ring with the oldest message here.
    pub(crate) fn oldest_head(&mut self) -> Option<RingIndex> {
        let rings = &self.rings;
        let head = |ring: &Ring| ring.first().map(|slot| (slot.pushed_at, slot.seq));
        let all = || rings.iter().filter_map(|(index, ring)| head(ring).map(|(at, seq)| Reverse((at, seq, index))));
        let heads = self.heads.get_or_insert_with(|| Box::new(all().collect()));
        loop {
            let Reverse((at, seq, ring)) = *heads.peek()?;
            let first = rings.find_at(ring).and_then(head);
            if first == Some((at, seq)) {
                return Some(ring);
            }
            heads.pop();
            heads.extend(first.map(|(at, seq)| Reverse((at, seq, ring))));
        }
    }

    /// Whether a pop of any partition is parked: here, or as far as this part was told at its home.
    pub(crate) fn is_awaited(&self) -> bool {
        self.groups.iter().any(|(_, group)| group.any.oldest().is_some() || group.bid().is_some())
    }

    /// Parked pops of every group, here.
    pub(crate) fn waiting_count(&self) -> u64 {
        self.groups.iter().map(|(_, group)| u64::from(group.waiting)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle inbox is one allocation, its name another: with the tables that find and collect it at most 600 bytes.
    #[test]
    fn an_inbox_is_small() {
        assert!(size_of::<Queue>() <= 448, "{}", size_of::<Queue>());
    }
}
