//! Connections spread over cores: a core that accepts one passes it to the core that has the fewest, before anything is read; later an idle
//! one may be passed to the core that its requests are for ([`super::Connections::pass_on`]).
//!
//! The kernel spreads by a hash (SO_REUSEPORT), which is even only for very many connections: of a dozen on two cores one had ten,
//! and a core's throughput ends with the busiest.
//!
//! Invariants: a core's count is its open connections and those on their way to it; a socket on its way belongs to its core's queue,
//! and is closed with it; who passes one rings the core after it is there.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;

use crate::mesh::Waker;

/// Sockets on their way to one core; beyond, a core keeps what it accepts.
const ARRIVALS_MAX: usize = 256;
/// A core that worked more of its last window is passed no connection for nearness' sake.
const BUSY_PERMILLE_MAX: u32 = 750;

#[derive(Debug)]
struct Seat {
    count: CachePadded<AtomicUsize>,
    /// Thousandths of the last window that it worked.
    busy_permille: AtomicU32,
    arrivals: ArrayQueue<OwnedFd>,
    waker: Arc<Waker>,
}

/// One core's part in the spreading of connections.
#[derive(Clone, Debug)]
pub struct Share {
    seats: Arc<[Seat]>,
    core: usize,
}

impl Share {
    /// The shares of cores that these wake.
    #[must_use]
    pub fn of_cores(wakers: &[Arc<Waker>]) -> Vec<Self> {
        let seat = |waker: &Arc<Waker>| Seat {
            count: CachePadded::new(AtomicUsize::new(0)),
            busy_permille: AtomicU32::new(0),
            arrivals: ArrayQueue::new(ARRIVALS_MAX),
            waker: Arc::clone(waker),
        };
        let seats: Arc<[Seat]> = wakers.iter().map(seat).collect();
        (0..seats.len()).map(|core| Self { seats: Arc::clone(&seats), core }).collect()
    }

    /// The core with the fewest connections, this one if none has fewer, and how many it has.
    fn emptiest(&self) -> (usize, usize) {
        let count = |core: usize| self.seats[core].count.load(Relaxed);
        let own = (self.core, count(self.core));
        let others = (0..self.seats.len()).filter(|core| *core != self.core).map(|core| (core, count(core)));
        others.fold(own, |least, other| if other.1 < least.1 { other } else { least })
    }

    /// The fewest connections that any core has.
    pub(super) fn least_count(&self) -> usize {
        self.emptiest().1
    }

    /// Counts an accepted socket, and passes it on if another core has fewer. The socket, if it stays here.
    pub(super) fn place(&self, socket: OwnedFd) -> Option<OwnedFd> {
        let (core, _) = self.emptiest();
        let kept = if core == self.core { Some(socket) } else { self.pass(core, socket) };
        if kept.is_some() {
            self.seats[self.core].count.fetch_add(1, Relaxed);
        }
        kept
    }

    /// A core that connections may be passed to: there is one of that number, and it is not busy for most of its time. What one more
    /// connection costs there is more than its hops cost: a core that is nearly full is left to those that need it.
    pub(super) fn with_time(&self, core: usize) -> Option<u16> {
        let seat = self.seats.get(core)?;
        (seat.busy_permille.load(Relaxed) <= BUSY_PERMILLE_MAX).then_some(core as u16)
    }

    /// Tells the others how busy this core is.
    pub(super) fn say_busy(&self, permille: u32) {
        self.seats[self.core].busy_permille.store(permille, Relaxed);
    }

    /// The socket, when the other core is not there or its queue is full.
    pub(super) fn pass(&self, core: usize, socket: OwnedFd) -> Option<OwnedFd> {
        let Some(seat) = self.seats.get(core) else { return Some(socket) };
        seat.count.fetch_add(1, Relaxed);
        if let Err(socket) = seat.arrivals.push(socket) {
            seat.count.fetch_sub(1, Relaxed);
            return Some(socket);
        }
        seat.waker.wake();
        None
    }

    /// A socket that another core passed here, counted already.
    pub(super) fn arrival(&self) -> Option<OwnedFd> {
        self.seats[self.core].arrivals.pop()
    }

    /// Whether [`Share::arrival`] would find one.
    pub(super) fn has_arrivals(&self) -> bool {
        !self.seats[self.core].arrivals.is_empty()
    }

    /// A connection of this core is closed.
    pub(super) fn leave(&self) {
        self.seats[self.core].count.fetch_sub(1, Relaxed);
    }
}
