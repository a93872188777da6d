//! What other nodes ask, and its answers on their way back.

use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{Answer, Command, Moved, Receipt, Refusal, ReplyItem, ShardIndex, Tenant, Ticket, Time, Undelivered};
use serde_bytes::Bytes;
use smallvec::SmallVec;

use super::wire::{Ask, Packet, Request, Way};
use super::{Side, shard_of};
use crate::runtime::core::Core;
use crate::runtime::desk::{Clerk, Desk};
use crate::runtime::gather::{ByPlace, put};
use crate::runtime::place::Place;
use crate::runtime::session::{Given, Returned, foreign_ticket, slot_of, wants_events};

/// Asks of other nodes that may be under way on a core at once: more are sent back.
const FOREIGN_MAX: usize = 1 << 20;

/// What other nodes ask, by slot.
#[derive(Default)]
pub(super) struct Foreign {
    slots: Vec<Option<ForeignAsk>>,
    free: Vec<usize>,
    numbers_given: u32,
}

/// One that is not answered yet.
#[derive(Clone, Debug)]
struct ForeignAsk {
    ticket: Ticket,
    link: ConnectionId,
    /// The asker's.
    number: u64,
    /// Where it may be parked: a cancel ends it.
    parked_on: Option<ShardIndex>,
    /// Answers of shards that are still to come, and what those that came refused.
    awaiting: u32,
    refused: Vec<(u32, Refusal)>,
}

impl Foreign {
    /// Keeps an ask under a ticket of this core.
    fn open(&mut self, core: ShardIndex, link: ConnectionId, number: u64, parked_on: Option<ShardIndex>) -> Option<Ticket> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < FOREIGN_MAX => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.numbers_given = self.numbers_given.wrapping_add(1);
        let ticket = foreign_ticket(core, slot, self.numbers_given, wants_events(Ticket(number)));
        self.slots[slot] = Some(ForeignAsk { ticket, link, number, parked_on, awaiting: 1, refused: Vec::new() });
        Some(ticket)
    }

    /// Takes an ask out that is being answered.
    fn close(&mut self, ticket: Ticket) -> Option<ForeignAsk> {
        let slot = slot_of(ticket);
        let found = self.slots.get_mut(slot)?.take_if(|ask| ask.ticket == ticket)?;
        self.free.push(slot);
        Some(found)
    }

    fn get(&mut self, ticket: Ticket) -> Option<&mut ForeignAsk> {
        self.slots.get_mut(slot_of(ticket))?.as_mut().filter(|ask| ask.ticket == ticket)
    }

    fn find(&self, mut is_wanted: impl FnMut(&ForeignAsk) -> bool) -> Vec<ForeignAsk> {
        self.slots.iter().flatten().filter(|ask| is_wanted(ask)).cloned().collect()
    }
}

impl Core {
    /// Another node asks. What is its own by a table that this node does not have yet waits for that table.
    pub(super) fn asked(&mut self, connections: &mut Connections, link: ConnectionId, ask: Ask<'_>, at: Time) {
        if let Some(partition) = ask.partition() {
            let place = self.placement.of_pop(Tenant(ask.tenant), ask.queue, partition);
            let is_here = place == Ok(Place::Here(shard_of(ask.shard)));
            if !is_here && ask.epoch > self.placement.epoch() {
                return self.hold_ask(connections, link, ask, at);
            }
            if !is_here || (self.sends_away() && ask.parks()) {
                return self.send_back(connections, link, ask);
            }
        }
        self.carry_out(connections, link, ask, at);
    }

    /// Tells the asker that nothing was done.
    pub(super) fn send_back(&mut self, connections: &mut Connections, link: ConnectionId, ask: Ask<'_>) {
        let epoch = self.placement.epoch();
        self.clerk(connections).tell(link, &Packet::Moved { epoch, ask });
    }

    fn carry_out(&mut self, connections: &mut Connections, link: ConnectionId, ask: Ask<'_>, at: Time) {
        let shard = shard_of(ask.shard);
        if ask.shard >= self.placement.shard_count() {
            return self.send_back(connections, link, ask);
        }
        let ticket = if matches!(ask.request, Request::Leave { .. }) {
            // Nobody waits for an answer.
            Some(Ticket(0))
        } else {
            let core = self.desk.core;
            self.desk.peers.foreign.open(core, link, ask.number, ask.parks().then_some(shard))
        };
        let Some(ticket) = ticket else { return self.send_back(connections, link, ask) };
        let incarnation = self.desk.incarnation.clone();
        let seq_of = |spelled| incarnation.seq_of(spelled);
        let since = ask.since(at);
        ask.lend(at, seq_of, |command| match command {
            Command::Reply { tenant, items } => self.reply_for_peer(connections, ticket, tenant, items),
            command => self.give_since(connections, Place::Here(shard), ticket, command, since),
        });
    }

    /// Gives answers to the shards that have their inboxes.
    fn reply_for_peer(&mut self, connections: &mut Connections, ticket: Ticket, tenant: Tenant, items: &[ReplyItem<'_>]) {
        let mut by_place = ByPlace::new();
        for item in items {
            put(&mut by_place, self.place_of_inbox(item.inbox), *item);
        }
        if let Some(ask) = self.desk.peers.foreign.get(ticket) {
            ask.awaiting = by_place.len() as u32;
        }
        for (place, items) in by_place {
            self.give(connections, place, ticket, Command::Reply { tenant, items: &items });
        }
    }

    /// What another node asked for goes back to it: its partition is on its way to a third.
    pub(in crate::runtime) fn send_on(&mut self, connections: &mut Connections, ticket: Ticket, moved: Moved) {
        let Some(ForeignAsk { link, number, .. }) = self.desk.peers.foreign.close(ticket) else { return };
        let (now, epoch) = (self.now, self.placement.epoch());
        moved.command.lend(|command| {
            let way = Way { number, epoch, is_second: false, shard: 0, since: moved.since };
            self.clerk(connections).tell(link, &Packet::Moved { epoch, ask: Ask::new(way, now, &command) });
        });
    }

    /// Nobody waits for an ask any more.
    pub(super) fn cancel_foreign(&mut self, connections: &mut Connections, link: ConnectionId, number: u64) {
        self.desk.peers.held.cancel(link, number);
        for ask in self.desk.peers.foreign.find(|ask| ask.link == link && ask.number == number) {
            self.forget_foreign(connections, ask);
        }
    }

    pub(super) fn cancel_all_foreign(&mut self, connections: &mut Connections, link: ConnectionId) {
        self.desk.peers.held.cancel_all(link);
        for ask in self.desk.peers.foreign.find(|ask| ask.link == link) {
            self.forget_foreign(connections, ask);
        }
    }

    fn forget_foreign(&mut self, connections: &mut Connections, ask: ForeignAsk) {
        self.desk.peers.foreign.close(ask.ticket);
        if let Some(shard) = ask.parked_on {
            self.cancel_on(connections, Place::Here(shard), ask.ticket);
        }
    }
}

impl Desk {
    /// Clients of another node took what was given.
    pub(super) fn taken_elsewhere(&mut self, link: ConnectionId, numbers: &[u64]) {
        if let Some(Side::Answering(deliveries)) = self.peers.link(link).map(|link| &mut link.side) {
            for number in numbers {
                deliveries.given.remove(number);
            }
        }
    }

    /// What was given did not reach its client on another node.
    pub(super) fn returned_elsewhere(&mut self, link: ConnectionId, number: u64, is_partly: bool) {
        if let Some(Side::Answering(deliveries)) = self.peers.link(link).map(|link| &mut link.side)
            && let Some(given) = deliveries.given.remove(&number)
        {
            self.returns.extend(given.lost(is_partly));
        }
    }
}

impl Clerk<'_> {
    /// Answers an ask of another node.
    pub(in crate::runtime) fn answer_peer(&mut self, ticket: Ticket, mut answer: Answer) {
        if let Some(ask) = self.desk.peers.foreign.get(ticket)
            && let Answer::Replied(refused) = &mut answer
        {
            ask.refused.append(refused);
            ask.awaiting -= 1;
            if ask.awaiting > 0 {
                return;
            }
            *refused = std::mem::take(&mut ask.refused);
        }
        if let Some(ask) = self.desk.peers.foreign.close(ticket) {
            self.tell(ask.link, &Packet::Answer { number: ask.number, answer });
        }
    }

    /// Answers a pop of another node.
    pub(in crate::runtime) fn deliver_to_peer(
        &mut self,
        ticket: Ticket,
        body: &[u8],
        messages_at: usize,
        receipts: SmallVec<[Receipt; 1]>,
    ) {
        let Some(ask) = self.desk.peers.foreign.close(ticket) else {
            return self.desk.returns.extend(Given::Messages(receipts).lost(false));
        };
        let delivery = if receipts.is_empty() { Some(0) } else { self.keep(ask.link, Given::Messages(receipts)) };
        if let Some(delivery) = delivery {
            let packet = Packet::Delivered { number: ask.number, delivery, messages_at: messages_at as u32, body: Bytes::new(body) };
            self.tell(ask.link, &packet);
        }
    }

    /// Answers a call of another node.
    pub(in crate::runtime) fn reply_to_peer(&mut self, shard: ShardIndex, ticket: Ticket, payload: &[u8]) {
        let Some(ask) = self.desk.peers.foreign.close(ticket) else { return self.desk.returns.push(Returned::Reply(shard)) };
        if let Some(delivery) = self.keep(ask.link, Given::Reply(shard)) {
            self.tell(ask.link, &Packet::Replied { number: ask.number, delivery, payload: Bytes::new(payload) });
        }
    }

    /// Keeps what is given over a link until its client took it: its number. Without a link it goes back.
    fn keep(&mut self, link: ConnectionId, given: Given) -> Option<u64> {
        match self.desk.peers.link(link).filter(|link| !link.is_over).map(|link| &mut link.side) {
            Some(Side::Answering(deliveries)) => {
                deliveries.count += 1;
                deliveries.given.insert(deliveries.count, given);
                Some(deliveries.count)
            }
            _ => {
                self.desk.returns.extend(given.lost(false));
                None
            }
        }
    }
}

impl Given {
    /// What goes back of an answer that did not reach its client whole; `is_partly`: some of it may have.
    pub(super) fn lost(self, is_partly: bool) -> SmallVec<[Returned; 1]> {
        let how = if is_partly { Undelivered::Partly } else { Undelivered::Unsent };
        self.returned(how)
    }
}
