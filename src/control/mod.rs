//! What outlives a start: declarations, grants and the kill switch, agreed on in a log and applied to every shard.

pub mod change;
pub mod state;
pub mod store;
