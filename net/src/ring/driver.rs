//! One core's driver: what the ring completed becomes events, what the caller wants becomes operations.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::accept::Accepting;
use super::balance::Share;
use super::busy::Busy;
use super::connection::{Phase, flag, operation};
use super::queue::{Completion, Queue};
use super::secure::Secure;
use super::sleep::Sleeper;
use super::{ConnectionId, Connections, DRIVER_SLOT, Event, Output};
use crate::clock::Clock;
use crate::mesh::Waker;
use crate::tls::Acceptor;

/// Completions handled in one turn at most.
const TURN_COMPLETIONS: usize = 64;
/// Time spent on events in one turn, after which the rest waits for the next; checked every [`TIME_CHECK_EVENTS`].
const TURN_NS: u64 = 500_000;
const TIME_CHECK_EVENTS: usize = 8;
/// Queue entries. More completions than this are kept by the kernel, at a cost.
const SUBMISSIONS: u32 = 512;
const COMPLETIONS: u32 = 4096;

/// How a driver is set up.
#[derive(Clone)]
pub struct DriverConfig {
    /// The process's clock.
    pub clock: Clock,
    /// What other cores ring to wake this one.
    pub waker: Arc<Waker>,
    /// This core's part in the spreading of connections; without it a core keeps what it accepts.
    pub share: Option<Share>,
    /// Accepted connections open at once on this core; those beyond are closed as soon as they are accepted.
    pub connections_max: usize,
    /// Receive buffers, a power of two.
    pub buffer_count: u16,
    /// Bytes of one receive buffer: the most that one `Received` shows.
    pub buffer_bytes: usize,
    /// How long to poll before sleeping; zero when cores share CPUs.
    pub spin: Duration,
    /// A send without any progress for this long fails the connection.
    pub send_stall: Duration,
    /// Closing: how long after the last dropped byte, and in all, the peer may go on sending, and how much.
    pub drain_quiet: Duration,
    /// See `drain_quiet`.
    pub drain: Duration,
    /// See `drain_quiet`.
    pub drain_bytes: u64,
    /// Speaks TLS, and nothing else, on every connection; None: plain bytes.
    pub tls: Option<Arc<Acceptor>>,
}

impl DriverConfig {
    /// The usual values: 256 buffers of 16 KiB, no spinning, sends stalled after 30 s, drains of 2 s quiet, 30 s and 256 MiB.
    #[must_use]
    pub fn new(clock: Clock, waker: Arc<Waker>) -> Self {
        Self {
            clock,
            waker,
            share: None,
            connections_max: 1 << 20,
            buffer_count: 256,
            buffer_bytes: 16 * 1024,
            spin: Duration::ZERO,
            send_stall: Duration::from_secs(30),
            drain_quiet: Duration::from_secs(2),
            drain: Duration::from_secs(30),
            drain_bytes: 256 << 20,
            tls: None,
        }
    }
}

/// Why a driver could not be set up. [`crate::host`] explains the usual reasons before it comes to this.
#[derive(Debug)]
pub enum SetupError {
    /// The ring or its buffers were refused.
    Ring(io::Error),
    /// The executor refused to watch the ring, or there is no executor on this thread.
    Watch(String),
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ring(error) => write!(f, "io_uring refused its set-up: {error}"),
            Self::Watch(error) => write!(f, "cannot wait for the ring: {error}"),
        }
    }
}

impl std::error::Error for SetupError {}

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Events told.
    pub events: usize,
    /// Whether another turn would find work at once.
    pub more: bool,
}

/// Spans and bounds in nanoseconds and bytes.
pub(super) struct Bounds {
    pub(super) send_stall_ns: u64,
    pub(super) drain_quiet_ns: u64,
    pub(super) drain_ns: u64,
    drain_bytes: u64,
    connections_max: usize,
}

/// The io_uring driver of one core. Lives and dies on the executor that made it.
pub struct Driver {
    pub(super) connections: Connections,
    pub(super) queue: Queue,
    pub(super) clock: Clock,
    pub(super) sleeper: Sleeper,
    accepting: Accepting,
    pub(super) busy: Busy,
    bounds: Bounds,
    pub(super) secure: Secure,
    bell_armed: bool,
    /// Completions taken from the ring.
    batch: Vec<Completion>,
    /// Those of the batch that come after the urgent ones, and how many of them are handled.
    later: Vec<Completion>,
    later_handled: usize,
    due: Vec<u32>,
    pub(super) events: usize,
}

impl Driver {
    /// Sets up a ring on the executor of the calling thread; accepting starts with the first turn.
    ///
    /// # Errors
    /// The kernel refuses the ring, or the thread has no glommio executor.
    pub fn new(listeners: Vec<OwnedFd>, config: DriverConfig) -> Result<Self, SetupError> {
        let queue = Queue::new(SUBMISSIONS, COMPLETIONS, config.buffer_count, config.buffer_bytes).map_err(SetupError::Ring)?;
        let sleeper = Sleeper::new(config.waker, config.spin)?;
        let bounds = Bounds {
            send_stall_ns: nanoseconds(config.send_stall),
            drain_quiet_ns: nanoseconds(config.drain_quiet),
            drain_ns: nanoseconds(config.drain),
            drain_bytes: config.drain_bytes,
            connections_max: config.connections_max,
        };
        Ok(Self {
            connections: Connections::new(config.share),
            queue,
            clock: config.clock,
            sleeper,
            accepting: Accepting::new(listeners),
            busy: Busy::default(),
            bounds,
            secure: Secure::new(config.tls),
            bell_armed: false,
            batch: Vec::with_capacity(TURN_COMPLETIONS),
            later: Vec::with_capacity(TURN_COMPLETIONS),
            later_handled: 0,
            due: Vec::new(),
            events: 0,
        })
    }

    /// The connections, to act on outside of events.
    pub fn connections(&mut self) -> &mut Connections {
        &mut self.connections
    }

    /// See [`Connections::output`].
    pub fn output(&mut self, id: ConnectionId) -> Option<&mut Output> {
        self.connections.output(id)
    }

    /// See [`Connections::pause`].
    pub fn pause(&mut self, id: ConnectionId) {
        self.connections.pause(id);
    }

    /// See [`Connections::resume`].
    pub fn resume(&mut self, id: ConnectionId) {
        self.connections.resume(id);
    }

    /// See [`Connections::close`].
    pub fn close(&mut self, id: ConnectionId) {
        self.connections.close(id);
    }

    /// See [`Connections::abort`].
    pub fn abort(&mut self, id: ConnectionId) {
        self.connections.abort(id);
    }

    /// The thousandths of the last tenth of a second that this core worked.
    #[must_use]
    pub fn busy_permille(&self) -> u32 {
        self.busy.permille()
    }

    /// Accepts no more connections and closes the listeners; open connections stay.
    pub fn stop_accepting(&mut self) {
        self.accepting.stop(&mut self.queue);
    }

    /// Queues and submits everything that is wanted: sends, receives, closes.
    pub fn flush(&mut self) {
        self.settle();
        if self.queue.wants_entry() {
            self.queue.enter();
        }
    }

    /// Flushes, takes up to 64 completions and tells them, for up to 500 µs; then what has come due and what was closed.
    pub fn turn(&mut self, mut tell: impl FnMut(&mut Connections, Event<'_>)) -> Turn {
        self.events = 0;
        self.connections.now = self.clock.now_ns();
        self.tell_busy();
        if self.later.is_empty() {
            self.flush_for_turn();
            self.queue.reap(TURN_COMPLETIONS, &mut self.batch);
            self.tell_urgent(&mut tell);
            self.connections.is_calm = self.later.len() == 1;
        }
        self.tell_later(&mut tell);
        self.connections.is_calm = false;
        self.tell_sent_now(&mut tell);
        self.tell_arrivals(&mut tell);
        self.shake_hands(&mut tell);
        self.expire(&mut tell);
        self.pass_on(&mut tell);
        self.tell_closed(&mut tell);
        self.queue.end_turn();
        Turn { events: self.events, more: self.has_work() }
    }

    /// Whether a turn would find work at once.
    pub(super) fn has_work(&mut self) -> bool {
        !self.later.is_empty()
            || self.secure.has_work()
            || !self.connections.touched.is_empty()
            || !self.connections.closed.is_empty()
            || !self.connections.leaving.is_empty()
            || !self.connections.sent_now.is_empty()
            || self.has_arrived()
    }

    /// Whether something came from outside: completions, or sockets that other cores passed here.
    pub(super) fn has_arrived(&mut self) -> bool {
        self.queue.ready() || self.connections.share.as_ref().is_some_and(Share::has_arrivals)
    }

    /// When the driver itself has to be woken.
    pub(super) fn next_deadline(&self) -> u64 {
        self.connections.next_deadline().min(self.accepting.next_at())
    }

    pub(super) fn settle(&mut self) {
        self.connections.settle_all(&mut self.queue, &self.bounds);
        self.accepting.settle(self.connections.now, &mut self.queue);
        if !self.bell_armed {
            self.bell_armed = true;
            let tag = ConnectionId::new(DRIVER_SLOT, 0).tag(operation::RING_BELL);
            self.queue.poll(self.sleeper.waker().as_raw_fd(), libc::POLLIN, true, tag);
        }
    }

    /// Flushes; enters the kernel for its completions only when none are here already.
    fn flush_for_turn(&mut self) {
        self.settle();
        if self.queue.has_submissions() || (!self.queue.has_completions() && self.queue.wants_entry()) {
            self.queue.enter();
        }
    }

    /// Sends, ends and errors; puts aside the rest, and ends behind bytes of their own connection.
    fn tell_urgent(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let mut batch = std::mem::take(&mut self.batch);
        for completion in batch.drain(..) {
            if self.is_urgent(&completion) {
                self.handle(&completion, tell);
            } else {
                self.later.push(completion);
            }
        }
        self.batch = batch;
    }

    fn is_urgent(&mut self, completion: &Completion) -> bool {
        let (id, operation) = ConnectionId::of_tag(completion.user_data);
        match operation {
            operation::SEND => true,
            operation::RECEIVE => match self.connections.find(id) {
                Some(slot) if completion.result > 0 => {
                    self.connections.slots[slot].flags |= flag::BYTES_AHEAD;
                    false
                }
                Some(slot) => !self.connections.slots[slot].has(flag::BYTES_AHEAD),
                None => true,
            },
            operation::HANG_UP => self.connections.find(id).is_none_or(|slot| !self.connections.slots[slot].has(flag::BYTES_AHEAD)),
            _ => false,
        }
    }

    fn tell_later(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let end = self.connections.now + TURN_NS;
        while let Some(&completion) = self.later.get(self.later_handled) {
            self.handle(&completion, tell);
            self.later_handled += 1;
            if self.later_handled.is_multiple_of(TIME_CHECK_EVENTS) && self.clock.now_ns() >= end {
                break;
            }
        }
        if self.later_handled == self.later.len() {
            self.later.clear();
            self.later_handled = 0;
        }
    }

    fn handle(&mut self, completion: &Completion, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let (id, operation) = ConnectionId::of_tag(completion.user_data);
        match operation {
            operation::RECEIVE => self.received(id, completion, tell),
            operation::SEND => self.sent(id, completion, tell),
            operation::HANG_UP => self.hung_up(id, completion, tell),
            operation::CANCEL => {
                self.completed(id, operation::CANCEL);
            }
            operation::ACCEPT => self.accepted(completion, tell),
            operation::RING_BELL => {
                self.bell_armed = completion.more();
                self.tell(tell, Event::Woken);
            }
            _ => {}
        }
    }

    fn received(&mut self, id: ConnectionId, completion: &Completion, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        if let Some(slot) = self.connections.find(id) {
            self.connections.slots[slot].flags &= !flag::BYTES_AHEAD;
            if !completion.more() {
                self.completed(id, operation::RECEIVE);
            }
            match (completion.result, completion.buffer()) {
                (count @ 1.., Some(buffer)) => self.bytes_came(slot, buffer, count as usize, tell),
                (0, _) => self.finished(slot, tell),
                // Out of buffers for the moment, or ended by a cancel: armed again when it is still wanted.
                (error, _) if -error == libc::ENOBUFS => self.queue.ran_out_of_buffers(),
                (error, _) if matches!(-error, libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {}
                _ => self.failed(slot, tell),
            }
        }
        if let Some(buffer) = completion.buffer() {
            self.queue.give_back(buffer);
        }
    }

    fn bytes_came(&mut self, slot: usize, buffer: u16, count: usize, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let id = self.connections.id(slot);
        let now = self.connections.now;
        let connection = &mut self.connections.slots[slot];
        match connection.phase {
            Phase::Open if connection.seal.is_some() => self.ciphertext_came(slot, buffer, count, tell),
            Phase::Open => {
                // It stays: these bytes were read here.
                connection.flags &= !flag::LEAVING;
                self.events += 1;
                tell(&mut self.connections, Event::Received(id, self.queue.bytes(buffer, count)));
                // A cancel may have come too early to find the receive: settling tries again.
                if self.connections.slots[slot].has(flag::PAUSED) {
                    self.connections.touch(slot);
                }
            }
            Phase::Flushing | Phase::Draining => {
                connection.drained_bytes += count as u64;
                if connection.drained_bytes > self.bounds.drain_bytes {
                    self.connections.shut_down(slot);
                } else if connection.phase == Phase::Draining {
                    let until = connection.drain_until.min(now + self.bounds.drain_quiet_ns);
                    self.connections.deadlines.set(slot, until);
                }
            }
            Phase::Free | Phase::Dying => {}
        }
    }

    fn finished(&mut self, slot: usize, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let id = self.connections.id(slot);
        let connection = &mut self.connections.slots[slot];
        connection.flags |= flag::FINISHED;
        match connection.phase {
            // Its bytes still wait for their turn: told behind them.
            Phase::Open if connection.flags & (flag::IN_LINE | flag::END_TOLD) != 0 => {}
            Phase::Open => {
                connection.flags |= flag::END_TOLD;
                self.tell(tell, Event::Finished(id));
            }
            Phase::Draining => self.connections.shut_down(slot),
            Phase::Free | Phase::Flushing | Phase::Dying => {}
        }
    }

    pub(super) fn failed(&mut self, slot: usize, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        if self.connections.slots[slot].phase == Phase::Open {
            let id = self.connections.id(slot);
            self.tell(tell, Event::Failed(id));
        }
        self.connections.shut_down(slot);
    }

    fn sent(&mut self, id: ConnectionId, completion: &Completion, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let Some(slot) = self.completed(id, operation::SEND) else { return };
        let connection = &mut self.connections.slots[slot];
        let phase = connection.phase;
        if completion.result >= 0 {
            let count = completion.result as usize;
            connection.output.taken(count, connection.seal.as_deref_mut(), &mut self.connections.spare);
            let offset = connection.output.sent();
            self.connections.count_unsent(slot);
            if phase != Phase::Dying {
                self.connections.deadlines.clear(slot);
                self.tell(tell, Event::Sent { id, offset });
            }
        } else if !matches!(-completion.result, libc::EINTR | libc::EAGAIN) {
            self.failed(slot, tell);
        }
    }

    fn tell_sent_now(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        while let Some(id) = self.connections.sent_now.pop() {
            let Some(slot) = self.connections.find(id) else { continue };
            self.connections.count_unsent(slot);
            let connection = &self.connections.slots[slot];
            if connection.phase != Phase::Dying {
                let offset = connection.output.sent();
                self.tell(tell, Event::Sent { id, offset });
            }
        }
    }

    fn hung_up(&mut self, id: ConnectionId, completion: &Completion, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let Some(slot) = self.completed(id, operation::HANG_UP) else { return };
        let connection = &mut self.connections.slots[slot];
        let news = connection.flags & (flag::PAUSED | flag::FINISHED | flag::HUNG_UP) == flag::PAUSED;
        if completion.result > 0 && news && connection.phase == Phase::Open {
            connection.flags |= flag::HUNG_UP;
            self.tell(tell, Event::HangUp(id));
        }
    }

    fn accepted(&mut self, completion: &Completion, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let count = self.connections.share.as_ref().map_or(self.connections.open_count(), Share::least_count);
        let socket = self.accepting.accepted(completion, count < self.bounds.connections_max, self.connections.now);
        let socket = match &self.connections.share {
            Some(share) => socket.and_then(|socket| share.place(socket)),
            None => socket,
        };
        if let Some(socket) = socket {
            self.open(socket, tell);
        }
    }

    /// Opens what other cores passed here.
    fn tell_arrivals(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        while let Some(socket) = self.connections.share.as_ref().and_then(Share::arrival) {
            self.open(socket, tell);
        }
    }

    /// Tells the other cores how busy this one is.
    fn tell_busy(&mut self) {
        if let (Some(permille), Some(share)) = (self.busy.works(self.connections.now), &self.connections.share) {
            share.say_busy(permille);
        }
    }

    /// Passes on what is leaving and has nothing in flight any more.
    fn pass_on(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        while let Some(slot) = self.connections.leaving.pop() {
            let slot = slot as usize;
            let connection = &mut self.connections.slots[slot];
            if !connection.has(flag::LEAVING) || connection.in_flight != 0 || !connection.may_leave() {
                continue;
            }
            connection.flags &= !flag::LEAVING;
            let core = usize::from(connection.leaves_for);
            let sent = connection.output.sent();
            // It has a socket, as it is open, and there is a share, or it would not have begun to leave.
            let (Some(share), Some(socket)) = (&self.connections.share, connection.socket.take()) else { continue };
            connection.socket = share.pass(core, socket);
            if connection.socket.is_some() {
                // It is read here again.
                self.connections.touch(slot);
                continue;
            }
            let id = self.connections.id(slot);
            self.tell(tell, Event::Closed { id, sent, begun: sent });
            self.connections.release(slot);
            self.leave();
        }
    }

    fn open(&mut self, socket: OwnedFd, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let opened = self.secure.begin().ok().and_then(|seal| self.connections.open(socket, seal));
        match opened {
            Some(id) => self.tell(tell, Event::Opened(id)),
            None => self.leave(),
        }
    }

    fn leave(&self) {
        if let Some(share) = &self.connections.share {
            share.leave();
        }
    }

    /// An operation has ended: what is wanted next is settled with the flush.
    fn completed(&mut self, id: ConnectionId, operation: u8) -> Option<usize> {
        let slot = self.connections.find(id)?;
        self.connections.slots[slot].in_flight &= !operation;
        self.connections.touch(slot);
        Some(slot)
    }

    /// Sends that made no progress fail; drains that took too long end.
    fn expire(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let now = self.connections.now;
        if self.connections.next_deadline() > now {
            return;
        }
        let mut due = std::mem::take(&mut self.due);
        self.connections.deadlines.expire(now, &mut due);
        for slot in due.drain(..) {
            self.failed(slot as usize, tell);
        }
        self.due = due;
    }

    fn tell_closed(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        while let Some(slot) = self.connections.closed.pop() {
            let id = self.connections.id(slot as usize);
            let connection = &self.connections.slots[slot as usize];
            let sent = connection.output.sent();
            let begun = sent + connection.seal.as_ref().map_or(0, |seal| seal.begun_bytes() as u64);
            let is_link = connection.is_link;
            self.tell(tell, Event::Closed { id, sent, begun });
            self.connections.release(slot as usize);
            if !is_link {
                self.leave();
            }
        }
    }

    pub(super) fn tell(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>), event: Event<'_>) {
        self.events += 1;
        tell(&mut self.connections, event);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.queue.cancel_all() {
            // Sends may still read their bytes: better leaked than freed under them.
            std::mem::forget(std::mem::take(&mut self.connections.slots));
        }
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}
