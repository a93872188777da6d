//! Which core owns what: a pure function of names and the number of shards.
//!
//! `core = (home + h(partition)) mod shards` with `home = h(tenant, queue)` and `h("Default") = 0`, so a queue with one partition,
//! as an inbox is, lives whole on its home core, and a pop without a partition finds everything there.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::name::{DEFAULT_PARTITION, Tenant};

/// A core of this node, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u16);

/// The core that keeps a queue's directory and its Default partition.
#[must_use]
pub fn home_shard(tenant: Tenant, queue: &str, shard_count: u16) -> ShardIndex {
    if shard_count <= 1 {
        return ShardIndex(0);
    }
    let seed = (tenant.0 ^ (tenant.0 >> 64)) as u64;
    ShardIndex((xxh3_64_with_seed(queue.as_bytes(), seed) % u64::from(shard_count)) as u16)
}

/// The core that owns a partition.
#[must_use]
pub fn shard_of(tenant: Tenant, queue: &str, partition: &str, shard_count: u16) -> ShardIndex {
    let home = home_shard(tenant, queue, shard_count);
    if shard_count <= 1 || partition == DEFAULT_PARTITION {
        return home;
    }
    let hop = xxh3_64(partition.as_bytes()) % u64::from(shard_count);
    ShardIndex(((u64::from(home.0) + hop) % u64::from(shard_count)) as u16)
}
