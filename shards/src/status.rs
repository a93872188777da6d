//! The status reads: gauges of one shard's parts. They change nothing, and do not count as use.

use std::sync::Arc;

use crate::name::{QUEUE_MODE, Tenant};
use crate::outbox::{DepthReport, GroupDepth, PartitionDepth, QueueReport};
use crate::queue::{GroupIndex, Queue};
use crate::ring::Ring;
use crate::shard::Shard;

impl Shard {
    pub(crate) fn list(&self, tenant: Tenant, prefix: &str, after: &str, limit: usize) -> Vec<QueueReport> {
        let is_asked = |queue: &Queue| queue.exists && queue.tenant() == tenant && queue.name.starts_with(prefix) && *queue.name > *after;
        let mut queues: Vec<&Queue> = self.queues.iter().map(|(_, queue)| queue).filter(|queue| is_asked(queue)).collect();
        if queues.len() > limit {
            queues.select_nth_unstable_by(limit, |one, other| one.name.cmp(&other.name));
            queues.truncate(limit);
        }
        queues.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        queues.into_iter().map(report).collect()
    }

    pub(crate) fn depth(&self, tenant: Tenant, queue: &str, group: Option<&str>) -> Option<DepthReport> {
        let index = self.queues.find(tenant, queue)?;
        let queue = Some(self.queues.get(index)).filter(|queue| queue.exists)?;
        let asked = group.map(|group| queue.groups.find(group));
        let partitions = queue.rings.iter().map(|(_, ring)| PartitionDepth {
            partition: Arc::clone(&ring.partition),
            pending: pending(queue, ring, asked),
            bytes: ring.bytes,
        });
        let groups = queue.groups.iter().map(|(index, group)| GroupDepth {
            group: Arc::clone(&group.name),
            pending: queue.pending(index),
            skipped: group.skipped(),
        });
        Some(DepthReport {
            is_home: queue.link.is_home(),
            declared: queue.is_declared,
            partitions: partitions.collect(),
            groups: groups.collect(),
        })
    }
}

fn report(queue: &Queue) -> QueueReport {
    QueueReport {
        queue: Arc::clone(&queue.name),
        is_home: queue.link.is_home(),
        declared: queue.is_declared,
        depth: queue.held,
        bytes: queue.bytes,
        partitions: queue.rings.count() as u64,
        groups: queue.groups.iter().filter(|(_, group)| !group.is_private).count() as u64,
        drops: queue.aside.as_deref().copied().unwrap_or_default().drops,
        options: *queue.options,
    }
}

/// What is pending in a ring for the asked group; asked for none, for the worst named group, for queue mode where there is no named
/// one; for a group never seen, and where nobody popped yet, everything held. A private group counts only when it is asked for.
fn pending(queue: &Queue, ring: &Ring, asked: Option<Option<GroupIndex>>) -> u64 {
    match asked {
        Some(Some(group)) => ring.pending(group),
        Some(None) => ring.held,
        None => {
            let named = queue.groups.iter().filter(|(_, group)| *group.name != *QUEUE_MODE && !group.is_private).map(|(index, _)| index);
            let worst = named.map(|group| ring.pending(group)).max();
            let queue_mode = || queue.groups.find(QUEUE_MODE).map(|group| ring.pending(group));
            worst.or_else(queue_mode).unwrap_or(ring.held)
        }
    }
}
