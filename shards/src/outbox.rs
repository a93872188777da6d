//! What follows from a step: answers, deliveries, letters. The caller implements [`Outbox`] and so decides where bytes go; a payload
//! passes from the ring straight into the answer's buffer.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::command::{Outcome, OwnedCommand, Refusal};
use crate::handover::{Adopted, Inbox, PartitionName, Request};
use crate::letter::Letter;
use crate::name::Tenant;
use crate::options::Options;
use crate::payload::Payload;
use crate::placement::ShardIndex;
use crate::time::Time;

/// Who asked: chosen by the caller, unique among the requests in flight, meaningless here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One message on its way to a client.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Its partition.
    pub partition: &'a str,
    /// Its number, never used twice in an incarnation.
    pub seq: u64,
    /// Which delivery to this group: 1 for the first.
    pub delivery: u32,
    /// Attempts charged, this one included.
    pub attempts: u32,
    /// JSON text.
    pub payload: &'a [u8],
    /// Where its answer goes, if it is the request of a call that waits on another node; that of one here is told by `seq` (`inbox_of`).
    pub inbox: Option<Inbox>,
}

/// An answer without messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Appended: this many.
    Pushed(usize),
    /// A call was not answered in time.
    NoReply,
    /// Answers to calls went where they belong, but these were refused, each with its item's `index`.
    Replied(Vec<(u32, Refusal)>),
    /// Outcomes, each with its item's `index`.
    Acked(Vec<(u32, Outcome)>),
    /// Declared.
    Configured,
    /// Not declared any more.
    Undeclared,
    /// Messages dropped, each counted once.
    Reset(u64),
    /// Whether there was anything, and whether there was a declaration.
    Deleted {
        /// Contents, groups or a declaration existed.
        deleted: bool,
        /// A declaration existed.
        declared: bool,
    },
    /// This shard's rows, by name.
    Listed(Vec<QueueReport>),
    /// This shard's part; None: it knows no such queue.
    Depth(Option<DepthReport>),
    /// Refused, nothing done.
    Refused(Refusal),
    /// Its partition is on its way to another node, nothing done: the command, to be given to the new owner. With points in time of this
    /// process: who tells another node says it in other words.
    #[serde(skip)]
    Moved(Box<Moved>),
}

/// A command that came to a partition on its way to another node, or was parked there.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// As it was: a pop that waited still ends when it says.
    pub command: OwnedCommand,
    /// Since when a pop waits: at its new place it stands before those that wait for less long (`Shard::step_since`).
    pub since: Option<Time>,
}

/// One queue as one shard sees it. The caller adds up the parts of one name; only a home part makes the queue exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueReport {
    /// Name.
    pub queue: Arc<str>,
    /// Whether this is the home's part.
    pub is_home: bool,
    /// Whether it was declared.
    pub declared: bool,
    /// Messages held here.
    pub depth: u64,
    /// Payload bytes held here.
    pub bytes: u64,
    /// Partitions here.
    pub partitions: u64,
    /// Groups known, private ones left out.
    pub groups: u64,
    /// Dropped here for bounds, ttl, retry.
    pub drops: [u64; 3],
    /// In force.
    pub options: Options,
}

/// A queue's depth as one shard sees it; the caller adds up the parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthReport {
    /// Whether this is the home's part.
    pub is_home: bool,
    /// Whether it was declared.
    pub declared: bool,
    /// This shard's partitions, unsorted.
    pub partitions: Vec<PartitionDepth>,
    /// Every group known, unsorted, with what is pending here.
    pub groups: Vec<GroupDepth>,
}

/// One partition's gauges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionDepth {
    /// Name.
    pub partition: Arc<str>,
    /// Pending for the asked group (or by the rule for none).
    pub pending: u64,
    /// Payload bytes held.
    pub bytes: u64,
}

/// One group's gauges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupDepth {
    /// Name.
    pub group: Arc<str>,
    /// Not yet delivered, or awaiting redelivery.
    pub pending: u64,
    /// Dropped for bounds before the group reached them.
    pub skipped: u64,
}

/// What must be known to take an answer back: kept by the caller until the socket took the answer, then dropped or given to
/// `Shard::undeliver`. Holds the payloads of messages that were settled at delivery.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The shard that delivered.
    pub shard: ShardIndex,
    /// Whose.
    pub tenant: Tenant,
    /// Queue.
    pub queue: Arc<str>,
    /// The queue's generation at delivery; another one voids the receipt.
    pub generation: u64,
    /// Group.
    pub group: Arc<str>,
    /// What was delivered, by partition.
    pub runs: SmallVec<[ReceiptRun; 1]>,
}

/// What one answer took from one partition.
#[derive(Clone, Debug)]
pub struct ReceiptRun {
    /// Partition.
    pub partition: Arc<str>,
    /// In order of delivery.
    pub messages: SmallVec<[ReceiptMessage; 1]>,
}

/// One message of a receipt.
#[derive(Clone, Debug)]
pub struct ReceiptMessage {
    /// Its number.
    pub seq: u64,
    /// Which delivery it was.
    pub delivery: u32,
    /// Attempts it carried.
    pub attempts: u32,
    /// When it was pushed.
    pub pushed_at: Time,
    /// Present when it was settled at delivery.
    pub settled: Option<Payload>,
    /// Of a call that waits on another node.
    pub(crate) request: Option<Box<Request>>,
}

/// Where a step's effects go. Called in order; calls never re-enter the shard.
pub trait Outbox {
    /// The ticket is answered, without messages.
    fn answer(&mut self, ticket: Ticket, answer: Answer);
    /// A call is answered with this JSON text.
    fn reply(&mut self, ticket: Ticket, payload: &[u8]);
    /// A pop is answered: calls of [`Outbox::message`] follow (none: the empty answer), then [`Outbox::end_delivery`].
    fn begin_delivery(&mut self, ticket: Ticket, queue: &str);
    /// One message of the delivery begun last.
    fn message(&mut self, delivery: Delivery<'_>);
    /// The delivery begun last is complete. One receipt a shard that gave messages; none for the empty answer.
    fn end_delivery(&mut self, receipts: SmallVec<[Receipt; 1]>);
    /// To another shard of this node, in order with everything sent to it before.
    fn send(&mut self, to: ShardIndex, letter: Letter);
    /// A partition that came from another node is open here: what was asked of [`crate::Shard::open`] is done.
    fn adopted(&mut self, name: &PartitionName, adopted: Adopted) {
        let _ = (name, adopted);
    }
}
