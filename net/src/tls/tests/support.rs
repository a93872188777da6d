//! An authority of the tests' own, PEM files that end with their test, and a client that moves its bytes by hand.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use super::super::{Acceptor, Buffers, Files, Seal, Step};

/// A folder of two PEM files.
pub(super) struct Pair {
    folder: PathBuf,
}

impl Pair {
    pub(super) fn of(cert: &str, key: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("mayfly-tls-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let pair = Self { folder: std::env::temp_dir().join(name) };
        std::fs::create_dir_all(&pair.folder).expect("a folder");
        std::fs::write(pair.files().cert, cert).expect("a file");
        std::fs::write(pair.files().key, key).expect("a file");
        pair
    }

    /// A certificate for `localhost` that signs itself, its dates as `change` has them.
    pub(super) fn made(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (cert, key) = self_signed(change);
        Self::of(&cert, &key)
    }

    pub(super) fn files(&self) -> Files {
        Files { cert: self.folder.join("cert.pem"), key: self.folder.join("key.pem") }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    change(&mut params);
    let key = KeyPair::generate().expect("a key");
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

/// What a client trusts and offers; connections with the same one resume.
pub(super) fn client_config(files: &Files, versions: &[&'static SupportedProtocolVersion], protocols: &[&str]) -> Arc<ClientConfig> {
    trusting(certificate(files), versions, protocols)
}

pub(super) fn certificate(files: &Files) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(&files.cert).expect("a certificate")
}

/// The same of a certificate in memory.
pub(super) fn trusting(
    certificate: CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Both ends, and what each has read.
pub(super) struct Wire {
    pub(super) client: ClientConnection,
    pub(super) seal: Seal,
    pub(super) buffers: Buffers,
    /// Plain bytes that the server has read, and the client.
    pub(super) heard: Vec<u8>,
    pub(super) read: Vec<u8>,
    /// Every step of the server that said something.
    pub(super) steps: Vec<Step>,
    /// What the client made of the server's bytes.
    pub(super) client_error: Option<rustls::Error>,
    /// Ciphertext from client to server so far.
    pub(super) to_server_bytes: usize,
}

impl Wire {
    pub(super) fn new(acceptor: &Acceptor, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").expect("a name");
        Self {
            client: ClientConnection::new(Arc::clone(config), name).expect("a client"),
            seal: Seal::new(acceptor.session().expect("a session")),
            buffers: Buffers::default(),
            heard: Vec::new(),
            read: Vec::new(),
            steps: Vec::new(),
            client_error: None,
            to_server_bytes: 0,
        }
    }

    /// What the client has to send.
    pub(super) fn take_client(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).expect("memory");
        }
        bytes
    }

    /// Gives the server bytes, in pieces of `piece` at most.
    pub(super) fn give_server(&mut self, bytes: &[u8], piece: usize) {
        self.to_server_bytes += bytes.len();
        for bytes in bytes.chunks(piece.max(1)) {
            let step = self.seal.session.receive(bytes, &mut self.buffers);
            self.heard.extend_from_slice(&self.buffers.plain);
            if step != Step::default() {
                self.steps.push(step);
            }
        }
    }

    /// What the server has to send: all of it, as one send after the other.
    pub(super) fn take_server(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.seal.has_output() {
            let mut send = Vec::new();
            self.seal.fill(&mut send);
            self.seal.take(send.len());
            bytes.extend_from_slice(&send);
        }
        bytes
    }

    pub(super) fn give_client(&mut self, bytes: &[u8], piece: usize) {
        for mut bytes in bytes.chunks(piece.max(1)) {
            while !bytes.is_empty() && self.client_error.is_none() {
                self.client.read_tls(&mut bytes).expect("memory");
                self.client_error = self.client.process_new_packets().err();
                let mut plain = [0; 1 << 16];
                while let Ok(count @ 1..) = self.client.reader().read(&mut plain) {
                    self.read.extend_from_slice(&plain[..count]);
                }
            }
        }
    }

    /// Moves bytes both ways until neither has any left.
    pub(super) fn settle(&mut self, pieces: (usize, usize)) {
        loop {
            let (there, back) = (self.take_client(), self.take_server());
            if there.is_empty() && back.is_empty() {
                return;
            }
            self.give_server(&there, pieces.0);
            self.give_client(&back, pieces.1);
        }
    }

    /// What a client that shook hands says.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.client.writer().write_all(bytes).expect("memory");
    }
}
