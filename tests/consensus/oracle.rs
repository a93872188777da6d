//! What has to be true of a group, whatever happens to it.
//!
//! Every declaration has a number of its own, and every change of a member is an epoch, so every state that a node may be in is met once
//! in the order of the log: a node is at a place of that order, also when a snapshot put it there. What changes nothing has no place.

use std::collections::BTreeMap;

use mayfly::control::{Change, NodeId, State};

/// A declaration's number, which is its time.
fn number_of(change: &Change) -> Option<u64> {
    match change {
        Change::Declare { declaration, .. } => Some(declaration.updated_at_ms),
        Change::Member { .. } | Change::Expel { .. } => None,
        change => panic!("nobody proposes {change:?}"),
    }
}

/// What tells one state from another: numbers by queue, and the epoch.
type Held = (Vec<(String, u64)>, u64);

fn held(state: &State) -> Held {
    let numbers = state.declarations().map(|(queue, declaration)| (queue.name.to_string(), declaration.updated_at_ms));
    (numbers.collect(), state.members().epoch())
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
    /// The changes in the order in which they hold, as far as any node was told.
    order: Vec<Change>,
    /// What the changes up to each place come to.
    places: BTreeMap<Held, usize>,
    /// The place of each declaration.
    numbers: BTreeMap<u64, usize>,
    asked: BTreeMap<u64, Asked>,
    leaders: BTreeMap<u64, NodeId>,
    /// States that nodes took from a peer.
    pub(crate) snapshot_count: u64,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let mut oracle = Self::default();
        oracle.places.insert((Vec::new(), 0), 0);
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
        if place == self.order.len() {
            if let Some(number) = number_of(change) {
                assert_eq!(self.numbers.insert(number, place), None, "change {number} holds a second time");
            }
            self.order.push(change.clone());
            assert_eq!(self.places.insert(held(state), place + 1), None, "{change:?} leads back");
        }
        assert_eq!(&self.order[place], change, "at place {place} of the order");
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
            let place = *self.numbers.get(number).unwrap_or_else(|| panic!("change {number} was acknowledged and is lost"));
            let later = self.asked.iter().filter(|(_, other)| other.queue == asked.queue && other.at > acknowledged_at);
            for (other, _) in later.filter(|(_, other)| other.acknowledged_at.is_some()) {
                assert!(place < self.numbers[other], "change {other} was asked for after {number} held, and holds before it");
            }
        }
    }

    pub(crate) fn order(&self) -> Vec<String> {
        self.order.iter().map(|change| format!("{change:?}")).collect()
    }

    pub(crate) fn acknowledged_count(&self) -> usize {
        self.asked.values().filter(|asked| asked.acknowledged_at.is_some()).count()
    }
}
