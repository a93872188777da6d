//! Hand-over: a partition on its way from a shard of one node to a shard of another.
//!
//! At the source a partition is held, then packed (frozen: nothing is delivered from it, its commands are answered `Moved`, its messages
//! stay charged), then released (gone, counted as handed over) or restored (as before: ids, leases and places are those it had). A
//! packed partition is read in chunks, each as often as it takes.
//!
//! At the receiver it may be expected (its commands wait, in order) before anything came. What comes is a copy, which nobody is given
//! anything of until it is opened: the source has released it, or is gone. Then its messages get new seqs, in their order and behind
//! whatever the partition holds already, the groups stand where they stood, and what waited is carried out.
//!
//! Invariants: a message is held by one shard, or by a packed partition and copies of it of which none is open; a transfer that ended
//! makes nothing any more; what a copy and the commands that wait hold is charged to the node.
//!
//! Who moves what and when, and that a copy is opened only after the release or the source's end, is the caller's.

mod adopt;
mod arrivals;
mod detour;
mod freeze;
mod inventory;
mod moving;
mod outlook;
mod pack;
mod parcel;
mod requests;
mod text;
mod unpack;

pub(crate) use detour::moved;
pub(crate) use freeze::Aside;
pub(crate) use requests::Request;

pub use adopt::{Adopted, Opening};
pub use inventory::{Inventory, InventoryCursor, InventoryRow};
pub use outlook::ArrivalRow;
pub use parcel::{Chunk, Cut, Inbox, Manifest, MovedRequest, Outstanding, Packet, Parcel, PartitionName, Reader};
pub use unpack::Unpacked;

use crate::time::Time;
use arrivals::Arrivals;

/// What a shard knows of its hand-overs.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// Partitions packed here.
    pub(crate) packed_count: usize,
    cuts_given: u64,
    arrivals: Arrivals,
}

impl Handover {
    /// Whether no command is concerned.
    fn is_idle(&self) -> bool {
        self.packed_count == 0 && self.arrivals.is_empty()
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.arrivals.next_deadline()
    }
}
