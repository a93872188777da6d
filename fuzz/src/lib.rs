//! What the fuzz targets run: the properties that `cargo test -p mayfly-net` also checks, over the same sources.
//!
//! The module is compiled from its files, not through the crate `mayfly-net`, whose io_uring half would be built with
//! instrumentation for nothing.

#[path = "../../net/src/http/mod.rs"]
pub mod http;
#[path = "../../net/src/http/tests/properties.rs"]
mod properties;

/// Streams of requests mean the same however they are split.
pub fn head(data: &[u8]) {
    properties::requests(data);
}

/// So do chunked bodies, and data that was chunked comes back.
pub fn chunk(data: &[u8]) {
    properties::chunks(data);
}

/// Queries decode as the rules say, and what was encoded comes back.
pub fn query(data: &[u8]) {
    properties::queries(data);
}

/// So do the segments of paths.
pub fn path(data: &[u8]) {
    properties::paths(data);
}
