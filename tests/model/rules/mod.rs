//! The rules of SPEC.md, as naively as they can be written: lists and scans, everything recomputed, nothing cached.
//!
//! Written from SPEC.md alone. It covers one shard that holds everything. A command that may be refused is carried out on the model
//! itself and undone by restoring a copy, so "what is refused leaves no trace" holds by construction. Where SPEC.md leaves a choice,
//! the choice is marked CHOICE beside the code.

mod call;
mod clock;
mod grant;
mod moving;
mod pop;
mod push;
mod queue;
mod rate;
mod settle;
mod status;

use std::collections::BTreeSet;

use mayfly_shards::{
    Allowance, Answer, DEPARTURE_SPAN, DropCause, GROUPS_MAX, MESSAGE_OVERHEAD_BYTES, Options, QUEUE_OVERHEAD_BYTES, Refusal, Span, Tenant,
    Time, WAITER_OVERHEAD_BYTES,
};

use crate::facts::{Ask, Fact, Name, Said};
use call::Call;
use pop::{Handed, Waiter};
use queue::{Group, Queue};
use rate::Bucket;

/// What the node was started with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// In force for queues that nobody declared.
    pub(crate) defaults: Options,
    /// 0: never.
    pub(crate) implicit_idle: Span,
    /// 0: never.
    pub(crate) group_idle: Span,
    /// 0: never.
    pub(crate) abandoned: Span,
    /// Bound of the node.
    pub(crate) node_bytes: u64,
    /// Of every tenant without a grant.
    pub(crate) allowance: Allowance,
}

/// The state of one node with one shard.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    settings: Settings,
    now: Time,
    /// Counts lives of queues and groups, so that what belonged to an earlier one is recognised.
    lives: u64,
    queues: Vec<Queue>,
    /// Parked pops, longest parked first.
    waiters: Vec<Waiter>,
    calls: Vec<Call>,
    /// Calls that ended after their request had moved: the request, and when the call would have timed out.
    left_behind: Vec<(u64, Time)>,
    /// Private groups whose subscriber left: when they go, of which queue.
    departures: Vec<(Time, Name, String)>,
    /// Every message that a call pushed.
    call_requests: BTreeSet<u64>,
    buckets: Vec<Bucket>,
    grants: Vec<(Tenant, Allowance)>,
    /// Pushed and delivered since the start, one entry for each time.
    pushed: Vec<(Tenant, u64)>,
    delivered: Vec<(Tenant, u64)>,
    /// Dropped by cause, beside what the queues that exist have counted themselves.
    ended: [u64; DropCause::ALL.len()],
    /// Deliveries that may yet be taken back.
    handed: Vec<Handed>,
    /// When the windows that are open now close by `ms`.
    windows_close_at: Vec<Time>,
    said: Vec<Fact>,
    /// The kill switch.
    is_enabled: bool,
}

impl Model {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Time(0),
            lives: 0,
            queues: vec![],
            waiters: vec![],
            calls: vec![],
            left_behind: vec![],
            departures: vec![],
            call_requests: BTreeSet::new(),
            buckets: vec![],
            grants: vec![],
            pushed: vec![],
            delivered: vec![],
            ended: [0; DropCause::ALL.len()],
            handed: vec![],
            windows_close_at: vec![],
            said: vec![],
            is_enabled: true,
        }
    }

    /// One command at `now`. CHOICE: it meets the state as if every deadline up to and including `now` had been carried out.
    pub(crate) fn ask(&mut self, now: Time, ticket: u64, ask: &Ask) -> Vec<Fact> {
        self.reach(now);
        if grant::needed(ask).is_some_and(|tenant| !self.allowance(tenant).is_enabled) {
            self.answer(ticket, Answer::Refused(Refusal::NotGranted));
            return self.finish();
        }
        match ask {
            Ask::Grant { tenant, allowance } => self.grant(*tenant, *allowance),
            Ask::Push { queue, partition, messages } => self.push(ticket, queue, partition, messages),
            Ask::Pop { .. } => self.pop(ticket, ask),
            Ask::Call { queue, partition, request, until, fail_fast } => self.call(ticket, queue, partition, *request, *until, *fail_fast),
            Ask::Reply { tenant, items } => self.reply(ticket, *tenant, items),
            Ask::Ack { queue, group, items } => self.ack(ticket, queue, group, items),
            Ask::Configure { queue, options } => self.configure(ticket, queue, *options),
            Ask::Undeclare { queue } => self.undeclare(ticket, queue),
            // CHOICE: no use of the queue.
            Ask::Leave { queue, group } => self.departures.push((now + DEPARTURE_SPAN, queue.clone(), group.clone())),
            Ask::Reset { queue } => self.reset(ticket, queue),
            Ask::Delete { queue, is_overtaken } => self.delete(ticket, queue, *is_overtaken),
            Ask::List { tenant, prefix, after, limit } => {
                let rows = self.list(*tenant, prefix, after, *limit);
                self.answer(ticket, Answer::Listed(rows));
            }
            Ask::Depth { queue, group } => {
                let report = self.depth(queue, group.as_deref());
                self.answer(ticket, Answer::Depth(report));
            }
        }
        self.finish()
    }

    /// The client of a parked pop or call is gone: it is forgotten, nothing is said.
    pub(crate) fn cancel(&mut self, now: Time, ticket: u64) -> Vec<Fact> {
        self.reach(now);
        self.waiters.retain(|w| w.ticket != ticket);
        self.hang_up_call(ticket);
        self.serve_waiters();
        self.finish()
    }

    /// The kill switch: while it is off nothing is delivered, and all else goes on.
    pub(crate) fn switch(&mut self, now: Time, is_enabled: bool) -> Vec<Fact> {
        self.reach(now);
        self.is_enabled = is_enabled;
        self.serve_waiters();
        self.finish()
    }

    /// Everything due up to `now` happens.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<Fact> {
        self.reach(now);
        self.finish()
    }

    /// Bytes charged to the node.
    pub(crate) fn used_bytes(&self) -> u64 {
        let queues = self.queues.iter().filter(|q| q.exists);
        let held: u64 = queues.map(|q| QUEUE_OVERHEAD_BYTES + q.bytes() + q.messages.len() as u64 * MESSAGE_OVERHEAD_BYTES).sum();
        held + (self.waiters.len() + self.calls.len()) as u64 * WAITER_OVERHEAD_BYTES
    }

    /// Messages dropped since the start, by cause.
    pub(crate) fn dropped(&self) -> [u64; DropCause::ALL.len()] {
        let mut all = self.ended;
        self.queues.iter().for_each(|q| (0..3).for_each(|cause| all[cause] += q.drops[cause]));
        all
    }

    /// Calls that wait.
    pub(crate) fn call_count(&self) -> u64 {
        self.calls.len() as u64
    }

    /// A queue is about to be forgotten with all it knew.
    fn write_off(&mut self, at: usize, cause: DropCause) {
        let queue = &self.queues[at];
        (0..3).for_each(|cause| self.ended[cause] += queue.drops[cause]);
        self.ended[cause as usize] += queue.messages.len() as u64;
    }

    /// Whether more was charged than the node may hold. Equal is allowed.
    fn is_over_node_bytes(&self) -> bool {
        self.used_bytes() > self.settings.node_bytes
    }

    fn answer(&mut self, ticket: u64, answer: Answer) {
        self.said.push(Fact { ticket, said: Said::Answer(answer) });
    }

    fn finish(&mut self) -> Vec<Fact> {
        self.note_busy();
        self.forget_ghosts();
        std::mem::take(&mut self.said)
    }

    fn new_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    /// The queue's index, if anything is known of it: it exists, or pops stayed parked over its deletion.
    fn find(&self, name: &Name) -> Option<usize> {
        self.queues.iter().position(|q| q.name == *name)
    }

    fn find_existing(&self, name: &Name) -> Option<usize> {
        self.find(name).filter(|&at| self.queues[at].exists)
    }

    /// The queue's index, made if it does not exist. A queue made over parked pops has their groups already.
    fn make(&mut self, name: &Name) -> usize {
        let at = self.find(name).unwrap_or_else(|| {
            let life = self.new_life();
            self.queues.push(Queue::new(name.clone(), life, self.settings.defaults));
            self.queues.len() - 1
        });
        self.queues[at].exists = true;
        self.queues[at].used_at = self.now;
        at
    }

    /// Makes the group known to the queue: it starts at the oldest message held.
    fn register(&mut self, at: usize, group: &str) -> Result<(), Refusal> {
        if self.queues[at].group(group).is_none() {
            if self.queues[at].groups.len() >= GROUPS_MAX {
                return Err(Refusal::TooManyGroups);
            }
            let life = self.new_life();
            let queue = &mut self.queues[at];
            let fresh = Group::new(group, life, &queue.messages);
            queue.groups.push(fresh);
        }
        Ok(())
    }

    fn configure(&mut self, ticket: u64, name: &Name, options: Options) {
        let before = self.clone();
        let is_new = self.find_existing(name).is_none();
        if let Err(refusal) = self.check_tenant(name, 0, 0) {
            return self.answer(ticket, Answer::Refused(refusal));
        }
        let at = self.make(name);
        // CHOICE: a configure that makes a queue is charged like any other and may be refused for the node's bytes.
        if is_new && self.is_over_node_bytes() {
            *self = before;
            return self.answer(ticket, Answer::Refused(Refusal::NodeBytes));
        }
        self.queues[at].declared = true;
        self.queues[at].options = options;
        self.answer(ticket, Answer::Configured);
        // A shorter ttl and another window hold at once. Leases keep the length they were given.
        self.drop_expired(self.now);
        self.serve_waiters();
    }

    fn undeclare(&mut self, ticket: u64, name: &Name) {
        self.answer(ticket, Answer::Undeclared);
        let Some(at) = self.find_existing(name).filter(|&at| self.queues[at].declared) else { return };
        self.queues[at].declared = false;
        self.queues[at].options = self.settings.defaults;
        // CHOICE: it counts as a use.
        self.queues[at].used_at = self.now;
        self.drop_expired(self.now);
        self.serve_waiters();
    }

    fn reset(&mut self, ticket: u64, name: &Name) {
        let Some(at) = self.find_existing(name) else { return self.answer(ticket, Answer::Reset(0)) };
        let dropped = self.drop_contents(at, DropCause::Reset);
        self.answer(ticket, Answer::Reset(dropped));
        self.serve_waiters();
    }

    fn drop_contents(&mut self, at: usize, cause: DropCause) -> u64 {
        let life = self.new_life();
        let queue = &mut self.queues[at];
        let dropped = queue.messages.len() as u64;
        self.ended[cause as usize] += dropped;
        queue.messages.clear();
        queue.settled.clear();
        queue.groups.iter_mut().for_each(|g| g.states.clear());
        // CHOICE: an answer under way at a reset does not come back after it (a new life voids it).
        queue.life = life;
        queue.used_at = self.now;
        dropped
    }

    fn delete(&mut self, ticket: u64, name: &Name, is_overtaken: bool) {
        let Some(at) = self.find_existing(name) else {
            return self.answer(ticket, Answer::Deleted { deleted: false, declared: false });
        };
        let declared = self.queues[at].declared;
        if declared && is_overtaken {
            self.drop_contents(at, DropCause::Deleted);
            self.answer(ticket, Answer::Deleted { deleted: true, declared });
            return self.serve_waiters();
        }
        let life = self.new_life();
        self.write_off(at, DropCause::Deleted);
        self.queues[at] = Queue::new(name.clone(), life, self.settings.defaults);
        let groups: Vec<String> = self.waiters.iter().filter(|w| w.queue == *name).map(|w| w.group.clone()).collect();
        for group in groups {
            // CHOICE: these groups stay known as long as any pop is parked on the deleted queue.
            let registered = self.register(at, &group);
            assert!(registered.is_ok(), "no more groups than before");
        }
        self.answer(ticket, Answer::Deleted { deleted: true, declared });
        self.serve_waiters();
    }

    /// A deleted queue of which nothing but parked pops was left, and now not even those.
    fn forget_ghosts(&mut self) {
        let waiters = &self.waiters;
        self.queues.retain(|q| q.exists || waiters.iter().any(|w| w.queue == q.name));
    }
}
