//! What the cores of a node send each other over the mesh.

use mayfly_shards::{Answer, Letter, OwnedCommand, Receipt, Ticket, Undelivered};
use smallvec::SmallVec;

/// One piece of mail.
#[derive(Debug)]
pub(super) enum Frame {
    /// A client's command for the receiver's shard.
    Request {
        /// Names the sender's core and the request on it.
        ticket: Ticket,
        command: Box<OwnedCommand>,
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
    /// From shard to shard.
    Letter(Letter),
}
