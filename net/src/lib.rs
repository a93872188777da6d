//! The byte-moving layer of the broker. It knows connections, requests and cores, and no queues.
//!
//! - [`http`]: HTTP/1.x as pure functions over bytes: no I/O, no clock, no unsafe;
//! - [`ring`]: the io_uring driver of one core, the only place with unsafe code;
//! - [`listener`]: sockets that several cores share on one port;
//! - [`tls`]: TLS as pure functions over bytes;
//! - [`peer`]: links to the other nodes of a cluster;
//! - [`mesh`]: mail between cores, in order, never blocking the sender;
//! - [`deadlines`], [`clock`]: coarse deadlines per connection, monotonic time;
//! - [`host`]: what this machine and this process allow, asked before anything starts.

#![deny(unsafe_code)]

pub mod clock;
pub mod deadlines;
pub mod host;
pub mod http;
pub mod listener;
pub mod mesh;
pub mod peer;
pub mod ring;
pub mod tls;
