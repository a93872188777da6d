//! Waking: whatever makes a message available is offered to the pop of its group that is parked longest and could take it.
//!
//! Invariant: after a step no waiter is parked on something it could take, except behind an older one whose window holds it, behind
//! the home's bid that it was hinted to, or while a claim for its group is under way.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::deadlines::{DeadlineId, Owner};
use crate::letter::Letter;
use crate::link::Link;
use crate::outbox::Outbox;
use crate::pop::Reach;
use crate::queue::{GroupIndex, QueueIndex, RingIndex};
use crate::shard::Shard;
use crate::time::{Span, Time};
use crate::waiters::{Waiter, WaiterIndex, WaiterState};

/// Who is first for what is in a ring.
enum First {
    Nobody,
    /// A pop parked here.
    Waiter(WaiterIndex),
    /// The home's oldest.
    Bid,
}

impl Waiter {
    /// From where it takes.
    pub(crate) fn reach(&self) -> Reach {
        Reach { group: self.group, ring: self.ring, age: self.age(), batch: u64::from(self.batch), auto_ack: self.auto_ack }
    }
}

impl Shard {
    /// A ring got messages: every group with a waiter hears of it.
    pub(crate) fn wake_ring(&mut self, now: Time, index: QueueIndex, ring: RingIndex, out: &mut impl Outbox) {
        let waiting = self.queues.get(index).groups.waiting();
        match *waiting {
            [] => {}
            [group] => self.wake_group_in_ring(now, index, group, ring, out),
            _ => {
                for group in SmallVec::<[GroupIndex; 4]>::from_slice(waiting) {
                    self.wake_group_in_ring(now, index, group, ring, out);
                }
            }
        }
    }

    /// Offers what a ring has for a group to those that wait for it, oldest first.
    pub(crate) fn wake_group_in_ring(&mut self, now: Time, index: QueueIndex, group: GroupIndex, ring: RingIndex, out: &mut impl Outbox) {
        if self.serve_ring(now, index, group, ring, out) && self.queues.get(index).options.is_windowed() {
            self.wake_group(now, index, group, out);
        }
        self.publish_bid(index, group, out);
    }

    /// Offers what any partition has for a group to those that wait for any.
    pub(crate) fn wake_any(&mut self, now: Time, index: QueueIndex, group: GroupIndex, out: &mut impl Outbox) {
        if self.queues.get(index).options.is_windowed() {
            return self.wake_group(now, index, group, out);
        }
        while let Some(waiter) = self.queues.get(index).groups.get(group).any.oldest() {
            if self.ready_for(waiter) == 0 || !self.serve(now, waiter, out) {
                break;
            }
        }
        self.publish_bid(index, group, out);
    }

    /// Offers everything a queue has for a group to those that wait for it, oldest first.
    pub(crate) fn wake_group(&mut self, now: Time, index: QueueIndex, group: GroupIndex, out: &mut impl Outbox) {
        let queue = self.queues.get(index);
        let has_hints = queue.link.directory().is_some_and(|directory| directory.ready_of(group) > 0);
        if queue.pending(group) == 0 && !has_hints {
            return self.publish_bid(index, group, out);
        }
        let mut waiters: Vec<_> = self.waiters.iter_indexes(queue.groups.get(group).any).collect();
        for (_, ring) in queue.rings.iter() {
            if let Some(cursor) = ring.cursor(group) {
                waiters.extend(self.waiters.iter_indexes(cursor.waiters));
            }
        }
        waiters.sort_unstable_by_key(|waiter| self.waiters.get(*waiter).age());
        for waiter in waiters {
            if self.is_first(waiter) && self.ready_for(waiter) > 0 {
                self.serve(now, waiter, out);
            }
        }
        // What is left is for the home's oldest, if anyone's.
        for ring in self.queues.get(index).rings.indexes() {
            self.serve_ring(now, index, group, ring, out);
        }
        self.publish_bid(index, group, out);
    }

    /// Whether a pop that waits for any partition was served.
    fn serve_ring(&mut self, now: Time, index: QueueIndex, group: GroupIndex, ring: RingIndex, out: &mut impl Outbox) -> bool {
        let mut is_any_served = false;
        while self.queues.get(index).rings.get(ring).pending(group) > 0 {
            let is_served = match self.first_for(index, group, ring) {
                First::Nobody => false,
                First::Waiter(waiter) => {
                    let is_any = self.waiters.get(waiter).ring.is_none();
                    let is_served = self.serve(now, waiter, out);
                    is_any_served |= is_any && is_served;
                    is_served
                }
                First::Bid => {
                    self.hint(index, group, out);
                    false
                }
            };
            if !is_served {
                break;
            }
        }
        is_any_served
    }

    /// Offers everything a queue has to everyone who waits: after its rules changed.
    pub(crate) fn wake_all(&mut self, now: Time, index: QueueIndex, out: &mut impl Outbox) {
        for group in self.queues.get(index).groups.waiting().to_vec() {
            self.wake_group(now, index, group, out);
        }
    }

    fn first_for(&self, index: QueueIndex, group: GroupIndex, ring: RingIndex) -> First {
        let queue = self.queues.get(index);
        let named = queue.rings.get(ring).cursor(group).and_then(|cursor| cursor.waiters.oldest());
        let group = queue.groups.get(group);
        let age = |waiter: Option<WaiterIndex>| waiter.map(|waiter| self.waiters.get(waiter).age());
        let any = group.any.oldest();
        let (waiter, parked) = match (age(named), age(any)) {
            (Some(named_age), Some(any_age)) if any_age < named_age => (any, Some(any_age)),
            (Some(named_age), _) => (named, Some(named_age)),
            (None, any_age) => (any, any_age),
        };
        match (waiter, group.bid().filter(|_| !queue.link.is_home())) {
            (None, None) => First::Nobody,
            (_, Some(bid)) if parked.is_none_or(|(parked_at, _)| bid < parked_at) => First::Bid,
            (None, Some(_)) => First::Bid,
            (Some(waiter), _) => First::Waiter(waiter),
        }
    }

    /// How many messages a waiter could take, here and as far as other cores said.
    fn ready_for(&self, waiter: WaiterIndex) -> u64 {
        let waiter = self.waiters.get(waiter);
        let queue = self.queues.get(waiter.queue);
        if let Some(ring) = waiter.ring {
            return queue.rings.get(ring).pending(waiter.group);
        }
        let remote = queue.link.directory().map_or(0, |directory| directory.ready_of(waiter.group));
        let held_by_older = if queue.options.is_windowed() {
            let held = |ring: &RingIndex| self.is_held_by_older(waiter.queue, *ring, waiter.reach());
            let rings = queue.rings.indexes();
            rings.iter().filter(|ring| held(ring)).map(|ring| queue.rings.get(*ring).pending(waiter.group)).sum()
        } else {
            0
        };
        queue.pending(waiter.group) - held_by_older + remote
    }

    /// Gives a waiter what it waits for, unless its window holds or a claim is under way. Whether it was answered.
    fn serve(&mut self, now: Time, waiter: WaiterIndex, out: &mut impl Outbox) -> bool {
        let ready = self.ready_for(waiter);
        let entry = self.waiters.get(waiter);
        if entry.state != WaiterState::Parked || ready == 0 || !self.is_enabled {
            return false;
        }
        if !self.is_window_over(now, waiter, ready) {
            return false;
        }
        let entry = self.waiters.get(waiter);
        let directory = self.queues.get(entry.queue).link.directory();
        if entry.ring.is_none() && directory.is_some_and(|directory| directory.ready_of(entry.group) > 0) {
            self.claim_for_waiter(now, waiter, out);
            return false;
        }
        let waiter = self.unpark(now, waiter);
        self.answer_pop(now, waiter.ticket, waiter.queue, waiter.reach(), out);
        true
    }

    /// Whether a waiter that could take `ready` messages should answer now; if not, its window is on and will fire.
    fn is_window_over(&mut self, now: Time, waiter: WaiterIndex, ready: u64) -> bool {
        let entry = self.waiters.get(waiter);
        let options = &self.queues.get(entry.queue).options;
        let window = options.window;
        let is_over = !options.is_windowed()
            || (window.count > 0 && ready >= u64::from(window.count))
            || ready >= u64::from(entry.batch)
            || now >= entry.window_until
            || now >= entry.until;
        if !is_over && window.ms > 0 && entry.window_until == Time::NEVER {
            let entry = self.waiters.get_mut(waiter);
            entry.window_until = now + Span::from_millis(u64::from(window.ms));
            let at = entry.window_until.min(entry.until);
            self.deadlines.arm(&mut entry.deadline, Owner::Waiter(waiter), at);
        }
        is_over
    }

    /// A waiter's timeout or window end.
    pub(crate) fn waiter_due(&mut self, now: Time, waiter: WaiterIndex, out: &mut impl Outbox) {
        let entry = self.waiters.get_mut(waiter);
        entry.deadline = DeadlineId::NONE;
        if entry.state != WaiterState::Parked {
            return; // Settled when the claim answers.
        }
        let (is_timeout, ticket, index) = (entry.until <= now, entry.ticket, entry.queue);
        let (group, ring) = (entry.group, entry.ring);
        let ready = if self.is_first(waiter) { self.ready_for(waiter) } else { 0 };
        if ready > 0 && self.serve(now, waiter, out) {
            return self.after_unpark(now, index, group, ring, out);
        }
        let entry = self.waiters.get_mut(waiter);
        if entry.state != WaiterState::Parked {
            return; // Other cores are asked; their answer ends it.
        }
        if is_timeout {
            self.unpark(now, waiter);
            self.answer_empty(now, ticket, index, ring, out);
            return self.after_unpark(now, index, group, ring, out);
        }
        // The window ended with nothing to show: what it saw was taken by another.
        entry.window_until = Time::NEVER;
        let until = entry.until;
        self.deadlines.arm(&mut entry.deadline, Owner::Waiter(waiter), until);
    }

    /// Whether nobody older waits for the same messages.
    fn is_first(&self, waiter: WaiterIndex) -> bool {
        let entry = self.waiters.get(waiter);
        let queue = self.queues.get(entry.queue);
        let any = queue.groups.get(entry.group).any.oldest();
        match entry.ring {
            None => any == Some(waiter),
            Some(ring) => matches!(self.first_for(entry.queue, entry.group, ring), First::Waiter(first) if first == waiter),
        }
    }

    /// Tells the home, which bids, how much there is for it.
    fn hint(&mut self, index: QueueIndex, group: GroupIndex, out: &mut impl Outbox) {
        let queue = self.queues.get_mut(index);
        let ready = if self.is_enabled { queue.pending(group) } else { 0 };
        let is_windowed = queue.options.is_windowed();
        let home = match &queue.link {
            Link::Member(membership) => membership.home,
            _ => return,
        };
        let entry = queue.groups.get_mut(group);
        if entry.bid().is_none() || ready == 0 || entry.hinted() == ready || (entry.hinted() > 0 && !is_windowed) {
            return;
        }
        entry.set_hinted(ready);
        let group = Arc::clone(&entry.name);
        out.send(home, Letter::Hint { queue: queue.full_name(), generation: queue.generation, group, ready });
    }

    /// Tells the members since when the home's oldest pop on any partition is parked, when that changed.
    pub(crate) fn publish_bid(&mut self, index: QueueIndex, group: GroupIndex, out: &mut impl Outbox) {
        let queue = self.queues.get_mut(index);
        let Some(directory) = queue.link.directory_mut() else { return };
        let entry = queue.groups.get_mut(group);
        // One that still asks the members has no use for their hints.
        let oldest = entry.any.oldest().map(|waiter| self.waiters.get(waiter)).filter(|waiter| waiter.is_charged);
        let oldest = oldest.map(|waiter| waiter.parked_at);
        if entry.bid() == oldest {
            return;
        }
        entry.set_bid(oldest);
        directory.ready.retain(|(of, _, _)| *of != group);
        let (members, group_name) = (directory.members.clone(), Arc::clone(&entry.name));
        let (name, answered_at) = (queue.full_name(), queue.answered_at);
        for member in members {
            let group = Arc::clone(&group_name);
            out.send(member, Letter::Bid { queue: name.clone(), generation: queue.generation, group, parked_at: oldest, answered_at });
        }
        queue.groups.note_waiting(group);
    }
}
