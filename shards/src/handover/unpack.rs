//! Copies: what came of a partition, kept until it is opened or discarded. Nobody is given anything of them.
//!
//! Invariants: a copy holds the first chunks of one cut, whole; the node is charged for the whole of it from its first chunk on; of two
//! cuts of one source the newer counts.

use super::{Chunk, Cut, Inbox, Manifest, Packet, PartitionName};
use crate::command::{DropCause, Refusal};
use crate::ledger::Ledger;
use crate::name::Tenant;
use crate::outbox::Outbox;
use crate::queue::QueueIndex;
use crate::shard::Shard;
use crate::time::Time;

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpacked {
    /// This chunk is wanted next: the one that came was kept, was here already, or is of no use before that.
    Next(u32),
    /// All chunks are here: the source may release the partition.
    Whole,
    /// Of an earlier cut, or of a transfer that ended.
    Stale,
    /// The node has no room for the whole; nothing is kept.
    Refused(Refusal),
}

/// A message of a copy.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) packet: Packet,
    pub(super) pushed_at: Time,
    /// When the call of a request ends.
    pub(super) call_until: Option<Time>,
}

/// A copy.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) cut: Cut,
    generation: u64,
    pub(super) next: u32,
    pub(super) chunk_count: u32,
    pub(super) manifest: Manifest,
    /// When the manifest came: its spans end here.
    pub(super) came_at: Time,
    pub(super) messages: Vec<Arrived>,
    /// To the node.
    pub(super) charged: u64,
    /// The queue was reset or deleted since it was cut: its messages go when it is opened.
    pub(super) wiped: Option<DropCause>,
    /// It is being opened.
    pub(super) is_opening: bool,
}

impl Transfer {
    pub(super) fn is_whole(&self) -> bool {
        self.next == self.chunk_count
    }

    fn progress(&self) -> Unpacked {
        if self.is_whole() { Unpacked::Whole } else { Unpacked::Next(self.next) }
    }

    fn is_from(&self, cut: Cut) -> bool {
        (self.cut.incarnation, self.cut.shard, self.is_opening) == (cut.incarnation, cut.shard, false)
    }

    fn keep(&mut self, now: Time, chunk: Chunk) {
        self.next += 1;
        if let Some(manifest) = chunk.manifest {
            self.manifest = *manifest;
        }
        for packet in chunk.messages {
            // The spans of two chunks end at different times; later messages are no older all the same.
            let earliest = self.messages.last().map_or(Time(0), |last| last.pushed_at);
            let call_until = packet.request.map(|request| now + request.remaining);
            self.messages.push(Arrived { pushed_at: (now - packet.age).max(earliest), call_until, packet });
        }
    }
}

impl Shard {
    /// A partition is to come here: from now on its commands wait, in order, up to bounds and at the latest until `deadline`, then they
    /// are refused as `NotHereYet`. Ends with [`Shard::open`] or [`Shard::dismiss`].
    pub fn expect(&mut self, name: &PartitionName, deadline: Time) {
        self.handover.arrivals.expect(name, deadline);
    }

    /// The partition will not come after all, and is not this shard's: copies go, and commands that wait are handed back as `Moved`.
    pub fn dismiss(&mut self, now: Time, name: &PartitionName, out: &mut impl Outbox) {
        let Some(id) = self.handover.arrivals.find(name) else { return };
        let cuts: Vec<Cut> = self.handover.arrivals.get_mut(id).transfers.iter().filter(|of| !of.is_opening).map(|of| of.cut).collect();
        cuts.into_iter().for_each(|cut| self.discard(now, name, cut));
        self.turn_back(name, out);
    }

    /// Keeps a chunk. It is all the same whether it was expected: a copy that comes to a partition that is in use is appended to it.
    pub fn unpack(&mut self, now: Time, chunk: Chunk) -> Unpacked {
        let cut = chunk.cut;
        if self.handover.arrivals.has_ended(&cut) {
            return Unpacked::Stale;
        }
        let known = self.handover.arrivals.find(&chunk.name).and_then(|id| {
            let of_source = |transfer: &&mut Transfer| transfer.is_from(cut);
            self.handover.arrivals.get_mut(id).transfers.iter_mut().find(of_source)
        });
        match known {
            Some(transfer) if cut.number < transfer.cut.number => Unpacked::Stale,
            Some(transfer) if cut == transfer.cut => {
                if chunk.index == transfer.next {
                    transfer.keep(now, chunk);
                }
                transfer.progress()
            }
            _ if chunk.index > 0 || chunk.chunk_count == 0 => Unpacked::Next(0),
            _ => self.begin_copy(now, chunk),
        }
    }

    fn begin_copy(&mut self, now: Time, chunk: Chunk) -> Unpacked {
        let Chunk { cut, generation, chunk_count, .. } = chunk;
        let earlier = self.take_transfer(now, &chunk.name, |transfer| transfer.is_from(cut));
        // A reset that the source has carried out before it cut anew is in the cut.
        let wiped = earlier.filter(|earlier| earlier.generation >= generation).and_then(|earlier| earlier.wiped);
        let charged = Ledger::node_bytes(chunk.message_count, chunk.payload_bytes);
        if !self.ledger.budget.bytes.charge(charged) {
            return Unpacked::Refused(Refusal::NodeBytes);
        }
        let mut transfer = Transfer {
            cut,
            generation,
            next: 0,
            chunk_count,
            manifest: Manifest::default(),
            came_at: now,
            messages: Vec::new(),
            charged,
            wiped,
            is_opening: false,
        };
        let id = self.handover.arrivals.obtain(&chunk.name);
        transfer.keep(now, chunk);
        let progress = transfer.progress();
        self.handover.arrivals.get_mut(id).transfers.push(transfer);
        progress
    }

    /// A copy is of no use any more: its source called the hand-over off, or gave the partition to another.
    pub fn discard(&mut self, now: Time, name: &PartitionName, cut: Cut) {
        self.take_transfer(now, name, |transfer| transfer.cut == cut && !transfer.is_opening);
    }

    /// Ends a transfer without opening it.
    fn take_transfer(&mut self, now: Time, name: &PartitionName, is_it: impl Fn(&Transfer) -> bool) -> Option<Transfer> {
        let id = self.handover.arrivals.find(name)?;
        let transfers = &mut self.handover.arrivals.get_mut(id).transfers;
        let position = transfers.iter().position(is_it)?;
        let transfer = transfers.remove(position);
        self.ledger.budget.bytes.release(transfer.charged);
        self.handover.arrivals.note_ended(now, transfer.cut);
        self.handover.arrivals.tidy(id);
        Some(transfer)
    }

    /// A queue is being reset or deleted, of which copies may be here that no part of it knows of: to be told to every shard of a node
    /// before the reset or delete itself is given to the queue's home.
    pub fn void_copies(&mut self, tenant: Tenant, queue: &str, cause: DropCause) {
        for arrival in self.handover.arrivals.iter_mut().filter(|of| of.name.tenant == tenant && *of.name.queue == *queue) {
            arrival.transfers.iter_mut().for_each(|transfer| transfer.wiped = Some(cause));
        }
    }

    pub(crate) fn void_copies_of(&mut self, index: QueueIndex, cause: DropCause) {
        // Collection is not for what is on its way.
        if self.handover.arrivals.is_empty() || cause == DropCause::Abandoned {
            return;
        }
        let queue = self.queues.get(index);
        let (tenant, name) = (queue.tenant(), std::sync::Arc::clone(&queue.name));
        self.void_copies(tenant, &name, cause);
    }

    /// The call of a request that came from another node is over.
    pub(super) fn end_call_in_copies(&mut self, now: Time, name: &PartitionName, inbox: Inbox) {
        let Some(id) = self.handover.arrivals.find(name) else { return };
        for message in self.handover.arrivals.get_mut(id).transfers.iter_mut().flat_map(|transfer| &mut transfer.messages) {
            if message.packet.request.is_some_and(|request| request.inbox == inbox) {
                message.call_until = Some(now);
            }
        }
    }

    /// What copies and waiting commands are charged, counted anew.
    pub(crate) fn check_arrivals(&self) -> u64 {
        let mut charged = 0;
        for arrival in self.handover.arrivals.iter() {
            let cost: u64 = arrival.held.values().map(|held| held.cost).sum();
            assert_eq!(cost, arrival.cost, "{:?}: what waits is counted", arrival.name);
            assert!(arrival.holds_back || arrival.held.is_empty(), "{:?}: nothing waits for nothing", arrival.name);
            charged += cost + arrival.transfers.iter().map(|transfer| transfer.charged).sum::<u64>();
        }
        charged
    }
}
