//! The wire's two faces, pure: bytes in, requests out; facts in, bytes out. No I/O, no clock, no queue state.
//!
//! - [`route`]: the one table of routes, and which of them a method and path mean.
//! - [`request`] and [`query`]: bodies and query parameters → borrowed requests, names and counts checked.
//! - [`declaration`]: configure's body, and declared options → options in force.
//! - [`call`]: the bodies of call and reply, and their answers.
//! - [`id`] and [`inbox`]: message ids and the names of reply inboxes, to text and back.
//! - [`quota`]: the body and the answers of the grants' route.
//! - [`veil`]: what keeps a tenant from counting the messages of others.
//! - [`answer`] and [`status`]: answers, appended to a connection's output.
//! - [`merge`]: the parts that shards report → one listing, one depth.
//! - [`openapi`]: the description of every route, made of the table.
//! - [`error`]: every failure → status, code, prose, Retry-After, in one table.
//!
//! Invariants: a request that came out of here has valid names (1 to 512 bytes of UTF-8 without control characters) and counts within
//! [`mayfly_shards`]' limits; a payload is a slice of the body, byte for byte; nothing recurses on what a client sent.

pub mod answer;
pub mod call;
pub mod cluster;
pub mod declaration;
pub mod error;
pub mod fault;
pub mod id;
pub mod inbox;
mod json;
pub mod merge;
mod name;
pub mod openapi;
pub mod query;
pub mod quota;
pub mod request;
pub mod route;
pub mod status;
pub mod subscriber;
mod timestamp;
pub mod veil;

pub use error::Failure;
