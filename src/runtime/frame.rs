//! What the cores of a node send each other, and the control core, over the mesh.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mayfly_net::ring::ConnectionId;
use mayfly_shards::{Answer, DropCause, Letter, OwnedCommand, Receipt, Reservation, Tenant, Ticket, Time, Undelivered};
use smallvec::SmallVec;

use super::gate::Place;
use super::peer::NewLink;
use crate::api::Failure;
use crate::api::cluster::ClusterAsk;
use crate::control::handover::{Reply, Word};
use crate::control::{Change, Members, NodeId};

/// One piece of mail.
#[derive(Debug)]
pub(super) enum Frame {
    /// A client's command for the receiver's shard.
    Request {
        /// Names the sender's core and the request on it.
        ticket: Ticket,
        command: Box<OwnedCommand>,
        /// Since when it waits, if it waited elsewhere.
        since: Option<Time>,
    },
    /// A command's answer, to the core of its ticket.
    Answer { ticket: Ticket, answer: Answer },
    /// A pop's answer, formatted where its messages were.
    /// The messages begin at `messages_at`, behind the queue's name.
    Delivered { ticket: Ticket, body: Vec<u8>, messages_at: usize, receipts: SmallVec<[Receipt; 1]> },
    /// A call's answer, from its inbox.
    Reply { ticket: Ticket, payload: Box<[u8]> },
    /// A call's answer did not reach its client.
    ReplyLost,
    /// The client of a pop or a call hung up.
    Cancel { ticket: Ticket },
    /// An answer did not reach its client.
    Undeliver { receipt: Receipt, how: Undelivered },
    /// What the tenant may use has changed.
    Granted { tenant: Tenant },
    /// From shard to shard.
    Letter(Letter),
    /// A change to agree on: of a queue to its home, which sends it on to the control core; of anything else to the control core.
    Propose(Box<Proposal>),
    /// A change that holds, from the control core to a queue's home: carried out whatever the bounds. The room that was reserved for it
    /// is given back when it has been.
    Apply { ticket: Ticket, command: Box<OwnedCommand>, reservation: Reservation },
    /// From the control core: how the kill switch stands from now on. Answered by [`Frame::Switched`].
    Switch { number: u64, is_enabled: bool },
    /// To the control core: the shard delivers, or does not, as it was told under `number`.
    Switched { number: u64 },
    /// To the control core: what an operator asks about the cluster. Answered by [`Frame::ClusterAnswer`].
    AskCluster { ticket: Ticket, ask: ClusterAsk },
    /// From the control core: the cluster as it is then, as JSON.
    ClusterAnswer { ticket: Ticket, outcome: Result<Box<[u8]>, Failure> },
    /// From the control core, in a cluster: since entry `at` of the log the queue is not declared any more. What it holds is dropped by the
    /// core of the ticket.
    Undeclared { ticket: Ticket, at: u64, was_declared: bool },
    /// From the control core: a newer table of members.
    Members(Arc<Members>),
    /// The sender goes by this table from here on, and so does the receiver.
    Follows(Arc<Members>),
    /// A source's word to the receiver's shard, which came over a link of the sender. Answered by [`Frame::HandoverReply`].
    Handover { link: ConnectionId, word: Box<Word> },
    /// To be said over a link of the receiver.
    HandoverReply { link: ConnectionId, reply: Reply },
    /// A core of another node's start holds nothing that the table of this epoch gives to others.
    Done { node: NodeId, incarnation: u64, core: u16, epoch: u64 },
    /// A queue is about to be reset or deleted, of which copies may be on their way to the receiver.
    VoidCopies { tenant: Tenant, queue: Box<str>, cause: DropCause },
    /// From the control core: a link to another node is this core's from now on.
    Link(Box<NewLink>),
    /// To the control core: the link over which this core asks a node is lost.
    LinkLost { node: NodeId, incarnation: u64 },
    /// From the control core: whether the change that was proposed under `ticket` holds. Of a declaration or a deletion that does, the
    /// queue's home answers instead.
    Agreed { ticket: Ticket, outcome: Result<(), Failure> },
}

/// A change on its way through the control core.
#[derive(Debug)]
pub(super) struct Proposal {
    /// Whose request; it is answered once, by [`Frame::Agreed`] or by the home's answer.
    pub(super) ticket: Ticket,
    pub(super) change: Change,
    /// Where a declaration's time is put, for who tells the client of it: the row's, where there is one.
    pub(super) declared_at: Option<Arc<AtomicU64>>,
    /// Of the queue that it may make.
    pub(super) reservation: Reservation,
    /// Its place among those that the control core has not answered.
    pub(super) _place: Place,
}
