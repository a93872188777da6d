//! One request: route, parse, place, and give it to the shard that owns what it names.

use mayfly_net::http::{self, Request, Status};
use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{AckItem, Command, DropCause, Payload, QueueName, ShardIndex, Span, Tenant, Ticket, Time, shard_of};

use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use super::core::Core;
use super::desk::Clerk;
use super::frame::Frame;
use super::gather::{ByPlace, Gather, SpelledIds, Wanted, put};
use super::place::Place;
use super::replying::unasked_outcome;
use super::session::{Asked, Given, Pending, Returned, is_foreign, ticket};
use crate::api::cluster::{self, ClusterAsk};
use crate::api::declaration;
use crate::api::id::MessageId;
use crate::api::inbox::{self, Target};
use crate::api::query::PopRequest;
use crate::api::request::{self, AckRequest};
use crate::api::route::{Found, Route};
use crate::api::{Failure, answer, openapi, query, route};
use crate::control::{Change, Declaration};
use crate::metrics;

/// How long other nodes may take for their part of a status read, and of a reset.
const STATUS_SPAN: Span = Span::from_millis(500);
const RESET_SPAN: Span = Span::from_secs(2);

impl Core {
    /// Answers a whole request, or makes it the connection's pending one.
    pub(super) fn request(&mut self, connections: &mut Connections, id: ConnectionId, request: &Request<'_>) {
        let delivery = http::Delivery::of(&request.head);
        let outcome = match route::find(request.head.method, request.head.path) {
            Ok(found) => self.routed(connections, id, delivery, found, request),
            Err(missed) => Err(missed.into()),
        };
        if let Err(failure) = outcome {
            self.clerk(connections).fail(id, delivery, &failure);
        }
        self.settle(connections);
    }

    fn routed(
        &mut self,
        connections: &mut Connections,
        id: ConnectionId,
        delivery: http::Delivery,
        found: Found<'_>,
        request: &Request<'_>,
    ) -> Result<(), Failure> {
        let tenant = self.identify(id, &found, &request.head)?;
        if !self.is_enabled && found.endpoint.route.is_ephemeral() {
            return Err(Failure::Disabled);
        }
        let params = request.head.query.unwrap_or_default();
        let asking = Asking { connections, id, delivery, tenant };
        match found.endpoint.route {
            Route::Push => self.push(asking, request.body),
            Route::Pop => self.pop(asking, params),
            Route::Ack => self.ack(asking, request.body),
            Route::Call => self.call(asking, request.body),
            Route::Reply => self.reply(asking, request.body),
            Route::Subscribe => {
                let token = self.identities.token_of(&request.head);
                self.subscribe(asking, http::EventStream::of(&request.head), params, token)
            }
            Route::Configure => self.configure(asking, request.body),
            Route::Reset => self.reset(asking, request.body),
            Route::Delete => self.delete(asking, found.segment, params),
            Route::Queues => self.list(asking, params),
            Route::Depth => self.depth(asking, found.segment.unwrap_or_default(), params),
            Route::SwitchState => {
                let (is_enabled, is_mirrored) = (self.is_enabled, self.is_mirrored());
                let head = http::Answer::json(Status::Ok);
                self.clerk(asking.connections).respond(id, delivery, &head, |out| answer::switched(out, is_enabled, is_mirrored));
                Ok(())
            }
            Route::Switch => {
                let is_enabled = request::switch(request.body)?;
                self.propose(asking, Asked::Switch { is_enabled }, Change::Switch { is_enabled })
            }
            Route::SetQuota => self.set_quota(asking, request.body),
            Route::Quota => self.quota(asking, params),
            Route::Cluster => self.ask_cluster(asking, ClusterAsk::Status),
            Route::ChangeCluster => {
                let ask = cluster::read(request.body)?;
                self.ask_cluster(asking, ask)
            }
            Route::Health => self.say(asking, Status::Ok, br#"{"status":"alive"}"#),
            Route::Ready if self.desk.is_draining => self.say(asking, Status::ServiceUnavailable, br#"{"status":"draining"}"#),
            Route::Ready if !self.placement.is_member() => self.say(asking, Status::ServiceUnavailable, br#"{"status":"joining"}"#),
            Route::Ready => self.say(asking, Status::Ok, br#"{"status":"ready"}"#),
            Route::Metrics => {
                self.publish_gauges();
                let text = metrics::render(&self.gauges, self.desk.node_bytes);
                let head = http::Answer { content_type: http::ContentType::Metrics, ..http::Answer::json(Status::Ok) };
                self.clerk(asking.connections).respond(id, delivery, &head, |out| out.extend_from_slice(text.as_bytes()));
                Ok(())
            }
            Route::OpenApi => self.say(asking, Status::Ok, &openapi::DOCUMENT),
            Route::Index => {
                self.say(asking, Status::Ok, concat!(r#"{"name":"mayfly","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#).as_bytes())
            }
        }
    }

    /// Decides by a request's head, before its body is read, whether it may be asked at all, and notes whose it is.
    pub(super) fn admit(&mut self, id: ConnectionId, head: &http::Head<'_>) -> Result<(), Failure> {
        let found = route::find(head.method, head.path)?;
        if !self.identities.are_default() {
            let tenant = self.identities.identify(found.endpoint, head)?;
            if let Some(session) = self.desk.sessions.get(id) {
                session.admitted = Some(tenant);
            }
        }
        Ok(())
    }

    /// Whose a request is: as it was decided before its body was read, else by its head now.
    fn identify(&mut self, id: ConnectionId, found: &Found<'_>, head: &http::Head<'_>) -> Result<Tenant, Failure> {
        if self.identities.are_default() {
            return Ok(Tenant::DEFAULT);
        }
        match self.desk.sessions.get(id).and_then(|session| session.admitted.take()) {
            Some(tenant) => Ok(tenant),
            None => self.identities.identify(found.endpoint, head),
        }
    }

    pub(super) fn say(&mut self, asking: Asking<'_>, status: Status, body: &[u8]) -> Result<(), Failure> {
        self.clerk(asking.connections).respond(asking.id, asking.delivery, &http::Answer::json(status), |out| out.extend_from_slice(body));
        Ok(())
    }

    /// Makes this the connection's pending request.
    pub(super) fn await_answer(&mut self, asking: &Asking<'_>, asked: Asked) -> Ticket {
        self.await_answers(asking, asked, 0)
    }

    /// The same, with `more` tickets behind the one that is returned.
    pub(super) fn await_answers(&mut self, asking: &Asking<'_>, asked: Asked, more: u32) -> Ticket {
        if self.tickets_given.checked_add(more + 1).is_none() {
            self.tickets_given = 0;
        }
        let ticket = ticket(self.desk.core, asking.id.slot(), self.tickets_given + 1);
        self.tickets_given += more + 1;
        if let Some(session) = self.desk.sessions.get(asking.id) {
            session.pending = Some(Pending { ticket, delivery: asking.delivery, asked });
        }
        ticket
    }

    /// Gives a command to its shard: here at once, on another core by mail, on another node over the link to it.
    pub(super) fn give(&mut self, connections: &mut Connections, place: Place, ticket: Ticket, command: Command<'_>) {
        self.give_since(connections, place, ticket, command, None);
    }

    /// The same for one that waited elsewhere, since then.
    pub(super) fn give_since(
        &mut self,
        connections: &mut Connections,
        place: Place,
        ticket: Ticket,
        command: Command<'_>,
        since: Option<Time>,
    ) {
        match place {
            Place::Here(shard) if shard == self.desk.core => self.step(connections, ticket, command, since),
            Place::Here(shard) => {
                self.hops += 1;
                let frame = Frame::Request { ticket, command: Box::new(command.into_owned()), since };
                self.desk.mesh.send(usize::from(shard.0), frame);
            }
            Place::There(node, shard) => self.ask(connections, (node, shard), ticket, false, &command, since),
        }
    }

    /// Has this core's shard carry a command out.
    fn step(&mut self, connections: &mut Connections, ticket: Ticket, command: Command<'_>, since: Option<Time>) {
        let now = self.now;
        let command = match self.handover {
            None => command,
            Some(_) => match self.let_in(connections, ticket, command, since) {
                Some(command) => command,
                None => return,
            },
        };
        let clerk = &mut Clerk { desk: &mut self.desk, connections };
        match since {
            None => self.shard.step(now, ticket, command, clerk),
            Some(since) => self.shard.step_since(now, ticket, command, since, clerk),
        }
    }

    fn push(&mut self, asking: Asking<'_>, body: &[u8]) -> Result<(), Failure> {
        let mut payloads = std::mem::take(&mut self.payloads);
        payloads.clear();
        let push = request::push(body, |text| payloads.push(Payload::from(text)))?;
        self.check_grant(asking.tenant)?;
        if payloads.is_empty() {
            let head = http::Answer::json(Status::Created);
            self.clerk(asking.connections).respond(asking.id, asking.delivery, &head, |out| answer::pushed(out, 0));
            return Ok(());
        }
        match inbox::target(push.queue, &self.desk.incarnation) {
            Target::Inbox(inbox) => self.push_to_inbox(asking, self.place_of_inbox(inbox), inbox, &payloads),
            Target::Elsewhere { incarnation, number } => {
                let (place, inbox) = self.place_elsewhere(incarnation, number);
                self.push_to_inbox(asking, place, inbox, &payloads);
            }
            Target::Queue(queue) => {
                let place = self.placement.of_partition(asking.tenant, &queue, &push.partition)?;
                self.feel_pull(asking.id, place);
                let ticket = self.await_answer(&asking, Asked::Push);
                let command = Command::Push { tenant: asking.tenant, queue: &queue, partition: &push.partition, payloads: &mut payloads };
                self.give(asking.connections, place, ticket, command);
            }
        }
        // What was refused, or went to an inbox, is still here.
        payloads.clear();
        self.payloads = payloads;
        Ok(())
    }

    fn pop(&mut self, asking: Asking<'_>, params: &[u8]) -> Result<(), Failure> {
        let pop = query::pop(params)?;
        self.check_grant(asking.tenant)?;
        let place = self.placement.of_pop(asking.tenant, &pop.queue, pop.partition.as_deref())?;
        self.feel_pull(asking.id, place);
        if self.sends_away() && pop.wait.is_some() {
            return Err(Failure::OwnerMoved);
        }
        let ticket = self.await_answer(&asking, Asked::Pop { place: pop.wait.map(|_| place) });
        let command = self.pop_command(asking.tenant, &pop, pop.wait);
        self.give(asking.connections, place, ticket, command);
        Ok(())
    }

    pub(super) fn pop_command<'a>(&self, tenant: Tenant, pop: &'a PopRequest<'_>, wait: Option<Span>) -> Command<'a> {
        Command::Pop {
            tenant,
            queue: &pop.queue,
            partition: pop.partition.as_deref(),
            group: &pop.group,
            batch: pop.batch,
            wait_until: wait.map(|wait| self.now + wait),
            auto_ack: pop.auto_ack,
        }
    }

    fn ack(&mut self, asking: Asking<'_>, body: &[u8]) -> Result<(), Failure> {
        let AckRequest { queue, group, acks } = request::ack(body)?;
        self.check_grant(asking.tenant)?;
        let incarnation = self.desk.incarnation.number;
        let mut ids = SpelledIds::default();
        let mut outcomes = Vec::with_capacity(acks.len());
        let mut by_place = ByPlace::new();
        for (index, ack) in acks.iter().enumerate() {
            ids.push(ack.spelled_id);
            outcomes.push(unasked_outcome(ack.id.as_ref(), incarnation));
            let Some(id) = ack.id.as_ref() else { continue };
            let Some((place, seq)) = self.place_of_delivery(asking.tenant, &queue, id) else { continue };
            let item = AckItem { index: index as u32, partition: &id.partition, seq, delivery: id.delivery, verdict: ack.verdict };
            put(&mut by_place, place, item);
        }
        if by_place.is_empty() {
            by_place.push((self.placement.of_queue(asking.tenant, &queue)?, Vec::new()));
        }
        let gather = Gather::new(Wanted::Ack { ids, outcomes }, by_place.iter().map(|(place, _)| *place));
        let ticket = self.await_answer(&asking, Asked::Gathered(Box::new(gather)));
        for (place, items) in by_place {
            self.feel_pull(asking.id, place);
            let command = Command::Ack { tenant: asking.tenant, queue: &queue, group: &group, items: &items };
            self.give(asking.connections, place, ticket, command);
        }
        Ok(())
    }

    /// Where a delivery is settled: by whoever gave it; and its message's number as that one is told it. None: nobody is there who did.
    pub(super) fn place_of_delivery(&self, tenant: Tenant, queue: &str, id: &MessageId<'_>) -> Option<(Place, u64)> {
        let own = &self.desk.incarnation;
        if id.incarnation == own.number {
            let shard = shard_of(tenant, queue, &id.partition, self.placement.shard_count());
            return Some((Place::Here(shard), own.seq_of(id.spelled_seq)));
        }
        let (node, shard_count) = self.placement.node_of(id.incarnation)?;
        Some((Place::There(node, shard_of(tenant, queue, &id.partition, shard_count)), id.spelled_seq))
    }

    fn configure(&mut self, asking: Asking<'_>, body: &[u8]) -> Result<(), Failure> {
        let configure = declaration::configure(body)?;
        self.check_grant(asking.tenant)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let updated_at_ms = now.as_millis() as u64;
        let declaration = Declaration { options_text: configure.options_text.into(), updated_at_ms, version: None };
        let asked = Asked::Configure {
            queue: (&*configure.queue).into(),
            options_text: configure.options_text.into(),
            declared_at: Arc::new(AtomicU64::new(updated_at_ms)),
        };
        let queue = QueueName { tenant: asking.tenant, name: (&*configure.queue).into() };
        self.propose(asking, asked, Change::Declare { queue, declaration })
    }

    fn reset(&mut self, asking: Asking<'_>, body: &[u8]) -> Result<(), Failure> {
        let queue = request::reset(body)?;
        self.check_grant(asking.tenant)?;
        let homes: SmallVec<[Place; 4]> = self.placement.homes(asking.tenant, &queue).collect();
        let ticket = self.gather_all(&asking, Wanted::Reset { queue: (&*queue).into() }, &homes, RESET_SPAN)?;
        for home in homes {
            self.void_copies(home, asking.tenant, &queue, DropCause::Reset);
            self.give(asking.connections, home, ticket, Command::Reset { tenant: asking.tenant, queue: &queue });
        }
        Ok(())
    }

    fn delete(&mut self, asking: Asking<'_>, segment: Option<&[u8]>, params: &[u8]) -> Result<(), Failure> {
        let queue = query::delete(segment, params)?;
        self.check_grant(asking.tenant)?;
        let asked = Asked::Delete { tenant: asking.tenant, queue: (&*queue).into() };
        let queue = QueueName { tenant: asking.tenant, name: (&*queue).into() };
        self.propose(asking, asked, Change::Delete { queue, version: None })
    }

    /// Since entry `at` the log does not declare a queue any more: every node drops what it holds, and forgets it.
    fn undeclared(&mut self, connections: &mut Connections, ticket: Ticket, at: u64, was_declared: bool) {
        let Some(pending) = self.desk.sessions.waiting_for(ticket).and_then(|session| session.pending.as_mut()) else { return };
        let Asked::Delete { tenant, queue } = &pending.asked else { return };
        let (tenant, queue) = (*tenant, queue.clone());
        let homes: SmallVec<[Place; 4]> = self.placement.homes(tenant, &queue).collect();
        let gather = Gather::new(Wanted::Delete { queue: queue.clone(), was_declared }, homes.iter().copied());
        pending.asked = Asked::Gathered(Box::new(gather));
        self.patience.insert((self.now + RESET_SPAN, ticket));
        if homes.is_empty() {
            self.clerk(connections).fail_here(ticket, Failure::OwnerMoved);
        }
        for home in homes {
            self.void_copies(home, tenant, &queue, DropCause::Deleted);
            self.give(connections, home, ticket, Command::Delete { tenant, queue: &queue, at });
        }
    }

    fn list(&mut self, asking: Asking<'_>, params: &[u8]) -> Result<(), Failure> {
        let list = query::queues(params)?;
        self.check_grant(asking.tenant)?;
        let places = self.places(list.is_node_only);
        let ticket = self.gather_all(&asking, Wanted::List { limit: list.limit }, &places, STATUS_SPAN)?;
        for shard in places {
            let command = Command::List { tenant: asking.tenant, prefix: &list.prefix, after: &list.after, limit: list.limit };
            self.give(asking.connections, shard, ticket, command);
        }
        Ok(())
    }

    fn depth(&mut self, asking: Asking<'_>, segment: &[u8], params: &[u8]) -> Result<(), Failure> {
        let depth = query::depth(segment, params)?;
        self.check_grant(asking.tenant)?;
        let wanted = Wanted::Depth { queue: (&*depth.queue).into(), group: depth.group.as_deref().map(Box::from) };
        let places = self.places(depth.is_node_only);
        let ticket = self.gather_all(&asking, wanted, &places, STATUS_SPAN)?;
        for shard in places {
            let command = Command::Depth { tenant: asking.tenant, queue: &depth.queue, group: depth.group.as_deref() };
            self.give(asking.connections, shard, ticket, command);
        }
        Ok(())
    }

    /// Asks every one of `places` for a part of the answer; other nodes have `span` for theirs.
    fn gather_all(&mut self, asking: &Asking<'_>, wanted: Wanted, places: &[Place], span: Span) -> Result<Ticket, Failure> {
        if places.is_empty() {
            return Err(Failure::OwnerMoved);
        }
        self.desk.node_bytes = self.budget.bytes.used();
        let gather = Gather::new(wanted, places.iter().copied());
        let is_for_others = !gather.laggards().is_empty();
        let ticket = self.await_answer(asking, Asked::Gathered(Box::new(gather)));
        if is_for_others {
            self.patience.insert((self.now + span, ticket));
        }
        Ok(ticket)
    }

    /// The shards that a status read asks.
    fn places(&self, is_node_only: bool) -> SmallVec<[Place; 8]> {
        if is_node_only { self.shards().map(Place::Here).collect() } else { self.placement.everywhere().collect() }
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        (0..self.placement.shard_count()).map(ShardIndex)
    }

    /// Mail from another core.
    pub(super) fn read_mail(&mut self, connections: &mut Connections, from: ShardIndex, frame: Frame) {
        let now = self.now;
        let Self { shard, desk, .. } = self;
        let mut clerk = Clerk { desk, connections };
        match frame {
            Frame::Request { ticket, command, since } => command.lend(|command| self.step(connections, ticket, command, since)),
            Frame::Answer { ticket, answer } => clerk.answer_here(ticket, answer),
            Frame::Delivered { ticket, body, messages_at, receipts } if is_foreign(ticket) => {
                clerk.deliver_to_peer(ticket, &body, messages_at, receipts);
            }
            Frame::Delivered { ticket, body, messages_at, receipts } => {
                clerk.deliver_here(ticket, &body, messages_at, Given::Messages(receipts));
            }
            Frame::Reply { ticket, payload } if is_foreign(ticket) => clerk.reply_to_peer(from, ticket, &payload),
            Frame::Reply { ticket, payload } => clerk.reply_here(Given::Reply(from), ticket, &payload),
            Frame::ReplyLost => shard.reply_lost(),
            Frame::Cancel { ticket } => shard.cancel(now, ticket, &mut clerk),
            Frame::Undeliver { receipt, how } => self.take_back(connections, receipt, how),
            Frame::Granted { tenant } => shard.turn_away(now, tenant, &mut clerk),
            Frame::Letter(letter) => shard.receive(now, from, letter, &mut clerk),
            Frame::Propose(proposal) => self.pass_on(connections, proposal),
            Frame::Apply { ticket, command, reservation } => {
                command.lend(|command| shard.step(now, ticket, command, &mut clerk));
                drop(reservation);
            }
            Frame::Switch { number, is_enabled } => {
                self.is_enabled = is_enabled;
                shard.switch(now, is_enabled, &mut clerk);
                let control = self.control();
                self.desk.mesh.send(usize::from(control.0), Frame::Switched { number });
            }
            Frame::ClusterAnswer { ticket, outcome } => clerk.cluster_here(ticket, outcome),
            Frame::Members(members) => self.follow(connections, &members),
            Frame::Follows(members) => self.core_follows(connections, from, &members),
            Frame::Handover { link, word } => self.handover_heard(connections, from, link, *word),
            Frame::HandoverReply { link, reply } => clerk.reply_to_source(link, reply),
            Frame::Done { node, incarnation, core, epoch } => self.core_done(connections, node, incarnation, core, epoch),
            Frame::VoidCopies { tenant, queue, cause } => shard.void_copies(tenant, &queue, cause),
            Frame::Link(link) => self.open_link(connections, *link),
            Frame::Undeclared { ticket, at, was_declared } => self.undeclared(connections, ticket, at, was_declared),
            Frame::Switched { .. } | Frame::AskCluster { .. } | Frame::LinkLost { .. } => unreachable!("the control core alone is told"),
            Frame::Agreed { ticket, outcome } => {
                let is_mirrored = self.gauges.control().is_mirrored.load(Relaxed);
                clerk.agreed_here(ticket, outcome, is_mirrored);
            }
        }
        self.settle(connections);
    }

    /// Whether the whole cluster has the kill switch as this node has it.
    fn is_mirrored(&self) -> bool {
        self.gauges.control().is_mirrored.load(Relaxed)
    }

    /// Does what a step left to do: replies go on, and what reached nobody goes back to its shard.
    pub(super) fn settle(&mut self, connections: &mut Connections) {
        loop {
            self.advance_replies(connections);
            self.advance_subscriptions(connections);
            self.place_moved(connections);
            let Some(returned) = self.desk.returns.pop() else { break };
            let core = self.desk.core;
            match returned {
                Returned::Messages(receipt, how) if receipt.shard == core => self.take_back(connections, receipt, how),
                Returned::Messages(receipt, how) => {
                    self.desk.mesh.send(usize::from(receipt.shard.0), Frame::Undeliver { receipt, how });
                }
                Returned::Elsewhere(link, delivery, how) => self.clerk(connections).give_back(link, delivery, how),
                Returned::Reply(shard) if shard == core => self.shard.reply_lost(),
                Returned::Reply(shard) => self.desk.mesh.send(usize::from(shard.0), Frame::ReplyLost),
            }
        }
    }

    /// The pop or call of a connection is given up, and its shard forgets it. The request, if there was one.
    pub(super) fn cancel_parked(&mut self, connections: &mut Connections, id: ConnectionId) -> Option<Pending> {
        let session = self.desk.sessions.get(id)?;
        let pending = session.pending.take_if(|pending| pending.asked.parked_on().is_some())?;
        self.cancel_on(connections, pending.asked.parked_on()?, pending.ticket);
        Some(pending)
    }

    /// Nobody waits for what may be parked there any more.
    pub(super) fn cancel_on(&mut self, connections: &mut Connections, place: Place, ticket: Ticket) {
        match place {
            Place::Here(shard) if shard == self.desk.core => {
                let now = self.now;
                self.shard.cancel(now, ticket, &mut Clerk { desk: &mut self.desk, connections });
                self.settle(connections);
            }
            Place::Here(shard) => self.desk.mesh.send(usize::from(shard.0), Frame::Cancel { ticket }),
            Place::There(node, _) => self.cancel_ask(connections, node, ticket),
        }
    }

    pub(super) fn clerk<'a>(&'a mut self, connections: &'a mut Connections) -> Clerk<'a> {
        Clerk { desk: &mut self.desk, connections }
    }
}

/// A request's connection and how it is answered.
pub(super) struct Asking<'a> {
    pub(super) connections: &'a mut Connections,
    pub(super) id: ConnectionId,
    pub(super) delivery: http::Delivery,
    pub(super) tenant: Tenant,
}
