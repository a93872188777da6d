//! One connection's TLS state: the handshake, records to plain bytes, plain bytes to records.
//!
//! Ciphertext is decrypted in buffers that a core lends to all its sessions ([`Buffers`]); what is not whole yet is held here, exactly
//! as long as it is. What the library says of itself (handshake, tickets, key updates, alerts) collects in `ready` and goes before
//! anything that is sealed later.

use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{Error, ServerConfig};

use super::HELD_BYTES_MAX;

/// Most plain bytes of one record.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 10;
/// Room for what sealing adds to a record, and for a key update in front of it.
const OVERHEAD_BYTES: usize = 256;
/// What a client is told that speaks HTTP to a port of TLS, in its own language.
const PLAIN_REFUSAL: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 64\r\nConnection: close\r\n\r\n\
{\"error\":\"this port speaks TLS: use https\",\"code\":\"bad_request\"}";

/// What a core lends its sessions while they decrypt.
#[derive(Debug, Default)]
pub struct Buffers {
    work: Vec<u8>,
    /// The plain bytes of the last [`Session::receive`].
    pub plain: Vec<u8>,
}

/// What ciphertext came to, beside plain bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The handshake ended with it.
    pub is_secured: bool,
    /// The peer's close_notify came, behind the plain bytes: it sends no more.
    pub is_finished: bool,
    /// What came is no TLS, or not the peer's: nothing more is read or sealed. What is [`Session::ready`], an alert, is still sent.
    pub is_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has come.
    New,
    Handshake,
    Traffic,
    /// The peer's close_notify came; records can still be sent.
    Finished,
    Failed,
}

/// One connection. See the module.
pub struct Session {
    tls: UnbufferedServerConnection,
    stage: Stage,
    has_said_goodbye: bool,
    held: Vec<u8>,
    ready: Vec<u8>,
}

impl Session {
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, Error> {
        let tls = UnbufferedServerConnection::new(config)?;
        Ok(Self { tls, stage: Stage::New, has_said_goodbye: false, held: Vec::new(), ready: Vec::new() })
    }

    /// Whether what comes costs a handshake's work.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        matches!(self.stage, Stage::New | Stage::Handshake)
    }

    /// Whether plain bytes can be sealed.
    #[must_use]
    pub fn may_seal(&self) -> bool {
        matches!(self.stage, Stage::Traffic | Stage::Finished) && !self.has_said_goodbye
    }

    /// Keeps ciphertext for the next [`Session::receive`]. False: more than any handshake needs.
    #[must_use]
    pub fn hold(&mut self, ciphertext: &[u8]) -> bool {
        self.held.extend_from_slice(ciphertext);
        self.held.len() <= HELD_BYTES_MAX
    }

    /// Bytes of ciphertext held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// Takes ciphertext, behind what is held. The plain bytes are in `buffers`, and come before what the step says.
    pub fn receive(&mut self, ciphertext: &[u8], buffers: &mut Buffers) -> Step {
        let mut step = Step::default();
        let Buffers { work, plain } = buffers;
        plain.clear();
        work.clear();
        work.append(&mut self.held);
        self.held = Vec::new();
        work.extend_from_slice(ciphertext);
        if work.is_empty() || matches!(self.stage, Stage::Finished | Stage::Failed) {
            return step;
        }
        if self.stage == Stage::New {
            self.stage = Stage::Handshake;
            // A request line; no record begins with a letter.
            if work[0].is_ascii_uppercase() {
                self.ready.extend_from_slice(PLAIN_REFUSAL);
                return self.fail(step);
            }
        }
        let taken = self.take_records(work, plain, &mut step);
        let rest = &work[taken..];
        if step.is_failed || self.stage == Stage::Failed || rest.len() > HELD_BYTES_MAX {
            return self.fail(step);
        }
        if self.stage == Stage::Handshake && !self.tls.is_handshaking() {
            self.stage = Stage::Traffic;
            step.is_secured = true;
        }
        if step.is_finished {
            self.stage = Stage::Finished;
        } else if !rest.is_empty() {
            self.held = rest.to_vec();
        }
        step
    }

    /// What the library says of itself, to be sent before what is sealed later.
    pub(super) fn take_ready(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.ready);
        self.ready = Vec::new();
    }

    /// Whether there is something of [`Session::take_ready`].
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Appends one record with all of `plain`, at most [`RECORD_BYTES_MAX`]. False: the keys are used up (with TLS 1.2, which cannot renew
    /// them, after 2^24 records), and the session has failed.
    #[must_use]
    pub(super) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> bool {
        debug_assert!(plain.len() <= RECORD_BYTES_MAX && self.may_seal());
        let room = plain.len() + OVERHEAD_BYTES;
        let is_sealed = self.write(out, room, |traffic, room| traffic.encrypt(plain, room));
        if !is_sealed {
            self.stage = Stage::Failed;
        }
        is_sealed
    }

    /// Whether nothing can be read or sealed any more.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.stage == Stage::Failed
    }

    /// Appends a close_notify, once. Nothing is sealed after it.
    pub(super) fn say_goodbye(&mut self, out: &mut Vec<u8>) {
        if self.may_seal() {
            self.write(out, OVERHEAD_BYTES, |traffic, room| traffic.queue_close_notify(room));
            self.has_said_goodbye = true;
        }
    }

    fn fail(&mut self, step: Step) -> Step {
        self.stage = Stage::Failed;
        self.held = Vec::new();
        Step { is_failed: true, ..step }
    }

    /// Takes whole records out of `work`: how many of its bytes.
    fn take_records(&mut self, work: &mut [u8], plain: &mut Vec<u8>, step: &mut Step) -> usize {
        let mut taken = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.tls.process_tls_records(&mut work[taken..]);
            let is_last = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                    false
                }
                Ok(ConnectionState::EncodeTlsData(record)) => {
                    append(record, &mut self.ready);
                    false
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    false
                }
                Ok(ConnectionState::PeerClosed) => {
                    step.is_finished = true;
                    false
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) | ConnectionState::Closed) => true,
                Err(_) => {
                    step.is_failed = true;
                    self.fetch_alert(&mut work[taken..]);
                    true
                }
                // Early data is off.
                Ok(_) => {
                    step.is_failed = true;
                    true
                }
            };
            taken += discard;
            if is_last {
                return taken;
            }
        }
    }

    /// After an error: the alert, if there is one. The library takes nothing of `rest` before it, and must not be asked again after it.
    fn fetch_alert(&mut self, rest: &mut [u8]) {
        while self.tls.wants_write() {
            let Ok(ConnectionState::EncodeTlsData(record)) = self.tls.process_tls_records(rest).state else { return };
            append(record, &mut self.ready);
        }
    }

    /// Has the library write into `out`, in which it gets `room_bytes`. False: it refuses.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        mut room_bytes: usize,
        write: impl Fn(&mut WriteTraffic<'_, rustls::server::ServerConnectionData>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> bool {
        loop {
            let UnbufferedStatus { discard, state } = self.tls.process_tls_records(&mut self.held);
            let begins_at = out.len();
            let is_written = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    out.resize(begins_at + room_bytes, 0);
                    let written = write(&mut traffic, &mut out[begins_at..]);
                    out.truncate(begins_at + written.as_ref().map_or(0, |count| *count));
                    match written {
                        Ok(_) => Some(true),
                        Err(EncryptError::InsufficientSize(error)) => {
                            room_bytes = error.required_size;
                            None
                        }
                        Err(EncryptError::EncryptExhausted) => Some(false),
                    }
                }
                Ok(ConnectionState::EncodeTlsData(record)) => {
                    append(record, out);
                    None
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    None
                }
                _ => Some(false),
            };
            debug_assert_eq!(discard, 0, "what is held is not whole");
            if let Some(is_written) = is_written {
                return is_written;
            }
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("stage", &self.stage).field("held_bytes", &self.held.len()).finish_non_exhaustive()
    }
}

fn append(mut record: EncodeTlsData<'_, rustls::server::ServerConnectionData>, out: &mut Vec<u8>) {
    let begins_at = out.len();
    if let Err(EncodeError::InsufficientSize(error)) = record.encode(&mut []) {
        out.resize(begins_at + error.required_size, 0);
        let written = record.encode(&mut out[begins_at..]).unwrap_or(0);
        out.truncate(begins_at + written);
    }
}
