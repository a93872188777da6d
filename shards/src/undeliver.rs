//! Taking an answer back whose connection broke.
//!
//! Invariants: a message comes back only under the generation it was given under, and only if its group has not settled it since; an
//! answer of which no byte was sent costs its messages nothing, autoAck or not; of one that broke in the middle leased messages come
//! back with their attempt charged, and those settled at delivery are spent.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::cursor::DeliveryState;
use crate::ledger::{Freed, Ledger};
use crate::letter::Letter;
use crate::outbox::{Outbox, Receipt, ReceiptMessage};
use crate::payload::Payload;
use crate::queue::{GroupIndex, Place, QueueIndex, RingIndex};
use crate::shard::Shard;
use crate::time::Time;

/// How far an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undelivered {
    /// The socket took no byte of it.
    Unsent,
    /// It broke in the middle.
    Partly,
}

impl Shard {
    /// Takes back what `receipt` says was given.
    pub fn undeliver(&mut self, now: Time, receipt: Receipt, how: Undelivered, out: &mut impl Outbox) {
        self.expire(now, out);
        self.take_answer_back(now, receipt, how, out);
    }

    pub(crate) fn take_answer_back(&mut self, now: Time, receipt: Receipt, how: Undelivered, out: &mut impl Outbox) {
        if receipt.shard != self.config.index {
            return out.send(receipt.shard, Letter::GiveBack(Box::new(receipt)));
        }
        let Some(index) = self.queues.find(receipt.tenant, &receipt.queue) else { return };
        let queue = self.queues.get(index);
        let Some(group) = queue.groups.find(&receipt.group) else { return };
        if queue.generation != receipt.generation || !queue.exists {
            return;
        }
        for run in receipt.runs {
            let is_new = self.queues.get(index).rings.find(&run.partition).is_none();
            // Of a partition that went to another node, or was empty, only what was settled can come back.
            let comes_back = |message: &ReceiptMessage| message.settled.is_some() && how == Undelivered::Unsent;
            if is_new && !run.messages.iter().any(comes_back) {
                continue;
            }
            let ring = self.open_ring(index, &run.partition, now);
            if is_new {
                // It was dropped since, being empty: every group that is known had passed all of it.
                let end = run.messages.last().map_or(0, |message| message.seq + 1);
                let queue = self.queues.get_mut(index);
                for (group, _) in queue.groups.iter() {
                    queue.rings.get_mut(ring).cursor_mut(group).move_to(end, 0);
                }
            }
            let was_packed = self.queues.get_mut(index).thaw(ring);
            let mut freed = Freed::default();
            let seqs: SmallVec<[u64; 4]> = run.messages.iter().map(|message| message.seq).collect();
            for message in run.messages {
                self.take_message_back(now, index, ring, group, message, how, &mut freed);
            }
            // Behind all of them, so that the queue is not empty, and idle from now on, between two that come back.
            for seq in seqs {
                self.withdraw_if_over(now, index, ring, seq);
            }
            self.queues.get_mut(index).release(freed, &self.ledger);
            self.arm_ring_ttl(index, ring);
            self.after_release(now, index, ring, freed);
            if was_packed {
                self.queues.get_mut(index).freeze(ring);
            }
        }
        // A message that is too old by now goes before anyone is offered it.
        self.expire(now, out);
        if self.queues.find(receipt.tenant, &receipt.queue) == Some(index) {
            self.wake_all(now, index, out);
            self.arm_queue(now, index);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the inner step of taking an answer back")]
    fn take_message_back(
        &mut self,
        now: Time,
        index: QueueIndex,
        ring: RingIndex,
        group: GroupIndex,
        message: ReceiptMessage,
        how: Undelivered,
        freed: &mut Freed,
    ) {
        let ReceiptMessage { seq, delivery, attempts, pushed_at, settled, request } = message;
        let place = Place { ring, seq, group };
        let queue = self.queues.get_mut(index);
        match (settled, how) {
            (Some(_), Undelivered::Partly) => {}
            (Some(payload), Undelivered::Unsent) => {
                self.ledger.acked = self.ledger.acked.saturating_sub(1);
                self.hold_again(index, ring, group, seq, pushed_at, payload);
                if let Some(request) = request {
                    self.await_request(index, ring, seq, *request);
                }
                let queue = self.queues.get_mut(index);
                queue.pass_over(ring, seq, group);
                queue.give_back(place, (delivery, attempts - 1), DeliveryState::Returned, now);
            }
            (None, how) => {
                let delivered = queue.rings.get(ring).cursor(group).and_then(|cursor| cursor.unsettled(seq));
                let state = delivered.filter(|delivered| delivered.delivery == delivery).map(|delivered| delivered.state);
                match (state, how) {
                    // Free of charge, also when the lease ran out before the break was seen.
                    (Some(DeliveryState::Leased | DeliveryState::Expired), Undelivered::Unsent) => {
                        queue.give_back(place, (delivery, attempts - 1), DeliveryState::Returned, now);
                    }
                    (Some(DeliveryState::Leased), Undelivered::Partly) => {
                        queue.take_back(place, DeliveryState::Returned, now, &mut self.ledger, freed);
                    }
                    _ => {}
                }
            }
        }
    }

    /// A message that its group settled at delivery is held again, exempt from the bounds: it was admitted once.
    fn hold_again(&mut self, index: QueueIndex, ring: RingIndex, group: GroupIndex, seq: u64, pushed_at: Time, payload: Payload) {
        let queue = self.queues.get_mut(index);
        let ring_mut = queue.rings.get_mut(ring);
        if let Some(slot) = ring_mut.find_held(seq) {
            // Other groups still hold it.
            ring_mut.slot_mut(slot).settled_count -= 1;
            return;
        }
        let bytes = payload.len() as u64;
        for passed in ring_mut.put_back(seq, pushed_at, payload, group) {
            queue.groups.get_mut(passed).seen += 1;
        }
        queue.note_head(ring);
        queue.appended += 1;
        queue.held += 1;
        queue.bytes += bytes;
        queue.counters.charge_unbounded(1, bytes);
        self.ledger.budget.bytes.charge_unbounded(Ledger::node_bytes(1, bytes));
        queue.budget.bytes.charge_unbounded(bytes);
    }
}
