//! One connection as the broker sees it: the request being read, the request being answered, and the answers on their way.
//!
//! Invariants: a connection has at most one request that is not answered yet; what arrives behind it waits in `stash`; receipts are in
//! order of their answers' place in the output.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mayfly_net::http::{Delivery, Reader};
use mayfly_net::ring::ConnectionId;
use mayfly_shards::{Receipt, ShardIndex, Tenant, Ticket, Undelivered};
use smallvec::SmallVec;

use super::gather::Gather;
use super::nearing::Pull;
use super::place::Place;
use super::replying::Replying;
use super::subscribing::Subscription;
use crate::control::Grant;

/// Bytes kept behind a request that waits; beyond, the connection is not read until it was answered.
pub(super) const STASH_BYTES_MAX: usize = 64 << 10;

const SLOT_BITS: u32 = 21;
const NUMBER_BITS: u32 = 32;
/// Of a subscription's pop, whose messages any core writes as events.
const EVENTS: u64 = 1 << (SLOT_BITS + NUMBER_BITS);
/// Of a request of another node: the slot is none of a connection.
const FOREIGN: u64 = EVENTS << 1;
const CORE_SHIFT: u32 = SLOT_BITS + NUMBER_BITS + 2;

/// A request on this node: core, connection slot, and a number that no other request of the core has for a long time.
pub(super) fn ticket(core: ShardIndex, slot: usize, number: u32) -> Ticket {
    Ticket((u64::from(core.0) << CORE_SHIFT) | ((slot as u64) << NUMBER_BITS) | u64::from(number))
}

/// The control core's, behind the shards' cores: of what no client waits for.
pub(super) fn control_ticket(shard_count: u16) -> Ticket {
    ticket(ShardIndex(shard_count), 0, 0)
}

/// The same ticket, for a pop whose messages are wanted as events.
pub(super) fn for_events(ticket: Ticket) -> Ticket {
    Ticket(ticket.0 | EVENTS)
}

/// Whether a pop's messages are wanted as events.
pub(super) fn wants_events(ticket: Ticket) -> bool {
    ticket.0 & EVENTS != 0
}

/// A request of another node, by its slot on the core that has the link.
pub(super) fn foreign_ticket(core: ShardIndex, slot: usize, number: u32, has_events: bool) -> Ticket {
    Ticket(ticket(core, slot, number).0 | FOREIGN | if has_events { EVENTS } else { 0 })
}

/// Whether it is another node that asks.
pub(super) fn is_foreign(ticket: Ticket) -> bool {
    ticket.0 & FOREIGN != 0
}

/// The core of a ticket.
pub(super) fn core_of(ticket: Ticket) -> ShardIndex {
    ShardIndex((ticket.0 >> CORE_SHIFT) as u16)
}

pub(super) fn slot_of(ticket: Ticket) -> usize {
    ((ticket.0 >> NUMBER_BITS) & ((1 << SLOT_BITS) - 1)) as usize
}

/// What was asked, as far as its answer needs it.
#[derive(Debug)]
pub(super) enum Asked {
    Push,
    /// With the place where it may be parked; None when it does not wait.
    Pop {
        place: Option<Place>,
    },
    /// The pop that a subscription has outstanding, with the place where it may be parked.
    Events {
        place: Place,
    },
    /// With the place that keeps its inbox.
    Call {
        place: Place,
    },
    /// Messages pushed to an inbox.
    InboxPush {
        count: usize,
    },
    /// Answers, their acks, and maybe a pop.
    Reply(Box<Replying>),
    /// The pop of a reply, like [`Self::Pop`], with the results it follows.
    Next {
        place: Option<Place>,
        results: Vec<u8>,
    },
    /// With the options as spelled, and the time in milliseconds of the Unix epoch, which is final when the answer comes.
    Configure {
        queue: Box<str>,
        options_text: Box<[u8]>,
        declared_at: Arc<AtomicU64>,
    },
    /// A grant.
    Quota {
        tenant: Tenant,
        grant: Grant,
    },
    Delete {
        tenant: Tenant,
        queue: Box<str>,
    },
    /// How the cluster stands, maybe after a change.
    Cluster,
    /// How the kill switch is to stand.
    Switch {
        is_enabled: bool,
    },
    /// Several shards answer.
    Gathered(Box<Gather>),
}

impl Asked {
    /// Where it may be parked: a hang-up ends it. What does not wait is never parked, although another core may have it.
    pub(super) fn parked_on(&self) -> Option<Place> {
        match self {
            Self::Pop { place } | Self::Next { place, .. } => *place,
            Self::Call { place } | Self::Events { place } => Some(*place),
            _ => None,
        }
    }

    /// Whether parts of it may have been done when one fails.
    pub(super) fn has_other_parts(&self) -> bool {
        match self {
            Self::Gathered(gather) => gather.has_other_parts(),
            Self::Reply(replying) => replying.has_other_parts,
            _ => false,
        }
    }

    /// What may be parked is so elsewhere from now on.
    pub(super) fn move_to(&mut self, to: Place) {
        match self {
            Self::Pop { place: Some(place) } | Self::Next { place: Some(place), .. } | Self::Call { place } | Self::Events { place } => {
                *place = to;
            }
            _ => {}
        }
    }
}

/// The request that is not answered yet.
#[derive(Debug)]
pub(super) struct Pending {
    /// A reply has the tickets behind it too, one for each answer that goes to a queue.
    pub(super) ticket: Ticket,
    pub(super) delivery: Delivery,
    pub(super) asked: Asked,
}

impl Pending {
    /// Whether an answer to `ticket` is for it.
    fn covers(&self, ticket: Ticket) -> bool {
        match &self.asked {
            Asked::Reply(replying) => replying.covers(ticket.0.wrapping_sub(self.ticket.0)),
            _ => self.ticket == ticket,
        }
    }
}

/// An answer that the socket has not taken whole.
#[derive(Debug)]
struct Unsent {
    begins_at: u64,
    ends_at: u64,
    given: Given,
}

/// What an answer gave.
#[derive(Debug)]
pub(super) enum Given {
    Messages(SmallVec<[Receipt; 1]>),
    /// A call's answer, from an inbox of this shard.
    Reply(ShardIndex),
    /// What another node gave over this link under this number.
    Elsewhere(ConnectionId, u64),
}

impl Given {
    /// Of an answer without messages.
    pub(super) fn nothing() -> Self {
        Self::Messages(SmallVec::new())
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Messages(receipts) if receipts.is_empty())
    }

    /// What goes back of it when its client did not get it.
    pub(super) fn returned(self, how: Undelivered) -> SmallVec<[Returned; 1]> {
        match self {
            Self::Messages(receipts) => receipts.into_iter().map(|receipt| Returned::Messages(receipt, how)).collect(),
            Self::Reply(shard) => std::iter::once(Returned::Reply(shard)).collect(),
            Self::Elsewhere(link, number) => std::iter::once(Returned::Elsewhere(link, number, how)).collect(),
        }
    }
}

/// What reached nobody.
#[derive(Debug)]
pub(super) enum Returned {
    Messages(Receipt, Undelivered),
    /// A call's answer, from an inbox of this shard.
    Reply(ShardIndex),
    /// What another node gave over this link under this number.
    Elsewhere(ConnectionId, u64, Undelivered),
}

/// One connection.
#[derive(Default)]
pub(super) struct Session {
    pub(super) id: Option<ConnectionId>,
    pub(super) reader: Reader,
    pub(super) pending: Option<Pending>,
    /// Whose the request is whose body is being read, as its head said.
    pub(super) admitted: Option<Tenant>,
    /// The connection's last request was a subscription: it has a pop pending, or waits until its output drains.
    pub(super) subscription: Option<Box<Subscription>>,
    pub(super) stash: Vec<u8>,
    unsent: VecDeque<Unsent>,
    /// When the request being read began, and when it is given up unless more of its body comes: nanoseconds.
    pub(super) request_began_at: u64,
    pub(super) body_due_at: u64,
    /// Bytes of it that are held as of the last time that it was read: its part of [`super::transit::Transit`].
    pub(super) held_bytes: usize,
    pub(super) is_paused: bool,
    /// It has not read its answers: its requests wait.
    pub(super) is_choked: bool,
    /// The core that its requests are for.
    pub(super) pull: Pull,
    /// The client sent its FIN: what is here is answered, then the connection closes.
    pub(super) is_finished: bool,
    /// The last answer is written.
    pub(super) is_closing: bool,
}

impl Session {
    /// Whether its next request has to wait: one is under way, its answers are not read, or there is no next.
    pub(super) fn must_wait(&self) -> bool {
        self.pending.is_some() || self.subscription.is_some() || self.is_choked || self.is_closing
    }

    /// Notes an answer that may have to be taken back.
    pub(super) fn keep(&mut self, begins_at: u64, ends_at: u64, given: Given) {
        if !given.is_nothing() {
            self.unsent.push_back(Unsent { begins_at, ends_at, given });
        }
    }

    /// The socket took everything up to `offset`. `taken`: what other nodes are to be told of it.
    pub(super) fn note_sent(&mut self, offset: u64, taken: &mut Vec<(ConnectionId, u64)>) {
        while let Some(unsent) = self.unsent.pop_front_if(|unsent| unsent.ends_at <= offset) {
            if let Given::Elsewhere(link, number) = unsent.given {
                taken.push((link, number));
            }
        }
        if self.unsent.is_empty() {
            self.unsent = VecDeque::new();
        }
    }

    /// The answers that did not reach the client. The socket took `sent` bytes of all answers, and something of the first `begun`: what
    /// shares a TLS record with bytes that went out cannot be told from them.
    pub(super) fn take_unsent(
        &mut self,
        sent: u64,
        begun: u64,
        taken: &mut Vec<(ConnectionId, u64)>,
    ) -> impl Iterator<Item = Returned> + use<> {
        self.note_sent(sent, taken);
        std::mem::take(&mut self.unsent).into_iter().flat_map(move |unsent| {
            let how = if unsent.begins_at >= begun { Undelivered::Unsent } else { Undelivered::Partly };
            unsent.given.returned(how)
        })
    }
}

/// The connections of one core, by slot.
#[derive(Default)]
pub(super) struct Sessions {
    slots: Vec<Session>,
}

impl Sessions {
    pub(super) fn open(&mut self, id: ConnectionId) {
        if id.slot() >= self.slots.len() {
            self.slots.resize_with(id.slot() + 1, Session::default);
        }
        self.slots[id.slot()] = Session { id: Some(id), ..Session::default() };
    }

    /// A live connection.
    pub(super) fn get(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.slots.get_mut(id.slot()).filter(|session| session.id == Some(id))
    }

    /// The connection that waits for the answer to `ticket`.
    pub(super) fn waiting_for(&mut self, ticket: Ticket) -> Option<&mut Session> {
        let session = self.slots.get_mut(slot_of(ticket))?;
        session.pending.as_ref().is_some_and(|pending| pending.covers(ticket)).then_some(session)
    }

    /// Takes a closed connection out.
    pub(super) fn close(&mut self, id: ConnectionId) -> Option<Session> {
        self.get(id).map(std::mem::take)
    }

    pub(super) fn at(&self, slot: usize) -> Option<ConnectionId> {
        self.slots.get(slot)?.id
    }

    /// Every live connection.
    pub(super) fn ids(&self) -> Vec<ConnectionId> {
        self.slots.iter().filter_map(|session| session.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_gives_back_its_core_and_slot() {
        let ticket = ticket(ShardIndex(256), (1 << SLOT_BITS) - 1, u32::MAX);
        for ticket in [ticket, for_events(ticket)] {
            assert_eq!((core_of(ticket), slot_of(ticket)), (ShardIndex(256), (1 << SLOT_BITS) - 1));
            assert!(!is_foreign(ticket));
        }
        assert!(wants_events(for_events(ticket)) && !wants_events(ticket));
        for has_events in [false, true] {
            let ticket = foreign_ticket(ShardIndex(256), 7, u32::MAX, has_events);
            assert_eq!(
                (core_of(ticket), slot_of(ticket), is_foreign(ticket), wants_events(ticket)),
                (ShardIndex(256), 7, true, has_events)
            );
        }
    }

    #[test]
    fn an_answer_is_unsent_partly_sent_or_sent_by_its_place() {
        let receipt = |queue: &str| Receipt {
            shard: ShardIndex(0),
            tenant: Tenant::DEFAULT,
            queue: queue.into(),
            generation: 1,
            group: "g".into(),
            runs: SmallVec::new(),
        };
        let with_answers = || {
            let mut session = Session::default();
            for (begins_at, ends_at, queue) in [(0, 10, "sent"), (10, 20, "partly"), (25, 30, "unsent")] {
                session.keep(begins_at, ends_at, Given::Messages(std::iter::once(receipt(queue)).collect()));
            }
            session.keep(30, 40, Given::Reply(ShardIndex(2)));
            session
        };
        let name = |returned| match returned {
            Returned::Messages(receipt, how) => (receipt.queue.to_string(), Some(how)),
            Returned::Reply(shard) => (format!("reply of {}", shard.0), None),
            Returned::Elsewhere(..) => unreachable!("there is no other node"),
        };
        let unsent = |sent, begun| with_answers().take_unsent(sent, begun, &mut Vec::new()).map(name).collect::<Vec<_>>();
        let expected = |third| {
            let expected = [("partly", Some(Undelivered::Partly)), ("unsent", Some(third)), ("reply of 2", None)];
            expected.map(|(name, how)| (name.to_owned(), how))
        };
        assert_eq!(unsent(15, 15), expected(Undelivered::Unsent));
        // One record holds all that is left, and a part of it went out.
        assert_eq!(unsent(10, 40), expected(Undelivered::Partly));
        assert_eq!(unsent(10, 25), expected(Undelivered::Unsent));
    }
}
