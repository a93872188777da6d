//! The raw limits that brokers are compared with, on one thread and epoll: `raw_limit ADDRESS`. See [`mayfly_bench::peer::raw`] for what a
//! connection says. It parses nothing: a request is 64 bytes, and replies come back in the order in which a responder got its requests.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

const FRAME_BYTES: usize = 64;
const LISTENER: u64 = u64::MAX;

struct Connection {
    stream: TcpStream,
    /// Its letter and channel, when all three bytes are here.
    role: Option<(u8, u16)>,
    /// The start of a frame.
    received: Vec<u8>,
    unsent: Vec<u8>,
    is_blocked: bool,
    /// A responder's callers, in the order of their requests.
    callers: VecDeque<usize>,
}

#[derive(Default)]
struct Relay {
    connections: HashMap<usize, Connection>,
    responders: Vec<usize>,
    next_responder: usize,
    consumers: HashMap<u16, Vec<usize>>,
    /// Connections with something to send.
    dirty: Vec<usize>,
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind(mayfly_bench::fixed::address())?;
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(listener.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let (mut relay, mut count, mut input) = (Relay::default(), 0, vec![0; 1 << 18]);
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let ready_count = epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..ready_count] {
            if event.data() == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    stream.set_nonblocking(true)?;
                    epoll.add(stream.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, count as u64))?;
                    relay.connections.insert(count, Connection::new(stream));
                    count += 1;
                }
            } else {
                relay.receive(event.data() as usize, &mut input);
            }
        }
        for slot in std::mem::take(&mut relay.dirty) {
            relay.flush(&epoll, slot)?;
        }
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, role: None, received: Vec::new(), unsent: Vec::new(), is_blocked: false, callers: VecDeque::new() }
    }
}

impl Relay {
    fn receive(&mut self, slot: usize, input: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(&slot) else { return };
        if connection.is_blocked {
            self.dirty.push(slot);
        }
        let length = match connection.stream.read(input) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Ok(0) | Err(_) => {
                self.connections.remove(&slot);
                self.responders.retain(|responder| *responder != slot);
                self.consumers.values_mut().for_each(|consumers| consumers.retain(|consumer| *consumer != slot));
                return;
            }
            Ok(length) => length,
        };
        let mut bytes = std::mem::take(&mut connection.received);
        bytes.extend_from_slice(&input[..length]);
        let taken = self.take(slot, &bytes);
        bytes.drain(..taken);
        if let Some(connection) = self.connections.get_mut(&slot) {
            connection.received = bytes;
        }
    }

    /// Handles what is whole: how many bytes of it.
    fn take(&mut self, slot: usize, bytes: &[u8]) -> usize {
        let Some(connection) = self.connections.get_mut(&slot) else { return bytes.len() };
        let hello_bytes = if connection.role.is_some() { 0 } else { 3 };
        if bytes.len() < hello_bytes {
            return 0;
        }
        if hello_bytes > 0 {
            let channel = u16::from_le_bytes([bytes[1], bytes[2]]);
            connection.role = Some((bytes[0], channel));
            match bytes[0] {
                b'R' => self.responders.push(slot),
                b'S' => self.consumers.entry(channel).or_default().push(slot),
                _ => {}
            }
        }
        let rest = &bytes[hello_bytes..];
        let whole = &rest[..rest.len() - rest.len() % FRAME_BYTES];
        match self.connections.get(&slot).and_then(|connection| connection.role) {
            Some((b'E', _)) => self.send(slot, whole),
            Some((b'C', _)) => whole.chunks(FRAME_BYTES).for_each(|frame| self.request(slot, frame)),
            Some((b'R', _)) => whole.chunks(FRAME_BYTES).for_each(|frame| self.reply(slot, frame)),
            Some((b'P', channel)) => {
                for consumer in self.consumers.get(&channel).cloned().unwrap_or_default() {
                    self.send(consumer, rest);
                }
                return bytes.len();
            }
            _ => return bytes.len(),
        }
        hello_bytes + whole.len()
    }

    fn request(&mut self, caller: usize, frame: &[u8]) {
        if self.responders.is_empty() {
            return;
        }
        self.next_responder = (self.next_responder + 1) % self.responders.len();
        let responder = self.responders[self.next_responder];
        if let Some(connection) = self.connections.get_mut(&responder) {
            connection.callers.push_back(caller);
        }
        self.send(responder, frame);
    }

    fn reply(&mut self, responder: usize, frame: &[u8]) {
        let caller = self.connections.get_mut(&responder).and_then(|connection| connection.callers.pop_front());
        if let Some(caller) = caller {
            self.send(caller, frame);
        }
    }

    fn send(&mut self, slot: usize, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&slot) else { return };
        if connection.unsent.is_empty() {
            self.dirty.push(slot);
        }
        connection.unsent.extend_from_slice(bytes);
    }

    fn flush(&mut self, epoll: &Epoll, slot: usize) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&slot) else { return Ok(()) };
        match connection.stream.write(&connection.unsent) {
            Ok(length) => drop(connection.unsent.drain(..length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Its end comes with the next read.
            Err(_) => connection.unsent.clear(),
        }
        let is_blocked = !connection.unsent.is_empty();
        if is_blocked != connection.is_blocked {
            connection.is_blocked = is_blocked;
            let room = if is_blocked { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
            epoll.modify(connection.stream.as_fd(), &mut EpollEvent::new(EpollFlags::EPOLLIN | room, slot as u64))?;
        }
        Ok(())
    }
}
