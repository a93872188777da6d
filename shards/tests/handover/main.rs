//! Hand-over between nodes of any number of shards: by hand, one rule after the other, and by lot.

mod cluster;
mod opening;
mod packing;
mod requests;
mod waiting;
mod wandering;
