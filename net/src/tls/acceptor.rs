//! The server's side of all handshakes: one configuration for every core, exchanged while connections go on with the one they began with.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use rustls::{Error, InconsistentKeys, ServerConfig};

use super::identity::{self, Files, Refused};
use super::session::Session;

/// The only protocol that is spoken inside; a client that offers others only is refused, one that offers none is taken.
const PROTOCOL: &[u8] = b"http/1.1";
/// Tickets that a client gets with each full handshake of TLS 1.3. One that opens several connections uses the same again.
const TICKETS: usize = 1;

/// See the module. Shared by all cores; read once per connection.
#[derive(Debug)]
pub struct Acceptor {
    config: RwLock<Arc<ServerConfig>>,
}

impl Acceptor {
    /// Reads the files, and makes sure that clients can be served with them.
    ///
    /// # Errors
    /// A file cannot be read, the key is not the certificate's, or the certificate is not valid now.
    pub fn load(files: &Files) -> Result<Self, Refused> {
        Ok(Self { config: RwLock::new(Arc::new(configure(files, SystemTime::now())?)) })
    }

    /// Reads the files again, for the connections that come from now on. Tickets given before are worth a full handshake.
    ///
    /// # Errors
    /// As [`Acceptor::load`]; then what was there stays.
    pub fn reload(&self, files: &Files) -> Result<(), Refused> {
        let config = Arc::new(configure(files, SystemTime::now())?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// A connection that has received nothing yet.
    ///
    /// # Errors
    /// The library refuses.
    pub fn session(&self) -> Result<Session, Error> {
        Session::new(Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

pub(super) fn configure(files: &Files, now: SystemTime) -> Result<ServerConfig, Refused> {
    let (chain, key) = identity::read(files)?;
    if let Some(own) = chain.first() {
        identity::check_validity(&files.cert, own, now)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| Refused::new(&files.cert, error))?;
    let mut config = versions.with_no_client_auth().with_single_cert(chain, key).map_err(|error| refused(files, &error))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| Refused::new(&files.cert, error))?;
    config.send_tls13_tickets = TICKETS;
    Ok(config)
}

fn refused(files: &Files, error: &Error) -> Refused {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            Refused::new(&files.key, format!("it is not the key of the certificate in {:?}", files.cert))
        }
        Error::InvalidCertificate(_) => Refused::new(&files.cert, format!("its certificate cannot be used: {error}")),
        _ => Refused::new(&files.key, format!("its key cannot be used: {error}")),
    }
}
