//! Compares what is wanted of each touched connection with what is in flight, and queues the difference.

#![allow(unsafe_code)]

use std::net::Shutdown;

use super::connection::{Phase, flag, operation};
use super::connections::Connections;
use super::driver::Bounds;
use super::queue::Queue;
use crate::tls::Seal;

/// Conditions of the hang-up poll; errors and full hang-ups are always reported.
const HANG_UP_EVENTS: i16 = libc::POLLRDHUP;

impl Connections {
    /// Settles every touched connection.
    pub(super) fn settle_all(&mut self, queue: &mut Queue, bounds: &Bounds) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            self.settle(slot as usize, queue, bounds);
        }
        // Settling may touch (a slot that was shut down in it); those come with the next turn.
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    fn settle(&mut self, slot: usize, queue: &mut Queue, bounds: &Bounds) {
        self.slots[slot].flags &= !flag::TOUCHED;
        self.settle_output(slot, queue, bounds);
        self.count_unsent(slot);
        self.settle_input(slot, queue);
        let connection = &mut self.slots[slot];
        if connection.phase == Phase::Dying && connection.in_flight == 0 && !connection.has(flag::CLOSED) {
            connection.flags |= flag::CLOSED;
            self.closed.push(slot as u32);
        }
        if connection.has(flag::LEAVING) && connection.in_flight == 0 && connection.may_leave() {
            self.leaving.push(slot as u32);
        }
    }

    fn settle_output(&mut self, slot: usize, queue: &mut Queue, bounds: &Bounds) {
        let id = self.id(slot);
        let connection = &mut self.slots[slot];
        if !matches!(connection.phase, Phase::Open | Phase::Flushing) || connection.doing(operation::SEND) {
            return;
        }
        let socket = connection.descriptor();
        let is_last = connection.phase == Phase::Flushing;
        let bytes = connection.output.next_send(connection.seal.as_deref_mut(), is_last, &mut self.spare);
        if is_over(connection.seal.as_deref()) {
            // What it could not seal goes back to where it came from with `Closed`.
            connection.phase = Phase::Flushing;
        }
        if let Some(bytes) = bytes {
            // SAFETY: the bytes are `Output::in_flight`, on the heap, which is neither changed nor freed before `Output::taken` is
            // called at this send's completion; the slot is not released before that, and if the driver ends with sends in
            // flight it leaks the slots.
            unsafe { queue.send(socket, bytes, id.tag(operation::SEND)) };
            connection.in_flight |= operation::SEND;
            self.deadlines.set(slot, self.now + bounds.send_stall_ns);
        } else if is_last {
            self.start_drain(slot, bounds);
        }
    }

    fn settle_input(&mut self, slot: usize, queue: &mut Queue) {
        let id = self.id(slot);
        let connection = &mut self.slots[slot];
        let reading = connection.doing(operation::RECEIVE);
        if connection.wants_bytes() && !reading {
            connection.in_flight |= operation::RECEIVE;
            queue.receive(connection.descriptor(), id.tag(operation::RECEIVE));
        }
        if connection.phase != Phase::Open || connection.flags & (flag::PAUSED | flag::LEAVING) == 0 {
            return;
        }
        if reading && !connection.doing(operation::CANCEL) {
            connection.in_flight |= operation::CANCEL;
            queue.cancel(id.tag(operation::RECEIVE), id.tag(operation::CANCEL));
        }
        if connection.flags & (flag::FINISHED | flag::HUNG_UP | flag::LEAVING) == 0 && !connection.doing(operation::HANG_UP) {
            connection.in_flight |= operation::HANG_UP;
            queue.poll(connection.descriptor(), HANG_UP_EVENTS, false, id.tag(operation::HANG_UP));
        }
    }

    fn start_drain(&mut self, slot: usize, bounds: &Bounds) {
        let connection = &mut self.slots[slot];
        if connection.has(flag::FINISHED) {
            // Both sides have said all; nothing can be lost by closing.
            self.shut_down(slot);
            return;
        }
        connection.phase = Phase::Draining;
        connection.shutdown(Shutdown::Write);
        connection.drain_until = self.now + bounds.drain_ns;
        self.deadlines.set(slot, self.now + bounds.drain_quiet_ns.min(bounds.drain_ns));
    }
}

/// Whether a connection's TLS has failed, for instance because its keys are used up.
fn is_over(seal: Option<&Seal>) -> bool {
    seal.is_some_and(|seal| seal.session.is_failed())
}
