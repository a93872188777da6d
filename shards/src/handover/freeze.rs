//! A packed partition within its queue: set aside, so that whatever goes through the queue's rings finds it empty.
//!
//! Invariants: what is set aside counts in no sum of the queue, but stays charged to tenant and node; thawing brings it back as it was,
//! under the same index; whoever changes it thaws it first, and so voids its cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Request;
use crate::queue::{GroupIndex, Queue, RingIndex};
use crate::ring::Ring;

/// What a ring held when it was packed.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) ring: Ring,
    /// Private groups that were there: one that came since begins behind everything.
    private: Vec<GroupIndex>,
    /// None: it has changed since it was last cut.
    pub(super) plan: Option<Plan>,
}

/// What a ring has beside its messages while hand-overs concern it. One or the other: a packed one holds no message.
#[derive(Debug)]
pub(crate) enum Aside {
    /// What it held, on its way to another node.
    Packed(Packed),
    /// Messages held that are requests of calls on other nodes, by seq.
    Requests(BTreeMap<u64, Request>),
}

impl Ring {
    pub(crate) fn packed(&self) -> Option<&Packed> {
        match self.aside.as_deref() {
            Some(Aside::Packed(packed)) => Some(packed),
            _ => None,
        }
    }

    pub(super) fn packed_mut(&mut self) -> Option<&mut Packed> {
        match self.aside.as_deref_mut() {
            Some(Aside::Packed(packed)) => Some(packed),
            _ => None,
        }
    }

    pub(crate) fn requests(&self) -> Option<&BTreeMap<u64, Request>> {
        match self.aside.as_deref() {
            Some(Aside::Requests(requests)) => Some(requests),
            _ => None,
        }
    }

    pub(super) fn requests_mut(&mut self) -> Option<&mut BTreeMap<u64, Request>> {
        match self.aside.as_deref_mut() {
            Some(Aside::Requests(requests)) => Some(requests),
            _ => None,
        }
    }

    /// No message is held any more.
    pub(crate) fn forget_requests(&mut self) {
        if self.requests().is_some() {
            self.aside = None;
        }
    }
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
        self.rings.iter().filter(|(_, ring)| ring.packed().is_some()).count()
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
        let private = self.groups.iter().filter(|(_, group)| group.is_private).map(|(group, _)| group).collect();
        self.rings.get_mut(index).aside = Some(Box::new(Aside::Packed(Packed { ring: contents, private, plan: None })));
    }

    /// Brings a packed ring's contents back; whether it was packed.
    pub(crate) fn thaw(&mut self, index: RingIndex) -> bool {
        let ring = self.rings.get_mut(index);
        if ring.packed().is_none() {
            return false;
        }
        let Some(Aside::Packed(packed)) = ring.aside.take().map(|aside| *aside) else { return false };
        let mut contents = packed.ring;
        std::mem::swap(&mut contents.deadline, &mut ring.deadline);
        contents.used_at = contents.used_at.max(ring.used_at);
        *ring = contents;
        let end = ring.slots().next_back().map_or(0, |last| last.seq + 1);
        for (group, entry) in self.groups.iter_mut() {
            if entry.is_private && !packed.private.contains(&group) {
                ring.pass_all(group, end);
            }
            let ready = ring.cursor(group).map_or(0, |cursor| cursor.ready_count() as u64);
            entry.seen -= ring.pending(group) - ready;
            entry.ready += ready as u32;
            entry.leased += ring.cursor(group).map_or(0, |cursor| cursor.leased);
        }
        let (held, bytes) = (ring.held, ring.bytes);
        self.held += held;
        self.bytes += bytes;
        self.counters.charge_unbounded(held, bytes);
        self.note_head(index);
        true
    }

    /// Brings everything back that is set aside: which rings.
    pub(crate) fn thaw_all(&mut self) -> Vec<RingIndex> {
        let packed: Vec<_> = self.rings.iter().filter(|(_, ring)| ring.packed().is_some()).map(|(index, _)| index).collect();
        packed.iter().for_each(|index| _ = self.thaw(*index));
        packed
    }

    /// Sets these aside again.
    pub(crate) fn freeze_all(&mut self, packed: &[RingIndex]) {
        packed.iter().for_each(|index| self.freeze(*index));
    }
}
