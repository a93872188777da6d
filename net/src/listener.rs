//! Listening sockets that several cores share on one port.
//!
//! Every core has a socket of its own (SO_REUSEPORT), so that the kernel spreads connections without a lock. That option would let
//! a second broker of the same user join the port silently; so the first socket listens without it, which the kernel refuses when
//! anyone listens there already, and gets the option only then.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Listens on `address` with one socket for each of `core_count` cores. Port 0 takes a free port, the same for all; see
/// [`local_address`]. Accepted sockets inherit TCP_NODELAY. `[::]` takes IPv4 too.
///
/// # Errors
/// `AddrInUse` when another process listens there, `PermissionDenied` for ports below 1024, `AddrNotAvailable` for foreign addresses.
pub fn listen(address: SocketAddr, core_count: usize) -> io::Result<Vec<OwnedFd>> {
    let first = bind(address, false)?;
    first.listen(BACKLOG)?;
    let mut sockets = vec![first];
    if core_count > 1 {
        let address = sockets[0].local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        sockets[0].set_reuse_port(true)?;
        for _ in 1..core_count {
            let socket = bind(address, true)?;
            socket.listen(BACKLOG)?;
            sockets.push(socket);
        }
    }
    Ok(sockets.into_iter().map(OwnedFd::from).collect())
}

/// The address that a listener really has.
///
/// # Errors
/// Those of `getsockname`.
pub fn local_address(listener: &OwnedFd) -> io::Result<SocketAddr> {
    let address = socket2::SockRef::from(listener).local_addr()?;
    address.as_socket().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    // Blocking: io_uring waits for a blocking socket, and answers EAGAIN for a non-blocking one.
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    // Connections of an earlier run in TIME_WAIT do not keep the port.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_tcp_nodelay(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};

    use super::*;

    fn any_port() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    #[test]
    fn a_port_in_use_is_refused_even_when_its_owner_shares_it() {
        for core_count in [1, 3] {
            let ours = listen(any_port(), core_count).expect("a free port");
            let address = local_address(&ours[0]).expect("bound");
            assert!(ours.iter().all(|socket| local_address(socket).expect("bound") == address));
            for their_count in [1, 2] {
                let refused = listen(address, their_count).expect_err("taken");
                assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
            }
            drop(ours);
            listen(address, core_count).expect("free again at once");
        }
    }

    #[test]
    fn accepted_sockets_do_not_delay() {
        let listener = listen(any_port(), 1).expect("a free port").remove(0);
        let _client = TcpStream::connect(local_address(&listener).expect("bound")).expect("connects");
        let listener = std::net::TcpListener::from(listener);
        let (accepted, _) = listener.accept().expect("accepts");
        assert!(accepted.nodelay().expect("readable"));
    }

    #[test]
    fn the_unspecified_v6_address_takes_v4_too() {
        let Ok(listeners) = listen((Ipv6Addr::UNSPECIFIED, 0).into(), 2) else { return };
        let port = local_address(&listeners[0]).expect("bound").port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects by IPv4");
    }
}
