//! Measuring: comparison programs, dated results.
//!
//! - [`fixed`]: the request and the answer that `driver_fixed`, `epoll_fixed` and `fixed_load` exchange.
//! - [`server`]: a server on a CPU of its own.
//! - [`shapes`]: what is measured of a node alone.
//! - [`peer`]: the protocols of what it is compared with; [`field`]: the shapes that all of them run; [`verdict`] and [`plot`]: the
//!   comparison from the raw runs, against its goals.
//!
//! The load itself is `mayfly-generator`, a package below this one, because `mayfly bench` runs it too: the binary depends on the
//! generator, and neither on what is here.

#![forbid(unsafe_code)]

pub mod field;
pub mod fixed;
pub mod peer;
pub mod plot;
pub mod server;
pub mod shapes;
pub mod verdict;
