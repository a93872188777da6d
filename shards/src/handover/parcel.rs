//! What travels: a partition in chunks, as plain owned values that any format can spell.
//!
//! Nothing in it belongs to one process: names are text, times are spans that had passed or are left when the chunk was made, seqs are
//! places within the parcel. Invariant: a chunk names the cut that it is of, its place in it, and how much there is of the whole, so that
//! one that is lost, doubled, late or of an earlier cut is told apart.

use serde::{Deserialize, Serialize};

use crate::name::Tenant;
use crate::payload::Payload;
use crate::time::Span;

/// One partition: of which tenant and queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionName {
    /// Whose.
    pub tenant: Tenant,
    /// Queue.
    pub queue: Box<str>,
    /// Partition.
    pub partition: Box<str>,
}

/// One packing of one partition: never given twice. What changes a packed partition (a reset, an answer that came back) makes a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cut {
    /// Of the source's start.
    pub incarnation: u64,
    /// The source's shard.
    pub shard: u16,
    /// Grows with every cut of that shard.
    pub number: u64,
}

/// Where the answer to a call's request goes, on whichever node the request is: the inbox stays on the shard that minted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Inbox {
    /// Of the start of the node that keeps it.
    pub incarnation: u64,
    /// Its number, as that node spells it for clients.
    pub number: u64,
}

/// A part of a packed partition: about a mebibyte of payloads, at least one message if there are any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Which partition.
    pub name: PartitionName,
    /// Which packing of it.
    pub cut: Cut,
    /// The queue's at the source, which grows with every reset.
    pub generation: u64,
    /// Its place, counted from 0.
    pub index: u32,
    /// How many there are.
    pub chunk_count: u32,
    /// Messages of the whole.
    pub message_count: u64,
    /// Payload bytes of the whole.
    pub payload_bytes: u64,
    /// What is known beside the messages: in the first chunk.
    pub manifest: Option<Box<Manifest>>,
    /// In order.
    pub messages: Vec<Packet>,
}

/// What is known of a partition and its queue beside the messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Since the queue was last used.
    pub queue_unused: Span,
    /// Since a pop of any partition was last answered, if one ever was.
    pub queue_answered: Option<Span>,
    /// Since the partition was last used.
    pub unused: Span,
    /// Since a pop of it by name was last answered, if one ever was.
    pub answered: Option<Span>,
    /// Every group of the queue.
    pub groups: Vec<Reader>,
}

/// One group's position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reader {
    /// Its name.
    pub group: Box<str>,
    /// Since it was last used; zero while something keeps it in use.
    pub unused: Span,
    /// Messages of the parcel that it has passed: settled unless they say otherwise.
    pub passed: u64,
    /// Of these, the first ones that it passed unread.
    pub unread: u64,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packet {
    /// JSON text.
    #[serde(with = "super::text")]
    pub payload: Payload,
    /// Since it was pushed.
    pub age: Span,
    /// It is a call's request.
    pub request: Option<MovedRequest>,
    /// Groups that were given it and are not done with it.
    pub outstanding: Vec<Outstanding>,
}

/// A request whose call waits on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedRequest {
    /// Where its answer goes.
    pub inbox: Inbox,
    /// Until its call ends; zero: it is over.
    pub remaining: Span,
}

/// A delivery that is not settled: it awaits redelivery wherever the partition goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outstanding {
    /// Place of its group in the manifest.
    pub reader: u16,
    /// How often it was delivered.
    pub delivery: u32,
    /// Attempts charged: with that of a lease which the move ends, without that of an answer which came back.
    pub attempts: u32,
}

/// What packing a partition gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Its cut.
    pub cut: Cut,
    /// How many chunks to ask for.
    pub chunk_count: u32,
    /// Messages.
    pub message_count: u64,
    /// Payload bytes.
    pub payload_bytes: u64,
}
