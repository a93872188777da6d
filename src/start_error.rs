//! Why a node does not start, or stops though nobody asked it to: facts, and for each the one line that names cause and remedy.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::control::LogFault;
use crate::identity::Unusable;
use mayfly_net::tls;

/// A fact that ends the start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened on.
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// Tokens cannot be checked.
    Identity(Unusable),
    /// No client could be served with the certificate and its key.
    Tls(tls::Refused),
    /// The data folder, or the log in it.
    Log(LogFault),
    /// The declaration store cannot be this node's.
    Store {
        /// Why, with what to do.
        cause: String,
    },
    /// The node cannot be one of its cluster.
    Peers {
        /// Why, with what to do.
        cause: String,
    },
    /// A core could not be set up: its executor, its ring or its memory.
    Core {
        /// The shard of that core.
        shard_index: usize,
        /// What refused, in its own words.
        cause: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, error } => {
                write!(f, "cannot listen on {address}: ")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        f.write_str("another process listens there; stop it (`ss -ltnp` names it) or choose another port with --listen")
                    }
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("this user may not use the port; choose one from 1024 on with --listen, or grant CAP_NET_BIND_SERVICE")
                    }
                    io::ErrorKind::AddrNotAvailable => {
                        f.write_str("this host has no such address; choose one of `ip address` with --listen")
                    }
                    _ => write!(f, "{error}; choose another address with --listen"),
                }
            }
            Self::Identity(unusable) => unusable.fmt(f),
            Self::Tls(refused) => write!(f, "TLS (--tls-cert, --tls-key): {refused}"),
            Self::Log(fault) => fault.fmt(f),
            Self::Store { cause } | Self::Peers { cause } => f.write_str(cause),
            Self::Core { shard_index, cause } => {
                write!(
                    f,
                    "core {shard_index} cannot be set up: {cause}; fewer cores may fit (--shards), or raise the limits of this process"
                )
            }
        }
    }
}

impl std::error::Error for StartError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_address_says_what_to_do() {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let table = [
            (io::ErrorKind::AddrInUse, "another process listens there"),
            (io::ErrorKind::PermissionDenied, "may not use the port"),
            (io::ErrorKind::AddrNotAvailable, "no such address"),
            (io::ErrorKind::OutOfMemory, "out of memory"),
        ];
        for (kind, cause) in table {
            let line = StartError::Listen { address, error: kind.into() }.to_string();
            assert!(line.starts_with("cannot listen on 127.0.0.1:80: ") && line.contains(cause) && line.contains("--listen"), "{line}");
        }
    }
}
