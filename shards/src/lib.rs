//! All queue state of one core, as a value.
//!
//! A [`Shard`] takes a [`Command`] (from a client on its own core or on another) or a [`Letter`] (from another shard), changes
//! its state, and says what follows through an [`Outbox`]: answer this ticket, send this letter, these messages go to that client.
//! It has no clock (time is an argument), no I/O, no thread, no async, no randomness of its own and no unsafe; the same calls give
//! the same effects, so one seed replays a whole run.
//!
//! Invariants, checked by [`Shard::check_invariants`] in tests after every step:
//! - a ring lives on one shard; seqs and cursors never go back; nothing is leased twice at once within a group;
//! - every pushed message is held, settled by every group, or dropped with a [`DropCause`];
//! - budgets equal what is held; no waiter is parked on something it could take.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod ack;
mod budget;
mod calls;
mod claim;
mod command;
mod cursor;
mod deadlines;
mod depart;
mod due;
mod forget;
mod grants;
mod group;
mod groups;
mod handover;
mod home;
mod invariants;
mod ledger;
mod letter;
mod lifecycle;
mod limits;
mod link;
mod member;
mod name;
mod options;
mod outbox;
mod payload;
mod placement;
mod pop;
mod push;
mod queue;
mod queues;
mod ring;
mod rings;
mod room;
mod seq;
mod shard;
mod status;
mod switch;
mod tenant;
mod tenants;
mod time;
mod undeliver;
mod waiters;
mod wake;

pub use budget::{Bound, Rate};
pub use command::{
    AckItem, Command, DropCause, Outcome, OwnedAckItem, OwnedCommand, OwnedReplyItem, OwnedRequest, Refusal, ReplyItem, Verdict,
};
pub use handover::{
    Adopted, ArrivalRow, Chunk, Cut, Inbox, Inventory, InventoryCursor, InventoryRow, Manifest, MovedRequest, Opening, Outstanding, Packet,
    Parcel, PartitionName, Reader, Unpacked,
};
pub use letter::Letter;
pub use limits::*;
pub use name::{DEFAULT_PARTITION, PrivateGroup, QUEUE_MODE, QueueName, Tenant};
pub use options::{Options, Policy, WindowBuffer};
pub use outbox::{Answer, Delivery, DepthReport, GroupDepth, Moved, Outbox, PartitionDepth, QueueReport, Receipt, Ticket};
pub use payload::Payload;
pub use placement::{ShardIndex, home_shard, shard_of};
pub use seq::{NO_INBOX, inbox_of, inbox_shard};
pub use shard::{Shard, ShardConfig, ShardGauges};
pub use tenant::{Allowance, NodeBudget, Reservation, Usage};
pub use time::{Span, Time};
pub use undeliver::Undelivered;
