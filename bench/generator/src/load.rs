//! Many connections in one thread: non-blocking sockets, level-triggered epoll. What the bytes mean is the caller's affair: [`Load::run`]
//! frames the broker's HTTP, a [`crate::fleet::Fleet`] whatever its sessions speak.
//!
//! Invariant: a connection watches for room to write exactly while bytes are left unsent.

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::request::Answer;
use crate::wire::{Target, Wire};

/// Connections to one server.
#[derive(Debug)]
pub struct Load {
    epoll: Epoll,
    connections: Vec<Connection>,
    input: Box<[u8]>,
}

#[derive(Debug)]
struct Connection {
    wire: Wire,
    /// The start of an answer that is not all here.
    received: Vec<u8>,
    unsent: Vec<u8>,
    is_blocked: bool,
}

impl Load {
    /// Opens `count` connections, numbered from 0.
    ///
    /// # Errors
    /// The server does not take them, or the open-files limit is too low.
    pub fn connect(target: impl Into<Target>, count: usize) -> io::Result<Self> {
        let target = target.into();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut connections = Vec::with_capacity(count);
        for slot in 0..count {
            let wire = Wire::connect(&target)?;
            epoll.add(wire.stream.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, slot as u64))?;
            connections.push(Connection { wire, received: Vec::new(), unsent: Vec::new(), is_blocked: false });
        }
        Ok(Self { epoll, connections, input: vec![0; 1 << 18].into() })
    }

    /// Sends on a connection.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, slot: usize, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        write(&mut self.connections[slot].unsent);
        self.flush(slot)
    }

    /// Runs until `end`, or until `answered` breaks. It gets each answer with its connection's number, and appends what is sent next there.
    ///
    /// # Errors
    /// A connection broke.
    pub fn run(
        &mut self,
        end: Instant,
        mut answered: impl FnMut(usize, Answer<'_>, &mut Vec<u8>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        while Instant::now() < end {
            for slot in self.wait(20)? {
                let mut flow = ControlFlow::Continue(());
                self.receive(slot, |rest, next| {
                    let (answer, length) = Answer::parse(rest)?;
                    if answered(slot, answer, next).is_break() {
                        flow = ControlFlow::Break(());
                    }
                    Some(length)
                })?;
                self.flush(slot)?;
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Sends on a connection and waits for one answer: its body.
    ///
    /// # Errors
    /// The connection broke, or nothing was answered by `end`.
    pub fn ask(&mut self, slot: usize, end: Instant, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<String> {
        self.send(slot, write)?;
        let mut body = String::new();
        let flow = self.run(end, |_, answer, _| {
            body.push_str(answer.body);
            ControlFlow::Break(())
        })?;
        if flow.is_break() { Ok(body) } else { Err(ErrorKind::TimedOut.into()) }
    }

    /// Waits at most `timeout_ms` (0: not at all) for connections with input or room, and takes their numbers.
    /// Those not handled are found again by the next wait.
    ///
    /// # Errors
    /// The wait failed.
    pub fn wait(&mut self, timeout_ms: u16) -> io::Result<impl Iterator<Item = usize> + use<>> {
        let mut events = [EpollEvent::empty(); 256];
        let count = match self.epoll.wait(&mut events, EpollTimeout::from(timeout_ms)) {
            Err(nix::errno::Errno::EINTR) => 0,
            count => count?,
        };
        Ok(events.into_iter().take(count).map(|event| event.data() as usize))
    }

    /// Reads once from a connection. `take` gets what is there and the bytes to send next, and tells how much it took: None waits for more.
    ///
    /// # Errors
    /// The connection broke.
    pub fn receive(&mut self, slot: usize, take: impl FnMut(&[u8], &mut Vec<u8>) -> Option<usize>) -> io::Result<()> {
        self.connections[slot].receive(&mut self.input, take)
    }

    /// The bytes a connection sends with its next flush.
    pub fn unsent(&mut self, slot: usize) -> &mut Vec<u8> {
        &mut self.connections[slot].unsent
    }

    /// Writes what a connection has to send, as far as there is room.
    ///
    /// # Errors
    /// The connection broke.
    pub fn flush(&mut self, slot: usize) -> io::Result<()> {
        self.connections[slot].flush(&self.epoll, slot)
    }
}

impl Connection {
    fn receive(&mut self, input: &mut [u8], mut take: impl FnMut(&[u8], &mut Vec<u8>) -> Option<usize>) -> io::Result<()> {
        let length = match self.wire.read(input) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_joined = !self.received.is_empty();
        if is_joined {
            self.received.extend_from_slice(&input[..length]);
        }
        let whole = if is_joined { &self.received[..] } else { &input[..length] };
        let mut taken = 0;
        while taken < whole.len() {
            let Some(length) = take(&whole[taken..], &mut self.unsent) else { break };
            taken += length;
        }
        if is_joined {
            drop(self.received.drain(..taken));
        } else {
            self.received.extend_from_slice(&input[taken..length]);
        }
        Ok(())
    }

    fn flush(&mut self, epoll: &Epoll, slot: usize) -> io::Result<()> {
        if !self.unsent.is_empty() || self.wire.is_holding() {
            match self.wire.write(&self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let is_blocked = !self.unsent.is_empty() || self.wire.is_holding();
        if is_blocked != self.is_blocked {
            self.is_blocked = is_blocked;
            let room = if is_blocked { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
            epoll.modify(self.wire.stream.as_fd(), &mut EpollEvent::new(EpollFlags::EPOLLIN | room, slot as u64))?;
        }
        Ok(())
    }
}
