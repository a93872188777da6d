//! A closed loop over many connections: one thread, non-blocking sockets, level-triggered epoll. A connection sends when something was
//! answered to it, or when it is told to.
//!
//! Invariant: a connection watches for room to write exactly while bytes are left unsent.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::request::Answer;

/// Connections to one server.
#[derive(Debug)]
pub struct Load {
    epoll: Epoll,
    connections: Vec<Connection>,
    input: Box<[u8]>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
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
    pub fn connect(address: SocketAddr, count: usize) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut connections = Vec::with_capacity(count);
        for slot in 0..count {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll.add(stream.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, slot as u64))?;
            connections.push(Connection { stream, received: Vec::new(), unsent: Vec::new(), is_blocked: false });
        }
        Ok(Self { epoll, connections, input: vec![0; 1 << 18].into() })
    }

    /// Sends on a connection.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, slot: usize, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        write(&mut self.connections[slot].unsent);
        self.connections[slot].flush(&self.epoll, slot)
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
        let mut events = [EpollEvent::empty(); 256];
        while Instant::now() < end {
            let count = match self.epoll.wait(&mut events, EpollTimeout::from(20_u16)) {
                Err(nix::errno::Errno::EINTR) => continue,
                count => count?,
            };
            for event in &events[..count] {
                let slot = event.data() as usize;
                let connection = &mut self.connections[slot];
                let flow = connection.receive(&mut self.input, |answer, next| answered(slot, answer, next))?;
                connection.flush(&self.epoll, slot)?;
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
}

impl Connection {
    /// Reads once and hands out every whole answer.
    fn receive(
        &mut self,
        input: &mut [u8],
        mut answered: impl FnMut(Answer<'_>, &mut Vec<u8>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        let length = match self.stream.read(input) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(ControlFlow::Continue(())),
            Err(error) => return Err(error),
        };
        let joined = !self.received.is_empty();
        if joined {
            self.received.extend_from_slice(&input[..length]);
        }
        let mut rest = if joined { &self.received[..] } else { &input[..length] };
        let mut flow = ControlFlow::Continue(());
        while let Some((answer, length)) = Answer::parse(rest) {
            rest = &rest[length..];
            if answered(answer, &mut self.unsent).is_break() {
                flow = ControlFlow::Break(());
            }
        }
        if joined || !rest.is_empty() {
            self.received = rest.to_vec();
        }
        Ok(flow)
    }

    fn flush(&mut self, epoll: &Epoll, slot: usize) -> io::Result<()> {
        if !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let is_blocked = !self.unsent.is_empty();
        if is_blocked != self.is_blocked {
            self.is_blocked = is_blocked;
            let room = if is_blocked { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
            epoll.modify(self.stream.as_fd(), &mut EpollEvent::new(EpollFlags::EPOLLIN | room, slot as u64))?;
        }
        Ok(())
    }
}
