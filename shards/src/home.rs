//! What a queue's home serialises: joining parts, new groups, options, reset, delete, collection, and room made on other cores.
//!
//! An operation sends an order to every member and ends when all have answered. Invariant: what a client is told is done has reached
//! every part; while a freeze is under way neither the home nor a member serves the queue's commands.

use std::sync::Arc;

use crate::command::Refusal;
use crate::forget::FORGET_INTERVAL;
use crate::letter::{Agreement, Deferred, Idleness, Letter, Order, Report, Wanted};
use crate::limits::GROUPS_MAX;
use crate::link::Link;
use crate::name::QueueName;
use crate::outbox::{Answer, Outbox, Ticket};
use crate::placement::ShardIndex;
use crate::pop::PopRequest;
use crate::queue::QueueIndex;
use crate::room::Eviction;
use crate::shard::Shard;
use crate::time::{Span, Time};

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) queue: QueueIndex,
    pub(crate) awaiting: usize,
    pub(crate) kind: OpKind,
}

/// What an operation is for.
#[derive(Debug)]
pub(crate) enum OpKind {
    Configure {
        ticket: Ticket,
    },
    Undeclare {
        ticket: Ticket,
    },
    Reset {
        ticket: Ticket,
        dropped: u64,
    },
    Delete {
        ticket: Ticket,
        declared: bool,
    },
    /// A new group: those that wait for it, here and on members.
    AddGroup {
        group: Arc<str>,
        waiting: Vec<Deferred>,
        askers: Vec<ShardIndex>,
    },
    /// Frozen, to be collected if every part is idle.
    Collect {
        parts: Vec<Idleness>,
    },
    /// Frozen, to forget groups that are idle on every part.
    ForgetGroups {
        asker: (ShardIndex, Ticket),
        parts: Vec<Idleness>,
    },
    /// The groups are being forgotten.
    GroupsForgotten {
        asker: (ShardIndex, Ticket),
    },
    Evict(Eviction),
}

impl Shard {
    /// Sends an order to every member of a queue and remembers what for.
    pub(crate) fn begin_op(&mut self, now: Time, index: QueueIndex, kind: OpKind, order: Order, out: &mut impl Outbox) {
        let members = self.queues.get(index).link.members();
        self.begin_op_with(now, index, kind, order, &members, out);
    }

    pub(crate) fn begin_op_with(
        &mut self,
        now: Time,
        index: QueueIndex,
        kind: OpKind,
        order: Order,
        members: &[ShardIndex],
        out: &mut impl Outbox,
    ) {
        let op = self.begin_conversation();
        if let Some(directory) = self.queues.get_mut(index).link.directory_mut() {
            directory.busy_count += 1;
            directory.is_frozen |= matches!(order, Order::Freeze);
        }
        self.order(index, op, &order, members, out);
        self.ops.insert(op, Op { queue: index, awaiting: members.len(), kind });
        if members.is_empty() {
            self.finish_op(now, op, out);
        }
    }

    pub(crate) fn order(&self, index: QueueIndex, op: u64, order: &Order, members: &[ShardIndex], out: &mut impl Outbox) {
        let queue = self.queues.get(index);
        for member in members {
            let name = queue.full_name();
            out.send(*member, Letter::Order { queue: name, generation: queue.generation, op, order: order.clone() });
        }
    }

    /// A member answered an order.
    pub(crate) fn report(&mut self, now: Time, from: ShardIndex, op: u64, report: Report, out: &mut impl Outbox) {
        let Some(entry) = self.ops.get_mut(&op) else { return };
        entry.awaiting -= 1;
        let index = entry.queue;
        match (&mut entry.kind, report) {
            (OpKind::Reset { dropped, .. }, Report::Dropped(more)) => *dropped += more,
            (OpKind::Delete { .. }, Report::Deleted { parked_groups }) => self.note_parked_groups(now, index, &parked_groups),
            (OpKind::Collect { parts } | OpKind::ForgetGroups { parts, .. }, Report::Frozen(part)) => parts.push(part),
            (OpKind::Evict(eviction), Report::Head(head)) => eviction.note_head(from, head),
            (OpKind::Evict(eviction), Report::Evicted(made, head)) => {
                eviction.note_head(from, head);
                self.note_room(index, made);
            }
            _ => {}
        }
        if self.ops.get(&op).is_some_and(|op| op.awaiting == 0) {
            self.finish_op(now, op, out);
        }
    }

    fn finish_op(&mut self, now: Time, op: u64, out: &mut impl Outbox) {
        let Some(Op { queue: index, kind, .. }) = self.ops.remove(&op) else { return };
        if let Some(directory) = self.queues.get_mut(index).link.directory_mut() {
            directory.busy_count -= 1;
        }
        match kind {
            OpKind::Configure { ticket } => out.answer(ticket, Answer::Configured),
            OpKind::Undeclare { ticket } => out.answer(ticket, Answer::Undeclared),
            OpKind::Reset { ticket, dropped } => out.answer(ticket, Answer::Reset(dropped)),
            OpKind::Delete { ticket, declared } => {
                self.spread_parked_groups(now, index, out);
                out.answer(ticket, Answer::Deleted { deleted: true, declared });
            }
            OpKind::AddGroup { group, waiting, askers } => self.group_added(now, index, &group, waiting, &askers, out),
            OpKind::Collect { parts } => self.frozen_to_collect(now, index, parts, out),
            OpKind::ForgetGroups { asker, parts } => self.frozen_to_forget(now, index, asker, parts, out),
            OpKind::GroupsForgotten { asker } => {
                let queue = self.queues.get(index);
                let name = queue.full_name();
                self.deliver_letter(now, asker.0, Letter::IdleGroupsForgotten { queue: name, ticket: asker.1 }, out);
            }
            OpKind::Evict(eviction) => self.make_room(now, index, eviction, out),
        }
        self.reap(index, out);
    }

    /// Another shard needs a part of a queue whose home this is.
    pub(crate) fn join_asked(&mut self, now: Time, from: ShardIndex, name: QueueName, wanted: Wanted, out: &mut impl Outbox) {
        let found = self.queues.find(name.tenant, &name.name);
        if let Some(index) = found.filter(|index| self.queues.get(*index).link.holds_back()) {
            self.queues.get_mut(index).link.defer(Deferred::Letter(from, Letter::Join { queue: name, wanted }));
            return;
        }
        let index = match found.filter(|index| self.queues.get(*index).exists) {
            Some(index) => index,
            // Of a deleted queue pops may be left that listen to any partition.
            None if wanted.must_exist && !found.is_some_and(|index| self.queues.get(index).is_awaited()) => {
                return out.send(from, Letter::Joined { queue: name, generation: 0, outcome: Err(Refusal::NoConsumers) });
            }
            None if wanted.adopted.is_some() => self.create_adopted(now, &name, wanted.adopted),
            None => match self.could_fit_new(name.tenant, wanted).and_then(|()| self.create_queue(name.tenant, &name.name, now)) {
                Ok(index) => index,
                Err(refusal) => return out.send(from, Letter::Joined { queue: name, generation: 0, outcome: Err(refusal) }),
            },
        };
        let queue = self.queues.get_mut(index);
        queue.used_at = now;
        if matches!(queue.link, Link::Alone) {
            queue.link = Link::Home(Box::default());
        }
        // The first member: pops that are parked here on any partition bid from now on, and it serves nobody before it knows.
        for group in self.queues.get(index).groups.waiting().to_vec() {
            self.publish_bid(index, group, out);
        }
        let queue = self.queues.get_mut(index);
        let Link::Home(directory) = &mut queue.link else { unreachable!("a home") };
        if !directory.members.contains(&from) {
            directory.members.push(from);
        }
        let agreement = Agreement {
            options: *queue.options,
            is_declared: queue.is_declared,
            answered_at: queue.answered_at,
            groups: queue.groups.iter().map(|(_, group)| (Arc::clone(&group.name), group.bid(), group.is_spreading())).collect(),
            counters: queue.counters.share(),
        };
        out.send(from, Letter::Joined { queue: name, generation: queue.generation, outcome: Ok(Box::new(agreement)) });
    }

    /// A member has nothing of a queue any more.
    pub(crate) fn member_left(&mut self, now: Time, from: ShardIndex, name: &QueueName, out: &mut impl Outbox) {
        let Some(index) = self.queues.find(name.tenant, &name.name) else { return };
        let queue = self.queues.get_mut(index);
        // Its last pop was parked until now, or a moment ago.
        queue.used_at = now;
        if let Some(directory) = queue.link.directory_mut() {
            directory.members.retain(|member| *member != from);
            directory.ready.retain(|(_, member, _)| *member != from);
        }
        self.reap(index, out);
    }

    /// A pop of a group that not every part knows waits until all do.
    pub(crate) fn spread_group(&mut self, now: Time, index: QueueIndex, request: PopRequest<'_>, out: &mut impl Outbox) {
        let ticket = request.ticket;
        let work = Deferred::Command(ticket, request.into_command().into_owned());
        self.deferred.insert(ticket, request.since);
        let group_name = self.queues.names.group(request.group);
        let queue = self.queues.get_mut(index);
        let name = queue.full_name();
        let generation = queue.generation;
        if let Some(membership) = queue.link.membership_mut() {
            let is_asked = membership.registering.iter().any(|(group, _)| *group == group_name);
            membership.registering.push((Arc::clone(&group_name), work));
            if !is_asked {
                out.send(membership.home, Letter::RegisterGroup { queue: name, generation, group: group_name, is_adopted: false });
            }
            return;
        }
        match queue.groups.find(request.group) {
            Some(_) => self.await_group(index, &group_name, Some(work), None),
            None => self.add_group_everywhere(now, index, group_name, vec![work], Vec::new(), out),
        }
    }

    pub(crate) fn await_group(&mut self, index: QueueIndex, of: &str, work: Option<Deferred>, asker: Option<ShardIndex>) {
        for op in self.ops.values_mut().filter(|op| op.queue == index) {
            if let OpKind::AddGroup { group, waiting, askers } = &mut op.kind
                && **group == *of
            {
                waiting.extend(work);
                askers.extend(asker);
                return;
            }
        }
    }

    pub(crate) fn add_group_everywhere(
        &mut self,
        now: Time,
        index: QueueIndex,
        name: Arc<str>,
        waiting: Vec<Deferred>,
        askers: Vec<ShardIndex>,
        out: &mut impl Outbox,
    ) {
        let end = self.end_seq();
        let queue = self.queues.get_mut(index);
        let group = queue.add_group(Arc::clone(&name), end, now);
        queue.groups.get_mut(group).set_spreading(true);
        let kind = OpKind::AddGroup { group: Arc::clone(&name), waiting, askers };
        self.begin_op(now, index, kind, Order::AddGroup(name), out);
    }

    fn group_added(
        &mut self,
        now: Time,
        index: QueueIndex,
        group: &Arc<str>,
        waiting: Vec<Deferred>,
        askers: &[ShardIndex],
        out: &mut impl Outbox,
    ) {
        let queue = self.queues.get_mut(index);
        // The queue may have been deleted meanwhile, and the group with it.
        if let Some(index) = queue.groups.find(group) {
            queue.groups.get_mut(index).set_spreading(false);
        }
        let name = queue.full_name();
        // Every member has held the group's pops back until now: one that knew it could have let others down that did not.
        let members = queue.link.members();
        let others = askers.iter().filter(|asker| !members.contains(asker));
        for member in members.iter().chain(others) {
            out.send(*member, Letter::GroupRegistered { queue: name.clone(), group: Arc::clone(group), refusal: None });
        }
        self.resume(now, waiting, out);
    }

    /// A member's pop names a group it does not know.
    pub(crate) fn register_asked(
        &mut self,
        now: Time,
        from: ShardIndex,
        name: QueueName,
        generation: u64,
        group: (Arc<str>, bool),
        out: &mut impl Outbox,
    ) {
        let (group, is_adopted) = group;
        let registered = |refusal| Letter::GroupRegistered { queue: name.clone(), group: Arc::clone(&group), refusal };
        let found = self.queues.find(name.tenant, &name.name);
        let Some(index) = found.filter(|index| self.queues.get(*index).exists && self.queues.get(*index).link.directory().is_some()) else {
            // The word that the queue is gone is on its way to the member: it finds that out itself.
            return out.send(from, registered(None));
        };
        if self.queues.get(index).link.holds_back() {
            let letter = Letter::RegisterGroup { queue: name, generation, group, is_adopted };
            return self.queues.get_mut(index).link.defer(Deferred::Letter(from, letter));
        }
        let queue = self.queues.get(index);
        match queue.groups.find(&group) {
            Some(known) if queue.groups.get(known).is_spreading() => self.await_group(index, &group, None, Some(from)),
            Some(_) => out.send(from, registered(None)),
            None if queue.groups.count() as usize >= GROUPS_MAX && !is_adopted => out.send(from, registered(Some(Refusal::TooManyGroups))),
            None => self.add_group_everywhere(now, index, group, Vec::new(), vec![from], out),
        }
    }

    /// Pops stay parked on a member through a delete: their groups are known from now on.
    fn note_parked_groups(&mut self, now: Time, index: QueueIndex, names: &[Arc<str>]) {
        let end = self.end_seq();
        let queue = self.queues.get_mut(index);
        for name in names {
            if queue.groups.find(name).is_none() {
                queue.add_group(Arc::clone(name), end, now);
            }
        }
    }

    /// The members that are left, because pops stay parked there, learn of each other's groups.
    fn spread_parked_groups(&mut self, now: Time, index: QueueIndex, out: &mut impl Outbox) {
        if self.queues.get(index).link.members().is_empty() {
            return;
        }
        let names: Vec<_> = self.queues.get(index).groups.iter().map(|(_, group)| Arc::clone(&group.name)).collect();
        for name in names {
            let kind = OpKind::AddGroup { group: Arc::clone(&name), waiting: Vec::new(), askers: Vec::new() };
            self.begin_op(now, index, kind, Order::AddGroup(name), out);
        }
    }

    /// Every part has stopped: collects the queue if all were idle long enough.
    fn frozen_to_collect(&mut self, now: Time, index: QueueIndex, mut parts: Vec<Idleness>, out: &mut impl Outbox) {
        parts.push(self.idleness(index));
        let used_at = parts.iter().map(|part| part.used_at).max().unwrap_or(now);
        let is_holding = parts.iter().any(|part| part.held > 0);
        let is_waiting = parts.iter().any(|part| part.waiting > 0);
        let span = if is_holding { self.config.abandoned } else { self.config.implicit_idle };
        let is_idle = !is_waiting && span > Span(0) && used_at + span <= now && !self.queues.get(index).is_declared;
        let members = self.queues.get(index).link.members();
        let work = self.unfreeze(index);
        if is_idle && work.is_empty() {
            self.order(index, 0, &Order::Collect, &members, out);
            self.queues.get_mut(index).link = Link::Alone;
            self.collect(now, index, out);
            return;
        }
        self.order(index, 0, &Order::Thaw, &members, out);
        let queue = self.queues.get_mut(index);
        queue.used_at = used_at;
        let recheck_at = if is_waiting { now } else { used_at } + span.max(Span::from_secs(1));
        self.deadlines.arm_no_later(&mut queue.deadline, crate::deadlines::Owner::Queue(index), recheck_at.max(now + Span::from_millis(1)));
        self.resume(now, work, out);
    }

    fn unfreeze(&mut self, index: QueueIndex) -> std::collections::VecDeque<Deferred> {
        let link = &mut self.queues.get_mut(index).link;
        if let Some(directory) = link.directory_mut() {
            directory.is_frozen = false;
        }
        link.take_deferred()
    }

    /// A push was refused for room; idle groups may hold it.
    pub(crate) fn forget_asked(&mut self, now: Time, from: ShardIndex, name: QueueName, ticket: Ticket, out: &mut impl Outbox) {
        let found = self.queues.find(name.tenant, &name.name);
        let may_ask = found.filter(|index| {
            let directory = self.queues.get(*index).link.directory();
            directory.is_some_and(|directory| directory.busy_count == 0 && directory.forgot_at.is_none_or(|at| at + FORGET_INTERVAL <= now))
        });
        let Some(index) = may_ask else {
            return self.deliver_letter(now, from, Letter::IdleGroupsForgotten { queue: name, ticket }, out);
        };
        if let Some(directory) = self.queues.get_mut(index).link.directory_mut() {
            directory.forgot_at = Some(now);
        }
        self.begin_op(now, index, OpKind::ForgetGroups { asker: (from, ticket), parts: Vec::new() }, Order::Freeze, out);
    }

    fn frozen_to_forget(
        &mut self,
        now: Time,
        index: QueueIndex,
        asker: (ShardIndex, Ticket),
        mut parts: Vec<Idleness>,
        out: &mut impl Outbox,
    ) {
        parts.insert(0, self.idleness(index));
        let idle = Self::idle_everywhere(now - self.config.group_idle, &parts);
        self.forget_named_groups(index, &idle);
        let work = self.unfreeze(index);
        self.begin_op(now, index, OpKind::GroupsForgotten { asker }, Order::ForgetGroups(idle), out);
        self.resume(now, work, out);
    }
}
