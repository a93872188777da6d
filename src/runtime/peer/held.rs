//! Asks that wait: for a newer table of members, those of other nodes that know one and those of this one that such a node sent back; and
//! for a link, those of this one.
//!
//! Invariants: each waits at most [`WAIT_SPAN`], and for what it waits with an end of its own, that end stays where it was; one whose
//! client is gone, or whose link is lost, goes.

use std::collections::VecDeque;

use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{Span, Ticket, Time};

use super::wire::{Ask, Packet};
use crate::api::Failure;
use crate::control::NodeId;
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

/// What an ask waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// One that came over a link waits for the table that it goes by.
    Asked(ConnectionId),
    /// One that came back over a link waits for the table that the other node goes by.
    CameBack(ConnectionId),
    /// One of this node waits for a link to another.
    NoWay(NodeId),
}

struct HeldAsk {
    since: Time,
    cause: Cause,
    /// The asker's.
    number: u64,
    /// A packet.
    packet: Vec<u8>,
}

impl Held {
    /// Keeps an ask, if there is room.
    fn keep(&mut self, now: Time, cause: Cause, number: u64, packet: &Packet<'_>) -> bool {
        let mut bytes = Vec::new();
        packet.append(&mut bytes);
        let fits = self.asks.len() < COUNT_MAX && self.bytes + bytes.len() <= BYTES_MAX;
        if fits {
            self.bytes += bytes.len();
            self.asks.push_back(HeldAsk { since: now, cause, number, packet: bytes });
        }
        fits
    }

    /// When the next has waited long enough.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.asks.front().map(|ask| ask.since + WAIT_SPAN)
    }

    /// Takes the first that is wanted.
    fn take(&mut self, is_wanted: impl FnMut(&HeldAsk) -> bool) -> Option<HeldAsk> {
        let index = self.asks.iter().position(is_wanted)?;
        let ask = self.asks.remove(index)?;
        self.bytes -= ask.packet.len();
        Some(ask)
    }

    /// The asker does not wait for one any more.
    pub(super) fn cancel(&mut self, link: ConnectionId, number: u64) {
        while self.take(|ask| ask.cause == Cause::Asked(link) && ask.number == number).is_some() {}
    }

    /// A link is lost, and with it the askers.
    pub(super) fn cancel_all(&mut self, link: ConnectionId) {
        while self.take(|ask| ask.cause == Cause::Asked(link)).is_some() {}
    }
}

impl Core {
    /// An ask of another node waits for the table that it goes by.
    pub(super) fn hold_ask(&mut self, connections: &mut Connections, link: ConnectionId, ask: Ask<'_>, since: Time) {
        let number = ask.number;
        let packet = Packet::Ask(ask);
        if !self.desk.peers.held.keep(since, Cause::Asked(link), number, &packet)
            && let Packet::Ask(ask) = packet
        {
            self.send_back(connections, link, ask);
        }
    }

    /// An ask that came back waits for the table that the other node goes by.
    pub(super) fn hold_moved(&mut self, connections: &mut Connections, link: ConnectionId, epoch: u64, ask: Ask<'_>) {
        let number = ask.number;
        let packet = Packet::Moved { epoch, ask };
        if !self.desk.peers.held.keep(self.now, Cause::CameBack(link), number, &packet)
            && let Packet::Moved { ask, .. } = packet
        {
            self.give_up_moved(connections, link, ask);
        }
    }

    /// An ask of this node waits for a link. Whether it may.
    pub(super) fn hold_for_link(&mut self, node: NodeId, ask: Ask<'_>) -> bool {
        let number = ask.number;
        self.desk.peers.held.keep(self.now, Cause::NoWay(node), number, &Packet::Ask(ask))
    }

    /// A newer table is there.
    pub(super) fn go_on_with_held(&mut self, connections: &mut Connections) {
        for _ in 0..self.desk.peers.held.asks.len() {
            let Some(held) = self.desk.peers.held.take(|ask| !matches!(ask.cause, Cause::NoWay(_))) else { return };
            match (held.cause, Packet::read(&held.packet)) {
                (Cause::Asked(link), Ok(Packet::Ask(ask))) => self.asked(connections, link, ask, held.since),
                (Cause::CameBack(link), Ok(Packet::Moved { epoch, ask })) => self.moved(connections, link, epoch, ask, held.since),
                _ => {}
            }
        }
    }

    /// A link to a node is open.
    pub(super) fn go_on_over_link(&mut self, connections: &mut Connections, node: NodeId) {
        while let Some(held) = self.desk.peers.held.take(|ask| ask.cause == Cause::NoWay(node)) {
            if let Ok(Packet::Ask(ask)) = Packet::read(&held.packet) {
                self.ask_late(connections, node, &ask, held.since);
            }
        }
    }

    /// Some have waited long enough.
    pub(in crate::runtime) fn held_due(&mut self, connections: &mut Connections) {
        let now = self.now;
        while let Some(held) = self.desk.peers.held.take(|ask| ask.since + WAIT_SPAN <= now) {
            match (held.cause, Packet::read(&held.packet)) {
                (Cause::Asked(link), Ok(Packet::Ask(ask))) => self.send_back(connections, link, ask),
                (Cause::CameBack(link), Ok(Packet::Moved { ask, .. })) => self.give_up_moved(connections, link, ask),
                (Cause::NoWay(node), _) => self.fail_ask(connections, node, Ticket(held.number), 1, Failure::OwnerMoved),
                _ => {}
            }
        }
    }
}
