//! Pop: take what is there, or wait for it.
//!
//! Invariants: a pop is answered, parked, deferred or refused, exactly one of them; a pop that is refused made nothing; a pop that
//! waits never overtakes an older one that could take the same message.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::command::{Command, Refusal};
use crate::deadlines::{Kind, Owner};
use crate::ledger::Freed;
use crate::letter::{Deferred, Wanted};
use crate::limits::{ANSWER_PAYLOAD_BYTES_MAX, GROUPS_MAX, PARTITIONS_MAX};
use crate::link::Link;
use crate::name::{PrivateGroup, QueueName, Tenant};
use crate::outbox::{Delivery, Outbox, Receipt, ReceiptMessage, ReceiptRun, Ticket};
use crate::queue::{GroupIndex, QueueIndex, RingIndex, Taking};
use crate::shard::Shard;
use crate::time::Time;
use crate::waiters::{Waiter, WaiterIndex, WaiterState};

/// One pop, parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PopRequest<'a> {
    pub(crate) ticket: Ticket,
    pub(crate) tenant: Tenant,
    pub(crate) queue: &'a str,
    pub(crate) partition: Option<&'a str>,
    pub(crate) group: &'a str,
    pub(crate) batch: u32,
    pub(crate) wait_until: Option<Time>,
    pub(crate) auto_ack: bool,
    /// It waited elsewhere before, since then.
    pub(crate) since: Option<Time>,
}

impl<'a> PopRequest<'a> {
    /// The command it came from.
    pub(crate) fn into_command(self) -> Command<'a> {
        let Self { tenant, queue, partition, group, batch, wait_until, auto_ack, .. } = self;
        Command::Pop { tenant, queue, partition, group, batch, wait_until, auto_ack }
    }
}

/// Since when a pop waits, and its number among those.
pub(crate) type Age = (Time, u64);

/// A pop that does not wait stands behind nobody.
pub(crate) const AGELESS: Age = (Time(0), 0);

/// From where a pop takes, for whom, and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    pub(crate) group: GroupIndex,
    pub(crate) ring: Option<RingIndex>,
    /// A pop parked on a partition by name goes first there if it is older than this.
    pub(crate) age: Age,
    pub(crate) batch: u64,
    pub(crate) auto_ack: bool,
}

impl Shard {
    pub(crate) fn pop(&mut self, now: Time, ticket: Ticket, command: Command<'_>, since: Option<Time>, out: &mut impl Outbox) {
        let Command::Pop { tenant, queue, partition, group, batch, wait_until, auto_ack } = command else { unreachable!("a pop") };
        let request = PopRequest { ticket, tenant, queue, partition, group, batch, wait_until, auto_ack, since };
        let found = self.queues.find(tenant, queue);
        match found {
            Some(index) if self.queues.get(index).link.holds_back() => self.defer(index, ticket, command.into_owned(), since),
            Some(index) if self.queues.get(index).exists => match self.pop_from(now, index, request, out) {
                Ok(()) => {}
                Err(refusal) => self.refuse(ticket, refusal, out),
            },
            _ if self.is_home_of(tenant, queue) => match self.pop_new(now, request, out) {
                Ok(()) => {}
                Err(refusal) => self.refuse(ticket, refusal, out),
            },
            _ => {
                let command = command.into_owned();
                let name = QueueName { tenant, name: Arc::clone(&command.queue) };
                let parks = wait_until.is_some_and(|until| until > now);
                self.join(now, &name, Deferred::Command(ticket, command), since, Wanted { parks, ..Wanted::default() }, out);
            }
        }
    }

    /// A pop makes its queue. One that would then be refused a place to wait makes nothing.
    fn pop_new(&mut self, now: Time, request: PopRequest<'_>, out: &mut impl Outbox) -> Result<(), Refusal> {
        if request.wait_until.is_some_and(|until| until > now) {
            self.could_fit_new(request.tenant, Wanted { parks: true, ..Wanted::default() })?;
        }
        let index = self.create_queue(request.tenant, request.queue, now)?;
        self.pop_from(now, index, request, out)
    }

    /// A pop of a queue that exists here.
    fn pop_from(&mut self, now: Time, index: QueueIndex, request: PopRequest<'_>, out: &mut impl Outbox) -> Result<(), Refusal> {
        let queue = self.queues.get(index);
        let group = queue.groups.find(request.group);
        if group.is_none() && queue.groups.count() as usize >= GROUPS_MAX {
            return Err(Refusal::TooManyGroups);
        }
        let (_, _, partitions) = queue.counters.totals();
        let is_new_ring = request.partition.is_some_and(|partition| queue.rings.find(partition).is_none());
        if is_new_ring && partitions >= PARTITIONS_MAX as u64 {
            return Err(Refusal::TooManyPartitions);
        }
        let must_wait = request.wait_until.is_some_and(|until| until > now) && self.must_wait(index, group, request);
        if must_wait {
            // Checked before a group or partition is made for it; charged when it parks. One that asks other cores first makes a
            // group only where there are messages for it.
            let budget = &self.queues.get(index).budget;
            self.ledger.charge_waiter(budget)?;
            self.ledger.release_waiter(budget);
        }
        let queue = self.queues.get(index);
        let group = match group {
            Some(group) if !queue.groups.get(group).is_spreading() => group,
            None if matches!(queue.link, Link::Alone) => {
                let (name, end) = (self.queues.names.group(request.group), self.end_seq());
                self.queues.get_mut(index).add_group(name, end, now)
            }
            _ => {
                self.spread_group(now, index, request, out);
                return Ok(());
            }
        };
        self.pop_known(now, index, group, request, must_wait, out);
        Ok(())
    }

    /// A pop of a group that every part of the queue knows. `must_wait`: it finds nothing that it may take.
    fn pop_known(
        &mut self,
        now: Time,
        index: QueueIndex,
        group: GroupIndex,
        request: PopRequest<'_>,
        must_wait: bool,
        out: &mut impl Outbox,
    ) {
        let ticket = request.ticket;
        let waits = request.wait_until.filter(|until| *until > now);
        let has_members = self.queues.get(index).link.directory().is_some();
        let asks_members = request.partition.is_none() && has_members;
        let ring = match request.partition {
            Some(partition) => match self.queues.get(index).rings.find(partition) {
                Some(ring) => Some(ring),
                None => Some(self.open_ring(index, partition, now)),
            },
            None => None,
        };
        self.note_use(now, index, group, ring);
        let reach = Reach { group, ring, age: AGELESS, batch: u64::from(request.batch), auto_ack: request.auto_ack };
        if !self.is_enabled && waits.is_none() {
            return self.answer_empty(now, ticket, index, ring, out);
        }
        if asks_members && waits.is_none() {
            return self.claim_passing(now, ticket, index, reach, out);
        }
        if !must_wait && !asks_members {
            return self.answer_pop(now, ticket, index, reach, out);
        }
        let mut waiter = Waiter::new(ticket, index, group, ring, request.batch, request.auto_ack, waits, request.since.unwrap_or(now));
        if !must_wait {
            waiter.is_charged = false;
            let waiter = self.park(index, waiter);
            return self.ask_before_parking(now, waiter, out);
        }
        self.ledger.charge_waiter_unbounded(&self.queues.get(index).budget);
        self.park(index, waiter);
        match ring {
            Some(ring) => self.wake_group_in_ring(now, index, group, ring, out),
            None => self.wake_any(now, index, group, out),
        }
    }

    fn note_use(&mut self, now: Time, index: QueueIndex, group: GroupIndex, ring: Option<RingIndex>) {
        let queue = self.queues.get_mut(index);
        queue.used_at = now;
        queue.groups.get_mut(group).used_at = now;
        if let Some(ring) = ring {
            queue.rings.get_mut(ring).used_at = now;
        }
    }

    /// Whether a waiting pop finds nothing that it may take at once: nothing there, or an older pop or a window holds it. Where other
    /// cores may have something for it, they are asked.
    fn must_wait(&self, index: QueueIndex, group: Option<GroupIndex>, request: PopRequest<'_>) -> bool {
        let (queue, partition) = (self.queues.get(index), request.partition);
        if !self.is_enabled {
            return true;
        }
        if group.is_none() && PrivateGroup::of(request.group).is_some() {
            return true; // It will begin behind everything.
        }
        if partition.is_none() && queue.link.directory().is_some() {
            let is_behind = group.is_some_and(|group| !queue.groups.get(group).any.is_empty());
            return is_behind || queue.options.is_windowed() || queue.counters.totals().0 == 0;
        }
        let ring = partition.map(|partition| queue.rings.find(partition).map(|ring| queue.rings.get(ring)));
        // A group that is not known yet would begin at the oldest message held.
        let pending = match ring {
            Some(ring) => ring.map_or(0, |ring| group.map_or(ring.held, |group| ring.pending(group))),
            None => group.map_or(queue.held, |group| queue.pending(group)),
        };
        let is_behind = group.is_some_and(|group| queue.groups.get(group).wants_to_hear());
        pending == 0 || queue.options.is_windowed() || is_behind
    }

    /// Puts a waiter on its list.
    fn park(&mut self, index: QueueIndex, waiter: Waiter) -> WaiterIndex {
        let queue = self.queues.get_mut(index);
        let (group, ring, until) = (waiter.group, waiter.ring, waiter.until);
        let list = match ring {
            Some(ring) => &mut queue.rings.get_mut(ring).cursor_mut(group).waiters,
            None => &mut queue.groups.get_mut(group).any,
        };
        let waiter = self.waiters.park(list, waiter);
        queue.groups.get_mut(group).waiting += 1;
        queue.groups.note_waiting(group);
        let deadline = &mut self.waiters.get_mut(waiter).deadline;
        self.deadlines.arm(deadline, Owner::Waiter(waiter), until);
        waiter
    }

    /// Takes a waiter off its list and out of every count.
    pub(crate) fn unpark(&mut self, now: Time, waiter: WaiterIndex) -> Waiter {
        let (index, group, ring) = {
            let waiter = self.waiters.get(waiter);
            (waiter.queue, waiter.group, waiter.ring)
        };
        let queue = self.queues.get_mut(index);
        let list = match ring {
            Some(ring) => &mut queue.rings.get_mut(ring).cursor_mut(group).waiters,
            None => &mut queue.groups.get_mut(group).any,
        };
        let mut waiter = self.waiters.remove(list, waiter);
        self.deadlines.disarm(Kind::Waiter, &mut waiter.deadline);
        let group_mut = queue.groups.get_mut(group);
        group_mut.waiting -= 1;
        group_mut.used_at = now;
        queue.groups.note_waiting(group);
        queue.used_at = now;
        if waiter.is_charged {
            self.ledger.release_waiter(&queue.budget);
        }
        self.arm_queue(now, index);
        waiter
    }

    /// Answers a pop with what it can take here, maybe nothing.
    pub(crate) fn answer_pop(&mut self, now: Time, ticket: Ticket, index: QueueIndex, reach: Reach, out: &mut impl Outbox) {
        self.note_answered(now, index, reach.ring, out);
        let name = Arc::clone(&self.queues.get(index).name);
        out.begin_delivery(ticket, &name);
        let receipt = self.take(now, index, reach, |partition, given| {
            out.message(Delivery {
                partition,
                seq: given.seq,
                delivery: given.delivery,
                attempts: given.attempts,
                payload: &given.payload,
                inbox: given.request.map(|request| request.inbox),
            });
        });
        out.end_delivery(receipt.into_iter().collect());
    }

    /// Takes messages for a group, each shown to `show`: the receipt, if there were any.
    pub(crate) fn take(
        &mut self,
        now: Time,
        index: QueueIndex,
        reach: Reach,
        mut show: impl FnMut(&Arc<str>, &crate::queue::Given),
    ) -> Option<Receipt> {
        let mut quota = Quota { messages: reach.batch, bytes: 0 };
        let mut runs: SmallVec<[ReceiptRun; 1]> = SmallVec::new();
        match reach.ring {
            Some(ring) => self.take_from_ring(now, index, ring, reach, &mut quota, &mut runs, &mut show),
            None => {
                let mut last = self.queues.get(index).groups.get(reach.group).served_last.clone();
                for _ in 0..self.queues.get(index).rings.holding_count() {
                    let queue = self.queues.get_mut(index);
                    if quota.is_spent() || queue.pending(reach.group) == 0 {
                        break;
                    }
                    let Some(ring) = queue.rings.following_holding(last.as_deref()) else { break };
                    last = Some(Arc::clone(&queue.rings.get(ring).partition));
                    if !self.is_held_by_older(index, ring, reach) {
                        self.take_from_ring(now, index, ring, reach, &mut quota, &mut runs, &mut show);
                    }
                }
                if let Some(run) = runs.last() {
                    self.queues.get_mut(index).groups.get_mut(reach.group).served_last = Some(Arc::clone(&run.partition));
                }
            }
        }
        if runs.is_empty() {
            return None;
        }
        let queue = self.queues.get(index);
        Some(Receipt {
            shard: self.config.index,
            tenant: queue.tenant(),
            queue: Arc::clone(&queue.name),
            generation: queue.generation,
            group: Arc::clone(&queue.groups.get(reach.group).name),
            runs,
        })
    }

    /// Whether an older pop, parked on the partition by name, holds what is there.
    pub(crate) fn is_held_by_older(&self, index: QueueIndex, ring: RingIndex, reach: Reach) -> bool {
        let cursor = self.queues.get(index).rings.get(ring).cursor(reach.group);
        let oldest = cursor.and_then(|cursor| cursor.waiters.oldest());
        oldest.is_some_and(|waiter| self.waiters.get(waiter).age() < reach.age)
    }

    #[expect(clippy::too_many_arguments, reason = "the inner loop of take")]
    fn take_from_ring(
        &mut self,
        now: Time,
        index: QueueIndex,
        ring: RingIndex,
        reach: Reach,
        quota: &mut Quota,
        runs: &mut SmallVec<[ReceiptRun; 1]>,
        show: &mut impl FnMut(&Arc<str>, &crate::queue::Given),
    ) {
        let queue = self.queues.get_mut(index);
        let lease_end = now + queue.options.lease_span();
        let taking = Taking { group: reach.group, auto_ack: reach.auto_ack, lease_end };
        let partition = Arc::clone(&queue.rings.get(ring).partition);
        let (mut freed, mut hint, mut taken) = (Freed::default(), 0, 0);
        let mut messages: SmallVec<[ReceiptMessage; 1]> = SmallVec::new();
        while !quota.is_spent() {
            let ring_ref = queue.rings.get(ring);
            let Some(pick) = ring_ref.pick(reach.group, hint) else { break };
            let size = ring_ref.slot(pick.index).payload.as_ref().map_or(0, |payload| payload.len());
            if !quota.spend(size) {
                break;
            }
            let slots_before = ring_ref.slot_count();
            let given = queue.give(ring, pick, taking, &mut freed);
            hint = (pick.index + 1).saturating_sub(slots_before - queue.rings.get(ring).slot_count());
            show(&partition, &given);
            taken += 1;
            let settled = reach.auto_ack.then_some(given.payload);
            messages.push(ReceiptMessage {
                seq: given.seq,
                delivery: given.delivery,
                attempts: given.attempts,
                pushed_at: given.pushed_at,
                settled,
                request: given.request.map(Box::new),
            });
        }
        if taken == 0 {
            return;
        }
        runs.push(ReceiptRun { partition, messages });
        queue.release(freed, &self.ledger);
        self.ledger.count_delivered(&queue.budget, taken);
        if reach.auto_ack {
            self.ledger.acked += taken;
            self.after_release(now, index, ring, freed);
        } else {
            self.arm_ring(index, ring, lease_end);
        }
    }

    /// The client of a pop hung up: it is forgotten at once and takes nothing.
    pub(crate) fn cancel_waiter(&mut self, now: Time, waiter: WaiterIndex, out: &mut impl Outbox) {
        if self.waiters.get(waiter).state != WaiterState::Parked {
            self.waiters.get_mut(waiter).state = WaiterState::Gone;
            return;
        }
        let Waiter { queue, group, ring, .. } = self.unpark(now, waiter);
        self.after_unpark(now, queue, group, ring, out);
    }

    /// What may follow when a waiter left: one behind it may take what its window held, and the queue may have no reason to stay.
    pub(crate) fn after_unpark(&mut self, now: Time, index: QueueIndex, group: GroupIndex, ring: Option<RingIndex>, out: &mut impl Outbox) {
        match ring {
            Some(ring) => self.wake_group_in_ring(now, index, group, ring, out),
            None => self.wake_group(now, index, group, out),
        }
        self.reap(index, out);
    }

    /// Answers a pop with nothing.
    pub(crate) fn answer_empty(&mut self, now: Time, ticket: Ticket, index: QueueIndex, ring: Option<RingIndex>, out: &mut impl Outbox) {
        self.note_answered(now, index, ring, out);
        out.begin_delivery(ticket, &self.queues.get(index).name);
        out.end_delivery(SmallVec::new());
    }
}

/// What an answer may still hold: messages, and about a mebibyte of payloads, but always one message.
#[derive(Clone, Copy, Debug)]
struct Quota {
    messages: u64,
    bytes: usize,
}

impl Quota {
    fn is_spent(&self) -> bool {
        self.messages == 0
    }

    fn spend(&mut self, size: usize) -> bool {
        if self.bytes > 0 && self.bytes + size > ANSWER_PAYLOAD_BYTES_MAX {
            self.messages = 0;
            return false;
        }
        self.messages -= 1;
        // Counted as at least one byte: the first message is told from none.
        self.bytes += size.max(1);
        true
    }
}
