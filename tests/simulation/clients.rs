//! Clients that do anything at any time, from a seed.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_shards::{
    AckItem, Allowance, Command, Options, Payload, Policy, QUEUE_MODE, ReplyItem, ShardIndex, Span, Tenant, Ticket, Time, Verdict,
    WindowBuffer, home_shard, inbox_shard, shard_of,
};

use crate::debts::Debts;
use crate::habits::{DEFAULTS, Habits};
use crate::hearing::HOPS;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::world::{Got, World};

pub(crate) const QUEUES: [&str; 2] = ["orders", "inbox"];
/// Each on a core of its own where there are four.
const PARTITIONS: [&str; 4] = ["Default", "a", "d", "r"];
pub(crate) const GROUPS: [&str; 3] = [QUEUE_MODE, "g", "h"];
pub(crate) const TENANTS: [Tenant; 2] = [Tenant::DEFAULT, Tenant(2)];

/// Each queue is another tenant's.
pub(crate) fn tenant_of(queue: &str) -> Tenant {
    if queue == QUEUES[0] { TENANTS[0] } else { TENANTS[1] }
}

/// The number of no message.
const NOBODYS: u64 = u64::MAX;

/// What a ticket waits for.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Push {
        queue: &'static str,
        payloads: Vec<u64>,
        groups: Vec<&'static str>,
        epoch: Option<u64>,
    },
    Pop(Pop),
    Call(Call),
    /// An answer to the request of this number, to its inbox.
    Reply {
        request: u64,
    },
    Ack {
        queue: &'static str,
        group: &'static str,
        items: Vec<(u64, u32, Verdict)>,
        asked_at: Time,
    },
    /// Reset, delete.
    Change {
        queue: &'static str,
        asked_at: Time,
    },
    Configure,
}

#[derive(Clone, Debug)]
pub(crate) struct Pop {
    pub(crate) at: usize,
    pub(crate) of: ShardIndex,
    pub(crate) queue: &'static str,
    pub(crate) partition: Option<&'static str>,
    pub(crate) group: &'static str,
    pub(crate) batch: u32,
    pub(crate) auto_ack: bool,
    pub(crate) asked_at: Time,
    pub(crate) until: Option<Time>,
    pub(crate) epoch: Option<u64>,
    pub(crate) is_cancelled: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) at: usize,
    pub(crate) of: ShardIndex,
    pub(crate) queue: &'static str,
    pub(crate) partition: &'static str,
    pub(crate) payload: u64,
    pub(crate) asked_at: Time,
    pub(crate) until: Time,
    pub(crate) cancelled_at: Option<Time>,
}

/// A delivery that a client may ack.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) queue: &'static str,
    pub(crate) group: &'static str,
    pub(crate) got: Got,
}

/// One run.
pub(crate) struct Clients {
    pub(crate) world: World,
    pub(crate) random: Random,
    pub(crate) oracle: Oracle,
    pub(crate) debts: Debts,
    pub(crate) expected: BTreeMap<Ticket, Expected>,
    pub(crate) held: Vec<Held>,
    /// Requests that somebody was given: the inbox of each, its message, and its queue.
    pub(crate) requests: Vec<(u64, u64, &'static str)>,
    /// Every message that a call pushed.
    pub(crate) called: BTreeSet<u64>,
    pub(crate) habits: Habits,
    /// Messages taken back after they were settled: exempt from bounds.
    pub(crate) returned: u64,
    sits_near: bool,
    tickets_given: u64,
    payloads_given: u64,
}

impl Clients {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, 1);
        let habits = Habits::new(&mut random);
        let shard_count = random.pick(&[1, 2, 3, 4]);
        Self {
            world: World::new(shard_count, &habits, Random::stream(seed, 2)),
            random,
            oracle: Oracle::default(),
            debts: Debts::default(),
            expected: BTreeMap::new(),
            held: Vec::new(),
            requests: Vec::new(),
            called: BTreeSet::new(),
            habits,
            returned: 0,
            sits_near: false,
            tickets_given: 0,
            payloads_given: 0,
        }
    }

    /// Does `count` things, then lets everything come to rest and checks that nothing was lost, kept or left behind.
    pub(crate) fn run(mut self, count: usize) {
        for _ in 0..count {
            self.act();
            let pause = match self.random.below(10) {
                0..9 if self.habits.is_crowded => Span(self.random.below(30_000)),
                0..5 => Span(self.random.below(20_000)),
                5..9 => Span(self.random.below(3_000_000)),
                _ => Span::from_millis(self.random.below(4_000)),
            };
            let mut until = self.world.now + pause;
            if self.random.chance(10)
                && let Some(at) = self.world.next_event().filter(|at| *at < self.world.now + Span::from_secs(25))
            {
                // While what time does is being done.
                until = until.max(at + Span(self.random.below(3_000_000)));
            }
            self.world.run_until(until);
            self.hear();
            if self.random.chance(20) {
                self.come_to_rest();
                self.check_nobody_sleeps_on_something();
                self.check_bounds();
            }
        }
        self.finish();
    }

    fn act(&mut self) {
        match self.random.below(100) {
            0..10 if self.habits.calls => self.call(),
            10..20 if self.habits.calls => self.reply(),
            0..35 => self.push(),
            35..65 => self.pop(),
            65..85 => self.ack(),
            85..92 => self.hang_up(),
            92..94 if self.habits.grants => self.grant(),
            92..94 if self.habits.is_crowded => self.snatch(QUEUES[0]),
            94..96 if self.habits.is_crowded => self.decoy(),
            94..96 if self.habits.is_tight => self.crush(),
            92..96 if self.habits.changes => self.change(),
            96..98 => self.configure(),
            98 => self.switch(),
            _ => self.push(),
        }
    }

    /// The kill switch, off and on, shard after shard: nothing is delivered between, and nobody sleeps on because of it.
    fn switch(&mut self) {
        self.turn_all(false);
        self.come_to_rest();
        let delivered = self.world.sum(|gauges| gauges.popped);
        for _ in 0..self.random.below(6) {
            match self.random.below(4) {
                0 | 1 => self.push(),
                2 => self.pop(),
                _ => self.ack(),
            }
            let pause = Span(self.random.below(300_000_000));
            self.pass(pause);
        }
        self.come_to_rest();
        assert_eq!(self.world.sum(|gauges| gauges.popped), delivered, "delivered while it was switched off");
        self.turn_all(true);
        self.come_to_rest();
        self.check_nobody_sleeps_on_something();
    }

    fn turn_all(&mut self, is_enabled: bool) {
        let count = usize::from(self.world.shard_count());
        let first = self.any_core();
        for step in 0..count {
            self.world.turn((first + step) % count, is_enabled);
            let pause = Span(self.random.below(100_000));
            self.pass(pause);
        }
    }

    fn any_queue(&mut self) -> &'static str {
        if self.habits.is_crowded { QUEUES[0] } else { self.random.pick(&QUEUES) }
    }

    fn any_group(&mut self) -> &'static str {
        if self.habits.is_crowded && self.random.chance(80) { GROUPS[0] } else { self.random.pick(&GROUPS) }
    }

    /// Notes that a client uses a queue, or a group of it: has asked, or for certain, was answered.
    pub(crate) fn use_queue(&mut self, queue: &'static str, group: Option<&'static str>, at: Time, is_certain: bool) {
        let idle = (self.habits.idle, self.habits.group_idle());
        if self.debts.used(queue, group, idle, at, is_certain) {
            self.oracle.forget(queue, group.unwrap_or_default());
        }
    }

    pub(crate) fn ticket(&mut self, expected: Expected) -> Ticket {
        self.tickets_given += 1;
        let ticket = Ticket(self.tickets_given);
        self.expected.insert(ticket, expected);
        ticket
    }

    /// Where a client sits that asks the shard `of`.
    fn seat(&mut self, of: ShardIndex) -> usize {
        if self.sits_near { usize::from(of.0) } else { self.any_core() }
    }

    fn any_core(&mut self) -> usize {
        self.random.below(u64::from(self.world.shard_count())) as usize
    }

    fn push(&mut self) {
        let (queue, partition) = (self.any_queue(), self.random.pick(&PARTITIONS));
        let count = 1 + self.random.below(3);
        self.push_to(queue, partition, count);
    }

    pub(crate) fn push_to(&mut self, queue: &'static str, partition: &'static str, count: u64) -> Ticket {
        let payloads: Vec<u64> = (0..count).map(|index| self.payloads_given + index).collect();
        self.payloads_given += count;
        // Known before the answer: another client may have it first.
        self.oracle.pushed.extend(payloads.iter().map(|payload| (*payload, queue.to_owned())));
        let (habits, random) = (self.habits, &mut self.random);
        let mut text = |payload: &u64| Payload::from(format!("{payload}{}", " ".repeat(habits.padding(random))).into_bytes());
        let mut texts: Vec<Payload> = payloads.iter().map(&mut text).collect();
        self.use_queue(queue, None, self.world.now, false);
        let of = shard_of(tenant_of(queue), queue, partition, self.world.shard_count());
        let at = self.seat(of);
        let since = (self.world.now + Span::from_millis(500)) - self.habits.group_idle();
        let groups = self.debts.groups(queue, since, |ticket| self.will_stay(ticket));
        let epoch = self.debts.epoch(queue);
        let ticket = self.ticket(Expected::Push { queue, payloads, groups, epoch });
        self.world.ask(at, of, ticket, Command::Push { tenant: tenant_of(queue), queue, partition, payloads: &mut texts });
        ticket
    }

    /// Whether a pop stays parked for a while.
    fn will_stay(&self, ticket: Ticket) -> bool {
        matches!(self.expected.get(&ticket), Some(Expected::Pop(pop)) if !pop.is_cancelled && pop.until > Some(self.world.now + Span::from_millis(100)))
    }

    fn call(&mut self) {
        let (queue, partition) = (self.any_queue(), self.random.pick(&PARTITIONS));
        let (payload, fail_fast) = (self.payloads_given, self.random.chance(30));
        self.payloads_given += 1;
        self.called.insert(payload);
        self.oracle.pushed.insert(payload, queue.to_owned());
        let text = format!("{payload}{}", " ".repeat(self.habits.padding(&mut self.random)));
        self.use_queue(queue, None, self.world.now, false);
        let of = shard_of(tenant_of(queue), queue, partition, self.world.shard_count());
        let (at, asked_at) = (self.seat(of), self.world.now);
        let until = asked_at + self.any_wait();
        let call = Call { at, of, queue, partition, payload, asked_at, until, cancelled_at: None };
        let ticket = self.ticket(Expected::Call(call));
        let payloads = &mut vec![Payload::from(text.into_bytes())];
        self.world.ask(at, of, ticket, Command::Call { tenant: tenant_of(queue), queue, partition, payloads, until, fail_fast });
    }

    /// Some answers come twice, some late, and some to an inbox that nobody ever had.
    fn reply(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let index = self.random.below(self.requests.len() as u64) as usize;
        let is_foreign = self.random.chance(5);
        let (inbox, request, queue) =
            if !is_foreign && self.random.chance(80) { self.requests.swap_remove(index) } else { self.requests[index] };
        let inbox = if self.random.chance(5) { inbox + 1_000_000 } else { inbox };
        // Another tenant may guess an inbox; what it answers reaches nobody.
        let tenant = if is_foreign { Tenant(tenant_of(queue).0 + 1) } else { tenant_of(queue) };
        let answer = if is_foreign { NOBODYS } else { request };
        let of = inbox_shard(inbox, self.world.shard_count()).expect("an inbox");
        let at = self.any_core();
        let ticket = self.ticket(Expected::Reply { request });
        let text = answer.to_string();
        let item = ReplyItem { index: 0, inbox, payload: text.as_bytes(), late_count: 0 };
        self.world.ask(at, of, ticket, Command::Reply { tenant, items: &[item] });
    }

    fn any_wait(&mut self) -> Span {
        let is_short = self.habits.is_crowded && self.random.chance(30);
        Span::from_millis(1 + self.random.below(if is_short { 4 } else { 5_000 }))
    }

    fn pop(&mut self) {
        let (queue, group) = (self.any_queue(), self.any_group());
        let partition = if self.random.chance(60) { None } else { Some(self.random.pick(&PARTITIONS)) };
        let until = self.random.chance(60).then(|| self.world.now + self.any_wait());
        let auto_ack = self.random.chance(40);
        let batch = 1 + self.random.below(4) as u32;
        self.pop_of(queue, partition, group, until, auto_ack, batch);
    }

    pub(crate) fn pop_of(
        &mut self,
        queue: &'static str,
        partition: Option<&'static str>,
        group: &'static str,
        until: Option<Time>,
        auto_ack: bool,
        batch: u32,
    ) {
        let shard_count = self.world.shard_count();
        let of = match partition {
            Some(partition) => shard_of(tenant_of(queue), queue, partition, shard_count),
            None => home_shard(tenant_of(queue), queue, shard_count),
        };
        let at = self.seat(of);
        self.use_queue(queue, Some(group), self.world.now, false);
        let (asked_at, epoch) = (self.world.now, self.debts.epoch(queue));
        let ticket = self.ticket(Expected::Pop(Pop {
            at,
            of,
            queue,
            partition,
            group,
            batch,
            auto_ack,
            asked_at,
            until,
            epoch,
            is_cancelled: false,
        }));
        self.world.ask(
            at,
            of,
            ticket,
            Command::Pop { tenant: tenant_of(queue), queue, partition, group, batch, wait_until: until, auto_ack },
        );
    }

    /// Messages that are gone when those hear of them who wait on other cores.
    fn snatch(&mut self, queue: &'static str) {
        let group = self.any_group();
        let partitions: Vec<_> = PARTITIONS.into_iter().filter(|_| self.random.chance(60)).collect();
        self.snatch_from(queue, group, &partitions);
    }

    fn snatch_from(&mut self, queue: &'static str, group: &'static str, partitions: &[&'static str]) {
        self.sits_near = true;
        for partition in partitions {
            self.push_to(queue, partition, 1);
            self.pop_of(queue, Some(partition), group, None, true, 4);
        }
        self.sits_near = false;
    }

    /// A pop on any partition hears from all cores at once of messages that are gone, and must still hear of the next.
    fn decoy(&mut self) {
        let (queue, group) = (self.any_queue(), self.any_group());
        self.pop_of(queue, None, group, Some(self.world.now + Span::from_secs(2)), true, 4);
        self.pass(HOPS);
        self.snatch_from(queue, group, &PARTITIONS[1..]);
        self.come_to_rest();
        let partition = self.random.pick(&PARTITIONS[1..]);
        self.push_to(queue, partition, 1);
        self.come_to_rest();
        self.check_nobody_sleeps_on_something();
    }

    /// Pushes to a full queue, each of which needs room on another core that the other could take.
    fn crush(&mut self) {
        let (queue, full) = (self.any_queue(), self.random.below(4) as usize);
        for _ in 0..5 {
            self.push_to(queue, PARTITIONS[full], 3);
        }
        for step in [1, 2, 3] {
            self.come_to_rest();
            for step in [step, step + 1] {
                self.push_to(queue, PARTITIONS[(full + step) % 4], 3);
                let pause = Span(self.random.below(200_000));
                self.pass(pause);
            }
        }
    }

    /// A core joins, or has just been told, while a group is being made known, and is asked for it; on another core a message goes by.
    fn join_late(&mut self, queue: &'static str) {
        let (early, late) = self.random.pick(&[("a", "d"), ("d", "r"), ("r", "a")]);
        self.push_to(queue, early, 1);
        self.pop_of(queue, Some(early), GROUPS[0], None, true, 1);
        let is_there = self.random.chance(50);
        if is_there {
            self.push_to(queue, late, 1);
        }
        self.come_to_rest();
        self.sits_near = true;
        self.pop_of(queue, Some("Default"), GROUPS[1], None, true, 1);
        let pause = Span(if is_there { self.random.below(150_000) } else { 0 });
        self.pass(pause);
        self.push_to(queue, late, 1);
        self.pop_of(queue, Some(late), GROUPS[1], None, true, 1);
        self.sits_near = false;
        let pause = Span(self.random.below(300_000));
        self.pass(pause);
        self.snatch_from(queue, GROUPS[0], &[early]);
    }

    fn pass(&mut self, span: Span) {
        self.world.run_until(self.world.now + span);
        self.hear();
    }

    fn ack(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let index = self.random.below(self.held.len() as u64) as usize;
        // Some acks come twice, and some late.
        let Held { queue, group, got } = if self.random.chance(85) { self.held.swap_remove(index) } else { self.held[index].clone() };
        let verdict = if self.random.chance(70) { Verdict::Completed } else { Verdict::Nack };
        let item = AckItem { index: 0, partition: &got.partition, seq: got.seq, delivery: got.delivery, verdict };
        let (at, of) = (self.any_core(), shard_of(tenant_of(queue), queue, &got.partition, self.world.shard_count()));
        self.use_queue(queue, Some(group), self.world.now, false);
        let ticket =
            self.ticket(Expected::Ack { queue, group, asked_at: self.world.now, items: vec![(got.payload, got.delivery, verdict)] });
        self.world.ask(at, of, ticket, Command::Ack { tenant: tenant_of(queue), queue, group, items: &[item] });
    }

    fn hang_up(&mut self) {
        let waiting: Vec<Ticket> = self
            .expected
            .iter()
            .filter(|(_, expected)| match expected {
                Expected::Pop(pop) => !pop.is_cancelled,
                Expected::Call(call) => call.cancelled_at.is_none(),
                _ => false,
            })
            .map(|(ticket, _)| *ticket)
            .collect();
        if waiting.is_empty() {
            return;
        }
        let ticket = self.random.pick(&waiting);
        if let Some(Expected::Call(call)) = self.expected.get_mut(&ticket) {
            call.cancelled_at = Some(self.world.now);
            let (at, of) = (call.at, call.of);
            return self.world.cancel(at, of, ticket);
        }
        if let Some(Expected::Pop(pop)) = self.expected.get_mut(&ticket) {
            pop.is_cancelled = true;
            // What is being claimed for it goes back.
            self.returned += if pop.auto_ack { u64::from(pop.batch) } else { 0 };
            let (at, of) = (pop.at, pop.of);
            self.debts.hung_up(ticket);
            self.world.cancel(at, of, ticket);
        }
    }

    fn change(&mut self) {
        let queue = self.any_queue();
        if self.random.chance(50) {
            self.park_everywhere(queue);
        }
        let (at, of) = (self.any_core(), home_shard(tenant_of(queue), queue, self.world.shard_count()));
        self.debts.change_begins(queue);
        let ticket = self.ticket(Expected::Change { queue, asked_at: self.world.now });
        let command = if self.random.chance(50) {
            Command::Reset { tenant: tenant_of(queue), queue }
        } else {
            Command::Delete { tenant: tenant_of(queue), queue, at: 1 }
        };
        self.world.ask(at, of, ticket, command);
        if self.random.chance(50) {
            // Pops that stayed parked through it are still of groups that all parts know; new ones are made known anew.
            self.come_to_rest();
            if self.random.chance(50) { self.snatch(queue) } else { self.join_late(queue) }
        }
    }

    /// Pops that will stand parked when something changes.
    fn park_everywhere(&mut self, queue: &'static str) {
        let until = self.world.now + Span::from_secs(2);
        for partition in PARTITIONS {
            if self.random.chance(50) {
                let group = self.any_group();
                self.pop_of(queue, Some(partition), group, Some(until), true, 4);
            }
        }
        self.pass(Span(2 * HOPS.0));
    }

    /// What a tenant may use changes; the cores hear of it one by one.
    fn grant(&mut self) {
        let tenant = self.random.pick(&TENANTS);
        let tight = Allowance { bytes_max: 20, queues_max: 1, parked_max: 2, ..Allowance::UNBOUNDED };
        let barred = Allowance { is_enabled: false, ..Allowance::UNBOUNDED };
        let grant = self.random.pick(&[None, Some(tight), Some(barred), Some(Allowance::UNBOUNDED)]);
        let at = self.any_core();
        self.world.grant(at, tenant, grant);
    }

    fn configure(&mut self) {
        let queue = self.any_queue();
        let window = if self.habits.windows { WindowBuffer { ms: 50, count: 3 } } else { WindowBuffer::default() };
        let policy = if self.habits.changes && self.random.chance(50) { Policy::DropOldest } else { Policy::Reject };
        let free = Options { max_length: 5 + self.random.below(40) as u32, policy, ..DEFAULTS };
        let options = Options { window, ..if self.habits.is_tight { self.habits.defaults() } else { free } };
        self.use_queue(queue, None, self.world.now, false);
        let (at, of) = (self.any_core(), home_shard(tenant_of(queue), queue, self.world.shard_count()));
        let ticket = self.ticket(Expected::Configure);
        self.world.ask(at, of, ticket, Command::Configure { tenant: tenant_of(queue), queue, options, at: 1 });
    }
}
