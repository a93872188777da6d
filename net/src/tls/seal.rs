//! A connection's output as records: a [`Session`] with the plain bytes that it has not sealed yet.
//!
//! Plain bytes are sealed when they are sent, at most [`SEND_BYTES_MAX`] at a time, so that a long answer takes neither a turn's time nor
//! twice its memory.

use super::ledger::Ledger;
use super::session::{RECORD_BYTES_MAX, Session};

/// Ciphertext of one send, about: the record that passes it is the last.
const SEND_BYTES_MAX: usize = 128 << 10;

/// See the module.
#[derive(Debug)]
pub struct Seal {
    /// The TLS state.
    pub session: Session,
    plain: Vec<u8>,
    /// How much of `plain` is sealed.
    sealed_bytes: usize,
    ledger: Ledger,
}

impl Seal {
    /// With nothing to send.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self { session, plain: Vec::new(), sealed_bytes: 0, ledger: Ledger::default() }
    }

    /// Whether plain bytes wait here.
    #[must_use]
    pub fn has_plain(&self) -> bool {
        self.sealed_bytes < self.plain.len()
    }

    /// Whether [`Seal::fill`] would append something.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.session.is_ready() || (self.has_plain() && self.session.may_seal())
    }

    /// Gives the next plain bytes, when all before are sealed; the buffer of these comes back.
    pub fn put(&mut self, plain: Vec<u8>) -> Vec<u8> {
        debug_assert!(!self.has_plain());
        self.sealed_bytes = 0;
        std::mem::replace(&mut self.plain, plain)
    }

    /// Appends the next send to `out`, which is empty.
    pub fn fill(&mut self, out: &mut Vec<u8>) {
        debug_assert!(out.is_empty());
        self.ledger.clear();
        self.session.take_ready(out);
        while self.has_plain() && self.session.may_seal() && out.len() < SEND_BYTES_MAX {
            let rest = &self.plain[self.sealed_bytes..];
            let record = &rest[..rest.len().min(RECORD_BYTES_MAX)];
            let begins_at = out.len();
            if !self.session.seal(record, out) {
                return self.drop_plain();
            }
            self.ledger.note(begins_at, out.len(), record.len());
            self.sealed_bytes += record.len();
        }
    }

    /// Appends a close_notify behind the last byte.
    pub fn say_goodbye(&mut self, out: &mut Vec<u8>) {
        self.session.say_goodbye(out);
    }

    /// Forgets what is not sealed.
    pub fn drop_plain(&mut self) {
        (self.plain, self.sealed_bytes) = (Vec::new(), 0);
    }

    /// The buffer of plain bytes that are all sealed, if it is still here.
    pub fn reclaim(&mut self) -> Option<Vec<u8>> {
        (!self.has_plain() && self.plain.capacity() > 0).then(|| self.put(Vec::new()))
    }

    /// The socket took everything up to `taken` of the send: how many plain bytes that completes.
    pub fn take(&mut self, taken: usize) -> usize {
        self.ledger.take(taken)
    }

    /// Plain bytes behind those taken of which the socket took some ciphertext.
    #[must_use]
    pub fn begun_bytes(&self) -> usize {
        self.ledger.begun_bytes()
    }
}
