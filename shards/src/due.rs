//! What time does: lease ends, ttl, empty partitions and unused queues.
//!
//! A ring has one deadline, the earliest of all that may happen in it; it is armed when something earlier comes and looked at again
//! when it fires. Events of one ring happen in order of their time, ttl before a lease that ends at the same moment.

use std::sync::Arc;

use crate::command::DropCause;
use crate::cursor::DeliveryState;
use crate::deadlines::{DeadlineId, Kind, Owner};
use crate::ledger::Freed;
use crate::letter::Order;
use crate::limits::LISTENING_SPAN;
use crate::link::Link;
use crate::outbox::Outbox;
use crate::queue::{GroupIndex, Place, Queue, QueueIndex, RingIndex};
use crate::ring::Ring;
use crate::shard::Shard;
use crate::time::{Span, Time};

/// An empty partition of a live queue gives its memory back after this long, where implicit queues are never collected.
const RING_IDLE: Span = Span::from_secs(300);

fn ttl_at(ring: &Ring, queue_ttl_seconds: u64) -> Time {
    if queue_ttl_seconds == 0 {
        return Time::NEVER;
    }
    ring.oldest().map_or(Time::NEVER, |oldest| ring.slot(oldest).pushed_at + Span::from_secs(queue_ttl_seconds))
}

impl Queue {
    fn next_lease_end(&mut self, ring: RingIndex) -> (Time, Option<GroupIndex>) {
        let ends = self.rings.get_mut(ring).cursors.iter_mut().map(|cursor| (cursor.next_lease_end(), cursor.group));
        ends.min().map_or((Time::NEVER, None), |(at, group)| (at, Some(group)))
    }
}

impl Shard {
    /// Something may happen in a ring at `at`.
    pub(crate) fn arm_ring(&mut self, index: QueueIndex, ring: RingIndex, at: Time) {
        let deadline = &mut self.queues.get_mut(index).rings.get_mut(ring).deadline;
        self.deadlines.arm_no_later(deadline, Owner::Ring(index, ring), at);
    }

    pub(crate) fn arm_ring_ttl(&mut self, index: QueueIndex, ring: RingIndex) {
        let queue = self.queues.get(index);
        let at = ttl_at(queue.rings.get(ring), queue.options.ttl_seconds);
        if at != Time::NEVER {
            self.arm_ring(index, ring, at);
        }
    }

    /// A ring gave messages up: it or its queue may be empty now, and begin to idle.
    pub(crate) fn after_release(&mut self, now: Time, index: QueueIndex, ring: RingIndex, freed: Freed) {
        if freed.messages == 0 {
            return;
        }
        let queue = self.queues.get(index);
        let is_spare = queue.rings.count() > 1 && queue.rings.get(ring).held == 0;
        let is_empty = queue.held == 0;
        // Idleness begins with the last message.
        let queue = self.queues.get_mut(index);
        if queue.rings.get(ring).held == 0 {
            queue.rings.get_mut(ring).used_at = now;
        }
        if is_spare {
            self.arm_ring(index, ring, now + self.ring_idle());
        }
        if is_empty {
            self.queues.get_mut(index).used_at = now;
            self.arm_queue(now, index);
        }
    }

    fn ring_idle(&self) -> Span {
        let idle = if self.config.implicit_idle == Span(0) { RING_IDLE } else { self.config.implicit_idle };
        // It is known for so long that a pop of it was answered.
        idle.max(LISTENING_SPAN)
    }

    /// When an unused queue is looked at next. Only a home collects.
    pub(crate) fn arm_queue(&mut self, now: Time, index: QueueIndex) {
        let queue = self.queues.get(index);
        let span = if queue.held == 0 { self.config.implicit_idle } else { self.config.abandoned };
        if queue.is_declared
            || !queue.exists
            || !queue.link.is_home()
            || span == Span(0)
            || queue.groups.waiting().iter().any(|group| queue.groups.get(*group).waiting > 0)
        {
            return;
        }
        let at = (queue.used_at + span).max(now);
        let queue = self.queues.get_mut(index);
        self.deadlines.arm_no_later(&mut queue.deadline, Owner::Queue(index), at);
    }

    /// Carries out what is due in a ring. Whether a message is there again.
    pub(crate) fn ring_due(&mut self, now: Time, index: QueueIndex, ring: RingIndex) -> bool {
        self.queues.get_mut(index).rings.get_mut(ring).deadline = DeadlineId::NONE;
        let mut freed = Freed::default();
        let mut is_ready = false;
        let next = loop {
            let queue = self.queues.get_mut(index);
            let ttl_at = ttl_at(queue.rings.get(ring), queue.options.ttl_seconds);
            let (lease_end, group) = queue.next_lease_end(ring);
            if ttl_at.min(lease_end) > now {
                break ttl_at.min(lease_end);
            }
            if ttl_at <= lease_end {
                let Some(oldest) = queue.rings.get(ring).oldest() else { unreachable!("a ttl is a message's") };
                queue.evict(ring, oldest, DropCause::Ttl, now, &mut self.ledger, &mut freed);
            } else if let Some(group) = group {
                is_ready |= self.end_lease(index, ring, group, now, &mut freed);
            }
        };
        self.queues.get_mut(index).release(freed, &self.ledger);
        if next != Time::NEVER {
            self.arm_ring(index, ring, next);
        }
        self.after_release(now, index, ring, freed);
        self.end_requests(now, index, ring);
        self.drop_idle_ring(now, index, ring);
        is_ready
    }

    /// One lease ran out. Whether its message is there again.
    fn end_lease(&mut self, index: QueueIndex, ring: RingIndex, group: GroupIndex, now: Time, freed: &mut Freed) -> bool {
        let queue = self.queues.get_mut(index);
        let Some(ended) = queue.rings.get_mut(ring).cursor_mut(group).pop_lease_end(now) else { return false };
        !queue.take_back(Place { ring, seq: ended.seq, group }, DeliveryState::Expired, now, &mut self.ledger, freed)
    }

    /// An empty partition that nobody used for a while goes, unless it is the only one.
    fn drop_idle_ring(&mut self, now: Time, index: QueueIndex, ring: RingIndex) {
        let idle = self.ring_idle();
        let queue = self.queues.get_mut(index);
        let entry = queue.rings.get(ring);
        if entry.held > 0 || entry.has_waiters() || entry.packed().is_some() || queue.rings.count() == 1 {
            return;
        }
        let at = entry.used_at + idle;
        if at > now {
            return self.arm_ring(index, ring, at);
        }
        if let Some(mut entry) = queue.rings.remove(ring) {
            queue.counters.close_partition();
            self.deadlines.disarm(Kind::Ring, &mut entry.deadline);
        }
    }

    pub(crate) fn queue_due(&mut self, now: Time, index: QueueIndex, out: &mut impl Outbox) {
        let queue = self.queues.get_mut(index);
        queue.deadline = DeadlineId::NONE;
        let is_holding = queue.held > 0;
        let span = if is_holding { self.config.abandoned } else { self.config.implicit_idle };
        if queue.is_declared || !queue.exists || span == Span(0) || queue.waiting_count() > 0 {
            return;
        }
        if queue.packed_count() > 0 {
            // What is on its way is still the queue's.
            self.deadlines.arm(&mut queue.deadline, Owner::Queue(index), now + Span::from_secs(1));
            return;
        }
        if !self.is_enabled && queue.used_at + span <= now {
            // Nobody can use a queue while the family is switched off: what it holds stays.
            queue.used_at = now;
        }
        if queue.used_at + span > now {
            return self.arm_queue(now, index);
        }
        match &queue.link {
            Link::Alone => self.collect(now, index, out),
            Link::Home(directory) if directory.busy_count == 0 => self.freeze_to_collect(now, index, out),
            Link::Home(_) | Link::Member(_) => {
                let queue = self.queues.get_mut(index);
                self.deadlines.arm(&mut queue.deadline, Owner::Queue(index), now + Span::from_secs(1));
            }
        }
    }

    /// Forgets a queue that nobody used, with all it knew.
    pub(crate) fn collect(&mut self, now: Time, index: QueueIndex, out: &mut impl Outbox) {
        self.wipe(now, index, DropCause::Abandoned);
        self.forget_queue(index);
        self.reap(index, out);
    }

    /// Drops everything a queue part holds, counted under `cause`: messages dropped.
    pub(crate) fn wipe(&mut self, now: Time, index: QueueIndex, cause: DropCause) -> u64 {
        self.void_copies_of(index, cause);
        let queue = self.queues.get_mut(index);
        let mut freed = Freed::default();
        let mut dropped = 0;
        let packed = queue.thaw_all();
        for ring in queue.rings.indexes() {
            dropped += queue.clear_ring(ring, &mut freed);
            let entry = queue.rings.get_mut(ring);
            self.deadlines.disarm(Kind::Ring, &mut entry.deadline);
        }
        queue.move_groups_to_end(now);
        queue.heads = None;
        if let Some(directory) = queue.link.directory_mut() {
            directory.ready.clear();
        }
        queue.release(freed, &self.ledger);
        queue.freeze_all(&packed);
        self.ledger.dropped[cause as usize] += dropped;
        dropped
    }

    /// An emptied queue part stops existing: options, groups and partitions go, except those that parked pops keep.
    pub(crate) fn forget_queue(&mut self, index: QueueIndex) {
        let default_options = Arc::clone(&self.default_options);
        let queue = self.queues.get_mut(index);
        if queue.exists && queue.link.is_home() {
            self.ledger.release_queue(&queue.budget);
        }
        let queue = self.queues.get_mut(index);
        queue.exists = false;
        queue.is_declared = false;
        queue.options = default_options;
        queue.aside = None;
        queue.answered_at = Time(0);
        self.deadlines.disarm(Kind::Queue, &mut queue.deadline);
        for ring in queue.rings.indexes() {
            // One that stays is counted anew when the queue is used again.
            queue.counters.close_partition();
            queue.rings.get_mut(ring).answered_at = Time(0);
            if !queue.rings.get(ring).has_waiters() {
                let is_packed = queue.rings.remove(ring).is_some_and(|ring| ring.packed().is_some());
                self.handover.packed_count -= usize::from(is_packed);
            }
        }
        let gone: Vec<_> = queue.groups.iter().filter(|(_, group)| group.waiting == 0).map(|(index, _)| index).collect();
        for group in gone {
            queue.groups.remove(group);
            for (_, ring) in queue.rings.iter_mut() {
                ring.cursors.retain(|cursor| cursor.group != group);
            }
        }
        for (_, group) in queue.groups.iter_mut() {
            group.begin_anew();
        }
    }

    /// All members stop and say how idle they are.
    fn freeze_to_collect(&mut self, now: Time, index: QueueIndex, out: &mut impl Outbox) {
        self.begin_op(now, index, crate::home::OpKind::Collect { parts: Vec::new() }, Order::Freeze, out);
    }
}
