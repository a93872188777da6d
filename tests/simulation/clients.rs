//! Clients that do anything at any time, from a seed; and what must be true once nothing is under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_shards::{
    AckItem, Answer, Command, Options, OwnedCommand, OwnedRequest, Payload, Policy, QUEUE_MODE, Receipt, ShardIndex, Span, Tenant, Ticket,
    Time, Undelivered, Verdict, WindowBuffer, home_shard, shard_of,
};

use crate::oracle::Oracle;
use crate::random::Random;
use crate::world::{DEFAULTS, Got, Heard, World};

const QUEUES: [&str; 2] = ["orders", "inbox"];
const PARTITIONS: [&str; 4] = ["Default", "a", "b", "c"];
const GROUPS: [&str; 3] = [QUEUE_MODE, "g", "h"];
const TENANT: Tenant = Tenant::DEFAULT;

/// What a ticket waits for.
#[derive(Clone, Debug)]
enum Expected {
    Push {
        payloads: Vec<u64>,
    },
    Pop(Pop),
    Ack {
        group: &'static str,
        items: Vec<(u64, u32, Verdict)>,
    },
    /// Reset, delete, configure.
    Change,
}

#[derive(Clone, Debug)]
struct Pop {
    at: usize,
    of: ShardIndex,
    queue: &'static str,
    partition: Option<&'static str>,
    group: &'static str,
    auto_ack: bool,
    until: Option<Time>,
    is_cancelled: bool,
}

/// A delivery that a client may ack.
#[derive(Clone, Debug)]
struct Held {
    queue: &'static str,
    group: &'static str,
    got: Got,
}

/// What a seed's clients do beside pushing, popping and acking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) changes: bool,
    pub(crate) windows: bool,
    pub(crate) broken_answers: bool,
}

/// One run.
pub(crate) struct Clients {
    world: World,
    random: Random,
    oracle: Oracle,
    expected: BTreeMap<Ticket, Expected>,
    held: Vec<Held>,
    tickets_given: u64,
    payloads_given: u64,
    habits: Habits,
    lease_seconds: u64,
}

impl Clients {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, 1);
        let habits = Habits { changes: random.chance(50), windows: random.chance(25), broken_answers: random.chance(50) };
        let shard_count = random.pick(&[1, 2, 3, 4]);
        Self {
            world: World::new(shard_count, Random::stream(seed, 2)),
            random,
            oracle: Oracle::default(),
            expected: BTreeMap::new(),
            held: Vec::new(),
            tickets_given: 0,
            payloads_given: 0,
            habits,
            lease_seconds: u64::from(DEFAULTS.lease_seconds),
        }
    }

    /// Does `count` things, then lets everything come to rest and checks that nothing was lost, kept or left behind.
    pub(crate) fn run(mut self, count: usize) {
        for _ in 0..count {
            self.act();
            let pause = match self.random.below(10) {
                0..5 => Span(self.random.below(20_000)),
                5..9 => Span(self.random.below(3_000_000)),
                _ => Span::from_millis(self.random.below(4_000)),
            };
            let until = self.world.now + pause;
            self.world.run_until(until);
            self.hear();
            if self.random.chance(20) {
                self.come_to_rest();
                self.check_nobody_sleeps_on_something();
            }
        }
        self.finish();
    }

    fn act(&mut self) {
        match self.random.below(100) {
            0..35 => self.push(),
            35..65 => self.pop(),
            65..85 => self.ack(),
            85..92 => self.hang_up(),
            92..96 if self.habits.changes => self.change(),
            96..98 => self.configure(),
            _ => self.push(),
        }
    }

    fn ticket(&mut self, expected: Expected) -> Ticket {
        self.tickets_given += 1;
        let ticket = Ticket(self.tickets_given);
        self.expected.insert(ticket, expected);
        ticket
    }

    fn any_core(&mut self) -> usize {
        self.random.below(u64::from(self.world.shard_count())) as usize
    }

    fn push(&mut self) {
        let (queue, partition) = (self.random.pick(&QUEUES), self.random.pick(&PARTITIONS));
        let count = 1 + self.random.below(3);
        let payloads: Vec<u64> = (0..count).map(|index| self.payloads_given + index).collect();
        self.payloads_given += count;
        // Known before the answer: another client may have it first.
        self.oracle.pushed.extend(payloads.iter().map(|payload| (*payload, queue.to_owned())));
        let mut texts: Vec<Payload> = payloads.iter().map(|payload| Payload::from(payload.to_string().into_bytes())).collect();
        let (at, of) = (self.any_core(), shard_of(TENANT, queue, partition, self.world.shard_count()));
        let ticket = self.ticket(Expected::Push { payloads });
        self.world.ask(at, of, ticket, Command::Push { tenant: TENANT, queue, partition, payloads: &mut texts });
    }

    fn pop(&mut self) {
        let (queue, group) = (self.random.pick(&QUEUES), self.random.pick(&GROUPS));
        let partition = if self.random.chance(60) { None } else { Some(self.random.pick(&PARTITIONS)) };
        let until = self.random.chance(60).then(|| self.world.now + Span::from_millis(1 + self.random.below(5_000)));
        let auto_ack = self.random.chance(40);
        let batch = 1 + self.random.below(4) as u32;
        self.pop_of(queue, partition, group, until, auto_ack, batch);
    }

    fn pop_of(
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
            Some(partition) => shard_of(TENANT, queue, partition, shard_count),
            None => home_shard(TENANT, queue, shard_count),
        };
        let at = self.any_core();
        let ticket = self.ticket(Expected::Pop(Pop { at, of, queue, partition, group, auto_ack, until, is_cancelled: false }));
        self.world.ask(at, of, ticket, Command::Pop { tenant: TENANT, queue, partition, group, batch, wait_until: until, auto_ack });
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
        let (at, of) = (self.any_core(), shard_of(TENANT, queue, &got.partition, self.world.shard_count()));
        let ticket = self.ticket(Expected::Ack { group, items: vec![(got.payload, got.delivery, verdict)] });
        self.world.ask(at, of, ticket, Command::Ack { tenant: TENANT, queue, group, items: &[item] });
    }

    fn hang_up(&mut self) {
        let waiting: Vec<Ticket> = self
            .expected
            .iter()
            .filter(|(_, expected)| matches!(expected, Expected::Pop(pop) if !pop.is_cancelled))
            .map(|(ticket, _)| *ticket)
            .collect();
        if waiting.is_empty() {
            return;
        }
        let ticket = self.random.pick(&waiting);
        if let Some(Expected::Pop(pop)) = self.expected.get_mut(&ticket) {
            pop.is_cancelled = true;
            let (at, of) = (pop.at, pop.of);
            self.world.cancel(at, of, ticket);
        }
    }

    fn change(&mut self) {
        let queue = self.random.pick(&QUEUES);
        let (at, of) = (self.any_core(), home_shard(TENANT, queue, self.world.shard_count()));
        let ticket = self.ticket(Expected::Change);
        let command =
            if self.random.chance(50) { Command::Reset { tenant: TENANT, queue } } else { Command::Delete { tenant: TENANT, queue } };
        self.world.ask(at, of, ticket, command);
    }

    fn configure(&mut self) {
        let queue = self.random.pick(&QUEUES);
        let window = if self.habits.windows { WindowBuffer { ms: 50, count: 3 } } else { WindowBuffer::default() };
        let policy = if self.habits.changes && self.random.chance(50) { Policy::DropOldest } else { Policy::Reject };
        let options = Options { max_length: 5 + self.random.below(40) as u32, policy, window, ..DEFAULTS };
        let (at, of) = (self.any_core(), home_shard(TENANT, queue, self.world.shard_count()));
        let ticket = self.ticket(Expected::Change);
        self.world.ask(at, of, ticket, Command::Configure { tenant: TENANT, queue, options });
    }

    fn hear(&mut self) {
        for (at, ticket, heard) in std::mem::take(&mut self.world.heard) {
            if self.world.is_traced {
                eprintln!("{at:?} {ticket:?} hears {heard:?}");
            }
            let expected = self.expected.remove(&ticket).unwrap_or_else(|| panic!("{ticket:?} is answered twice: {heard:?}"));
            match (expected, heard) {
                (Expected::Push { .. }, Heard::Answer(Answer::Pushed(_))) => {}
                (Expected::Push { payloads }, Heard::Answer(Answer::Refused(_))) => {
                    for payload in payloads {
                        self.oracle.pushed.remove(&payload);
                    }
                }
                (Expected::Pop(pop), Heard::Messages(messages, receipts)) => self.got(at, pop, messages, receipts),
                (Expected::Pop(_), Heard::Answer(Answer::Refused(_))) => {}
                (Expected::Ack { group, items }, Heard::Answer(Answer::Acked(outcomes))) => {
                    for ((payload, delivery, verdict), (_, outcome)) in items.into_iter().zip(outcomes) {
                        self.oracle.acked(group, payload, delivery, verdict, outcome);
                    }
                }
                (Expected::Change, Heard::Answer(Answer::Configured | Answer::Reset(_) | Answer::Deleted { .. })) => {}
                (expected, heard) => panic!("{expected:?} was answered {heard:?}"),
            }
        }
    }

    fn got(&mut self, given_at: Time, pop: Pop, messages: Vec<Got>, receipts: Vec<Receipt>) {
        let Pop { at, queue, group, auto_ack, is_cancelled, .. } = pop;
        if is_cancelled || (self.habits.broken_answers && self.random.chance(15)) {
            // The client is gone, or its connection breaks under the answer.
            let how = if is_cancelled || self.random.chance(60) { Undelivered::Unsent } else { Undelivered::Partly };
            for got in &messages {
                // In the middle, what was settled at delivery is spent; the rest comes back.
                self.oracle.given(group, std::slice::from_ref(got), auto_ack, given_at, given_at);
                if how == Undelivered::Unsent || !auto_ack {
                    self.oracle.taken_back(group, got);
                }
            }
            receipts.into_iter().for_each(|receipt| self.world.undeliver(at, receipt, how));
            return;
        }
        // Answers take a while to get here: the lease began at most that much earlier.
        let lease_end = given_at + Span::from_secs(self.lease_seconds) - Span::from_millis(40);
        self.oracle.given(group, &messages, auto_ack, given_at, lease_end);
        if !auto_ack {
            self.held.extend(messages.into_iter().map(|got| Held { queue, group, got }));
        }
    }

    /// Until nothing is under way; hearing an answer may set more off.
    fn come_to_rest(&mut self) {
        loop {
            self.world.settle();
            self.hear();
            if self.world.is_quiet() && self.world.heard.is_empty() {
                return;
            }
        }
    }

    /// Nothing is under way: whoever still waits must have nothing to wait for.
    fn check_nobody_sleeps_on_something(&mut self) {
        if self.habits.windows {
            return;
        }
        let waiting: Vec<Pop> = self
            .expected
            .values()
            .filter_map(|expected| if let Expected::Pop(pop) = expected { Some(pop.clone()) } else { None })
            .collect();
        let now = self.world.now;
        for pop in waiting.into_iter().filter(|pop| !pop.is_cancelled && pop.until.is_some_and(|until| until > now)) {
            let pending = self.pending(pop.queue, pop.group, pop.partition);
            assert_eq!(pending, 0, "{pop:?} sleeps at {:?} while {pending} messages are there for it", self.world.now);
        }
    }

    /// Messages there for a group, in one partition or all; of a queue that exists.
    fn pending(&mut self, queue: &'static str, group: &'static str, partition: Option<&str>) -> u64 {
        let request = OwnedRequest::Depth { group: Some(group.into()) };
        let answers = self.world.inspect(|| OwnedCommand { tenant: TENANT, queue: Arc::from(queue), request: request.clone() });
        let parts = answers.into_iter().filter_map(|answer| if let Answer::Depth(report) = answer { report } else { None });
        parts
            .flat_map(|part| part.partitions)
            .filter(|part| partition.is_none_or(|name| *part.partition == *name))
            .map(|part| part.pending)
            .sum()
    }

    /// Everything comes to rest; a group that was there from the beginning must have seen every message, and nothing may be left.
    fn finish(mut self) {
        // Longer than any wait, lease and redelivery.
        for _ in 0..6 {
            self.world.run_until(self.world.now + Span::from_secs(4));
            self.come_to_rest();
        }
        // A pop whose client hung up may end unanswered.
        self.expected.retain(|_, expected| !matches!(expected, Expected::Pop(pop) if pop.is_cancelled));
        assert!(self.expected.is_empty(), "never answered: {:?}", self.expected);
        assert_eq!(self.world.sum(|gauges| gauges.waiters), 0, "waiters are left");
        self.habits.broken_answers = false;
        self.check_drain();
        for queue in QUEUES {
            let ticket = self.ticket(Expected::Change);
            let of = home_shard(TENANT, queue, self.world.shard_count());
            self.world.ask(0, of, ticket, Command::Delete { tenant: TENANT, queue });
            self.come_to_rest();
        }
        assert_eq!(self.world.budget.bytes.used(), 0, "bytes are left");
        assert_eq!(self.world.budget.tenant(TENANT).bytes.used(), 0, "the tenant's bytes are left");
        assert_eq!(self.world.budget.tenant(TENANT).queues.used(), 0, "the tenant's queues are left");
        assert_eq!(self.world.sum(|gauges| gauges.queues), 0, "queue parts are left");
        assert_eq!(self.world.sum(|gauges| gauges.deadlines), 0, "deadlines are left");
    }

    /// Drains every queue for one group: it gets everything that is held, and the ledger closes.
    fn check_drain(&mut self) {
        for queue in QUEUES {
            for group in GROUPS {
                for _ in 0..400 {
                    let before = self.pending(queue, group, None);
                    if before == 0 {
                        break;
                    }
                    self.pop_of(queue, None, group, None, true, 4);
                    self.come_to_rest();
                    assert!(self.pending(queue, group, None) < before, "{group} drains nothing of {queue} though {before} are there");
                }
            }
        }
        let dropped = self.world.sum(|gauges| gauges.dropped.iter().sum());
        if self.habits.changes || dropped > 0 {
            return;
        }
        for queue in QUEUES {
            let pushed = self.oracle.pushed.values().filter(|name| **name == *queue).count();
            assert_eq!(self.oracle.seen(queue).len(), pushed, "{queue}: every message reached somebody");
        }
    }
}
