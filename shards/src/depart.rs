//! Private groups whose subscriber left: each is forgotten with all that it held up, [`DEPARTURE_SPAN`] later, also as the last group.
//!
//! Only a queue's home hears of a departure; it tells the members. The span outlasts every hop between cores by far, so whatever of the
//! subscriber's was under way when it left (a pop that made its group known, an answer that comes back) is there before the group goes.
//!
//! Invariant: a group goes from every part, or none: one that is still in use on the home is looked at again later.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::Freed;
use crate::letter::Order;
use crate::limits::DEPARTURE_SPAN;
use crate::name::{QueueName, Tenant};
use crate::outbox::Outbox;
use crate::queue::QueueIndex;
use crate::shard::Shard;
use crate::time::{Span, Time};

/// When a group that could not go yet is looked at again.
const LOOK_AGAIN: Span = Span::from_secs(1);

/// Who left, by when the group is to go.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    waiting: BTreeMap<(Time, u64), Departure>,
    noted_ever: u64,
}

/// A private group without its subscriber.
#[derive(Debug)]
pub(crate) struct Departure {
    queue: QueueName,
    group: Arc<str>,
}

impl Departures {
    fn note(&mut self, at: Time, departure: Departure) {
        self.noted_ever += 1;
        self.waiting.insert((at, self.noted_ever), departure);
    }

    /// When the next group is to go.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next group whose time has come.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Departure> {
        self.next_at().filter(|at| *at <= now)?;
        self.waiting.pop_first().map(|(_, departure)| departure)
    }
}

impl Shard {
    pub(crate) fn leave(&mut self, now: Time, tenant: Tenant, queue: &str, group: &str) {
        let departure = Departure { queue: QueueName { tenant, name: queue.into() }, group: group.into() };
        self.departures.note(now + DEPARTURE_SPAN, departure);
    }

    pub(crate) fn forget_departed(&mut self, now: Time, departure: Departure, out: &mut impl Outbox) {
        let Some(index) = self.queues.find(departure.queue.tenant, &departure.queue.name) else { return };
        let queue = self.queues.get(index);
        let Some(group) = queue.groups.find(&departure.group).map(|group| queue.groups.get(group)) else { return };
        let is_busy = queue.link.directory().is_some_and(|directory| directory.busy_count > 0);
        if is_busy || queue.link.holds_back() || group.waiting > 0 || group.is_spreading() {
            return self.departures.note(now + LOOK_AGAIN, departure);
        }
        let members = queue.link.members();
        self.order(index, 0, &Order::DropGroup(Arc::clone(&departure.group)), &members, out);
        self.drop_group(now, index, &departure.group);
    }

    /// Forgets a private group on this part: what only it had not read is freed.
    pub(crate) fn drop_group(&mut self, now: Time, index: QueueIndex, name: &str) {
        let queue = self.queues.get_mut(index);
        let Some(group) = queue.groups.find(name).filter(|group| queue.groups.get(*group).waiting == 0) else { return };
        if let Some(directory) = queue.link.directory_mut() {
            directory.ready.retain(|(of, _, _)| *of != group);
        }
        let holding: Vec<_> = queue.rings.iter().filter(|(_, ring)| ring.held > 0).map(|(ring, _)| ring).collect();
        let mut freed = Freed::default();
        queue.remove_group(group, &mut self.ledger, &mut freed);
        queue.release(freed, &self.ledger);
        for ring in holding {
            if self.queues.get(index).rings.get(ring).held == 0 {
                self.after_release(now, index, ring, freed);
            }
        }
    }
}
