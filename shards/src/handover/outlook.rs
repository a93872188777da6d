//! What is on its way to a shard, for whoever plans hand-overs; and commands that waited for it in vain.

use super::detour::moved;
use super::{Cut, PartitionName};
use crate::name::Tenant;
use crate::outbox::Outbox;
use crate::shard::Shard;

/// A partition that is expected, or of which copies are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivalRow {
    /// Which.
    pub name: PartitionName,
    /// Its commands wait.
    pub holds_back: bool,
    /// Of copies that nobody has opened, those that hold messages first.
    pub cuts: Vec<Cut>,
    /// A copy is being opened: it waits for other shards' words.
    pub is_opening: bool,
}

impl Shard {
    /// Every partition on its way here.
    #[must_use]
    pub fn arrivals(&self) -> Vec<ArrivalRow> {
        let cuts = |of: &super::arrivals::Arrival| {
            let mut copies: Vec<_> = of.transfers.iter().filter(|of| !of.is_opening).collect();
            copies.sort_by_key(|copy| copy.messages.is_empty());
            copies.into_iter().map(|copy| copy.cut).collect()
        };
        let row = |of: &super::arrivals::Arrival| ArrivalRow {
            name: of.name.clone(),
            holds_back: of.holds_back,
            cuts: cuts(of),
            is_opening: of.transfers.iter().any(|of| of.is_opening),
        };
        self.handover.arrivals.iter().map(row).collect()
    }

    /// Whether a partition's commands wait for it.
    #[must_use]
    pub fn is_expecting(&self, name: &PartitionName) -> bool {
        self.handover.arrivals.holding_back(name).is_some()
    }

    /// Whether a part of a queue is here, be it that its partitions went elsewhere.
    #[must_use]
    pub fn knows(&self, tenant: Tenant, queue: &str) -> bool {
        self.queues.find(tenant, queue).is_some_and(|index| self.queues.get(index).exists)
    }

    /// Whether a partition is here and open: known, and not packed.
    #[must_use]
    pub fn holds(&self, tenant: Tenant, queue: &str, partition: &str) -> bool {
        let Some(index) = self.queues.find(tenant, queue) else { return false };
        let rings = &self.queues.get(index).rings;
        rings.find(partition).is_some_and(|ring| rings.get(ring).packed().is_none())
    }

    /// A partition is not this shard's any more: its commands are handed back as `Moved`. Copies stay until their source has said what
    /// becomes of them.
    pub fn turn_back(&mut self, name: &PartitionName, out: &mut impl Outbox) {
        let Some(id) = self.handover.arrivals.find(name) else { return };
        let held = self.handover.arrivals.let_through(id);
        self.uncharge_held(&held);
        for held in held {
            out.answer(held.ticket, moved(held.command, held.standing.since));
        }
    }

    /// Whether commands wait for other shards' words: they may make partitions when those come.
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty() || !self.waiting_pushes.is_empty()
    }
}
