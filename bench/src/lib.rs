//! Measuring: load generators, comparison programs, dated results.
//!
//! - [`fixed`]: the request and the answer that `driver_fixed`, `epoll_fixed` and `fixed_load` exchange.

#![forbid(unsafe_code)]

pub mod fixed;
