//! One slot: a socket, what is in flight for it and what is wanted of it.

use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use socket2::SockRef;

use super::output::Output;
use crate::tls::Seal;

/// Operations, as they stand in the last byte of `user_data` and as bits of [`Connection::in_flight`].
pub(super) mod operation {
    pub(in crate::ring) const RECEIVE: u8 = 1;
    pub(in crate::ring) const SEND: u8 = 2;
    pub(in crate::ring) const HANG_UP: u8 = 4;
    pub(in crate::ring) const CANCEL: u8 = 8;
    /// The rest belongs to no connection; the generation of an accept is the number of its listener.
    pub(in crate::ring) const ACCEPT: u8 = 16;
    pub(in crate::ring) const RING_BELL: u8 = 17;
    /// Completions that tell nothing.
    pub(in crate::ring) const IGNORED: u8 = 19;
}

/// Facts and wishes about a connection.
pub(super) mod flag {
    /// In the list of slots to be settled.
    pub(in crate::ring) const TOUCHED: u8 = 1;
    /// The caller does not want to read.
    pub(in crate::ring) const PAUSED: u8 = 2;
    /// The peer's FIN was received.
    pub(in crate::ring) const FINISHED: u8 = 4;
    /// `HangUp` was told; it is told once per pause.
    pub(in crate::ring) const HUNG_UP: u8 = 8;
    /// The batch of completions being handled holds bytes of this connection that were not shown yet.
    pub(in crate::ring) const BYTES_AHEAD: u8 = 16;
    /// In the list of slots whose `Closed` is to be told.
    pub(in crate::ring) const CLOSED: u8 = 32;
    /// In the line of handshakes.
    pub(in crate::ring) const IN_LINE: u8 = 64;
    /// `Finished` was told: by the peer's close_notify or its FIN, whichever came first.
    pub(in crate::ring) const END_TOLD: u8 = 128;
}

/// Where a connection is between accept and close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Free,
    Open,
    /// Closing: the output is being sent, input is read and dropped.
    Flushing,
    /// Our FIN is sent, input is read and dropped so that the peer reads our last answer before a reset could overtake it.
    Draining,
    /// Shut down both ways, waiting for the last completions.
    Dying,
}

pub(super) struct Connection {
    pub(super) socket: Option<OwnedFd>,
    pub(super) generation: u32,
    pub(super) phase: Phase,
    /// Bits of [`operation`].
    pub(super) in_flight: u8,
    /// Bits of [`flag`].
    pub(super) flags: u8,
    /// Adopted: it counts for no bound on accepted connections, and for no balance.
    pub(super) is_link: bool,
    pub(super) output: Output,
    /// With TLS on.
    pub(super) seal: Option<Box<Seal>>,
    /// Its part of [`super::Connections::unsent_bytes`].
    pub(super) counted_bytes: usize,
    /// Input dropped while closing.
    pub(super) drained_bytes: u64,
    /// When draining ends at the latest.
    pub(super) drain_until: u64,
}

/// All that an idle connection costs here; its deadline costs 16 bytes more.
const _: () = assert!(size_of::<Connection>() <= 128);

impl Connection {
    pub(super) fn free() -> Self {
        Self {
            socket: None,
            generation: 0,
            phase: Phase::Free,
            in_flight: 0,
            flags: 0,
            is_link: false,
            output: Output::default(),
            seal: None,
            counted_bytes: 0,
            drained_bytes: 0,
            drain_until: 0,
        }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn doing(&self, operation: u8) -> bool {
        self.in_flight & operation != 0
    }

    /// Whether bytes should be read, to be shown or to be dropped.
    pub(super) fn wants_bytes(&self) -> bool {
        match self.phase {
            Phase::Open => self.flags & (flag::PAUSED | flag::FINISHED) == 0,
            Phase::Flushing | Phase::Draining => !self.has(flag::FINISHED),
            Phase::Free | Phase::Dying => false,
        }
    }

    /// The descriptor, for operations of the ring. Only of a slot that is not free.
    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Shuts the socket down; a socket that is reset already says so, which changes nothing.
    pub(super) fn shutdown(&self, how: Shutdown) {
        if let Some(socket) = &self.socket {
            let _ = SockRef::from(&socket.as_fd()).shutdown(how);
        }
    }
}
