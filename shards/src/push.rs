//! Push: admission in the order of refusals (rate, tenant, queue bounds, node), then the append, then the wake-ups.
//!
//! Invariants: what is refused leaves nothing charged, made or evicted; dropOldest evicts only for a push that will fit, and the room
//! it makes is the push's own.

use std::sync::Arc;

use crate::budget::QueueCounters;
use crate::calls::CallTerms;
use crate::command::{Command, DropCause, OwnedCommand, Refusal};
use crate::handover::moved;
use crate::ledger::{Freed, Ledger};
use crate::letter::{Deferred, Letter, RoomOutcome, Wanted};
use crate::limits::{PARTITIONS_MAX, QUEUE_OVERHEAD_BYTES, WAITER_OVERHEAD_BYTES};
use crate::link::Link;
use crate::name::{QueueName, Tenant};
use crate::options::{Options, Policy};
use crate::outbox::{Answer, Outbox, Ticket};
use crate::payload::Payload;
use crate::queue::{GroupIndex, Queue, QueueIndex};
use crate::seq;
use crate::shard::{Shard, Standing};
use crate::tenant::TenantBudget;
use crate::time::Time;

/// Messages and payload bytes.
pub(crate) type Room = (u64, u64);

/// A push that waits for its queue's home. It is charged to tenant and node already.
#[derive(Debug)]
pub(crate) struct WaitingPush {
    name: QueueName,
    generation: u64,
    partition: Arc<str>,
    payloads: Vec<Payload>,
    call: Option<CallTerms>,
    /// A call whose client hung up: it is given up when the word comes that it waits for.
    is_gone: bool,
}

impl WaitingPush {
    fn request(&mut self, ticket: Ticket) -> PushRequest<'_> {
        let Self { name, partition, payloads, call, .. } = self;
        PushRequest { ticket, tenant: name.tenant, queue: &name.name, partition, payloads, call: *call }
    }
}

/// One push, parsed.
#[derive(Debug)]
pub(crate) struct PushRequest<'a> {
    pub(crate) ticket: Ticket,
    pub(crate) tenant: Tenant,
    pub(crate) queue: &'a str,
    pub(crate) partition: &'a str,
    pub(crate) payloads: &'a mut Vec<Payload>,
    /// A call's push of one message: it is charged for its inbox too, and not answered by being done.
    pub(crate) call: Option<CallTerms>,
}

impl PushRequest<'_> {
    fn wanted(&self) -> Room {
        size_of(self.payloads)
    }

    /// Takes the push over, to wait with.
    fn take_command(&mut self) -> OwnedCommand {
        let Self { tenant, queue, partition, .. } = *self;
        let payloads = &mut *self.payloads;
        match self.call {
            None => Command::Push { tenant, queue, partition, payloads }.into_owned(),
            Some(CallTerms { until, fail_fast }) => Command::Call { tenant, queue, partition, payloads, until, fail_fast }.into_owned(),
        }
    }

    /// What the node is charged.
    fn node_bytes(&self) -> u64 {
        let (messages, bytes) = self.wanted();
        Ledger::node_bytes(messages, bytes) + if self.call.is_some() { WAITER_OVERHEAD_BYTES } else { 0 }
    }

    fn fails_fast(&self) -> bool {
        self.call.is_some_and(|call| call.fail_fast)
    }
}

/// A call's inbox counts as a parked pop; its bytes are charged to the node with the push's.
fn charge_inbox(budget: &TenantBudget, push: &PushRequest<'_>) -> Result<(), Refusal> {
    let fits = push.call.is_none() || budget.parked.charge(1);
    if fits { Ok(()) } else { Err(Refusal::TooManyParked) }
}

/// The push of a call was refused.
fn release_inbox(budget: &TenantBudget, push: &PushRequest<'_>) {
    if push.call.is_some() {
        budget.parked.release(1);
    }
}

fn size_of(payloads: &[Payload]) -> Room {
    (payloads.len() as u64, payloads.iter().map(|payload| payload.len() as u64).sum())
}

pub(crate) fn max_room(options: &Options) -> Room {
    (u64::from(options.max_length), options.max_bytes)
}

/// What is missing for `wanted` in a queue that holds `totals`, of which `made` is free for it.
pub(crate) fn missing(counters: &QueueCounters, wanted: Room, made: Room, options: &Options) -> Room {
    let (messages, bytes, _) = counters.totals();
    let max = max_room(options);
    ((messages + wanted.0).saturating_sub(made.0 + max.0), (bytes + wanted.1).saturating_sub(made.1 + max.1))
}

/// Charges the node for a push, less what its eviction will free; how much that is. None: refused, nothing charged. What is freed on
/// other cores is not credited.
fn charge_net(ledger: &Ledger, queue: &Queue, push: &PushRequest<'_>, lacks: Room) -> Option<u64> {
    let node_bytes = push.node_bytes();
    let bound = &ledger.budget.bytes;
    let is_alone = matches!(queue.counters, QueueCounters::Plain { .. });
    if lacks == (0, 0) || !is_alone {
        return bound.charge(node_bytes).then_some(0);
    }
    // What it would evict makes no room in a node that holds too much already.
    if bound.is_over() {
        return None;
    }
    // At least what is lacking goes; only a node that is nearly full needs to know exactly.
    let least = Ledger::node_bytes(lacks.0, lacks.1).min(node_bytes);
    if bound.charge(node_bytes - least) {
        return Some(least);
    }
    let (messages, bytes) = queue.would_evict(push.partition, lacks);
    let exact = Ledger::node_bytes(messages, bytes).min(node_bytes);
    bound.charge(node_bytes - exact).then_some(exact)
}

impl Shard {
    /// `is_resumed`: it was deferred before, and has spent its rate.
    pub(crate) fn push(&mut self, now: Time, mut push: PushRequest<'_>, is_resumed: bool, out: &mut impl Outbox) {
        let (ticket, wanted) = (push.ticket, push.wanted());
        let found = self.queues.find(push.tenant, push.queue);
        if !is_resumed && let Err(refusal) = self.spend_rate(now, found, push.tenant, wanted.0) {
            return self.refuse(ticket, refusal, out);
        }
        let is_unheard = push.fails_fast() && !found.is_some_and(|index| self.has_listeners(now, index, push.partition));
        let done = match found {
            Some(index) if self.queues.get(index).link.holds_back() => {
                let command = push.take_command();
                return self.defer(index, ticket, command, None);
            }
            Some(index) if is_unheard && self.queues.get(index).exists => Err(Refusal::NoConsumers),
            Some(index) if self.queues.get(index).exists => self.push_into(now, index, &mut push, out),
            _ if self.is_home_of(push.tenant, push.queue) && is_unheard => Err(Refusal::NoConsumers),
            _ if self.is_home_of(push.tenant, push.queue) => self.push_to_new(now, &mut push, out),
            _ => {
                let command = push.take_command();
                let queue = QueueName { tenant: push.tenant, name: Arc::clone(&command.queue) };
                let wanted = Wanted { room: wanted, must_exist: is_unheard, parks: push.call.is_some(), adopted: None };
                return self.join(now, &queue, Deferred::Command(ticket, command), None, wanted, out);
            }
        };
        match done {
            Ok(true) if push.call.is_none() => out.answer(ticket, Answer::Pushed(wanted.0 as usize)),
            Ok(_) => {}
            Err(refusal) => self.refuse(ticket, refusal, out),
        }
    }

    /// Spends the rate of a push to the queue that was found, or to one that is not there.
    fn spend_rate(&mut self, now: Time, found: Option<QueueIndex>, tenant: Tenant, messages: u64) -> Result<(), Refusal> {
        let budget = match found {
            Some(index) => &self.queues.get(index).budget,
            None => self.tenants.obtain(tenant).ok_or(Refusal::TooManyTenants)?,
        };
        budget.rate.spend(now, messages).map_err(|retry_after| Refusal::RateLimited { retry_after })
    }

    /// Whether there is room for a queue and what it is wanted for, without charging anything for good: what a home checks for a member.
    pub(crate) fn could_fit_new(&mut self, tenant: Tenant, wanted: Wanted) -> Result<(), Refusal> {
        let budget = Arc::clone(self.tenants.obtain(tenant).ok_or(Refusal::TooManyTenants)?);
        let parked = u64::from(wanted.parks);
        let node_bytes = QUEUE_OVERHEAD_BYTES + Ledger::node_bytes(wanted.room.0, wanted.room.1) + parked * WAITER_OVERHEAD_BYTES;
        if !budget.parked.charge(parked) {
            return Err(Refusal::TooManyParked);
        }
        let admitted = self.admit_to_new(&budget, wanted.room, node_bytes);
        budget.parked.release(parked);
        if admitted.is_ok() {
            budget.bytes.release(wanted.room.1);
            budget.queues.release(1);
            self.ledger.budget.bytes.release(node_bytes);
        }
        admitted
    }

    /// Charges for a queue and what is pushed to it: to the tenant, then to the queue's bounds, then `node_bytes` to the node.
    fn admit_to_new(&self, tenant: &TenantBudget, wanted: Room, node_bytes: u64) -> Result<(), Refusal> {
        if !tenant.bytes.charge(wanted.1) {
            return Err(Refusal::TenantBytes);
        }
        if !tenant.queues.charge(1) {
            tenant.bytes.release(wanted.1);
            return Err(Refusal::TenantQueues);
        }
        let max = max_room(&self.default_options);
        let refusal = if wanted.0 > max.0 || wanted.1 > max.1 {
            Refusal::QueueFull { can_fit: false }
        } else if self.ledger.budget.bytes.charge(node_bytes) {
            return Ok(());
        } else {
            Refusal::NodeBytes
        };
        tenant.bytes.release(wanted.1);
        tenant.queues.release(1);
        Err(refusal)
    }

    fn push_to_new(&mut self, now: Time, push: &mut PushRequest<'_>, out: &mut impl Outbox) -> Result<bool, Refusal> {
        let wanted = push.wanted();
        let budget = Arc::clone(self.tenants.obtain(push.tenant).ok_or(Refusal::TooManyTenants)?);
        charge_inbox(&budget, push)?;
        self.admit_to_new(&budget, wanted, QUEUE_OVERHEAD_BYTES + push.node_bytes()).inspect_err(|_| release_inbox(&budget, push))?;
        let index = self.insert_queue(push.tenant, push.queue, now);
        self.queues.get_mut(index).counters.charge_unbounded(wanted.0, wanted.1);
        self.append(now, index, push, out);
        Ok(true)
    }

    /// Whether the push is done; false: it waits for other cores.
    fn push_into(&mut self, now: Time, index: QueueIndex, push: &mut PushRequest<'_>, out: &mut impl Outbox) -> Result<bool, Refusal> {
        let (_, bytes) = push.wanted();
        let budget = Arc::clone(&self.queues.get(index).budget);
        charge_inbox(&budget, push)?;
        if !budget.bytes.charge(bytes) {
            release_inbox(&budget, push);
            return Err(Refusal::TenantBytes);
        }
        let admitted = self.admit(now, index, push, out);
        match admitted {
            Ok(true) => self.append(now, index, push, out),
            Ok(false) => {}
            Err(_) => {
                budget.bytes.release(bytes);
                release_inbox(&budget, push);
            }
        }
        admitted
    }

    /// Charges queue and node, making room by the queue's policy. False: other cores are asked, and the push waits.
    fn admit(&mut self, now: Time, index: QueueIndex, push: &mut PushRequest<'_>, out: &mut impl Outbox) -> Result<bool, Refusal> {
        let wanted = push.wanted();
        let queue = self.queues.get_mut(index);
        let options = Arc::clone(&queue.options);
        let max = max_room(&options);
        if wanted.0 > max.0 || wanted.1 > max.1 {
            return Err(Refusal::QueueFull { can_fit: false });
        }
        let (_, _, partitions) = queue.counters.totals();
        if partitions >= PARTITIONS_MAX as u64 && queue.rings.find(push.partition).is_none() {
            return Err(Refusal::TooManyPartitions);
        }
        let lacks = missing(&queue.counters, wanted, (0, 0), &options);
        if lacks != (0, 0) && options.policy == Policy::Reject {
            return match self.groups_to_forget(now, index, lacks) {
                Some((idle, room)) => self.admit_without(index, &idle, room, push),
                None => self.ask_for_idle_groups(now, index, push, out),
            };
        }
        let queue = self.queues.get_mut(index);
        let Some(credit) = charge_net(&self.ledger, queue, push, lacks) else { return Err(Refusal::NodeBytes) };
        let made = if lacks == (0, 0) { (0, 0) } else { self.evict_for(now, index, push.partition, lacks, credit) };
        let queue = self.queues.get_mut(index);
        if queue.counters.exchange(made, wanted, max) {
            return Ok(true);
        }
        // The home is asked for the room that the push's own partition could not give.
        self.keep_waiting(index, push);
        let queue = self.queues.get(index);
        let letter = Letter::MakeRoom { queue: queue.full_name(), generation: queue.generation, ticket: push.ticket, wanted, made };
        self.deliver_letter(now, self.home_of(queue.tenant(), &queue.name), letter, out);
        Ok(false)
    }

    /// Admits a push that fits once these idle groups, which alone hold so much room, are forgotten.
    fn admit_without(&mut self, index: QueueIndex, idle: &[GroupIndex], room: Room, push: &PushRequest<'_>) -> Result<bool, Refusal> {
        let (wanted, node_bytes) = (push.wanted(), push.node_bytes());
        let credit = Ledger::node_bytes(room.0, room.1).min(node_bytes);
        if !self.ledger.budget.bytes.charge(node_bytes - credit) {
            return Err(Refusal::NodeBytes);
        }
        self.ledger.budget.bytes.charge_unbounded(credit);
        self.forget_groups(index, idle);
        self.queues.get_mut(index).counters.charge_unbounded(wanted.0, wanted.1);
        Ok(true)
    }

    /// Evicts here for a push: of its own partition first, then, while the queue lives on one core, of the others, oldest head
    /// first. What was evicted stays charged to the queue; `credit` of it is charged to the node already.
    fn evict_for(&mut self, now: Time, index: QueueIndex, partition: &str, lacks: Room, credit: u64) -> Room {
        let queue = self.queues.get_mut(index);
        let is_alone = matches!(queue.counters, QueueCounters::Plain { .. });
        let mut freed = Freed::default();
        let is_short = |freed: &Freed| freed.messages < lacks.0 || freed.bytes < lacks.1;
        if let Some(ring) = queue.rings.find(partition) {
            while is_short(&freed) && queue.rings.get(ring).held > 0 {
                queue.evict_first(ring, DropCause::Bounds, now, &mut self.ledger, &mut freed);
            }
        }
        while is_alone && is_short(&freed) {
            let Some(ring) = queue.oldest_head() else { break };
            queue.evict_first(ring, DropCause::Bounds, now, &mut self.ledger, &mut freed);
        }
        queue.book_evicted(freed);
        self.ledger.budget.bytes.release(Ledger::node_bytes(freed.messages, freed.bytes) - credit);
        queue.budget.bytes.release(freed.bytes);
        (freed.messages, freed.bytes)
    }

    /// Appends an admitted push and wakes whom it concerns.
    fn append(&mut self, now: Time, index: QueueIndex, push: &mut PushRequest<'_>, out: &mut impl Outbox) {
        let ring = self.open_ring(index, push.partition, now);
        let (shard, shard_count, is_call) = (self.config.index, self.config.shard_count, push.call.is_some());
        let (seqs_given, mut last) = (&mut self.seqs_given, 0);
        let next_seq = || {
            *seqs_given += 1;
            last = seq::nth(*seqs_given, shard, shard_count, is_call);
            last
        };
        let queue = self.queues.get_mut(index);
        self.ledger.count_pushed(&queue.budget, push.payloads.len() as u64);
        queue.used_at = now;
        queue.append(ring, now, push.payloads.drain(..), next_seq);
        if let Some(call) = push.call {
            self.park_call(push.tenant, push.ticket, call.until, last, (index, ring));
        }
        self.arm_ring_ttl(index, ring);
        self.wake_ring(now, index, ring, out);
        self.arm_queue(now, index);
    }

    fn keep_waiting(&mut self, index: QueueIndex, push: &mut PushRequest<'_>) {
        let queue = self.queues.get(index);
        let waiting = WaitingPush {
            name: queue.full_name(),
            generation: queue.generation,
            partition: push.partition.into(),
            payloads: std::mem::take(push.payloads),
            call: push.call,
            is_gone: false,
        };
        self.waiting_pushes.insert(push.ticket, waiting);
    }

    /// A push to a full queue whose idle groups only the home can judge, because other cores know them too. False: it waits.
    fn ask_for_idle_groups(
        &mut self,
        now: Time,
        index: QueueIndex,
        push: &mut PushRequest<'_>,
        out: &mut impl Outbox,
    ) -> Result<bool, Refusal> {
        let queue = self.queues.get(index);
        if matches!(queue.link, Link::Alone) || !self.may_forget_groups(now, index) {
            return Err(Refusal::QueueFull { can_fit: true });
        }
        if !self.ledger.budget.bytes.charge(push.node_bytes()) {
            return Err(Refusal::NodeBytes);
        }
        self.keep_waiting(index, push);
        let queue = self.queues.get(index);
        let name = queue.full_name();
        let home = self.home_of(name.tenant, &name.name);
        self.deliver_letter(now, home, Letter::ForgetIdleGroups { queue: name, ticket: push.ticket }, out);
        Ok(false)
    }

    /// The home has forgotten the groups that it could: the push fits now, or never.
    pub(crate) fn retry_push(&mut self, now: Time, ticket: Ticket, out: &mut impl Outbox) {
        let Some(push) = self.waiting_pushes.get(&ticket) else { return };
        let wanted = size_of(&push.payloads);
        let Some(index) = self.find_part(&push.name, push.generation) else { return self.restart_push(now, ticket, out) };
        let queue = self.queues.get_mut(index);
        let max = max_room(&queue.options);
        if queue.counters.exchange((0, 0), wanted, max) {
            self.finish_push(now, ticket, out);
        } else {
            self.give_up_push(ticket, Refusal::QueueFull { can_fit: true }, out);
        }
    }

    /// What the home says to a push that asked for room.
    pub(crate) fn room_made(&mut self, now: Time, ticket: Ticket, outcome: RoomOutcome, out: &mut impl Outbox) {
        match outcome {
            RoomOutcome::Admitted => self.finish_push(now, ticket, out),
            RoomOutcome::Refused(refusal) => self.give_up_push(ticket, refusal, out),
            RoomOutcome::Void => self.restart_push(now, ticket, out),
        }
    }

    /// A waiting push is charged everywhere.
    fn finish_push(&mut self, now: Time, ticket: Ticket, out: &mut impl Outbox) {
        let Some(WaitingPush { name, generation, partition, is_gone, .. }) = self.waiting_pushes.get(&ticket) else { return };
        let Some(index) = self.find_part(name, *generation) else { unreachable!("the home's word comes before its next order") };
        if *is_gone {
            return self.uncharge_push(index, ticket);
        }
        if self.is_packed(index, partition) {
            return self.move_push(index, ticket, out);
        }
        let Some(WaitingPush { name, partition, mut payloads, call, .. }) = self.waiting_pushes.remove(&ticket) else { return };
        let count = payloads.len();
        let mut push = PushRequest { ticket, tenant: name.tenant, queue: &name.name, partition: &partition, payloads: &mut payloads, call };
        self.append(now, index, &mut push, out);
        if call.is_none() {
            out.answer(ticket, Answer::Pushed(count));
        }
    }

    /// The client of a waiting call is gone, and its push is charged to the queue.
    fn uncharge_push(&mut self, index: QueueIndex, ticket: Ticket) {
        if let Some(push) = self.withdraw_push(ticket) {
            let (messages, bytes) = size_of(&push.payloads);
            self.queues.get_mut(index).counters.release(messages, bytes);
        }
    }

    /// The partition of a waiting push was packed meanwhile: it goes there too.
    fn move_push(&mut self, index: QueueIndex, ticket: Ticket, out: &mut impl Outbox) {
        let Some(mut push) = self.withdraw_push(ticket) else { return };
        let (messages, bytes) = size_of(&push.payloads);
        self.queues.get_mut(index).counters.release(messages, bytes);
        out.answer(ticket, moved(push.request(ticket).take_command(), None));
    }

    /// Uncharges a waiting push: the push.
    fn withdraw_push(&mut self, ticket: Ticket) -> Option<WaitingPush> {
        let push = self.waiting_pushes.remove(&ticket)?;
        let (messages, bytes) = size_of(&push.payloads);
        let budget = self.tenants.charged(push.name.tenant);
        self.ledger.release_messages(budget, Freed { messages, bytes });
        if push.call.is_some() {
            self.ledger.release_waiter(budget);
        }
        Some(push)
    }

    fn give_up_push(&mut self, ticket: Ticket, refusal: Refusal, out: &mut impl Outbox) {
        if self.withdraw_push(ticket).is_some_and(|push| !push.is_gone) {
            self.refuse(ticket, refusal, out);
        }
    }

    /// The client of a call that waits for its queue's home hung up. Whether there is such a call.
    pub(crate) fn abandon_push(&mut self, ticket: Ticket) -> bool {
        let push = self.waiting_pushes.get_mut(&ticket).filter(|push| push.call.is_some());
        push.map(|push| push.is_gone = true).is_some()
    }

    /// The queue was reset or deleted while the push waited: it begins anew.
    fn restart_push(&mut self, now: Time, ticket: Ticket, out: &mut impl Outbox) {
        let Some(WaitingPush { name, partition, mut payloads, call, is_gone, .. }) = self.withdraw_push(ticket) else { return };
        if is_gone {
            return;
        }
        let mut push = PushRequest { ticket, tenant: name.tenant, queue: &name.name, partition: &partition, payloads: &mut payloads, call };
        let command = push.take_command();
        command.lend(|command| self.run(now, ticket, command, Standing { is_resumed: true, since: None }, out));
    }
}
