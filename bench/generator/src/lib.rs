//! The load generator, as a library: `mayfly bench` loads a node that runs, `mayfly-bench` compares servers that it starts.
//!
//! - [`load`]: many connections in one thread, plain or with TLS ([`wire`]); [`request`] writes the broker's HTTP; [`process`]: what a server used.
//! - [`session`]: one connection's side of any protocol, [`http`]: the broker's, [`shared`]: many callers on one; [`fleet`]: sessions over a load.
//! - [`loops`]: what is measured over a fleet; [`meter`] counts, [`report`] prints.
//! - [`node`]: the loops against a node that runs.
//!
//! It is a package of its own because both the binary and the comparison need it, and dependencies go one way: it knows no other part of
//! the project (a node is an address that answers HTTP, as for any client), so `src` and `bench` may both stand on it, and the binary does
//! not take along the protocols of other brokers, which are in `mayfly-bench`.

#![forbid(unsafe_code)]

pub mod fleet;
pub mod http;
pub mod load;
pub mod loops;
pub mod meter;
pub mod node;
pub mod process;
pub mod report;
pub mod request;
pub mod session;
pub mod shared;
pub mod wire;
