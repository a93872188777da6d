//! Parked pops: one entry in a table each, on a list of those that wait for the same thing.
//!
//! Invariants: a list is in order of age, oldest first; an entry is on exactly one list while its pop is parked or claiming; a ticket
//! has at most one entry.

use ahash::AHashMap;

use crate::deadlines::DeadlineId;
use crate::outbox::Ticket;
use crate::queue::{GroupIndex, QueueIndex, RingIndex};
use crate::time::Time;

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterIndex(pub(crate) u32);

const NIL: u32 = u32::MAX;

/// Free cells kept when the table empties; a larger table gives its memory back.
const SPARE_CELLS: usize = 1_024;

/// Where a waiting pop stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterState {
    /// Waits for a message.
    Parked,
    /// Other cores are being asked on its behalf; timeout and hang-up are settled when they answered.
    Claiming,
    /// The client hung up while claiming: whatever the claim brings goes back.
    Gone,
    /// It is to wait elsewhere if the claim brings nothing.
    Leaving,
}

/// One waiting pop.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    pub(crate) queue: QueueIndex,
    pub(crate) group: GroupIndex,
    /// The partition it named; None: any.
    pub(crate) ring: Option<RingIndex>,
    pub(crate) batch: u32,
    pub(crate) auto_ack: bool,
    /// Charged to tenant and node. Not before other cores have said that they have nothing for it.
    pub(crate) is_charged: bool,
    pub(crate) state: WaiterState,
    pub(crate) parked_at: Time,
    /// Tells those apart that parked at the same time.
    order: u64,
    /// When it answers with what is there.
    pub(crate) until: Time,
    /// When its window ends; `NEVER` while it saw no message.
    pub(crate) window_until: Time,
    pub(crate) deadline: DeadlineId,
    previous: u32,
    next: u32,
}

impl Waiter {
    /// A pop that has just come in, on no list yet.
    #[expect(clippy::too_many_arguments, reason = "a plain record of one request")]
    pub(crate) fn new(
        ticket: Ticket,
        queue: QueueIndex,
        group: GroupIndex,
        ring: Option<RingIndex>,
        batch: u32,
        auto_ack: bool,
        wait_until: Option<Time>,
        now: Time,
    ) -> Self {
        Self {
            ticket,
            queue,
            group,
            ring,
            batch,
            auto_ack,
            is_charged: true,
            state: WaiterState::Parked,
            parked_at: now,
            order: 0,
            until: wait_until.unwrap_or(now),
            window_until: Time::NEVER,
            deadline: DeadlineId::NONE,
            previous: NIL,
            next: NIL,
        }
    }

    /// Older is smaller.
    pub(crate) fn age(&self) -> (Time, u64) {
        (self.parked_at, self.order)
    }
}

/// A list of waiters, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterList {
    head: u32,
    tail: u32,
}

impl Default for WaiterList {
    fn default() -> Self {
        Self { head: NIL, tail: NIL }
    }
}

impl WaiterList {
    /// The oldest.
    pub(crate) fn oldest(&self) -> Option<WaiterIndex> {
        (self.head != NIL).then_some(WaiterIndex(self.head))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }
}

enum Cell {
    Taken(Waiter),
    Free { next: u32 },
}

/// The table.
pub(crate) struct Waiters {
    cells: Vec<Cell>,
    free: u32,
    by_ticket: AHashMap<Ticket, u32>,
    parked_ever: u64,
}

impl Waiters {
    /// An empty table. The hasher's keys are fixed: tickets come from this process, and a run must replay.
    pub(crate) fn new() -> Self {
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        Self { cells: Vec::new(), free: NIL, by_ticket: AHashMap::with_hasher(hasher), parked_ever: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_ticket.len()
    }

    pub(crate) fn find(&self, ticket: Ticket) -> Option<WaiterIndex> {
        self.by_ticket.get(&ticket).copied().map(WaiterIndex)
    }

    pub(crate) fn get(&self, index: WaiterIndex) -> &Waiter {
        match &self.cells[index.0 as usize] {
            Cell::Taken(waiter) => waiter,
            Cell::Free { .. } => unreachable!("a list or deadline names a live waiter"),
        }
    }

    pub(crate) fn get_mut(&mut self, index: WaiterIndex) -> &mut Waiter {
        match &mut self.cells[index.0 as usize] {
            Cell::Taken(waiter) => waiter,
            Cell::Free { .. } => unreachable!("a list or deadline names a live waiter"),
        }
    }

    /// Puts a waiter on `list`, behind all that are as old: at the end, unless it waited elsewhere before.
    pub(crate) fn park(&mut self, list: &mut WaiterList, mut waiter: Waiter) -> WaiterIndex {
        let ticket = waiter.ticket;
        self.parked_ever += 1;
        waiter.order = self.parked_ever;
        (waiter.previous, waiter.next) = (list.tail, NIL);
        while waiter.previous != NIL && self.get(WaiterIndex(waiter.previous)).parked_at > waiter.parked_at {
            waiter.next = waiter.previous;
            waiter.previous = self.get(WaiterIndex(waiter.previous)).previous;
        }
        let (previous, next) = (waiter.previous, waiter.next);
        let index = match self.cells.get(self.free as usize) {
            Some(Cell::Free { next }) => {
                let index = self.free;
                self.free = *next;
                self.cells[index as usize] = Cell::Taken(waiter);
                index
            }
            _ => {
                self.cells.push(Cell::Taken(waiter));
                (self.cells.len() - 1) as u32
            }
        };
        match previous {
            NIL => list.head = index,
            previous => self.get_mut(WaiterIndex(previous)).next = index,
        }
        match next {
            NIL => list.tail = index,
            next => self.get_mut(WaiterIndex(next)).previous = index,
        }
        self.by_ticket.insert(ticket, index);
        WaiterIndex(index)
    }

    /// Takes a waiter off `list` and out of the table. Its deadline is the caller's to disarm.
    pub(crate) fn remove(&mut self, list: &mut WaiterList, index: WaiterIndex) -> Waiter {
        let cell = std::mem::replace(&mut self.cells[index.0 as usize], Cell::Free { next: self.free });
        self.free = index.0;
        let Cell::Taken(waiter) = cell else { unreachable!("a list or deadline names a live waiter") };
        match waiter.previous {
            NIL => list.head = waiter.next,
            previous => self.get_mut(WaiterIndex(previous)).next = waiter.next,
        }
        match waiter.next {
            NIL => list.tail = waiter.previous,
            next => self.get_mut(WaiterIndex(next)).previous = waiter.previous,
        }
        self.by_ticket.remove(&waiter.ticket);
        if self.by_ticket.is_empty() && self.cells.len() > SPARE_CELLS {
            *self = Self { parked_ever: self.parked_ever, ..Self::new() };
        }
        waiter
    }

    /// Every waiter.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Waiter> {
        self.cells.iter().filter_map(|cell| if let Cell::Taken(waiter) = cell { Some(waiter) } else { None })
    }

    /// The waiters of a list by index, oldest first.
    pub(crate) fn iter_indexes(&self, list: WaiterList) -> impl Iterator<Item = WaiterIndex> {
        let mut index = list.head;
        std::iter::from_fn(move || {
            (index != NIL).then(|| {
                let this = WaiterIndex(index);
                index = self.get(this).next;
                this
            })
        })
    }

    /// The waiters of a list, oldest first.
    pub(crate) fn iter(&self, list: WaiterList) -> impl Iterator<Item = &Waiter> {
        let mut index = list.head;
        std::iter::from_fn(move || {
            (index != NIL).then(|| {
                let waiter = self.get(WaiterIndex(index));
                index = waiter.next;
                waiter
            })
        })
    }
}
