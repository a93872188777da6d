//! Pop, parked pops, windows, and answers that are taken back.

use mayfly_shards::{Answer, Refusal, Span, Time, WAITER_OVERHEAD_BYTES};

use super::Model;
use super::queue::{Group, Queue, Why};
use crate::facts::{Ask, Broken, Fact, Name, Said, Seen};

/// A parked pop.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(super) ticket: u64,
    pub(super) queue: Name,
    pub(super) group: String,
    pub(super) partition: Option<String>,
    pub(super) batch: u32,
    pub(super) wait_until: Time,
    pub(super) auto_ack: bool,
    /// When its window closes by `ms`: set when it first sees a message it could take. CHOICE: by the options in force at that moment;
    /// a window that closes on nothing (another took what it saw) is over, and the next message opens a new one.
    pub(super) closes_at: Option<Time>,
}

/// A delivery that may yet be taken back.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    ticket: u64,
    pub(super) queue: Name,
    pub(super) queue_life: u64,
    pub(super) group: String,
    /// Lives begun when it was delivered.
    lives: u64,
    at: Time,
    pub(super) auto_ack: bool,
    pub(super) messages: Vec<Seen>,
}

impl Model {
    pub(super) fn pop(&mut self, ticket: u64, ask: &Ask) {
        let Ask::Pop { queue: name, partition, group, batch, wait_until, auto_ack } = ask else { return };
        let before = self.clone();
        let is_new = self.find_existing(name).is_none();
        let at = self.make(name);
        if let Err(refusal) = self.register(at, group) {
            *self = before;
            return self.answer(ticket, Answer::Refused(refusal));
        }
        let now = self.now;
        let queue = &mut self.queues[at];
        queue.partitions.extend(partition.clone());
        queue.group_mut(group).into_iter().for_each(|g| g.busy_at = now);
        let waiter = Waiter {
            ticket,
            queue: name.clone(),
            group: group.clone(),
            partition: partition.clone(),
            batch: *batch,
            wait_until: wait_until.unwrap_or(now),
            auto_ack: *auto_ack,
            closes_at: None,
        };
        let ready = self.queues[at].ready(group, partition.as_deref());
        let waits = waiter.wait_until > now;
        // CHOICE: a waiting pop needs room to wait unless it finds messages and nobody else of its group waits and no window is set. One
        // that would have to make its queue, or to wait, past the node's bytes is refused, not answered empty.
        let is_alone = !self.waiters.iter().any(|w| w.queue == *name && w.group == *group);
        let needs_room = waits && (!self.is_enabled || ready.is_empty() || !is_alone || self.queues[at].options.is_windowed());
        let needed_bytes = if needs_room { WAITER_OVERHEAD_BYTES } else { 0 };
        if let Err(refusal) = before.check_tenant(name, 0, u64::from(needs_room)) {
            *self = before;
            return self.answer(ticket, Answer::Refused(refusal));
        }
        if (is_new || needs_room) && self.used_bytes() + needed_bytes > self.settings.node_bytes {
            *self = before;
            return self.answer(ticket, Answer::Refused(Refusal::NodeBytes));
        }
        if waits {
            self.waiters.push(waiter);
            self.serve_waiters();
        } else {
            // Nothing is held back from a plain pop, not even what a window gathers.
            let given: &[u64] = if self.is_enabled { &ready } else { &[] };
            self.give(&waiter, given);
        }
    }

    /// Answers a pop with what it can take now, if only with nothing.
    fn give(&mut self, waiter: &Waiter, ready: &[u64]) {
        let Some(at) = self.find(&waiter.queue) else { return };
        let queue = &mut self.queues[at];
        let taken = queue.fitting(ready, waiter.batch);
        let mut messages = queue.deliver(&waiter.group, &taken, waiter.auto_ack, self.now);
        messages.iter_mut().for_each(|seen| seen.is_call = self.call_requests.contains(&seen.id));
        queue.answered.insert(waiter.partition.clone(), self.now);
        let (queue_life, tenant) = (queue.life, queue.name.tenant);
        let Some(group) = queue.group_mut(&waiter.group) else { return };
        if let (None, Some(last)) = (&waiter.partition, messages.last()) {
            group.served_last = Some(last.partition.clone());
        }
        self.delivered.push((tenant, messages.len() as u64));
        if !messages.is_empty() {
            self.handed.push(Handed {
                ticket: waiter.ticket,
                queue: waiter.queue.clone(),
                queue_life,
                group: waiter.group.clone(),
                lives: self.lives,
                at: self.now,
                auto_ack: waiter.auto_ack,
                messages: messages.clone(),
            });
        }
        self.said.push(Fact { ticket: waiter.ticket, said: Said::Messages { queue: waiter.queue.queue.clone(), messages } });
    }

    /// Answers every parked pop that is to be answered now, the longest parked first, and notes which windows stay open.
    ///
    /// A pop that holds a window keeps what it sees from the later pops of its group: they wait behind it. CHOICE: a holder that asks
    /// for one partition keeps only that one from them.
    pub(super) fn serve_waiters(&mut self) {
        while let Some((index, ready)) = self.next_to_answer() {
            let waiter = self.waiters.remove(index);
            self.give(&waiter, &ready);
        }
    }

    /// The first parked pop that is to be answered now, and with what. A pop whose time is up is answered with what is there for it.
    /// CHOICE: what an older pop's window holds is not there for it.
    fn next_to_answer(&mut self) -> Option<(usize, Vec<u64>)> {
        self.windows_close_at.clear();
        // CHOICE: no window opens meanwhile; one that is open goes on.
        if !self.is_enabled {
            return None;
        }
        let mut holders: Vec<Waiter> = vec![];
        for index in 0..self.waiters.len() {
            let (now, waiter) = (self.now, &mut self.waiters[index]);
            let Some(queue) = self.queues.iter().find(|q| q.name == waiter.queue) else { continue };
            let is_held = |partition: &str| {
                let mut rivals = holders.iter().filter(|h| h.queue == waiter.queue && h.group == waiter.group);
                rivals.any(|h| h.partition.as_deref().is_none_or(|p| p == partition))
            };
            let mut ready = queue.ready(&waiter.group, waiter.partition.as_deref());
            ready.retain(|&id| queue.message(id).is_some_and(|m| !is_held(&m.partition)));
            if !ready.is_empty() {
                let window = queue.options.window;
                if window.ms > 0 && waiter.closes_at.is_none() {
                    waiter.closes_at = Some(now + Span::from_millis(u64::from(window.ms)));
                }
                let is_complete = !queue.options.is_windowed()
                    || ready.len() >= waiter.batch as usize
                    || (window.count > 0 && ready.len() >= window.count as usize)
                    || waiter.closes_at.is_some_and(|at| at <= now)
                    || waiter.wait_until <= now;
                if is_complete {
                    return Some((index, ready));
                }
                self.windows_close_at.extend(waiter.closes_at);
                holders.push(waiter.clone());
            }
        }
        None
    }

    /// Pops whose time is up and for which nothing is there answer with nothing.
    pub(super) fn time_out(&mut self) {
        let (over, parked): (Vec<Waiter>, Vec<Waiter>) = self.waiters.drain(..).partition(|w| w.wait_until <= self.now);
        self.waiters = parked;
        over.iter().for_each(|waiter| self.give(waiter, &[]));
        let is_over = |at: &Time| *at <= self.now;
        self.waiters.iter_mut().filter(|w| w.closes_at.as_ref().is_some_and(is_over)).for_each(|w| w.closes_at = None);
        self.serve_waiters();
    }

    /// The connection of an answer broke: what it carried goes back where it came from, as far as it is still this delivery's.
    pub(crate) fn undeliver(&mut self, now: Time, ticket: u64, broken: Broken) -> Vec<Fact> {
        self.reach(now);
        let Some(index) = self.handed.iter().position(|h| h.ticket == ticket) else { return self.finish() };
        let handed = self.handed.remove(index);
        // CHOICE: a queue reset or made anew since, or a group forgotten since, voids the return.
        let at = self.find(&handed.queue).filter(|&at| self.queues[at].life == handed.queue_life);
        let at = at.filter(|&at| self.queues[at].group(&handed.group).is_some());
        if let Some(at) = at {
            for seen in &handed.messages {
                match (handed.auto_ack, broken) {
                    (false, Broken::Unsent) => self.return_leased(at, &handed.group, seen),
                    (false, Broken::Partly) => self.charge(at, &handed.group, seen.id, seen.delivery, Why::Returned),
                    (true, Broken::Unsent) => self.return_settled(at, &handed.group, seen),
                    (true, Broken::Partly) => {}
                }
            }
            self.queues[at].free_settled();
            // CHOICE: what comes back and goes at once was held for that moment.
            self.note_busy();
            handed.messages.iter().for_each(|seen| self.withdraw_if_over(seen.id));
            self.note_busy();
            self.drop_expired(self.now);
            self.serve_waiters();
        }
        self.finish()
    }

    /// Tickets of the deliveries that may yet be taken back.
    ///
    /// Left out is what SPEC.md leaves open: whether a message that was settled at delivery returns when bounds or ttl dropped it for
    /// the other groups since, or when its partition has been idle long enough to be given up; whether a group that came between its
    /// delivery and its return sees it; and what returns to a group that was forgotten and came anew.
    pub(crate) fn undeliverable(&self) -> Vec<u64> {
        let idle = self.settings.implicit_idle;
        let is_old = |h: &Handed| h.auto_ack && idle > Span(0) && self.now.since(h.at) >= idle;
        let is_newer = |h: &Handed, g: &Group| g.life > h.lives && (h.auto_ack || g.name == h.group);
        let is_dropped = |h: &Handed, q: &Queue| h.auto_ack && h.messages.iter().any(|m| q.dropped.contains(&m.id));
        let is_open = |h: &Handed, q: &Queue| is_old(h) || q.groups.iter().any(|g| is_newer(h, g)) || is_dropped(h, q);
        let is_clear = |h: &&Handed| self.find(&h.queue).is_none_or(|at| !is_open(h, &self.queues[at]));
        self.handed.iter().filter(is_clear).map(|h| h.ticket).collect()
    }

    /// The node that gave the answers is another by now.
    pub(super) fn forget_handed(&mut self) {
        self.handed.clear();
    }

    /// The socket took all of an answer: only ack or lease end decide from now on.
    pub(crate) fn sent(&mut self, ticket: u64) {
        self.handed.retain(|h| h.ticket != ticket);
    }

    /// Tickets of parked pops, longest parked first, and of calls.
    pub(crate) fn parked(&self) -> Vec<u64> {
        self.waiters.iter().map(|w| w.ticket).chain(self.calls.iter().map(|call| call.ticket)).collect()
    }
}
