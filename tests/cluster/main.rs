//! Nodes that are one cluster: real processes on one host, killed and stopped.

mod agreement;
mod forwarding;
mod handover;
mod links;
mod load;
mod nodes;
#[path = "../process/mod.rs"]
mod process;
mod requests;
mod restarts;
