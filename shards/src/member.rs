//! What a member of a queue does at its home's word, and the letters of either side.

use std::sync::Arc;

use crate::budget::QueueCounters;
use crate::command::{DropCause, OwnedRequest, Refusal};
use crate::ledger::{Freed, Ledger};
use crate::letter::{Agreement, Deferred, Letter, Order, Report};
use crate::link::{Link, MemberState};
use crate::name::QueueName;
use crate::outbox::{Answer, Outbox};
use crate::placement::ShardIndex;
use crate::push::Room;
use crate::queue::QueueIndex;
use crate::room::RoomRequest;
use crate::shard::Shard;
use crate::time::Time;
use crate::undeliver::Undelivered;

impl Shard {
    /// Reads a letter from another shard of the node.
    pub fn receive(&mut self, now: Time, from: ShardIndex, letter: Letter, out: &mut impl Outbox) {
        self.expire(now, out);
        self.read(now, from, letter, out);
    }

    /// To another shard, or to this one at once.
    pub(crate) fn deliver_letter(&mut self, now: Time, to: ShardIndex, letter: Letter, out: &mut impl Outbox) {
        if to == self.config.index { self.read(now, to, letter, out) } else { out.send(to, letter) }
    }

    pub(crate) fn read(&mut self, now: Time, from: ShardIndex, letter: Letter, out: &mut impl Outbox) {
        match letter {
            Letter::Join { queue, wanted } => self.join_asked(now, from, queue, wanted, out),
            Letter::Left { queue } => self.member_left(now, from, &queue, out),
            Letter::RegisterGroup { queue, generation, group, is_adopted } => {
                self.register_asked(now, from, queue, generation, (group, is_adopted), out);
            }
            Letter::Done { op, report } => self.report(now, from, op, report, out),
            Letter::Hint { queue, generation, group, ready } => self.hinted(now, from, &queue, generation, &group, ready, out),
            Letter::MakeRoom { queue, generation, ticket, wanted, made } => {
                self.room_asked(now, &queue, RoomRequest { asker: from, ticket, generation, wanted }, made, out);
            }
            Letter::ForgetIdleGroups { queue, ticket } => self.forget_asked(now, from, queue, ticket, out),
            Letter::Joined { queue, generation, outcome } => self.joined(now, &queue, generation, outcome, out),
            Letter::GroupRegistered { queue, group, refusal } => self.group_registered(now, &queue, &group, refusal, out),
            Letter::Order { queue, generation, op, order } => {
                let report = self.obey(now, &queue, generation, order, out);
                out.send(from, Letter::Done { op, report });
            }
            Letter::Bid { queue, generation, group, parked_at, answered_at } => {
                self.bid_published(now, &queue, generation, &group, (parked_at, answered_at), out);
            }
            Letter::Answered { queue, generation, answered_at } => self.answered_elsewhere(&queue, generation, answered_at),
            Letter::Survey(claiming) => self.surveyed(now, from, &claiming, out),
            Letter::Take { claiming, picks } => self.take_asked(now, from, &claiming, &picks, out),
            Letter::Surveyed { claim, found } => self.survey_answered(now, from, claim, found, out),
            Letter::Taken { claim, runs, receipt, ready } => self.take_answered(now, from, claim, runs, receipt, ready, out),
            Letter::GiveBack(receipt) => self.take_answer_back(now, *receipt, Undelivered::Unsent, out),
            Letter::RoomMade { ticket, outcome } => self.room_made(now, ticket, outcome, out),
            Letter::IdleGroupsForgotten { ticket, .. } => self.retry_push(now, ticket, out),
            Letter::PartitionPacked { queue } => self.move_any_waiters(now, &queue, out),
            Letter::Adopt { queue, partition } => self.adopt(now, &queue, &partition, out),
        }
    }

    fn joined(&mut self, now: Time, name: &QueueName, generation: u64, outcome: Result<Box<Agreement>, Refusal>, out: &mut impl Outbox) {
        let Some(index) = self.queues.find(name.tenant, &name.name) else { return };
        let mut work = self.queues.get_mut(index).link.take_deferred();
        match outcome {
            Ok(agreement) => {
                self.agree(index, generation, *agreement, now, out);
                // The part holds nothing yet: what it is given wakes whom it concerns.
                self.resume(now, work, out);
            }
            Err(refusal) => {
                // What the home said is for the one that made this part ask: the others ask for themselves.
                let first = work.pop_front();
                if let Some(membership) = self.queues.get_mut(index).link.membership_mut() {
                    membership.state = MemberState::Vacant;
                }
                self.refuse_all(now, first, refusal, out);
                self.resume(now, work, out);
                self.reap(index, out);
            }
        }
    }

    /// Takes up what the home says: this part serves from now on.
    fn agree(&mut self, index: QueueIndex, generation: u64, agreement: Agreement, now: Time, out: &mut impl Outbox) {
        let end = self.end_seq();
        let queue = self.queues.get_mut(index);
        queue.exists = true;
        queue.generation = generation;
        queue.options = Arc::new(agreement.options);
        queue.is_declared = agreement.is_declared;
        queue.answered_at = queue.answered_at.max(agreement.answered_at);
        queue.counters = QueueCounters::Shared(agreement.counters);
        for _ in 0..queue.rings.count() {
            queue.counters.open_partition(u64::MAX);
        }
        for (name, bid, is_spreading) in &agreement.groups {
            let group = queue.groups.find(name).unwrap_or_else(|| queue.add_group(Arc::clone(name), end, now));
            queue.groups.get_mut(group).set_bid(*bid);
            queue.groups.get_mut(group).set_spreading(*is_spreading);
            queue.groups.note_waiting(group);
        }
        let name = queue.full_name();
        let is_new = |group: &Arc<str>| !agreement.groups.iter().any(|(known, ..)| known == group);
        let news: Vec<_> = queue.groups.iter().map(|(_, group)| Arc::clone(&group.name)).filter(is_new).collect();
        let Some(membership) = queue.link.membership_mut() else { return };
        membership.state = MemberState::Live;
        for group in news {
            out.send(membership.home, Letter::RegisterGroup { queue: name.clone(), generation, group, is_adopted: false });
        }
    }

    fn refuse_all(&mut self, now: Time, work: impl IntoIterator<Item = Deferred>, refusal: Refusal, out: &mut impl Outbox) {
        for work in work {
            match work {
                // An ack is answered all the same: nothing is known here.
                Deferred::Command(_, ref command) if matches!(command.request, OwnedRequest::Ack { .. }) => self.resume(now, [work], out),
                Deferred::Command(ticket, _) => {
                    if self.deferred.remove(&ticket).is_some() {
                        out.answer(ticket, Answer::Refused(refusal));
                    }
                }
                Deferred::Letter(..) => self.resume(now, [work], out),
            }
        }
    }

    fn group_registered(&mut self, now: Time, name: &QueueName, group: &Arc<str>, refusal: Option<Refusal>, out: &mut impl Outbox) {
        let Some(index) = self.queues.find(name.tenant, &name.name) else { return };
        let queue = self.queues.get_mut(index);
        if let Some(known) = queue.groups.find(group) {
            queue.groups.get_mut(known).set_spreading(false);
        }
        let Some(membership) = queue.link.membership_mut() else { return };
        let (work, others) = std::mem::take(&mut membership.registering).into_iter().partition(|(of, _)| of == group);
        membership.registering = others;
        let work: Vec<(Arc<str>, Deferred)> = work;
        let work = work.into_iter().map(|(_, work)| work);
        match refusal {
            None => self.resume(now, work, out),
            Some(refusal) => self.refuse_all(now, work, refusal, out),
        }
    }

    /// Does what the home orders.
    fn obey(&mut self, now: Time, name: &QueueName, generation: u64, order: Order, out: &mut impl Outbox) -> Report {
        let found = self.queues.find(name.tenant, &name.name).filter(|index| !self.queues.get(*index).link.is_home());
        let Some(index) = found.filter(|index| self.queues.get(*index).exists) else {
            return match order {
                Order::Delete => Report::Deleted { parked_groups: found.map(|index| self.parked_groups(index)).unwrap_or_default() },
                Order::AddGroup(group) => {
                    if let Some(index) = found {
                        self.know_group(index, group, now);
                    }
                    Report::Done
                }
                // Pops that a delete left parked here keep the queue that was made anew.
                Order::Freeze => Report::Frozen(found.map(|index| self.idleness(index)).unwrap_or_default()),
                Order::DropGroup(group) => {
                    if let Some(index) = found {
                        self.drop_group(now, index, &group);
                    }
                    Report::Done
                }
                Order::OldestHead => Report::Head(None),
                Order::Evict { .. } => Report::Evicted((0, 0), None),
                _ => Report::Done,
            };
        };
        self.queues.get_mut(index).generation = generation;
        match order {
            Order::AddGroup(group) => self.know_group(index, group, now),
            Order::SetOptions(options, is_declared) => self.set_options(now, index, options, is_declared, out),
            Order::Wipe(cause) => return Report::Dropped(self.wipe(now, index, cause)),
            Order::Delete => return self.obey_delete(now, index, DropCause::Deleted, out),
            Order::Collect => return self.obey_delete(now, index, DropCause::Abandoned, out),
            Order::Freeze => {
                self.set_member_state(index, MemberState::Frozen);
                return Report::Frozen(self.idleness(index));
            }
            Order::Thaw => self.thaw(now, index, out),
            Order::ForgetGroups(groups) => {
                self.forget_named_groups(index, &groups);
                self.thaw(now, index, out);
            }
            Order::DropGroup(group) => self.drop_group(now, index, &group),
            Order::OldestHead => return Report::Head(self.oldest_at(index)),
            Order::Evict { room, until } => {
                let made = self.evict_until(now, index, room, until);
                return Report::Evicted(made, self.oldest_at(index));
            }
        }
        Report::Done
    }

    fn set_member_state(&mut self, index: QueueIndex, state: MemberState) {
        if let Some(membership) = self.queues.get_mut(index).link.membership_mut() {
            membership.state = state;
        }
    }

    fn know_group(&mut self, index: QueueIndex, group: Arc<str>, now: Time) {
        let end = self.end_seq();
        let queue = self.queues.get_mut(index);
        let group = queue.groups.find(&group).unwrap_or_else(|| queue.add_group(group, end, now));
        // Its pops wait here, too, until the home says that every part knows it.
        queue.groups.get_mut(group).set_spreading(true);
    }

    fn thaw(&mut self, now: Time, index: QueueIndex, out: &mut impl Outbox) {
        self.set_member_state(index, MemberState::Live);
        let work = self.queues.get_mut(index).link.take_deferred();
        self.resume(now, work, out);
    }

    fn parked_groups(&self, index: QueueIndex) -> Vec<Arc<str>> {
        self.queues.get(index).groups.iter().filter(|(_, group)| group.waiting > 0).map(|(_, group)| Arc::clone(&group.name)).collect()
    }

    fn obey_delete(&mut self, now: Time, index: QueueIndex, cause: DropCause, out: &mut impl Outbox) -> Report {
        self.wipe(now, index, cause);
        self.forget_queue(index);
        self.set_member_state(index, MemberState::Vacant);
        let parked_groups = self.parked_groups(index);
        let queue = self.queues.get_mut(index);
        for group in queue.groups.waiting().to_vec() {
            let entry = queue.groups.get_mut(group);
            entry.set_bid(None);
            entry.set_hinted(0);
            queue.groups.note_waiting(group);
        }
        let mut work: Vec<_> = queue.link.take_deferred().into();
        if let Some(membership) = queue.link.membership_mut() {
            work.extend(membership.registering.drain(..).map(|(_, work)| work));
        }
        self.reap(index, out);
        self.resume(now, work, out);
        Report::Deleted { parked_groups }
    }

    /// When the oldest message here was pushed.
    pub(crate) fn oldest_at(&mut self, index: QueueIndex) -> Option<Time> {
        let queue = self.queues.get_mut(index);
        let ring = queue.oldest_head()?;
        queue.rings.get(ring).first().map(|slot| slot.pushed_at)
    }

    /// Evicts the oldest messages pushed no later than `until`, for a push elsewhere: they stay charged to the queue.
    pub(crate) fn evict_until(&mut self, now: Time, index: QueueIndex, lacks: Room, until: Time) -> Room {
        let queue = self.queues.get_mut(index);
        let mut freed = Freed::default();
        while freed.messages < lacks.0 || freed.bytes < lacks.1 {
            let Some(ring) = queue.oldest_head() else { break };
            if queue.rings.get(ring).first().is_none_or(|slot| slot.pushed_at > until) {
                break;
            }
            queue.evict_first(ring, DropCause::Bounds, now, &mut self.ledger, &mut freed);
        }
        queue.book_evicted(freed);
        self.ledger.budget.bytes.release(Ledger::node_bytes(freed.messages, freed.bytes));
        queue.budget.bytes.release(freed.bytes);
        (freed.messages, freed.bytes)
    }

    pub(crate) fn find_part(&self, name: &QueueName, generation: u64) -> Option<QueueIndex> {
        let index = self.queues.find(name.tenant, &name.name)?;
        let queue = self.queues.get(index);
        (queue.exists && queue.generation == generation).then_some(index)
    }

    pub(crate) fn find_claimed(&self, claiming: &crate::letter::Claiming) -> Option<(QueueIndex, crate::queue::GroupIndex)> {
        let index = self.find_part(&claiming.queue, claiming.generation)?;
        Some((index, self.queues.get(index).groups.find(&claiming.group)?))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one letter")]
    fn hinted(&mut self, now: Time, from: ShardIndex, name: &QueueName, generation: u64, group: &str, ready: u64, out: &mut impl Outbox) {
        let Some(index) = self.find_part(name, generation) else { return };
        let queue = self.queues.get_mut(index);
        let Some(group) = queue.groups.find(group) else { return };
        let Link::Home(directory) = &mut queue.link else { return };
        directory.set_ready(group, from, ready);
        self.wake_any(now, index, group, out);
    }

    fn bid_published(
        &mut self,
        now: Time,
        name: &QueueName,
        generation: u64,
        group: &str,
        told: (Option<Time>, Time),
        out: &mut impl Outbox,
    ) {
        let Some(index) = self.find_part(name, generation) else { return };
        let (parked_at, answered_at) = told;
        let queue = self.queues.get_mut(index);
        queue.answered_at = queue.answered_at.max(answered_at);
        let Some(group) = queue.groups.find(group) else { return };
        let entry = queue.groups.get_mut(group);
        entry.set_bid(parked_at);
        entry.set_hinted(0);
        queue.groups.note_waiting(group);
        self.wake_group(now, index, group, out);
    }
}
