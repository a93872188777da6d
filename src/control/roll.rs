//! Who is there: what the leader makes of the nodes' heartbeats, and which rows of the table of members it proposes.
//!
//! Every node says every eighth of the member-ttl that it is there, and how far it is. The leader alone judges: it calls a node down that
//! it has not heard of for the ttl, counted anew from when it began to lead. A node's row goes joining → live → leaving → down; one that
//! comes back with another incarnation is down first, so that everybody sees that what it held is gone. Pure: the time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::consensus::Progress;
use super::electors::{ElectorChange, Electors};
use super::members::{Member, Members, NodeId, Standing};

/// Heartbeats in a member-ttl: what a network may lose before a node is called down.
pub const BEATS_PER_TTL: u32 = 8;
/// A learner that is at most so many entries behind may vote: it makes them up in a round.
const NEAR_ENTRIES: u64 = 64;
/// Incarnations that are known to be over, of each of which mail may still come.
const PAST_MAX: usize = 256;

/// How far a node says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// It does not serve yet.
    Starts,
    /// It serves.
    Serves,
    /// It was told to stop, and hands over what it holds.
    Drains,
    /// It holds nothing any more: this is its last word.
    Ended,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// Which node.
    pub node: u64,
    /// Of its present start.
    pub incarnation: u64,
    /// Shards of that start.
    pub shard_count: u16,
    /// `host:port` of its peer port.
    pub peer: Box<str>,
    /// How far it is.
    pub phase: Phase,
    /// The number of the table of members that it knows.
    pub epoch: u64,
    /// The last entry of the log that it carried out.
    pub applied: u64,
}

impl Heartbeat {
    fn row(&self, standing: Standing) -> Change {
        let (id, peer) = (NodeId(self.node), self.peer.clone());
        let member = Member { id, peer, incarnation: self.incarnation, shard_count: self.shard_count, standing };
        Change::Member { member }
    }
}

struct Heard {
    beat: Heartbeat,
    at: Instant,
}

/// See the module.
pub struct Roll {
    ttl: Duration,
    /// When this node began to lead; None: it does not.
    leads_since: Option<Instant>,
    heard: BTreeMap<NodeId, Heard>,
    /// Incarnations that others of their node followed.
    past: BTreeSet<u64>,
}

impl Roll {
    /// Nobody was heard of.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self { ttl, leads_since: None, heard: BTreeMap::new(), past: BTreeSet::new() }
    }

    /// Whether this node leads from now on: nobody was silent before it did.
    pub fn lead(&mut self, now: Instant, leads: bool) {
        match (leads, self.leads_since) {
            (true, None) => self.leads_since = Some(now),
            (false, _) => self.leads_since = None,
            (true, Some(_)) => {}
        }
    }

    /// A node says how it is.
    pub fn heard(&mut self, now: Instant, beat: Heartbeat) {
        let node = NodeId(beat.node);
        if self.past.contains(&beat.incarnation) {
            return;
        }
        if let Some(before) = self.heard.get(&node)
            && before.beat.incarnation != beat.incarnation
        {
            if self.past.len() >= PAST_MAX {
                self.past.pop_first();
            }
            self.past.insert(before.beat.incarnation);
        }
        self.heard.insert(node, Heard { beat, at: now });
    }

    /// The last word of each node, and how long ago it came.
    pub fn last_words(&self, now: Instant) -> impl Iterator<Item = (&Heartbeat, Duration)> {
        self.heard.values().map(move |heard| (&heard.beat, now.saturating_duration_since(heard.at)))
    }

    /// What a node said last, unless it has been silent since for too long.
    fn word(&self, now: Instant, node: NodeId) -> Option<&Heartbeat> {
        let heard = self.heard.get(&node)?;
        (now.saturating_duration_since(heard.at) < self.ttl).then_some(&heard.beat)
    }

    fn is_silent(&self, now: Instant, node: NodeId) -> bool {
        let Some(since) = self.leads_since else { return false };
        let since = self.heard.get(&node).map_or(since, |heard| heard.at.max(since));
        now.saturating_duration_since(since) >= self.ttl
    }

    /// The rows that a leader is to propose: one step for each node whose row is not as it should be. Nothing unless this node leads.
    #[must_use]
    pub fn due(&self, now: Instant, members: &Members, electors: &Electors) -> Vec<Change> {
        if self.leads_since.is_none() {
            return Vec::new();
        }
        let nodes: BTreeSet<NodeId> = self.heard.keys().copied().chain(members.rows().iter().map(|member| member.id)).collect();
        nodes.into_iter().filter_map(|node| self.due_of(now, node, members, electors.has(node))).collect()
    }

    fn due_of(&self, now: Instant, node: NodeId, members: &Members, is_in: bool) -> Option<Change> {
        let word = self.word(now, node);
        let Some(row) = members.find(node) else {
            // Whoever was not taken in, or was let go, is heard of in vain.
            return word.filter(|beat| is_in && beat.is_coming()).map(|beat| beat.row(Standing::Joining));
        };
        let down = || Change::Member { member: Member { standing: Standing::Down, ..row.clone() } };
        if row.standing == Standing::Down {
            if !is_in {
                return Some(Change::Expel { id: node });
            }
            // One that was stopped and comes back as it was has to know that it was down.
            let may_join = |beat: &&Heartbeat| beat.is_coming() && (beat.incarnation != row.incarnation || beat.epoch >= members.epoch());
            return word.filter(may_join).map(|beat| beat.row(Standing::Joining));
        }
        if self.is_silent(now, node) {
            return Some(down());
        }
        let beat = word?;
        if beat.incarnation != row.incarnation || beat.phase == Phase::Ended {
            return Some(down());
        }
        match (row.standing, beat.phase) {
            (Standing::Joining, Phase::Serves) => Some(beat.row(Standing::Live)),
            (Standing::Joining | Standing::Live, Phase::Drains) => Some(beat.row(Standing::Leaving)),
            _ => None,
        }
    }

    /// The next step towards the votes that should be: learners vote once they have caught up, and of two voters one that leaves gives
    /// its vote back first, since the other could not decide anything without it.
    #[must_use]
    pub fn vote(&self, now: Instant, electors: &Electors, progress: &[Progress], applied: u64) -> Option<ElectorChange> {
        if self.leads_since.is_none() || electors.is_joint() {
            return None;
        }
        let is_going = |node: &NodeId| self.word(now, *node).is_some_and(|beat| !beat.is_coming());
        let voters: Vec<NodeId> = electors.voters().collect();
        if voters.len() == 2
            && let Some(leaver) = voters.iter().find(|node| is_going(node))
            && !voters.iter().all(is_going)
        {
            return Some(ElectorChange::Learns(*leaver));
        }
        let may_vote = |node: &NodeId| {
            let is_near = |of: &Progress| of.node == *node && of.is_active && of.matched + NEAR_ENTRIES >= applied;
            self.word(now, *node).is_some_and(Heartbeat::is_coming) && progress.iter().any(is_near)
        };
        electors.learners().find(may_vote).map(ElectorChange::Votes)
    }

    /// Who should lead when this node leaves: a voter that stays, the one whose log is longest.
    #[must_use]
    pub fn heir(&self, now: Instant, own: NodeId, electors: &Electors, progress: &[Progress]) -> Option<NodeId> {
        let stays = |of: &&Progress| {
            let is_coming = self.word(now, of.node).is_some_and(Heartbeat::is_coming);
            of.node != own && of.is_active && is_coming && electors.voters().any(|voter| voter == of.node)
        };
        progress.iter().filter(stays).max_by_key(|of| of.matched).map(|of| of.node)
    }
}

impl Heartbeat {
    /// Whether the node is on its way in, or is in.
    fn is_coming(&self) -> bool {
        matches!(self.phase, Phase::Starts | Phase::Serves)
    }
}

#[cfg(test)]
#[path = "roll_tests.rs"]
mod tests;
