//! Subscriptions: a connection that is given messages as server-sent events for as long as it lasts.
//!
//! A subscription is one ordinary pop after another (autoAck), each asked when the output has drained: what a slow client does not
//! read stays in its queue. The first pop waits for a moment only: its answer says that every part of the queue knows the group and
//! that there is room to wait, so a refusal of either comes before the stream begins. The others wait until it is time for a comment.
//!
//! Invariants: a subscription that is not closing has a pop pending, or is held by its output; its connection reads no other request; a
//! stream ends when the token that allowed it does not hold any more; a private group is told to its queue's home as left exactly once, after its last pop was cancelled or answered.

use std::sync::Arc;

use mayfly_net::http::EventStream;
use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::{Command, QUEUE_MODE, Span, Tenant, Ticket};

use super::core::{Core, unsent_bytes};
use super::desk::Clerk;
use super::intake::Asking;
use super::random;
use super::session::{Asked, for_events};
use crate::api::{Failure, query, subscriber};

/// How long a stream may be quiet.
const COMMENT_SPAN: Span = Span::from_secs(15);
/// How long the first pop waits. Not at all would not ask for room to wait.
const FIRST_SPAN: Span = Span::from_millis(1);
/// Most messages of one pop.
const BATCH: u32 = 256;
/// Events that a client has not read: beyond, no more messages are taken for it.
const EVENTS_UNSENT_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    tenant: Tenant,
    queue: Arc<str>,
    partition: Option<Arc<str>>,
    group: Arc<str>,
    is_private: bool,
    pub(super) stream: EventStream,
    /// Its head is written.
    pub(super) is_begun: bool,
    /// No pop is asked before the output drained.
    is_held: bool,
    /// How its request is answered if it is refused.
    delivery: mayfly_net::http::Delivery,
    /// What allowed it.
    token: Option<Arc<[u8]>>,
}

impl Core {
    /// Makes the connection a subscription.
    pub(super) fn subscribe(
        &mut self,
        asking: Asking<'_>,
        stream: EventStream,
        params: &[u8],
        token: Option<Arc<[u8]>>,
    ) -> Result<(), Failure> {
        let request = query::subscribe(params)?;
        self.check_grant(asking.tenant)?;
        if self.sends_away() {
            return Err(Failure::OwnerMoved);
        }
        let Asking { connections, id, delivery, tenant } = asking;
        let private = request.group.is_none().then(|| self.mint_group(request.partition.as_deref()));
        let subscription = Subscription {
            tenant,
            queue: (&*request.queue).into(),
            partition: request.partition.as_deref().map(Arc::from),
            is_private: private.is_some(),
            group: private.as_deref().or(request.group.as_deref()).unwrap_or(QUEUE_MODE).into(),
            stream,
            is_begun: false,
            is_held: false,
            delivery,
            token,
        };
        if let Some(session) = self.desk.sessions.get(id) {
            session.subscription = Some(Box::new(subscription));
        }
        self.ask_for_events(connections, id, FIRST_SPAN);
        Ok(())
    }

    fn mint_group(&self, partition: Option<&str>) -> String {
        // Drawn by lot: a count would tell each tenant how many subscribe. Of 64 bits none comes twice.
        subscriber::private_group(&self.desk.incarnation, random(), partition)
    }

    fn ask_for_events(&mut self, connections: &mut Connections, id: ConnectionId, wait: Span) {
        let Some(subscription) = self.desk.sessions.get(id).and_then(|session| session.subscription.as_deref_mut()) else { return };
        subscription.is_held = false;
        let Subscription { tenant, queue, partition, group, delivery, token, .. } = subscription.clone();
        let wait = match token.map(|token| self.identities.holds_for(&token)) {
            None => wait,
            // A moment more than nothing: a pop that does not wait asks for no room to.
            Some(Ok(span)) => wait.min(Span(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)).max(FIRST_SPAN)),
            Some(Err(failure)) => return self.clerk(connections).end_stream(id, &failure),
        };
        let Ok(place) = self.placement.of_pop(tenant, &queue, partition.as_deref()) else {
            return self.clerk(connections).end_stream(id, &Failure::OwnerMoved);
        };
        let asking = Asking { connections, id, delivery, tenant };
        let ticket = for_events(self.await_answer(&asking, Asked::Events { place }));
        if let Some(pending) = self.desk.sessions.get(id).and_then(|session| session.pending.as_mut()) {
            pending.ticket = ticket;
        }
        let command = Command::Pop {
            tenant,
            queue: &queue,
            partition: partition.as_deref(),
            group: &group,
            batch: BATCH,
            wait_until: Some(self.now + wait),
            auto_ack: true,
        };
        self.give(asking.connections, place, ticket, command);
    }

    /// Subscriptions whose pop was answered ask for more, or wait until their client has read; those that ended are forgotten.
    pub(super) fn advance_subscriptions(&mut self, connections: &mut Connections) {
        while let Some(id) = self.desk.streamed.pop() {
            let Some(session) = self.desk.sessions.get(id) else { continue };
            let Some(subscription) = session.subscription.as_deref_mut().filter(|_| !session.is_closing) else { continue };
            if unsent_bytes(connections, id) > EVENTS_UNSENT_BYTES_MAX {
                subscription.is_held = true;
                self.expect_read(id);
            } else {
                self.ask_for_events(connections, id, COMMENT_SPAN);
            }
        }
        while let Some(left) = self.desk.left.pop() {
            if left.is_private
                && let Ok(home) = self.placement.of_queue(left.tenant, &left.queue)
            {
                let command = Command::Leave { tenant: left.tenant, queue: &left.queue, group: &left.group };
                // It is not answered.
                self.give(connections, home, Ticket(0), command);
            }
        }
    }

    /// A client took bytes of its stream. Whether there is room for more.
    pub(super) fn note_read(&mut self, connections: &mut Connections, id: ConnectionId) -> bool {
        let Some(session) = self.desk.sessions.get(id) else { return false };
        if !session.subscription.as_deref().is_some_and(|subscription| subscription.is_held) {
            return false;
        }
        if unsent_bytes(connections, id) > EVENTS_UNSENT_BYTES_MAX {
            // It reads slowly, but it reads.
            self.expect_read(id);
            return false;
        }
        self.expect_nothing(id);
        self.desk.streamed.push(id);
        true
    }

    /// The stream of a connection ends, if it is one: its client is to come again.
    pub(super) fn end_subscription(&mut self, connections: &mut Connections, id: ConnectionId) -> bool {
        if self.desk.sessions.get(id).is_none_or(|session| session.subscription.is_none()) {
            return false;
        }
        self.cancel_parked(connections, id);
        self.clerk(connections).end_stream(id, &Failure::OwnerMoved);
        self.settle(connections);
        true
    }
}

impl Clerk<'_> {
    /// Ends a subscription: one that has not begun is answered with the failure.
    pub(super) fn end_stream(&mut self, id: ConnectionId, failure: &Failure) {
        let Some(session) = self.desk.sessions.get(id) else { return };
        let Some(subscription) = session.subscription.take() else { return };
        if !subscription.is_begun {
            self.fail(id, subscription.delivery, failure);
        } else if !session.is_closing {
            session.is_closing = true;
            session.stash = Vec::new();
            if let Some(output) = self.connections.output(id) {
                subscription.stream.end(output.buffer());
            }
            self.connections.close(id);
        }
        self.desk.left.push(*subscription);
    }
}
