//! One core's loop: completions, mail and deadlines in, answers out, sleep.
//!
//! Invariants, each turn: what the driver completed is told before mail is read and before anything due happens; everything the turn
//! caused leaves with one submit and at most one wake a core; the executor gets a breath after every millisecond of work.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use mayfly_net::clock::Clock;
use mayfly_net::deadlines::{Deadlines, NEVER};
use mayfly_net::http::{self, CONTINUE, DateText, Decoded, Limits, Reader, Stage};
use mayfly_net::ring::{ConnectionId, Connections, Driver, Event, Output};
use mayfly_shards::{NodeBudget, Payload, Refusal, Shard, ShardIndex, Ticket, Time};

use super::departure::Departure;
use super::desk::{Clerk, Desk};
use super::drain::Drain;
use super::frame::Frame;
use super::gate::Gate;
use super::place::Placement;
use super::session::STASH_BYTES_MAX;
use super::transit::Transit;
use crate::api::Failure;
use crate::config::HttpConfig;
use crate::control::grants::Grants;
use crate::control::handover::Handover;
use crate::identity::Identities;
use crate::metrics::{Gauges, Ways};

/// Pieces of mail read in one turn.
const TURN_MAIL: usize = 256;
/// A tick of the connections' deadlines.
const TICK_NS: u64 = 50_000_000;
const TICK_COUNT: usize = 2_048;
/// How old the `date` of an answer may be.
const DATE_NS: u64 = 500_000_000;
/// A body that comes slower than this for longer than its grace is given up: bytes a second.
const BODY_BYTES_PER_SECOND_MIN: u64 = 1_024;
/// Requests of at most this many bytes, when they are all that a turn has to tell, have their answers sent at once: more are gathered.
const HURRIED_BYTES_MAX: usize = 1_024;
/// Answers that a client does not read: beyond, nothing more of its requests is carried out until it has read half of them.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// One core of the node: see the module.
pub(super) struct Core {
    pub(super) shard: Shard,
    pub(super) desk: Desk,
    pub(super) now: Time,
    pub(super) placement: Placement,
    pub(super) identities: Identities,
    pub(super) budget: Arc<NodeBudget>,
    pub(super) gate: Gate,
    /// The kill switch, as this core was told.
    pub(super) is_enabled: bool,
    pub(super) gauges: Arc<Gauges>,
    pub(super) tickets_given: u32,
    /// What tenants are granted.
    pub(super) grants: Arc<Grants>,
    /// Partitions on their way from here and to here; None: this node is alone.
    pub(super) handover: Option<Box<Handover>>,
    pub(super) is_handover_due: bool,
    /// What is left for the node's last word about them.
    pub(super) departure: Arc<Departure>,
    pub(super) drain: Option<Drain>,
    /// Commands sent to other cores, and to other nodes.
    pub(super) hops: u64,
    pub(super) forwards: u64,
    /// Requests that other nodes answer too, and when they are answered without those.
    pub(super) patience: BTreeSet<(Time, Ticket)>,
    /// Kept for its memory.
    pub(super) payloads: Vec<Payload>,
    transit: Transit,
    clock: Clock,
    limits: Limits,
    http: HttpConfig,
    has_tls: bool,
    deadlines: Deadlines,
    due: Vec<u32>,
    date_at: u64,
    pub(super) is_stopping: Arc<AtomicBool>,
    /// Cores that still have connections or something to hand over, counted down in the drain.
    pub(super) draining_count: Arc<AtomicUsize>,
    /// Kept for its memory.
    mail: Vec<(usize, Frame)>,
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "the parts of a core, made by `serve`")]
    pub(super) fn new(
        shard: Shard,
        desk: Desk,
        placement: Placement,
        identities: Identities,
        grants: Arc<Grants>,
        budget: Arc<NodeBudget>,
        gate: Gate,
        gauges: Arc<Gauges>,
        clock: Clock,
        http: HttpConfig,
        has_tls: bool,
        is_stopping: Arc<AtomicBool>,
        draining_count: Arc<AtomicUsize>,
        handover: Option<Box<Handover>>,
        departure: Arc<Departure>,
    ) -> Self {
        let limits = Limits { body_bytes: http.body_bytes_max, ..Limits::default() };
        Self {
            shard,
            desk,
            now: Time(clock.now_ns()),
            placement,
            identities,
            transit: Transit::new(Arc::clone(&budget)),
            budget,
            gate,
            is_enabled: true,
            gauges,
            tickets_given: 0,
            grants,
            handover,
            is_handover_due: false,
            departure,
            drain: None,
            hops: 0,
            forwards: 0,
            patience: BTreeSet::new(),
            payloads: Vec::new(),
            clock,
            limits,
            http,
            has_tls,
            deadlines: Deadlines::new(TICK_NS, TICK_COUNT),
            due: Vec::new(),
            date_at: 0,
            is_stopping,
            draining_count,
            mail: Vec::new(),
        }
    }

    /// Runs until the node stops.
    pub(super) async fn run(mut self, mut driver: Driver) {
        loop {
            self.now = Time(self.clock.now_ns());
            self.refresh_date();
            let turn = driver.turn(|connections, event| self.event(connections, event));
            self.now = Time(self.clock.now_ns());
            self.read_all_mail(driver.connections());
            self.let_time_pass(driver.connections());
            self.hand_on(driver.connections());
            self.follow_stop(&mut driver);
            self.tell_taken(driver.connections());
            self.transit.follow(driver.connections().unsent_bytes());
            self.desk.mesh.flush();
            if self.is_done(&mut driver) {
                break;
            }
            if turn.more {
                driver.breathe().await;
                continue;
            }
            self.publish_gauges();
            let until = self.next_deadline();
            let mesh = &self.desk.mesh;
            let may_stop = self.drain.is_none();
            let is_stopping = &self.is_stopping;
            driver.sleep(until, || mesh.has_mail() || (may_stop && is_stopping.load(Relaxed))).await;
        }
        self.report_end();
        self.publish_gauges();
    }

    fn event(&mut self, connections: &mut Connections, event: Event<'_>) {
        if self.placement.is_clustered() && self.link_event(connections, &event) {
            return;
        }
        match event {
            Event::Opened(id) => {
                self.desk.sessions.open(id);
                // A handshake may take no longer than a request's head.
                let is_secured = !self.has_tls;
                if self.sends_away() {
                    // Another core passed it here just now.
                    return self.close(connections, id);
                }
                self.expect_within(id, if is_secured { self.http.idle_timeout } else { Some(self.http.header_timeout) });
            }
            Event::Secured(id) => self.expect_within(id, self.http.idle_timeout),
            Event::Received(id, bytes) => self.received(connections, id, bytes),
            Event::HangUp(id) | Event::Finished(id) => self.finished(connections, id),
            Event::Failed(id) => self.lost(connections, id),
            Event::Sent { id, offset } => {
                if let Some(session) = self.desk.sessions.get(id) {
                    session.note_sent(offset, &mut self.desk.peers.taken);
                    if session.is_choked && unsent_bytes(connections, id) <= UNSENT_BYTES_MAX / 2 {
                        session.is_choked = false;
                        self.desk.answered.push(id);
                    }
                }
                if self.note_read(connections, id) {
                    self.settle(connections);
                }
                self.let_near(connections, id);
            }
            Event::Closed { id, sent, begun } => self.closed(connections, id, sent, begun),
            Event::Woken => {}
        }
        self.go_on(connections);
    }

    fn received(&mut self, connections: &mut Connections, id: ConnectionId, bytes: &[u8]) {
        let Some(session) = self.desk.sessions.get(id) else { return };
        if session.is_closing {
            return;
        }
        if session.stash.is_empty() && !session.must_wait() {
            let is_hurried = connections.is_calm() && bytes.len() <= HURRIED_BYTES_MAX;
            self.desk.may_hurry = is_hurried;
            self.read(connections, id, bytes);
            self.desk.may_hurry = false;
            if is_hurried {
                connections.send_now(id);
            }
            return;
        }
        session.stash.extend_from_slice(bytes);
        if session.stash.len() > STASH_BYTES_MAX && !session.is_paused {
            session.is_paused = true;
            connections.pause(id);
        }
    }

    /// Reads requests until one has to wait or the input is used up.
    fn read(&mut self, connections: &mut Connections, id: ConnectionId, mut input: &[u8]) {
        let Some(session) = self.desk.sessions.get(id) else { return };
        let mut reader = std::mem::take(&mut session.reader);
        self.note_progress(id, &reader, input.len());
        self.desk.reading = Some(id);
        loop {
            match reader.decode(&mut input, &self.limits) {
                Decoded::Incomplete => {
                    let held_bytes = reader.buffered_bytes();
                    if held_bytes > 0 && !self.hold(id, held_bytes) {
                        reader = Reader::default();
                        self.let_go(id);
                        self.clerk(connections).fail(id, http::Delivery::REFUSAL, &Failure::Refused(Refusal::NodeBytes));
                    }
                    break;
                }
                Decoded::Opened(head) => {
                    if let Err(failure) = self.admit(id, &head) {
                        let delivery = http::Delivery::of(&head).closing();
                        // Its body is not wanted: nothing of it is taken.
                        reader = Reader::default();
                        self.let_go(id);
                        self.clerk(connections).fail(id, delivery, &failure);
                    }
                }
                Decoded::Continue => {
                    if let Some(output) = connections.output(id) {
                        output.buffer().extend_from_slice(CONTINUE);
                    }
                }
                Decoded::Request(request) => {
                    // Deadlines count from the request, not from the turn's beginning.
                    self.now = Time(self.clock.now_ns());
                    self.let_go(id);
                    self.request(connections, id, &request);
                }
                Decoded::Refused(refused) => {
                    let delivery = match &refused {
                        http::Refused::BodyTooLarge(head) => http::Delivery::of(head).closing(),
                        _ => http::Delivery::REFUSAL,
                    };
                    self.clerk(connections).fail(id, delivery, &refused.into());
                    self.let_go(id);
                }
            }
            let Some(session) = self.desk.sessions.get(id) else { break };
            session.is_choked = unsent_bytes(connections, id) > UNSENT_BYTES_MAX;
            if session.must_wait() {
                reader.release();
                if !session.is_closing {
                    session.stash.extend_from_slice(input);
                }
                break;
            }
        }
        self.desk.reading = None;
        self.expect_next(id, &reader);
        if let Some(session) = self.desk.sessions.get(id) {
            session.reader = reader;
        }
    }

    /// Charges what an unfinished request holds. Whether there is room for it.
    fn hold(&mut self, id: ConnectionId, held_bytes: usize) -> bool {
        let Some(session) = self.desk.sessions.get(id) else { return true };
        let before = std::mem::replace(&mut session.held_bytes, held_bytes);
        self.transit.hold(before, held_bytes)
    }

    fn let_go(&mut self, id: ConnectionId) {
        if let Some(session) = self.desk.sessions.get(id) {
            self.transit.let_go(std::mem::take(&mut session.held_bytes));
        }
    }

    /// Connections whose answer came go on with what they had received meanwhile.
    pub(super) fn go_on(&mut self, connections: &mut Connections) {
        while let Some(id) = self.desk.answered.pop() {
            let Some(session) = self.desk.sessions.get(id) else { continue };
            if session.must_wait() {
                continue;
            }
            let stash = std::mem::take(&mut session.stash);
            if std::mem::take(&mut session.is_paused) {
                connections.resume(id);
            }
            self.read(connections, id, &stash);
            if self.desk.sessions.get(id).is_some_and(|session| session.is_finished) {
                // What lay before its FIN may have come to wait only now.
                self.finished(connections, id);
            }
        }
    }

    /// The client sent its last byte. A request that is being carried out is answered; a parked pop or call is given up.
    fn finished(&mut self, connections: &mut Connections, id: ConnectionId) {
        let Some(session) = self.desk.sessions.get(id) else { return };
        session.is_finished = true;
        // What is behind answers that the client has not read yet is carried out when it has.
        let is_carried_out = session.subscription.is_none()
            && (session.is_choked || session.pending.as_ref().is_some_and(|pending| pending.asked.parked_on().is_none()));
        if !session.is_closing && !is_carried_out {
            self.cancel_parked(connections, id);
            self.close(connections, id);
        }
    }

    /// The connection is dead: nothing can be sent any more.
    fn lost(&mut self, connections: &mut Connections, id: ConnectionId) {
        self.cancel_parked(connections, id);
        if let Some(session) = self.desk.sessions.get(id) {
            session.is_closing = true;
        }
    }

    /// Nothing more is read from a connection; it closes when its output was sent.
    pub(super) fn close(&mut self, connections: &mut Connections, id: ConnectionId) {
        if let Some(session) = self.desk.sessions.get(id) {
            session.is_closing = true;
            connections.close(id);
        }
    }

    fn closed(&mut self, connections: &mut Connections, id: ConnectionId, sent: u64, begun: u64) {
        self.cancel_parked(connections, id);
        self.deadlines.clear(id.slot());
        self.let_go(id);
        if let Some(mut session) = self.desk.sessions.close(id) {
            let unsent = session.take_unsent(sent, begun, &mut self.desk.peers.taken);
            self.desk.returns.extend(unsent);
            self.desk.left.extend(session.subscription.map(|subscription| *subscription));
            if let Some(pending) = session.pending {
                self.desk.adopt(pending);
            }
        }
        self.settle(connections);
    }

    fn read_all_mail(&mut self, connections: &mut Connections) {
        let mut mail = std::mem::take(&mut self.mail);
        self.desk.mesh.receive(TURN_MAIL, |from, frame| mail.push((from, frame)));
        for (from, frame) in mail.drain(..) {
            self.read_mail(connections, ShardIndex(from as u16), frame);
            self.go_on(connections);
        }
        self.mail = mail;
    }

    fn let_time_pass(&mut self, connections: &mut Connections) {
        if self.peers_due_at().is_some_and(|at| at <= self.now) {
            self.peers_due(connections);
            self.settle(connections);
            self.go_on(connections);
        }
        let now = self.now;
        if self.shard.next_deadline().is_some_and(|at| at <= now) {
            self.shard.expire(now, &mut Clerk { desk: &mut self.desk, connections });
            self.settle(connections);
            self.go_on(connections);
        }
        if self.deadlines.next_at().is_some_and(|at| at <= now.0) {
            let mut due = std::mem::take(&mut self.due);
            self.deadlines.expire(now.0, &mut due);
            for slot in due.drain(..) {
                self.connection_due(connections, slot as usize);
            }
            self.due = due;
        }
    }

    /// A connection stayed idle, or a request did not come on, for too long.
    fn connection_due(&mut self, connections: &mut Connections, slot: usize) {
        let Some(id) = self.desk.sessions.at(slot) else { return };
        let Some(session) = self.desk.sessions.get(id) else { return };
        if session.pending.is_some() || session.is_closing {
            return;
        }
        if session.reader.stage() == Stage::Idle {
            self.close(connections, id);
        } else {
            self.clerk(connections).fail(id, http::Delivery::REFUSAL, &Failure::RequestTimeout);
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let shard = self.shard.next_deadline().map(|at| at.0);
        let peers = self.peers_due_at().map(|at| at.0);
        let handover = self.handover.as_ref().and_then(|handover| handover.next_at()).map(|at| at.0);
        [shard, peers, handover, self.deadlines.next_at(), self.drain_at()].into_iter().flatten().min()
    }

    /// Notes when the request that `received` bytes belong to began, and how long its body may take from here. Bytes earn time, but
    /// never more than the grace: a body that came fast and then stops would otherwise hold its memory for hours.
    fn note_progress(&mut self, id: ConnectionId, reader: &Reader, received: usize) {
        let now = self.now.0;
        let grace_until = now + self.http.header_timeout.as_nanos() as u64;
        if let Some(session) = self.desk.sessions.get(id) {
            if reader.stage() == Stage::Idle {
                session.request_began_at = now;
                session.body_due_at = grace_until;
            }
            let earned_ns = (received as u64).saturating_mul(1_000_000_000 / BODY_BYTES_PER_SECOND_MIN);
            session.body_due_at = grace_until.min(session.body_due_at.saturating_add(earned_ns));
        }
    }

    /// Sets the deadline for what a connection has to do next.
    fn expect_next(&mut self, id: ConnectionId, reader: &Reader) {
        let Some(session) = self.desk.sessions.get(id) else { return };
        if session.pending.is_some() || session.is_closing {
            return self.deadlines.clear(id.slot());
        }
        match reader.stage() {
            Stage::Idle | Stage::Ended => self.expect_within(id, self.http.idle_timeout),
            Stage::Head => self.deadlines.set(id.slot(), session.request_began_at + self.http.header_timeout.as_nanos() as u64),
            Stage::Body => self.deadlines.set(id.slot(), session.body_due_at),
        }
    }

    /// A client whose events are written has to read them.
    pub(super) fn expect_read(&mut self, id: ConnectionId) {
        self.expect_within(id, self.http.idle_timeout);
    }

    /// A client has nothing to do but wait.
    pub(super) fn expect_nothing(&mut self, id: ConnectionId) {
        self.deadlines.clear(id.slot());
    }

    fn expect_within(&mut self, id: ConnectionId, timeout: Option<Duration>) {
        let due_at = timeout.map_or(NEVER, |timeout| self.now.0 + timeout.as_nanos() as u64);
        self.deadlines.set(id.slot(), due_at);
    }

    fn refresh_date(&mut self) {
        if self.now.0 >= self.date_at + DATE_NS {
            self.date_at = self.now.0;
            self.desk.date = DateText::new(SystemTime::now());
        }
    }

    /// Writes this core's gauges where any core can read them.
    pub(super) fn publish_gauges(&mut self) {
        self.desk.node_bytes = self.budget.bytes.used();
        let ways = Ways { hops: self.hops, forwards: self.forwards, wipes: self.desk.wipes };
        self.gauges.publish(usize::from(self.desk.core.0), &self.shard.gauges(), &ways);
    }
}

pub(super) fn unsent_bytes(connections: &Connections, id: ConnectionId) -> usize {
    connections.offsets(id).map_or(0, Output::unsent_bytes)
}
