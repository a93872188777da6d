//! Calls and replies: requests that wait for an answer, and the answers.
//!
//! Where the inboxes, the acks and the pop of a reply are this core's own, all of it happens before the next request is read, without
//! mail and without a copy of the answer: it goes from the responder's body into the caller's output.

use mayfly_net::http::{self, Status};
use mayfly_net::ring::Connections;
use mayfly_shards::{AckItem, Command, DEFAULT_PARTITION, NO_INBOX, Payload, ReplyItem, ShardIndex, Ticket, Verdict, inbox_shard};

use super::core::Core;
use super::gather::{ByPlace, SpelledIds, put};
use super::intake::Asking;
use super::place::Place;
use super::replying::{Replying, Rest, unasked_outcome};
use super::session::{Asked, Pending};
use crate::api::Failure;
use crate::api::call::{self, Reply, ReplyOutcome, ReplyRequest};
use crate::api::id::MessageId;
use crate::api::inbox::Target;

impl Core {
    /// Pushes a request and makes the call the connection's pending one.
    pub(super) fn call(&mut self, asking: Asking<'_>, body: &[u8]) -> Result<(), Failure> {
        let call = call::call(body)?;
        self.check_grant(asking.tenant)?;
        if self.sends_away() {
            return Err(Failure::OwnerMoved);
        }
        let mut payloads = std::mem::take(&mut self.payloads);
        payloads.clear();
        payloads.push(Payload::from(call.payload));
        let place = self.placement.of_partition(asking.tenant, &call.queue, &call.partition)?;
        self.feel_pull(asking.id, place);
        let ticket = self.await_answer(&asking, Asked::Call { place });
        let command = Command::Call {
            tenant: asking.tenant,
            queue: &call.queue,
            partition: &call.partition,
            payloads: &mut payloads,
            until: self.now + call.timeout,
            fail_fast: call.fail_fast,
        };
        self.give(asking.connections, place, ticket, command);
        payloads.clear();
        self.payloads = payloads;
        Ok(())
    }

    /// An ordinary push to a call's inbox: its first message is the answer.
    pub(super) fn push_to_inbox(&mut self, asking: Asking<'_>, place: Place, inbox: u64, payloads: &[Payload]) {
        let Some((payload, late)) = payloads.split_first() else { return };
        self.feel_pull(asking.id, place);
        let ticket = self.await_answer(&asking, Asked::InboxPush { count: payloads.len() });
        let items = [ReplyItem { index: 0, inbox, payload, late_count: late.len() as u32 }];
        self.give(asking.connections, place, ticket, Command::Reply { tenant: asking.tenant, items: &items });
    }

    /// Where an inbox of this node is. One that can be nobody's is counted here.
    pub(super) fn place_of_inbox(&self, inbox: u64) -> Place {
        Place::Here(inbox_shard(inbox, self.placement.shard_count()).unwrap_or(self.desk.core))
    }

    /// Where an inbox of another incarnation is, and its number as it is told there. One of a node that is gone is counted here.
    pub(super) fn place_elsewhere(&self, incarnation: u64, number: u64) -> (Place, u64) {
        match self.placement.node_of(incarnation) {
            // Which shard has it only its node can say: any core there passes it on.
            Some((node, _)) => (Place::There(node, ShardIndex(0)), number),
            None => (Place::Here(self.desk.core), NO_INBOX),
        }
    }

    /// Gives answers to their callers, then acks their requests, then pops.
    pub(super) fn reply(&mut self, asking: Asking<'_>, body: &[u8]) -> Result<(), Failure> {
        let ReplyRequest { queue, group, replies, next } = call::reply(body, &self.desk.incarnation)?;
        self.check_grant(asking.tenant)?;
        let (tenant, incarnation) = (asking.tenant, self.desk.incarnation.number);
        let (mut ids, mut outcomes) = (SpelledIds::default(), Vec::with_capacity(replies.len()));
        let mut rest = Rest { tenant, queue, group, acks: Vec::with_capacity(replies.len()), next };
        let (mut to_inboxes, mut to_queues, mut queue_items) = (ByPlace::new(), Vec::new(), Vec::new());
        for (index, Reply { ack, to, payload }) in (0..).zip(replies) {
            ids.push(ack.spelled_id);
            outcomes.push(ReplyOutcome::Acked(unasked_outcome(ack.id.as_ref(), incarnation)));
            rest.acks.extend(ack.id.map(|id| (index, id)));
            match to {
                Target::Inbox(inbox) => {
                    put(&mut to_inboxes, self.place_of_inbox(inbox), ReplyItem { index, inbox, payload, late_count: 0 });
                }
                Target::Elsewhere { incarnation, number } => {
                    let (place, inbox) = self.place_elsewhere(incarnation, number);
                    put(&mut to_inboxes, place, ReplyItem { index, inbox, payload, late_count: 0 });
                }
                Target::Queue(name) => {
                    queue_items.push(index);
                    let place = self.placement.of_queue(tenant, &name)?;
                    to_queues.push((place, name, payload));
                }
            }
        }
        let replying = Replying::new(ids, outcomes, queue_items, to_inboxes.len() + to_queues.len());
        let ticket = self.await_answers(&asking, Asked::Reply(Box::new(replying)), to_queues.len() as u32);
        for (place, items) in &to_inboxes {
            self.feel_pull(asking.id, *place);
            self.give(asking.connections, *place, ticket, Command::Reply { tenant, items });
        }
        let mut payloads = std::mem::take(&mut self.payloads);
        for (nth, (place, queue, payload)) in (1..).zip(&to_queues) {
            payloads.clear();
            payloads.push(Payload::from(*payload));
            let command = Command::Push { tenant, queue, partition: DEFAULT_PARTITION, payloads: &mut payloads };
            self.feel_pull(asking.id, *place);
            self.give(asking.connections, *place, Ticket(ticket.0 + nth), command);
        }
        self.payloads = payloads;
        self.go_on_replying(asking.connections, ticket, rest);
        Ok(())
    }

    /// Replies whose last answer came go on with what is left of them.
    pub(super) fn advance_replies(&mut self, connections: &mut Connections) {
        while let Some(ticket) = self.desk.replied.pop() {
            if let Some(rest) = self.desk.replying(ticket).and_then(|replying| replying.rest.take()) {
                self.go_on_replying(connections, ticket, rest);
            }
        }
    }

    /// Acks and then pops, unless answers are still to come: then the rest is kept for later.
    fn go_on_replying(&mut self, connections: &mut Connections, ticket: Ticket, mut rest: Rest<'_>) {
        let acks = match self.desk.replying(ticket) {
            Some(replying) if replying.awaiting == 0 => {
                let mut acks = std::mem::take(&mut rest.acks);
                acks.retain(|(index, _)| !replying.is_refused(*index));
                acks
            }
            Some(_) => Vec::new(),
            None => return,
        };
        if !acks.is_empty() {
            self.ack_answered(connections, ticket, &rest, &acks);
        }
        match self.desk.replying(ticket) {
            Some(replying) if replying.awaiting > 0 => replying.rest = Some(rest.into_owned()),
            Some(_) => self.finish_reply(connections, ticket, &rest),
            None => {}
        }
    }

    fn ack_answered(&mut self, connections: &mut Connections, ticket: Ticket, rest: &Rest<'_>, acks: &[(u32, MessageId<'_>)]) {
        let mut by_place = ByPlace::new();
        for (index, id) in acks {
            let Some((place, seq)) = self.place_of_delivery(rest.tenant, &rest.queue, id) else { continue };
            let item = AckItem { index: *index, partition: &id.partition, seq, delivery: id.delivery, verdict: Verdict::Completed };
            put(&mut by_place, place, item);
        }
        if let Some(replying) = self.desk.replying(ticket) {
            replying.awaiting = by_place.len();
            // Its answers are given.
            replying.has_other_parts = true;
        }
        for (shard, items) in &by_place {
            let command = Command::Ack { tenant: rest.tenant, queue: &rest.queue, group: &rest.group, items };
            self.give(connections, *shard, ticket, command);
        }
    }

    /// Everything is settled: the client is told, at once or with the messages of its pop.
    fn finish_reply(&mut self, connections: &mut Connections, ticket: Ticket, rest: &Rest<'_>) {
        let Some((id, pending)) = self.desk.take_replying(ticket) else { return };
        let Pending { delivery, asked: Asked::Reply(replying), .. } = pending else { return };
        let mut results = Vec::with_capacity(replying.results_bytes());
        replying.render(&mut results);
        let Some(session) = self.desk.sessions.get(id) else { return };
        let Some(pop) = &rest.next else {
            return self.clerk(connections).respond(id, delivery, &http::Answer::json(Status::Ok), |out| {
                out.extend_from_slice(&results);
                out.push(b'}');
            });
        };
        if session.is_finished || session.is_closing {
            return self.clerk(connections).say_no_messages(id, delivery, &results);
        }
        let Ok(place) = self.placement.of_pop(rest.tenant, &pop.queue, pop.partition.as_deref()) else {
            return self.clerk(connections).say_no_messages(id, delivery, &results);
        };
        // Nothing is kept waiting in a drain; what is there is given all the same, because the replies are done.
        let wait = pop.wait.filter(|_| !self.sends_away());
        if let Some(session) = self.desk.sessions.get(id) {
            session.pending = Some(Pending { ticket, delivery, asked: Asked::Next { place: wait.map(|_| place), results } });
        }
        let command = self.pop_command(rest.tenant, pop, wait);
        self.feel_pull(id, place);
        self.give(connections, place, ticket, command);
    }
}
