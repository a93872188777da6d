//! Where a command is carried out: on a shard of this node or on one of another's.
//!
//! The owner of a queue follows from the table of members, a partition's shard from the names and the shards that the owner's start has. So
//! whoever asks knows the shard, and the node that is asked has only to check that it owns the queue by its own table.

use std::sync::Arc;

use mayfly_shards::{ShardIndex, Tenant, home_shard, shard_of};

use crate::api::Failure;
use crate::control::{Member, Members, NodeId, Standing};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On this node.
    Here(ShardIndex),
    /// On another.
    There(NodeId, ShardIndex),
}

impl Place {
    /// The other node.
    pub(super) const fn node(self) -> Option<NodeId> {
        match self {
            Self::Here(_) => None,
            Self::There(node, _) => Some(node),
        }
    }

    /// The shard, on whichever node.
    #[cfg(test)]
    pub(super) const fn shard(self) -> ShardIndex {
        match self {
            Self::Here(shard) | Self::There(_, shard) => shard,
        }
    }
}

/// The table of members as a core knows it.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    shard_count: u16,
    /// None: this node is alone.
    cluster: Option<Cluster>,
}

#[derive(Clone, Debug)]
struct Cluster {
    me: NodeId,
    /// Of this start: what an earlier one owned is nobody's until the table knows this one.
    incarnation: u64,
    members: Arc<Members>,
}

/// Nobody owns the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unowned;

impl From<Unowned> for Failure {
    fn from(_: Unowned) -> Self {
        Self::OwnerMoved
    }
}

impl Placement {
    /// A node of `shard_count` shards; of a cluster when it has an id and an incarnation there. Such a one owns nothing before it was
    /// told so.
    pub(super) fn new(shard_count: u16, me: Option<(NodeId, u64)>) -> Self {
        Self { shard_count, cluster: me.map(|(me, incarnation)| Cluster { me, incarnation, members: Arc::default() }) }
    }

    /// Whether there are other nodes.
    pub(super) const fn is_clustered(&self) -> bool {
        self.cluster.is_some()
    }

    /// Shards of this node.
    pub(super) const fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// Takes a newer table. Whether it was newer.
    pub(super) fn follow(&mut self, members: &Arc<Members>) -> bool {
        let Some(cluster) = &mut self.cluster else { return false };
        let is_newer = members.epoch() > cluster.members.epoch();
        if is_newer {
            cluster.members = Arc::clone(members);
        }
        is_newer
    }

    /// The number of the table that answers go by.
    pub(super) fn epoch(&self) -> u64 {
        self.cluster.as_ref().map_or(0, |cluster| cluster.members.epoch())
    }

    /// Whether this node serves: alone it does, in a cluster when the table says so of this start.
    pub(super) fn is_member(&self) -> bool {
        let Some(Cluster { me, incarnation, members }) = &self.cluster else { return true };
        members.find(*me).is_some_and(|own| own.incarnation == *incarnation && own.standing == Standing::Live)
    }

    /// Where a partition is served.
    pub(super) fn of_partition(&self, tenant: Tenant, queue: &str, partition: &str) -> Result<Place, Unowned> {
        let Some(cluster) = &self.cluster else { return Ok(Place::Here(shard_of(tenant, queue, partition, self.shard_count))) };
        let owner = cluster.owner(tenant, queue)?;
        Ok(self.on(owner, shard_of(tenant, queue, partition, owner.shard_count)))
    }

    /// Where a queue as a whole is served: by its home.
    pub(super) fn of_queue(&self, tenant: Tenant, queue: &str) -> Result<Place, Unowned> {
        let Some(cluster) = &self.cluster else { return Ok(Place::Here(home_shard(tenant, queue, self.shard_count))) };
        let owner = cluster.owner(tenant, queue)?;
        Ok(self.on(owner, home_shard(tenant, queue, owner.shard_count)))
    }

    /// Where a pop is served: by its partition's shard, one of any partition by the queue's home.
    pub(super) fn of_pop(&self, tenant: Tenant, queue: &str, partition: Option<&str>) -> Result<Place, Unowned> {
        match partition {
            Some(partition) => self.of_partition(tenant, queue, partition),
            None => self.of_queue(tenant, queue),
        }
    }

    /// Every shard of every node that may hold something; of a node alone, its own.
    pub(super) fn everywhere(&self) -> impl Iterator<Item = Place> {
        let alone = self.cluster.is_none().then_some(self.shard_count);
        let here = (0..alone.unwrap_or(0)).map(|shard| Place::Here(ShardIndex(shard)));
        here.chain(self.holders().flat_map(|member| (0..member.shard_count).map(|shard| self.on(member, ShardIndex(shard)))))
    }

    /// A queue's home on every node that may hold something of it; of a node alone, its own.
    pub(super) fn homes(&self, tenant: Tenant, queue: &str) -> impl Iterator<Item = Place> {
        let here = self.cluster.is_none().then(|| Place::Here(home_shard(tenant, queue, self.shard_count)));
        here.into_iter().chain(self.holders().map(move |member| self.on(member, home_shard(tenant, queue, member.shard_count))))
    }

    /// One that leaves holds what it has not handed over yet.
    fn holders(&self) -> impl Iterator<Item = &Member> {
        let rows = self.cluster.iter().flat_map(|cluster| cluster.members.rows());
        rows.filter(|member| matches!(member.standing, Standing::Live | Standing::Leaving))
    }

    /// The other node of an incarnation, and how many shards it has.
    pub(super) fn node_of(&self, incarnation: u64) -> Option<(NodeId, u16)> {
        let cluster = self.cluster.as_ref()?;
        let is_there = |member: &&Member| member.id != cluster.me && member.standing != Standing::Down;
        let member = cluster.members.of_incarnation(incarnation).filter(is_there)?;
        Some((member.id, member.shard_count))
    }

    /// The start of a node, as the table says.
    pub(super) fn incarnation_of(&self, node: NodeId) -> Option<u64> {
        self.cluster.as_ref()?.members.find(node).map(|member| member.incarnation)
    }

    /// Whether a link to this start of a node is still of use: one over which it is asked, or one over which it asks. A start that asks
    /// may be newer than the table.
    pub(super) fn may_serve(&self, node: NodeId, incarnation: u64, is_asked: bool) -> bool {
        let member = self.cluster.as_ref().and_then(|cluster| cluster.members.find(node));
        match member {
            Some(member) if member.incarnation == incarnation => member.standing != Standing::Down,
            _ => !is_asked,
        }
    }

    fn on(&self, owner: &Member, shard: ShardIndex) -> Place {
        match &self.cluster {
            Some(cluster) if cluster.me != owner.id => Place::There(owner.id, shard),
            _ => Place::Here(shard),
        }
    }
}

impl Cluster {
    fn owner(&self, tenant: Tenant, queue: &str) -> Result<&Member, Unowned> {
        let id = self.members.owner(tenant, queue).ok_or(Unowned)?;
        let is_earlier = |owner: &&Member| owner.id == self.me && owner.incarnation != self.incarnation;
        self.members.find(id).filter(|owner| !is_earlier(owner)).ok_or(Unowned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::members::table;

    const TENANT: Tenant = Tenant::DEFAULT;

    fn placement(me: u64) -> Placement {
        let mut placement = Placement::new(2, Some((NodeId(me), 1_000 + me)));
        assert!(placement.follow(&Arc::new(table(&[(1, 2), (2, 3), (3, 1)]))));
        placement
    }

    #[test]
    fn a_node_alone_serves_everything_itself() {
        let alone = Placement::new(4, None);
        assert_eq!(alone.of_partition(TENANT, "q", "p"), Ok(Place::Here(shard_of(TENANT, "q", "p", 4))));
        assert_eq!(alone.of_pop(TENANT, "q", None), Ok(Place::Here(home_shard(TENANT, "q", 4))));
        assert_eq!((alone.everywhere().count(), alone.homes(TENANT, "q").count(), alone.node_of(7)), (4, 1, None));
    }

    #[test]
    fn all_nodes_agree_on_the_owner_and_its_shard() {
        for index in 0..1_000 {
            let queue = format!("q{index}");
            let [first, second, third] = [1, 2, 3].map(|me| placement(me).of_partition(TENANT, &queue, "p").expect("owned"));
            let here = [first, second, third].iter().filter(|place| matches!(place, Place::Here(_))).count();
            assert_eq!((here, first.shard(), second.shard()), (1, second.shard(), third.shard()));
        }
        assert_eq!(placement(1).everywhere().count(), 6);
    }

    #[test]
    fn what_an_earlier_start_owned_is_nobodys() {
        let mut placement = Placement::new(1, Some((NodeId(1), 5)));
        assert!(placement.follow(&Arc::new(table(&[(1, 1)]))));
        assert_eq!((placement.of_queue(TENANT, "q"), placement.is_member()), (Err(Unowned), false));
        assert!(Placement::new(1, None).is_member() && self::placement(1).is_member());
    }

    #[test]
    fn nobody_owns_anything_before_the_first_table_and_an_older_one_is_not_taken() {
        let mut placement = Placement::new(1, Some((NodeId(1), 1_001)));
        assert_eq!(placement.of_queue(TENANT, "q"), Err(Unowned));
        assert!(placement.follow(&Arc::new(table(&[(1, 1), (2, 1)]))));
        assert!(!placement.follow(&Arc::new(table(&[(1, 1)]))));
        assert!(placement.of_queue(TENANT, "q").is_ok());
        let node = NodeId(2);
        assert!(placement.may_serve(node, 1_002, true) && !placement.may_serve(node, 1, true) && placement.may_serve(node, 1, false));
    }
}
