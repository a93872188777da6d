//! What outlives a start: declarations, grants and the kill switch, agreed on in a log and applied to every shard.

pub mod change;
pub mod codec;
pub mod consensus;
pub mod electors;
pub mod fault;
pub mod files;
pub mod folder;
pub mod gauges;
pub mod grants;
pub mod handover;
mod hearing;
pub mod members;
mod reader;
mod recent;
pub mod roll;
pub mod snapshot;
pub mod state;
pub mod storage;
pub mod store;
pub mod word;

pub use change::{Change, Declaration, Grant};
pub use consensus::{Agreed, Consensus, Stalled, Unavailable};
pub use electors::{ElectorChange, Electors};
pub use fault::LogFault;
pub use folder::{ClusterMark, DataFolder};
pub use gauges::ControlGauges;
pub use members::{Member, Members, NodeId, Standing};
pub use roll::{Heartbeat, Phase, Roll};
pub use state::State;
pub use storage::Origin;
pub use word::Word;
