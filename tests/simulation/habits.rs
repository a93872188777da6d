//! What one seed's clients and node are like: most seeds are plain, some are pressed on one point so that rare schedules become common.

use mayfly_shards::{Allowance, NodeBudget, Options, Policy, Span, WindowBuffer};

use crate::random::Random;

/// Options in force for undeclared queues, where a seed says nothing else.
pub(crate) const DEFAULTS: Options = Options {
    max_bytes: 1 << 30,
    max_length: 40,
    policy: Policy::Reject,
    ttl_seconds: 0,
    lease_seconds: 3,
    retry_limit: 3,
    window: WindowBuffer { ms: 0, count: 0 },
};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Reset and delete queues.
    pub(crate) changes: bool,
    pub(crate) windows: bool,
    /// Call and reply.
    pub(crate) calls: bool,
    pub(crate) broken_answers: bool,
    /// Tenants get grants and lose them.
    pub(crate) grants: bool,
    /// All at once, on one queue and group.
    pub(crate) is_crowded: bool,
    /// Bounds of queue, tenant and node that are reached, and never configured away; groups idle soon.
    pub(crate) is_tight: bool,
    /// Payloads of which one answer holds two.
    pub(crate) is_bulky: bool,
    /// Of a tight seed.
    pub(crate) policy: Policy,
    /// The node's bytes in a tight seed: from two queues and a message to all that queues and tenant may hold.
    pub(crate) node_bytes: u64,
    /// Implicit queues are collected after this long.
    pub(crate) idle: Span,
}

impl Habits {
    pub(crate) fn new(random: &mut Random) -> Self {
        let (is_crowded, is_tight) = (random.chance(25), random.chance(30));
        Self {
            changes: random.chance(50),
            windows: random.chance(25),
            calls: random.chance(50),
            broken_answers: random.chance(50),
            is_crowded,
            is_tight,
            is_bulky: !is_tight && random.chance(1),
            policy: random.pick(&[Policy::Reject, Policy::DropOldest]),
            node_bytes: random.pick(&[1_150, 1_700, 4_000]),
            idle: random.pick(&[Span::from_secs(2), Span::from_secs(20)]),
            grants: random.chance(25),
        }
    }

    /// In force for undeclared queues.
    pub(crate) fn defaults(&self) -> Options {
        if self.is_tight { Options { max_length: 12, max_bytes: 96, policy: self.policy, ..DEFAULTS } } else { DEFAULTS }
    }

    pub(crate) fn group_idle(&self) -> Span {
        Span::from_secs(if self.is_tight { 1 } else { 600 })
    }

    /// Spaces behind a payload's number.
    pub(crate) fn padding(&self, random: &mut Random) -> usize {
        match (self.is_tight, self.is_bulky) {
            (true, _) => random.below(12) as usize,
            (_, true) => 400_000,
            _ => 0,
        }
    }

    pub(crate) fn budget(&self) -> NodeBudget {
        if self.is_tight {
            let allowance = Allowance { bytes_max: self.node_bytes / 8, queues_max: 1, parked_max: 6, ..Allowance::UNBOUNDED };
            NodeBudget::new(self.node_bytes, allowance)
        } else {
            NodeBudget::new(1 << 30, Allowance::UNBOUNDED)
        }
    }
}
