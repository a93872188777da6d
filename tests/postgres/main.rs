//! Declarations and grants as rows, against a real PostgreSQL that each test starts for itself.
//!
//! `store`: the store alone, with the agreed state beside it; `nodes`: whole nodes.

#[path = "../process/mod.rs"]
mod process;

mod core;
mod nodes;
mod proxy;
mod server;
mod store;
