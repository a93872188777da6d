//! How many changes may be under way: the control core waits for a disk, and no core waits for the control core.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Changes that a node has under way at most; beyond, one more is refused.
const PLACES: usize = 4_096;

/// The places of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    taken: Arc<AtomicUsize>,
}

impl Gate {
    /// A place; None: there are as many changes under way as may be.
    pub(super) fn enter(&self) -> Option<Place> {
        let is_free = |taken: usize| (taken < PLACES).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, is_free).ok().map(|_| Place(Arc::clone(&self.taken)))
    }
}

/// One place, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_was_left() {
        let gate = Gate::default();
        let mut places: Vec<_> = (0..PLACES).map(|_| gate.enter().expect("a place")).collect();
        assert!(gate.enter().is_none());
        places.pop();
        assert!(gate.enter().is_some());
    }
}
