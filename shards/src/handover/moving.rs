//! Pops that were parked where a partition was: they are answered `Moved`, to be parked where it is.

use super::moved;
use crate::command::{OwnedCommand, OwnedRequest};
use crate::letter::Letter;
use crate::link::Link;
use crate::name::QueueName;
use crate::outbox::{Answer, Outbox, Ticket};
use crate::queue::{QueueIndex, RingIndex};
use crate::shard::Shard;
use crate::time::Time;
use crate::waiters::{Waiter, WaiterIndex, WaiterState};

impl Shard {
    /// Answers the pops parked on a partition by name, the oldest first.
    pub(super) fn move_named_waiters(&mut self, now: Time, index: QueueIndex, ring: RingIndex, out: &mut impl Outbox) {
        let cursors = &self.queues.get(index).rings.get(ring).cursors;
        let parked: Vec<_> = cursors.iter().flat_map(|cursor| self.waiters.iter_indexes(cursor.waiters)).collect();
        self.move_waiters(now, parked, out);
    }

    /// Tells the queue's home that a partition was packed.
    pub(super) fn tell_packed(&mut self, now: Time, index: QueueIndex, out: &mut impl Outbox) {
        let queue = self.queues.get(index);
        let name = queue.full_name();
        match &queue.link {
            Link::Member(membership) => out.send(membership.home, Letter::PartitionPacked { queue: name }),
            _ => self.move_any_waiters(now, &name, out),
        }
    }

    /// Answers the pops parked on any partition, the oldest first. One that asks other cores at this moment is answered when they have
    /// said that they have nothing.
    pub(crate) fn move_any_waiters(&mut self, now: Time, name: &QueueName, out: &mut impl Outbox) {
        let Some(index) = self.queues.find(name.tenant, &name.name) else { return };
        let groups: Vec<_> = self.queues.get(index).groups.iter().map(|(group, entry)| (group, entry.any)).collect();
        let waiting: Vec<_> = groups.iter().flat_map(|(_, any)| self.waiters.iter_indexes(*any)).collect();
        let (parked, claiming): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|waiter| self.waiters.get(*waiter).state == WaiterState::Parked);
        for waiter in claiming {
            let entry = self.waiters.get_mut(waiter);
            if entry.state == WaiterState::Claiming {
                entry.state = WaiterState::Leaving;
            }
        }
        self.move_waiters(now, parked, out);
        // What their windows held is for those on partitions by name.
        for (group, _) in groups {
            self.wake_group(now, index, group, out);
        }
        self.reap(index, out);
    }

    fn move_waiters(&mut self, now: Time, mut parked: Vec<WaiterIndex>, out: &mut impl Outbox) {
        parked.sort_unstable_by_key(|waiter| self.waiters.get(*waiter).age());
        for waiter in parked {
            self.move_waiter(now, waiter, out);
        }
    }

    /// Answers one pop.
    pub(crate) fn move_waiter(&mut self, now: Time, waiter: WaiterIndex, out: &mut impl Outbox) {
        let waiter = self.unpark(now, waiter);
        let (ticket, answer) = self.hand_back(&waiter);
        out.answer(ticket, answer);
    }

    fn hand_back(&self, waiter: &Waiter) -> (Ticket, Answer) {
        let queue = self.queues.get(waiter.queue);
        let request = OwnedRequest::Pop {
            partition: waiter.ring.map(|ring| queue.rings.get(ring).partition.clone()),
            group: queue.groups.get(waiter.group).name.clone(),
            batch: waiter.batch,
            wait_until: Some(waiter.until),
            auto_ack: waiter.auto_ack,
        };
        let command = OwnedCommand { tenant: queue.tenant(), queue: queue.name.clone(), request };
        (waiter.ticket, moved(command, Some(waiter.parked_at)))
    }
}
