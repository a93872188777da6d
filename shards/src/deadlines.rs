//! Every deadline of a shard, in an indexed heap for each kind of owner: arm, move and disarm cost O(log n), the next one is at a root.
//!
//! Invariants: an owner has at most one deadline; `positions[id]` is where `heap` holds it; a deadline never fires early. An owner
//! whose true deadline moved later may leave the old one in place and look again when it fires.

use crate::calls::CallIndex;
use crate::queue::{QueueIndex, RingIndex};
use crate::time::Time;
use crate::waiters::WaiterIndex;

/// Free places kept when the heap empties; a larger heap gives its memory back.
const SPARE_PLACES: usize = 1_024;

/// Whose deadline fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A parked pop: its timeout or its window.
    Waiter(WaiterIndex),
    /// A call: its timeout.
    Call(CallIndex),
    /// A ring: the next lease end, ttl, or its own idleness.
    Ring(QueueIndex, RingIndex),
    /// A queue: idleness.
    Queue(QueueIndex),
}

/// An owner's handle; `NONE` while it has no deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadlineId(u32);

impl DeadlineId {
    pub(crate) const NONE: Self = Self(u32::MAX);
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    at: Time,
    id: u32,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    At { position: u32, owner: Owner },
    Free { next: u32 },
}

/// The deadlines of one kind of owner.
#[derive(Debug)]
struct Heap {
    heap: Vec<Entry>,
    places: Vec<Place>,
    free: u32,
}

impl Default for Heap {
    fn default() -> Self {
        Self { heap: Vec::new(), places: Vec::new(), free: u32::MAX }
    }
}

impl Heap {
    /// The earliest deadline.
    fn next(&self) -> Option<Time> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Number of deadlines armed.
    fn len(&self) -> usize {
        self.heap.len()
    }

    /// When `id` fires; `Time::NEVER` when it is not armed.
    fn at(&self, id: DeadlineId) -> Time {
        match self.places.get(id.0 as usize) {
            Some(Place::At { position, .. }) => self.heap[*position as usize].at,
            _ => Time::NEVER,
        }
    }

    /// Fires at `at`, whatever was armed before.
    fn arm(&mut self, id: &mut DeadlineId, owner: Owner, at: Time) {
        if *id == DeadlineId::NONE {
            *id = self.insert(owner, at);
            return;
        }
        let Place::At { position, .. } = self.places[id.0 as usize] else { unreachable!("an armed id has a position") };
        let before = std::mem::replace(&mut self.heap[position as usize].at, at);
        if at < before {
            self.rise(position as usize);
        } else {
            self.sink(position as usize);
        }
    }

    /// Fires at `at` or earlier.
    fn arm_no_later(&mut self, id: &mut DeadlineId, owner: Owner, at: Time) {
        if at < self.at(*id) {
            self.arm(id, owner, at);
        }
    }

    /// Fires no more.
    fn disarm(&mut self, id: &mut DeadlineId) {
        if *id == DeadlineId::NONE {
            return;
        }
        let Place::At { position, .. } = self.places[id.0 as usize] else { unreachable!("an armed id has a position") };
        self.remove(position as usize);
        *id = DeadlineId::NONE;
    }

    /// Takes the earliest deadline when it is due. Its owner's handle is void from here: the owner sets it to `NONE`.
    fn pop_due(&mut self, now: Time) -> Option<Owner> {
        let first = *self.heap.first()?;
        if first.at > now {
            return None;
        }
        let Place::At { owner, .. } = self.places[first.id as usize] else { unreachable!("a heap entry has an owner") };
        self.remove(0);
        Some(owner)
    }

    fn insert(&mut self, owner: Owner, at: Time) -> DeadlineId {
        let position = self.heap.len() as u32;
        let place = Place::At { position, owner };
        let id = match self.places.get(self.free as usize) {
            Some(Place::Free { next }) => {
                let id = self.free;
                self.free = *next;
                self.places[id as usize] = place;
                id
            }
            _ => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        };
        self.heap.push(Entry { at, id });
        self.rise(position as usize);
        DeadlineId(id)
    }

    fn remove(&mut self, position: usize) {
        let id = self.heap[position].id;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.settle(position);
            self.rise(position);
            self.sink(position);
        }
        self.places[id as usize] = Place::Free { next: self.free };
        self.free = id;
        if self.heap.is_empty() && self.places.len() > SPARE_PLACES {
            *self = Self::default();
        }
    }

    fn settle(&mut self, position: usize) {
        let id = self.heap[position].id as usize;
        if let Place::At { position: stored, .. } = &mut self.places[id] {
            *stored = position as u32;
        }
    }

    fn rise(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].at <= self.heap[position].at {
                break;
            }
            self.heap.swap(parent, position);
            self.settle(position);
            position = parent;
        }
        self.settle(position);
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let left = 2 * position + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.heap[right].at < self.heap[left].at { right } else { left };
            if self.heap[position].at <= self.heap[child].at {
                break;
            }
            self.heap.swap(position, child);
            self.settle(position);
            position = child;
        }
        self.settle(position);
    }
}

/// Whose deadlines fire when several are due: first what brings messages back or drops them, then calls, then pops, then queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ring,
    Call,
    Waiter,
    Queue,
}

impl Owner {
    fn kind(self) -> Kind {
        match self {
            Self::Ring(..) => Kind::Ring,
            Self::Call(_) => Kind::Call,
            Self::Waiter(_) => Kind::Waiter,
            Self::Queue(_) => Kind::Queue,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    rings: Heap,
    calls: Heap,
    waiters: Heap,
    queues: Heap,
}

impl Deadlines {
    fn heap(&mut self, kind: Kind) -> &mut Heap {
        match kind {
            Kind::Ring => &mut self.rings,
            Kind::Call => &mut self.calls,
            Kind::Waiter => &mut self.waiters,
            Kind::Queue => &mut self.queues,
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        [&self.rings, &self.calls, &self.waiters, &self.queues].into_iter().filter_map(Heap::next).min()
    }

    /// Number of deadlines armed.
    pub(crate) fn len(&self) -> usize {
        self.rings.len() + self.calls.len() + self.waiters.len() + self.queues.len()
    }

    /// Fires at `at`, whatever was armed before.
    pub(crate) fn arm(&mut self, id: &mut DeadlineId, owner: Owner, at: Time) {
        self.heap(owner.kind()).arm(id, owner, at);
    }

    /// Fires at `at` or earlier.
    pub(crate) fn arm_no_later(&mut self, id: &mut DeadlineId, owner: Owner, at: Time) {
        self.heap(owner.kind()).arm_no_later(id, owner, at);
    }

    /// Fires no more; `kind` is that of the owner.
    pub(crate) fn disarm(&mut self, kind: Kind, id: &mut DeadlineId) {
        self.heap(kind).disarm(id);
    }

    /// Takes the earliest deadline of a kind when it is due. Its owner's handle is void from here: the owner sets it to `NONE`.
    pub(crate) fn pop_due(&mut self, kind: Kind, now: Time) -> Option<Owner> {
        self.heap(kind).pop_due(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner(n: u32) -> Owner {
        Owner::Queue(QueueIndex(n))
    }

    proptest! {
        /// Against a plain list: the same owners fire, in order of time, whatever was armed, moved or disarmed.
        #[test]
        fn fires_what_a_sorted_list_would(ops in prop::collection::vec((0u8..4, 0u32..12, 0u64..40), 1..200)) {
            let mut heap = Heap::default();
            let mut ids = [DeadlineId::NONE; 12];
            let mut list = [Time::NEVER; 12];
            for (op, n, at) in ops {
                let (slot, at) = (n as usize, Time(at));
                match op {
                    0 => { heap.arm(&mut ids[slot], owner(n), at); list[slot] = at; }
                    1 => { heap.arm_no_later(&mut ids[slot], owner(n), at); list[slot] = list[slot].min(at); }
                    2 => { heap.disarm(&mut ids[slot]); list[slot] = Time::NEVER; }
                    _ => while let Some(Owner::Queue(QueueIndex(due))) = heap.pop_due(at) {
                        let due = due as usize;
                        prop_assert!(list[due] <= at);
                        prop_assert_eq!(list[due], *list.iter().min().unwrap());
                        ids[due] = DeadlineId::NONE;
                        list[due] = Time::NEVER;
                    },
                }
                let earliest = *list.iter().min().unwrap();
                prop_assert_eq!(heap.next().unwrap_or(Time::NEVER), earliest);
                prop_assert_eq!(heap.len(), list.iter().filter(|at| **at != Time::NEVER).count());
                for (slot, at) in list.iter().enumerate() {
                    prop_assert_eq!(heap.at(ids[slot]), *at);
                }
            }
        }
    }
}
