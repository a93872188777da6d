//! How a delivery ends: ack, nack, lease end, an answer taken back.

use mayfly_shards::{Answer, Outcome, Verdict};

use super::Model;
use super::queue::{State, Why};
use crate::facts::{Item, Name, Seen};

impl Model {
    pub(super) fn ack(&mut self, ticket: u64, name: &Name, group: &str, items: &[Item]) {
        let now = self.now;
        let at = self.find_existing(name);
        if let Some(at) = at {
            self.queues[at].used_at = now;
            self.queues[at].group_mut(group).into_iter().for_each(|g| g.busy_at = now);
        }
        let mut outcomes = vec![];
        for (index, item) in items.iter().enumerate() {
            let outcome = at.map_or(Outcome::Unknown, |at| self.settle(at, group, item));
            outcomes.push((index as u32, outcome));
        }
        self.answer(ticket, Answer::Acked(outcomes));
        // CHOICE: parked pops are woken after the whole call, so that messages nacked together come back in order.
        self.serve_waiters();
    }

    fn settle(&mut self, at: usize, group: &str, item: &Item) -> Outcome {
        let queue = &self.queues[at];
        let message = item.id.and_then(|id| queue.message(id)).filter(|m| m.partition == item.partition);
        let (Some(id), Some(group_found)) = (message.map(|m| m.id), queue.group(group)) else { return Outcome::Unknown };
        let (attempts, latest, why) = match group_found.states[&id] {
            State::Leased { attempts, delivery, .. } => (attempts, delivery, None),
            State::Back { attempts, delivery, why } => (attempts, delivery, Some(why)),
            // CHOICE: settled wins over stale: once a message is settled, the ack of any of its deliveries is unknown.
            State::Unread | State::Settled { .. } => return Outcome::Unknown,
        };
        if item.delivery < latest {
            return Outcome::Stale;
        }
        // CHOICE: a delivery that never was is unknown; so is one that was nacked before (a delivery is answered once), and one whose
        // answer did not reach its client.
        if item.delivery > latest || matches!(why, Some(Why::Nacked | Why::Returned)) {
            return Outcome::Unknown;
        }
        if item.verdict == Verdict::Completed {
            self.set_state(at, group, id, State::Settled { delivery: latest });
            self.queues[at].free_settled();
            return Outcome::Acked;
        }
        if why.is_some() {
            // Late: it came back already, and was charged for it.
            self.set_state(at, group, id, State::Back { attempts, delivery: latest, why: Why::Nacked });
            return Outcome::Redelivered;
        }
        self.charge(at, group, id, latest, Why::Nacked);
        self.queues[at].free_settled();
        let is_back = self.queues[at].group(group).and_then(|g| g.states.get(&id)).is_some_and(|s| matches!(s, State::Back { .. }));
        if is_back { Outcome::Redelivered } else { Outcome::Acked }
    }

    /// A live delivery failed: back with one attempt more, or dropped for the group and counted.
    pub(super) fn charge(&mut self, at: usize, group: &str, id: u64, delivery: u32, why: Why) {
        let state = self.queues[at].group(group).and_then(|g| g.states.get(&id)).copied();
        let Some(State::Leased { attempts, delivery: latest, .. }) = state else { return };
        if latest != delivery {
            return;
        }
        if attempts >= self.queues[at].options.attempts_max() {
            // CHOICE: counted once for every group that gives up on it.
            self.queues[at].drops[2] += 1;
            self.set_state(at, group, id, State::Settled { delivery });
        } else {
            self.set_state(at, group, id, State::Back { attempts: attempts + 1, delivery, why });
        }
    }

    /// A leased message of which the client saw nothing: back with the attempts it had.
    pub(super) fn return_leased(&mut self, at: usize, group: &str, seen: &Seen) {
        let state = self.queues[at].group(group).and_then(|g| g.states.get(&seen.id)).copied();
        let is_this_delivery = match state {
            Some(State::Leased { delivery, .. }) => delivery == seen.delivery,
            // CHOICE: free of charge also when its lease ran out before the break was noticed.
            Some(State::Back { delivery, why, .. }) => delivery == seen.delivery && why == Why::LeaseEnded,
            _ => false,
        };
        if is_this_delivery {
            self.set_state(at, group, seen.id, State::Back { attempts: seen.attempts, delivery: seen.delivery, why: Why::Returned });
        }
    }

    /// A message settled at delivery of which the client saw nothing: back for this group alone, in its place, beyond any bound.
    ///
    /// CHOICE: one that is older than the ttl by now comes back all the same, and is dropped at once, counted.
    pub(super) fn return_settled(&mut self, at: usize, group: &str, seen: &Seen) {
        let queue = &mut self.queues[at];
        if let Some(index) = queue.settled.iter().position(|m| m.id == seen.id) {
            let message = queue.settled.remove(index);
            let place = queue.messages.partition_point(|m| m.id < message.id);
            queue.partitions.insert(message.partition.clone());
            queue.messages.insert(place, message);
        }
        let state = self.queues[at].group(group).and_then(|g| g.states.get(&seen.id)).copied();
        if state == Some(State::Settled { delivery: seen.delivery }) {
            self.set_state(at, group, seen.id, State::Back { attempts: seen.attempts, delivery: seen.delivery, why: Why::Returned });
        }
    }

    fn set_state(&mut self, at: usize, group: &str, id: u64, state: State) {
        self.queues[at].group_mut(group).into_iter().for_each(|g| _ = g.states.insert(id, state));
    }
}
