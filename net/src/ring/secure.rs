//! TLS between the sockets and the events.
//!
//! A connection that is through is decrypted as its bytes come. One in its handshake costs up to a millisecond a step (an RSA signature),
//! so its bytes wait with it in a line, of which a turn serves as much as fits into [`TURN_NS`], one step at least: whoever opens
//! thousands of connections waits with his own, and the others have their turns.

use std::collections::VecDeque;
use std::sync::Arc;

use super::connection::{Phase, flag};
use super::driver::Driver;
use super::{ConnectionId, Connections, Event};
use crate::tls::{Acceptor, Buffers, Seal, Step};

/// Time that a turn gives to handshakes.
const TURN_NS: u64 = 250_000;

/// What a core has of TLS.
pub(super) struct Secure {
    acceptor: Option<Arc<Acceptor>>,
    /// Connections whose handshake has bytes to go on with.
    line: VecDeque<ConnectionId>,
    buffers: Buffers,
}

/// A connection cannot be served; why was logged.
pub(super) struct Unserved;

impl Secure {
    pub(super) fn new(acceptor: Option<Arc<Acceptor>>) -> Self {
        Self { acceptor, line: VecDeque::new(), buffers: Buffers::default() }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.line.is_empty()
    }

    /// What a new connection needs: None with TLS off.
    pub(super) fn begin(&self) -> Result<Option<Box<Seal>>, Unserved> {
        let Some(acceptor) = &self.acceptor else { return Ok(None) };
        match acceptor.session() {
            Ok(session) => Ok(Some(Box::new(Seal::new(session)))),
            Err(error) => {
                log::error!("a connection is closed at once: TLS cannot begin: {error}");
                Err(Unserved)
            }
        }
    }
}

impl Driver {
    /// Ciphertext of an open connection.
    pub(super) fn ciphertext_came(&mut self, slot: usize, buffer: u16, count: usize, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let id = self.connections.id(slot);
        let connection = &mut self.connections.slots[slot];
        let Some(seal) = &mut connection.seal else { return };
        let ciphertext = self.queue.bytes(buffer, count);
        if !seal.session.is_handshaking() {
            let step = seal.session.receive(ciphertext, &mut self.secure.buffers);
            return self.stepped(slot, step, tell);
        }
        if !seal.session.hold(ciphertext) {
            // More than a handshake needs: a request behind its end, perhaps. Its turn is now, and what then is still too much fails.
            return self.shake_hand(slot, tell);
        }
        if !connection.has(flag::IN_LINE) {
            connection.flags |= flag::IN_LINE;
            self.secure.line.push_back(id);
        }
    }

    /// Lets handshakes go on.
    pub(super) fn shake_hands(&mut self, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        if self.secure.line.is_empty() {
            return;
        }
        let end = self.clock.now_ns() + TURN_NS;
        while let Some(id) = self.secure.line.pop_front() {
            let waits = |slot: &usize| self.connections.slots[*slot].has(flag::IN_LINE);
            let Some(slot) = self.connections.find(id).filter(waits) else { continue };
            self.shake_hand(slot, tell);
            if self.clock.now_ns() >= end {
                break;
            }
        }
    }

    fn shake_hand(&mut self, slot: usize, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let connection = &mut self.connections.slots[slot];
        connection.flags &= !flag::IN_LINE;
        if connection.phase != Phase::Open {
            return;
        }
        let Some(seal) = &mut connection.seal else { return };
        let step = seal.session.receive(&[], &mut self.secure.buffers);
        self.stepped(slot, step, tell);
        // Its FIN came while it was in the line.
        if self.connections.slots[slot].has(flag::FINISHED) {
            self.tell_end(slot, tell);
        }
    }

    /// Tells what ciphertext came to, and has sent what it asked for.
    fn stepped(&mut self, slot: usize, step: Step, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let id = self.connections.id(slot);
        self.connections.touch(slot);
        if step.is_secured {
            self.tell(tell, Event::Secured(id));
        }
        if !self.secure.buffers.plain.is_empty() && self.connections.is_open(id) {
            self.events += 1;
            tell(&mut self.connections, Event::Received(id, &self.secure.buffers.plain));
        }
        if step.is_failed {
            self.break_off(slot, tell);
        } else if step.is_finished {
            self.tell_end(slot, tell);
        }
    }

    fn tell_end(&mut self, slot: usize, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        let connection = &mut self.connections.slots[slot];
        if connection.phase == Phase::Open && !connection.has(flag::END_TOLD) {
            connection.flags |= flag::END_TOLD;
            let id = self.connections.id(slot);
            self.tell(tell, Event::Finished(id));
        }
    }

    /// What came is no TLS: nothing more is told of it or sealed for it, and the peer gets the alert that says so.
    fn break_off(&mut self, slot: usize, tell: &mut impl FnMut(&mut Connections, Event<'_>)) {
        if self.connections.slots[slot].phase != Phase::Open {
            return;
        }
        let id = self.connections.id(slot);
        self.tell(tell, Event::Failed(id));
        let connection = &mut self.connections.slots[slot];
        if connection.phase == Phase::Open {
            connection.phase = Phase::Flushing;
        }
        connection.output.drop_pending();
        if let Some(seal) = &mut connection.seal {
            seal.drop_plain();
        }
    }
}
