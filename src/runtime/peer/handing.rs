//! Words of hand-overs over links: sources say theirs over the links that they ask over, receivers answer on those.

use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::ShardIndex;

use super::wire::Packet;
use crate::control::NodeId;
use crate::control::handover::{Reply, Target, Word};
use crate::runtime::core::Core;
use crate::runtime::desk::Clerk;
use crate::runtime::frame::Frame;

impl Core {
    /// A source of another node says something to a shard of this one.
    pub(super) fn handover_asked(&mut self, connections: &mut Connections, link: ConnectionId, shard: ShardIndex, word: Word) {
        if shard == self.desk.core {
            let core = self.desk.core;
            self.handover_heard(connections, core, link, word);
        } else if shard.0 < self.placement.shard_count() {
            self.desk.mesh.send(usize::from(shard.0), Frame::Handover { link, word: Box::new(word) });
        }
    }

    /// A receiver of another node answers.
    pub(super) fn handover_answered(&mut self, connections: &mut Connections, link: ConnectionId, reply: Reply) {
        let Some(node) = self.desk.peers.link(link).map(|link| link.node) else { return };
        self.hand(connections, |handover, site| handover.answered(site, node, reply));
        self.is_handover_due = true;
    }

    /// A core of another node is done with an epoch: every core of this one is told.
    pub(super) fn node_done(&mut self, connections: &mut Connections, link: ConnectionId, core: u16, epoch: u64) {
        let Some((node, incarnation)) = self.desk.peers.link(link).map(|link| (link.node, link.incarnation)) else { return };
        for shard in self.shards().filter(|shard| *shard != self.desk.core) {
            self.desk.mesh.send(usize::from(shard.0), Frame::Done { node, incarnation, core, epoch });
        }
        self.core_done(connections, node, incarnation, core, epoch);
    }

    /// Says a word to a shard of another node, if there is a way to that start of it.
    pub(in crate::runtime) fn say_to_receiver(&mut self, connections: &mut Connections, to: Target, word: Word) {
        let Some(link) = self.desk.peers.way_to(to.node).filter(|link| link.incarnation == to.incarnation) else { return };
        let id = link.id;
        self.clerk(connections).tell(id, &Packet::Handover { shard: to.shard.0, word });
    }

    /// Tells another node that this core is done with an epoch.
    pub(in crate::runtime) fn say_done(&mut self, connections: &mut Connections, node: NodeId, epoch: u64) {
        let core = self.desk.core.0;
        let Some(link) = self.desk.peers.way_to(node) else { return };
        let id = link.id;
        self.clerk(connections).tell(id, &Packet::Done { core, epoch });
    }

    /// Whether links have taken everything.
    pub(in crate::runtime) fn are_links_quiet(&self, connections: &Connections) -> bool {
        let mut links = self.desk.peers.links.iter().filter(|link| !link.is_over);
        links.all(|link| connections.offsets(link.id).is_none_or(|output| output.unsent_bytes() == 0))
    }
}

impl Clerk<'_> {
    /// Answers a source on the link that its word came over.
    pub(in crate::runtime) fn reply_to_source(&mut self, link: ConnectionId, reply: Reply) {
        self.tell(link, &Packet::HandoverReply { reply });
    }
}
