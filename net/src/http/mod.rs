//! HTTP/1.x over plain bytes: requests in, answers out (RFC 9110, RFC 9112).
//!
//! Invariants:
//! - Pure: no I/O, no clock, no unsafe, and no panic that input can reach.
//! - The same bytes mean the same requests however the network split them ([`Reader`]).
//! - What is ambiguous is refused, never guessed: two parsers that disagree on a frame are a request-smuggling hole.
//! - Every size is bounded by [`Limits`] before memory is taken for it, and an idle connection holds no heap.
//!
//! Not here: routes, JSON, identity, deadlines, and the text of a refusal; the caller maps [`Refused`] to an answer.

mod answer;
mod chunked;
mod date;
mod head;
pub mod path;
mod percent;
pub mod query;
mod reader;
mod scan;
mod status;
mod stream;
#[cfg(test)]
mod tests;

pub use answer::{Answer, CONTINUE, Connection, ContentType, Delivery, OpenAnswer};
pub use date::DateText;
pub use head::{Fields, Head, Method, Version};
pub use percent::NotUtf8;
pub use reader::{Decoded, Reader, Refused, Request, Stage};
pub use status::Status;
pub use stream::{EventStream, OpenPiece};

/// The most header lines that [`Limits::header_lines`] can allow: heads are parsed into a fixed array of this length.
pub const HEADER_LINES_MAX: usize = 100;

/// What a request may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Header lines of a head, and trailer lines of a chunked body; at most [`HEADER_LINES_MAX`] count.
    pub header_lines: usize,
    /// Bytes of a head, from the method to the empty line's end; the trailers of a chunked body are held to it too.
    pub head_bytes: usize,
    /// Bytes of a request target.
    pub target_bytes: usize,
    /// Bytes of a body, decoded.
    pub body_bytes: u64,
}

impl Default for Limits {
    /// 100 lines, 128 KiB, 64 KiB, 64 MiB.
    fn default() -> Self {
        Self { header_lines: HEADER_LINES_MAX, head_bytes: 128 << 10, target_bytes: 64 << 10, body_bytes: 64 << 20 }
    }
}

/// Why a head or a body's framing cannot be read. One that only concerns a size carries no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Malformed(&'static str),
    HeadTooLarge,
    TargetTooLong,
    VersionUnsupported,
    TransferCodingUnsupported,
    BodyTooLarge,
}
