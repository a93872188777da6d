//! The parts that shards report, of this node and of others → one listing, one depth. Only a name with a home's part exists: other parts of it are
//! left over from a queue that is going.

use mayfly_shards::{DepthReport, GroupDepth, PartitionDepth, QueueReport};

/// One queue's depth, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueDepth {
    /// Whether it was declared.
    pub declared: bool,
    /// Messages pending, over all partitions.
    pub pending_count: u64,
    /// Partitions with something pending.
    pub pending_partition_count: u64,
    /// Payload bytes held.
    pub bytes: u64,
    /// By name.
    pub partitions: Vec<PartitionDepth>,
    /// By name.
    pub groups: Vec<GroupDepth>,
}

/// One listing of the shards' listings, each sorted by name: gauges and drops summed, the rest from the home's part, of several nodes' homes
/// the first one's; the first `limit` names.
///
/// Every shard was asked for `limit` rows as well. That is enough: a shard that stopped before its part of a name has reported `limit`
/// smaller names, so this name is not among the first.
#[must_use]
pub fn queue_rows(parts: Vec<Vec<QueueReport>>, limit: usize) -> Vec<QueueReport> {
    let mut reports: Vec<QueueReport> = parts.into_iter().flatten().collect();
    // Stable, and linear in runs that are sorted already.
    reports.sort_by(|a, b| a.queue.cmp(&b.queue));
    reports.dedup_by(|next, kept| {
        let is_same = next.queue == kept.queue;
        if is_same {
            add_report(kept, next);
        }
        is_same
    });
    reports.retain(|row| row.is_home);
    reports.truncate(limit);
    reports
}

/// Adds a part to a row, which keeps what the home's part says of the queue as a whole.
fn add_report(row: &mut QueueReport, part: &mut QueueReport) {
    if part.is_home && row.is_home {
        // Of another node, which may be behind.
        row.groups = row.groups.max(part.groups);
        row.declared |= part.declared;
    } else if part.is_home {
        std::mem::swap(row, part);
    }
    row.depth += part.depth;
    row.bytes += part.bytes;
    row.partitions += part.partitions;
    for (drops, more) in row.drops.iter_mut().zip(part.drops) {
        *drops += more;
    }
}

/// One depth of the shards' depths; None: no home knows the queue.
#[must_use]
pub fn depth(parts: impl IntoIterator<Item = Option<DepthReport>>) -> Option<QueueDepth> {
    let mut declared = None;
    let (mut partitions, mut groups) = (Vec::new(), Vec::new());
    for part in parts.into_iter().flatten() {
        if part.is_home {
            declared = Some(part.declared || declared.unwrap_or(false));
        }
        partitions.extend(part.partitions);
        groups.extend(part.groups);
    }
    let declared = declared?;
    partitions.sort_by(|a: &PartitionDepth, b| a.partition.cmp(&b.partition));
    partitions.dedup_by(|next, kept| {
        let is_same = next.partition == kept.partition;
        if is_same {
            kept.pending += next.pending;
            kept.bytes += next.bytes;
        }
        is_same
    });
    groups.sort_by(|a: &GroupDepth, b| a.group.cmp(&b.group));
    groups.dedup_by(|next, kept| {
        let is_same = next.group == kept.group;
        if is_same {
            kept.pending += next.pending;
            kept.skipped += next.skipped;
        }
        is_same
    });
    Some(QueueDepth {
        declared,
        pending_count: partitions.iter().map(|partition| partition.pending).sum(),
        pending_partition_count: partitions.iter().filter(|partition| partition.pending > 0).count() as u64,
        bytes: partitions.iter().map(|partition| partition.bytes).sum(),
        partitions,
        groups,
    })
}

#[cfg(test)]
mod tests;
