//! Who votes in the group that agrees on changes, as of an entry of its log.
//!
//! A node is a voter, a learner (it is sent the log and does not vote), or neither. On the way from one set of voters to another both
//! decide together: the group is joint.

use std::collections::BTreeSet;

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use serde::{Deserialize, Serialize};

use super::members::NodeId;

/// See the module. Lists are in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Electors {
    voters: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    learners: Vec<u64>,
    /// The voters before, while the group is joint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outgoing: Vec<u64>,
    /// Of those, the ones that are learners after.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    learners_next: Vec<u64>,
    #[serde(skip_serializing_if = "is_not")]
    leaves_by_itself: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_not(flag: &bool) -> bool {
    !*flag
}

/// What becomes of a node's vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectorChange {
    /// It is sent the log, and does not vote, or not any more.
    Learns(NodeId),
    /// It votes.
    Votes(NodeId),
    /// It is sent nothing any more.
    Leaves(NodeId),
}

impl ElectorChange {
    /// As raft has it: by way of a joint group, which ends by itself.
    pub(super) fn spelled(self) -> ConfChangeV2 {
        let (kind, node) = match self {
            Self::Learns(node) => (ConfChangeType::AddLearnerNode, node),
            Self::Votes(node) => (ConfChangeType::AddNode, node),
            Self::Leaves(node) => (ConfChangeType::RemoveNode, node),
        };
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = node.0;
        let mut change = ConfChangeV2::default();
        change.set_transition(ConfChangeTransition::Implicit);
        change.mut_changes().push(single);
        change
    }
}

impl Electors {
    /// A group in which these vote.
    #[must_use]
    pub fn of(voters: &[NodeId]) -> Self {
        let voters: BTreeSet<u64> = voters.iter().map(|node| node.0).collect();
        Self { voters: voters.into_iter().collect(), ..Self::default() }
    }

    /// Those that vote, or will when the group is not joint any more.
    pub fn voters(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.voters.iter().copied().map(NodeId)
    }

    /// Those that are sent the log and do not vote, or will not.
    pub fn learners(&self) -> impl Iterator<Item = NodeId> {
        self.learners.iter().chain(&self.learners_next).copied().map(NodeId)
    }

    /// Every node of the group.
    #[must_use]
    pub fn all(&self) -> BTreeSet<NodeId> {
        self.voters().chain(self.learners()).chain(self.outgoing.iter().copied().map(NodeId)).collect()
    }

    /// Whether a node is of the group.
    #[must_use]
    pub fn has(&self, node: NodeId) -> bool {
        [&self.voters, &self.learners, &self.outgoing].iter().any(|list| list.contains(&node.0))
    }

    /// Whether a node's vote counts now.
    #[must_use]
    pub fn counts(&self, node: NodeId) -> bool {
        self.voters.contains(&node.0) || self.outgoing.contains(&node.0)
    }

    /// Whether two sets of voters decide together.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether it is one node's alone.
    #[must_use]
    pub fn is_alone(&self, node: NodeId) -> bool {
        self.voters == [node.0] && self.learners.is_empty() && !self.is_joint()
    }

    pub(super) fn conf_state(&self) -> ConfState {
        let mut spelled = ConfState::from((self.voters.clone(), self.learners.clone()));
        spelled.set_voters_outgoing(self.outgoing.clone());
        spelled.set_learners_next(self.learners_next.clone());
        spelled.auto_leave = self.leaves_by_itself;
        spelled
    }
}

impl From<&ConfState> for Electors {
    fn from(spelled: &ConfState) -> Self {
        let sorted = |list: &[u64]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        Self {
            voters: sorted(spelled.get_voters()),
            learners: sorted(spelled.get_learners()),
            outgoing: sorted(spelled.get_voters_outgoing()),
            learners_next: sorted(spelled.get_learners_next()),
            leaves_by_itself: spelled.auto_leave,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joint_group_comes_back_from_raft_and_from_text_as_it_was() {
        let electors =
            Electors { voters: vec![1, 2, 4], learners: vec![5], outgoing: vec![1, 2, 3], learners_next: vec![3], leaves_by_itself: true };
        assert_eq!(Electors::from(&electors.conf_state()), electors);
        let text = serde_json::to_string(&electors).expect("text");
        assert_eq!(serde_json::from_str::<Electors>(&text).expect("readable"), electors);
        assert!(electors.is_joint() && electors.counts(NodeId(3)) && !electors.counts(NodeId(5)));
        assert_eq!(electors.all(), (1..=5).map(NodeId).collect());
    }

    #[test]
    fn a_group_of_one_is_short() {
        let electors = Electors::of(&[NodeId(7)]);
        assert!(electors.is_alone(NodeId(7)) && !electors.is_alone(NodeId(6)));
        assert_eq!(serde_json::to_string(&electors).expect("text"), r#"{"voters":[7]}"#);
    }
}
