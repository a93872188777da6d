//! The same server on a plain epoll loop, for comparison: `epoll_fixed ADDRESS CPU`. One thread, level-triggered, one read and one
//! write per readiness.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use mayfly_bench::fixed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::Pid;

const LISTENER: u64 = u64::MAX;

struct Connection {
    stream: TcpStream,
    matched: usize,
}

fn main() {
    if let Some(cpu) = std::env::args().nth(2).and_then(|text| text.parse().ok()) {
        let mut set = CpuSet::new();
        set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).expect("an allowed CPU");
    }
    let listener = TcpListener::bind(fixed::address()).expect("a free port");
    listener.set_nonblocking(true).expect("settable");
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("an epoll");
    epoll.add(listener.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, LISTENER)).expect("watched");
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = [EpollEvent::empty(); 64];
    let mut input = vec![0; 16 * 1024];
    let mut output = Vec::new();
    loop {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => panic!("epoll_wait: {error}"),
        };
        for event in &events[..count] {
            if event.data() == LISTENER {
                accept(&listener, &epoll, &mut connections);
                continue;
            }
            let slot = event.data() as usize;
            if connections[slot].as_mut().is_some_and(|connection| !serve(connection, &mut input, &mut output)) {
                connections[slot] = None;
            }
        }
    }
}

fn accept(listener: &TcpListener, epoll: &Epoll, connections: &mut Vec<Option<Connection>>) {
    while let Ok((stream, _)) = listener.accept() {
        stream.set_nonblocking(true).expect("settable");
        stream.set_nodelay(true).expect("settable");
        let slot = connections.iter().position(Option::is_none).unwrap_or_else(|| {
            connections.push(None);
            connections.len() - 1
        });
        epoll.add(stream.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, slot as u64)).expect("watched");
        connections[slot] = Some(Connection { stream, matched: 0 });
    }
}

/// `false`: the connection is done. The answers of a closed loop always fit into the socket's buffer, so a short write ends it.
fn serve(connection: &mut Connection, input: &mut [u8], output: &mut Vec<u8>) -> bool {
    let length = match connection.stream.read(input) {
        Ok(0) => return false,
        Ok(length) => length,
        Err(error) => return error.kind() == ErrorKind::WouldBlock,
    };
    output.clear();
    for _ in 0..fixed::count_requests(&input[..length], &mut connection.matched) {
        output.extend_from_slice(fixed::ANSWER);
    }
    output.is_empty() || connection.stream.write(output).is_ok_and(|written| written == output.len())
}
