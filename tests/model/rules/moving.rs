//! A move: everything goes to another node, and goes on there.
//!
//! It cannot be seen, but for this: what was leased comes back with one attempt more, ids of before are stale, and what is counted for the
//! node (drops, skipped messages) begins anew.

use mayfly_shards::Time;

use super::Model;
use super::call::Call;
use super::queue::{State, Why};
use crate::facts::Fact;

impl Model {
    /// Everything moves at `now`.
    pub(crate) fn relocate(&mut self, now: Time) -> Vec<Fact> {
        self.reach(now);
        for queue in &mut self.queues {
            (0..3).for_each(|cause| self.ended[cause] += std::mem::take(&mut queue.drops[cause]));
            queue.settled.clear();
            for group in &mut queue.groups {
                group.skipped = 0;
                // CHOICE: fairness begins anew.
                group.served_last = None;
                for state in group.states.values_mut() {
                    // Used up or not: the move does not count against retryLimit.
                    *state = match *state {
                        State::Leased { attempts, delivery, .. } => State::Back { attempts: attempts + 1, delivery, why: Why::Returned },
                        State::Back { attempts, delivery, .. } => State::Back { attempts, delivery, why: Why::Returned },
                        state => state,
                    };
                }
            }
        }
        // CHOICE: what stays parked over a deletion asks anew at the new node, and so makes the queue there.
        for queue in self.queues.iter_mut().filter(|queue| !queue.exists) {
            let waiters = &self.waiters;
            queue.exists = true;
            queue.used_at = now;
            queue.answered.clear();
            queue.groups.retain(|g| waiters.iter().any(|w| w.queue == queue.name && w.group == g.name));
        }
        self.waiters.iter_mut().for_each(|waiter| waiter.closes_at = None);
        self.calls.iter_mut().for_each(|call| call.is_moved = true);
        self.forget_handed();
        self.serve_waiters();
        self.finish()
    }

    /// Everything was to move, and stays: pops that were told to ask elsewhere ask here again.
    pub(crate) fn call_off(&mut self, now: Time) -> Vec<Fact> {
        self.reach(now);
        for queue in self.queues.iter_mut().filter(|queue| !queue.exists) {
            let waiters = &self.waiters;
            queue.exists = true;
            queue.used_at = now;
            queue.answered.clear();
            queue.groups.retain(|g| waiters.iter().any(|w| w.queue == queue.name && w.group == g.name));
        }
        self.waiters.iter_mut().for_each(|waiter| waiter.closes_at = None);
        self.serve_waiters();
        self.finish()
    }

    /// CHOICE: the node that has the request hears nothing of its call: what nobody takes of it goes when the call would have timed out.
    /// Whether the request is on another node than the call.
    pub(super) fn leave_behind(&mut self, call: &Call) -> bool {
        if call.is_moved {
            self.left_behind.push((call.id, call.until));
        }
        call.is_moved
    }

    pub(super) fn withdraw_left_behind(&mut self) {
        let (over, waiting): (Vec<_>, Vec<_>) = self.left_behind.drain(..).partition(|(_, until)| *until <= self.now);
        self.left_behind = waiting;
        over.into_iter().for_each(|(id, _)| self.withdraw(id));
    }
}
