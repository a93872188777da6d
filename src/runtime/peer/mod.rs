//! A core's links to other nodes: what is asked of them and what they ask.
//!
//! Each core of a node dials each other node once and asks over that link; over the links that it accepted it answers. An ask goes from
//! the core that has the client to a core of the owner, is carried out there as one of a client of its own would be, and its answer comes
//! back on the same link. It is never sent on: a node that is not the owner sends it back ([`wire::Packet::Moved`]).
//!
//! Invariants: an ask is answered once, or its link is lost, which is an answer of which nobody knows what was done; what an answer
//! delivered stays with the answerer until the asker says that its client took it; both sides bound what they keep.

mod answering;
mod asking;
mod handing;
mod held;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use mayfly_net::peer::frame::{self, Frames};
use mayfly_net::ring::{ConnectionId, Connections, Event};
use mayfly_shards::{ShardIndex, Ticket};

use self::answering::Foreign;
use self::held::Held;
use self::wire::Packet;
use super::core::{Core, unsent_bytes};
use super::desk::Clerk;
use super::frame::Frame;
use super::session::Given;
use crate::control::NodeId;

/// Bytes of a link that the other node has not taken: beyond, it is asked for nothing more; what it asks is not read.
const UNSENT_BYTES_MAX: usize = 16 << 20;

/// What a link is charged to the node for its tables, beside what it has not sent: bytes.
const LINK_BYTES: u64 = 4_096;

/// See the module.
#[derive(Default)]
pub(super) struct Peers {
    links: Vec<Link>,
    /// What other nodes ask.
    foreign: Foreign,
    /// What waits for a newer table of members.
    held: Held,
    /// The start of each node to which there was a link last: one that is lost is not waited for.
    linked: BTreeMap<NodeId, u64>,
    /// What clients took of answers from elsewhere, since it was told last.
    pub(super) taken: Vec<(ConnectionId, u64)>,
}

/// A link whose two ends know each other.
#[derive(Debug)]
pub(super) struct NewLink {
    /// The node at its other end.
    pub(super) node: NodeId,
    /// Its start.
    pub(super) incarnation: u64,
    /// Whether this node asks over it.
    pub(super) is_dialled: bool,
    pub(super) socket: OwnedFd,
}

struct Link {
    id: ConnectionId,
    node: NodeId,
    incarnation: u64,
    frames: Frames,
    side: Side,
    is_paused: bool,
    /// It is being closed: nothing goes over it any more.
    is_over: bool,
}

enum Side {
    /// With the asks that are not answered, and how many have the same ticket.
    Asking(HashMap<Ticket, u32, ahash::RandomState>),
    Answering(Deliveries),
}

/// What answers gave that the asker's clients have not taken yet, by number.
#[derive(Default)]
struct Deliveries {
    given: BTreeMap<u64, Given>,
    count: u64,
}

impl Peers {
    /// Whether a connection is a link.
    pub(super) fn has(&self, id: ConnectionId) -> bool {
        self.links.iter().any(|link| link.id == id)
    }

    fn link(&mut self, id: ConnectionId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.id == id)
    }

    /// Whether this start of a node was never linked with: then a link is about to come.
    fn is_new(&self, node: NodeId, incarnation: Option<u64>) -> bool {
        self.linked.get(&node).copied() != incarnation
    }

    /// The link over which a node is asked.
    fn way_to(&mut self, node: NodeId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.node == node && matches!(link.side, Side::Asking(_)) && !link.is_over)
    }
}

impl Core {
    /// Takes a link over.
    pub(super) fn open_link(&mut self, connections: &mut Connections, new: NewLink) {
        let NewLink { node, incarnation, is_dialled, socket } = new;
        let Some(id) = connections.adopt(socket) else {
            return log::warn!(node = node.0; "a link to another node is given up: this core has too many connections");
        };
        self.budget.bytes.charge_unbounded(LINK_BYTES);
        let side = if is_dialled { Side::Asking(HashMap::default()) } else { Side::Answering(Deliveries::default()) };
        self.desk.peers.links.push(Link { id, node, incarnation, frames: Frames::default(), side, is_paused: false, is_over: false });
        if is_dialled {
            self.desk.peers.linked.insert(node, incarnation);
            self.go_on_over_link(connections, node);
            self.handover_linked(connections, node, incarnation);
        }
    }

    /// What happens on a link. `false`: the event is of another connection.
    pub(super) fn link_event(&mut self, connections: &mut Connections, event: &Event<'_>) -> bool {
        let id = match *event {
            Event::Received(id, _) | Event::HangUp(id) | Event::Finished(id) | Event::Failed(id) => id,
            Event::Sent { id, .. } | Event::Closed { id, .. } => id,
            Event::Opened(_) | Event::Secured(_) | Event::Woken => return false,
        };
        if !self.desk.peers.has(id) {
            return false;
        }
        match event {
            Event::Received(_, bytes) => self.link_received(connections, id, bytes),
            Event::Sent { .. } => self.link_sent(connections, id),
            Event::Closed { .. } => self.link_closed(connections, id),
            _ => self.end_link(connections, id, "the other node ended it"),
        }
        self.settle(connections);
        self.go_on(connections);
        true
    }

    fn link_received(&mut self, connections: &mut Connections, id: ConnectionId, mut input: &[u8]) {
        let Some(link) = self.desk.peers.link(id).filter(|link| !link.is_over) else { return };
        let mut frames = std::mem::take(&mut link.frames);
        let fault = loop {
            match frames.next(&mut input) {
                Ok(None) => break None,
                Ok(Some(frame)) => {
                    let Ok(packet) = Packet::read(frame) else { break Some("it sent what is no packet") };
                    self.read_packet(connections, id, packet);
                }
                Err(_) => break Some("it sent too long a packet"),
            }
        };
        if let Some(link) = self.desk.peers.link(id) {
            link.frames = frames;
        }
        if let Some(fault) = fault {
            self.end_link(connections, id, fault);
        }
        self.follow_backlog(connections, id);
    }

    fn read_packet(&mut self, connections: &mut Connections, id: ConnectionId, packet: Packet<'_>) {
        match packet {
            Packet::Ask(ask) => self.asked(connections, id, ask, self.now),
            Packet::Cancel { number } => self.cancel_foreign(connections, id, number),
            Packet::Taken { deliveries } => self.desk.taken_elsewhere(id, &deliveries),
            Packet::Returned { delivery, is_partly } => self.desk.returned_elsewhere(id, delivery, is_partly),
            Packet::Answer { number, answer } => self.answered(connections, id, Ticket(number), answer),
            Packet::Delivered { number, delivery, messages_at, body } => {
                self.delivered(connections, id, Ticket(number), delivery, messages_at as usize, body);
            }
            Packet::Replied { number, delivery, payload } => self.replied(connections, id, Ticket(number), delivery, payload),
            Packet::Moved { epoch, ask } => self.moved(connections, id, epoch, ask, self.now),
            Packet::Handover { shard, word } => self.handover_asked(connections, id, shard_of(shard), word),
            Packet::HandoverReply { reply } => self.handover_answered(connections, id, reply),
            Packet::Done { core, epoch } => self.node_done(connections, id, core, epoch),
        }
    }

    /// A node that does not read is not read either; one that reads again is.
    fn follow_backlog(&mut self, connections: &mut Connections, id: ConnectionId) {
        let backlog = unsent_bytes(connections, id);
        let Some(link) = self.desk.peers.link(id) else { return };
        if backlog > UNSENT_BYTES_MAX && !link.is_paused {
            link.is_paused = true;
            connections.pause(id);
        } else if backlog <= UNSENT_BYTES_MAX / 2 && link.is_paused {
            link.is_paused = false;
            connections.resume(id);
        }
    }

    fn link_sent(&mut self, connections: &mut Connections, id: ConnectionId) {
        self.follow_backlog(connections, id);
    }

    /// Nothing is to be expected of a link any more.
    fn end_link(&mut self, connections: &mut Connections, id: ConnectionId, cause: &str) {
        let Some(link) = self.desk.peers.link(id).filter(|link| !link.is_over) else { return };
        link.is_over = true;
        log::info!(node = link.node.0, cause; "a link to another node ends");
        connections.close(id);
        self.link_lost(connections, id);
    }

    fn link_closed(&mut self, connections: &mut Connections, id: ConnectionId) {
        self.end_link(connections, id, "the connection broke");
        let Some(index) = self.desk.peers.links.iter().position(|link| link.id == id) else { return };
        let link = self.desk.peers.links.swap_remove(index);
        self.budget.bytes.release(LINK_BYTES);
        if matches!(link.side, Side::Asking(_)) {
            let control = usize::from(self.control().0);
            self.desk.mesh.send(control, Frame::LinkLost { node: link.node, incarnation: link.incarnation });
        }
    }

    /// What was under way on a link is not any more.
    fn link_lost(&mut self, connections: &mut Connections, id: ConnectionId) {
        let Some(link) = self.desk.peers.link(id) else { return };
        let node = link.node;
        match &mut link.side {
            Side::Asking(awaiting) => {
                let awaiting = std::mem::take(awaiting);
                self.fail_asks(connections, node, awaiting);
            }
            Side::Answering(deliveries) => {
                let given = std::mem::take(&mut deliveries.given);
                self.desk.returns.extend(given.into_values().flat_map(|given| given.lost(true)));
                self.cancel_all_foreign(connections, id);
            }
        }
    }

    /// Closes the links to nodes that are not expected to answer any more, and goes on with what waited for this table.
    pub(super) fn follow_members(&mut self, connections: &mut Connections) {
        let is_over = |link: &&Link| !self.placement.may_serve(link.node, link.incarnation, matches!(link.side, Side::Asking(_)));
        let over: Vec<_> = self.desk.peers.links.iter().filter(is_over).map(|link| link.id).collect();
        for id in over {
            self.end_link(connections, id, "it is no member any more");
        }
        self.go_on_with_held(connections);
    }

    /// Tells other nodes what clients took of their answers.
    pub(super) fn tell_taken(&mut self, connections: &mut Connections) {
        while let Some((id, _)) = self.desk.peers.taken.first().copied() {
            let mut deliveries = Vec::new();
            self.desk.peers.taken.retain(|(of, delivery)| {
                if *of == id {
                    deliveries.push(*delivery);
                }
                *of != id
            });
            self.clerk(connections).tell(id, &Packet::Taken { deliveries });
        }
    }
}

impl Clerk<'_> {
    /// Writes a packet to a link that is there.
    fn tell(&mut self, id: ConnectionId, packet: &Packet<'_>) {
        if self.desk.peers.link(id).is_none_or(|link| link.is_over) {
            return;
        }
        if let Some(output) = self.connections.output(id) {
            let out = output.buffer();
            let open = frame::open(out);
            packet.append(out);
            // Bodies are bounded below what a frame may be.
            let _ = open.finish(out);
        }
    }
}

/// A shard as it is spelled on a link.
const fn shard_of(index: u16) -> ShardIndex {
    ShardIndex(index)
}
