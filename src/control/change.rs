//! One entry of the control log: what is to hold from now on.
//!
//! An entry says the whole of what it sets, so that applying one twice, or a later one alone, gives the same state.

use mayfly_shards::{QueueName, Tenant};

use super::members::{Member, NodeId};
use crate::api::declaration::DeclaredOptions;

/// A change of the agreed state, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A queue is declared, in place of what it was declared before.
    Declare {
        /// Which.
        queue: QueueName,
        /// As what.
        declaration: Declaration,
    },
    /// A queue is not declared any more; what it holds stays, as an implicit queue's.
    Undeclare {
        /// Which.
        queue: QueueName,
        /// Of the deletion, see [`Declaration::version`].
        version: Option<u64>,
    },
    /// A queue is deleted with all that it holds.
    Delete {
        /// Which.
        queue: QueueName,
        /// Of the deletion, see [`Declaration::version`].
        version: Option<u64>,
    },
    /// What a tenant may use; None: nothing is granted any more.
    Grant {
        /// Whose.
        tenant: Tenant,
        /// How much.
        grant: Option<Grant>,
        /// The row's number in PostgreSQL, see [`Declaration::version`].
        version: Option<u64>,
    },
    /// Which cluster this is, once and for all: PostgreSQL's rows belong to one.
    Cluster {
        /// Random.
        id: u128,
    },
    /// The kill switch.
    Switch {
        /// Whether the family serves.
        is_enabled: bool,
    },
    /// A node's row in the table of members.
    Member {
        /// The whole of it.
        member: Member,
    },
    /// A node is no member any more.
    Expel {
        /// Which.
        id: NodeId,
    },
    /// The table of members has at least this number: of a snapshot, whose rows alone do not say it.
    Epoch {
        /// See [`super::members::Members::epoch`].
        number: u64,
    },
    /// Every deletion, of a queue or a grant, up to this version has been seen by whoever could bring the declaration back: their memory may go.
    Settle {
        /// The highest such version.
        version: u64,
    },
}

impl Change {
    /// The queue that it changes.
    #[must_use]
    pub const fn queue(&self) -> Option<&QueueName> {
        match self {
            Self::Declare { queue, .. } | Self::Undeclare { queue, .. } | Self::Delete { queue, .. } => Some(queue),
            Self::Grant { .. } | Self::Cluster { .. } | Self::Switch { .. } | Self::Settle { .. } => None,
            Self::Member { .. } | Self::Expel { .. } | Self::Epoch { .. } => None,
        }
    }
}

/// What a queue was declared as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The options as the client spelled them: one JSON object that `DeclaredOptions::read` reads.
    pub options_text: Box<[u8]>,
    /// Wall clock of the configure, milliseconds of the Unix epoch. Shown, and compared with PostgreSQL's rows.
    pub updated_at_ms: u64,
    /// The row's number in PostgreSQL: of two changes of a queue that have one, the higher holds, in whatever order they come.
    /// None: no PostgreSQL was attached, and the order of the log decides.
    pub version: Option<u64>,
}

impl Declaration {
    /// What the options say. They were read when they came in: what this version cannot read any more is as if it had no options.
    #[must_use]
    pub fn options(&self) -> DeclaredOptions {
        DeclaredOptions::read(&self.options_text).unwrap_or_default()
    }
}

/// What a tenant may use; None: without bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whether it may use the family at all.
    pub is_enabled: bool,
    /// Payload bytes held on a node.
    pub bytes_max: Option<u64>,
    /// Queues on a node.
    pub queues_max: Option<u64>,
    /// Messages pushed a second on a node; None or 0: what the node allows every tenant.
    pub messages_per_second_max: Option<u64>,
    /// Parked pops and calls on a node.
    pub parked_max: Option<u64>,
}
