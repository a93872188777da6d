//! What the two sides of a hand-over say to each other.

use mayfly_shards::{Chunk, Cut, PartitionName};
use serde::{Deserialize, Serialize};

/// From a source to the receiver's shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// A part of a partition.
    Chunk(Box<Chunk>),
    /// The partition is the receiver's: it has the whole of this cut.
    Released {
        /// Which.
        name: PartitionName,
        /// Of it.
        cut: Cut,
        /// The source owned the partition when last nothing was on its way, and has given nothing of it since: there is no more of it.
        is_all: bool,
    },
    /// What came of this cut is of no use: the partition goes elsewhere, or stays.
    Discarded {
        /// Which.
        name: PartitionName,
        /// Of it.
        cut: Cut,
    },
}

/// From the receiver, to one word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Of a chunk: how it goes on.
    Kept {
        /// Which.
        name: PartitionName,
        /// Of it.
        cut: Cut,
        /// How.
        progress: Progress,
    },
    /// What came of this cut is released or discarded here too.
    Closed {
        /// Which.
        cut: Cut,
    },
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// The chunk of this place is wanted.
    Next(u32),
    /// All of the cut is here.
    Whole,
    /// What came of the cut is in use already: its source was taken for dead.
    InUse,
    /// Not now: the node has no room, or goes by a table by which the partition is not its own.
    NotNow,
}
