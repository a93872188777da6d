//! Calls: a request in a ring, and a one-shot inbox for its answer.
//!
//! An inbox is no queue. It is an entry of this table on the shard that holds the request's ring, known by the request's seq, charged
//! like a parked pop, and gone with its answer, its timeout or its client. What comes for it later is dropped and counted.
//!
//! Invariants: a call is in the table until it is answered, timed out or cancelled, exactly one of them; every call has a deadline; a
//! request that no group was given leaves its ring with its call.

use ahash::AHashMap;

use crate::command::{DropCause, Refusal, ReplyItem};
use crate::deadlines::{DeadlineId, Kind, Owner};
use crate::ledger::Freed;
use crate::letter::Letter;
use crate::limits::LISTENING_SPAN;
use crate::name::{QueueName, Tenant};
use crate::outbox::{Answer, Outbox, Ticket};
use crate::queue::{QueueIndex, RingIndex};
use crate::seq;
use crate::shard::Shard;
use crate::time::{Span, Time};

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallIndex(u32);

const NIL: u32 = u32::MAX;

/// A home tells the other parts of a queue at most this often that a pop of any partition was answered.
const TELL_INTERVAL: Span = Span::from_secs(1);

/// Free cells kept when the table empties; a larger table gives its memory back.
const SPARE_CELLS: usize = 1_024;

/// What a call asks for beside its push.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTerms {
    pub(crate) until: Time,
    pub(crate) fail_fast: bool,
}

/// A call that waits for its answer.
#[derive(Debug)]
struct Call {
    ticket: Ticket,
    tenant: Tenant,
    /// The request's seq.
    inbox: u64,
    /// Where the request was pushed; both may be others by now, but no other ring ever holds its seq.
    queue: QueueIndex,
    ring: RingIndex,
    until: Time,
    deadline: DeadlineId,
}

enum Cell {
    Taken(Call),
    Free { next: u32 },
}

/// The table.
pub(crate) struct Calls {
    cells: Vec<Cell>,
    free: u32,
    by_inbox: AHashMap<u64, u32>,
    by_ticket: AHashMap<Ticket, u32>,
}

impl Calls {
    /// An empty table. The hashers' keys are fixed: the keys come from this process, and a run must replay.
    pub(crate) fn new() -> Self {
        let hasher = ahash::RandomState::with_seeds(5, 6, 7, 8);
        Self { cells: Vec::new(), free: NIL, by_inbox: AHashMap::with_hasher(hasher.clone()), by_ticket: AHashMap::with_hasher(hasher) }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_inbox.len()
    }

    fn is_pending(&self, inbox: u64) -> bool {
        self.by_inbox.contains_key(&inbox)
    }

    pub(crate) fn find(&self, ticket: Ticket) -> Option<CallIndex> {
        self.by_ticket.get(&ticket).copied().map(CallIndex)
    }

    /// Until when the call of a request waits; None: it is over.
    pub(crate) fn waits_until(&self, inbox: u64) -> Option<Time> {
        self.by_inbox.get(&inbox).map(|index| self.get(CallIndex(*index)).until)
    }

    fn find_inbox(&self, tenant: Tenant, inbox: u64) -> Option<CallIndex> {
        let index = *self.by_inbox.get(&inbox)?;
        (self.get(CallIndex(index)).tenant == tenant).then_some(CallIndex(index))
    }

    /// A tenant's calls.
    pub(crate) fn of_tenant(&self, tenant: Tenant) -> Vec<(CallIndex, Ticket)> {
        let of = |(index, cell): (usize, &Cell)| match cell {
            Cell::Taken(call) if call.tenant == tenant => Some((CallIndex(index as u32), call.ticket)),
            _ => None,
        };
        self.cells.iter().enumerate().filter_map(of).collect()
    }

    /// The tenant of every call.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = Tenant> {
        self.cells.iter().filter_map(|cell| if let Cell::Taken(call) = cell { Some(call.tenant) } else { None })
    }

    fn get(&self, index: CallIndex) -> &Call {
        match &self.cells[index.0 as usize] {
            Cell::Taken(call) => call,
            Cell::Free { .. } => unreachable!("an index names a call"),
        }
    }

    fn deadline_mut(&mut self, index: CallIndex) -> &mut DeadlineId {
        match &mut self.cells[index.0 as usize] {
            Cell::Taken(call) => &mut call.deadline,
            Cell::Free { .. } => unreachable!("an index names a call"),
        }
    }

    fn insert(&mut self, call: Call) -> CallIndex {
        let (inbox, ticket) = (call.inbox, call.ticket);
        let index = match self.cells.get(self.free as usize) {
            Some(Cell::Free { next }) => {
                let index = self.free;
                self.free = *next;
                self.cells[index as usize] = Cell::Taken(call);
                index
            }
            _ => {
                self.cells.push(Cell::Taken(call));
                (self.cells.len() - 1) as u32
            }
        };
        self.by_inbox.insert(inbox, index);
        self.by_ticket.insert(ticket, index);
        CallIndex(index)
    }

    fn remove(&mut self, index: CallIndex) -> Call {
        let cell = std::mem::replace(&mut self.cells[index.0 as usize], Cell::Free { next: self.free });
        self.free = index.0;
        let Cell::Taken(call) = cell else { unreachable!("an index names a call") };
        self.by_inbox.remove(&call.inbox);
        self.by_ticket.remove(&call.ticket);
        if self.by_inbox.is_empty() && self.cells.len() > SPARE_CELLS {
            *self = Self::new();
        }
        call
    }

    /// Every call is found by its inbox and by its ticket, and waits for a deadline.
    pub(crate) fn check_invariants(&self) {
        let calls = self.cells.iter().filter_map(|cell| if let Cell::Taken(call) = cell { Some(call) } else { None });
        let mut count = 0;
        for call in calls {
            assert!(self.by_inbox.contains_key(&call.inbox) && self.by_ticket.contains_key(&call.ticket), "{call:?} is found");
            assert!(call.deadline != DeadlineId::NONE, "{call:?} has a deadline");
            count += 1;
        }
        assert_eq!((count, count), (self.by_inbox.len(), self.by_ticket.len()), "only calls are found");
    }
}

impl Shard {
    /// A call's request was appended under `inbox`: it waits for its answer, already charged.
    pub(crate) fn park_call(&mut self, tenant: Tenant, ticket: Ticket, until: Time, inbox: u64, place: (QueueIndex, RingIndex)) {
        let (queue, ring) = place;
        let index = self.calls.insert(Call { ticket, tenant, inbox, queue, ring, until, deadline: DeadlineId::NONE });
        self.deadlines.arm(self.calls.deadline_mut(index), Owner::Call(index), until);
    }

    /// Takes a call out of the table, with its charge and deadline.
    fn end_call(&mut self, index: CallIndex) -> Call {
        let mut call = self.calls.remove(index);
        self.deadlines.disarm(Kind::Call, &mut call.deadline);
        self.ledger.release_waiter(self.tenants.charged(call.tenant));
        call
    }

    /// Nobody answered in time.
    pub(crate) fn call_due(&mut self, now: Time, index: CallIndex, out: &mut impl Outbox) {
        *self.calls.deadline_mut(index) = DeadlineId::NONE;
        let call = self.end_call(index);
        self.withdraw(now, call.queue, call.ring, call.inbox);
        out.answer(call.ticket, Answer::NoReply);
    }

    /// The caller hung up: its inbox is gone at once.
    pub(crate) fn cancel_call(&mut self, now: Time, index: CallIndex) {
        let call = self.end_call(index);
        self.withdraw(now, call.queue, call.ring, call.inbox);
    }

    /// Answers go to their callers. One that comes to an inbox that is gone, or is another tenant's, is dropped.
    pub(crate) fn reply(&mut self, now: Time, ticket: Ticket, tenant: Tenant, items: &[ReplyItem<'_>], out: &mut impl Outbox) {
        let mut refused = Vec::new();
        for item in items {
            let messages = 1 + u64::from(item.late_count);
            if let Err(refusal) = self.spend_answer(now, tenant, messages) {
                refused.push((item.index, refusal));
                continue;
            }
            self.ledger.dropped[DropCause::LateReply as usize] += u64::from(item.late_count);
            match self.calls.find_inbox(tenant, item.inbox) {
                Some(index) => {
                    self.ledger.count_delivered(self.tenants.charged(tenant), 1);
                    let call = self.end_call(index);
                    self.ledger.acked += 1;
                    out.reply(call.ticket, item.payload);
                    // Its request may have come back meanwhile.
                    self.withdraw(now, call.queue, call.ring, call.inbox);
                }
                None => self.ledger.dropped[DropCause::LateReply as usize] += 1,
            }
        }
        out.answer(ticket, Answer::Replied(refused));
    }

    /// Admits and counts the messages of one answer.
    fn spend_answer(&mut self, now: Time, tenant: Tenant, messages: u64) -> Result<(), Refusal> {
        let budget = self.tenants.obtain(tenant).ok_or(Refusal::TooManyTenants)?;
        budget.rate.spend(now, messages).map_err(|retry_after| Refusal::RateLimited { retry_after })?;
        self.ledger.count_pushed(budget, messages);
        Ok(())
    }

    /// An answer that this shard gave to a caller did not reach it: it was late.
    pub fn reply_lost(&mut self) {
        self.ledger.acked = self.ledger.acked.saturating_sub(1);
        self.ledger.dropped[DropCause::LateReply as usize] += 1;
    }

    /// Takes a call's request out of its ring, unless some group was given it.
    pub(crate) fn withdraw(&mut self, now: Time, index: QueueIndex, ring: RingIndex, seq: u64) {
        let Some(queue) = self.queues.find_at(index) else { return };
        let Some(entry) = queue.rings.find_at(ring) else { return };
        let Some(slot) = entry.find_held(seq).filter(|_| entry.is_untaken(seq)) else { return };
        let mut freed = Freed::default();
        let queue = self.queues.get_mut(index);
        queue.evict(ring, slot, DropCause::Withdrawn, now, &mut self.ledger, &mut freed);
        queue.release(freed, &self.ledger);
        self.after_release(now, index, ring, freed);
    }

    /// A message came back from an answer that nobody got: a request whose call is over has no reason to stay.
    pub(crate) fn withdraw_if_over(&mut self, now: Time, index: QueueIndex, ring: RingIndex, seq: u64) {
        let of_other_node = self.queues.get(index).rings.get(ring).request(seq);
        let is_own = seq::inbox_of(seq).is_some_and(|inbox| !self.calls.is_pending(inbox));
        if is_own || of_other_node.is_some_and(|request| request.is_over(now)) {
            self.withdraw(now, index, ring, seq);
        }
    }

    /// Whether anybody seems to take from a partition: a pop parked that could, a live lease, or a pop answered a moment ago.
    pub(crate) fn has_listeners(&self, now: Time, index: QueueIndex, partition: &str) -> bool {
        let queue = self.queues.get(index);
        let is_recent = |answered_at: Time| answered_at != Time(0) && now < answered_at + LISTENING_SPAN;
        // A member hears of the home's answers that late.
        let told_late = if queue.link.is_home() { Span(0) } else { TELL_INTERVAL };
        let ring = queue.rings.find(partition).map(|ring| queue.rings.get(ring));
        (queue.answered_at != Time(0) && is_recent(queue.answered_at + told_late))
            || queue.is_awaited()
            || ring.is_some_and(|ring| {
                is_recent(ring.answered_at) || ring.has_waiters() || ring.cursors.iter().any(|cursor| cursor.leased > 0)
            })
    }

    /// A pop of this partition, or of any, is being answered. A home tells the other parts now and then.
    pub(crate) fn note_answered(&mut self, now: Time, index: QueueIndex, ring: Option<RingIndex>, out: &mut impl Outbox) {
        let queue = self.queues.get_mut(index);
        if let Some(ring) = ring {
            let ring = queue.rings.get_mut(ring);
            (ring.answered_at, ring.used_at) = (now, now);
            return;
        }
        queue.answered_at = now;
        let Some(directory) = queue.link.directory_mut() else { return };
        if directory.told_at.is_some_and(|told_at| now < told_at + TELL_INTERVAL) {
            return;
        }
        directory.told_at = Some(now);
        let (members, name, generation) = (directory.members.clone(), queue.full_name(), queue.generation);
        for member in members {
            out.send(member, Letter::Answered { queue: name.clone(), generation, answered_at: now });
        }
    }

    /// The home answered a pop of any partition.
    pub(crate) fn answered_elsewhere(&mut self, name: &QueueName, generation: u64, answered_at: Time) {
        if let Some(index) = self.find_part(name, generation) {
            let queue = self.queues.get_mut(index);
            queue.answered_at = queue.answered_at.max(answered_at);
        }
    }
}
