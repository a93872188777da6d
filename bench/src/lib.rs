//! Measuring: load generators, comparison programs, dated results.
//!
//! - [`fixed`]: the request and the answer that `driver_fixed`, `epoll_fixed` and `fixed_load` exchange.
//! - [`load`]: many connections in one thread; [`request`] writes the broker's HTTP, [`meter`] keeps latencies.
//! - [`server`]: a server on a CPU of its own, its CPU time and memory.
//! - [`shapes`]: what is measured of a node alone; [`report`]: JSON lines and tables of medians.
//! - [`peer`]: the protocols of what it is compared with; [`fleet`]: their sessions over a load; [`field`]: the shapes that all of them run;
//!   [`verdict`] and [`plot`]: the comparison from the raw runs, against its goals.

#![forbid(unsafe_code)]

pub mod field;
pub mod fixed;
pub mod fleet;
pub mod load;
pub mod meter;
pub mod peer;
pub mod plot;
pub mod report;
pub mod request;
pub mod server;
pub mod shapes;
pub mod verdict;
