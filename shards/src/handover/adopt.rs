//! Opening a copy: the partition is served here from now on.
//!
//! The queue is made if it is not known, as it was at the source; groups that it does not know are registered through its home, as any;
//! then, in one step, the messages are appended under new seqs and the groups stand where they stood. Invariant: a transfer is opened
//! once, whatever comes of it later.

use std::sync::Arc;

use super::arrivals::Held;
use super::requests::Request;
use super::unpack::{Arrived, Transfer};
use super::{Cut, PartitionName, Reader};
use crate::command::DropCause;
use crate::cursor::DeliveryState;
use crate::ledger::{Freed, Ledger};
use crate::letter::{Adoption, Deferred, Letter, Wanted};
use crate::name::QueueName;
use crate::outbox::Outbox;
use crate::queue::{GroupIndex, Place, Queue, QueueIndex, RingIndex};
use crate::seq;
use crate::shard::Shard;
use crate::time::Time;

/// Why a partition may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Its source has released this cut.
    Released(Cut),
    /// The source of this incarnation is gone: what came of it is all there is.
    SourceGone {
        /// Its.
        incarnation: u64,
    },
    /// Nothing will come: there is no source, or it held nothing.
    Nothing,
}

/// A partition that came from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Under this cut.
    pub cut: Cut,
    /// Messages taken up.
    pub message_count: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// The partition held messages already: these are behind them.
    pub is_late: bool,
    /// False: the source was gone before all of it had come.
    pub is_whole: bool,
}

impl Shard {
    /// Opens a partition: a copy of it is taken up, and the commands that waited are carried out behind it. It may take letters to other
    /// shards; `Outbox::adopted` tells when a copy is taken up. False: of what was released not all is here, and nothing was done.
    pub fn open(&mut self, now: Time, name: &PartitionName, opening: Opening, out: &mut impl Outbox) -> bool {
        self.expire(now, out);
        let Some(id) = self.handover.arrivals.find(name) else {
            return !matches!(opening, Opening::Released(cut) if !self.handover.arrivals.has_ended(&cut));
        };
        let arrival = self.handover.arrivals.get_mut(id);
        let is_meant = |transfer: &Transfer| match opening {
            Opening::Released(cut) => transfer.cut == cut && transfer.is_whole(),
            Opening::SourceGone { incarnation } => transfer.cut.incarnation == incarnation,
            Opening::Nothing => false,
        };
        let mut opened: Vec<Cut> = Vec::new();
        for transfer in arrival.transfers.iter_mut().filter(|transfer| is_meant(transfer) && !transfer.is_opening) {
            transfer.is_opening = true;
            opened.push(transfer.cut);
        }
        if let Opening::Released(cut) = opening
            && opened.is_empty()
        {
            return self.handover.arrivals.has_ended(&cut);
        }
        opened.into_iter().for_each(|cut| self.handover.arrivals.note_ended(now, cut));
        let queue = QueueName { tenant: name.tenant, name: (*name.queue).into() };
        self.adopt(now, &queue, &name.partition, out);
        true
    }

    /// Takes up the copies of a partition that are being opened, as far as that goes without another shard's word.
    pub(crate) fn adopt(&mut self, now: Time, queue: &QueueName, partition: &str, out: &mut impl Outbox) {
        let name = PartitionName { tenant: queue.tenant, queue: (*queue.name).into(), partition: partition.into() };
        let Some(id) = self.handover.arrivals.find(&name) else { return };
        while let Some(position) = self.opening(id) {
            if self.handover.arrivals.get_mut(id).transfers[position].wiped == Some(DropCause::Deleted) {
                let transfer = self.handover.arrivals.get_mut(id).transfers.remove(position);
                out.adopted(&name, self.drop_deleted(transfer));
                continue;
            }
            let Some(index) = self.prepare_queue(now, id, position, queue, partition, out) else { return };
            // Registering a group may have led here again, and further.
            if self.handover.arrivals.find(&name) != Some(id) || self.opening(id) != Some(position) {
                return;
            }
            let transfer = self.handover.arrivals.get_mut(id).transfers.remove(position);
            let adopted = self.take_up(now, index, partition, transfer, out);
            out.adopted(&name, adopted);
            if self.handover.arrivals.find(&name) != Some(id) {
                return;
            }
        }
        let held = self.handover.arrivals.let_through(id);
        self.uncharge_held(&held);
        for Held { ticket, command, standing, .. } in held {
            command.lend(|command| self.run(now, ticket, command, standing, out));
        }
    }

    fn opening(&mut self, id: u64) -> Option<usize> {
        self.handover.arrivals.get_mut(id).transfers.iter().position(|transfer| transfer.is_opening)
    }

    /// The queue, with every group of the transfer; None: another shard's word is awaited, which leads to `adopt` again.
    fn prepare_queue(
        &mut self,
        now: Time,
        id: u64,
        position: usize,
        name: &QueueName,
        partition: &str,
        out: &mut impl Outbox,
    ) -> Option<QueueIndex> {
        let own = self.config.index;
        let again = || Deferred::Letter(own, Letter::Adopt { queue: name.clone(), partition: partition.into() });
        let transfer = &self.handover.arrivals.get_mut(id).transfers[position];
        let used_at = transfer.came_at - transfer.manifest.queue_unused;
        let adoption = Adoption { used_at };
        let index = match self.queues.find(name.tenant, &name.name) {
            Some(index) if self.queues.get(index).link.holds_back() => {
                self.queues.get_mut(index).link.defer(again());
                return None;
            }
            Some(index) if self.queues.get(index).exists => index,
            _ if self.is_home_of(name.tenant, &name.name) => self.create_adopted(now, name, Some(adoption)),
            _ => {
                self.join(now, name, again(), None, Wanted { adopted: Some(adoption), ..Wanted::default() }, out);
                return None;
            }
        };
        let queue = self.queues.get_mut(index);
        queue.used_at = queue.used_at.max(used_at);
        let transfer = &self.handover.arrivals.get_mut(id).transfers[position];
        let names = &self.queues.names;
        let reader = |of: &Reader| (names.group(&of.group), transfer.came_at - of.unused);
        let readers: Vec<(Arc<str>, Time)> = transfer.manifest.groups.iter().map(reader).collect();
        for (group, used_at) in readers {
            let found = self.queues.get(index).groups.find(&group);
            let known = match found {
                Some(known) => known,
                None if self.queues.get(index).link.is_home() && self.queues.get(index).link.members().is_empty() => {
                    let end = self.end_seq();
                    self.queues.get_mut(index).add_group(group, end, used_at)
                }
                None => {
                    self.register_adopted(now, index, group, again(), out);
                    return None;
                }
            };
            let entry = self.queues.get_mut(index).groups.get_mut(known);
            entry.used_at = entry.used_at.max(used_at);
        }
        Some(index)
    }

    /// Registers a group that came with a partition; `again` is read when every part knows it.
    fn register_adopted(&mut self, now: Time, index: QueueIndex, group: Arc<str>, again: Deferred, out: &mut impl Outbox) {
        let queue = self.queues.get_mut(index);
        let (name, generation) = (queue.full_name(), queue.generation);
        let Some(membership) = queue.link.membership_mut() else {
            return self.add_group_everywhere(now, index, group, vec![again], Vec::new(), out);
        };
        let is_asked = membership.registering.iter().any(|(other, _)| *other == group);
        membership.registering.push((Arc::clone(&group), again));
        if !is_asked {
            out.send(membership.home, Letter::RegisterGroup { queue: name, generation, group, is_adopted: true });
        }
    }

    /// Makes a queue as it was at the source, whatever the bounds. Whether it is declared the log says, to every node.
    pub(crate) fn create_adopted(&mut self, now: Time, name: &QueueName, adoption: Option<Adoption>) -> QueueIndex {
        self.ledger.budget.charge_agreed_queue(self.tenants.agreed(name.tenant));
        let index = self.insert_queue(name.tenant, &name.name, now);
        if let Some(Adoption { used_at }) = adoption {
            self.queues.get_mut(index).used_at = used_at;
        }
        self.arm_queue(now, index);
        index
    }

    /// The queue was deleted while the copy was on its way: it makes none.
    fn drop_deleted(&mut self, transfer: Transfer) -> Adopted {
        let is_whole = transfer.is_whole();
        let Transfer { cut, messages, charged, .. } = transfer;
        let (message_count, payload_bytes) = size_of_all(&messages);
        self.ledger.budget.bytes.release(charged);
        self.ledger.adopted += message_count;
        self.ledger.dropped[DropCause::Deleted as usize] += message_count;
        Adopted { cut, message_count, payload_bytes, is_late: false, is_whole }
    }

    /// Appends a copy's messages, and puts every group where it stood.
    fn take_up(&mut self, now: Time, index: QueueIndex, partition: &str, transfer: Transfer, out: &mut impl Outbox) -> Adopted {
        let (is_whole, wiped) = (transfer.is_whole(), transfer.wiped);
        let Transfer { cut, manifest, came_at, messages, charged, .. } = transfer;
        let (count, bytes) = size_of_all(&messages);
        let came = Freed { messages: count, bytes };
        let mut adopted = Adopted { cut, message_count: came.messages, payload_bytes: bytes, is_late: false, is_whole };
        // Of a source that is gone not all may have come.
        self.ledger.budget.bytes.charge_unbounded(Ledger::node_bytes(came.messages, came.bytes));
        self.ledger.budget.bytes.release(charged);
        self.ledger.adopted += came.messages;
        let queue = self.queues.get_mut(index);
        queue.budget.bytes.charge_unbounded(bytes);
        if let Some(cause) = wiped {
            self.ledger.release_messages(&queue.budget, came);
            self.ledger.dropped[cause as usize] += came.messages;
            return adopted;
        }
        let is_new = queue.rings.find(partition).is_none();
        let ring = self.open_ring(index, partition, now);
        let queue = self.queues.get_mut(index);
        let was_packed = queue.thaw(ring);
        let answered = |span: Option<crate::time::Span>| span.map_or(Time(0), |span| (came_at - span).max(Time(1)));
        queue.answered_at = queue.answered_at.max(answered(manifest.queue_answered));
        let entry = queue.rings.get_mut(ring);
        adopted.is_late = entry.held > 0;
        entry.used_at = if is_new { came_at - manifest.unused } else { entry.used_at.max(came_at - manifest.unused) };
        entry.answered_at = entry.answered_at.max(answered(manifest.answered));
        let seqs = self.append_arrived(index, ring, &messages);
        let mut freed = Freed::default();
        self.queues.get_mut(index).place_groups(ring, &manifest.groups, &messages, &seqs, now, &mut freed);
        self.queues.get_mut(index).release(freed, &self.ledger);
        self.after_release(now, index, ring, freed);
        for (message, seq) in messages.iter().zip(&seqs) {
            if let (Some(request), Some(until)) = (message.packet.request, message.call_until) {
                self.await_request(index, ring, *seq, Request { inbox: request.inbox, until: Some(until) });
            }
        }
        if was_packed {
            self.queues.get_mut(index).freeze(ring);
        } else {
            self.serve_thawed(now, index, ring, out);
        }
        adopted
    }

    /// Appends messages that are charged to tenant and node: their seqs.
    fn append_arrived(&mut self, index: QueueIndex, ring: RingIndex, messages: &[Arrived]) -> Vec<u64> {
        let (shard, shard_count) = (self.config.index, self.config.shard_count);
        let queue = self.queues.get_mut(index);
        let entry = queue.rings.get_mut(ring);
        let (held, bytes) = (entry.held, entry.bytes);
        entry.reserve(messages.len());
        let mut seqs = Vec::with_capacity(messages.len());
        for message in messages {
            self.seqs_given += 1;
            // No request of a call here, whatever it was where it came from.
            let seq = seq::nth(self.seqs_given, shard, shard_count, false);
            let is_older = entry.slots().next_back().is_some_and(|last| last.pushed_at > message.pushed_at);
            entry.is_bent |= is_older;
            entry.append(seq, message.pushed_at, Arc::clone(&message.packet.payload));
            seqs.push(seq);
        }
        let came = (entry.held - held, entry.bytes - bytes);
        queue.appended += came.0;
        queue.held += came.0;
        queue.bytes += came.1;
        queue.counters.charge_unbounded(came.0, came.1);
        if held == 0 {
            queue.note_head(ring);
        }
        seqs
    }
}

fn size_of_all(messages: &[Arrived]) -> (u64, u64) {
    (messages.len() as u64, messages.iter().map(|message| message.packet.payload.len() as u64).sum())
}

impl Queue {
    /// Puts every group where it stood in messages that were appended just now. Groups that the source did not know have all of them
    /// ahead, except those that read from their subscription on, or another partition.
    fn place_groups(&mut self, ring: RingIndex, readers: &[Reader], messages: &[Arrived], seqs: &[u64], now: Time, freed: &mut Freed) {
        let groups: Vec<(GroupIndex, Reader)> = self
            .groups
            .iter()
            .map(|(index, group)| {
                let place = readers.iter().position(|reader| *reader.group == *group.name);
                let all = seqs.len() as u64;
                let reader = match place {
                    Some(place) => Reader { passed: readers[place].passed.min(all), ..readers[place].clone() },
                    None if group.is_private => Reader { group: "".into(), unused: crate::time::Span(0), passed: all, unread: all },
                    None => Reader { group: "".into(), unused: crate::time::Span(0), passed: 0, unread: 0 },
                };
                (index, reader)
            })
            .collect();
        for (group, reader) in &groups {
            self.pass(ring, *group, reader, seqs);
        }
        for (message, seq) in messages.iter().zip(seqs) {
            for outstanding in &message.packet.outstanding {
                let reader = readers.get(usize::from(outstanding.reader));
                let Some(group) = reader.and_then(|reader| self.groups.find(&reader.group)) else { continue };
                let behind = (outstanding.delivery, outstanding.attempts);
                self.give_back(Place { ring, seq: *seq, group }, behind, DeliveryState::Returned, now);
            }
        }
        let group_count = self.groups.count();
        let has_reader = self.groups.iter().any(|(_, group)| !group.is_private);
        let entry = self.rings.get_mut(ring);
        for seq in seqs {
            let settled = groups.iter().filter(|(group, _)| entry.cursor(*group).is_some_and(|cursor| cursor.is_settled(*seq))).count();
            let Some(index) = entry.find_held(*seq) else { continue };
            entry.slot_mut(index).settled_count = settled as u32;
            if has_reader && settled as u32 >= group_count {
                freed.add_payload(entry.free(index).as_ref());
            }
        }
    }

    /// Moves a group past the first of the messages that were appended just now. What it has ahead before them stays its to be given.
    fn pass(&mut self, ring: RingIndex, group: GroupIndex, reader: &Reader, seqs: &[u64]) {
        let Some(last_passed) = reader.passed.checked_sub(1).and_then(|last| seqs.get(last as usize)) else { return };
        let entry = self.rings.get(ring);
        let last_before = entry.slots().rev().map(|slot| slot.seq).find(|seq| *seq < seqs[0]);
        let was_empty = last_before.is_none();
        if let Some(last_before) = last_before {
            self.pass_over(ring, last_before, group);
        }
        let cursor = self.rings.get_mut(ring).cursor_mut(group);
        cursor.next = last_passed + 1;
        cursor.seen += reader.passed;
        if let Some(last_unread) = reader.unread.checked_sub(1).and_then(|last| seqs.get(last as usize)).filter(|_| was_empty) {
            cursor.began_at = last_unread + 1;
        }
        self.groups.get_mut(group).seen += reader.passed;
    }
}
