//! What one connection still has to send.
//!
//! Bytes are appended to one buffer and moved as a whole into flight, one send at a time; the two buffers exist only while there is
//! something to send. With TLS they pass through a [`Seal`] on their way, and what is in flight is ciphertext. Offsets are absolute, and
//! of the bytes that were appended: since the connection was opened.

use crate::tls::Seal;

/// The unsent bytes of a connection and how far the socket got.
#[derive(Default)]
pub struct Output {
    /// Appended since the last send was queued.
    pending: Vec<u8>,
    /// Moved out of `pending`, and not taken by the socket.
    under_way_bytes: usize,
    /// Owned by the kernel from the queueing of a send to its completion: neither touched nor moved between the two.
    in_flight: Vec<u8>,
    /// How much of `in_flight` the socket took.
    in_flight_taken: usize,
    /// What the socket took since the connection was opened: appended bytes, whole records of them with TLS.
    sent: u64,
}

/// Buffers that connections are done with, kept for the next one: no allocation per answer, and none that grows step by step.
pub(super) struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
    /// Capacity of `buffers`.
    bytes: usize,
}

/// Larger buffers are given back to the allocator: a pop's answer of a few hundred small messages still fits.
const SPARE_CAPACITY_BYTES: usize = 128 * 1024;
/// Capacity of all that are kept: a buffer each for the sends of a turn.
const SPARE_BYTES: usize = 2 * 1024 * 1024;
const SPARE_COUNT: usize = 256;
/// Room for a usual answer without growing.
const FIRST_CAPACITY_BYTES: usize = 1024;

impl SpareBuffers {
    pub(super) fn new() -> Self {
        Self { buffers: Vec::new(), bytes: 0 }
    }

    fn take(&mut self) -> Vec<u8> {
        let Some(buffer) = self.buffers.pop() else { return Vec::with_capacity(FIRST_CAPACITY_BYTES) };
        self.bytes -= buffer.capacity();
        buffer
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes == 0 || bytes > SPARE_CAPACITY_BYTES || self.bytes + bytes > SPARE_BYTES || self.buffers.len() == SPARE_COUNT {
            return;
        }
        buffer.clear();
        self.bytes += bytes;
        self.buffers.push(buffer);
    }
}

impl Output {
    /// Where answers are appended. Append only: what an earlier call appended may be on its way.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// The absolute offset of the end of everything appended so far.
    #[must_use]
    pub fn appended(&self) -> u64 {
        self.sent + self.unsent_bytes() as u64
    }

    /// The absolute offset up to which the socket took the bytes.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes appended that the socket did not take yet.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.under_way_bytes + self.pending.len()
    }

    pub(super) fn prepare(&mut self, spare: &mut SpareBuffers) {
        if self.pending.capacity() == 0 {
            self.pending = spare.take();
        }
    }

    /// The bytes of the next send, from now on untouched until [`Output::taken`]; `None` when there is nothing to send. To be
    /// called only while no send is in flight. `is_last`: nothing will be appended any more, which TLS tells the peer.
    pub(super) fn next_send(&mut self, seal: Option<&mut Seal>, is_last: bool, spare: &mut SpareBuffers) -> Option<&[u8]> {
        if self.in_flight_taken == self.in_flight.len() {
            spare.give(std::mem::take(&mut self.in_flight));
            self.in_flight_taken = 0;
            match seal {
                None => self.move_pending(spare),
                Some(seal) => self.seal_pending(seal, is_last, spare),
            }
            if self.in_flight.is_empty() {
                return None;
            }
        }
        Some(&self.in_flight[self.in_flight_taken..])
    }

    fn move_pending(&mut self, spare: &mut SpareBuffers) {
        if self.pending.is_empty() {
            spare.give(std::mem::take(&mut self.pending));
        } else {
            self.in_flight = std::mem::take(&mut self.pending);
            self.under_way_bytes = self.in_flight.len();
        }
    }

    fn seal_pending(&mut self, seal: &mut Seal, is_last: bool, spare: &mut SpareBuffers) {
        if !self.pending.is_empty() && !seal.has_plain() && seal.session.may_seal() {
            self.under_way_bytes += self.pending.len();
            spare.give(seal.put(std::mem::take(&mut self.pending)));
        }
        if self.pending.is_empty() {
            spare.give(std::mem::take(&mut self.pending));
        }
        let has_goodbye = is_last && seal.session.may_seal();
        if seal.has_output() || has_goodbye {
            self.in_flight = spare.take();
            seal.fill(&mut self.in_flight);
            if has_goodbye && !seal.has_plain() && self.pending.is_empty() {
                seal.say_goodbye(&mut self.in_flight);
            }
            seal.reclaim().into_iter().for_each(|buffer| spare.give(buffer));
        }
    }

    /// The send in flight has completed; the socket took `count` bytes of it.
    pub(super) fn taken(&mut self, count: usize, seal: Option<&mut Seal>, spare: &mut SpareBuffers) {
        self.in_flight_taken += count;
        let taken_bytes = seal.map_or(count, |seal| seal.take(self.in_flight_taken));
        self.sent += taken_bytes as u64;
        self.under_way_bytes -= taken_bytes;
        if self.in_flight_taken >= self.in_flight.len() {
            self.in_flight_taken = 0;
            spare.give(std::mem::take(&mut self.in_flight));
        }
    }

    /// Forgets what is not in flight.
    pub(super) fn drop_pending(&mut self) {
        self.pending = Vec::new();
    }
}
