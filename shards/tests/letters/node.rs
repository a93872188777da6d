//! Some shards whose letters go only when a test says so. Invariants are checked after each step.

use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_shards::{
    Allowance, Answer, Command, Delivery, Letter, NodeBudget, Options, Outbox, Payload, Policy, QUEUE_MODE, Receipt, Shard, ShardConfig,
    ShardIndex, Span, Tenant, Ticket, Time, Undelivered, WindowBuffer, home_shard, shard_of,
};
use smallvec::SmallVec;

pub(crate) const QUEUE: &str = "orders";
const TENANT: Tenant = Tenant::DEFAULT;

/// What a client hears.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Answer(Answer),
    /// A call's answer.
    Reply(String),
    /// Payloads.
    Messages(Vec<String>),
}

impl Heard {
    pub(crate) fn messages<const COUNT: usize>(payloads: [&str; COUNT]) -> Self {
        Self::Messages(payloads.map(str::to_owned).to_vec())
    }
}

/// On its way from core to core.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) from: ShardIndex,
    pub(crate) to: ShardIndex,
    pub(crate) letter: Letter,
}

#[derive(Default)]
struct Effects {
    heard: Vec<(Ticket, Heard)>,
    receipts: Vec<Receipt>,
    letters: Vec<(ShardIndex, Letter)>,
    open: Option<(Ticket, Vec<String>)>,
}

impl Outbox for Effects {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.heard.push((ticket, Heard::Answer(answer)));
    }

    fn reply(&mut self, ticket: Ticket, payload: &[u8]) {
        self.heard.push((ticket, Heard::Reply(String::from_utf8_lossy(payload).into_owned())));
    }

    fn begin_delivery(&mut self, ticket: Ticket, _queue: &str) {
        self.open = Some((ticket, Vec::new()));
    }

    fn message(&mut self, delivery: Delivery<'_>) {
        let payload = String::from_utf8_lossy(delivery.payload).into_owned();
        self.open.as_mut().expect("a delivery was begun").1.push(payload);
    }

    fn end_delivery(&mut self, receipts: SmallVec<[Receipt; 1]>) {
        let (ticket, messages) = self.open.take().expect("a delivery was begun");
        self.heard.push((ticket, Heard::Messages(messages)));
        self.receipts.extend(receipts);
    }

    fn send(&mut self, to: ShardIndex, letter: Letter) {
        self.letters.push((to, letter));
    }
}

/// See the module.
pub(crate) struct Node {
    pub(crate) now: Time,
    pub(crate) budget: Arc<NodeBudget>,
    pub(crate) receipts: Vec<Receipt>,
    shards: Vec<Shard>,
    mail: VecDeque<Mail>,
    heard: Vec<(Ticket, Heard)>,
    tickets_given: u64,
}

/// Four cores, and a queue whose options are these.
pub(crate) fn options(policy: Policy, max_length: u32) -> Options {
    let window = WindowBuffer { ms: 0, count: 0 };
    Options { max_bytes: 1 << 20, max_length, policy, ttl_seconds: 0, lease_seconds: 30, retry_limit: 3, window }
}

impl Node {
    pub(crate) fn new(default_options: Options) -> Self {
        Self::with_bytes(default_options, 1 << 30)
    }

    /// A node that may hold so many bytes.
    pub(crate) fn with_bytes(default_options: Options, max_bytes: u64) -> Self {
        let allowance = Allowance { parked_max: 100, ..Allowance::UNBOUNDED };
        let budget = Arc::new(NodeBudget::new(max_bytes, allowance));
        let shard_count = 4;
        let shards = (0..shard_count).map(|index| {
            Shard::new(ShardConfig {
                index: ShardIndex(index),
                shard_count,
                default_options,
                implicit_idle: Span::from_secs(300),
                abandoned: Span(0),
                group_idle: Span(0),
                budget: Arc::clone(&budget),
                hash_seed: 7,
            })
        });
        Self {
            now: Time(1_000_000_000),
            shards: shards.collect(),
            budget,
            receipts: Vec::new(),
            mail: VecDeque::new(),
            heard: Vec::new(),
            tickets_given: 0,
        }
    }

    /// The queue's home.
    pub(crate) fn home(&self) -> ShardIndex {
        home_shard(TENANT, QUEUE, 4)
    }

    /// A core, and a partition of it, for each member: in order of name.
    pub(crate) fn owner(&self, partition: &str) -> ShardIndex {
        shard_of(TENANT, QUEUE, partition, 4)
    }

    fn on(&mut self, core: ShardIndex, step: impl FnOnce(&mut Shard, Time, &mut Effects)) {
        let mut effects = Effects::default();
        let shard = &mut self.shards[usize::from(core.0)];
        step(shard, self.now, &mut effects);
        shard.check_invariants();
        self.heard.append(&mut effects.heard);
        self.receipts.append(&mut effects.receipts);
        self.mail.extend(effects.letters.into_iter().map(|(to, letter)| Mail { from: core, to, letter }));
    }

    /// A client asks; every step takes a microsecond, so that no two are of the same time.
    pub(crate) fn ask(&mut self, core: ShardIndex, command: Command<'_>) -> Ticket {
        self.tickets_given += 1;
        let ticket = Ticket(self.tickets_given);
        self.now = self.now + Span(1_000);
        self.on(core, |shard, now, effects| shard.step(now, ticket, command, effects));
        ticket
    }

    pub(crate) fn push(&mut self, partition: &str, payloads: &[&str]) -> Ticket {
        let mut payloads: Vec<Payload> = payloads.iter().map(|payload| Payload::from(payload.as_bytes())).collect();
        self.ask(self.owner(partition), Command::Push { tenant: TENANT, queue: QUEUE, partition, payloads: &mut payloads })
    }

    /// A pop in queue mode, settled at delivery; `wait` from now.
    pub(crate) fn pop(&mut self, partition: Option<&str>, batch: u32, wait: Option<Span>) -> Ticket {
        let wait_until = wait.map(|wait| self.now + wait);
        let core = partition.map_or(self.home(), |partition| self.owner(partition));
        self.ask(core, Command::Pop { tenant: TENANT, queue: QUEUE, partition, group: QUEUE_MODE, batch, wait_until, auto_ack: true })
    }

    /// A pop that leases what it gets, at once.
    pub(crate) fn pop_on_lease(&mut self, partition: &str, batch: u32) {
        let command = Command::Pop {
            tenant: TENANT,
            queue: QUEUE,
            partition: Some(partition),
            group: QUEUE_MODE,
            batch,
            wait_until: None,
            auto_ack: false,
        };
        let pop = self.ask(self.owner(partition), command);
        self.carry();
        let Some(Heard::Messages(messages)) = self.heard(pop) else { panic!("a pop is answered") };
        assert_eq!(messages.len(), batch as usize);
    }

    /// The client of a pop on any partition hangs up.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.on(self.home(), |shard, now, effects| shard.cancel(now, ticket, effects));
    }

    pub(crate) fn reset(&mut self) -> Ticket {
        self.ask(self.home(), Command::Reset { tenant: TENANT, queue: QUEUE })
    }

    pub(crate) fn delete(&mut self) -> Ticket {
        self.ask(self.home(), Command::Delete { tenant: TENANT, queue: QUEUE, at: 1 })
    }

    pub(crate) fn configure(&mut self, options: Options) -> Ticket {
        self.ask(self.home(), Command::Configure { tenant: TENANT, queue: QUEUE, options, at: 1 })
    }

    /// An answer never left: its client sat at the home.
    pub(crate) fn give_back(&mut self, receipt: Receipt) {
        self.on(self.home(), |shard, now, effects| shard.undeliver(now, receipt, Undelivered::Unsent, effects));
    }

    /// Carries every letter, and those they lead to.
    pub(crate) fn carry(&mut self) {
        while let Some(mail) = self.mail.pop_front() {
            self.deliver(mail);
        }
    }

    /// Takes the first such letter out of the mail.
    pub(crate) fn hold(&mut self, is_meant: impl Fn(&Letter) -> bool) -> Option<Mail> {
        let position = self.mail.iter().position(|mail| is_meant(&mail.letter))?;
        self.mail.remove(position)
    }

    /// Carries letters until such a one comes, and takes that out.
    pub(crate) fn carry_until(&mut self, is_meant: impl Fn(&Letter) -> bool) -> Option<Mail> {
        loop {
            let mail = self.mail.pop_front()?;
            if is_meant(&mail.letter) {
                return Some(mail);
            }
            self.deliver(mail);
        }
    }

    /// Brings one letter.
    pub(crate) fn deliver(&mut self, mail: Mail) {
        let Mail { from, to, letter } = mail;
        self.on(to, |shard, now, effects| shard.receive(now, from, letter, effects));
    }

    /// Lets time pass, and what it does happen.
    pub(crate) fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        for core in 0..4 {
            self.on(ShardIndex(core), |shard, now, effects| shard.expire(now, effects));
        }
    }

    /// Letters not carried.
    pub(crate) fn letters(&self) -> Vec<&Letter> {
        self.mail.iter().map(|mail| &mail.letter).collect()
    }

    /// What a ticket's client heard, if anything yet.
    pub(crate) fn heard(&self, ticket: Ticket) -> Option<&Heard> {
        self.heard.iter().find(|(of, _)| *of == ticket).map(|(_, heard)| heard)
    }

    /// Messages dropped for bounds.
    pub(crate) fn evicted(&self) -> u64 {
        let bounds = mayfly_shards::DropCause::Bounds as usize;
        self.shards.iter().map(|shard| shard.gauges().dropped[bounds]).sum()
    }

    /// Everything held, partition by partition: taken out by pops.
    pub(crate) fn drain(&mut self, partitions: &[&str]) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for partition in partitions {
            let ticket = self.pop(Some(partition), 100, None);
            self.carry();
            let Some(Heard::Messages(messages)) = self.heard(ticket) else { panic!("a pop is answered") };
            all.push(messages.clone());
        }
        all
    }
}
