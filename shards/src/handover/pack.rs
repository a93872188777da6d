//! The source's side: packing a partition, its chunks, and what becomes of it.

use std::sync::Arc;

use super::freeze::{Packed, Plan};
use super::inventory::is_worth_moving;
use super::{Chunk, Cut, Inbox, Manifest, MovedRequest, Outstanding, Packet, Parcel, PartitionName, Reader};
use crate::deadlines::Kind;
use crate::ledger::Freed;
use crate::limits::{CHUNK_BYTES_MAX, MESSAGE_OVERHEAD_BYTES};
use crate::name::DEFAULT_PARTITION;
use crate::outbox::Outbox;
use crate::queue::{Queue, QueueIndex, RingIndex};
use crate::ring::{Ring, Slot};
use crate::seq;
use crate::shard::Shard;
use crate::time::{Span, Time};

impl Shard {
    /// Packs a partition, or tells its present cut when it is packed already; None: nothing is known of it. From now on nothing is given
    /// of it, and its commands are answered `Moved`; so are, at once, the pops parked on it, and those parked on any partition of its
    /// queue (by the queue's home). `incarnation` is this node's; a chunk holds at most `chunk_bytes`, or one message.
    ///
    /// A cut may be voided while it is on its way (by a reset, or an answer that came back): [`Shard::chunk`] and [`Shard::release`] know
    /// it no more then, and the partition is to be packed again, which gives a new one.
    pub fn pack(&mut self, now: Time, incarnation: u64, chunk_bytes: usize, name: &PartitionName, out: &mut impl Outbox) -> Option<Parcel> {
        self.expire(now, out);
        let index = self.queues.find(name.tenant, &name.queue)?;
        let queue = self.queues.get(index);
        if !queue.exists {
            // Deleted: what is left is pops, which wait for what will be pushed elsewhere.
            if let Some(ring) = queue.rings.find(&name.partition) {
                self.move_named_waiters(now, index, ring, out);
            }
            self.tell_packed(now, index, out);
            self.reap(index, out);
            return None;
        }
        let stands_for_all = *name.partition == *DEFAULT_PARTITION && queue.rings.count() == 0 && is_worth_moving(queue);
        let ring = match queue.rings.find(&name.partition) {
            Some(ring) => ring,
            None if stands_for_all => self.open_ring(index, DEFAULT_PARTITION, now),
            None => return None,
        };
        if self.queues.get(index).rings.get(ring).packed().is_none() {
            self.move_named_waiters(now, index, ring, out);
            self.queues.get_mut(index).freeze(ring);
            self.handover.packed_count += 1;
            self.tell_packed(now, index, out);
        }
        self.cut(incarnation, chunk_bytes.min(CHUNK_BYTES_MAX), index, ring)
    }

    fn cut(&mut self, incarnation: u64, chunk_bytes: usize, index: QueueIndex, ring: RingIndex) -> Option<Parcel> {
        let packed = self.queues.get_mut(index).rings.get_mut(ring).packed_mut()?;
        let contents = &packed.ring;
        let plan = packed.plan.get_or_insert_with(|| {
            self.handover.cuts_given += 1;
            Plan { number: self.handover.cuts_given, starts: starts_of(contents, chunk_bytes) }
        });
        Some(Parcel {
            cut: Cut { incarnation, shard: self.config.index.0, number: plan.number },
            chunk_count: plan.starts.len() as u32,
            message_count: contents.held,
            payload_bytes: contents.bytes,
        })
    }

    /// What was sent of a packed partition's present cut is of no use any more: packing it again gives a new one.
    pub fn void_cut(&mut self, name: &PartitionName) {
        let Some(index) = self.queues.find(name.tenant, &name.queue) else { return };
        let rings = &mut self.queues.get_mut(index).rings;
        let packed = rings.find(&name.partition).and_then(|ring| rings.get_mut(ring).packed_mut());
        if let Some(packed) = packed {
            packed.plan = None;
        }
    }

    /// A packed partition under its present cut.
    fn find_packed(&self, name: &PartitionName, cut: Cut) -> Option<(QueueIndex, RingIndex, &Packed, &Plan)> {
        let index = self.queues.find(name.tenant, &name.queue)?;
        let rings = &self.queues.get(index).rings;
        let ring = rings.find(&name.partition)?;
        let packed = rings.get(ring).packed()?;
        let plan = packed.plan.as_ref().filter(|plan| (plan.number, self.config.index.0) == (cut.number, cut.shard))?;
        Some((index, ring, packed, plan))
    }

    /// A chunk of a packed partition, with spans as of now; None: there is no such chunk, or the cut is void. `spell` gives the number of an
    /// inbox of this node as clients are told it: it means the same wherever the request goes.
    #[must_use]
    pub fn chunk(&self, now: Time, name: &PartitionName, cut: Cut, place: u32, spell: impl Fn(u64) -> u64) -> Option<Chunk> {
        let (index, _, packed, plan) = self.find_packed(name, cut)?;
        let contents = &packed.ring;
        let start = *plan.starts.get(place as usize)?;
        let end = plan.starts.get(place as usize + 1).copied().unwrap_or(contents.slot_count());
        let queue = self.queues.get(index);
        Some(Chunk {
            name: name.clone(),
            cut,
            generation: queue.generation,
            index: place,
            chunk_count: plan.starts.len() as u32,
            message_count: contents.held,
            payload_bytes: contents.bytes,
            manifest: (place == 0).then(|| Box::new(manifest(queue, contents, now))),
            messages: self
                .packets(now, queue, contents, (start, end), |number| Inbox { incarnation: cut.incarnation, number: spell(number) }),
        })
    }

    fn packets(&self, now: Time, queue: &Queue, contents: &Ring, slots: (usize, usize), inbox_of: impl Fn(u64) -> Inbox) -> Vec<Packet> {
        let (start, end) = slots;
        if start == end {
            return Vec::new();
        }
        let (first, last) = (contents.slot(start).seq, contents.slot(end - 1).seq);
        let mut outstanding: Vec<(u64, Outstanding)> = Vec::new();
        for (reader, (group, _)) in queue.groups.iter().enumerate() {
            let deliveries = contents.cursor(group).into_iter().flat_map(|cursor| cursor.unsettled_within(first, last));
            outstanding
                .extend(deliveries.map(|of| (of.seq, Outstanding { reader: reader as u16, delivery: of.delivery, attempts: of.attempts })));
        }
        outstanding.sort_by_key(|(seq, _)| *seq);
        let mut outstanding = outstanding.into_iter().peekable();
        let mut packets = Vec::new();
        for slot in (start..end).map(|slot| contents.slot(slot)) {
            let Some(payload) = &slot.payload else { continue };
            let mut of_slot = Vec::new();
            while let Some((_, of)) = outstanding.next_if(|(seq, _)| *seq == slot.seq) {
                of_slot.push(of);
            }
            packets.push(Packet {
                payload: payload.clone(),
                age: now.since(slot.pushed_at),
                request: self.moved_request(now, contents, slot, &inbox_of),
                outstanding: of_slot,
            });
        }
        packets
    }

    fn moved_request(&self, now: Time, contents: &Ring, slot: &Slot, inbox_of: impl Fn(u64) -> Inbox) -> Option<MovedRequest> {
        let remaining = |until: Option<Time>| until.map_or(Span(0), |until| until.since(now));
        if let Some(number) = seq::inbox_of(slot.seq) {
            return Some(MovedRequest { inbox: inbox_of(number), remaining: remaining(self.calls.waits_until(number)) });
        }
        let request = contents.request(slot.seq)?;
        Some(MovedRequest { inbox: request.inbox, remaining: remaining(request.until) })
    }

    /// The receiver has the whole of this cut: nothing of the partition is left here. Its messages; None: the cut is void, and nothing
    /// was released.
    pub fn release(&mut self, now: Time, name: &PartitionName, cut: Cut) -> Option<u64> {
        let (index, ring, packed, _) = self.find_packed(name, cut)?;
        let gone = Freed { messages: packed.ring.held, bytes: packed.ring.bytes };
        let queue = self.queues.get_mut(index);
        if let Some(mut ring) = queue.rings.remove(ring) {
            self.deadlines.disarm(Kind::Ring, &mut ring.deadline);
        }
        queue.counters.close_partition();
        self.ledger.release_messages(&queue.budget, gone);
        self.ledger.handed_over += gone.messages;
        self.handover.packed_count -= 1;
        self.arm_queue(now, index);
        Some(gone.messages)
    }

    /// The hand-over was called off: the partition is as it was, and whoever waits for what is in it is served. Whether it was packed.
    pub fn restore(&mut self, now: Time, name: &PartitionName, out: &mut impl Outbox) -> bool {
        self.expire(now, out);
        let Some(index) = self.queues.find(name.tenant, &name.queue) else { return false };
        let Some(ring) = self.queues.get(index).rings.find(&name.partition) else { return false };
        if !self.queues.get_mut(index).thaw(ring) {
            return false;
        }
        self.handover.packed_count -= 1;
        let seqs: Vec<u64> = self.queues.get(index).rings.get(ring).slots().map(|slot| slot.seq).collect();
        seqs.into_iter().for_each(|seq| self.withdraw_if_over(now, index, ring, seq));
        self.serve_thawed(now, index, ring, out);
        true
    }

    /// A partition holds again what it did not hold a moment ago: what is due in it happens, and those who wait for it are served.
    pub(super) fn serve_thawed(&mut self, now: Time, index: QueueIndex, ring: RingIndex, out: &mut impl Outbox) {
        let queue = self.queues.get(index);
        let (name, partition) = (queue.full_name(), Arc::clone(&queue.rings.get(ring).partition));
        self.arm_ring(index, ring, now);
        self.expire(now, out);
        if self.queues.find(name.tenant, &name.name) != Some(index) {
            return;
        }
        self.arm_queue(now, index);
        if let Some(ring) = self.queues.get(index).rings.find(&partition) {
            self.wake_ring(now, index, ring, out);
        }
    }
}

/// What is known beside the messages.
fn manifest(queue: &Queue, contents: &Ring, now: Time) -> Manifest {
    let since = |at: Time| (at != Time(0)).then(|| now.since(at));
    let readers = queue.groups.iter().map(|(index, group)| {
        let cursor = contents.cursor(index);
        let is_in_use = !group.is_dormant() || cursor.is_some_and(|cursor| cursor.iter().next().is_some());
        let ahead = contents.pending(index) - cursor.map_or(0, |cursor| cursor.ready_count() as u64);
        let began_at = cursor.map_or(0, |cursor| cursor.began_at);
        let is_unread = |slot: &&Slot| slot.seq < began_at && slot.payload.is_some();
        Reader {
            group: (*group.name).into(),
            unused: if is_in_use { Span(0) } else { now.since(group.used_at) },
            passed: contents.held - ahead,
            unread: contents.slots().take_while(|slot| slot.seq < began_at).filter(is_unread).count() as u64,
        }
    });
    Manifest {
        queue_unused: now.since(queue.used_at),
        queue_answered: since(queue.answered_at),
        unused: now.since(contents.used_at),
        answered: since(contents.answered_at),
        groups: readers.collect(),
    }
}

/// The first slot of each chunk: one at least, and each holds at most `chunk_bytes`, or one message.
fn starts_of(contents: &Ring, chunk_bytes: usize) -> Vec<usize> {
    let mut deliveries: Vec<u64> = contents.cursors.iter().flat_map(|cursor| cursor.iter().map(|of| of.seq)).collect();
    deliveries.sort_unstable();
    let mut deliveries = deliveries.into_iter().peekable();
    let (mut starts, mut bytes) = (vec![0], 0);
    for (index, slot) in contents.slots().enumerate() {
        let Some(payload) = &slot.payload else { continue };
        let mut said = MESSAGE_OVERHEAD_BYTES as usize;
        while deliveries.next_if_eq(&slot.seq).is_some() {
            said += size_of::<Outstanding>();
        }
        let size = payload.len() + said;
        if bytes > 0 && bytes + size > chunk_bytes {
            starts.push(index);
            bytes = 0;
        }
        bytes += size;
    }
    starts
}
