//! Several shards and their mesh, without threads or clocks: letters and answers take as long as the seed says, each ordered pair of
//! cores in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mayfly_shards::{
    Allowance, Answer, Command, Delivery, DropCause, Letter, NodeBudget, Outbox, OwnedCommand, Receipt, Shard, ShardConfig, ShardIndex,
    Span, Tenant, Ticket, Time, Undelivered,
};
use smallvec::SmallVec;

use crate::clients::TENANTS;
use crate::habits::Habits;
use crate::random::Random;

/// Events of one wait; more is a loop that does not end.
const STEPS_MAX: u32 = 20_000;

/// What travels from core to core.
#[derive(Debug)]
enum Mail {
    Letter(Letter),
    Command(Ticket, OwnedCommand),
    Cancel(Ticket),
    Undeliver(Receipt, Undelivered),
    /// What the tenant may use has changed.
    Granted(Tenant),
}

/// A message as a client got it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) partition: String,
    pub(crate) seq: u64,
    pub(crate) delivery: u32,
    pub(crate) attempts: u32,
    pub(crate) payload: u64,
}

/// What a client hears.
#[derive(Debug)]
pub(crate) enum Heard {
    Answer(Answer),
    /// A call's answer.
    Reply(u64),
    Messages(Vec<Got>, Vec<Receipt>),
}

fn number_in(payload: &[u8]) -> u64 {
    std::str::from_utf8(payload).expect("text").trim().parse().expect("a number")
}

/// Everything one step of a shard said.
#[derive(Default)]
struct Effects {
    heard: Vec<(Ticket, Heard)>,
    letters: Vec<(ShardIndex, Letter)>,
    open: Option<(Ticket, Vec<Got>)>,
}

impl Outbox for Effects {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.heard.push((ticket, Heard::Answer(answer)));
    }

    fn reply(&mut self, ticket: Ticket, payload: &[u8]) {
        assert!(self.open.is_none(), "an answer inside a delivery");
        self.heard.push((ticket, Heard::Reply(number_in(payload))));
    }

    fn begin_delivery(&mut self, ticket: Ticket, _queue: &str) {
        assert!(self.open.is_none(), "deliveries do not nest");
        self.open = Some((ticket, Vec::new()));
    }

    fn message(&mut self, delivery: Delivery<'_>) {
        let payload = number_in(delivery.payload);
        let got = Got {
            partition: delivery.partition.to_owned(),
            seq: delivery.seq,
            delivery: delivery.delivery,
            attempts: delivery.attempts,
            payload,
        };
        self.open.as_mut().expect("a delivery was begun").1.push(got);
    }

    fn end_delivery(&mut self, receipts: SmallVec<[Receipt; 1]>) {
        let (ticket, messages) = self.open.take().expect("a delivery was begun");
        self.heard.push((ticket, Heard::Messages(messages, receipts.into_vec())));
    }

    fn send(&mut self, to: ShardIndex, letter: Letter) {
        self.letters.push((to, letter));
    }
}

/// The node.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) budget: Arc<NodeBudget>,
    shards: Vec<Shard>,
    lanes: BTreeMap<(usize, usize), VecDeque<(Time, Mail)>>,
    network: Random,
    /// Whether every piece of mail is printed as it arrives (`MAYFLY_SIM_TRACE`).
    pub(crate) is_traced: bool,
    /// Answers, in order, with the time at which they were given.
    pub(crate) heard: Vec<(Time, Ticket, Heard)>,
}

impl World {
    pub(crate) fn new(shard_count: u16, habits: &Habits, network: Random) -> Self {
        let budget = Arc::new(habits.budget());
        let shards = (0..shard_count).map(|index| {
            Shard::new(ShardConfig {
                index: ShardIndex(index),
                shard_count,
                default_options: habits.defaults(),
                implicit_idle: habits.idle,
                abandoned: Span::from_secs(10_000),
                group_idle: habits.group_idle(),
                budget: Arc::clone(&budget),
                hash_seed: 7,
            })
        });
        let shards = shards.collect();
        Self {
            now: Time(1_000_000_000),
            budget,
            shards,
            lanes: BTreeMap::new(),
            network,
            is_traced: std::env::var_os("MAYFLY_SIM_TRACE").is_some(),
            heard: Vec::new(),
        }
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.shards.len() as u16
    }

    /// A client of core `at` asks the shard `of`.
    pub(crate) fn ask(&mut self, at: usize, of: ShardIndex, ticket: Ticket, command: Command<'_>) {
        if self.is_traced {
            eprintln!("{:?} {ticket:?} asks {command:?}", self.now);
        }
        if usize::from(of.0) == at {
            self.on(at, |shard, now, effects| shard.step(now, ticket, command, effects));
        } else {
            self.post(at, usize::from(of.0), Mail::Command(ticket, command.into_owned()));
        }
    }

    /// A client of core `at` hangs up on a pop or call at `of`.
    pub(crate) fn cancel(&mut self, at: usize, of: ShardIndex, ticket: Ticket) {
        self.post(at, usize::from(of.0), Mail::Cancel(ticket));
    }

    /// The kill switch of one shard.
    pub(crate) fn turn(&mut self, index: usize, is_enabled: bool) {
        self.on(index, |shard, now, effects| shard.switch(now, is_enabled, effects));
    }

    /// An answer did not reach its client of core `at`.
    pub(crate) fn undeliver(&mut self, at: usize, receipt: Receipt, how: Undelivered) {
        let of = usize::from(receipt.shard.0);
        self.post(at, of, Mail::Undeliver(receipt, how));
    }

    /// Core `at` applies a grant and tells the others.
    pub(crate) fn grant(&mut self, at: usize, tenant: Tenant, grant: Option<Allowance>) {
        self.budget.apply_grant(tenant, grant);
        (0..self.shards.len()).for_each(|to| self.post(at, to, Mail::Granted(tenant)));
    }

    /// Nothing is under way: what each tenant is charged is what is held of it.
    pub(crate) fn check_holdings(&self) {
        let mut held: BTreeMap<Tenant, (u64, u64, u64)> = BTreeMap::new();
        for (tenant, part) in self.shards.iter().flat_map(Shard::holdings) {
            let sum = held.entry(tenant).or_default();
            *sum = (sum.0 + part.bytes, sum.1 + part.queues, sum.2 + part.parked);
        }
        for tenant in TENANTS {
            let charged = self.budget.usage(tenant);
            let held = held.get(&tenant).copied().unwrap_or_default();
            assert_eq!((charged.bytes, charged.queues, charged.parked), held, "{tenant:?} is charged for what it holds");
        }
    }

    fn post(&mut self, from: usize, to: usize, mail: Mail) {
        if from == to {
            return self.receive(from, to, mail);
        }
        let delay = if self.network.chance(20) { self.network.below(2_000_000) } else { self.network.below(50_000) };
        let lane = self.lanes.entry((from, to)).or_default();
        let earliest = lane.back().map_or(Time(0), |(at, _)| *at);
        lane.push_back(((self.now + Span(delay)).max(earliest), mail));
    }

    fn receive(&mut self, from: usize, to: usize, mail: Mail) {
        if self.is_traced {
            eprintln!("{:?} {from} -> {to}: {mail:?}", self.now);
        }
        self.on(to, |shard, now, effects| match mail {
            Mail::Letter(letter) => shard.receive(now, ShardIndex(from as u16), letter, effects),
            Mail::Command(ticket, command) => command.lend(|command| shard.step(now, ticket, command, effects)),
            Mail::Cancel(ticket) => shard.cancel(now, ticket, effects),
            Mail::Undeliver(receipt, how) => shard.undeliver(now, receipt, how, effects),
            Mail::Granted(tenant) => shard.turn_away(now, tenant, effects),
        });
    }

    fn on(&mut self, index: usize, step: impl FnOnce(&mut Shard, Time, &mut Effects)) {
        let mut effects = Effects::default();
        let evicted_before = self.shards[index].gauges().dropped[DropCause::Bounds as usize];
        step(&mut self.shards[index], self.now, &mut effects);
        self.shards[index].check_invariants();
        let has_evicted = self.shards[index].gauges().dropped[DropCause::Bounds as usize] > evicted_before;
        let is_refused = matches!(effects.heard[..], [(_, Heard::Answer(Answer::Refused(_)))]);
        assert!(!(has_evicted && is_refused), "a push evicts and is refused: {:?}", effects.heard);
        let now = self.now;
        self.heard.extend(effects.heard.drain(..).map(|(ticket, heard)| (now, ticket, heard)));
        for (to, letter) in effects.letters {
            assert_ne!(usize::from(to.0), index, "a shard does not write to itself");
            self.post(index, usize::from(to.0), Mail::Letter(letter));
        }
    }

    /// The next moment at which anything happens by itself.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let mail = self.lanes.values().filter_map(|lane| lane.front().map(|(at, _)| *at)).min();
        let due = self.shards.iter().filter_map(Shard::next_deadline).min();
        [mail, due].into_iter().flatten().min()
    }

    /// Whether letters are under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.lanes.values().all(VecDeque::is_empty)
    }

    /// Lets everything up to `until` happen, in order of time.
    pub(crate) fn run_until(&mut self, until: Time) {
        let mut steps = 0;
        while let Some(at) = self.next_event().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.happen();
            steps += 1;
            assert!(steps < STEPS_MAX, "letters or deadlines chase each other at {:?}: {:?}", self.now, self.lanes);
        }
        self.now = self.now.max(until);
    }

    /// Lets time pass until no letter is under way, and nothing is due.
    pub(crate) fn settle(&mut self) {
        let mut steps = 0;
        // An answer that comes back late may find its queue due for collection at once.
        while !self.is_quiet() || self.next_event().is_some_and(|at| at <= self.now) {
            let Some(at) = self.next_event() else { break };
            self.run_until(at);
            steps += 1;
            assert!(steps < STEPS_MAX, "letters chase each other at {:?}: {:?}", self.now, self.lanes);
        }
    }

    fn happen(&mut self) {
        let now = self.now;
        for index in 0..self.shards.len() {
            if self.shards[index].next_deadline().is_some_and(|at| at <= now) {
                self.on(index, |shard, now, effects| shard.expire(now, effects));
            }
        }
        let due: Vec<(usize, usize)> =
            self.lanes.iter().filter(|(_, lane)| lane.front().is_some_and(|(at, _)| *at <= now)).map(|(pair, _)| *pair).collect();
        for pair in due {
            if let Some((_, mail)) = self.lanes.get_mut(&pair).and_then(VecDeque::pop_front) {
                self.receive(pair.0, pair.1, mail);
            }
        }
    }

    /// Gauges summed over the shards.
    pub(crate) fn sum(&self, of: impl Fn(&mayfly_shards::ShardGauges) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(&shard.gauges())).sum()
    }

    /// Asks every shard at once, outside of time: for checks.
    pub(crate) fn inspect(&mut self, command: impl Fn() -> OwnedCommand) -> Vec<Answer> {
        let now = self.now;
        let mut answers = Vec::new();
        for shard in &mut self.shards {
            let mut effects = Effects::default();
            command().lend(|command| shard.step(now, Ticket(u64::MAX), command, &mut effects));
            assert!(effects.letters.is_empty(), "a status read tells nobody anything");
            for (ticket, heard) in effects.heard {
                match heard {
                    Heard::Answer(answer) if ticket == Ticket(u64::MAX) => answers.push(answer),
                    heard => self.heard.push((now, ticket, heard)),
                }
            }
        }
        answers
    }
}
