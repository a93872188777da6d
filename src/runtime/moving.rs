//! A core's part in hand-overs: it goes by newer tables of members together with the other cores, carries what its shard's hand-overs
//! say, and gives commands whose partition moved to whoever serves it now.

use std::sync::Arc;

use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{
    Answer, Command, DropCause, Moved, Outbox as _, Outcome, OwnedCommand, OwnedRequest, PartitionName, Receipt, ShardIndex, Tenant,
    Ticket, Time, Undelivered,
};

use super::core::Core;
use super::desk::Clerk;
use super::frame::Frame;
use super::place::Place;
use super::session::is_foreign;
use crate::api::Failure;
use crate::control::handover::{Handover, Site, Word};
use crate::control::{Members, NodeId};

impl Core {
    /// Runs `f` with this core's hand-overs, if there are other nodes.
    pub(super) fn hand<T>(
        &mut self,
        connections: &mut Connections,
        f: impl FnOnce(&mut Handover, &mut Site<'_, Clerk<'_>>) -> T,
    ) -> Option<T> {
        let handover = self.handover.as_mut()?;
        let incarnation = self.desk.incarnation.clone();
        let spell = |number| incarnation.spelled(number);
        let mut clerk = Clerk { desk: &mut self.desk, connections };
        let site = &mut Site { now: self.now, shard: &mut self.shard, out: &mut clerk, spell: &spell };
        Some(f(handover, site))
    }

    /// Goes by a table of members, if it is newer. What this core sends to others from here on goes by it, and reaches them behind it.
    pub(super) fn follow(&mut self, connections: &mut Connections, members: &Arc<Members>) {
        if !self.placement.follow(members) {
            return;
        }
        for core in self.shards().filter(|core| *core != self.desk.core) {
            self.desk.mesh.send(usize::from(core.0), Frame::Follows(Arc::clone(members)));
        }
        self.hand(connections, |handover, site| handover.follow(site, members));
        self.is_handover_due = true;
        self.follow_members(connections);
    }

    /// Another core of this node goes by a table.
    pub(super) fn core_follows(&mut self, connections: &mut Connections, core: ShardIndex, members: &Arc<Members>) {
        self.follow(connections, members);
        if let Some(handover) = &mut self.handover {
            handover.core_follows(core, members.epoch());
            self.is_handover_due = true;
        }
    }

    /// A command is about to be carried out: it waits for its partition, if that may be on its way here; acks of deliveries that went
    /// with their partition are answered, and what is for another node goes back. The command, if it is to be carried out here.
    pub(super) fn let_in<'a>(
        &mut self,
        connections: &mut Connections,
        ticket: Ticket,
        command: Command<'a>,
        since: Option<Time>,
    ) -> Option<Command<'a>> {
        if let Command::Ack { tenant, queue, items, .. } = command {
            let is_elsewhere = |place| !matches!(place, Ok(Place::Here(_)));
            let is_gone = !items.is_empty()
                && is_elsewhere(self.placement.of_queue(tenant, queue))
                && self.shard.knows(tenant, queue)
                && !items.iter().any(|item| self.shard.holds(tenant, queue, item.partition));
            if !is_gone {
                return Some(command);
            }
            let stale = items.iter().map(|item| (item.index, Outcome::Stale)).collect();
            self.clerk(connections).answer(ticket, Answer::Acked(stale));
            return None;
        }
        let handover = self.handover.as_ref().filter(|handover| handover.is_settling());
        if handover.is_none_or(|handover| handover.expect(self.now, &command, &mut self.shard)) {
            return Some(command);
        }
        let moved = Moved { command: command.into_owned(), since };
        self.clerk(connections).answer(ticket, Answer::Moved(Box::new(moved)));
        None
    }

    /// A link over which this core asks is open.
    pub(super) fn handover_linked(&mut self, connections: &mut Connections, node: NodeId, incarnation: u64) {
        self.hand(connections, |handover, site| handover.linked(site, node, incarnation));
        self.is_handover_due = true;
    }

    /// A source's word for this core's shard, which came over a link of `from`.
    pub(super) fn handover_heard(&mut self, connections: &mut Connections, from: ShardIndex, link: ConnectionId, word: Word) {
        let Some(reply) = self.hand(connections, |handover, site| handover.hear(site, word)) else { return };
        if from == self.desk.core {
            self.clerk(connections).reply_to_source(link, reply);
        } else {
            self.desk.mesh.send(usize::from(from.0), Frame::HandoverReply { link, reply });
        }
        self.is_handover_due = true;
    }

    /// A core of another node's start is done with an epoch.
    pub(super) fn core_done(&mut self, connections: &mut Connections, node: NodeId, incarnation: u64, core: u16, epoch: u64) {
        self.hand(connections, |handover, site| handover.mark(site, node, incarnation, core, epoch));
    }

    /// Goes on with hand-overs, when there is something to do.
    pub(super) fn hand_on(&mut self, connections: &mut Connections) {
        let is_due = |handover: &Handover| handover.next_at().is_some_and(|at| at <= self.now);
        if !self.is_handover_due && !self.handover.as_deref().is_some_and(is_due) {
            return;
        }
        self.is_handover_due = false;
        let words = self.hand(connections, |handover, site| {
            handover.step(site);
            handover.take_words()
        });
        for (to, word) in words.into_iter().flatten() {
            self.say_to_receiver(connections, to, word);
        }
        self.tell_done(connections);
        self.settle(connections);
        self.go_on(connections);
    }

    fn tell_done(&mut self, connections: &mut Connections) {
        let Some(handover) = &mut self.handover else { return };
        let Some(epoch) = handover.take_done() else { return };
        let others: Vec<NodeId> = handover.others().collect();
        others.into_iter().for_each(|node| self.say_done(connections, node, epoch));
    }

    /// A queue is about to be reset or deleted here: so are copies of it that are on their way to this node.
    pub(super) fn void_copies(&mut self, home: Place, tenant: Tenant, queue: &str, cause: DropCause) {
        if self.handover.is_none() || home.node().is_some() {
            return;
        }
        for core in self.shards().filter(|core| *core != self.desk.core) {
            self.desk.mesh.send(usize::from(core.0), Frame::VoidCopies { tenant, queue: queue.into(), cause });
        }
        self.shard.void_copies(tenant, queue, cause);
    }

    /// What an answer gave comes back to this core's shard. Another node may serve the queue by now: then it goes there.
    pub(super) fn take_back(&mut self, connections: &mut Connections, receipt: Receipt, how: Undelivered) {
        let names: Vec<PartitionName> = match &self.handover {
            None => Vec::new(),
            Some(_) => partitions_of(&receipt),
        };
        let now = self.now;
        self.shard.undeliver(now, receipt, how, &mut Clerk { desk: &mut self.desk, connections });
        if let Some(handover) = &mut self.handover {
            names.into_iter().for_each(|name| self.is_handover_due |= handover.note_stray(name));
        }
    }

    /// Gives commands whose partition is on its way to another node to that one.
    pub(super) fn place_moved(&mut self, connections: &mut Connections) {
        while let Some((ticket, moved)) = self.desk.moved.pop_front() {
            if is_foreign(ticket) {
                self.send_on(connections, ticket, moved);
            } else {
                self.place_anew(connections, ticket, moved);
            }
        }
    }

    fn place_anew(&mut self, connections: &mut Connections, ticket: Ticket, moved: Moved) {
        let Moved { command, since } = moved;
        if self.desk.sessions.waiting_for(ticket).is_none() {
            return;
        }
        match self.placement.of_pop(command.tenant, &command.queue, partition_of(&command)) {
            Ok(place) => {
                self.note_place(ticket, place);
                command.lend(|command| self.give_since(connections, place, ticket, command, since));
            }
            Err(unowned) => self.clerk(connections).fail_here(ticket, Failure::from(unowned)),
        }
    }
}

fn partitions_of(receipt: &Receipt) -> Vec<PartitionName> {
    let (tenant, queue) = (receipt.tenant, &receipt.queue);
    let name = |partition: &str| PartitionName { tenant, queue: (**queue).into(), partition: partition.into() };
    receipt.runs.iter().map(|run| name(&run.partition)).collect()
}

fn partition_of(command: &OwnedCommand) -> Option<&str> {
    match &command.request {
        OwnedRequest::Push { partition, .. } | OwnedRequest::Call { partition, .. } => Some(partition),
        OwnedRequest::Pop { partition, .. } => partition.as_deref(),
        _ => None,
    }
}
