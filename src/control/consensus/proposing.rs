//! How a change is proposed, by whichever node.

use raft::StateRole;

use super::{Consensus, ProposalId, Unavailable};
use crate::control::change::Change;
use crate::control::codec;
use crate::control::electors::ElectorChange;
use crate::control::state::State;

impl Consensus {
    /// Proposes a change, here or through the leader. It is on its way after the next [`Self::advance`].
    ///
    /// # Errors
    /// The log cannot take it, or nobody leads.
    pub fn propose(&mut self, change: &Change) -> Result<ProposalId, Unavailable> {
        let (id, context) = self.next_proposal();
        let node = self.node.as_mut().ok_or(Unavailable)?;
        node.propose(context, codec::encode(change)).map_err(|_| Unavailable)?;
        self.proposals = id.0;
        Ok(id)
    }

    /// Proposes that other nodes vote, one change at a time. `state`: after all that [`Self::advance`] gave back.
    ///
    /// # Errors
    /// The log cannot take it, nobody leads, or another such change is under way.
    pub fn propose_electors(&mut self, change: ElectorChange, state: &State) -> Result<ProposalId, Unavailable> {
        let (id, context) = self.next_proposal();
        let node = self.node.as_mut().ok_or(Unavailable)?;
        if node.raft.state == StateRole::Leader && (node.raft.has_pending_conf() || self.electors.is_joint()) {
            return Err(Unavailable);
        }
        // The log of a node that was always alone begins with nothing, as a newcomer does, who would not learn from it who votes.
        if node.store().place().index == 0
            && let Err(fault) = node.mut_store().compact(self.applied, state)
        {
            return Err(self.give_up(&fault, None));
        }
        node.propose_conf_change(context, change.spelled()).map_err(|_| Unavailable)?;
        self.proposals = id.0;
        Ok(id)
    }

    fn next_proposal(&self) -> (ProposalId, Vec<u8>) {
        let id = ProposalId(self.proposals + 1);
        let mut context = self.start.to_le_bytes().to_vec();
        context.extend_from_slice(&id.0.to_le_bytes());
        (id, context)
    }
}
