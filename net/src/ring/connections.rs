//! All connections of a core, and what the caller may want of them.
//!
//! Every call but [`Connections::send_now`] only writes down a wish and marks the slot as touched; `settle` compares wishes with what is in
//! flight, once per turn.

use std::net::Shutdown;
use std::os::fd::OwnedFd;

use socket2::SockRef;

use super::balance::Share;
use super::connection::{Connection, Phase, flag, operation};
use super::output::SpareBuffers;
use super::{ConnectionId, DRIVER_SLOT, Output};
use crate::deadlines::{Deadlines, NEVER};
use crate::tls::Seal;

/// A tick of the driver's own deadlines: stalled sends and drains need no better.
const TICK_NS: u64 = 100_000_000;
const TICK_COUNT: usize = 512;

/// The connections of one core. Ids that are not valid any more are ignored: their `Closed` was or will be told.
pub struct Connections {
    /// This core's part in the spreading of connections.
    pub(super) share: Option<Share>,
    pub(super) slots: Vec<Connection>,
    free: Vec<u32>,
    /// Slots whose wishes may differ from what is in flight.
    pub(super) touched: Vec<u32>,
    /// Slots with nothing in flight and nothing wanted, whose `Closed` is to be told.
    pub(super) closed: Vec<u32>,
    pub(super) spare: SpareBuffers,
    pub(super) deadlines: Deadlines,
    /// Slots that are leaving with nothing in flight any more.
    pub(super) leaving: Vec<u32>,
    /// Connections whose bytes were sent at once, each to be told `Sent`.
    pub(super) sent_now: Vec<ConnectionId>,
    /// The bytes that are being told are all that this turn has to tell.
    pub(super) is_calm: bool,
    /// Read once per turn.
    pub(super) now: u64,
    open_count: usize,
    link_count: usize,
    unsent_bytes: usize,
}

impl Connections {
    pub(super) fn new(share: Option<Share>) -> Self {
        Self {
            share,
            slots: Vec::new(),
            free: Vec::new(),
            touched: Vec::new(),
            closed: Vec::new(),
            leaving: Vec::new(),
            spare: SpareBuffers::new(),
            deadlines: Deadlines::new(TICK_NS, TICK_COUNT),
            sent_now: Vec::new(),
            is_calm: false,
            now: 0,
            open_count: 0,
            link_count: 0,
            unsent_bytes: 0,
        }
    }

    /// Accepted sockets that are open, those being closed included.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open_count
    }

    /// Adopted sockets that are open, those being closed included.
    #[must_use]
    pub fn link_count(&self) -> usize {
        self.link_count
    }

    /// Makes a connected stream socket that comes from elsewhere a connection of this core: a link to another node. From then on it is
    /// as any other (bytes are received with the next turn, `Received` to `Closed` are told), with these differences:
    /// - `Opened` is not told: the id comes from here;
    /// - its bytes are plain, even when this core's accepted connections speak TLS;
    /// - it counts as one of [`Connections::link_count`] and neither for [`super::DriverConfig::connections_max`] nor in the balance of
    ///   connections over cores, and [`super::Driver::stop_accepting`] does not concern it.
    ///
    /// Whether the socket is blocking makes no difference; nobody else should read from it or write to it any more. `None`, and the
    /// socket is closed, when there is no slot left (16 million).
    pub fn adopt(&mut self, socket: OwnedFd) -> Option<ConnectionId> {
        // The ring waits for a blocking socket itself, whatever a kernel makes of the other kind.
        SockRef::from(&socket).set_nonblocking(false).ok()?;
        let id = self.open(socket, None)?;
        self.slots[id.slot()].is_link = true;
        self.open_count -= 1;
        self.link_count += 1;
        Some(id)
    }

    /// Bytes appended that sockets have not taken, of all connections, as of the last time that each was settled or sent from.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// The output of an open connection, to append to: it is sent with the next [`super::Driver::flush`] or turn. `None` once the
    /// connection was closed, aborted or has failed.
    pub fn output(&mut self, id: ConnectionId) -> Option<&mut Output> {
        let slot = self.find(id)?;
        if self.slots[slot].phase != Phase::Open {
            return None;
        }
        self.touch(slot);
        let output = &mut self.slots[slot].output;
        output.prepare(&mut self.spare);
        Some(output)
    }

    /// Whether the turn has told all that it had to tell with the present event: then nothing is gained by gathering sends for one
    /// submission, and [`Connections::send_now`] saves its way.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// Sends what was appended at once, as far as the socket takes it; `Sent` follows in this or the next turn. What it does not take,
    /// what follows a send under way, and what has to be sealed goes with the flush, as everything that was appended does.
    pub fn send_now(&mut self, id: ConnectionId) {
        let Some(slot) = self.find(id) else { return };
        let connection = &mut self.slots[slot];
        if connection.phase != Phase::Open || connection.doing(operation::SEND) || connection.seal.is_some() {
            return;
        }
        let Some(socket) = &connection.socket else { return };
        let Some(bytes) = connection.output.next_send(None, false, &mut self.spare) else { return };
        // An error is found again by the flush, which tells it.
        if let Ok(count) = SockRef::from(socket).send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
            connection.output.taken(count, None, &mut self.spare);
            self.sent_now.push(id);
        }
    }

    /// The offsets of a connection's output, open or being closed.
    #[must_use]
    pub fn offsets(&self, id: ConnectionId) -> Option<&Output> {
        self.find(id).map(|slot| &self.slots[slot].output)
    }

    /// Whether the connection can be written to.
    #[must_use]
    pub fn is_open(&self, id: ConnectionId) -> bool {
        self.find(id).is_some_and(|slot| self.slots[slot].phase == Phase::Open)
    }

    /// Stops reading. Bytes that are on their way still come as `Received`; a hang-up is told as `HangUp`.
    pub fn pause(&mut self, id: ConnectionId) {
        self.change(id, |connection| {
            if connection.phase == Phase::Open && !connection.has(flag::PAUSED) {
                connection.flags |= flag::PAUSED;
                connection.flags &= !flag::HUNG_UP;
            }
        });
    }

    /// Reads again.
    pub fn resume(&mut self, id: ConnectionId) {
        self.change(id, |connection| connection.flags &= !flag::PAUSED);
    }

    /// Passes an idle connection on to another core, which opens it as if it had accepted it: here `Closed` is told, and nothing of it is
    /// lost, as it is not read before nothing is in flight here. Only a wish: what arrives first, an end or bytes, is told here and the
    /// connection stays, as it does when it is not idle (unsent output, paused, finished), with TLS, as a link, without a
    /// [`super::DriverConfig::share`], or when the other core is busy for most of its time.
    pub fn pass_on(&mut self, id: ConnectionId, core: usize) {
        let Some(core) = self.share.as_ref().and_then(|share| share.with_time(core)) else { return };
        self.change(id, |connection| {
            if connection.may_leave() {
                connection.flags |= flag::LEAVING;
                connection.leaves_for = core;
            }
        });
    }

    /// Closes after everything appended was sent, and so that the peer can read it: sends FIN, reads and drops what the peer still
    /// sends, up to the bounds of [`super::DriverConfig`], then closes. `Closed` follows.
    pub fn close(&mut self, id: ConnectionId) {
        self.change(id, |connection| {
            if connection.phase == Phase::Open {
                connection.phase = Phase::Flushing;
            }
        });
    }

    /// Closes now; what is unsent is dropped. `Closed` follows.
    pub fn abort(&mut self, id: ConnectionId) {
        if let Some(slot) = self.find(id) {
            self.shut_down(slot);
        }
    }

    pub(super) fn open(&mut self, socket: OwnedFd, seal: Option<Box<Seal>>) -> Option<ConnectionId> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).ok().filter(|slot| *slot < DRIVER_SLOT)?;
                self.slots.push(Connection::free());
                slot
            }
        };
        let connection = &mut self.slots[slot as usize];
        connection.socket = Some(socket);
        connection.seal = seal;
        connection.phase = Phase::Open;
        let id = ConnectionId::new(slot, connection.generation);
        self.open_count += 1;
        self.touch(slot as usize);
        Some(id)
    }

    /// Closes the socket and frees the slot. Only with nothing in flight.
    pub(super) fn release(&mut self, slot: usize) {
        self.unsent_bytes -= self.slots[slot].counted_bytes;
        match self.slots[slot].is_link {
            true => self.link_count -= 1,
            false => self.open_count -= 1,
        }
        let generation = self.slots[slot].generation.wrapping_add(1);
        self.slots[slot] = Connection { generation, ..Connection::free() };
        self.deadlines.clear(slot);
        self.free.push(slot as u32);
    }

    /// Drops output, shuts down both ways and waits for the last completions.
    pub(super) fn shut_down(&mut self, slot: usize) {
        let connection = &mut self.slots[slot];
        if matches!(connection.phase, Phase::Free | Phase::Dying) {
            return;
        }
        connection.phase = Phase::Dying;
        connection.output.drop_pending();
        if let Some(seal) = &mut connection.seal {
            seal.drop_plain();
        }
        connection.shutdown(Shutdown::Both);
        self.deadlines.clear(slot);
        self.touch(slot);
    }

    pub(super) fn id(&self, slot: usize) -> ConnectionId {
        ConnectionId::new(slot as u32, self.slots[slot].generation)
    }

    pub(super) fn find(&self, id: ConnectionId) -> Option<usize> {
        let slot = id.slot();
        let connection = self.slots.get(slot)?;
        (connection.generation == id.generation() && connection.phase != Phase::Free).then_some(slot)
    }

    pub(super) fn touch(&mut self, slot: usize) {
        let connection = &mut self.slots[slot];
        if !connection.has(flag::TOUCHED) {
            connection.flags |= flag::TOUCHED;
            self.touched.push(slot as u32);
        }
    }

    /// Brings `unsent_bytes` up to date with one connection.
    pub(super) fn count_unsent(&mut self, slot: usize) {
        let connection = &mut self.slots[slot];
        let unsent_bytes = connection.output.unsent_bytes();
        self.unsent_bytes = self.unsent_bytes - connection.counted_bytes + unsent_bytes;
        connection.counted_bytes = unsent_bytes;
    }

    pub(super) fn next_deadline(&self) -> u64 {
        self.deadlines.next_at().unwrap_or(NEVER)
    }

    fn change(&mut self, id: ConnectionId, wish: impl FnOnce(&mut Connection)) {
        if let Some(slot) = self.find(id) {
            wish(&mut self.slots[slot]);
            self.touch(slot);
        }
    }
}
