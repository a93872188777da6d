//! What has to be true of a group, whatever happens to it.
//!
//! Every change has a number of its own, so every state that a node may be in is met once in the order of the log: a node is at a place
//! of that order, also when a snapshot put it there.

use std::collections::{BTreeMap, BTreeSet};

use mayfly::control::{Change, NodeId, State};

/// A change's number, which is its declaration's time.
pub(crate) fn number_of(change: &Change) -> u64 {
    match change {
        Change::Declare { declaration, .. } => declaration.updated_at_ms,
        change => panic!("nobody proposes {change:?}"),
    }
}

/// Numbers by queue: all that a state holds here.
fn held(state: &State) -> Vec<(String, u64)> {
    state.declarations().map(|(queue, declaration)| (queue.name.to_string(), declaration.updated_at_ms)).collect()
}

/// What a client asked for.
struct Asked {
    queue: u64,
    at: u64,
    acknowledged_at: Option<u64>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Oracle {
    /// The numbers in the order in which they hold, as far as any node was told.
    order: Vec<u64>,
    /// What the changes up to each place come to.
    places: BTreeMap<Vec<(String, u64)>, usize>,
    numbers: BTreeSet<u64>,
    asked: BTreeMap<u64, Asked>,
    leaders: BTreeMap<u64, NodeId>,
    /// States that nodes took from a peer.
    pub(crate) snapshot_count: u64,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let mut oracle = Self::default();
        oracle.places.insert(Vec::new(), 0);
        oracle
    }

    pub(crate) fn asked(&mut self, number: u64, queue: u64, at: u64) {
        self.asked.insert(number, Asked { queue, at, acknowledged_at: None });
    }

    pub(crate) fn acknowledged(&mut self, number: u64, at: u64) {
        let asked = self.asked.get_mut(&number).expect("it was asked for");
        assert_eq!(asked.acknowledged_at.replace(at), None, "change {number} is acknowledged twice");
    }

    /// A node at `place` is told of a change; `state` is what it has then. Its next place.
    pub(crate) fn told(&mut self, place: usize, change: &Change, state: &State) -> usize {
        let number = number_of(change);
        if place == self.order.len() {
            assert!(self.numbers.insert(number), "change {number} holds a second time");
            self.order.push(number);
            self.places.insert(held(state), place + 1);
        }
        assert_eq!(self.order[place], number, "at place {place} of the order");
        place + 1
    }

    /// The place of a state, which has to be one that some node was told of.
    pub(crate) fn place_of(&self, state: &State) -> usize {
        *self.places.get(&held(state)).expect("a state between two changes")
    }

    /// A node opened its log: all that holds then may be more than anybody was told.
    pub(crate) fn opened(&mut self, state: &State, told: usize) -> usize {
        let place = self.places.get(&held(state)).copied();
        let place = place.unwrap_or_else(|| panic!("a log was opened with what nobody was told: {:?}", held(state)));
        assert!(place >= told, "a node was told {told} changes and starts with {place}");
        place
    }

    pub(crate) fn leads(&mut self, term: u64, node: NodeId) {
        assert_eq!(*self.leaders.entry(term).or_insert(node), node, "two lead in term {term}");
    }

    /// After healing: whatever was acknowledged holds, unless something later does.
    pub(crate) fn check(&self, state: &State) {
        assert_eq!(self.place_of(state), self.order.len());
        for (number, asked) in &self.asked {
            let Some(acknowledged_at) = asked.acknowledged_at else { continue };
            assert!(self.numbers.contains(number), "change {number} was acknowledged and is lost");
            let position = |number| self.order.iter().position(|held| *held == number);
            let later = self.asked.iter().filter(|(_, other)| other.queue == asked.queue && other.at > acknowledged_at);
            for (other, _) in later.filter(|(_, other)| other.acknowledged_at.is_some()) {
                assert!(position(*number) < position(*other), "change {other} was asked for after {number} held, and holds before it");
            }
        }
    }

    pub(crate) fn order(&self) -> &[u64] {
        &self.order
    }

    pub(crate) fn acknowledged_count(&self) -> usize {
        self.asked.values().filter(|asked| asked.acknowledged_at.is_some()).count()
    }
}
