//! The status reads. They change nothing.

use mayfly_shards::{DepthReport, GroupDepth, PartitionDepth, QUEUE_MODE, QueueReport, Tenant};

use super::Model;
use super::queue::{Group, Queue};
use crate::facts::Name;

impl Model {
    pub(super) fn list(&self, tenant: Tenant, prefix: &str, after: &str, limit: usize) -> Vec<QueueReport> {
        let mut rows: Vec<QueueReport> = self.queues.iter().filter(|q| q.exists && q.name.tenant == tenant).map(report).collect();
        rows.retain(|r| r.queue.starts_with(prefix) && *r.queue > *after);
        rows.sort_by(|a, b| a.queue.cmp(&b.queue));
        rows.truncate(limit);
        rows
    }

    pub(super) fn depth(&self, name: &Name, group: Option<&str>) -> Option<DepthReport> {
        let queue = &self.queues[self.find_existing(name)?];
        let partitions = queue.partitions.iter().map(|p| partition_depth(queue, p, group)).collect();
        let groups = queue.groups.iter().map(|g| {
            let pending = queue.messages.iter().filter(|m| g.is_pending(m.id)).count() as u64;
            GroupDepth { group: g.name.as_str().into(), pending, skipped: g.skipped }
        });
        Some(DepthReport { is_home: true, declared: queue.declared, partitions, groups: groups.collect() })
    }
}

fn report(queue: &Queue) -> QueueReport {
    QueueReport {
        queue: queue.name.queue.as_str().into(),
        is_home: true,
        declared: queue.declared,
        depth: queue.messages.len() as u64,
        bytes: queue.bytes(),
        partitions: queue.partitions.len() as u64,
        groups: queue.groups.iter().filter(|g| !g.is_private()).count() as u64,
        drops: queue.drops,
        options: queue.options,
    }
}

fn partition_depth(queue: &Queue, partition: &str, asked: Option<&str>) -> PartitionDepth {
    let held: Vec<_> = queue.messages.iter().filter(|m| m.partition == partition).collect();
    let pending_of = |group: Option<&Group>| match group {
        Some(group) => held.iter().filter(|m| group.is_pending(m.id)).count() as u64,
        None => held.len() as u64,
    };
    let named = queue.groups.iter().filter(|g| g.name != QUEUE_MODE && !g.is_private());
    let pending = match asked {
        Some(name) => pending_of(queue.group(name)),
        None => named.map(|g| pending_of(Some(g))).max().unwrap_or_else(|| pending_of(queue.group(QUEUE_MODE))),
    };
    PartitionDepth { partition: partition.into(), pending, bytes: held.iter().map(|m| m.size_bytes as u64).sum() }
}
