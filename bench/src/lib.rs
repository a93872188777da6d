//! Measuring: load generators, comparison programs, dated results.
//!
//! - [`fixed`]: the request and the answer that `driver_fixed`, `epoll_fixed` and `fixed_load` exchange.
//! - [`load`]: a closed loop over many connections in one thread; [`request`] writes its HTTP, [`meter`] keeps its latencies.
//! - [`server`]: a node of one shard on a CPU of its own, its CPU time and memory.
//! - [`shapes`]: what is measured; [`report`]: JSON lines and tables of medians.

#![forbid(unsafe_code)]

pub mod fixed;
pub mod load;
pub mod meter;
pub mod report;
pub mod request;
pub mod server;
pub mod shapes;
