//! The nodes of a cluster as they are agreed on, numbered by epoch: who owns a queue follows from this table alone.
//!
//! A queue is whole on one node, with all its partitions, so that what its groups and partitions agree on never waits for another node.
//!
//! Invariants: rows are in order of their ids; the epoch grows with everything that changes a row; the same table gives the same owner
//! on every node. Moving one node in or out moves only what that node owns.

use mayfly_shards::Tenant;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A node of a cluster, as its configuration names it: 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Heard of, and does not say yet that it serves.
    Joining,
    /// Owns queues.
    Live,
    /// Told to stop: owns nothing any more, and hands over what it holds.
    Leaving,
    /// Not heard of for too long, or gone.
    Down,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub id: NodeId,
    /// `host:port` of its peer port.
    pub peer: Box<str>,
    /// Of its present start.
    pub incarnation: u64,
    /// Shards of that start.
    pub shard_count: u16,
    /// How far it is.
    pub standing: Standing,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    epoch: u64,
    rows: Vec<Member>,
}

impl Members {
    /// The number of this table: a later one's is higher.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Raises the epoch to `number`, if it is lower.
    pub(super) fn raise_epoch(&mut self, number: u64) -> bool {
        let is_raised = self.epoch < number;
        self.epoch = self.epoch.max(number);
        is_raised
    }

    /// Every member, in order of its id.
    #[must_use]
    pub fn rows(&self) -> &[Member] {
        &self.rows
    }

    /// One member.
    #[must_use]
    pub fn find(&self, id: NodeId) -> Option<&Member> {
        self.place(id).ok().map(|index| &self.rows[index])
    }

    /// The member of an incarnation.
    #[must_use]
    pub fn of_incarnation(&self, incarnation: u64) -> Option<&Member> {
        self.rows.iter().find(|member| member.incarnation == incarnation)
    }

    /// Those that own queues.
    pub fn live(&self) -> impl Iterator<Item = &Member> {
        self.rows.iter().filter(|member| member.standing == Standing::Live)
    }

    /// Writes a row. Whether it changed anything.
    pub(super) fn put(&mut self, member: &Member) -> bool {
        match self.place(member.id) {
            Ok(index) if self.rows[index] == *member => return false,
            Ok(index) => self.rows[index] = member.clone(),
            Err(index) => self.rows.insert(index, member.clone()),
        }
        self.epoch += 1;
        true
    }

    /// Takes a row out. Whether there was one.
    pub(super) fn take(&mut self, id: NodeId) -> bool {
        let Ok(index) = self.place(id) else { return false };
        self.rows.remove(index);
        self.epoch += 1;
        true
    }

    fn place(&self, id: NodeId) -> Result<usize, usize> {
        self.rows.binary_search_by_key(&id, |member| member.id)
    }

    /// The live member that owns a queue; None: nobody is live.
    #[must_use]
    pub fn owner(&self, tenant: Tenant, queue: &str) -> Option<NodeId> {
        let key = key(tenant, queue);
        self.live().map(|member| (weight(key, member.id), member.id)).max().map(|(_, id)| id)
    }
}

/// What a queue's names come to.
fn key(tenant: Tenant, queue: &str) -> u64 {
    let seed = (tenant.0 ^ (tenant.0 >> 64)) as u64;
    xxh3_64_with_seed(queue.as_bytes(), seed)
}

/// How much a node wants a queue: the highest bidder owns it (highest random weight).
fn weight(key: u64, node: NodeId) -> u64 {
    xxh3_64_with_seed(&key.to_le_bytes(), xxh3_64(&node.0.to_le_bytes()))
}

/// A table of live members: ids, each with its number of shards.
#[cfg(test)]
pub(crate) fn table(rows: &[(u64, u16)]) -> Members {
    let mut members = Members::default();
    for (id, shard_count) in rows.iter().copied() {
        let (peer, standing) = (format!("10.0.0.{id}:6633").into(), Standing::Live);
        members.put(&Member { id: NodeId(id), peer, incarnation: 1_000 + id, shard_count, standing });
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: usize = 100_000;

    fn member(id: u64, standing: Standing) -> Member {
        Member { id: NodeId(id), peer: format!("10.0.0.{id}:6633").into(), incarnation: 1_000 + id, shard_count: 1, standing }
    }

    fn members(ids: impl IntoIterator<Item = u64>) -> Members {
        let mut members = Members::default();
        ids.into_iter().for_each(|id| assert!(members.put(&member(id, Standing::Live))));
        members
    }

    fn owners(members: &Members) -> Vec<NodeId> {
        let owner = |index| members.owner(Tenant::DEFAULT, &format!("inbox-{index}")).expect("somebody is live");
        (0..NAMES).map(owner).collect()
    }

    #[test]
    fn names_spread_evenly_and_only_a_joiners_share_moves() {
        for count in [3, 5, 8] {
            let before = owners(&members(1..=count));
            let held: Vec<_> = (1..=count).map(|id| before.iter().filter(|owner| owner.0 == id).count()).collect();
            let (least, most) = (held.iter().min().expect("nodes"), held.iter().max().expect("nodes"));
            assert!(*most as f64 / *least as f64 <= 1.05, "{held:?}");

            let after = owners(&members(1..=count + 1));
            let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
            assert!(moved.clone().all(|(_, after)| after.0 == count + 1), "only to the one that came");
            assert!(moved.count() as f64 / NAMES as f64 <= 1.0 / (count + 1) as f64 + 0.01);
        }
    }

    #[test]
    fn queues_of_one_name_and_of_many_tenants_spread_too() {
        let members = members(1..=3);
        let count = (0..9_000).filter(|index| members.owner(Tenant(*index), "q") == Some(NodeId(1))).count();
        assert!((2_700..3_300).contains(&count), "{count} of 9,000");
    }

    #[test]
    fn only_live_members_own_and_every_change_is_an_epoch() {
        let mut members = Members::default();
        assert_eq!((members.owner(Tenant::DEFAULT, "q"), members.epoch()), (None, 0));
        assert!(members.put(&member(2, Standing::Joining)) && members.put(&member(1, Standing::Leaving)));
        assert_eq!((members.owner(Tenant::DEFAULT, "q"), members.epoch()), (None, 2));
        assert!(members.put(&member(2, Standing::Live)) && !members.put(&member(2, Standing::Live)));
        assert_eq!((members.owner(Tenant::DEFAULT, "q"), members.epoch()), (Some(NodeId(2)), 3));
        assert!(members.take(NodeId(2)) && !members.take(NodeId(2)));
        assert_eq!((members.rows().len(), members.epoch()), (1, 4));
        assert_eq!(members.of_incarnation(1_001).map(|member| member.id), Some(NodeId(1)));
    }
}
