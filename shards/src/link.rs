//! What a part of a queue has to do with the queue's parts on other shards.
//!
//! A queue's home keeps the directory: which shards have a part. It gives the generation and serialises what all parts must agree on:
//! options, groups, reset, delete, collection. While a queue lives on its home alone there is nothing to agree.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::letter::Deferred;
use crate::placement::ShardIndex;
use crate::push::Room;
use crate::queue::GroupIndex;
use crate::room::RoomRequest;
use crate::time::Time;

/// See the module.
#[derive(Debug)]
pub(crate) enum Link {
    /// The home, and no other shard has a part.
    Alone,
    /// The home, with members.
    Home(Box<Directory>),
    /// A member; the home is another shard.
    Member(Box<Membership>),
}

/// A home's view of its members.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) members: SmallVec<[ShardIndex; 4]>,
    /// What each member last said it has for a group, while the home bids for it.
    pub(crate) ready: Vec<(GroupIndex, ShardIndex, u64)>,
    /// Orders and claims under way: the entry stays until they ended.
    pub(crate) busy_count: u32,
    /// Commands are held back: a freeze is under way.
    pub(crate) is_frozen: bool,
    pub(crate) deferred: VecDeque<Deferred>,
    /// When the members were last told that a pop of any partition was answered.
    pub(crate) told_at: Option<Time>,
    /// When idle groups were last asked for.
    pub(crate) forgot_at: Option<Time>,
    /// Pushes that need room on other cores, in the order in which they asked: see `room`.
    pub(crate) room_requests: VecDeque<RoomRequest>,
    /// Room that was made for them, still charged to the queue.
    pub(crate) spare: Room,
}

impl Directory {
    /// The members that said they have something for `group`.
    pub(crate) fn sources_of(&self, group: GroupIndex) -> SmallVec<[ShardIndex; 4]> {
        self.ready.iter().filter(|(of, _, _)| *of == group).map(|(_, member, _)| *member).collect()
    }

    /// What the members said they have for `group`.
    pub(crate) fn ready_of(&self, group: GroupIndex) -> u64 {
        self.ready.iter().filter(|(of, _, _)| *of == group).map(|(_, _, count)| count).sum()
    }

    /// Notes what `member` says it has.
    pub(crate) fn set_ready(&mut self, group: GroupIndex, member: ShardIndex, count: u64) {
        self.ready.retain(|(of, who, _)| (*of, *who) != (group, member));
        if count > 0 {
            self.ready.push((group, member, count));
        }
    }
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// Asked the home; commands wait for its word.
    Joining,
    /// Serves.
    Live,
    /// Deleted, but pops are parked here: the next use joins again.
    Vacant,
    /// The home holds everything back.
    Frozen,
}

/// A member's view of its home.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) home: ShardIndex,
    pub(crate) state: MemberState,
    pub(crate) deferred: VecDeque<Deferred>,
    /// Pops of groups that the home is asked to register.
    pub(crate) registering: Vec<(std::sync::Arc<str>, Deferred)>,
}

impl Link {
    /// Whether this shard is the queue's home.
    pub(crate) fn is_home(&self) -> bool {
        !matches!(self, Self::Member(_))
    }

    pub(crate) fn directory(&self) -> Option<&Directory> {
        match self {
            Self::Home(directory) => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn directory_mut(&mut self) -> Option<&mut Directory> {
        match self {
            Self::Home(directory) => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn membership_mut(&mut self) -> Option<&mut Membership> {
        match self {
            Self::Member(membership) => Some(membership),
            _ => None,
        }
    }

    /// The shards that have a part, beside the home.
    pub(crate) fn members(&self) -> SmallVec<[ShardIndex; 4]> {
        self.directory().map(|directory| directory.members.clone()).unwrap_or_default()
    }

    /// Whether commands must wait.
    pub(crate) fn holds_back(&self) -> bool {
        match self {
            Self::Alone => false,
            Self::Home(directory) => directory.is_frozen,
            Self::Member(membership) => matches!(membership.state, MemberState::Joining | MemberState::Frozen),
        }
    }

    /// Keeps work until the word it waits for came.
    pub(crate) fn defer(&mut self, work: Deferred) {
        match self {
            Self::Alone => unreachable!("a queue on one shard waits for nobody"),
            Self::Home(directory) => directory.deferred.push_back(work),
            Self::Member(membership) => membership.deferred.push_back(work),
        }
    }

    /// The work that waited.
    pub(crate) fn take_deferred(&mut self) -> VecDeque<Deferred> {
        match self {
            Self::Alone => VecDeque::new(),
            Self::Home(directory) => std::mem::take(&mut directory.deferred),
            Self::Member(membership) => std::mem::take(&mut membership.deferred),
        }
    }
}
