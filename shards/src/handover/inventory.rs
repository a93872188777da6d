//! Which partitions a shard holds, page by page: what a hand-over is planned from.

use super::PartitionName;
use crate::link::Link;
use crate::name::DEFAULT_PARTITION;
use crate::queue::{Queue, QueueIndex, RingIndex};
use crate::ring::Ring;
use crate::shard::Shard;

/// Where the next page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InventoryCursor {
    queue: u32,
    ring: u32,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryRow {
    /// Which.
    pub name: PartitionName,
    /// Messages held or packed.
    pub message_count: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// It is packed.
    pub is_packed: bool,
    /// There is no such partition: the row stands for a queue without any, and without pops that wait.
    pub is_bare: bool,
}

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// In no order that means anything.
    pub rows: Vec<InventoryRow>,
    /// None: that was the last one.
    pub next: Option<InventoryCursor>,
}

impl Shard {
    /// At most `limit` partitions from `from` on, also of deleted queues on which pops are still parked. Of a queue that has no partition the
    /// home lists the Default one, so that its groups and its declaration move too. Between two pages partitions come and go: each that stays is in one of them.
    #[must_use]
    pub fn inventory(&self, from: Option<InventoryCursor>, limit: usize) -> Inventory {
        let InventoryCursor { queue: first, ring: first_ring } = from.unwrap_or(InventoryCursor { queue: 0, ring: 0 });
        let mut rows = Vec::new();
        for index in first..self.queues.end() {
            let Some(queue) = self.queues.find_at(QueueIndex(index)).filter(|queue| queue.exists || queue.waiting_count() > 0) else {
                continue;
            };
            let begin = if index == first { first_ring } else { 0 };
            let is_bare = queue.rings.count() == 0;
            if is_bare && begin == 0 && is_worth_moving(queue) {
                rows.push(row(queue, DEFAULT_PARTITION, None));
            }
            for ring in begin..if is_bare { 0 } else { queue.rings.end() } {
                if rows.len() >= limit {
                    return Inventory { rows, next: Some(InventoryCursor { queue: index, ring }) };
                }
                let ring = queue.rings.find_at(RingIndex(ring));
                rows.extend(ring.map(|ring| row(queue, &ring.partition, Some(ring))));
            }
            if rows.len() >= limit {
                return Inventory { rows, next: Some(InventoryCursor { queue: index + 1, ring: 0 }) };
            }
        }
        Inventory { rows, next: None }
    }
}

/// Whether a queue without partitions is one that a new owner should know: as its home knows it.
pub(super) fn is_worth_moving(queue: &Queue) -> bool {
    !matches!(queue.link, Link::Member(_))
}

fn row(queue: &Queue, partition: &str, ring: Option<&Ring>) -> InventoryRow {
    let packed = ring.and_then(|ring| ring.packed()).map(|packed| &packed.ring);
    let contents = packed.or(ring);
    InventoryRow {
        name: PartitionName { tenant: queue.tenant(), queue: (*queue.name).into(), partition: partition.into() },
        message_count: contents.map_or(0, |ring| ring.held),
        payload_bytes: contents.map_or(0, |ring| ring.bytes),
        is_packed: packed.is_some(),
        is_bare: ring.is_none() && queue.waiting_count() == 0,
    }
}
