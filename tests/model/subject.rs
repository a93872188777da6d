//! The state core under test, asked and heard in the vocabulary of [`crate::facts`].

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_shards::{
    AckItem, Answer, Command, Delivery, DropCause, Inbox, Letter, Moved, NO_INBOX, NodeBudget, Opening, Options, Outbox, PartitionName,
    Payload, Receipt, Refusal, ReplyItem, Reservation, Shard, ShardConfig, ShardIndex, Tenant, Ticket, Time, Undelivered, Unpacked, Usage,
    WAITER_OVERHEAD_BYTES, inbox_of,
};
use smallvec::SmallVec;

use crate::facts::{Ask, Broken, Fact, Item, Name, Pushed, ReplyTo, Said, Seen};
use crate::rules::Settings;

/// A seq that no message reaches.
const FORGED_SEQ: u64 = u64::MAX - 1;

pub(crate) struct Subject {
    settings: Settings,
    shard: Shard,
    budget: Arc<NodeBudget>,
    /// Nodes that everything was moved away from, which still keep the inboxes of calls: the first is of incarnation 0, and so on.
    before: Vec<(Shard, Arc<NodeBudget>)>,
    /// The inbox of each request that was delivered.
    inboxes: BTreeMap<u64, Inbox>,
    is_enabled: bool,
    /// What the log declares, which every node knows.
    declared: BTreeMap<Name, Options>,
    /// What was pushed, by its number.
    payloads: BTreeMap<u64, Payload>,
    /// The seq each message was delivered under.
    seqs: BTreeMap<u64, u64>,
    receipts: BTreeMap<u64, SmallVec<[Receipt; 1]>>,
}

impl Subject {
    fn node(settings: &Settings) -> (Shard, Arc<NodeBudget>) {
        let budget = Arc::new(NodeBudget::new(settings.node_bytes, settings.allowance));
        let shard = Shard::new(ShardConfig {
            index: ShardIndex(0),
            shard_count: 1,
            default_options: settings.defaults,
            implicit_idle: settings.implicit_idle,
            group_idle: settings.group_idle,
            abandoned: settings.abandoned,
            budget: Arc::clone(&budget),
            hash_seed: 1,
        });
        (shard, budget)
    }

    pub(crate) fn new(settings: &Settings) -> Self {
        let (shard, budget) = Self::node(settings);
        Self {
            settings: settings.clone(),
            shard,
            budget,
            before: vec![],
            inboxes: BTreeMap::new(),
            declared: BTreeMap::new(),
            is_enabled: true,
            payloads: BTreeMap::new(),
            seqs: BTreeMap::new(),
            receipts: BTreeMap::new(),
        }
    }

    /// Moves all there is to a new node; or packs it, and goes on here.
    pub(crate) fn relocate(&mut self, now: Time, chunk_bytes: usize, is_called_off: bool) -> Vec<Fact> {
        let incarnation = self.before.len() as u64;
        let mut heard = Heard::default();
        self.expire_all(now, &mut heard);
        let (mut next, budget) = Self::node(&self.settings);
        for (name, options) in self.declared.iter().filter(|_| !is_called_off) {
            let command = Command::Configure { tenant: name.tenant, queue: &name.queue, options: *options, at: 1 };
            next.step(now, Ticket(0), command, &mut Heard::default());
        }
        let mut names: Vec<PartitionName> = vec![];
        let mut from = None;
        loop {
            let page = self.shard.inventory(from, 2);
            names.extend(page.rows.into_iter().map(|row| row.name));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        let mut parcels = vec![];
        for name in &names {
            let parcel = self.shard.pack(now, incarnation, chunk_bytes, name, &mut heard);
            self.shard.check_invariants();
            parcels.extend(parcel.map(|parcel| (name, parcel)));
        }
        let mut moved = heard.take_moved();
        assert_eq!(heard.facts, [], "nothing else is said");
        moved.sort_by_key(|(ticket, moved)| (moved.since, *ticket));
        for (name, parcel) in parcels {
            next.expect(name, Time::NEVER);
            for index in 0..parcel.chunk_count {
                let chunk = self
                    .shard
                    .chunk(now, name, parcel.cut, index, |number| number)
                    .unwrap_or_else(|| panic!("a chunk of {name:?} {parcel:?} {index}"));
                assert_ne!(next.unpack(now, chunk), Unpacked::Stale);
            }
            if is_called_off {
                next.dismiss(now, name, &mut heard);
                assert!(self.shard.restore(now, name, &mut heard));
            } else {
                assert_eq!(self.shard.release(now, name, parcel.cut), Some(parcel.message_count));
                assert!(next.open(now, name, Opening::Released(parcel.cut), &mut heard));
            }
            self.shard.check_invariants();
            next.check_invariants();
        }
        if is_called_off {
            assert_eq!(budget.bytes.used(), 0, "nothing is left there");
        } else {
            next.switch(now, self.is_enabled, &mut heard);
            self.before.push((std::mem::replace(&mut self.shard, next), std::mem::replace(&mut self.budget, budget)));
            self.receipts.clear();
            self.seqs.clear();
        }
        for (ticket, Moved { command, since }) in moved {
            let since = since.expect("only pops wait");
            command.lend(|command| self.shard.step_since(now, ticket, command, since, &mut heard));
        }
        self.take_in(heard)
    }

    fn expire_all(&mut self, now: Time, heard: &mut Heard) {
        self.before.iter_mut().for_each(|(shard, _)| shard.expire(now, heard));
        self.shard.expire(now, heard);
    }

    /// Panics when an invariant does not hold.
    pub(crate) fn check_invariants(&self) {
        self.shard.check_invariants();
        self.before.iter().for_each(|(shard, _)| shard.check_invariants());
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let before = self.before.iter().filter_map(|(shard, _)| shard.next_deadline());
        self.shard.next_deadline().into_iter().chain(before).min()
    }

    /// Bytes charged to the node.
    pub(crate) fn used_bytes(&self) -> u64 {
        // A call is charged where its inbox is.
        self.budget.bytes.used() + self.calls_before() * WAITER_OVERHEAD_BYTES
    }

    fn calls_before(&self) -> u64 {
        self.before.iter().map(|(shard, _)| shard.gauges().calls).sum()
    }

    /// What a tenant uses: what the node says, which is what the shard counts.
    pub(crate) fn usage(&self, tenant: Tenant) -> Usage {
        let (charged, held) = (self.budget.usage(tenant), self.shard.holdings().remove(&tenant).unwrap_or_default());
        assert_eq!((charged.bytes, charged.queues, charged.parked), (held.bytes, held.queues, held.parked), "{tenant:?}: charged and held");
        let mut sum = charged;
        for (shard, budget) in &self.before {
            let usage = budget.usage(tenant);
            let held = shard.holdings().remove(&tenant).unwrap_or_default();
            assert_eq!(
                (usage.bytes, usage.queues, usage.parked),
                (0, held.queues, held.parked),
                "{tenant:?}: nothing but queues and calls"
            );
            (sum.pushed, sum.delivered, sum.parked) =
                (sum.pushed + usage.pushed, sum.delivered + usage.delivered, sum.parked + usage.parked);
        }
        sum
    }

    /// Calls that wait.
    pub(crate) fn call_count(&self) -> u64 {
        self.shard.gauges().calls + self.calls_before()
    }

    /// Messages dropped since the start, by cause.
    pub(crate) fn dropped(&self) -> [u64; DropCause::ALL.len()] {
        let mut all = self.shard.gauges().dropped;
        for (shard, _) in &self.before {
            all.iter_mut().zip(shard.gauges().dropped).for_each(|(sum, of)| *sum += of);
        }
        all
    }

    pub(crate) fn ask(&mut self, now: Time, ticket: u64, ask: &Ask) -> Vec<Fact> {
        if let Ask::Grant { tenant, allowance } = ask {
            let mut heard = Heard::default();
            self.budget.apply_grant(*tenant, *allowance);
            self.shard.turn_away(now, *tenant, &mut heard);
            return self.take_in(heard);
        }
        let mut payloads = self.payloads_of(ask);
        let items = self.items_of(ask);
        let texts = payloads.clone();
        let replies = self.replies_of(ask, &texts);
        let nodes_of = self.nodes_of(ask);
        let command = command(ask, &mut payloads, &items, &replies);
        let mut heard = Heard::default();
        // A declaration is admitted first, as the runtime does; then it is carried out whatever the bounds.
        let admitted = match ask {
            Ask::Configure { queue, .. } => self.admit(now, queue, &mut heard),
            _ => Ok(Reservation::nothing()),
        };
        let Ok(_reservation) = admitted.map_err(|refusal| heard.answer(Ticket(ticket), Answer::Refused(refusal))) else {
            return self.take_in(heard);
        };
        match ask {
            Ask::Configure { queue, options } => drop(self.declared.insert(queue.clone(), *options)),
            Ask::Undeclare { queue } | Ask::Delete { queue, is_overtaken: false } => drop(self.declared.remove(queue)),
            _ => {}
        }
        self.before.iter_mut().for_each(|(shard, _)| shard.expire(now, &mut heard));
        if let Command::Reply { tenant, items } = command {
            self.reply(now, ticket, tenant, &nodes_of, items, &mut heard);
        } else {
            self.shard.step(now, Ticket(ticket), command, &mut heard);
        }
        self.take_in(heard)
    }

    /// Each answer goes to the node that keeps its inbox.
    fn reply(&mut self, now: Time, ticket: u64, tenant: Tenant, nodes_of: &[usize], items: &[ReplyItem<'_>], heard: &mut Heard) {
        let mut refused = vec![];
        for (item, node) in items.iter().zip(nodes_of) {
            let shard = self.before.get_mut(*node).map_or(&mut self.shard, |(shard, _)| shard);
            shard.step(now, Ticket(ticket), Command::Reply { tenant, items: &[*item] }, heard);
            match heard.facts.pop() {
                Some(Fact { said: Said::Answer(Answer::Replied(of_item)), .. }) => refused.extend(of_item),
                fact => panic!("a reply is answered, not {fact:?}"),
            }
        }
        heard.answer(Ticket(ticket), Answer::Replied(refused));
    }

    fn admit(&mut self, now: Time, queue: &Name, heard: &mut Heard) -> Result<Reservation, Refusal> {
        self.shard.expire(now, heard);
        self.shard.admit_declaration(queue.tenant, &queue.queue)
    }

    pub(crate) fn cancel(&mut self, now: Time, ticket: u64) -> Vec<Fact> {
        let mut heard = Heard::default();
        self.before.iter_mut().for_each(|(shard, _)| shard.cancel(now, Ticket(ticket), &mut heard));
        self.shard.cancel(now, Ticket(ticket), &mut heard);
        self.take_in(heard)
    }

    pub(crate) fn switch(&mut self, now: Time, is_enabled: bool) -> Vec<Fact> {
        let mut heard = Heard::default();
        self.is_enabled = is_enabled;
        self.before.iter_mut().for_each(|(shard, _)| shard.switch(now, is_enabled, &mut heard));
        self.shard.switch(now, is_enabled, &mut heard);
        self.take_in(heard)
    }

    pub(crate) fn expire(&mut self, now: Time) -> Vec<Fact> {
        let mut heard = Heard::default();
        self.expire_all(now, &mut heard);
        self.take_in(heard)
    }

    pub(crate) fn undeliver(&mut self, now: Time, ticket: u64, broken: Broken) -> Vec<Fact> {
        let mut heard = Heard::default();
        for receipt in self.receipts.remove(&ticket).unwrap_or_default() {
            let broken = match broken {
                Broken::Unsent => Undelivered::Unsent,
                Broken::Partly => Undelivered::Partly,
            };
            self.shard.undeliver(now, receipt, broken, &mut heard);
        }
        self.take_in(heard)
    }

    /// The socket took all of the answer.
    pub(crate) fn sent(&mut self, ticket: u64) {
        self.receipts.remove(&ticket);
    }

    fn payloads_of(&mut self, ask: &Ask) -> Vec<Payload> {
        let messages: Vec<Pushed> = match ask {
            Ask::Push { messages, .. } => messages.clone(),
            Ask::Call { request, .. } => vec![*request],
            Ask::Reply { items, .. } => items.iter().map(|item| item.answer).collect(),
            _ => vec![],
        };
        let payloads: Vec<Payload> = messages.iter().map(payload_of).collect();
        for (pushed, payload) in messages.iter().zip(&payloads) {
            self.payloads.insert(pushed.id, Payload::clone(payload));
        }
        payloads
    }

    fn items_of<'a>(&self, ask: &'a Ask) -> Vec<AckItem<'a>> {
        let Ask::Ack { items, .. } = ask else { return vec![] };
        let seq_of = |item: &Item| item.id.and_then(|id| self.seqs.get(&id)).copied().unwrap_or(FORGED_SEQ);
        let to_ack = |(index, item): (usize, &'a Item)| AckItem {
            index: index as u32,
            partition: &item.partition,
            seq: seq_of(item),
            delivery: item.delivery,
            verdict: item.verdict,
        };
        items.iter().enumerate().map(to_ack).collect()
    }

    fn replies_of<'a>(&self, ask: &Ask, texts: &'a [Payload]) -> Vec<ReplyItem<'a>> {
        let Ask::Reply { items, .. } = ask else { return vec![] };
        let inbox_of = |request: u64| self.inboxes.get(&request).map_or(NO_INBOX, |inbox| inbox.number);
        let to_reply = |(index, (item, payload)): (usize, (&ReplyTo, &'a Payload))| ReplyItem {
            index: index as u32,
            inbox: item.request.map_or(NO_INBOX, inbox_of),
            payload,
            late_count: item.late_count,
        };
        items.iter().zip(texts).enumerate().map(to_reply).collect()
    }

    /// The node that keeps the inbox of each reply.
    fn nodes_of(&self, ask: &Ask) -> Vec<usize> {
        let Ask::Reply { items, .. } = ask else { return vec![] };
        let node_of = |item: &ReplyTo| item.request.and_then(|request| self.inboxes.get(&request)).map(|inbox| inbox.incarnation as usize);
        items.iter().map(|item| node_of(item).unwrap_or(usize::MAX)).collect()
    }

    /// Checks what only this side can get wrong: payload bytes, seqs, receipts.
    fn take_in(&mut self, heard: Heard) -> Vec<Fact> {
        assert!(!heard.is_open, "a delivery was begun and not ended");
        for (ticket, receipts) in heard.receipts {
            assert!(self.receipts.insert(ticket, receipts).is_none(), "ticket {ticket} was answered twice");
        }
        for (id, text) in heard.replies {
            assert_eq!(Some(&*text), self.payloads.get(&id).map(|payload| &**payload), "text of answer {id}");
        }
        for (id, seq, payload, inbox) in heard.payloads {
            let own = inbox_of(seq).map(|number| Inbox { incarnation: self.before.len() as u64, number });
            if let Some(inbox) = inbox.or(own) {
                assert_eq!(*self.inboxes.entry(id).or_insert(inbox), inbox, "inbox of message {id}");
            }
            assert_eq!(Some(&*payload), self.payloads.get(&id).map(|p| &**p), "payload of message {id}");
            assert_eq!(*self.seqs.entry(id).or_insert(seq), seq, "seq of message {id}");
        }
        let in_order: Vec<u64> = self.seqs.values().copied().collect();
        let is_in_order = !self.before.is_empty() || in_order.is_sorted_by(|a, b| a < b);
        assert!(is_in_order, "seqs do not grow in order of push: {:?}", self.seqs);
        heard.facts
    }
}

/// JSON text that begins with the message's number.
fn payload_of(pushed: &Pushed) -> Payload {
    let mut text = format!("\"{:06}", pushed.id);
    while text.len() + 1 < pushed.size_bytes {
        text.push('.');
    }
    text.push('"');
    Payload::from(text.into_bytes())
}

fn command<'a>(ask: &'a Ask, payloads: &'a mut Vec<Payload>, items: &'a [AckItem<'a>], replies: &'a [ReplyItem<'a>]) -> Command<'a> {
    match ask {
        Ask::Grant { .. } => unreachable!("nobody's request"),
        Ask::Call { queue, partition, until, fail_fast, .. } => {
            let (until, fail_fast) = (*until, *fail_fast);
            Command::Call { tenant: queue.tenant, queue: &queue.queue, partition, payloads, until, fail_fast }
        }
        Ask::Reply { tenant, .. } => Command::Reply { tenant: *tenant, items: replies },
        Ask::Push { queue, partition, .. } => Command::Push { tenant: queue.tenant, queue: &queue.queue, partition, payloads },
        Ask::Pop { queue, partition, group, batch, wait_until, auto_ack } => Command::Pop {
            tenant: queue.tenant,
            queue: &queue.queue,
            partition: partition.as_deref(),
            group,
            batch: *batch,
            wait_until: *wait_until,
            auto_ack: *auto_ack,
        },
        Ask::Ack { queue, group, .. } => Command::Ack { tenant: queue.tenant, queue: &queue.queue, group, items },
        Ask::Configure { queue, options } => Command::Configure { tenant: queue.tenant, queue: &queue.queue, options: *options, at: 1 },
        Ask::Undeclare { queue } => Command::Undeclare { tenant: queue.tenant, queue: &queue.queue },
        Ask::Leave { queue, group } => Command::Leave { tenant: queue.tenant, queue: &queue.queue, group },
        Ask::Reset { queue } => Command::Reset { tenant: queue.tenant, queue: &queue.queue },
        Ask::Delete { queue, is_overtaken } => Command::Delete { tenant: queue.tenant, queue: &queue.queue, at: u64::from(!is_overtaken) },
        Ask::List { tenant, prefix, after, limit } => Command::List { tenant: *tenant, prefix, after, limit: *limit },
        Ask::Depth { queue, group } => Command::Depth { tenant: queue.tenant, queue: &queue.queue, group: group.as_deref() },
    }
}

fn number_in(payload: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(payload);
    text.get(1..7).and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

/// Writes down what a step says, and checks the order of the calls.
#[derive(Default)]
struct Heard {
    facts: Vec<Fact>,
    /// Between the beginning and the end of a delivery.
    is_open: bool,
    payloads: Vec<(u64, u64, Payload, Option<Inbox>)>,
    receipts: Vec<(u64, SmallVec<[Receipt; 1]>)>,
    replies: Vec<(u64, Vec<u8>)>,
}

impl Heard {
    /// Commands that are to be given to the new owner.
    fn take_moved(&mut self) -> Vec<(Ticket, Moved)> {
        let (moved, rest): (Vec<_>, Vec<_>) = self.facts.drain(..).partition(|fact| matches!(fact.said, Said::Answer(Answer::Moved(_))));
        self.facts = rest;
        let of = |fact: Fact| match fact.said {
            Said::Answer(Answer::Moved(moved)) => (Ticket(fact.ticket), *moved),
            _ => unreachable!("moved"),
        };
        moved.into_iter().map(of).collect()
    }
}

impl Outbox for Heard {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        assert!(!self.is_open, "an answer inside a delivery");
        self.facts.push(Fact { ticket: ticket.0, said: Said::Answer(answer) });
    }

    fn reply(&mut self, ticket: Ticket, payload: &[u8]) {
        assert!(!self.is_open, "an answer inside a delivery");
        let id = number_in(payload);
        self.replies.push((id, payload.to_vec()));
        self.facts.push(Fact { ticket: ticket.0, said: Said::Reply(id) });
    }

    fn begin_delivery(&mut self, ticket: Ticket, queue: &str) {
        assert!(!self.is_open, "a delivery inside a delivery");
        self.is_open = true;
        self.facts.push(Fact { ticket: ticket.0, said: Said::Messages { queue: queue.to_owned(), messages: vec![] } });
    }

    fn message(&mut self, delivery: Delivery<'_>) {
        assert!(self.is_open, "a message outside of a delivery");
        let id = number_in(delivery.payload);
        self.payloads.push((id, delivery.seq, Payload::from(delivery.payload), delivery.inbox));
        let Some(Fact { said: Said::Messages { messages, .. }, .. }) = self.facts.last_mut() else { return };
        let (attempts, delivery_number) = (delivery.attempts, delivery.delivery);
        let is_call = inbox_of(delivery.seq).is_some() || delivery.inbox.is_some();
        messages.push(Seen { partition: delivery.partition.to_owned(), id, attempts, delivery: delivery_number, is_call });
    }

    fn end_delivery(&mut self, receipts: SmallVec<[Receipt; 1]>) {
        assert!(std::mem::take(&mut self.is_open), "an end without a beginning");
        let Some(Fact { ticket, said: Said::Messages { messages, .. } }) = self.facts.last() else { return };
        assert_eq!(receipts.len(), usize::from(!messages.is_empty()), "one receipt for the one shard that gave messages");
        if !receipts.is_empty() {
            self.receipts.push((*ticket, receipts));
        }
    }

    fn send(&mut self, to: ShardIndex, _letter: Letter) {
        panic!("a node of one shard has nobody to write to, but wrote to {to:?}");
    }
}
