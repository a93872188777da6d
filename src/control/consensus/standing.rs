//! How the group stands, as this node knows it.

use raft::StateRole;

use super::{Consensus, Progress};
use crate::control::electors::Electors;
use crate::control::fault::LogFault;
use crate::control::folder::ClusterMark;
use crate::control::gauges::ControlGauges;
use crate::control::members::NodeId;

impl Consensus {
    /// Gives the lead to another voter, if this node leads and the other follows.
    pub fn transfer(&mut self, to: NodeId) {
        if let Some(node) = &mut self.node {
            node.transfer_leader(to.0);
        }
    }

    /// Who leads, as far as is known here.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.node.as_ref().map(|node| node.raft.leader_id).filter(|id| *id != 0).map(NodeId)
    }

    /// Whether this node leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.raft.state == StateRole::Leader)
    }

    /// Whether this node leads and has carried out all that was agreed on before it did: what it knows is up to date.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.is_leader() && self.node.as_ref().is_some_and(|node| node.raft.apply_to_current_term())
    }

    /// The data folder is this cluster's from now on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn join(&self, mark: ClusterMark) -> Result<(), LogFault> {
        self.folder.join(mark)
    }

    /// The number of the leader's election, or of the last attempt at one.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.node.as_ref().map_or(0, |node| node.raft.term)
    }

    /// Who votes, as of the last entry that was given back.
    #[must_use]
    pub const fn electors(&self) -> &Electors {
        &self.electors
    }

    /// The last entry that was given back.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// What is counted here.
    #[must_use]
    pub fn gauges(&self) -> &ControlGauges {
        &self.gauges
    }

    /// Which node this is.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.origin.node
    }

    /// Whether there is nobody to agree with.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.electors.is_alone(self.origin.node)
    }

    /// How far the others are; empty unless this node leads.
    #[must_use]
    pub fn progress(&self) -> Vec<Progress> {
        let Some(node) = self.node.as_ref().filter(|node| node.raft.state == StateRole::Leader) else { return Vec::new() };
        let of = |(id, progress): (&u64, &raft::Progress)| Progress {
            node: NodeId(*id),
            matched: progress.matched,
            is_active: progress.recent_active,
        };
        let mut all: Vec<Progress> = node.raft.prs().iter().map(of).collect();
        all.sort_unstable_by_key(|progress| progress.node);
        all
    }
}
