//! One connection's bytes: plain, or within TLS.

use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Bytes that the library reads from a socket at once: with fewer there are none left.
const READ_BYTES: usize = 4 << 10;
/// What one such read may turn out to be, with a record that was held.
const PLAIN_BYTES_MAX: usize = 64 << 10;

/// Where a server is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }
}

impl Target {
    /// A server of that name that speaks TLS, with a certificate of an authority in the PEM file `authorities`.
    ///
    /// # Errors
    /// The file cannot be read or holds no certificate; the name is none.
    pub fn tls(address: SocketAddr, name: &str, authorities: &Path) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(authorities).map_err(io::Error::other)? {
            roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
        if roots.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, "no certificate in it"));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        Ok(Self { address, tls: Some((config, name)) })
    }
}

/// One connection that does not block.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Wire {
    /// Connects, and shakes hands.
    pub(crate) fn connect(target: &Target) -> io::Result<Self> {
        let mut stream = TcpStream::connect(target.address)?;
        stream.set_nodelay(true)?;
        let mut tls = None;
        if let Some((config, name)) = &target.tls {
            let mut session = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
            session.set_buffer_limit(None);
            while session.is_handshaking() {
                session.complete_io(&mut stream)?;
            }
            tls = Some(Box::new(session));
        }
        stream.set_nonblocking(true)?;
        Ok(Self { stream, tls })
    }

    /// Reads into `input`, which is longer than [`PLAIN_BYTES_MAX`]: 0 at the end.
    pub(crate) fn read(&mut self, input: &mut [u8]) -> io::Result<usize> {
        let Self { stream, tls: Some(tls) } = self else { return self.stream.read(input) };
        let mut length = 0;
        loop {
            let count = match tls.read_tls(stream) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock && length > 0 => return Ok(length),
                Err(error) => return Err(error),
            };
            tls.process_new_packets().map_err(io::Error::other)?;
            loop {
                match tls.reader().read(&mut input[length..]) {
                    Ok(0) => return Ok(length),
                    Ok(count) => length += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            // The next wait tells of what is left. A record that is not whole, or none of the server's data, is nothing yet.
            if count < READ_BYTES || input.len() - length < PLAIN_BYTES_MAX {
                return if length > 0 { Ok(length) } else { Err(ErrorKind::WouldBlock.into()) };
            }
        }
    }

    /// Writes from `bytes`: how many were taken, on their way or held here.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { stream, tls: Some(tls) } = self else { return self.stream.write(bytes) };
        let taken = tls.writer().write(bytes)?;
        while tls.wants_write() {
            match tls.write_tls(stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Whether bytes are held here.
    pub(crate) fn is_holding(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("stream", &self.stream).field("has_tls", &self.tls.is_some()).finish()
    }
}
