//! A client over TLS on one blocking connection, an authority of the tests' own, and nodes with its certificates.

#![allow(unreachable_pub, reason = "shared by the files beside it")]

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use crate::process::client::Answer;
use crate::process::{Node, serve};

const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A folder with an authority and a pair of its own for `localhost`.
pub struct Authority {
    folder: PathBuf,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tls-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(folder.join("ca.pem"), certificate.pem()).expect("a file");
        let authority = Self { folder, certificate: certificate.der().clone(), issuer: Issuer::new(params, key) };
        authority.renew(|_| ());
        authority
    }

    /// Writes a new pair.
    pub fn renew(&self, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write("cert.pem", &certificate.pem());
        self.write("key.pem", &key.serialize_pem());
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).expect("a file");
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("text").to_owned()
    }

    /// A node with the pair.
    pub fn node(&self, shards: usize, arguments: &[&str]) -> Node {
        let (cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        Node::start(serve(shards, &[&["--tls-cert", &cert, "--tls-key", &key], arguments].concat()))
    }

    /// What a client that trusts it offers.
    pub fn offer(&self, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("an authority");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }

    #[track_caller]
    pub fn connect(&self, address: SocketAddr) -> Secure {
        Secure::connect(&self.offer(rustls::ALL_VERSIONS), address).expect("shakes hands")
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A session that has said nothing yet.
pub fn session(offer: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(offer), ServerName::try_from("localhost").expect("a name")).expect("a session")
}

/// One connection.
pub struct Secure {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
    input: Vec<u8>,
}

impl Secure {
    /// Connects and shakes hands.
    pub fn connect(offer: &Arc<ClientConfig>, address: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect(address)?, offer)
    }

    /// Shakes hands on a socket.
    pub fn over(socket: TcpStream, offer: &Arc<ClientConfig>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.set_write_timeout(Some(ANSWER_MAX))?;
        let mut stream = StreamOwned::new(session(offer), socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self { stream, input: Vec::new() })
    }

    /// Connects, and writes `bytes` together with what ends the handshake.
    pub fn connect_and_send(offer: &Arc<ClientConfig>, address: SocketAddr, bytes: &[u8]) -> io::Result<Self> {
        let mut stream = StreamOwned::new(session(offer), TcpStream::connect(address)?);
        stream.sock.set_read_timeout(Some(ANSWER_MAX))?;
        stream.conn.set_buffer_limit(None);
        stream.conn.write_tls(&mut stream.sock)?;
        while stream.conn.is_handshaking() {
            stream.conn.read_tls(&mut stream.sock)?;
            stream.conn.process_new_packets().map_err(io::Error::other)?;
        }
        stream.conn.writer().write_all(bytes)?;
        let mut end = Vec::new();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut end)?;
        }
        stream.sock.write_all(&end)?;
        Ok(Self { stream, input: Vec::new() })
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("takes the request");
        self.stream.flush().expect("takes the request");
    }

    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request);
        self.answer()
    }

    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.next(true).expect("an answer")
    }

    pub fn next(&mut self, has_body: bool) -> io::Result<Answer> {
        Answer::read(&mut self.stream, &mut self.input, has_body)
    }

    /// Asserts that the node ends the connection as TLS asks it to: its close_notify, then its FIN.
    #[track_caller]
    pub fn assert_ended(&mut self) {
        let mut piece = [0; 1024];
        let count = self.stream.read(&mut piece).expect("a close_notify");
        assert_eq!((count, self.input.len()), (0, 0), "{:?}", String::from_utf8_lossy(&piece[..count]));
        assert_eq!(self.stream.sock.read(&mut piece).expect("a FIN"), 0);
    }

    /// Says that nothing more comes, and leaves the socket as it is.
    pub fn close_notify(&mut self) {
        self.stream.conn.send_close_notify();
        while self.stream.conn.wants_write() {
            self.stream.conn.write_tls(&mut self.stream.sock).expect("takes it");
        }
    }

    /// Sends FIN without a close_notify.
    pub fn finish(&self) {
        self.stream.sock.shutdown(Shutdown::Write).expect("a socket");
    }

    /// Ends the connection by a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream.sock).set_linger(Some(Duration::ZERO)).expect("a socket");
    }

    /// Waits until the node says that so many pops are parked.
    #[track_caller]
    pub fn await_waiters(&mut self, count: u64) {
        let started = std::time::Instant::now();
        loop {
            let text = String::from_utf8(self.ask(crate::process::client::get("/metrics")).body).expect("text");
            let line = text.lines().find_map(|line| line.strip_prefix("mayfly_waiters ")).expect("the gauge");
            if line == count.to_string() {
                return;
            }
            assert!(started.elapsed() < ANSWER_MAX, "{line} waiters, not {count}");
        }
    }
}
