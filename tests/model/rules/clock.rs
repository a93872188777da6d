//! What time does: ttl, lease ends, windows, timeouts, collection. Found by scanning everything that has a deadline.
//!
//! A deadline is met when `now` has reached it. CHOICE: what is found due together happens in the order of [`Model::reach`]: first
//! everything that drops messages or brings them back, in order of its time, ttl before a lease that ends at the same moment; then
//! calls end, and take back what nobody took; then pops are answered; then queues are collected. So nothing expired is delivered, and
//! a message that comes back by a pop's timeout is still given to it.

use mayfly_shards::{DropCause, Span, Time};

use super::Model;
use super::queue::{Queue, State, Why};

impl Model {
    /// Carries out everything due at `now`.
    pub(super) fn reach(&mut self, now: Time) {
        self.now = now;
        self.note_busy();
        while let Some(at) = self.queues.iter().flat_map(message_deadlines).min().filter(|&at| at <= now) {
            self.drop_expired(at);
            self.end_leases(at);
        }
        self.time_out_calls();
        self.serve_waiters();
        self.time_out();
        self.forget_departed();
        self.note_busy();
        self.collect_idle();
        self.forget_ghosts();
    }

    /// The earliest deadline of all. It may lie in the past until [`Model::expire`].
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let timeouts = self.waiters.iter().map(|w| w.wait_until).chain(self.calls.iter().map(|call| call.until));
        let of_messages = self.queues.iter().flat_map(message_deadlines);
        let of_queues = self.queues.iter().filter_map(|q| self.collected_at(q));
        let departures = self.departures.iter().map(|(at, ..)| *at);
        timeouts.chain(departures).chain(self.windows_close_at.iter().copied()).chain(of_messages).chain(of_queues).min()
    }

    /// ttl: for everybody, leased or not, counted once.
    pub(super) fn drop_expired(&mut self, now: Time) {
        for queue in &mut self.queues {
            for message in queue.messages.clone() {
                if expires_at(queue, message.pushed_at).is_some_and(|at| at <= now) {
                    queue.drop_counted(message.id, 1);
                }
            }
        }
    }

    fn end_leases(&mut self, now: Time) {
        for at in 0..self.queues.len() {
            for group in self.queues[at].groups.clone() {
                for (id, state) in group.states {
                    if let State::Leased { until, delivery, .. } = state
                        && until <= now
                    {
                        self.charge(at, &group.name, id, delivery, Why::LeaseEnded);
                    }
                }
            }
            self.queues[at].free_settled();
        }
    }

    /// Private groups whose subscriber left long enough ago go. CHOICE: one that has a pop parked is looked at again in a second.
    fn forget_departed(&mut self) {
        let (due, waiting): (Vec<_>, Vec<_>) = self.departures.drain(..).partition(|(at, ..)| *at <= self.now);
        self.departures = waiting;
        for (_, name, group) in due {
            let Some(at) = self.find(&name).filter(|&at| self.queues[at].group(&group).is_some()) else { continue };
            if self.waiters.iter().any(|w| w.queue == name && w.group == group) {
                self.departures.push((self.now + Span::from_secs(1), name, group));
                continue;
            }
            let queue = &mut self.queues[at];
            let unread = queue.group(&group).map_or(0, |g| queue.messages.iter().filter(|m| g.is_pending(m.id)).count());
            self.ended[DropCause::GroupIdle as usize] += unread as u64;
            queue.forget_group(&group);
        }
    }

    fn collect_idle(&mut self) {
        let is_due = |model: &Self, at: usize| model.collected_at(&model.queues[at]).is_some_and(|at| at <= model.now);
        while let Some(at) = (0..self.queues.len()).find(|&at| is_due(self, at)) {
            // CHOICE: nobody can use a queue while the family is off, so none is idle then.
            if !self.is_enabled {
                self.queues[at].used_at = self.now;
                continue;
            }
            self.write_off(at, DropCause::Abandoned);
            self.queues.remove(at);
        }
    }

    /// When an implicit queue is collected, if nothing happens until then.
    ///
    /// CHOICE: "without message, parked pop, and any push, pop, ack, reset for S" is read as: for S on end there was none of these,
    /// so the clock runs from the moment the last message went or the last pop was no longer parked. That moment counts for a queue
    /// that holds messages again, too (an answer was taken back).
    fn collected_at(&self, queue: &Queue) -> Option<Time> {
        if !queue.exists || queue.declared || self.waiters.iter().any(|w| w.queue == queue.name) {
            return None;
        }
        let span = if queue.messages.is_empty() { self.settings.implicit_idle } else { self.settings.abandoned };
        Some(queue.used_at.max(queue.emptied_at) + span).filter(|_| span > Span(0))
    }

    /// Writes down what is in use at this moment.
    pub(super) fn note_busy(&mut self) {
        let now = self.now;
        for queue in &mut self.queues {
            let is_parked = |group: Option<&str>| self.waiters.iter().any(|w| w.queue == queue.name && group.is_none_or(|g| g == w.group));
            if is_parked(None) {
                queue.used_at = now;
            }
            if !queue.messages.is_empty() {
                queue.is_holding = true;
            } else if std::mem::take(&mut queue.is_holding) {
                queue.emptied_at = now;
            }
            let busy: Vec<bool> = queue.groups.iter().map(|g| is_parked(Some(&g.name)) || g.has_work_out()).collect();
            for (group, is_busy) in queue.groups.iter_mut().zip(busy) {
                group.busy_at = if is_busy { now } else { group.busy_at };
            }
        }
    }
}

/// When ttl or a lease end next touches each message.
fn message_deadlines(queue: &Queue) -> Vec<Time> {
    let mut all: Vec<Time> = queue.messages.iter().filter_map(|m| expires_at(queue, m.pushed_at)).collect();
    for state in queue.groups.iter().flat_map(|g| g.states.values()) {
        if let State::Leased { until, .. } = *state {
            all.push(until);
        }
    }
    all
}

fn expires_at(queue: &Queue, pushed_at: Time) -> Option<Time> {
    let ttl = queue.options.ttl_seconds;
    (ttl > 0).then(|| pushed_at + Span::from_secs(ttl))
}
