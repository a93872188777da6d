//! One core's queues, and the single entrance for commands, letters and time.
//!
//! Invariants: before a command or letter is looked at, everything due by `now` has happened; a refused command left the state as it
//! was; effects come out in the order in which they happened.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::calls::{CallTerms, Calls};
use crate::claim::Claim;
use crate::command::{Command, OwnedCommand, Refusal};
use crate::deadlines::{Deadlines, Kind, Owner};
use crate::depart::Departures;
use crate::handover::Handover;
use crate::home::Op;
use crate::ledger::Ledger;
use crate::letter::{Deferred, Letter, Wanted};
use crate::link::{Link, MemberState, Membership};
use crate::name::{QueueName, Tenant};
use crate::options::Options;
use crate::outbox::{Answer, Outbox, Ticket};
use crate::placement::{ShardIndex, home_shard};
use crate::push::{PushRequest, WaitingPush};
use crate::queue::{Queue, QueueIndex};
use crate::queues::Queues;
use crate::ring::Ring;
use crate::tenant::NodeBudget;
use crate::tenants::Tenants;
use crate::time::{Span, Time};
use crate::waiters::Waiters;

/// What a shard is told once.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Which one it is.
    pub index: ShardIndex,
    /// Of how many.
    pub shard_count: u16,
    /// In force for undeclared queues.
    pub default_options: Options,
    /// After which an unused implicit queue without messages is collected; zero: never.
    pub implicit_idle: Span,
    /// After which an unused implicit queue with messages is collected; zero: never.
    pub abandoned: Span,
    /// After which a dormant group may be forgotten to make room; zero: never.
    pub group_idle: Span,
    /// Of the node.
    pub budget: Arc<NodeBudget>,
    /// Keys the hash of names, so that clients cannot aim at one bucket: random, from the caller.
    pub hash_seed: u64,
}

/// Totals and gauges of one shard, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardGauges {
    /// Messages pushed.
    pub pushed: u64,
    /// Messages delivered, redeliveries included.
    pub popped: u64,
    /// Messages settled by an ack or at delivery.
    pub acked: u64,
    /// Messages given back for redelivery.
    pub redelivered: u64,
    /// Acks of another delivery.
    pub stale: u64,
    /// Messages that went to other nodes.
    pub handed_over: u64,
    /// Messages that came from other nodes.
    pub adopted: u64,
    /// Messages dropped, by `DropCause::ALL`.
    pub dropped: [u64; crate::command::DropCause::ALL.len()],
    /// Queue parts.
    pub queues: u64,
    /// Parked pops.
    pub waiters: u64,
    /// Calls waiting for their answer.
    pub calls: u64,
    /// Armed deadlines.
    pub deadlines: u64,
}

/// How a command comes to be run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// It waited for other cores before, and has spent its rate.
    pub(crate) is_resumed: bool,
    /// A pop's: since when it waits.
    pub(crate) since: Option<Time>,
}

/// See the crate.
pub struct Shard {
    pub(crate) config: ShardConfig,
    pub(crate) default_options: Arc<Options>,
    pub(crate) queues: Queues,
    pub(crate) tenants: Tenants,
    pub(crate) ledger: Ledger,
    pub(crate) waiters: Waiters,
    pub(crate) calls: Calls,
    pub(crate) deadlines: Deadlines,
    /// Numbers given so far, to messages of any ring.
    pub(crate) seqs_given: u64,
    pub(crate) generations_given: u64,
    pub(crate) ops: BTreeMap<u64, Op>,
    pub(crate) claims: BTreeMap<u64, Claim>,
    pub(crate) conversations_begun: u64,
    pub(crate) waiting_pushes: BTreeMap<Ticket, WaitingPush>,
    /// Commands that wait for other cores, a pop's with since when it waits; one whose client hung up is taken out.
    pub(crate) deferred: BTreeMap<Ticket, Option<Time>>,
    pub(crate) departures: Departures,
    pub(crate) handover: Handover,
    /// The kill switch: see `switch`.
    pub(crate) is_enabled: bool,
}

impl Shard {
    /// An empty shard.
    #[must_use]
    pub fn new(config: ShardConfig) -> Self {
        Self {
            default_options: Arc::new(config.default_options),
            queues: Queues::new(config.hash_seed),
            tenants: Tenants::new(Arc::clone(&config.budget), config.hash_seed),
            ledger: Ledger::new(Arc::clone(&config.budget)),
            waiters: Waiters::new(),
            calls: Calls::new(),
            deadlines: Deadlines::default(),
            seqs_given: 0,
            generations_given: 0,
            ops: BTreeMap::new(),
            claims: BTreeMap::new(),
            conversations_begun: 0,
            waiting_pushes: BTreeMap::new(),
            deferred: BTreeMap::new(),
            departures: Departures::default(),
            handover: Handover::default(),
            is_enabled: true,
            config,
        }
    }

    /// Carries out one command. Its answer comes through `out`, now or, for a waiting pop or one that other cores have to agree to,
    /// in a later call.
    pub fn step(&mut self, now: Time, ticket: Ticket, command: Command<'_>, out: &mut impl Outbox) {
        self.expire(now, out);
        self.run(now, ticket, command, Standing::default(), out);
    }

    /// The same for a command that was answered `Moved` elsewhere: a pop stands where it would if it had waited here since then.
    pub fn step_since(&mut self, now: Time, ticket: Ticket, command: Command<'_>, since: Time, out: &mut impl Outbox) {
        self.expire(now, out);
        self.run(now, ticket, command, Standing { is_resumed: false, since: Some(since) }, out);
    }

    /// Whether a tenant may use the family: the caller asks before it gives commands, since one request may be several.
    pub fn admits(&mut self, tenant: Tenant) -> bool {
        self.tenants.admits(tenant)
    }

    pub(crate) fn run(&mut self, now: Time, ticket: Ticket, command: Command<'_>, standing: Standing, out: &mut impl Outbox) {
        if command.gated_tenant().is_some_and(|tenant| !self.tenants.admits(tenant)) {
            return self.refuse(ticket, Refusal::NotGranted, out);
        }
        let Some(command) = self.detour(now, ticket, command, standing, out) else { return };
        let is_resumed = standing.is_resumed;
        match command {
            Command::Push { tenant, queue, partition, payloads } => {
                self.push(now, PushRequest { ticket, tenant, queue, partition, payloads, call: None }, is_resumed, out);
            }
            Command::Call { tenant, queue, partition, payloads, until, fail_fast } => {
                let call = Some(CallTerms { until, fail_fast });
                self.push(now, PushRequest { ticket, tenant, queue, partition, payloads, call }, is_resumed, out);
            }
            Command::Reply { tenant, items } => self.reply(now, ticket, tenant, items, out),
            Command::Pop { .. } => self.pop(now, ticket, command, standing.since, out),
            Command::Ack { .. } => self.ack(now, ticket, command, out),
            Command::Leave { tenant, queue, group } => self.leave(now, tenant, queue, group),
            Command::Configure { .. } => self.configure(now, ticket, command, out),
            Command::Undeclare { .. } => self.undeclare(now, ticket, command, out),
            Command::Reset { .. } => self.reset(now, ticket, command, out),
            Command::Delete { .. } => self.delete(now, ticket, command, out),
            Command::List { tenant, prefix, after, limit } => {
                let rows = self.list(tenant, prefix, after, limit);
                out.answer(ticket, Answer::Listed(rows));
            }
            Command::Depth { tenant, queue, group } => {
                let report = self.depth(tenant, queue, group);
                out.answer(ticket, Answer::Depth(report));
            }
        }
    }

    /// The client of a waiting pop or a call hung up: it is forgotten at once and takes nothing.
    pub fn cancel(&mut self, now: Time, ticket: Ticket, out: &mut impl Outbox) {
        self.expire(now, out);
        if let Some(waiter) = self.waiters.find(ticket) {
            return self.cancel_waiter(now, waiter, out);
        }
        if let Some(call) = self.calls.find(ticket) {
            return self.cancel_call(now, call);
        }
        let is_claiming = self.cancel_claim(ticket);
        if !is_claiming && !self.abandon_push(ticket) && self.deferred.remove(&ticket).is_none() {
            self.forget_held_back(ticket);
        }
    }

    /// When [`Shard::expire`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        [self.deadlines.next(), self.departures.next_at(), self.tenants.next_deadline(), self.handover.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Lets everything due by `now` happen: first what drops messages or brings them back, so that what comes back together is given
    /// together and nothing expired is delivered; then calls that end, and take back what nobody took; then pops that end; then
    /// private groups whose subscriber left; then collection; then tenants that nothing is left of.
    pub fn expire(&mut self, now: Time, out: &mut impl Outbox) {
        let mut touched: SmallVec<[QueueIndex; 4]> = SmallVec::new();
        while let Some(Owner::Ring(queue, ring)) = self.deadlines.pop_due(Kind::Ring, now) {
            if self.ring_due(now, queue, ring) && !touched.contains(&queue) {
                touched.push(queue);
            }
        }
        while let Some(Owner::Call(call)) = self.deadlines.pop_due(Kind::Call, now) {
            self.call_due(now, call, out);
        }
        for queue in touched {
            self.wake_all(now, queue, out);
        }
        while let Some(Owner::Waiter(waiter)) = self.deadlines.pop_due(Kind::Waiter, now) {
            self.waiter_due(now, waiter, out);
        }
        self.arrivals_due(now, out);
        while let Some(departure) = self.departures.pop_due(now) {
            self.forget_departed(now, departure, out);
        }
        while let Some(Owner::Queue(queue)) = self.deadlines.pop_due(Kind::Queue, now) {
            self.queue_due(now, queue, out);
        }
        self.tenants.expire(now);
    }

    /// Totals and gauges.
    #[must_use]
    pub fn gauges(&self) -> ShardGauges {
        let Ledger { pushed, popped, acked, redelivered, stale, handed_over, adopted, dropped, .. } = &self.ledger;
        ShardGauges {
            pushed: *pushed,
            popped: *popped,
            acked: *acked,
            redelivered: *redelivered,
            stale: *stale,
            handed_over: *handed_over,
            adopted: *adopted,
            dropped: *dropped,
            queues: self.queues.len() as u64,
            waiters: self.waiters.len() as u64,
            calls: self.calls.len() as u64,
            deadlines: self.deadlines.len() as u64,
        }
    }

    /// A seq above every one that this shard gave, and not above any that it will give.
    pub(crate) fn end_seq(&self) -> u64 {
        crate::seq::nth(self.seqs_given + 1, ShardIndex(0), self.config.shard_count, false)
    }

    /// Whether this shard is the home of a queue.
    pub(crate) fn is_home_of(&self, tenant: Tenant, queue: &str) -> bool {
        self.home_of(tenant, queue) == self.config.index
    }

    pub(crate) fn home_of(&self, tenant: Tenant, queue: &str) -> ShardIndex {
        home_shard(tenant, queue, self.config.shard_count)
    }

    pub(crate) fn begin_conversation(&mut self) -> u64 {
        self.conversations_begun += 1;
        self.conversations_begun
    }

    /// A new generation, greater than any that this home gave.
    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generations_given += 1;
        self.generations_given
    }

    /// Charges for a queue that a pop makes, and makes it.
    pub(crate) fn create_queue(&mut self, tenant: Tenant, name: &str, now: Time) -> Result<QueueIndex, Refusal> {
        let budget = self.tenants.obtain(tenant).ok_or(Refusal::TooManyTenants)?;
        self.ledger.budget.charge_queue(budget)?;
        Ok(self.insert_queue(tenant, name, now))
    }

    /// Makes a queue, already charged; one that only parked pops kept begins anew.
    pub(crate) fn insert_queue(&mut self, tenant: Tenant, name: &str, now: Time) -> QueueIndex {
        let index = match self.queues.find(tenant, name) {
            Some(index) => index,
            None => {
                let generation = self.next_generation();
                let budget = Arc::clone(self.tenants.charged(tenant));
                self.queues.insert(Queue::new(budget, name.into(), generation, Arc::clone(&self.default_options), now))
            }
        };
        let queue = self.queues.get_mut(index);
        queue.exists = true;
        queue.used_at = now;
        for _ in 0..queue.rings.count() {
            queue.counters.open_partition(u64::MAX);
        }
        self.arm_queue(now, index);
        index
    }

    /// This shard's part of a queue whose home is another: asks for it where there is none, and keeps `work` until the home answered.
    pub(crate) fn join(&mut self, now: Time, name: &QueueName, work: Deferred, since: Option<Time>, wanted: Wanted, out: &mut impl Outbox) {
        let home = self.home_of(name.tenant, &name.name);
        let index = match self.queues.find(name.tenant, &name.name) {
            Some(index) => index,
            None => {
                let budget = match wanted.adopted {
                    Some(_) => Some(self.tenants.agreed(name.tenant)),
                    None => self.tenants.obtain(name.tenant),
                };
                let Some(budget) = budget.cloned() else { return self.refuse_work(work, out) };
                let mut queue = Queue::new(budget, Arc::clone(&name.name), 0, Arc::clone(&self.default_options), now);
                queue.exists = false;
                queue.link = Link::Member(Box::new(Membership {
                    home,
                    state: MemberState::Vacant,
                    deferred: Default::default(),
                    registering: Vec::new(),
                }));
                self.queues.insert(queue)
            }
        };
        let queue = self.queues.get_mut(index);
        let Link::Member(membership) = &mut queue.link else { unreachable!("the home is another shard") };
        let asks = membership.state == MemberState::Vacant;
        membership.state = if asks { MemberState::Joining } else { membership.state };
        if let Deferred::Command(ticket, _) = &work {
            self.deferred.insert(*ticket, since);
        }
        membership.deferred.push_back(work);
        if asks {
            out.send(home, Letter::Join { queue: name.clone(), wanted });
        }
    }

    /// There is no room for one more tenant.
    fn refuse_work(&self, work: Deferred, out: &mut impl Outbox) {
        if let Deferred::Command(ticket, _) = work {
            self.refuse(ticket, Refusal::TooManyTenants, out);
        }
    }

    /// Keeps a command until the word that its queue waits for came.
    pub(crate) fn defer(&mut self, index: QueueIndex, ticket: Ticket, command: OwnedCommand, since: Option<Time>) {
        self.queues.get_mut(index).link.defer(Deferred::Command(ticket, command));
        self.deferred.insert(ticket, since);
    }

    /// Runs what was deferred.
    pub(crate) fn resume(&mut self, now: Time, work: impl IntoIterator<Item = Deferred>, out: &mut impl Outbox) {
        for work in work {
            match work {
                Deferred::Command(ticket, command) => {
                    if let Some(since) = self.deferred.remove(&ticket) {
                        let standing = Standing { is_resumed: true, since };
                        command.lend(|command| self.run(now, ticket, command, standing, out));
                    }
                }
                Deferred::Letter(from, letter) => self.read(now, from, letter, out),
            }
        }
    }

    /// Takes an entry away that nothing keeps any more, if it has not gone already.
    pub(crate) fn reap(&mut self, index: QueueIndex, out: &mut impl Outbox) {
        let Some(queue) = self.queues.find_at(index) else { return };
        let is_kept = match &queue.link {
            Link::Alone => false,
            Link::Home(directory) => directory.busy_count > 0 || !directory.deferred.is_empty() || !directory.members.is_empty(),
            Link::Member(membership) => {
                membership.state != MemberState::Vacant || !membership.deferred.is_empty() || !membership.registering.is_empty()
            }
        };
        if queue.exists || is_kept || queue.waiting_count() > 0 {
            return;
        }
        let mut queue = self.queues.remove(index);
        // It may have been the last that kept its tenant.
        self.tenants.find(queue.tenant());
        self.deadlines.disarm(Kind::Queue, &mut queue.deadline);
        for (_, ring) in queue.rings.iter_mut() {
            self.deadlines.disarm(Kind::Ring, &mut ring.deadline);
        }
        if let Link::Member(membership) = &queue.link {
            out.send(membership.home, Letter::Left { queue: queue.full_name() });
        }
    }

    /// The partition, made if there is none. The caller has checked that there is room for it.
    pub(crate) fn open_ring(&mut self, index: QueueIndex, partition: &str, now: Time) -> crate::queue::RingIndex {
        let names = &self.queues.names;
        let queue = self.queues.queues.get_mut(index);
        if let Some(ring) = queue.rings.find(partition) {
            return ring;
        }
        queue.counters.open_partition(u64::MAX);
        queue.rings.add(Ring::new(names.partition(partition), now))
    }

    pub(crate) fn refuse(&self, ticket: Ticket, refusal: Refusal, out: &mut impl Outbox) {
        out.answer(ticket, Answer::Refused(refusal));
    }
}
