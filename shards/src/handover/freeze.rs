//! A packed partition within its queue: set aside, so that whatever goes through the queue's rings finds it empty.
//!
//! Invariants: what is set aside counts in no sum of the queue, but stays charged to tenant and node; thawing brings it back as it was,
//! under the same index; whoever changes it thaws it first, and so voids its cut.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::queue::{Queue, RingIndex};
use crate::ring::Ring;

/// What a ring held when it was packed.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) ring: Ring,
    /// None: it has changed since it was last cut.
    pub(super) plan: Option<Plan>,
}

/// How a packed ring is cut.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) number: u64,
    /// The first slot of each chunk.
    pub(super) starts: Vec<usize>,
}

impl Queue {
    /// Partitions that are packed.
    pub(crate) fn packed_count(&self) -> usize {
        self.rings.iter().filter(|(_, ring)| ring.packed.is_some()).count()
    }

    /// Sets a ring's contents aside. No pop is parked on it.
    pub(crate) fn freeze(&mut self, index: RingIndex) {
        let ring = self.rings.get_mut(index);
        let mut empty = Ring::new(Arc::clone(&ring.partition), ring.used_at);
        empty.answered_at = ring.answered_at;
        std::mem::swap(&mut empty.deadline, &mut ring.deadline);
        let contents = std::mem::replace(ring, empty);
        for (group, entry) in self.groups.iter_mut() {
            let ready = contents.cursor(group).map_or(0, |cursor| cursor.ready_count() as u64);
            entry.seen += contents.pending(group) - ready;
            entry.ready -= ready as u32;
            entry.leased -= contents.cursor(group).map_or(0, |cursor| cursor.leased);
        }
        self.held -= contents.held;
        self.bytes -= contents.bytes;
        self.counters.release(contents.held, contents.bytes);
        self.rings.get_mut(index).packed = Some(Box::new(Packed { ring: contents, plan: None }));
    }

    /// Brings a packed ring's contents back; whether it was packed.
    pub(crate) fn thaw(&mut self, index: RingIndex) -> bool {
        let ring = self.rings.get_mut(index);
        let Some(packed) = ring.packed.take() else { return false };
        let mut contents = packed.ring;
        std::mem::swap(&mut contents.deadline, &mut ring.deadline);
        contents.used_at = contents.used_at.max(ring.used_at);
        *ring = contents;
        let end = ring.slots().next_back().map_or(0, |last| last.seq + 1);
        for (group, entry) in self.groups.iter_mut() {
            if entry.is_private && ring.cursor(group).is_none() {
                // It came meanwhile, and begins behind everything.
                ring.pass_all(group, end);
            }
            let ready = ring.cursor(group).map_or(0, |cursor| cursor.ready_count() as u64);
            entry.seen -= ring.pending(group) - ready;
            entry.ready += ready as u32;
            entry.leased += ring.cursor(group).map_or(0, |cursor| cursor.leased);
        }
        let (held, bytes, first) = (ring.held, ring.bytes, ring.first().map(|slot| slot.seq));
        self.held += held;
        self.bytes += bytes;
        self.counters.charge_unbounded(held, bytes);
        if let Some(first) = first {
            self.rings.note_holding(index);
            if let Some(heads) = &mut self.heads {
                heads.push(Reverse((first, index)));
            }
        }
        true
    }

    /// Brings everything back that is set aside: which rings.
    pub(crate) fn thaw_all(&mut self) -> Vec<RingIndex> {
        let packed: Vec<_> = self.rings.iter().filter(|(_, ring)| ring.packed.is_some()).map(|(index, _)| index).collect();
        packed.iter().for_each(|index| _ = self.thaw(*index));
        packed
    }

    /// Sets these aside again.
    pub(crate) fn freeze_all(&mut self, packed: &[RingIndex]) {
        packed.iter().for_each(|index| self.freeze(*index));
    }
}
