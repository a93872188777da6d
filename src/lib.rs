//! Mayfly, a broker for ephemeral queues: wiring and policy around the state core (`mayfly-shards`) and the sockets (`mayfly-net`).
//!
//! `cli` reads what was typed, `config` says what it means, `runtime` runs one loop a core, `identity` says whose a request is,
//! `api` turns requests into commands and answers into JSON.

#![forbid(unsafe_code)]

pub mod api;
pub mod banner;
pub mod cli;
pub mod config;
pub mod control;
pub mod identity;
pub mod logging;
pub mod metrics;
pub mod runtime;
pub mod start_error;
