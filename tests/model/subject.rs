//! The state core under test, asked and heard in the vocabulary of [`crate::facts`].

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_shards::{
    AckItem, Answer, Command, Delivery, DropCause, Letter, NO_INBOX, NodeBudget, Outbox, Payload, Receipt, Refusal, ReplyItem, Reservation,
    Shard, ShardConfig, ShardIndex, Tenant, Ticket, Time, Undelivered, Usage, inbox_of,
};
use smallvec::SmallVec;

use crate::facts::{Ask, Broken, Fact, Item, Name, Pushed, ReplyTo, Said, Seen};
use crate::rules::Settings;

/// A seq that no message reaches.
const FORGED_SEQ: u64 = u64::MAX - 1;

pub(crate) struct Subject {
    shard: Shard,
    budget: Arc<NodeBudget>,
    /// What was pushed, by its number.
    payloads: BTreeMap<u64, Payload>,
    /// The seq each message was delivered under.
    seqs: BTreeMap<u64, u64>,
    receipts: BTreeMap<u64, SmallVec<[Receipt; 1]>>,
}

impl Subject {
    pub(crate) fn new(settings: &Settings) -> Self {
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
        Self { shard, budget, payloads: BTreeMap::new(), seqs: BTreeMap::new(), receipts: BTreeMap::new() }
    }

    /// Panics when an invariant does not hold.
    pub(crate) fn check_invariants(&self) {
        self.shard.check_invariants();
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.shard.next_deadline()
    }

    /// Bytes charged to the node.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.budget.bytes.used()
    }

    /// What a tenant uses: what the node says, which is what the shard counts.
    pub(crate) fn usage(&self, tenant: Tenant) -> Usage {
        let (charged, held) = (self.budget.usage(tenant), self.shard.holdings().remove(&tenant).unwrap_or_default());
        assert_eq!((charged.bytes, charged.queues, charged.parked), (held.bytes, held.queues, held.parked), "{tenant:?}: charged and held");
        charged
    }

    /// Calls that wait.
    pub(crate) fn call_count(&self) -> u64 {
        self.shard.gauges().calls
    }

    /// Messages dropped since the start, by cause.
    pub(crate) fn dropped(&self) -> [u64; DropCause::ALL.len()] {
        self.shard.gauges().dropped
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
        self.shard.step(now, Ticket(ticket), command, &mut heard);
        self.take_in(heard)
    }

    fn admit(&mut self, now: Time, queue: &Name, heard: &mut Heard) -> Result<Reservation, Refusal> {
        self.shard.expire(now, heard);
        self.shard.admit_declaration(queue.tenant, &queue.queue)
    }

    pub(crate) fn cancel(&mut self, now: Time, ticket: u64) -> Vec<Fact> {
        let mut heard = Heard::default();
        self.shard.cancel(now, Ticket(ticket), &mut heard);
        self.take_in(heard)
    }

    pub(crate) fn switch(&mut self, now: Time, is_enabled: bool) -> Vec<Fact> {
        let mut heard = Heard::default();
        self.shard.switch(now, is_enabled, &mut heard);
        self.take_in(heard)
    }

    pub(crate) fn expire(&mut self, now: Time) -> Vec<Fact> {
        let mut heard = Heard::default();
        self.shard.expire(now, &mut heard);
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
        let inbox_of = |request: u64| self.seqs.get(&request).copied().unwrap_or(NO_INBOX);
        let to_reply = |(index, (item, payload)): (usize, (&ReplyTo, &'a Payload))| ReplyItem {
            index: index as u32,
            inbox: item.request.map_or(NO_INBOX, inbox_of),
            payload,
            late_count: item.late_count,
        };
        items.iter().zip(texts).enumerate().map(to_reply).collect()
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
        for (id, seq, payload) in heard.payloads {
            assert_eq!(Some(&*payload), self.payloads.get(&id).map(|p| &**p), "payload of message {id}");
            assert_eq!(*self.seqs.entry(id).or_insert(seq), seq, "seq of message {id}");
        }
        let in_order: Vec<u64> = self.seqs.values().copied().collect();
        assert!(in_order.is_sorted_by(|a, b| a < b), "seqs do not grow in order of push: {:?}", self.seqs);
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
        Ask::Configure { queue, options } => Command::Configure { tenant: queue.tenant, queue: &queue.queue, options: *options },
        Ask::Undeclare { queue } => Command::Undeclare { tenant: queue.tenant, queue: &queue.queue },
        Ask::Leave { queue, group } => Command::Leave { tenant: queue.tenant, queue: &queue.queue, group },
        Ask::Reset { queue } => Command::Reset { tenant: queue.tenant, queue: &queue.queue },
        Ask::Delete { queue } => Command::Delete { tenant: queue.tenant, queue: &queue.queue },
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
    payloads: Vec<(u64, u64, Payload)>,
    receipts: Vec<(u64, SmallVec<[Receipt; 1]>)>,
    replies: Vec<(u64, Vec<u8>)>,
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
        self.payloads.push((id, delivery.seq, Payload::from(delivery.payload)));
        let Some(Fact { said: Said::Messages { messages, .. }, .. }) = self.facts.last_mut() else { return };
        let (attempts, delivery_number) = (delivery.attempts, delivery.delivery);
        let is_call = inbox_of(delivery.seq).is_some();
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
