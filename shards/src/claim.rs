//! A pop without a partition, where several shards hold parts of its queue: the home asks them what there is, then takes its pick.
//!
//! First a survey of every part, then at most one take from each that has something, in cyclic name order over all of them. Nothing is
//! taken that will not be answered, except when the client leaves or the answer is full meanwhile: that goes back free of charge.
//! Invariant: a waiter is claiming exactly while a claim for it is under way; a claim ends when all it asked have answered.

use std::cmp::Ordering;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::letter::{Claiming, Letter, TakenMessage, TakenRun};
use crate::limits::ANSWER_PAYLOAD_BYTES_MAX;
use crate::outbox::{Delivery, Outbox, Receipt, ReceiptRun, Ticket};
use crate::placement::ShardIndex;
use crate::pop::Reach;
use crate::queue::{GroupIndex, QueueIndex};
use crate::shard::Shard;
use crate::time::Time;
use crate::undeliver::Undelivered;
use crate::waiters::{WaiterIndex, WaiterState};

/// How often a pop that is not parked looks again after others took what it had seen.
const ROUNDS_MAX: u32 = 4;

/// Partition, messages.
type Offers = Vec<(Arc<str>, u64)>;

/// A claim under way.
#[derive(Debug)]
pub(crate) struct Claim {
    queue: QueueIndex,
    claimer: Claimer,
    reach: Reach,
    /// The group's name: its index may go to another group while a claim that nothing parks is under way.
    group: Arc<str>,
    after: Option<Arc<str>>,
    awaiting: usize,
    had_picks: bool,
    rounds: u32,
    offers: Vec<(ShardIndex, Offers)>,
    /// What the home's own part gives.
    own_picks: Offers,
    taken: Vec<TakenRun>,
    receipts: SmallVec<[Receipt; 1]>,
}

/// Who claims.
#[derive(Clone, Copy, Debug)]
enum Claimer {
    /// A parked pop.
    Waiter(WaiterIndex),
    /// A pop that does not wait.
    Passing { ticket: Ticket, is_gone: bool },
}

/// The order in which a pop without a partition serves: by name, beginning after the one served last.
fn cyclic_order(after: Option<&str>, one: &str, other: &str) -> Ordering {
    let has_wrapped = |name: &str| after.is_some_and(|after| name <= after);
    has_wrapped(one).cmp(&has_wrapped(other)).then_with(|| one.cmp(other))
}

impl Shard {
    /// A pop that does not wait looks for messages on every part.
    pub(crate) fn claim_passing(&mut self, now: Time, ticket: Ticket, index: QueueIndex, reach: Reach, out: &mut impl Outbox) {
        let claim = self.begin_claim(index, Claimer::Passing { ticket, is_gone: false }, reach);
        self.survey(now, claim, out);
    }

    /// The oldest pop parked on any partition looks for messages that other parts said they have.
    pub(crate) fn claim_for_waiter(&mut self, now: Time, waiter: WaiterIndex, out: &mut impl Outbox) {
        let entry = self.waiters.get_mut(waiter);
        entry.state = WaiterState::Claiming;
        let (index, reach) = (entry.queue, entry.reach());
        let claim = self.begin_claim(index, Claimer::Waiter(waiter), reach);
        let queue = self.queues.get(index);
        let sources = queue.link.directory().map(|directory| directory.sources_of(reach.group)).unwrap_or_default();
        match sources[..] {
            // Only one part has anything: no need to ask who is first.
            [source] if queue.pending(reach.group) == 0 => self.take_from(now, claim, vec![(source, Vec::new())], out),
            _ => self.survey(now, claim, out),
        }
    }

    /// A pop that would wait asks every part first, and is charged when none has anything.
    pub(crate) fn ask_before_parking(&mut self, now: Time, waiter: WaiterIndex, out: &mut impl Outbox) {
        let entry = self.waiters.get_mut(waiter);
        entry.state = WaiterState::Claiming;
        let (index, reach) = (entry.queue, entry.reach());
        let claim = self.begin_claim(index, Claimer::Waiter(waiter), reach);
        self.survey(now, claim, out);
    }

    fn begin_claim(&mut self, index: QueueIndex, claimer: Claimer, reach: Reach) -> u64 {
        let id = self.begin_conversation();
        let queue = self.queues.get_mut(index);
        let entry = queue.groups.get(reach.group);
        let (group, after) = (Arc::clone(&entry.name), entry.served_last.clone());
        if let Some(directory) = queue.link.directory_mut() {
            directory.busy_count += 1;
        }
        let claim = Claim {
            queue: index,
            claimer,
            reach,
            group,
            after,
            awaiting: 0,
            had_picks: false,
            rounds: 0,
            offers: Vec::new(),
            own_picks: Vec::new(),
            taken: Vec::new(),
            receipts: SmallVec::new(),
        };
        self.claims.insert(id, claim);
        id
    }

    fn claiming(&self, id: u64, claim: &Claim) -> Claiming {
        let queue = self.queues.get(claim.queue);
        Claiming {
            claim: id,
            queue: queue.full_name(),
            generation: queue.generation,
            group: Arc::clone(&claim.group),
            parked_at: claim.reach.age.0,
            after: claim.after.clone(),
            want: claim.reach.batch,
            auto_ack: claim.reach.auto_ack,
        }
    }

    fn survey(&mut self, now: Time, id: u64, out: &mut impl Outbox) {
        let Some(claim) = self.claims.get(&id) else { return };
        let members = self.queues.get(claim.queue).link.members();
        let claiming = self.claiming(id, claim);
        for member in &members {
            out.send(*member, Letter::Survey(Box::new(claiming.clone())));
        }
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.awaiting = members.len();
            claim.rounds += 1;
            claim.offers.clear();
        }
        if members.is_empty() {
            self.pick(now, id, out);
        }
    }

    /// On a member: what a pop of this group would be given here.
    pub(crate) fn surveyed(&mut self, now: Time, home: ShardIndex, claiming: &Claiming, out: &mut impl Outbox) {
        let found = match self.find_claimed(claiming) {
            Some((index, group)) => {
                self.note_answered(now, index, None, out);
                let reach = Reach { group, ring: None, age: (claiming.parked_at, 0), batch: claiming.want, auto_ack: claiming.auto_ack };
                let found = self.offers(index, reach, claiming.after.as_deref());
                if found.is_empty() {
                    self.queues.get_mut(index).groups.get_mut(group).set_hinted(0);
                }
                found
            }
            None => Vec::new(),
        };
        out.send(home, Letter::Surveyed { claim: claiming.claim, found });
    }

    /// The partitions with messages for a pop, in cyclic order, until it would be full.
    fn offers(&mut self, index: QueueIndex, reach: Reach, after: Option<&str>) -> Offers {
        let (mut offers, mut count, mut first) = (Vec::new(), 0, None);
        let mut last: Option<Arc<str>> = after.map(Arc::from);
        while self.is_enabled && count < reach.batch {
            let queue = self.queues.get_mut(index);
            let ring = queue.rings.following_holding(last.as_deref()).filter(|_| queue.pending(reach.group) > 0);
            // Once around.
            let Some(ring) = ring.filter(|ring| first != Some(*ring)) else { break };
            first.get_or_insert(ring);
            let queue = self.queues.get(index);
            let entry = queue.rings.get(ring);
            last = Some(Arc::clone(&entry.partition));
            let pending = entry.pending(reach.group);
            if pending > 0 && !self.is_held_by_older(index, ring, reach) {
                offers.push((Arc::clone(&entry.partition), pending));
                count += pending;
            }
        }
        offers
    }

    pub(crate) fn survey_answered(&mut self, now: Time, from: ShardIndex, id: u64, found: Offers, out: &mut impl Outbox) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        claim.awaiting -= 1;
        let (index, group, name, is_last) = (claim.queue, claim.reach.group, Arc::clone(&claim.group), claim.awaiting == 0);
        let has_nothing = found.is_empty();
        if !has_nothing {
            claim.offers.push((from, found));
        }
        if has_nothing && self.has_group(index, group, &name) {
            self.note_ready(index, group, from, 0);
        }
        if is_last {
            self.pick(now, id, out);
        }
    }

    /// A member said what it has for a group.
    fn note_ready(&mut self, index: QueueIndex, group: GroupIndex, member: ShardIndex, ready: u64) {
        if let Some(directory) = self.queues.get_mut(index).link.directory_mut() {
            directory.set_ready(group, member, ready);
        }
    }

    /// All parts have said what they have: the first in cyclic order are taken.
    fn pick(&mut self, now: Time, id: u64, out: &mut impl Outbox) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        let (index, reach, after) = (claim.queue, claim.reach, claim.after.clone());
        let (offers, name) = (std::mem::take(&mut claim.offers), Arc::clone(&claim.group));
        let own = if self.has_group(index, reach.group, &name) { self.offers(index, reach, after.as_deref()) } else { Vec::new() };
        let mut all: Vec<(ShardIndex, Arc<str>, u64)> = Vec::new();
        for (shard, offers) in offers.into_iter().chain([(self.config.index, own)]) {
            all.extend(offers.into_iter().map(|(partition, count)| (shard, partition, count)));
        }
        all.sort_by(|one, other| cyclic_order(after.as_deref(), &one.1, &other.1));
        let mut wanted = reach.batch;
        let mut picks: Vec<(ShardIndex, Offers)> = Vec::new();
        for (shard, partition, count) in all {
            let count = count.min(wanted);
            if count == 0 {
                break;
            }
            wanted -= count;
            match picks.iter_mut().find(|(of, _)| *of == shard) {
                Some((_, picks)) => picks.push((partition, count)),
                None => picks.push((shard, vec![(partition, count)])),
            }
        }
        self.take_from(now, id, picks, out);
    }

    /// Whether the queue still has the group that a claim began for.
    fn has_group(&self, index: QueueIndex, group: GroupIndex, name: &str) -> bool {
        let queue = self.queues.get(index);
        queue.exists && queue.groups.find_at(group).is_some_and(|entry| *entry.name == *name)
    }

    /// Takes the picks of each part; an empty list takes whatever comes first there.
    fn take_from(&mut self, now: Time, id: u64, mut picks: Vec<(ShardIndex, Offers)>, out: &mut impl Outbox) {
        let own = self.config.index;
        let own_picks = picks.iter().position(|(shard, _)| *shard == own).map(|position| picks.swap_remove(position).1);
        let Some(claim) = self.claims.get(&id) else { return };
        let claiming = self.claiming(id, claim);
        let awaiting = picks.len();
        for (shard, picks) in picks {
            out.send(shard, Letter::Take { claiming: Box::new(claiming.clone()), picks });
        }
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.own_picks = own_picks.unwrap_or_default();
            claim.awaiting = awaiting;
            claim.had_picks = awaiting > 0 || !claim.own_picks.is_empty();
        }
        if awaiting == 0 {
            self.finish_claim(now, id, out);
        }
    }

    /// On a member: takes messages for the home.
    pub(crate) fn take_asked(
        &mut self,
        now: Time,
        home: ShardIndex,
        claiming: &Claiming,
        picks: &[(Arc<str>, u64)],
        out: &mut impl Outbox,
    ) {
        let (mut runs, mut receipt, mut ready) = (Vec::new(), None, 0);
        if let Some((index, group)) = self.find_claimed(claiming).filter(|_| self.is_enabled) {
            self.note_answered(now, index, None, out);
            let reach = Reach { group, ring: None, age: (claiming.parked_at, 0), batch: claiming.want, auto_ack: claiming.auto_ack };
            self.queues.get_mut(index).groups.get_mut(group).served_last = claiming.after.clone();
            receipt = self.take_runs(now, index, reach, picks, &mut runs);
            let queue = self.queues.get_mut(index);
            queue.used_at = now;
            ready = queue.pending(group);
            let entry = queue.groups.get_mut(group);
            entry.used_at = now;
            entry.set_hinted(if entry.bid().is_some() { ready } else { 0 });
        }
        out.send(home, Letter::Taken { claim: claiming.claim, runs, receipt: receipt.map(Box::new), ready });
    }

    /// Takes picks of this part, or whatever comes first when there are none named.
    fn take_runs(
        &mut self,
        now: Time,
        index: QueueIndex,
        reach: Reach,
        picks: &[(Arc<str>, u64)],
        runs: &mut Vec<TakenRun>,
    ) -> Option<Receipt> {
        let mut receipt: Option<Receipt> = None;
        let mut take = |shard: &mut Self, reach: Reach| {
            let taken = shard.take(now, index, reach, |partition, given| {
                let message = TakenMessage {
                    seq: given.seq,
                    delivery: given.delivery,
                    attempts: given.attempts,
                    payload: Arc::clone(&given.payload),
                    inbox: given.request.map(|request| request.inbox),
                };
                match runs.last_mut().filter(|run| run.partition == *partition) {
                    Some(run) => run.messages.push(message),
                    None => runs.push(TakenRun { partition: Arc::clone(partition), messages: vec![message] }),
                }
            });
            match (&mut receipt, taken) {
                (Some(receipt), Some(more)) => receipt.runs.extend(more.runs),
                (receipt, Some(taken)) => *receipt = Some(taken),
                (_, None) => {}
            }
        };
        if picks.is_empty() {
            take(self, reach);
        }
        for (partition, count) in picks {
            if let Some(ring) = self.queues.get(index).rings.find(partition) {
                take(self, Reach { ring: Some(ring), batch: *count, ..reach });
            }
        }
        receipt
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one letter")]
    pub(crate) fn take_answered(
        &mut self,
        now: Time,
        from: ShardIndex,
        id: u64,
        runs: Vec<TakenRun>,
        receipt: Option<Box<Receipt>>,
        ready: u64,
        out: &mut impl Outbox,
    ) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        claim.awaiting -= 1;
        claim.taken.extend(runs);
        claim.receipts.extend(receipt.map(|receipt| *receipt));
        let (index, group, name, is_last) = (claim.queue, claim.reach.group, Arc::clone(&claim.group), claim.awaiting == 0);
        if self.has_group(index, group, &name) {
            self.note_ready(index, group, from, ready);
        }
        if is_last {
            self.finish_claim(now, id, out);
        }
    }

    /// All that was asked for has come: answers the claimer, or gives everything back.
    fn finish_claim(&mut self, now: Time, id: u64, out: &mut impl Outbox) {
        let Some(mut claim) = self.claims.remove(&id) else { return };
        let (index, reach, name) = (claim.queue, claim.reach, Arc::clone(&claim.group));
        if !self.is_enabled {
            claim.taken.clear();
            self.give_all_back(now, std::mem::take(&mut claim.receipts), out);
        } else if self.has_group(index, reach.group, &name) && !claim.own_picks.is_empty() {
            let own_picks = std::mem::take(&mut claim.own_picks);
            let receipt = self.take_runs(now, index, reach, &own_picks, &mut claim.taken);
            claim.receipts.extend(receipt);
        }
        if claim.taken.is_empty() && claim.may_look_again() && self.wants_to_look_again(now, claim.claimer) {
            self.claims.insert(id, claim);
            return self.survey(now, id, out);
        }
        if let Some(directory) = self.queues.get_mut(index).link.directory_mut() {
            directory.busy_count -= 1;
        }
        match claim.claimer {
            Claimer::Passing { is_gone: true, .. } => self.give_all_back(now, claim.receipts, out),
            Claimer::Passing { ticket, .. } => self.answer_claim(now, ticket, claim, out),
            Claimer::Waiter(waiter) => self.end_waiter_claim(now, waiter, claim, out),
        }
        if self.has_group(index, reach.group, &name) {
            self.wake_group(now, index, reach.group, out);
        }
        self.reap(index, out);
    }

    /// Whether a claimer would rather look again than be told that there is nothing: one that is not parked, and still there.
    fn wants_to_look_again(&self, now: Time, claimer: Claimer) -> bool {
        match claimer {
            Claimer::Passing { is_gone, .. } => !is_gone,
            Claimer::Waiter(waiter) => {
                let entry = self.waiters.get(waiter);
                !entry.is_charged && entry.state == WaiterState::Claiming && now < entry.until
            }
        }
    }

    fn end_waiter_claim(&mut self, now: Time, waiter: WaiterIndex, claim: Claim, out: &mut impl Outbox) {
        let entry = self.waiters.get_mut(waiter);
        let (ticket, index) = (entry.ticket, entry.queue);
        let (is_gone, is_timeout) = (entry.state == WaiterState::Gone, entry.until <= now);
        if is_gone {
            self.unpark(now, waiter);
            return self.give_all_back(now, claim.receipts, out);
        }
        if !claim.taken.is_empty() {
            self.unpark(now, waiter);
            return self.answer_claim(now, ticket, claim, out);
        }
        if is_timeout {
            self.unpark(now, waiter);
            return self.answer_empty(now, ticket, index, None, out);
        }
        if entry.state == WaiterState::Leaving {
            return self.move_waiter(now, waiter, out);
        }
        if !entry.is_charged
            && let Err(refusal) = self.ledger.charge_waiter(&self.queues.get(index).budget)
        {
            self.unpark(now, waiter);
            return self.refuse(ticket, refusal, out);
        }
        let entry = self.waiters.get_mut(waiter);
        entry.is_charged = true;
        entry.state = WaiterState::Parked;
        let at = entry.until.min(entry.window_until.max(now));
        self.deadlines.arm_no_later(&mut entry.deadline, crate::deadlines::Owner::Waiter(waiter), at);
    }

    fn give_all_back(&mut self, now: Time, receipts: impl IntoIterator<Item = Receipt>, out: &mut impl Outbox) {
        for receipt in receipts {
            self.take_answer_back(now, receipt, Undelivered::Unsent, out);
        }
    }

    /// Answers with what was taken, in cyclic order; what the answer cannot hold goes back.
    fn answer_claim(&mut self, now: Time, ticket: Ticket, claim: Claim, out: &mut impl Outbox) {
        let Claim { queue: index, reach, group, after, mut taken, receipts, .. } = claim;
        taken.sort_by(|one, other| cyclic_order(after.as_deref(), &one.partition, &other.partition));
        self.note_answered(now, index, None, out);
        let name = Arc::clone(&self.queues.get(index).name);
        out.begin_delivery(ticket, &name);
        let (mut bytes, mut excess, mut served_last) = (0, Vec::new(), None);
        for run in &taken {
            for message in &run.messages {
                let size = message.payload.len();
                if !excess.is_empty() || (bytes > 0 && bytes + size > ANSWER_PAYLOAD_BYTES_MAX) {
                    excess.push(message.seq);
                    continue;
                }
                bytes += size.max(1);
                served_last = Some(Arc::clone(&run.partition));
                let TakenMessage { seq, delivery, attempts, payload, inbox } = message;
                let (partition, seq, delivery, attempts, inbox) = (&*run.partition, *seq, *delivery, *attempts, *inbox);
                out.message(Delivery { partition, seq, delivery, attempts, payload, inbox });
            }
        }
        if served_last.is_some() && self.has_group(index, reach.group, &group) {
            self.queues.get_mut(index).groups.get_mut(reach.group).served_last = served_last;
        }
        let (kept, returned) = split_receipts(receipts, &excess);
        out.end_delivery(kept);
        self.give_all_back(now, returned, out);
    }

    /// The client of a claiming pop that does not wait hung up.
    pub(crate) fn cancel_claim(&mut self, of: Ticket) -> bool {
        for claim in self.claims.values_mut() {
            if let Claimer::Passing { ticket, is_gone } = &mut claim.claimer
                && *ticket == of
            {
                *is_gone = true;
                return true;
            }
        }
        false
    }
}

impl Claim {
    /// Whether others took all that it had seen.
    fn may_look_again(&self) -> bool {
        self.had_picks && self.rounds < ROUNDS_MAX
    }
}

/// Receipts without the messages of `excess`, and receipts of those alone.
fn split_receipts(receipts: SmallVec<[Receipt; 1]>, excess: &[u64]) -> (SmallVec<[Receipt; 1]>, Vec<Receipt>) {
    if excess.is_empty() {
        return (receipts, Vec::new());
    }
    let only = |receipt: &Receipt, wanted: bool| {
        let runs = receipt.runs.iter().map(|run| ReceiptRun {
            partition: Arc::clone(&run.partition),
            messages: run.messages.iter().filter(|message| excess.contains(&message.seq) == wanted).cloned().collect(),
        });
        Receipt { runs: runs.filter(|run| !run.messages.is_empty()).collect(), ..receipt.clone() }
    };
    let returned = receipts.iter().map(|receipt| only(receipt, true)).filter(|receipt| !receipt.runs.is_empty()).collect();
    (receipts.iter().map(|receipt| only(receipt, false)).filter(|receipt| !receipt.runs.is_empty()).collect(), returned)
}
