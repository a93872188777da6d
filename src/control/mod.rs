//! What outlives a start: declarations, grants and the kill switch, agreed on in a log and applied to every shard.

pub mod change;
pub mod consensus;
pub mod grants;
pub mod state;

pub use change::{Change, Declaration, Grant};
pub use consensus::{Consensus, Unavailable};
pub use state::State;
