//! Partitions on their way to here: the commands that wait for each, the copies that came, and the transfers that ended.
//!
//! Invariants: a command waits in one place and is found by its ticket; everything that is due has an entry in `due`; an arrival that
//! holds nothing back and has no copy is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use smallvec::SmallVec;

use super::unpack::Transfer;
use super::{Cut, PartitionName};
use crate::command::OwnedCommand;
use crate::limits::ENDED_TRANSFER_SPAN;
use crate::outbox::Ticket;
use crate::shard::Standing;
use crate::time::Time;

/// The number of no command: an arrival's own deadline.
const ITSELF: u64 = 0;

/// A command that waits for its partition.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) ticket: Ticket,
    pub(super) command: OwnedCommand,
    pub(super) standing: Standing,
    /// When its client is answered that there was nothing.
    pub(super) until: Time,
    /// Charged to the node.
    pub(super) cost: u64,
}

/// One partition on its way.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) name: PartitionName,
    /// Its commands wait.
    pub(super) holds_back: bool,
    /// They waited too long: no more of them.
    pub(super) is_overdue: bool,
    deadline: Time,
    pub(super) held: BTreeMap<u64, Held>,
    pub(super) cost: u64,
    /// One a source.
    pub(super) transfers: SmallVec<[Transfer; 1]>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    by_name: BTreeMap<PartitionName, u64>,
    entries: BTreeMap<u64, Arrival>,
    by_ticket: BTreeMap<Ticket, (u64, u64)>,
    due: BTreeSet<(Time, u64, u64)>,
    numbers_given: u64,
    ended: BTreeSet<Cut>,
    ended_at: VecDeque<(Time, Cut)>,
}

impl Arrivals {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let ended = self.ended_at.front().map(|(at, _)| *at);
        self.due.first().map(|(at, ..)| *at).into_iter().chain(ended).min()
    }

    pub(super) fn find(&self, name: &PartitionName) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    /// The arrival whose partition's commands wait.
    pub(super) fn holding_back(&self, name: &PartitionName) -> Option<u64> {
        self.find(name).filter(|id| self.entries[id].holds_back)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> &mut Arrival {
        self.entries.get_mut(&id).unwrap_or_else(|| unreachable!("a number names an arrival"))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arrival> {
        self.entries.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Arrival> {
        self.entries.values_mut()
    }

    fn next_number(&mut self) -> u64 {
        self.numbers_given += 1;
        self.numbers_given
    }

    /// The partition's arrival, made if there is none.
    pub(super) fn obtain(&mut self, name: &PartitionName) -> u64 {
        if let Some(id) = self.find(name) {
            return id;
        }
        let id = self.next_number();
        let arrival = Arrival {
            name: name.clone(),
            holds_back: false,
            is_overdue: false,
            deadline: Time::NEVER,
            held: BTreeMap::new(),
            cost: 0,
            transfers: SmallVec::new(),
        };
        self.by_name.insert(name.clone(), id);
        self.entries.insert(id, arrival);
        id
    }

    /// From now on the partition's commands wait, until `deadline` at the latest.
    pub(super) fn expect(&mut self, name: &PartitionName, deadline: Time) {
        let id = self.obtain(name);
        let arrival = self.get_mut(id);
        let before = std::mem::replace(&mut arrival.deadline, deadline);
        (arrival.holds_back, arrival.is_overdue) = (true, false);
        self.due.remove(&(before, id, ITSELF));
        self.due.insert((deadline, id, ITSELF));
    }

    /// Keeps a command.
    pub(super) fn hold(&mut self, id: u64, held: Held) {
        let number = self.next_number();
        self.by_ticket.insert(held.ticket, (id, number));
        if held.until != Time::NEVER {
            self.due.insert((held.until, id, number));
        }
        let arrival = self.get_mut(id);
        arrival.cost += held.cost;
        arrival.held.insert(number, held);
    }

    fn take(&mut self, id: u64, number: u64) -> Option<Held> {
        let arrival = self.entries.get_mut(&id)?;
        let held = arrival.held.remove(&number)?;
        arrival.cost -= held.cost;
        self.by_ticket.remove(&held.ticket);
        self.due.remove(&(held.until, id, number));
        Some(held)
    }

    pub(super) fn take_ticket(&mut self, ticket: Ticket) -> Option<Held> {
        let (id, number) = *self.by_ticket.get(&ticket)?;
        self.take(id, number)
    }

    /// Everything that waits for a partition, in order.
    fn take_all(&mut self, id: u64) -> Vec<Held> {
        let numbers: Vec<u64> = self.get_mut(id).held.keys().copied().collect();
        numbers.into_iter().filter_map(|number| self.take(id, number)).collect()
    }

    /// The next that is due: one command at its timeout, or all whose partition is overdue.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<(Vec<Held>, bool)> {
        while let Some((_, cut)) = self.ended_at.front().copied().filter(|(at, _)| *at <= now) {
            self.ended_at.pop_front();
            self.ended.remove(&cut);
        }
        let (at, id, number) = *self.due.first().filter(|(at, ..)| *at <= now)?;
        self.due.remove(&(at, id, number));
        if number != ITSELF {
            return Some((self.take(id, number).into_iter().collect(), false));
        }
        self.get_mut(id).is_overdue = true;
        Some((self.take_all(id), true))
    }

    /// Nothing is held back any more: what waited, in order.
    pub(super) fn let_through(&mut self, id: u64) -> Vec<Held> {
        let held = self.take_all(id);
        let arrival = self.get_mut(id);
        arrival.holds_back = false;
        let deadline = arrival.deadline;
        self.due.remove(&(deadline, id, ITSELF));
        self.tidy(id);
        held
    }

    /// Takes an arrival away that nothing is left of.
    pub(super) fn tidy(&mut self, id: u64) {
        let is_over = |arrival: &&Arrival| !arrival.holds_back && arrival.transfers.is_empty();
        if let Some(name) = self.entries.get(&id).filter(is_over).map(|arrival| arrival.name.clone()) {
            self.entries.remove(&id);
            self.by_name.remove(&name);
        }
    }

    /// Whether a transfer has ended: opened, discarded, or replaced by a newer cut.
    pub(super) fn has_ended(&self, cut: &Cut) -> bool {
        self.ended.contains(cut)
    }

    pub(super) fn note_ended(&mut self, now: Time, cut: Cut) {
        if self.ended.insert(cut) {
            self.ended_at.push_back((now + ENDED_TRANSFER_SPAN, cut));
        }
    }
}
