//! Nodes that are one cluster: real processes on one host, killed and stopped.

mod agreement;
mod forwarding;
mod nodes;
#[path = "../process/mod.rs"]
mod process;
