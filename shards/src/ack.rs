//! Ack: settle deliveries, or return them for redelivery. An ack makes nothing, and never touches somebody else's lease.

use smallvec::SmallVec;

use crate::command::{AckItem, Command, Outcome, Verdict};
use crate::cursor::{Delivered, DeliveryState};
use crate::ledger::Freed;
use crate::outbox::{Answer, Outbox, Ticket};
use crate::queue::{GroupIndex, Place, QueueIndex, RingIndex};
use crate::shard::Shard;
use crate::time::Time;

/// The rings that the acks of one call were of.
type Touched = SmallVec<[RingIndex; 4]>;

impl Shard {
    pub(crate) fn ack(&mut self, now: Time, ticket: Ticket, command: Command<'_>, out: &mut impl Outbox) {
        let Command::Ack { tenant, queue, group, items } = command else { unreachable!("an ack") };
        let found = self.queues.find(tenant, queue);
        if let Some(index) = found.filter(|index| self.queues.get(*index).link.holds_back()) {
            return self.defer(index, ticket, command.into_owned(), None);
        }
        let known = found.filter(|index| self.queues.get(*index).exists);
        let Some(index) = known else {
            return out.answer(ticket, Answer::Acked(items.iter().map(|item| (item.index, Outcome::Unknown)).collect()));
        };
        self.queues.get_mut(index).used_at = now;
        let Some(group) = self.queues.get(index).groups.find(group) else {
            return out.answer(ticket, Answer::Acked(items.iter().map(|item| (item.index, Outcome::Unknown)).collect()));
        };
        self.queues.get_mut(index).groups.get_mut(group).used_at = now;
        let (outcomes, touched) = self.ack_items(now, index, group, items);
        // Answered before anyone is woken by what came back: an ack's client hears of it first.
        out.answer(ticket, Answer::Acked(outcomes));
        match *touched {
            [ring] => self.wake_group_in_ring(now, index, group, ring, out),
            _ => self.wake_group(now, index, group, out),
        }
    }

    fn ack_items(&mut self, now: Time, index: QueueIndex, group: GroupIndex, items: &[AckItem<'_>]) -> (Vec<(u32, Outcome)>, Touched) {
        let mut freed = Freed::default();
        let mut touched = Touched::new();
        let mut outcomes = Vec::with_capacity(items.len());
        let mut last: Option<(&str, Option<RingIndex>)> = None;
        for item in items {
            // Acks of one call are mostly of one partition.
            let ring = match last {
                Some((partition, ring)) if partition == item.partition => ring,
                _ => self.queues.get(index).rings.find(item.partition),
            };
            last = Some((item.partition, ring));
            let outcome = ring.map_or(Outcome::Unknown, |ring| {
                if touched.last() != Some(&ring) {
                    touched.push(ring);
                }
                self.ack_one(now, index, ring, group, item, &mut freed)
            });
            outcomes.push((item.index, outcome));
        }
        self.queues.get_mut(index).release(freed, &self.ledger);
        for ring in &touched {
            self.after_release(now, index, *ring, freed);
        }
        (outcomes, touched)
    }

    fn ack_one(
        &mut self,
        now: Time,
        index: QueueIndex,
        ring: RingIndex,
        group: GroupIndex,
        item: &AckItem<'_>,
        freed: &mut Freed,
    ) -> Outcome {
        let queue = self.queues.get_mut(index);
        let delivered = queue.rings.get(ring).cursor(group).and_then(|cursor| cursor.unsettled(item.seq)).copied();
        let place = Place { ring, seq: item.seq, group };
        let outcome = judge(delivered.as_ref(), item);
        match outcome {
            Outcome::Acked => {
                queue.settle(place, now, freed);
                self.ledger.acked += 1;
            }
            Outcome::Redelivered if delivered.is_some_and(|delivered| delivered.state == DeliveryState::Leased) => {
                if queue.take_back(place, DeliveryState::Returned, now, &mut self.ledger, freed) {
                    return Outcome::Acked;
                }
            }
            Outcome::Redelivered => {
                if let Some(delivered) = delivered {
                    // Its lease had run out: it is back already, and this delivery is answered.
                    let behind = (delivered.delivery, delivered.attempts);
                    queue.give_back(place, behind, DeliveryState::Returned, now);
                }
            }
            Outcome::Stale => self.ledger.stale += 1,
            Outcome::Unknown => {}
        }
        outcome
    }
}

/// What an ack means for the delivery its message stands at.
fn judge(delivered: Option<&Delivered>, item: &AckItem<'_>) -> Outcome {
    let Some(delivered) = delivered else { return Outcome::Unknown };
    if item.delivery != delivered.delivery {
        return if item.delivery < delivered.delivery { Outcome::Stale } else { Outcome::Unknown };
    }
    match (delivered.state, item.verdict) {
        (DeliveryState::Leased | DeliveryState::Expired, Verdict::Completed) => Outcome::Acked,
        (DeliveryState::Leased | DeliveryState::Expired, Verdict::Nack) => Outcome::Redelivered,
        (DeliveryState::Returned | DeliveryState::Settled, _) => Outcome::Unknown,
    }
}
