//! Where a core's answers go: into the output of a connection of its own, or over the mesh to the core that has the client.
//!
//! Invariants: an answer whose client is gone is dropped, and what it delivered goes back to its shard; an answer is appended whole
//! before anything else is appended to its connection.

use std::time::SystemTime;

use mayfly_net::http::{self, Connection, DateText, OpenAnswer, Status};
use mayfly_net::mesh::Mesh;
use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{Answer, Delivery, Letter, Outbox, Receipt, ShardIndex, Ticket, Undelivered};
use smallvec::SmallVec;

use super::frame::Frame;
use super::session::{Asked, Pending, Session, Sessions, core_of};
use crate::api::id::Incarnation;
use crate::api::{Failure, answer};

/// See the module.
pub(super) struct Desk {
    pub(super) core: ShardIndex,
    pub(super) sessions: Sessions,
    pub(super) mesh: Mesh<Frame>,
    pub(super) incarnation: Incarnation,
    pub(super) date: DateText,
    /// Payload and overhead bytes held by the node, as of this turn.
    pub(super) node_bytes: u64,
    /// The connection whose bytes are being read: it goes on by itself when its request is answered.
    pub(super) reading: Option<ConnectionId>,
    /// Connections that were answered later, and go on reading.
    pub(super) answered: Vec<ConnectionId>,
    /// Receipts of answers that reached nobody.
    pub(super) returns: Vec<(Receipt, Undelivered)>,
    /// No request is kept waiting any more: every answer closes its connection.
    pub(super) is_draining: bool,
    open: Option<OpenDelivery>,
}

/// A pop's answer that is being written.
enum OpenDelivery {
    Here { id: ConnectionId, delivery: http::Delivery, begins_at: u64, answer: OpenAnswer, out: Vec<u8> },
    There { ticket: Ticket, body: Vec<u8> },
    Nobody,
}

impl Desk {
    pub(super) fn new(core: ShardIndex, mesh: Mesh<Frame>, incarnation: Incarnation) -> Self {
        Self {
            core,
            sessions: Sessions::default(),
            mesh,
            incarnation,
            date: DateText::new(SystemTime::now()),
            node_bytes: 0,
            reading: None,
            answered: Vec::new(),
            returns: Vec::new(),
            is_draining: false,
            open: None,
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
        let head = http::Answer { allow: failure.allow(), retry_after_s, ..http::Answer::json(row.status) };
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
        }
    }

    /// Answers the pending request of a connection on this core.
    pub(super) fn answer_here(&mut self, ticket: Ticket, part: Answer) {
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return };
        let Some((id, pending)) = complete(session, part) else { return };
        let Pending { delivery, asked, .. } = pending.request;
        match (asked, pending.answer) {
            (_, Some(Answer::Refused(refusal))) => self.fail(id, delivery, &refusal.into()),
            (Asked::Push, Some(Answer::Pushed(count))) => {
                self.respond(id, delivery, &http::Answer::json(Status::Created), |out| answer::pushed(out, count));
            }
            (Asked::Configure { queue, options_text }, Some(Answer::Configured)) => {
                let updated_at = SystemTime::now();
                let head = http::Answer::json(Status::Created);
                self.respond(id, delivery, &head, |out| answer::configured(out, &queue, &options_text, updated_at));
            }
            (Asked::Reset { queue }, Some(Answer::Reset(dropped))) => {
                self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| answer::reset(out, &queue, dropped));
            }
            (Asked::Delete { queue }, Some(Answer::Deleted { deleted, declared })) => {
                self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| answer::deleted(out, &queue, deleted, declared));
            }
            (Asked::Gathered(gather), None) => {
                let mut body = Vec::new();
                match gather.render(self.desk.node_bytes, &mut body) {
                    Ok(()) => self.respond(id, delivery, &http::Answer::json(Status::Ok), |out| out.append(&mut body)),
                    Err(failure) => self.fail(id, delivery, &failure),
                }
            }
            (asked, answer) => unreachable!("{asked:?} is not answered by {answer:?}"),
        }
    }

    /// A pop's answer came from another core.
    pub(super) fn deliver_here(&mut self, ticket: Ticket, body: &[u8], receipts: SmallVec<[Receipt; 1]>) {
        self.open_here(ticket);
        if let Some(OpenDelivery::Here { out, .. }) = &mut self.desk.open {
            out.extend_from_slice(body);
        }
        self.close_delivery(receipts);
    }

    fn open_here(&mut self, ticket: Ticket) {
        self.desk.open = Some(OpenDelivery::Nobody);
        let Some(session) = self.desk.sessions.waiting_for(ticket) else { return };
        let (Some(id), Some(pending)) = (session.id, &session.pending) else { return };
        let delivery = pending.delivery;
        let delivery = self.closing_when_draining(delivery);
        let Some(output) = self.connections.output(id) else { return };
        let begins_at = output.appended();
        let mut out = std::mem::take(output.buffer());
        let answer = http::Answer::json(Status::Ok).open(&mut out, delivery, &self.desk.date);
        self.desk.open = Some(OpenDelivery::Here { id, delivery, begins_at, answer, out });
    }

    fn close_delivery(&mut self, receipts: SmallVec<[Receipt; 1]>) {
        match self.desk.open.take() {
            Some(OpenDelivery::Here { id, delivery, begins_at, answer, mut out }) => {
                answer.finish(&mut out);
                let Some(output) = self.connections.output(id) else {
                    return self.desk.returns.extend(receipts.into_iter().map(|receipt| (receipt, Undelivered::Unsent)));
                };
                *output.buffer() = out;
                let ends_at = output.appended();
                if let Some(session) = self.desk.sessions.get(id) {
                    session.keep_receipts(begins_at, ends_at, receipts);
                }
                self.conclude(id, delivery);
            }
            Some(OpenDelivery::There { ticket, body }) => self.mail(core_of(ticket), Frame::Delivered { ticket, body, receipts }),
            Some(OpenDelivery::Nobody) | None => {
                self.desk.returns.extend(receipts.into_iter().map(|receipt| (receipt, Undelivered::Unsent)));
            }
        }
    }

    pub(super) fn mail(&mut self, to: ShardIndex, frame: Frame) {
        self.desk.mesh.send(usize::from(to.0), frame);
    }
}

/// A pending request with the answer it got; None in place of a gathered answer, whose parts are all there.
struct Completed {
    request: Pending,
    answer: Option<Answer>,
}

/// Takes a session's request out of it when `part` completes it.
fn complete(session: &mut Session, part: Answer) -> Option<(ConnectionId, Completed)> {
    let id = session.id?;
    let answer = match &mut session.pending.as_mut()?.asked {
        Asked::Gathered(gather) => {
            if !gather.add(part) {
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

    fn begin_delivery(&mut self, ticket: Ticket, queue: &str) {
        if core_of(ticket) == self.desk.core {
            self.open_here(ticket);
        } else {
            self.desk.open = Some(OpenDelivery::There { ticket, body: Vec::new() });
        }
        if let Some(OpenDelivery::Here { out, .. } | OpenDelivery::There { body: out, .. }) = &mut self.desk.open {
            answer::pop_begin(out, queue);
        }
    }

    fn message(&mut self, delivery: Delivery<'_>) {
        if let Some(OpenDelivery::Here { out, .. } | OpenDelivery::There { body: out, .. }) = &mut self.desk.open {
            answer::pop_message(out, &self.desk.incarnation, &delivery);
        }
    }

    fn end_delivery(&mut self, receipts: SmallVec<[Receipt; 1]>) {
        if let Some(OpenDelivery::Here { out, .. } | OpenDelivery::There { body: out, .. }) = &mut self.desk.open {
            answer::pop_end(out);
        }
        self.close_delivery(receipts);
    }

    fn send(&mut self, to: ShardIndex, letter: Letter) {
        self.mail(to, Frame::Letter(letter));
    }
}
