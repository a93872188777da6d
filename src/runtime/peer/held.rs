//! Asks that wait for a newer table of members: of other nodes that know one, and of this one's that were sent back by such a node.

use std::collections::VecDeque;

use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{Span, Time};

use super::wire::{Ask, Packet};
use crate::runtime::core::Core;

/// How long one waits: then nothing is done.
const WAIT_SPAN: Span = Span::from_secs(1);
/// Most that wait on a core at once, and their bytes.
const COUNT_MAX: usize = 1_024;
const BYTES_MAX: usize = 16 << 20;

/// In order of their deadlines.
#[derive(Default)]
pub(super) struct Held {
    asks: VecDeque<HeldAsk>,
    bytes: usize,
}

struct HeldAsk {
    until: Time,
    link: ConnectionId,
    /// A packet: an ask of the other node, or one of this node that came back.
    packet: Vec<u8>,
}

impl Held {
    /// Keeps a packet, if there is room.
    fn keep(&mut self, now: Time, link: ConnectionId, packet: &Packet<'_>) -> bool {
        let mut bytes = Vec::new();
        packet.append(&mut bytes);
        let fits = self.asks.len() < COUNT_MAX && self.bytes + bytes.len() <= BYTES_MAX;
        if fits {
            self.bytes += bytes.len();
            self.asks.push_back(HeldAsk { until: now + WAIT_SPAN, link, packet: bytes });
        }
        fits
    }

    /// When the next has waited long enough.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.asks.front().map(|ask| ask.until)
    }

    fn take(&mut self, mut is_wanted: impl FnMut(&HeldAsk) -> bool) -> Option<HeldAsk> {
        let ask = self.asks.pop_front_if(|ask| is_wanted(ask))?;
        self.bytes -= ask.packet.len();
        Some(ask)
    }
}

impl Core {
    /// An ask of another node waits for the table that it goes by.
    pub(super) fn hold_ask(&mut self, connections: &mut Connections, link: ConnectionId, ask: Ask<'_>) {
        let packet = Packet::Ask(ask);
        if !self.desk.peers.held.keep(self.now, link, &packet)
            && let Packet::Ask(ask) = packet
        {
            self.send_back(connections, link, ask);
        }
    }

    /// An ask that came back waits for the table that the other node goes by.
    pub(super) fn hold_moved(&mut self, connections: &mut Connections, link: ConnectionId, epoch: u64, ask: Ask<'_>) {
        let packet = Packet::Moved { epoch, ask };
        if !self.desk.peers.held.keep(self.now, link, &packet)
            && let Packet::Moved { ask, .. } = packet
        {
            self.give_up_moved(connections, link, ask);
        }
    }

    /// A newer table is there.
    pub(super) fn go_on_with_held(&mut self, connections: &mut Connections) {
        for _ in 0..self.desk.peers.held.asks.len() {
            let Some(held) = self.desk.peers.held.take(|_| true) else { return };
            if let Ok(packet) = Packet::read(&held.packet) {
                self.read_packet(connections, held.link, packet);
            }
        }
    }

    /// Some have waited long enough.
    pub(in crate::runtime) fn held_due(&mut self, connections: &mut Connections) {
        let now = self.now;
        while let Some(held) = self.desk.peers.held.take(|ask| ask.until <= now) {
            match Packet::read(&held.packet) {
                Ok(Packet::Ask(ask)) => self.send_back(connections, held.link, ask),
                Ok(Packet::Moved { ask, .. }) => self.give_up_moved(connections, held.link, ask),
                _ => {}
            }
        }
    }
}
