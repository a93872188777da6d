//! Bytes on their way through a core, charged to the node beside what its queues hold: bodies that are not whole yet, and answers that
//! sockets have not taken.
//!
//! The charge follows in steps, so that usual requests, which come and leave within a turn, never touch the shared counter. Answers are
//! charged whatever the bound says, because what they hold has left its queue. Bodies are refused beyond the bound, but one a core is
//! always read: else a body as large as the bound could never be told what is wrong with it.

use std::sync::Arc;

use mayfly_shards::NodeBudget;

/// What the charge may lag behind by, and what one connection holds free of charge: bytes.
const STEP_BYTES: usize = 64 << 10;

/// See the module.
pub(super) struct Transit {
    budget: Arc<NodeBudget>,
    /// Held of requests that are being read.
    held_bytes: usize,
    /// Connections that hold more than a step.
    large_count: usize,
    unsent_bytes: usize,
    charged_bytes: usize,
}

impl Transit {
    pub(super) fn new(budget: Arc<NodeBudget>) -> Self {
        Self { budget, held_bytes: 0, large_count: 0, unsent_bytes: 0, charged_bytes: 0 }
    }

    /// A connection that held `before` bytes of an unfinished request holds `after`. `false` when the node has no room for it: then
    /// the request has to be refused.
    #[must_use]
    pub(super) fn hold(&mut self, before: usize, after: usize) -> bool {
        self.held_bytes = self.held_bytes - before + after;
        self.large_count = self.large_count - usize::from(before > STEP_BYTES) + usize::from(after > STEP_BYTES);
        let owed = self.owed_bytes();
        if after <= before || owed <= self.charged_bytes {
            return true;
        }
        let fits = self.budget.bytes.charge((owed - self.charged_bytes) as u64);
        if fits {
            self.charged_bytes = owed;
        }
        fits || after <= STEP_BYTES || self.large_count <= 1
    }

    /// A request is whole, or its connection is gone: what it held is given back before its message is charged.
    pub(super) fn let_go(&mut self, before: usize) {
        if before > 0 {
            let _ = self.hold(before, 0);
            self.follow(self.unsent_bytes);
        }
    }

    /// Charges what sockets have not taken, once a turn.
    pub(super) fn follow(&mut self, unsent_bytes: usize) {
        self.unsent_bytes = unsent_bytes;
        let owed = self.owed_bytes();
        if owed > self.charged_bytes {
            self.budget.bytes.charge_unbounded((owed - self.charged_bytes) as u64);
        } else if owed < self.charged_bytes {
            self.budget.bytes.release((self.charged_bytes - owed) as u64);
        }
        self.charged_bytes = owed;
    }

    /// Whole steps.
    fn owed_bytes(&self) -> usize {
        (self.held_bytes + self.unsent_bytes) / STEP_BYTES * STEP_BYTES
    }
}

#[cfg(test)]
mod tests {
    use mayfly_shards::Allowance;

    use super::*;

    fn transit(max_bytes: u64) -> (Arc<NodeBudget>, Transit) {
        let budget = Arc::new(NodeBudget::new(max_bytes, Allowance::UNBOUNDED));
        (Arc::clone(&budget), Transit::new(budget))
    }

    #[test]
    fn usual_requests_and_answers_cost_nothing() {
        let (budget, mut transit) = transit(1 << 20);
        assert!(transit.hold(0, STEP_BYTES / 2));
        transit.follow(STEP_BYTES / 3);
        assert_eq!(budget.bytes.used(), 0);
    }

    #[test]
    fn bodies_and_answers_are_charged_in_steps_and_given_back() {
        let (budget, mut transit) = transit(1 << 20);
        assert!(transit.hold(0, 3 * STEP_BYTES + 1));
        assert_eq!(budget.bytes.used(), 3 * STEP_BYTES as u64);
        transit.follow(2 * STEP_BYTES);
        assert_eq!(budget.bytes.used(), 5 * STEP_BYTES as u64);
        transit.let_go(3 * STEP_BYTES + 1);
        assert_eq!(budget.bytes.used(), 2 * STEP_BYTES as u64);
        transit.follow(0);
        assert_eq!(budget.bytes.used(), 0);
    }

    #[test]
    fn bodies_beyond_the_bound_are_refused_but_one() {
        let (budget, mut transit) = transit(8 * STEP_BYTES as u64);
        assert!(transit.hold(0, 10 * STEP_BYTES), "the first is read in any case");
        assert!(!transit.hold(0, 2 * STEP_BYTES), "a second is not");
        assert!(transit.hold(2 * STEP_BYTES, STEP_BYTES), "a small one is");
        transit.let_go(10 * STEP_BYTES);
        assert!(transit.hold(STEP_BYTES, 7 * STEP_BYTES), "when there is room again, others are");
        transit.let_go(7 * STEP_BYTES);
        assert_eq!(budget.bytes.used(), 0);
    }

    #[test]
    fn answers_are_charged_beyond_the_bound() {
        let (budget, mut transit) = transit(STEP_BYTES as u64);
        transit.follow(3 * STEP_BYTES);
        assert_eq!(budget.bytes.used(), 3 * STEP_BYTES as u64);
        assert!(!budget.bytes.charge(1), "pushes wait until they are read");
    }
}
