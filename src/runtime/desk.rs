//! Where a core's answers go: into the output of a connection of its own, or over the mesh to the core that has the client.
//!
//! Invariants: an answer whose client is gone is dropped, and what it delivered goes back to its shard; an answer is appended whole
//! before anything else is appended to its connection.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mayfly_net::http::{self, Connection, DateText, OpenAnswer, OpenPiece, Status};
use mayfly_net::mesh::Mesh;
use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{
    Adopted, Answer, Delivery, Letter, Moved, Outbox, Outcome, OwnedRequest, PartitionName, Receipt, ShardIndex, Ticket, Undelivered,
};
use smallvec::SmallVec;

use super::frame::Frame;
use super::gather::Gather;
use super::peer::Peers;
use super::replying::Replying;
use super::session::{Asked, Given, Pending, Returned, Session, Sessions, core_of, is_foreign, wants_events};
use super::subscribing::Subscription;
use crate::api::id::Incarnation;
use crate::api::{Failure, answer, call, quota};
use crate::control::NodeId;

/// See the module.
pub(super) struct Desk {
    pub(super) core: ShardIndex,
    pub(super) sessions: Sessions,
    pub(super) mesh: Mesh<Frame>,
    pub(super) incarnation: Incarnation,
    /// Links to other nodes.
    pub(super) peers: Peers,
    spelling: answer::Spelling,
    pub(super) date: DateText,
    /// Payload and overhead bytes held by the node, as of this turn.
    pub(super) node_bytes: u64,
    /// The connection whose bytes are being read: it goes on by itself when its request is answered.
    pub(super) reading: Option<ConnectionId>,
    /// The first answer to another connection than the one being read is sent at once: whoever waits for it wakes meanwhile.
    pub(super) may_hurry: bool,
    /// Connections that were answered later, and go on reading.
    pub(super) answered: Vec<ConnectionId>,
    /// What answers gave that reached nobody.
    pub(super) returns: Vec<Returned>,
    /// Partitions of which not all came, or could be given away.
    pub(super) wipes: u64,
    /// Commands whose partition is on its way to another node.
    pub(super) moved: VecDeque<(Ticket, Moved)>,
    /// Replies whose last answer came, and that go on.
    pub(super) replied: Vec<Ticket>,
    /// Subscriptions whose pop was answered.
    pub(super) streamed: Vec<ConnectionId>,
    /// Subscriptions that ended.
    pub(super) left: Vec<Subscription>,
    /// Replies under way whose client is gone.
    orphans: Vec<(Ticket, Box<Replying>)>,
    /// No request is kept waiting any more: every answer closes its connection.
    pub(super) is_draining: bool,
    open: Option<OpenDelivery>,
}

/// A pop's answer that is being written.
enum OpenDelivery {
    Here { id: ConnectionId, delivery: http::Delivery, begins_at: u64, form: Form, out: Vec<u8> },
    There { ticket: Ticket, body: Vec<u8>, messages_at: usize },
    Nobody,
}

/// What a pop's messages are written into.
enum Form {
    /// An answer, with the results of a reply before them or not.
    Answer { open: OpenAnswer, has_results: bool },
    /// A piece of a subscription's stream, which begins with this place of the output.
    Events { open: OpenPiece, messages_at: usize, is_first: bool },
}

impl Desk {
    pub(super) fn new(core: ShardIndex, mesh: Mesh<Frame>, incarnation: Incarnation) -> Self {
        Self {
            core,
            sessions: Sessions::default(),
            mesh,
            spelling: answer::Spelling::new(incarnation.clone()),
            incarnation,
            peers: Peers::default(),
            date: DateText::new(SystemTime::now()),
            node_bytes: 0,
            reading: None,
            may_hurry: false,
            answered: Vec::new(),
            returns: Vec::new(),
            wipes: 0,
            moved: VecDeque::new(),
            replied: Vec::new(),
            streamed: Vec::new(),
            left: Vec::new(),
            orphans: Vec::new(),
            is_draining: false,
            open: None,
        }
    }

    /// A reply under way.
    pub(super) fn replying(&mut self, ticket: Ticket) -> Option<&mut Replying> {
        match self.sessions.waiting_for(ticket).and_then(|session| session.pending.as_mut()) {
            Some(Pending { asked: Asked::Reply(replying), .. }) => Some(replying),
            _ => self.orphans.iter_mut().find(|(of, _)| *of == ticket).map(|(_, replying)| &mut **replying),
        }
    }

    /// Takes a reply whose acks are all answered, with its connection; None when its client is gone: then it is over.
    pub(super) fn take_replying(&mut self, ticket: Ticket) -> Option<(ConnectionId, Pending)> {
        if let Some(session) = self.sessions.waiting_for(ticket) {
            return Some((session.id?, session.pending.take()?));
        }
        self.orphans.retain(|(of, _)| *of != ticket);
        None
    }

    /// Whether somebody waits for the answer to a request.
    pub(super) fn is_awaited(&mut self, ticket: Ticket) -> bool {
        let covers = |(first, replying): &(Ticket, Box<Replying>)| replying.covers(ticket.0.wrapping_sub(first.0));
        self.sessions.waiting_for(ticket).is_some() || self.orphans.iter().any(covers)
    }

    /// Keeps a reply whose client is gone.
    pub(super) fn adopt(&mut self, pending: Pending) {
        if let Asked::Reply(replying) = pending.asked {
            self.orphans.push((pending.ticket, replying));
        }
    }

    /// A reply whose client is gone does not go on: a part of it failed, and its requests come back when their leases end.
    pub(super) fn forget_orphan(&mut self, ticket: Ticket) {
        self.orphans.retain(|(first, replying)| !replying.covers(ticket.0.wrapping_sub(first.0)));
    }

    /// An answer that no connection waits for: one of a reply whose client is gone, if any.
    fn answer_orphan(&mut self, ticket: Ticket, answer: Answer) {
        let found = self.orphans.iter_mut().find(|(first, replying)| replying.covers(ticket.0.wrapping_sub(first.0)));
        if let Some((first, replying)) = found
            && replying.add(ticket.0 - first.0, answer)
        {
            self.replied.push(*first);
        }
    }
}

/// The desk at work, with the connections it writes to.
pub(super) struct Clerk<'a> {
    pub(super) desk: &'a mut Desk,
    pub(super) connections: &'a mut Connections,
}

impl Clerk<'_> {
    /// Appends a whole answer to a connection whose request is `delivery`'s.
    pub(super) fn respond(&mut self, id: ConnectionId, delivery: http::Delivery, head: &http::Answer<'_>, body: impl FnOnce(&mut Vec<u8>)) {
        let delivery = self.closing_when_draining(delivery);
        if let Some(output) = self.connections.output(id) {
            let out = output.buffer();
            let open = head.open(out, delivery, &self.desk.date);
            body(out);
            open.finish(out);
        }
        self.conclude(id, delivery);
    }

    /// Appends a failure.
    pub(super) fn fail(&mut self, id: ConnectionId, delivery: http::Delivery, failure: &Failure) {
        let row = failure.row();
        let retry_after_s = row.retry_after_secs.map(|secs| u32::try_from(secs).unwrap_or(u32::MAX));
        let head =
            http::Answer { allow: failure.allow(), authenticate: failure.authenticate(), retry_after_s, ..http::Answer::json(row.status) };
        self.respond(id, delivery, &head, |out| failure.append_body(out));
    }

    fn closing_when_draining(&self, delivery: http::Delivery) -> http::Delivery {
        if self.desk.is_draining { delivery.closing() } else { delivery }
    }

    /// The request of a connection is answered: it goes on, or closes.
    fn conclude(&mut self, id: ConnectionId, delivery: http::Delivery) {
        let Some(session) = self.desk.sessions.get(id) else { return };
        session.pending = None;
        if delivery.connection == Connection::Closed {
            session.is_closing = true;
            session.stash = Vec::new();
            self.connections.close(id);
        } else if self.desk.reading != Some(id) {
            self.desk.answered.push(id);
            self.hurry(id);
        }
    }

    fn hurry(&mut self, id: ConnectionId) {
        if std::mem::take(&mut self.desk.may_hurry) {
            self.connections.send_now(id);
        }
    }

    /// Answers the pending request of a connection on this core, or one of another node.
    pub(super) fn answer_here(&mut self, ticket: Ticket, part: Answer) {
        self.answer_from(None, ticket, part);
    }

    /// The same; from another node, if `node` says one.
    pub(super) fn answer_from(&mut self, node: Option<NodeId>, ticket: Ticket, part: Answer) {
        let part = match part {
            Answer::Moved(moved) => match &moved.command.request {
                // Their deliveries end with the move.
                OwnedRequest::Ack { items, .. } => Answer::Acked(items.iter().map(|item| (item.index, Outcome::Stale)).collect()),
                _ => return self.desk.moved.push_back((ticket, *moved)),
            },
            part => part,
        };
        if is_foreign(ticket) {
            return self.answer_peer(ticket, part);
        }
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return self.desk.answer_orphan(ticket, part) };
        if let Some(Pending { ticket: first, asked: Asked::Reply(replying), .. }) = &mut session.pending {
            if replying.add(ticket.0 - first.0, part) {
                self.desk.replied.push(*first);
            }
            return;
        }
        let Some((id, pending)) = complete(session, node, part) else { return };
        let Pending { delivery, asked, .. } = pending.request;
        match (asked, pending.answer) {
            (Asked::Next { results, .. }, Some(Answer::Refused(refusal))) => {
                self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| {
                    out.extend_from_slice(&results);
                    call::next_refused(out, &refusal.into());
                });
            }
            (Asked::Events { .. }, Some(Answer::Refused(refusal))) => self.end_stream(id, &refusal.into()),
            (Asked::Call { .. }, Some(Answer::NoReply)) => self.fail(id, delivery, &Failure::NoReply),
            (Asked::InboxPush { count }, Some(Answer::Replied(refused))) => match refused.first() {
                Some((_, refusal)) => self.fail(id, delivery, &(*refusal).into()),
                None => self.respond(id, delivery, &http::Answer::json(Status::Created), |out| answer::pushed(out, count)),
            },
            (_, Some(Answer::Refused(refusal))) => self.fail(id, delivery, &refusal.into()),
            (Asked::Push, Some(Answer::Pushed(count))) => {
                self.respond(id, delivery, &http::Answer::json(Status::Created), |out| answer::pushed(out, count));
            }
            (Asked::Configure { queue, options_text, declared_at }, Some(Answer::Configured)) => {
                self.say_configured(id, delivery, &queue, &options_text, &declared_at);
            }
            (Asked::Delete { queue, .. }, Some(Answer::Deleted { deleted, declared })) => {
                self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| answer::deleted(out, &queue, deleted, declared));
            }
            (Asked::Gathered(gather), None) => self.say_gathered(id, delivery, *gather),
            (asked, answer) if node.is_some() => {
                log::warn!("a node of another version: {asked:?} is not answered by {answer:?}");
                self.fail(id, delivery, &Failure::ForwardFailed);
            }
            (asked, answer) => unreachable!("{asked:?} is not answered by {answer:?}"),
        }
    }

    pub(super) fn say_gathered(&mut self, id: ConnectionId, delivery: http::Delivery, gather: Gather) {
        let mut body = Vec::new();
        match gather.render(self.desk.node_bytes, &mut body) {
            Ok(()) => self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| out.append(&mut body)),
            Err(failure) => self.fail(id, delivery, &failure),
        }
    }

    fn say_configured(&mut self, id: ConnectionId, delivery: http::Delivery, queue: &str, options_text: &[u8], declared_at: &AtomicU64) {
        // What wrote it came before what this answer came of.
        let updated_at = UNIX_EPOCH + Duration::from_millis(declared_at.load(Relaxed));
        let head = http::Answer::json(Status::Created);
        self.respond(id, delivery, &head, |out| answer::configured(out, queue, options_text, updated_at));
    }

    /// Whether the change of a pending request holds; of a declaration or a deletion that the shards had not to be told of.
    pub(super) fn agreed_here(&mut self, ticket: Ticket, outcome: Result<(), Failure>, is_mirrored: bool) {
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return };
        let (Some(id), Some(Pending { delivery, asked, .. })) = (session.id, session.pending.take()) else { return };
        match (asked, outcome) {
            (_, Err(failure)) => self.fail(id, delivery, &failure),
            (Asked::Configure { queue, options_text, declared_at }, Ok(())) => {
                self.say_configured(id, delivery, &queue, &options_text, &declared_at);
            }
            (Asked::Delete { queue, .. }, Ok(())) => {
                self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| answer::deleted(out, &queue, false, false));
            }
            (Asked::Switch { is_enabled }, Ok(())) => {
                self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| answer::switched(out, is_enabled, is_mirrored));
            }
            (Asked::Quota { tenant, grant }, Ok(())) => {
                self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| quota::granted(out, tenant, &grant));
            }
            (asked, Ok(())) => unreachable!("{asked:?} proposes nothing"),
        }
    }

    /// What the control core says of the cluster.
    pub(super) fn cluster_here(&mut self, ticket: Ticket, outcome: Result<Box<[u8]>, Failure>) {
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return };
        let (Some(id), Some(Pending { delivery, .. })) = (session.id, session.pending.take()) else { return };
        match outcome {
            Ok(document) => self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| out.extend_from_slice(&document)),
            Err(failure) => self.fail(id, delivery, &failure),
        }
    }

    /// A pop's answer came from another core, or from another node.
    pub(super) fn deliver_here(&mut self, ticket: Ticket, body: &[u8], messages_at: usize, given: Given) {
        self.open_here(ticket);
        if let Some(OpenDelivery::Here { out, form, .. }) = &mut self.desk.open {
            let has_results = matches!(form, Form::Answer { has_results: true, .. });
            out.extend_from_slice(if has_results { &body[messages_at..] } else { body });
        }
        self.close_delivery(given);
    }

    /// A call's answer.
    pub(super) fn reply_here(&mut self, given: Given, ticket: Ticket, payload: &[u8]) {
        let found = self.desk.sessions.waiting_for(ticket).and_then(|session| Some((session.id?, session.pending.as_ref()?.delivery)));
        let found = found.and_then(|(id, delivery)| Some((id, delivery, self.connections.output(id)?)));
        let Some((id, delivery, output)) = found else { return self.desk.returns.extend(given.returned(Undelivered::Unsent)) };
        let begins_at = output.appended();
        self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| call::answered(out, payload));
        let ends_at = self.connections.output(id).map_or(begins_at, |output| output.appended());
        if let Some(session) = self.desk.sessions.get(id) {
            session.keep(begins_at, ends_at, given);
        }
    }

    /// The results of a reply, without a message for its pop.
    pub(super) fn say_no_messages(&mut self, id: ConnectionId, delivery: http::Delivery, results: &[u8]) {
        self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| {
            out.extend_from_slice(results);
            out.extend_from_slice(call::MESSAGES);
            answer::pop_end(out);
        });
    }

    /// Opens an answer to a pop. Of a reply's pop the results are written, up to the first message.
    fn open_here(&mut self, ticket: Ticket) {
        self.desk.open = Some(OpenDelivery::Nobody);
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return };
        let (Some(id), Some(pending)) = (session.id, &mut session.pending) else { return };
        let delivery = pending.delivery;
        if let Some(subscription) = &mut session.subscription {
            let Some(output) = self.connections.output(id) else { return };
            let before = output.appended();
            let mut out = std::mem::take(output.buffer());
            let (length_before, is_first) = (out.len(), !std::mem::replace(&mut subscription.is_begun, true));
            if is_first {
                subscription.stream.begin(&mut out, &self.desk.date);
            }
            let begins_at = before + (out.len() - length_before) as u64;
            let open = subscription.stream.open(&mut out);
            let form = Form::Events { open, messages_at: out.len(), is_first };
            self.desk.open = Some(OpenDelivery::Here { id, delivery, begins_at, form, out });
            return;
        }
        let results = if let Asked::Next { results, .. } = &mut pending.asked { Some(std::mem::take(results)) } else { None };
        let delivery = self.closing_when_draining(delivery);
        let Some(output) = self.connections.output(id) else { return };
        let begins_at = output.appended();
        let mut out = std::mem::take(output.buffer());
        let open = http::Answer::json(Status::Ok).open(&mut out, delivery, &self.desk.date);
        if let Some(results) = &results {
            out.extend_from_slice(results);
            out.extend_from_slice(call::MESSAGES);
        }
        let form = Form::Answer { open, has_results: results.is_some() };
        self.desk.open = Some(OpenDelivery::Here { id, delivery, begins_at, form, out });
    }

    fn close_delivery(&mut self, given: Given) {
        match self.desk.open.take() {
            Some(OpenDelivery::Here { id, delivery, begins_at, form, mut out }) => {
                let is_stream = matches!(form, Form::Events { .. });
                finish(form, &mut out);
                let Some(output) = self.connections.output(id) else {
                    return self.desk.returns.extend(given.returned(Undelivered::Unsent));
                };
                *output.buffer() = out;
                let ends_at = output.appended();
                if let Some(session) = self.desk.sessions.get(id) {
                    session.keep(begins_at, ends_at, given);
                }
                if is_stream { self.go_on_streaming(id) } else { self.conclude(id, delivery) }
            }
            Some(OpenDelivery::There { ticket, body, messages_at }) => {
                let Given::Messages(receipts) = given else { unreachable!("what another node gave is for a client here") };
                if core_of(ticket) == self.desk.core {
                    self.deliver_to_peer(ticket, &body, messages_at, receipts);
                } else {
                    self.mail(core_of(ticket), Frame::Delivered { ticket, body, messages_at, receipts });
                }
            }
            Some(OpenDelivery::Nobody) | None => self.desk.returns.extend(given.returned(Undelivered::Unsent)),
        }
    }

    /// A subscription's pop is answered: it goes on with the next.
    fn go_on_streaming(&mut self, id: ConnectionId) {
        if let Some(session) = self.desk.sessions.get(id) {
            session.pending = None;
            self.desk.streamed.push(id);
            self.hurry(id);
        }
    }

    pub(super) fn mail(&mut self, to: ShardIndex, frame: Frame) {
        self.desk.mesh.send(usize::from(to.0), frame);
    }
}

/// Ends what a pop's messages were written into.
fn finish(form: Form, out: &mut Vec<u8>) {
    match form {
        Form::Answer { open, .. } => open.finish(out),
        Form::Events { open, messages_at, is_first } => {
            if out.len() == messages_at && !is_first {
                answer::event_comment(out);
            }
            open.finish(out);
        }
    }
}

/// A pending request with the answer it got; None in place of a gathered answer, whose parts are all there.
struct Completed {
    request: Pending,
    answer: Option<Answer>,
}

/// Takes a session's request out of it when `part` completes it.
fn complete(session: &mut Session, node: Option<NodeId>, part: Answer) -> Option<(ConnectionId, Completed)> {
    let id = session.id?;
    let answer = match &mut session.pending.as_mut()?.asked {
        Asked::Gathered(gather) => {
            if !gather.add(node, part) {
                return None;
            }
            None
        }
        _ => Some(part),
    };
    Some((id, Completed { request: session.pending.take()?, answer }))
}

impl Outbox for Clerk<'_> {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        let core = core_of(ticket);
        if core == self.desk.core { self.answer_here(ticket, answer) } else { self.mail(core, Frame::Answer { ticket, answer }) }
    }

    fn reply(&mut self, ticket: Ticket, payload: &[u8]) {
        let core = core_of(ticket);
        if core != self.desk.core {
            self.mail(core, Frame::Reply { ticket, payload: payload.into() });
        } else if is_foreign(ticket) {
            self.reply_to_peer(core, ticket, payload);
        } else {
            self.reply_here(Given::Reply(core), ticket, payload);
        }
    }

    fn begin_delivery(&mut self, ticket: Ticket, queue: &str) {
        if core_of(ticket) != self.desk.core || is_foreign(ticket) {
            let mut body = Vec::new();
            if !wants_events(ticket) {
                answer::pop_begin(&mut body, queue);
            }
            self.desk.open = Some(OpenDelivery::There { ticket, messages_at: body.len(), body });
            return;
        }
        self.open_here(ticket);
        if let Some(OpenDelivery::Here { out, form: Form::Answer { has_results: false, .. }, .. }) = &mut self.desk.open {
            answer::pop_begin(out, queue);
        }
    }

    fn message(&mut self, delivery: Delivery<'_>) {
        let spelling = &mut self.desk.spelling;
        match &mut self.desk.open {
            Some(OpenDelivery::Here { out, form: Form::Events { .. }, .. }) => answer::event(out, spelling, &delivery),
            Some(OpenDelivery::There { ticket, body, .. }) if wants_events(*ticket) => answer::event(body, spelling, &delivery),
            Some(OpenDelivery::Here { out, .. } | OpenDelivery::There { body: out, .. }) => answer::pop_message(out, spelling, &delivery),
            Some(OpenDelivery::Nobody) | None => {}
        }
    }

    fn end_delivery(&mut self, receipts: SmallVec<[Receipt; 1]>) {
        match &mut self.desk.open {
            Some(OpenDelivery::Here { out, form: Form::Answer { .. }, .. }) => answer::pop_end(out),
            Some(OpenDelivery::There { ticket, body, .. }) if !wants_events(*ticket) => answer::pop_end(body),
            _ => {}
        }
        self.close_delivery(Given::Messages(receipts));
    }

    fn send(&mut self, to: ShardIndex, letter: Letter) {
        self.mail(to, Frame::Letter(letter));
    }

    fn adopted(&mut self, name: &PartitionName, adopted: Adopted) {
        let Adopted { message_count, is_late, is_whole, .. } = adopted;
        self.desk.wipes += u64::from(!is_whole);
        if is_late || !is_whole {
            // Names are the tenants' own; what bends is the operator's to know.
            log::warn!(messages = message_count, is_late, is_whole; "a partition came out of order, or not whole");
        }
        log::trace!(queue = &*name.queue, partition = &*name.partition, messages = message_count; "a partition came from another node");
    }
}
