//! What a node that ends gave to other nodes, as its cores tell it, for the one line that says so.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::control::handover::Tally;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Departure {
    rings: AtomicU64,
    delivered: AtomicU64,
    lost_rings: AtomicU64,
    lost: AtomicU64,
}

impl Departure {
    /// A core gave this to other nodes.
    pub(super) fn note(&self, tally: Tally) {
        self.rings.fetch_add(tally.rings, Relaxed);
        self.delivered.fetch_add(tally.messages, Relaxed);
    }

    /// A partition that a core could give to nobody.
    pub(super) fn note_lost(&self, messages: u64) {
        self.lost_rings.fetch_add(1, Relaxed);
        self.lost.fetch_add(messages, Relaxed);
    }

    /// Says it.
    pub(super) fn log(&self) {
        let [rings, delivered, lost_rings, lost] =
            [&self.rings, &self.delivered, &self.lost_rings, &self.lost].map(|count| count.load(Relaxed));
        if lost_rings > 0 {
            log::error!(rings = lost_rings, messages = lost; "hand-over failed; the partitions' contents are dropped");
        }
        log::info!(rings, delivered, lost; "ephemeral rings handed over");
    }
}
