//! Opens a link to another node: resolves, connects, shakes hands. Blocking.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handshake::{Credentials, Handshake, INPUT_BYTES_MAX, Peer, Purpose, Refused};
use super::socket::{prepare, random};
use super::{Link, Spans};

/// Why there is no link.
#[derive(Debug)]
pub enum Failure {
    /// The name has no address.
    Unresolved(io::Error),
    /// No address of it could be connected to; the last one's error.
    Unreachable(io::Error),
    /// The connection broke, or was closed, in the middle of the handshake.
    Broken(io::Error),
    /// The deadline passed.
    Late,
    /// One of the two sides refused the other.
    Refused(Refused),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unresolved(error) => write!(f, "its name has no address: {error}"),
            Self::Unreachable(error) => write!(f, "it cannot be reached: {error}"),
            Self::Broken(error) => write!(f, "the connection broke during the handshake: {error}"),
            Self::Late => write!(f, "it did not answer in time"),
            Self::Refused(refused) => write!(f, "{refused}"),
        }
    }
}

impl std::error::Error for Failure {}

/// Opens a link to node `wanted` at `address` (`host:port`), for `purpose`. Its socket is non-blocking.
///
/// Takes no longer than [`Spans::handshake`], connecting included, but for the time that the system's resolver takes for a name.
///
/// # Errors
/// See [`Failure`].
pub fn dial(own: &Arc<Credentials>, address: &str, wanted: u64, purpose: Purpose, spans: Spans) -> Result<Link, Failure> {
    if wanted == own.node() {
        return Err(Failure::Refused(Refused::Itself));
    }
    let addresses = address.to_socket_addrs().map_err(Failure::Unresolved)?;
    let until = Instant::now() + spans.handshake;
    let stream = connect(addresses, until)?;
    prepare(&stream, spans.silence).map_err(Failure::Broken)?;
    let peer = shake_hands(own, wanted, purpose, &stream, until)?;
    let settle = || {
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        stream.set_nonblocking(true)
    };
    settle().map_err(Failure::Broken)?;
    Ok(Link { peer, stream })
}

fn connect(addresses: impl Iterator<Item = SocketAddr>, until: Instant) -> Result<TcpStream, Failure> {
    let mut failure = Failure::Unresolved(io::ErrorKind::NotFound.into());
    for address in addresses {
        match TcpStream::connect_timeout(&address, left(until)?) {
            // Nobody listens, and the kernel has connected the socket to itself: its own port was the one that it chose.
            Ok(stream) if stream.local_addr().ok() == Some(address) => {
                failure = Failure::Unreachable(io::ErrorKind::ConnectionRefused.into());
            }
            Ok(stream) => return Ok(stream),
            Err(error) => failure = Failure::Unreachable(error),
        }
    }
    Err(failure)
}

fn shake_hands(own: &Arc<Credentials>, wanted: u64, purpose: Purpose, mut stream: &TcpStream, until: Instant) -> Result<Peer, Failure> {
    let (mut out, mut buffer) = (Vec::new(), [0; INPUT_BYTES_MAX]);
    let nonce = random().map_err(Failure::Broken)?;
    let mut handshake = Handshake::dial(Arc::clone(own), wanted, purpose, nonce, &mut out);
    loop {
        stream.set_write_timeout(Some(left(until)?)).map_err(Failure::Broken)?;
        stream.write_all(&out).map_err(failed)?;
        out.clear();
        stream.set_read_timeout(Some(left(until)?)).map_err(Failure::Broken)?;
        let count = stream.read(&mut buffer[..handshake.wanted_bytes()]).map_err(failed)?;
        if count == 0 {
            return Err(Failure::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        match handshake.receive(&mut &buffer[..count], &mut out) {
            Ok(Some(peer)) => return Ok(peer),
            Ok(None) => {}
            Err(refused) => return Err(Failure::Refused(refused)),
        }
    }
}

fn failed(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::Late,
        _ => Failure::Broken(error),
    }
}

fn left(until: Instant) -> Result<Duration, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Failure::Late) } else { Ok(left) }
}
