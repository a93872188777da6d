//! The connection to a peer: only written. Dialled again when it breaks, after a pause.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use super::{Limits, Shared};
use crate::peer::Link;
use crate::peer::dial::Failure;
use crate::peer::socket::{Watch, is_passing, random};

/// Frames are gathered up to this for one write.
const WRITE_BYTES: usize = 256 << 10;
/// Writes to one peer before the others have their turn.
const WRITES_MAX: usize = 16;
/// A larger buffer is given back when it was written.
const KEPT_BYTES_MAX: usize = 512 << 10;

pub(super) struct Outbound {
    pub(super) address: String,
    stage: Stage,
    /// The next pause; none after a success.
    pause: Option<Duration>,
    /// What was said of the last failure: each is logged once.
    said: String,
}

enum Stage {
    /// Until then.
    Pausing(Instant),
    Dialling,
    Up(Connection),
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    place: Option<usize>,
}

impl Outbound {
    pub(super) fn new(address: String) -> Self {
        Self { address, stage: Stage::Pausing(Instant::now()), pause: None, said: String::new() }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    pub(super) fn is_dialling(&self) -> bool {
        matches!(self.stage, Stage::Dialling)
    }

    /// When to dial; `None` while that is not the question.
    pub(super) fn dial_at(&self) -> Option<Instant> {
        if let Stage::Pausing(until) = self.stage { Some(until) } else { None }
    }

    /// Ends a pause.
    pub(super) fn hurry(&mut self) {
        if let Stage::Pausing(until) = &mut self.stage {
            *until = Instant::now();
        }
    }

    pub(super) fn dialling(&mut self) {
        self.stage = Stage::Dialling;
    }

    pub(super) fn connected(&mut self, link: Link) {
        self.pause = None;
        self.said.clear();
        self.stage = Stage::Up(Connection { stream: link.stream, out: Vec::new(), written: 0, place: None });
    }

    pub(super) fn failed(&mut self, node: u64, failure: &Failure, limits: &Limits) {
        let said = failure.to_string();
        if said != self.said {
            log::warn!("no link to node {node} at {}: {said}; it is tried again", self.address);
            self.said = said;
        }
        self.rest(limits);
    }

    pub(super) fn broke(&mut self, limits: &Limits) {
        self.rest(limits);
    }

    fn rest(&mut self, limits: &Limits) {
        let pause = self.pause.unwrap_or(limits.back_off_min).min(limits.back_off_max);
        self.pause = Some(2 * pause);
        self.stage = Stage::Pausing(Instant::now() + jittered(pause));
    }

    pub(super) fn watch(&mut self, watch: &mut Watch) {
        if let Stage::Up(connection) = &mut self.stage {
            connection.place = Some(watch.add(connection.stream.as_raw_fd(), connection.has_output()));
        }
    }

    /// Writes what the socket takes of what waits for the peer. An error: the connection broke.
    pub(super) fn write(&mut self, shared: &Shared, node: u64) -> io::Result<()> {
        let Stage::Up(connection) = &mut self.stage else { return Ok(()) };
        for _ in 0..WRITES_MAX {
            connection.fill(shared, node);
            if !connection.has_output() {
                return Ok(());
            }
            match connection.stream.write(&connection.out[connection.written..]) {
                Ok(count) => connection.written += count,
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // The others have their turn; with output it is written on as soon as they had it.
        connection.fill(shared, node);
        Ok(())
    }

    /// Whether the peer closed the connection, or said something on it, which it never does.
    pub(super) fn has_ended(&mut self, watch: &Watch) -> bool {
        let Stage::Up(connection) = &mut self.stage else { return false };
        if !connection.place.is_some_and(|place| watch.is_ready(place)) {
            return false;
        }
        match connection.stream.peek(&mut [0]) {
            Err(error) => !is_passing(&error),
            Ok(_) => true,
        }
    }
}

impl Connection {
    fn has_output(&self) -> bool {
        self.written < self.out.len()
    }

    /// Takes the next messages, when all before are written.
    fn fill(&mut self, shared: &Shared, node: u64) {
        if self.has_output() {
            return;
        }
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
        self.out.clear();
        self.written = 0;
        if let Some(queue) = shared.mail().queues.get_mut(&node) {
            queue.fill(&mut self.out, WRITE_BYTES);
        }
    }
}

/// Between half of it and one and a half, so that nodes that lost each other at once do not meet again and again.
fn jittered(pause: Duration) -> Duration {
    let [byte] = random::<1>().unwrap_or([128]);
    pause / 2 + pause * u32::from(byte) / 255
}
