//! What the shards of one node tell each other. A letter is in order with everything sent between the same two shards before it.
//!
//! Invariants: a letter carries the queue's generation as its sender knew it, and means nothing under another; whoever gets a letter
//! that asks answers it, also when it knows no such queue.

use std::sync::Arc;

use crate::budget::SharedCounters;
use crate::command::{DropCause, OwnedCommand, Refusal};
use crate::handover::Inbox;
use crate::name::QueueName;
use crate::options::Options;
use crate::outbox::{Receipt, Ticket};
use crate::payload::Payload;
use crate::placement::ShardIndex;
use crate::time::Time;

/// See the module.
#[derive(Debug)]
pub enum Letter {
    /// To a queue's home: open a part of it on the sender's shard.
    Join {
        /// Which.
        queue: QueueName,
        /// What for.
        wanted: Wanted,
    },
    /// The home's answer to `Join`.
    Joined {
        /// Which.
        queue: QueueName,
        /// Now.
        generation: u64,
        /// What is in force and agreed, or why there is no such part.
        outcome: Result<Box<Agreement>, Refusal>,
    },
    /// To the home: nothing of the queue is left on the sender's shard.
    Left {
        /// Which.
        queue: QueueName,
    },
    /// To the home: a pop of an unknown group came in.
    RegisterGroup {
        /// Which.
        queue: QueueName,
        /// As known.
        generation: u64,
        /// Its name.
        group: Arc<str>,
        /// It came with a partition from another node, where it was admitted.
        is_adopted: bool,
    },
    /// From the home, to every member: every part knows the group; or, to the one that asked, why it was refused.
    GroupRegistered {
        /// Which.
        queue: QueueName,
        /// Its name.
        group: Arc<str>,
        /// Why not.
        refusal: Option<Refusal>,
    },
    /// From the home: do this and say `Done`.
    Order {
        /// Which.
        queue: QueueName,
        /// From now on.
        generation: u64,
        /// Given back with `Done`.
        op: u64,
        /// What.
        order: Order,
    },
    /// A member's answer to an order.
    Done {
        /// The order's.
        op: u64,
        /// What it found or did.
        report: Report,
    },
    /// From the home: since when its oldest pop on any partition of this group is parked.
    Bid {
        /// Which.
        queue: QueueName,
        /// As known.
        generation: u64,
        /// Of this group.
        group: Arc<str>,
        /// None: nobody is.
        parked_at: Option<Time>,
        /// When a pop of any partition was last answered.
        answered_at: Time,
    },
    /// From the home: it answered a pop of any partition.
    Answered {
        /// Which.
        queue: QueueName,
        /// As known.
        generation: u64,
        /// When.
        answered_at: Time,
    },
    /// To the home, while it bids: the sender has this many messages for the group.
    Hint {
        /// Which.
        queue: QueueName,
        /// As known.
        generation: u64,
        /// Of this group.
        group: Arc<str>,
        /// How many.
        ready: u64,
    },
    /// From the home: what would a pop of this group be given here?
    Survey(Box<Claiming>),
    /// The answer: partitions and messages, in cyclic name order.
    Surveyed {
        /// The claim's.
        claim: u64,
        /// Partition, messages.
        found: Vec<(Arc<str>, u64)>,
    },
    /// From the home: give it these.
    Take {
        /// As in the survey.
        claiming: Box<Claiming>,
        /// From these partitions so many; empty: whatever comes first.
        picks: Vec<(Arc<str>, u64)>,
    },
    /// The answer.
    Taken {
        /// The claim's.
        claim: u64,
        /// What was taken, in order.
        runs: Vec<TakenRun>,
        /// To take it back with; None when nothing was taken.
        receipt: Option<Box<Receipt>>,
        /// What is left for the group here.
        ready: u64,
    },
    /// From the home: the answer never left; everything goes back free of charge.
    GiveBack(Box<Receipt>),
    /// To the home: make room in the queue for a push of the sender's, and charge it.
    MakeRoom {
        /// Which.
        queue: QueueName,
        /// As known.
        generation: u64,
        /// The push that waits.
        ticket: Ticket,
        /// Its messages and payload bytes.
        wanted: (u64, u64),
        /// Dropped for it of its own partition, and still charged to the queue: the home's from now on.
        made: (u64, u64),
    },
    /// The answer.
    RoomMade {
        /// The push that waits.
        ticket: Ticket,
        /// What became of it.
        outcome: RoomOutcome,
    },
    /// To the home: forget groups that alone hold the queue's room.
    ForgetIdleGroups {
        /// Which.
        queue: QueueName,
        /// The push that waits.
        ticket: Ticket,
    },
    /// The answer, whether or not any was forgotten.
    IdleGroupsForgotten {
        /// Which.
        queue: QueueName,
        /// The push that waits.
        ticket: Ticket,
    },
    /// To the home: a partition is on its way to another node, and pops of any partition may have to wait elsewhere.
    PartitionPacked {
        /// Which.
        queue: QueueName,
    },
    /// To the sender itself, once it has the word that it waits for: take up a partition that came from another node.
    Adopt {
        /// Which.
        queue: QueueName,
        /// Partition.
        partition: Arc<str>,
    },
}

/// What a home says to a push that needs room.
#[derive(Clone, Copy, Debug)]
pub enum RoomOutcome {
    /// It is charged to the queue and may be appended.
    Admitted,
    /// It is not.
    Refused(Refusal),
    /// The queue is of another generation: the push begins anew.
    Void,
}

/// What a part of a queue is opened for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Messages and payload bytes of the push that needs it; zero for a pop.
    pub room: (u64, u64),
    /// A call that is to fail where nobody listens makes no queue.
    pub must_exist: bool,
    /// A pop that may wait, or a call: it needs room for that too.
    pub parks: bool,
    /// A partition that comes from another node: the queue is made as it was there, whatever the bounds.
    pub adopted: Option<Adoption>,
}

/// What a queue was on the node that a partition of it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Adoption {
    /// When it was last used.
    pub used_at: Time,
}

/// What a part of a queue must know to serve.
#[derive(Debug)]
pub struct Agreement {
    /// In force.
    pub options: Options,
    /// Whether it was declared.
    pub is_declared: bool,
    /// Each group's name, since when the home bids for it, and whether some part may not know it yet.
    pub groups: Vec<(Arc<str>, Option<Time>, bool)>,
    /// When a pop of any partition was last answered.
    pub answered_at: Time,
    /// The queue's counters.
    pub counters: Arc<SharedCounters>,
}

/// What a home orders its members to do.
#[derive(Clone, Debug)]
pub enum Order {
    /// A new group.
    AddGroup(Arc<str>),
    /// New options; whether by declaration.
    SetOptions(Options, bool),
    /// Drop contents.
    Wipe(DropCause),
    /// Forget everything; parked pops stay.
    Delete,
    /// Hold every command of the queue back and say how idle it is.
    Freeze,
    /// Go on.
    Thaw,
    /// Forget these groups and go on.
    ForgetGroups(Vec<Arc<str>>),
    /// Forget this private group: its subscriber left.
    DropGroup(Arc<str>),
    /// Forget the queue: nobody used it.
    Collect,
    /// How old is the oldest message?
    OldestHead,
    /// Drop the oldest, down to and with those of `until`, at most so many messages and bytes.
    Evict {
        /// Messages and payload bytes missing.
        room: (u64, u64),
        /// Pushed no later than this.
        until: Time,
    },
}

/// What a member says of an order.
#[derive(Debug)]
pub enum Report {
    /// Done; nothing to say.
    Done,
    /// Messages dropped.
    Dropped(u64),
    /// Deleted: the groups of the pops that stay parked.
    Deleted {
        /// Names.
        parked_groups: Vec<Arc<str>>,
    },
    /// Frozen.
    Frozen(Idleness),
    /// Pushed at; None: empty.
    Head(Option<Time>),
    /// Messages and bytes dropped, still charged; then the oldest head.
    Evicted((u64, u64), Option<Time>),
}

/// How idle a part of a queue is.
#[derive(Clone, Debug, Default)]
pub struct Idleness {
    /// Last push, pop, ack or reset.
    pub used_at: Time,
    /// Messages held.
    pub held: u64,
    /// Pops parked, and commands held back by the freeze so far.
    pub waiting: u64,
    /// Each group's name, last use, and whether nothing but its position keeps it.
    pub groups: Vec<(Arc<str>, Time, bool)>,
}

/// Whom a claim serves.
#[derive(Clone, Debug)]
pub struct Claiming {
    /// Given back with the answer.
    pub claim: u64,
    /// Which.
    pub queue: QueueName,
    /// As known.
    pub generation: u64,
    /// Of this group.
    pub group: Arc<str>,
    /// Since when it waits: an older pop parked on a partition by name goes first there.
    pub parked_at: Time,
    /// The partition served last.
    pub after: Option<Arc<str>>,
    /// Most messages.
    pub want: u64,
    /// Settled at delivery.
    pub auto_ack: bool,
}

/// What a claim took from one partition.
#[derive(Debug)]
pub struct TakenRun {
    /// Partition.
    pub partition: Arc<str>,
    /// In order.
    pub messages: Vec<TakenMessage>,
}

/// One message a claim took.
#[derive(Debug)]
pub struct TakenMessage {
    /// Its number.
    pub seq: u64,
    /// Which delivery.
    pub delivery: u32,
    /// Attempts charged.
    pub attempts: u32,
    /// JSON text.
    pub payload: Payload,
    /// Where its answer goes, if its call waits on another node.
    pub inbox: Option<Inbox>,
}

/// Work that waits for another core's word.
#[derive(Debug)]
pub(crate) enum Deferred {
    /// A client's command.
    Command(Ticket, OwnedCommand),
    /// Another shard's letter.
    Letter(ShardIndex, Letter),
}
