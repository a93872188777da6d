//! Takes links in: one thread that listens on the peer address and shakes hands with all who knock at once.
//!
//! Bounded: at most [`Limits::handshakes_max`] handshakes are under way, each with a deadline. When one more knocks the oldest of them is
//! sent away: a handshake takes two round trips, so who lingers is the one to lose its place, and no number of idle connections keeps
//! a node out for longer than that. A handshake costs microseconds of this thread, so it serves them all.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::handshake::{Credentials, Handshake, INPUT_BYTES_MAX, Peer, Refused};
use super::socket::{Bell, Watch, is_passing, prepare, random};
use super::{Link, Spans};
use crate::listener::{listen, local_address};

/// How long accepting rests when there is no descriptor left.
const REST: Duration = Duration::from_millis(50);
/// Connections accepted before those that are there have their turn.
const ACCEPTS_MAX: usize = 64;
/// A line about those who were refused at most this often.
const LINE_PACE: Duration = Duration::from_secs(1);

/// How much a door does at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Handshakes under way: a descriptor each.
    pub handshakes_max: usize,
    /// See there.
    pub spans: Spans,
}

impl Default for Limits {
    /// 256 handshakes, the usual spans.
    fn default() -> Self {
        Self { handshakes_max: 256, spans: Spans::default() }
    }
}

/// An open door. Closes when dropped, at once: who is in the middle of a handshake is sent away.
#[derive(Debug)]
pub struct Door {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    bell: Bell,
    is_closing: AtomicBool,
    refused_count: AtomicU64,
}

impl Door {
    /// Listens on `address` (port 0: a free one) and gives those who proved themselves to `arrived`, on the door's thread: it has to be
    /// quick. Their sockets are non-blocking.
    ///
    /// # Errors
    /// Those of [`listen`]; no descriptor or thread is left.
    pub fn open(
        address: SocketAddr,
        own: Arc<Credentials>,
        limits: Limits,
        arrived: impl FnMut(Link) + Send + 'static,
    ) -> io::Result<Self> {
        let socket = listen(address, 1)?.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
        let address = local_address(&socket)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared { bell: Bell::new()?, is_closing: AtomicBool::new(false), refused_count: AtomicU64::new(0) });
        let mut keeper = Keeper::new(listener, own, limits, Arc::clone(&shared), arrived);
        let thread = std::thread::Builder::new().name("peer-door".to_owned()).spawn(move || keeper.run())?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that did not become a link: refused, late, sent away or gone.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.shared.refused_count.load(Ordering::Relaxed)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A callback that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Somebody in the middle of a handshake.
struct Guest {
    stream: TcpStream,
    address: SocketAddr,
    handshake: Handshake,
    out: Vec<u8>,
    /// What the handshake came to; told when `out` is sent.
    result: Option<Result<Peer, Refused>>,
    until: Instant,
    place: usize,
}

/// Why somebody was not let in.
enum Loss {
    Refused(Refused),
    /// The socket's error, or its end.
    Gone,
    Late,
    /// The oldest, when one more knocked.
    SentAway,
}

struct Keeper<F> {
    listener: TcpListener,
    own: Arc<Credentials>,
    limits: Limits,
    shared: Arc<Shared>,
    arrived: F,
    /// The oldest first.
    guests: VecDeque<Guest>,
    rest_until: Option<Instant>,
    line_at: Option<Instant>,
    unsaid_count: u64,
}

impl<F: FnMut(Link)> Keeper<F> {
    fn new(listener: TcpListener, own: Arc<Credentials>, limits: Limits, shared: Arc<Shared>, arrived: F) -> Self {
        let limits = Limits { handshakes_max: limits.handshakes_max.max(1), ..limits };
        Self { listener, own, limits, shared, arrived, guests: VecDeque::new(), rest_until: None, line_at: None, unsaid_count: 0 }
    }

    fn run(&mut self) {
        let mut watch = Watch::new();
        while !self.shared.is_closing.load(Ordering::SeqCst) {
            watch.begin(&self.shared.bell);
            let listener = self.rest_until.is_none().then(|| watch.add(self.listener.as_raw_fd(), false));
            for guest in &mut self.guests {
                guest.place = watch.add(guest.stream.as_raw_fd(), !guest.out.is_empty());
            }
            let due_at = self.guests.front().map(|guest| guest.until);
            watch.wait(&self.shared.bell, due_at.into_iter().chain(self.rest_until).min());
            self.serve(&watch);
            let now = Instant::now();
            self.rest_until = self.rest_until.filter(|until| *until > now);
            while self.guests.front().is_some_and(|guest| guest.until <= now) {
                self.lose_oldest(&Loss::Late);
            }
            if listener.is_some_and(|place| watch.is_ready(place)) {
                self.accept(now);
            }
        }
    }

    fn serve(&mut self, watch: &Watch) {
        for _ in 0..self.guests.len() {
            let Some(mut guest) = self.guests.pop_front() else { return };
            match if watch.is_ready(guest.place) { guest.go_on() } else { Ok(None) } {
                Ok(None) => self.guests.push_back(guest),
                Ok(Some(peer)) => (self.arrived)(Link { peer, stream: guest.stream }),
                Err(loss) => self.lose(guest.address, &loss),
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            match self.listener.accept() {
                Ok((stream, address)) => {
                    if self.guests.len() >= self.limits.handshakes_max {
                        self.lose_oldest(&Loss::SentAway);
                    }
                    match self.welcome(stream, address, now) {
                        Ok(guest) => self.guests.push_back(guest),
                        Err(_) => self.lose(address, &Loss::Gone),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It gave up before it was accepted, or a signal came.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    log::warn!("the peer port cannot accept: {error}; trying again in {} ms", REST.as_millis());
                    self.rest_until = Some(now + REST);
                    return;
                }
            }
        }
    }

    fn welcome(&self, stream: TcpStream, address: SocketAddr, now: Instant) -> io::Result<Guest> {
        stream.set_nonblocking(true)?;
        prepare(&stream, self.limits.spans.silence)?;
        let handshake = Handshake::accept(Arc::clone(&self.own), random()?);
        Ok(Guest { stream, address, handshake, out: Vec::new(), result: None, until: now + self.limits.spans.handshake, place: 0 })
    }

    fn lose_oldest(&mut self, loss: &Loss) {
        if let Some(guest) = self.guests.pop_front() {
            self.lose(guest.address, loss);
        }
    }

    fn lose(&mut self, address: SocketAddr, loss: &Loss) {
        self.shared.refused_count.fetch_add(1, Ordering::Relaxed);
        let Loss::Refused(refused) = loss else { return };
        let now = Instant::now();
        if self.line_at.is_some_and(|at| now < at + LINE_PACE) {
            self.unsaid_count += 1;
            return;
        }
        self.line_at = Some(now);
        let others = std::mem::take(&mut self.unsaid_count);
        log::warn!("no link from {address}: {refused} (others since the last such line: {others})");
    }
}

impl Guest {
    /// Sends and reads what there is. The peer, when it is through.
    fn go_on(&mut self) -> Result<Option<Peer>, Loss> {
        let mut buffer = [0; INPUT_BYTES_MAX];
        loop {
            while !self.out.is_empty() {
                match self.stream.write(&self.out) {
                    Ok(count) => drop(self.out.drain(..count)),
                    Err(error) if is_passing(&error) => return Ok(None),
                    Err(_) => return Err(Loss::Gone),
                }
            }
            match self.result.take() {
                Some(Ok(peer)) => return Ok(Some(peer)),
                Some(Err(refused)) => return Err(Loss::Refused(refused)),
                None => {}
            }
            match self.stream.read(&mut buffer[..self.handshake.wanted_bytes()]) {
                Ok(0) => return Err(Loss::Gone),
                Ok(count) => self.result = self.handshake.receive(&mut &buffer[..count], &mut self.out).transpose(),
                Err(error) if is_passing(&error) => return Ok(None),
                Err(_) => return Err(Loss::Gone),
            }
        }
    }
}
