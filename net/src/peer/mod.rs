//! Links between the nodes of a cluster: how they are opened, and what is written on them. It knows nodes and bytes, and no queues.
//!
//! - [`frame`]: bodies with their length in front, pure;
//! - [`handshake`]: how two nodes prove to each other that they have the cluster's secret, pure;
//! - [`door`]: takes links in on the peer address; [`dial`]: opens one to another node;
//! - [`control`]: messages of the control core, on connections of their own.
//!
//! A link that is through its handshake is a socket. It is given to a core, which adopts it
//! ([`crate::ring::Connections::adopt`]), or to the control links.
//!
//! The handshake proves who is at the other end when the link is opened. What is said on it afterwards is neither secret nor protected
//! from somebody who can change packets on their way.

pub mod control;
pub mod dial;
pub mod door;
pub mod frame;
pub mod handshake;
mod socket;
#[cfg(test)]
mod tests;

use std::net::TcpStream;
use std::time::Duration;

use handshake::Peer;

/// A connection whose two sides have proved themselves. The next byte on it is the first of its first frame.
#[derive(Debug)]
pub struct Link {
    /// Who is at the other end.
    pub peer: Peer,
    /// Non-blocking, sends at once, and breaks after [`Spans::silence`].
    pub stream: TcpStream,
}

/// How long the other side may take.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    /// For the handshake as a whole.
    pub handshake: Duration,
    /// For acknowledging, as the kernel does, what was sent on a link, or a probe: after that the link breaks.
    pub silence: Duration,
}

impl Default for Spans {
    /// 5 s and 4 s.
    fn default() -> Self {
        Self { handshake: Duration::from_secs(5), silence: Duration::from_secs(4) }
    }
}
