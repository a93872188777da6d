//! TLS without I/O: what came from a socket becomes plain bytes, and plain bytes become records for it.
//!
//! - [`Acceptor`]: the server's side of every handshake, of a chain and a key in PEM files, exchanged while it runs;
//! - [`Session`]: one connection: the handshake, what was received, what is to be sent;
//! - [`Seal`]: a connection's output as records, and which plain bytes the socket took with the ciphertext that it took.
//!
//! TLS 1.2 and 1.3 as rustls has them, ALPN `http/1.1`, resumption by tickets, no early data (a replayed push would be a second
//! message), no client certificates. Renegotiation is refused.
//!
//! Invariants: nothing of an idle connection is buffered here, neither read nor written; what a peer makes a session hold is bounded by
//! [`HELD_BYTES_MAX`]; a plain byte counts as taken when all ciphertext of its record was, and as begun when any of it was.

mod acceptor;
mod identity;
mod ledger;
mod seal;
mod session;
#[cfg(test)]
mod tests;

pub use acceptor::Acceptor;
pub use identity::{Files, Refused};
pub use seal::Seal;
pub use session::{Buffers, Session, Step};

/// Most ciphertext that a session holds because what it belongs to is not whole: a handshake message of 64 KiB and the record behind it.
pub const HELD_BYTES_MAX: usize = (64 + 18) << 10;
