//! The io_uring driver of one core: bytes in, bytes out, no task, timer or buffer per connection.
//!
//! One ring per core, inside a glommio executor: multishot accept on the core's listeners,
//! multishot receive into one set of provided buffers, sends that are queued and submitted once per turn, or made at once in a turn that
//! has nothing to gather ([`Connections::send_now`]). The caller is told what
//! happened as [`Event`]s and acts on [`Connections`]; what a connection wants (read, pause, flush, close) is written down there and
//! compared with what is in flight once per turn ([`Driver::flush`]).
//!
//! Invariants:
//! - `user_data` carries slot, generation and operation; a slot is reused only after all its operations have completed, the
//!   multishot receive with a completion without MORE; a completion of an older generation is discarded;
//! - at most one send, one receive, one hang-up poll and one cancel are in flight per connection; the bytes of a send are owned by
//!   the connection until the send has completed, what is appended meanwhile goes with the next one;
//! - a provided buffer goes back to the kernel right after the event that showed its bytes;
//! - per connection the order is Opened (unless it was adopted), with TLS Secured, then Received, HangUp, Finished, Failed, Sent as they happen, then Closed. Within a turn
//!   sends, ends and errors come before bytes, except that an end never overtakes bytes of its own connection.
//!
//! A connection is accepted here, or adopted: a socket that was connected and spoken on elsewhere ([`Connections::adopt`]).
//!
//! With TLS on, events and outputs are of plain bytes all the same. A handshake's steps wait in a line of their own, of which a turn does
//! only so much beside what it does for connections that are through (`secure`).
//!
//! All unsafe code of the project is in this folder, in `queue`, `buffers` and `syscalls`, plus one call in `settle`.
//!
//! Not here: what the bytes mean, limits of requests, deadlines of requests.

mod accept;
mod balance;
mod buffers;
mod busy;
mod connection;
mod connections;
mod driver;
mod output;
pub(crate) mod probe;
mod queue;
mod secure;
mod settle;
mod sleep;
pub(crate) mod syscalls;

pub use balance::Share;
pub use connections::Connections;
pub use driver::{Driver, DriverConfig, SetupError, Turn};
pub use output::Output;

/// One connection of one core: a slot and a generation, so that an id is never mistaken for a later connection in the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// Bits of `user_data` below the slot: the operation.
const OPERATION_BITS: u32 = 8;
/// Bits of `user_data` of the slot; the generation has the 32 above it.
const SLOT_BITS: u32 = 24;
/// The slot number of operations that belong to no connection.
const DRIVER_SLOT: u32 = (1 << SLOT_BITS) - 1;

impl ConnectionId {
    fn new(slot: u32, generation: u32) -> Self {
        Self((u64::from(generation) << (SLOT_BITS + OPERATION_BITS)) | (u64::from(slot) << OPERATION_BITS))
    }

    /// The slot: small, dense, reused after [`Event::Closed`]; an index for the caller's own table.
    #[must_use]
    pub fn slot(self) -> usize {
        ((self.0 >> OPERATION_BITS) as u32 & DRIVER_SLOT) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> (SLOT_BITS + OPERATION_BITS)) as u32
    }

    fn tag(self, operation: u8) -> u64 {
        self.0 | u64::from(operation)
    }

    fn of_tag(user_data: u64) -> (Self, u8) {
        (Self(user_data & !0xff), user_data as u8)
    }

    /// The whole number, to be kept where a `ConnectionId` cannot (a ticket).
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The id that [`ConnectionId::to_bits`] gave.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & !0xff)
    }
}

impl std::fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

/// What happened. After [`Connections::close`] or [`Connections::abort`] only `Sent` and `Closed` follow.
#[derive(Debug)]
pub enum Event<'a> {
    /// A connection was accepted; reading starts after this event unless it was paused or closed in it.
    Opened(ConnectionId),
    /// Its TLS handshake is done. Before, nothing else is told of it but its end, and nothing should be appended.
    Secured(ConnectionId),
    /// Bytes arrived; they are only valid during the event.
    Received(ConnectionId, &'a [u8]),
    /// The peer ended its direction (FIN) or reset while reading is paused. Bytes may still be unread: after
    /// [`Connections::resume`] they come as `Received`, then `Finished` or `Failed`.
    HangUp(ConnectionId),
    /// The peer's FIN or close_notify, after all its bytes. Sending still works, as far as anyone can know.
    Finished(ConnectionId),
    /// Reset, error, bytes that are no TLS, or a send without progress for too long: nothing can be sent any more. `Closed` follows by
    /// itself.
    Failed(ConnectionId),
    /// The socket took everything up to this absolute offset of the connection's output.
    Sent {
        /// Whose output.
        id: ConnectionId,
        /// Bytes since the connection was opened.
        offset: u64,
    },
    /// The socket is closed and the slot is free after this event.
    Closed {
        /// Whose socket; the id is not valid any more.
        id: ConnectionId,
        /// The final count of bytes that the socket took, whole.
        sent: u64,
        /// The count of bytes of which it took anything: more than `sent` when it broke off in the middle of a TLS record.
        begun: u64,
    },
    /// Another core rang (see [`crate::mesh`]).
    Woken,
}
