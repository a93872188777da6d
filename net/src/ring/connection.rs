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
    pub(in crate::ring) const TOUCHED: u16 = 1;
    /// The caller does not want to read.
    pub(in crate::ring) const PAUSED: u16 = 2;
    /// The peer's FIN was received.
    pub(in crate::ring) const FINISHED: u16 = 4;
    /// `HangUp` was told; it is told once per pause.
    pub(in crate::ring) const HUNG_UP: u16 = 8;
    /// The batch of completions being handled holds bytes of this connection that were not shown yet.
    pub(in crate::ring) const BYTES_AHEAD: u16 = 16;
    /// In the list of slots whose `Closed` is to be told.
    pub(in crate::ring) const CLOSED: u16 = 32;
    /// In the line of handshakes.
    pub(in crate::ring) const IN_LINE: u16 = 64;
    /// `Finished` was told: by the peer's close_notify or its FIN, whichever came first.
    pub(in crate::ring) const END_TOLD: u16 = 128;
    /// On its way to another core: not read any more, and passed on as soon as nothing is in flight.
    pub(in crate::ring) const LEAVING: u16 = 256;
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
    pub(super) flags: u16,
    /// The core that it goes to, when it is leaving.
    pub(super) leaves_for: u16,
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
            leaves_for: 0,
            is_link: false,
            output: Output::default(),
            seal: None,
            counted_bytes: 0,
            drained_bytes: 0,
            drain_until: 0,
        }
    }

    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn doing(&self, operation: u8) -> bool {
        self.in_flight & operation != 0
    }

    /// Whether bytes should be read, to be shown or to be dropped.
    pub(super) fn wants_bytes(&self) -> bool {
        match self.phase {
            Phase::Open => self.flags & (flag::PAUSED | flag::FINISHED | flag::LEAVING) == 0,
            Phase::Flushing | Phase::Draining => !self.has(flag::FINISHED),
            Phase::Free | Phase::Dying => false,
        }
    }

    /// Whether another core could go on with it: nothing but a receive is in flight, and nothing is to be sent or was said for the last time.
    pub(super) fn may_leave(&self) -> bool {
        let is_plain = self.seal.is_none() && !self.is_link;
        let is_idle = self.in_flight & !operation::RECEIVE == 0 && self.output.unsent_bytes() == 0;
        is_plain && is_idle && self.phase == Phase::Open && self.flags & (flag::PAUSED | flag::FINISHED | flag::BYTES_AHEAD) == 0
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
