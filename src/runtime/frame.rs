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
    Delivered { ticket: Ticket, body: Vec<u8>, receipts: SmallVec<[Receipt; 1]> },
    /// The client of a pop hung up.
    Cancel { ticket: Ticket },
    /// An answer did not reach its client.
    Undeliver { receipt: Receipt, how: Undelivered },
    /// From shard to shard.
    Letter(Letter),
}
