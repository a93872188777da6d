//! Some nodes, whose letters between cores go in any order of lanes, and what travels between them in the test's hands.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mayfly_shards::{
    AckItem, Adopted, Allowance, Answer, Chunk, Command, Cut, Delivery, Inbox, Letter, NodeBudget, Opening, Options, Outbox, Outcome,
    Parcel, PartitionName, Payload, Policy, Receipt, Shard, ShardConfig, ShardGauges, ShardIndex, Span, Tenant, Ticket, Time, Undelivered,
    Unpacked, Verdict, WindowBuffer, home_shard, shard_of,
};
use smallvec::SmallVec;

pub(crate) const TENANT: Tenant = Tenant(7);
pub(crate) const QUEUE: &str = "orders";

/// A message as a client got it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) partition: String,
    pub(crate) seq: u64,
    pub(crate) delivery: u32,
    pub(crate) attempts: u32,
    pub(crate) payload: String,
    pub(crate) inbox: Option<Inbox>,
}

/// What a client hears.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Answer(Answer),
    Reply(String),
    Messages(Vec<Got>),
}

#[derive(Default)]
struct Effects {
    heard: Vec<(Ticket, Heard)>,
    receipts: Vec<(Ticket, Receipt)>,
    letters: Vec<(ShardIndex, Letter)>,
    adopted: Vec<(PartitionName, Adopted)>,
    open: Option<(Ticket, Vec<Got>)>,
}

impl Outbox for Effects {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.heard.push((ticket, Heard::Answer(answer)));
    }

    fn reply(&mut self, ticket: Ticket, payload: &[u8]) {
        self.heard.push((ticket, Heard::Reply(String::from_utf8_lossy(payload).into_owned())));
    }

    fn begin_delivery(&mut self, ticket: Ticket, _queue: &str) {
        assert!(self.open.is_none(), "deliveries do not nest");
        self.open = Some((ticket, Vec::new()));
    }

    fn message(&mut self, delivery: Delivery<'_>) {
        let Delivery { partition, seq, delivery, attempts, payload, inbox } = delivery;
        let payload = String::from_utf8_lossy(payload).trim_end().to_owned();
        let got = Got { partition: partition.to_owned(), seq, delivery, attempts, payload, inbox };
        self.open.as_mut().expect("a delivery was begun").1.push(got);
    }

    fn end_delivery(&mut self, receipts: SmallVec<[Receipt; 1]>) {
        let (ticket, messages) = self.open.take().expect("a delivery was begun");
        self.heard.push((ticket, Heard::Messages(messages)));
        self.receipts.extend(receipts.into_iter().map(|receipt| (ticket, receipt)));
    }

    fn send(&mut self, to: ShardIndex, letter: Letter) {
        self.letters.push((to, letter));
    }

    fn adopted(&mut self, name: &PartitionName, adopted: Adopted) {
        self.adopted.push((name.clone(), adopted));
    }
}

/// One node.
pub(crate) struct Node {
    pub(crate) incarnation: u64,
    pub(crate) budget: Arc<NodeBudget>,
    pub(crate) adopted: Vec<(PartitionName, Adopted)>,
    pub(crate) receipts: Vec<(Ticket, Receipt)>,
    pub(crate) now: Time,
    shards: Vec<Shard>,
    lanes: BTreeMap<(usize, usize), VecDeque<Letter>>,
    pub(crate) heard: Vec<(Ticket, Heard)>,
}

pub(crate) fn options() -> Options {
    let window = WindowBuffer { ms: 0, count: 0 };
    Options { max_bytes: 1 << 30, max_length: 10_000, policy: Policy::Reject, ttl_seconds: 0, lease_seconds: 30, retry_limit: 3, window }
}

pub(crate) fn name(partition: &str) -> PartitionName {
    PartitionName { tenant: TENANT, queue: QUEUE.into(), partition: partition.into() }
}

/// Messages that say these, each padded to so many bytes.
pub(crate) fn texts(payloads: &[&str], padding: usize) -> Vec<Payload> {
    payloads
        .iter()
        .map(|payload| Payload::from(format!("{payload}{}", " ".repeat(padding.saturating_sub(payload.len()))).into_bytes()))
        .collect()
}

impl Node {
    pub(crate) fn new(incarnation: u64, shard_count: u16, default_options: Options) -> Self {
        Self::with_bytes(incarnation, shard_count, default_options, 1 << 40)
    }

    pub(crate) fn with_bytes(incarnation: u64, shard_count: u16, default_options: Options, max_bytes: u64) -> Self {
        let budget = Arc::new(NodeBudget::new(max_bytes, Allowance::UNBOUNDED));
        let shards = (0..shard_count).map(|index| {
            Shard::new(ShardConfig {
                index: ShardIndex(index),
                shard_count,
                default_options,
                implicit_idle: Span::from_secs(300),
                abandoned: Span::from_secs(3_600),
                group_idle: Span(0),
                budget: Arc::clone(&budget),
                hash_seed: incarnation,
            })
        });
        Self {
            incarnation,
            shards: shards.collect(),
            budget,
            adopted: Vec::new(),
            receipts: Vec::new(),
            // No two nodes' clocks say the same.
            now: Time(10_000_000_000_000_000 + incarnation * 1_000_000_007),
            lanes: BTreeMap::new(),
            heard: Vec::new(),
        }
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.shards.len() as u16
    }

    pub(crate) fn owner(&self, partition: Option<&str>) -> ShardIndex {
        match partition {
            Some(partition) => shard_of(TENANT, QUEUE, partition, self.shard_count()),
            None => home_shard(TENANT, QUEUE, self.shard_count()),
        }
    }

    fn on<T>(&mut self, core: ShardIndex, step: impl FnOnce(&mut Shard, Time, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let from = usize::from(core.0);
        let done = step(&mut self.shards[from], self.now, &mut effects);
        self.shards[from].check_invariants();
        self.heard.append(&mut effects.heard);
        self.receipts.append(&mut effects.receipts);
        self.adopted.append(&mut effects.adopted);
        for (to, letter) in effects.letters {
            self.lanes.entry((from, usize::from(to.0))).or_default().push_back(letter);
        }
        done
    }

    fn on_partition<T>(&mut self, partition: &str, step: impl FnOnce(&mut Shard, Time, &mut Effects) -> T) -> T {
        self.on(self.owner(Some(partition)), step)
    }

    /// Carries the first letter of the lane that `pick` points at, if there is any.
    pub(crate) fn carry_one(&mut self, pick: u64) -> bool {
        let lanes: Vec<_> = self.lanes.iter().filter(|(_, lane)| !lane.is_empty()).map(|(lane, _)| *lane).collect();
        let Some(&(from, to)) = lanes.get(pick as usize % lanes.len().max(1)) else { return false };
        let letter = self.lanes.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("a letter");
        self.on(ShardIndex(to as u16), |shard, now, effects| shard.receive(now, ShardIndex(from as u16), letter, effects));
        true
    }

    pub(crate) fn carry(&mut self) {
        while self.carry_one(0) {}
    }

    pub(crate) fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        for core in 0..self.shard_count() {
            self.on(ShardIndex(core), |shard, now, effects| shard.expire(now, effects));
        }
    }

    pub(crate) fn ask(&mut self, partition: Option<&str>, ticket: Ticket, command: Command<'_>) {
        self.now = self.now + Span(1_000);
        self.on(self.owner(partition), |shard, now, effects| shard.step(now, ticket, command, effects));
    }

    pub(crate) fn ask_since(&mut self, partition: Option<&str>, ticket: Ticket, command: Command<'_>, since: Time) {
        self.on(self.owner(partition), |shard, now, effects| shard.step_since(now, ticket, command, since, effects));
    }

    pub(crate) fn push(&mut self, ticket: u64, partition: &str, payloads: &[&str]) {
        self.push_padded(ticket, partition, payloads, 0);
    }

    pub(crate) fn push_padded(&mut self, ticket: u64, partition: &str, payloads: &[&str], padding: usize) {
        let payloads = &mut texts(payloads, padding);
        self.ask(Some(partition), Ticket(ticket), Command::Push { tenant: TENANT, queue: QUEUE, partition, payloads });
    }

    pub(crate) fn call(&mut self, ticket: u64, partition: &str, payload: &str, wait: Span) {
        let (payloads, until) = (&mut texts(&[payload], 0), self.now + wait);
        let command = Command::Call { tenant: TENANT, queue: QUEUE, partition, payloads, until, fail_fast: false };
        self.ask(Some(partition), Ticket(ticket), command);
    }

    pub(crate) fn pop(&mut self, ticket: u64, partition: Option<&str>, group: &str, batch: u32, wait: Option<Span>, auto_ack: bool) {
        let wait_until = wait.map(|wait| self.now + wait);
        let command = Command::Pop { tenant: TENANT, queue: QUEUE, partition, group, batch, wait_until, auto_ack };
        self.ask(partition, Ticket(ticket), command);
    }

    /// What a pop gets at once, payload, attempts and delivery, leased or not.
    pub(crate) fn take(&mut self, partition: &str, group: &str, batch: u32, auto_ack: bool) -> Vec<(String, u32, u32)> {
        self.pop(u64::MAX, Some(partition), group, batch, None, auto_ack);
        self.carry();
        let got = self.hear(u64::MAX);
        let Some(Heard::Messages(messages)) = got else { panic!("a pop is answered, not {got:?}") };
        messages.into_iter().map(|got| (got.payload, got.attempts, got.delivery)).collect()
    }

    pub(crate) fn ack(&mut self, ticket: u64, group: &str, got: &Got, verdict: Verdict) {
        let items = [AckItem { index: 0, partition: &got.partition, seq: got.seq, delivery: got.delivery, verdict }];
        let command = Command::Ack { tenant: TENANT, queue: QUEUE, group, items: &items };
        self.ask(Some(&got.partition), Ticket(ticket), command);
    }

    pub(crate) fn outcome(&mut self, ticket: u64) -> Outcome {
        let heard = self.hear(ticket);
        let Some(Heard::Answer(Answer::Acked(outcomes))) = heard else { panic!("an ack is answered, not {heard:?}") };
        outcomes[0].1
    }

    pub(crate) fn undeliver(&mut self, receipt: Receipt, how: Undelivered) {
        self.on(receipt.shard, |shard, now, effects| shard.undeliver(now, receipt, how, effects));
    }

    pub(crate) fn cancel(&mut self, partition: &str, ticket: u64) {
        self.on_partition(partition, |shard, now, effects| shard.cancel(now, Ticket(ticket), effects));
    }

    /// What a ticket's client heard last, once.
    pub(crate) fn hear(&mut self, ticket: u64) -> Option<Heard> {
        let at = self.heard.iter().position(|(of, _)| *of == Ticket(ticket))?;
        Some(self.heard.remove(at).1)
    }

    pub(crate) fn sum(&self, of: impl Fn(&ShardGauges) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(&shard.gauges())).sum()
    }

    /// What the tenant is charged is what is held of it.
    pub(crate) fn check_holdings(&self) {
        let held: Vec<_> = self.shards.iter().filter_map(|shard| shard.holdings().remove(&TENANT)).collect();
        let charged = self.budget.usage(TENANT);
        let sums = (held.iter().map(|of| of.bytes).sum(), held.iter().map(|of| of.queues).sum(), held.iter().map(|of| of.parked).sum());
        assert_eq!((charged.bytes, charged.queues, charged.parked), sums, "the tenant is charged for what it holds");
    }

    pub(crate) fn pack(&mut self, partition: &str, chunk_bytes: usize) -> Option<Parcel> {
        let incarnation = self.incarnation;
        self.on_partition(partition, |shard, now, effects| shard.pack(now, incarnation, chunk_bytes, &name(partition), effects))
    }

    pub(crate) fn chunk(&mut self, partition: &str, cut: Cut, index: u32) -> Option<Chunk> {
        self.on_partition(partition, |shard, now, _| shard.chunk(now, &name(partition), cut, index, |number| number))
    }

    pub(crate) fn release(&mut self, partition: &str, cut: Cut) -> Option<u64> {
        self.on_partition(partition, |shard, now, _| shard.release(now, &name(partition), cut))
    }

    pub(crate) fn restore(&mut self, partition: &str) -> bool {
        self.on_partition(partition, |shard, now, effects| shard.restore(now, &name(partition), effects))
    }

    pub(crate) fn expect(&mut self, partition: &str, wait: Span) {
        self.on_partition(partition, |shard, now, _| shard.expect(&name(partition), now + wait));
    }

    pub(crate) fn unpack(&mut self, chunk: Chunk) -> Unpacked {
        let partition = chunk.name.partition.clone();
        self.on_partition(&partition, |shard, now, _| shard.unpack(now, chunk))
    }

    pub(crate) fn open(&mut self, partition: &str, opening: Opening) -> bool {
        self.on_partition(partition, |shard, now, effects| shard.open(now, &name(partition), opening, effects))
    }

    pub(crate) fn discard(&mut self, partition: &str, cut: Cut) {
        self.on_partition(partition, |shard, now, _| shard.discard(now, &name(partition), cut));
    }

    pub(crate) fn dismiss(&mut self, partition: &str) {
        self.on_partition(partition, |shard, now, effects| shard.dismiss(now, &name(partition), effects));
    }

    pub(crate) fn end_moved_call(&mut self, partition: &str, inbox: Inbox) {
        self.on_partition(partition, |shard, now, _| shard.end_moved_call(now, &name(partition), inbox));
    }

    /// Resets or deletes, as a node does while partitions are on their way.
    pub(crate) fn wipe(&mut self, ticket: u64, is_reset: bool) {
        let cause = if is_reset { mayfly_shards::DropCause::Reset } else { mayfly_shards::DropCause::Deleted };
        for core in 0..self.shard_count() {
            self.on(ShardIndex(core), |shard, _, _| shard.void_copies(TENANT, QUEUE, cause));
        }
        let command = if is_reset {
            Command::Reset { tenant: TENANT, queue: QUEUE }
        } else {
            Command::Delete { tenant: TENANT, queue: QUEUE, at: 1 }
        };
        self.ask(None, Ticket(ticket), command);
    }

    /// Every partition that the node holds, with its messages.
    pub(crate) fn inventory(&self, limit: usize) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut from = None;
            loop {
                let page = shard.inventory(from, limit);
                assert!(page.rows.len() <= limit.max(1));
                all.extend(page.rows.into_iter().map(|row| (row.name.partition.into_string(), row.message_count)));
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        all.sort();
        all
    }
}

/// Moves a partition as it should go.
pub(crate) fn hand_over(from: &mut Node, to: &mut Node, partition: &str, chunk_bytes: usize) -> Parcel {
    let parcel = from.pack(partition, chunk_bytes).expect("something to move");
    from.carry();
    to.expect(partition, Span::from_secs(5));
    for index in 0..parcel.chunk_count {
        let chunk = from.chunk(partition, parcel.cut, index).expect("a chunk");
        let is_last = index + 1 == parcel.chunk_count;
        assert_eq!(to.unpack(chunk), if is_last { Unpacked::Whole } else { Unpacked::Next(index + 1) });
    }
    assert_eq!(from.release(partition, parcel.cut), Some(parcel.message_count));
    assert!(to.open(partition, Opening::Released(parcel.cut)));
    to.carry();
    from.check_holdings();
    to.check_holdings();
    parcel
}
