//! What this node asks of others, and what it does with their answers.

use std::collections::HashMap;

use mayfly_net::http::{self, Status};
use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{Answer, Command, ShardIndex, Tenant, Ticket, Time, Undelivered};

use super::wire::{Ask, Packet, Way};
use super::{Side, UNSENT_BYTES_MAX};
use crate::api::{Failure, call};
use crate::control::NodeId;
use crate::runtime::core::{Core, unsent_bytes};
use crate::runtime::desk::Clerk;
use crate::runtime::place::Place;
use crate::runtime::session::{Asked, Given, Pending};

impl Core {
    /// Asks another node. Where there is no way to it, the ask waits for one a moment; then nothing was done, and that is the answer.
    pub(in crate::runtime) fn ask(
        &mut self,
        connections: &mut Connections,
        place: (NodeId, ShardIndex),
        ticket: Ticket,
        is_second: bool,
        command: &Command<'_>,
        since: Option<Time>,
    ) {
        let (node, shard) = place;
        let way = Way { number: ticket.0, epoch: self.placement.epoch(), is_second, shard: shard.0, since };
        let Some(link) = self.desk.peers.way_to(node) else {
            let is_coming = self.desk.peers.is_new(node, self.placement.incarnation_of(node));
            if !is_coming || !self.hold_for_link(node, Ask::new(way, self.now, command)) {
                self.fail_ask(connections, node, ticket, 1, Failure::OwnerMoved);
            }
            return;
        };
        let id = link.id;
        if unsent_bytes(connections, id) > UNSENT_BYTES_MAX {
            return self.fail_ask(connections, node, ticket, 1, Failure::OwnerBusy);
        }
        if let Side::Asking(awaiting) = &mut link.side
            && !matches!(command, Command::Leave { .. })
        {
            *awaiting.entry(ticket).or_default() += 1;
        }
        let ask = Ask::new(way, self.now, command);
        self.forwards += 1;
        self.clerk(connections).tell(id, &Packet::Ask(ask));
    }

    /// An ask that waited for a link goes out, if somebody still waits for its answer.
    pub(super) fn ask_late(&mut self, connections: &mut Connections, node: NodeId, ask: &Ask<'_>, since: Time) {
        let ticket = Ticket(ask.number);
        let waits = ask.is_unheard() || self.desk.is_awaited(ticket);
        if !waits {
            return;
        }
        let waited = ask.since(since);
        ask.lend(since, |seq| seq, |command| self.ask(connections, (node, ShardIndex(ask.shard)), ticket, ask.is_second, &command, waited));
    }

    /// The client of an ask is gone.
    pub(in crate::runtime) fn cancel_ask(&mut self, connections: &mut Connections, node: NodeId, ticket: Ticket) {
        let Some(link) = self.desk.peers.way_to(node) else { return };
        if let Side::Asking(awaiting) = &mut link.side
            && awaiting.remove(&ticket).is_some()
        {
            let id = link.id;
            self.clerk(connections).tell(id, &Packet::Cancel { number: ticket.0 });
        }
    }

    /// The node at the other end answers one of this node's asks, if it is one that waits.
    fn settle_ask(&mut self, link: ConnectionId, ticket: Ticket) -> Option<NodeId> {
        let link = self.desk.peers.link(link)?;
        let Side::Asking(awaiting) = &mut link.side else { return None };
        let count = awaiting.get_mut(&ticket)?;
        *count -= 1;
        if *count == 0 {
            awaiting.remove(&ticket);
        }
        Some(link.node)
    }

    pub(super) fn answered(&mut self, connections: &mut Connections, link: ConnectionId, ticket: Ticket, answer: Answer) {
        if let Some(node) = self.settle_ask(link, ticket) {
            self.clerk(connections).answer_from(Some(node), ticket, answer);
        }
    }

    pub(super) fn delivered(
        &mut self,
        connections: &mut Connections,
        link: ConnectionId,
        ticket: Ticket,
        delivery: u64,
        messages_at: usize,
        body: &[u8],
    ) {
        let given = if delivery == 0 { Given::nothing() } else { Given::Elsewhere(link, delivery) };
        if self.settle_ask(link, ticket).is_none() || messages_at > body.len() {
            // Its client hung up while the answer was on its way.
            return self.desk.returns.extend(given.lost(false));
        }
        self.clerk(connections).deliver_here(ticket, body, messages_at, given);
    }

    pub(super) fn replied(&mut self, connections: &mut Connections, link: ConnectionId, ticket: Ticket, delivery: u64, payload: &[u8]) {
        let given = Given::Elsewhere(link, delivery);
        if self.settle_ask(link, ticket).is_none() {
            return self.desk.returns.extend(given.lost(false));
        }
        self.clerk(connections).reply_here(given, ticket, payload);
    }

    /// An ask came back: it goes to the owner by the newer of both tables, once.
    pub(super) fn moved(&mut self, connections: &mut Connections, link: ConnectionId, epoch: u64, ask: Ask<'_>, at: Time) {
        if epoch > self.placement.epoch() && !ask.is_second {
            return self.hold_moved(connections, link, epoch, ask);
        }
        let ticket = Ticket(ask.number);
        if self.settle_ask(link, ticket).is_none() {
            return;
        }
        let place = ask.partition().map(|partition| self.placement.of_pop(Tenant(ask.tenant), ask.queue, partition));
        match place {
            Some(Ok(place)) if !ask.is_second => {
                self.note_place(ticket, place);
                let since = ask.since(at);
                ask.lend(
                    at,
                    |seq| seq,
                    |command| match place {
                        Place::Here(_) => self.give_since(connections, place, ticket, command, since),
                        Place::There(node, shard) => self.ask(connections, (node, shard), ticket, true, &command, since),
                    },
                );
            }
            _ => self.clerk(connections).fail_here(ticket, Failure::OwnerMoved),
        }
    }

    /// An ask that came back has waited long enough for the table that it came back by.
    pub(super) fn give_up_moved(&mut self, connections: &mut Connections, link: ConnectionId, ask: Ask<'_>) {
        let ticket = Ticket(ask.number);
        if self.settle_ask(link, ticket).is_some() {
            self.clerk(connections).fail_here(ticket, Failure::OwnerMoved);
        }
    }

    /// A request that may be parked is so elsewhere now.
    pub(in crate::runtime) fn note_place(&mut self, ticket: Ticket, place: Place) {
        if let Some(pending) = self.desk.sessions.waiting_for(ticket).and_then(|session| session.pending.as_mut()) {
            pending.asked.move_to(place);
        }
    }

    /// When something here has waited long enough.
    pub(in crate::runtime) fn peers_due_at(&self) -> Option<Time> {
        let patience = self.patience.first().map(|(at, _)| *at);
        [patience, self.desk.peers.held.next_at()].into_iter().flatten().min()
    }

    /// Something has: it is answered without the nodes that are silent.
    pub(in crate::runtime) fn peers_due(&mut self, connections: &mut Connections) {
        self.held_due(connections);
        while let Some((at, ticket)) = self.patience.pop_first() {
            if at > self.now {
                self.patience.insert((at, ticket));
                break;
            }
            self.clerk(connections).lose_patience(ticket);
        }
    }

    /// Asks whose link is lost: nobody knows what was done.
    pub(super) fn fail_asks(&mut self, connections: &mut Connections, node: NodeId, awaiting: HashMap<Ticket, u32, ahash::RandomState>) {
        for (ticket, count) in awaiting {
            self.fail_ask(connections, node, ticket, count, Failure::ForwardFailed);
        }
    }

    /// `count` asks of a request are not answered by a node.
    pub(super) fn fail_ask(&mut self, connections: &mut Connections, node: NodeId, ticket: Ticket, count: u32, failure: Failure) {
        self.clerk(connections).miss(node, ticket, count, failure);
    }
}

impl Clerk<'_> {
    /// What another node gave did not reach its client.
    pub(in crate::runtime) fn give_back(&mut self, link: ConnectionId, delivery: u64, how: Undelivered) {
        self.tell(link, &Packet::Returned { delivery, is_partly: how == Undelivered::Partly });
    }

    /// `count` parts of a request do not come from a node: it is answered without them where that says something, else it failed.
    fn miss(&mut self, node: NodeId, ticket: Ticket, count: u32, failure: Failure) {
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return self.desk.forget_orphan(ticket) };
        match &mut session.pending {
            Some(Pending { asked: Asked::Gathered(gather), .. }) => match gather.miss(node, count) {
                Some(true) => self.finish_gathered(ticket),
                Some(false) => {}
                None => self.fail_here(ticket, failure),
            },
            _ => self.fail_here(ticket, failure),
        }
    }

    /// A request of several nodes has waited long enough.
    fn lose_patience(&mut self, ticket: Ticket) {
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return };
        let Some(Pending { asked: Asked::Gathered(gather), .. }) = &session.pending else { return };
        for (node, count) in gather.laggards() {
            self.miss(node, ticket, count, Failure::ForwardFailed);
        }
    }

    fn finish_gathered(&mut self, ticket: Ticket) {
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return };
        if let (Some(id), Some(Pending { delivery, asked: Asked::Gathered(gather), .. })) = (session.id, session.pending.take()) {
            self.say_gathered(id, delivery, *gather);
        }
    }

    /// A request fails as a whole, if it still waits.
    pub(in crate::runtime) fn fail_here(&mut self, ticket: Ticket, failure: Failure) {
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return self.desk.forget_orphan(ticket) };
        let (Some(id), Some(Pending { delivery, asked, .. })) = (session.id, session.pending.take()) else { return };
        // That nothing was done is known only where this was all that there was to do.
        let failure = if asked.has_other_parts() { Failure::ForwardFailed } else { failure };
        match asked {
            Asked::Events { .. } => self.end_stream(id, &failure),
            // Its replies are done: that must be told.
            Asked::Next { results, .. } => self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| {
                out.extend_from_slice(&results);
                call::next_refused(out, &failure);
            }),
            _ => self.fail(id, delivery, &failure),
        }
    }
}
