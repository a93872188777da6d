//! Drives the model and the core side by side and compares everything they say.
//!
//! After every step: the same facts for the same tickets; the core's invariants; the same status
//! reads; the same bytes charged; and, when time is exact, a core that would wake up in time for the next thing due.

use mayfly_shards::{Answer, DropCause, QUEUE_MODE, Span, Tenant, Time, Usage};

use crate::facts::{Ask, Broken, Fact, Item, Name, Pushed, Said, Seen};
use crate::rules::{Model, Settings};
use crate::subject::Subject;

/// A delivery that an ack may name.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) queue: Name,
    pub(crate) group: String,
    pub(crate) seen: Seen,
}

/// Both sides, and what the clients in the middle remember.
pub(crate) struct Rig {
    model: Model,
    subject: Subject,
    pub(crate) now: Time,
    /// False: `expire` is not called at each deadline on the way, only when something is asked.
    is_exact: bool,
    tickets: u64,
    pushed: u64,
    /// Queue and group of every pop, by ticket.
    pops: Vec<(u64, Name, String)>,
    pub(crate) delivered: Vec<Delivered>,
    queues: Vec<Name>,
    log: Vec<String>,
}

/// Everybody's queues.
pub(crate) const TENANTS: [Tenant; 3] = [Tenant::DEFAULT, Tenant(2), Tenant(3)];

type Checked<T> = Result<T, String>;

/// Where the runs begin: not at zero, so that what lies before the start is a time too.
const START: Time = Time(1_000_000_000_000);

impl Rig {
    pub(crate) fn new(settings: Settings, is_exact: bool) -> Self {
        Self {
            subject: Subject::new(&settings),
            log: vec![format!("{settings:?}")],
            model: Model::new(settings),
            now: START,
            is_exact,
            tickets: 0,
            pushed: 0,
            pops: vec![],
            delivered: vec![],
            queues: vec![],
        }
    }

    /// Numbers for `sizes` new messages.
    pub(crate) fn number(&mut self, sizes: &[usize]) -> Vec<Pushed> {
        let first = self.pushed;
        self.pushed += sizes.len() as u64;
        sizes.iter().enumerate().map(|(n, &size_bytes)| Pushed { id: first + n as u64, size_bytes: size_bytes.max(8) }).collect()
    }

    /// Asks both; the ticket and the facts they agree on.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Checked<(u64, Vec<Fact>)> {
        self.tickets += 1;
        let ticket = self.tickets;
        self.log.push(format!("{} #{ticket} {ask:?}", self.clock()));
        self.remember(ticket, ask);
        let (expected, found) = (self.model.ask(self.now, ticket, ask), self.subject.ask(self.now, ticket, ask));
        Ok((ticket, self.compare(expected, found)?))
    }

    pub(crate) fn cancel(&mut self, ticket: u64) -> Checked<Vec<Fact>> {
        self.log.push(format!("{} cancel #{ticket}", self.clock()));
        let (expected, found) = (self.model.cancel(self.now, ticket), self.subject.cancel(self.now, ticket));
        self.compare(expected, found)
    }

    pub(crate) fn undeliver(&mut self, ticket: u64, broken: Broken) -> Checked<Vec<Fact>> {
        self.log.push(format!("{} undeliver #{ticket} {broken:?}", self.clock()));
        let expected = self.model.undeliver(self.now, ticket, broken);
        let found = self.subject.undeliver(self.now, ticket, broken);
        self.compare(expected, found)
    }

    /// The socket took all of the answer.
    pub(crate) fn sent(&mut self, ticket: u64) {
        self.log.push(format!("{} sent #{ticket}", self.clock()));
        self.model.sent(ticket);
        self.subject.sent(ticket);
    }

    pub(crate) fn switch(&mut self, is_enabled: bool) -> Checked<Vec<Fact>> {
        self.log.push(format!("{} switch {is_enabled}", self.clock()));
        let (expected, found) = (self.model.switch(self.now, is_enabled), self.subject.switch(self.now, is_enabled));
        self.compare(expected, found)
    }

    /// Everything goes to another node, in chunks of so many bytes; or is packed, and stays when the hand-over is called off. Ids of
    /// before are stale from now on: nobody is asked of them any more.
    pub(crate) fn relocate(&mut self, chunk_bytes: usize, is_called_off: bool) -> Checked<Vec<Fact>> {
        self.log.push(format!("{} relocate {chunk_bytes} {is_called_off}", self.clock()));
        if !is_called_off {
            self.delivered.clear();
        }
        let expected = if is_called_off { self.model.call_off(self.now) } else { self.model.relocate(self.now) };
        let found = self.subject.relocate(self.now, chunk_bytes, is_called_off);
        self.compare(expected, found)
    }

    pub(crate) fn expire(&mut self) -> Checked<Vec<Fact>> {
        self.log.push(format!("{} expire", self.clock()));
        let (expected, found) = (self.model.expire(self.now), self.subject.expire(self.now));
        self.compare(expected, found)
    }

    /// Lets time pass; when it is exact, both are called at every deadline on the way.
    pub(crate) fn pass(&mut self, span: Span) -> Checked<Vec<Fact>> {
        let end = self.now + span;
        let mut facts = vec![];
        while self.is_exact {
            let deadlines = self.model.next_deadline().into_iter().chain(self.subject.next_deadline());
            let Some(next) = deadlines.min().filter(|&at| at <= end) else { break };
            self.now = self.now.max(next);
            facts.extend(self.expire()?);
            if self.subject.next_deadline().is_some_and(|at| at <= self.now) {
                return Err(self.failure("expire left a deadline that is due", &"nothing due", &self.subject.next_deadline()));
            }
        }
        self.now = end;
        Ok(facts)
    }

    /// Messages dropped since the start for one cause.
    pub(crate) fn dropped(&self, cause: DropCause) -> u64 {
        self.model.dropped()[cause as usize]
    }

    /// The next moment at which anything is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.model.next_deadline()
    }

    pub(crate) fn parked(&self) -> Vec<u64> {
        self.model.parked()
    }

    pub(crate) fn undeliverable(&self) -> Vec<u64> {
        self.model.undeliverable()
    }

    /// Takes what every group is still to be given and compares it.
    pub(crate) fn drain(&mut self) -> Checked<()> {
        self.switch(true)?;
        for queue in self.queues.clone() {
            for group in ["a", "b", "c", QUEUE_MODE] {
                let (queue, group) = (queue.clone(), group.to_owned());
                self.ask(&Ask::Pop { queue, partition: None, group, batch: 10_000, wait_until: None, auto_ack: true })?;
            }
        }
        Ok(())
    }

    /// An ack item for a delivery.
    pub(crate) fn item(delivered: &Delivered, verdict: mayfly_shards::Verdict) -> Item {
        let seen = &delivered.seen;
        Item { partition: seen.partition.clone(), id: Some(seen.id), delivery: seen.delivery, verdict }
    }

    fn remember(&mut self, ticket: u64, ask: &Ask) {
        let (Ask::Push { queue, .. } | Ask::Pop { queue, .. } | Ask::Call { queue, .. } | Ask::Configure { queue, .. }) = ask else {
            return;
        };
        if !self.queues.contains(queue) {
            self.queues.push(queue.clone());
        }
        if let Ask::Pop { queue, group, .. } = ask {
            self.pops.push((ticket, queue.clone(), group.clone()));
        }
    }

    fn compare(&mut self, expected: Vec<Fact>, found: Vec<Fact>) -> Checked<Vec<Fact>> {
        let (expected, found) = (in_order(expected), in_order(found));
        self.log.push(format!("    {expected:?}"));
        if expected != found {
            return Err(self.failure("what was said", &expected, &found));
        }
        for fact in &expected {
            self.note_delivered(fact);
        }
        self.subject.check_invariants();
        self.compare_status()?;
        self.compare_deadline()?;
        Ok(expected)
    }

    fn note_delivered(&mut self, fact: &Fact) {
        let Said::Messages { messages, .. } = &fact.said else { return };
        let Some((_, queue, group)) = self.pops.iter().find(|(ticket, ..)| *ticket == fact.ticket) else { return };
        for seen in messages {
            self.delivered.push(Delivered { queue: queue.clone(), group: group.clone(), seen: seen.clone() });
        }
    }

    /// Status reads change nothing, so they may be compared after every step.
    fn compare_status(&mut self) -> Checked<()> {
        let mut asks = vec![];
        for tenant in TENANTS {
            self.compare_usage(tenant)?;
            asks.push(Ask::List { tenant, prefix: String::new(), after: String::new(), limit: 100 });
        }
        for queue in &self.queues {
            for group in [None, Some("a"), Some(QUEUE_MODE)] {
                asks.push(Ask::Depth { queue: queue.clone(), group: group.map(str::to_owned) });
            }
        }
        for ask in asks {
            let (expected, found) = (self.model.ask(self.now, 0, &ask), self.subject.ask(self.now, 0, &ask));
            let (expected, found) = (in_order(expected), in_order(found));
            if expected != found {
                return Err(self.failure(&format!("{ask:?}"), &expected, &found));
            }
        }
        let (expected, found) = (self.model.used_bytes(), self.subject.used_bytes());
        if expected != found {
            return Err(self.failure("bytes charged to the node", &expected, &found));
        }
        let (expected, found) = (self.model.call_count(), self.subject.call_count());
        if expected != found {
            return Err(self.failure("calls that wait", &expected, &found));
        }
        let (expected, found) = (self.model.dropped(), self.subject.dropped());
        if expected != found {
            return Err(self.failure("messages dropped, by cause", &expected, &found));
        }
        Ok(())
    }

    /// CHOICE: the totals of a tenant begin anew when the node has forgotten it; the default tenant is never forgotten.
    fn compare_usage(&self, tenant: Tenant) -> Checked<()> {
        let (expected, found) = (self.model.usage(tenant), self.subject.usage(tenant));
        let totals = |usage: &Usage| [usage.pushed, usage.delivered];
        let is_as_many = totals(&expected) == totals(&found);
        let is_fewer = totals(&found).iter().zip(totals(&expected)).all(|(found, expected)| *found <= expected);
        let held = |usage: &Usage| [usage.bytes, usage.queues, usage.parked];
        if held(&expected) == held(&found) && (is_as_many || (is_fewer && tenant != Tenant::DEFAULT)) {
            return Ok(());
        }
        Err(self.failure(&format!("what {tenant:?} uses"), &expected, &found))
    }

    /// The core may wake up for nothing, but never too late.
    fn compare_deadline(&self) -> Checked<()> {
        let (expected, found) = (self.model.next_deadline(), self.subject.next_deadline());
        let is_late = expected.is_some_and(|at| found.is_none_or(|found| found > at));
        if is_late { Err(self.failure("the next deadline is no later than", &expected, &found)) } else { Ok(()) }
    }

    fn clock(&self) -> String {
        let passed = self.now.since(START).0;
        format!("{:>4}.{:09} s", passed / 1_000_000_000, passed % 1_000_000_000)
    }

    fn failure(&self, what: &str, expected: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug) -> String {
        let log = self.log.join("\n");
        format!("at {}: {what}\n  model: {expected:?}\n  core:  {found:?}\nlog:\n{log}", self.clock())
    }
}

/// What is said to different clients in one step may be said in any order: who got what is what counts.
fn in_order(mut facts: Vec<Fact>) -> Vec<Fact> {
    facts.iter_mut().for_each(|fact| settle_order(&mut fact.said));
    facts.sort_by_key(|fact| fact.ticket);
    facts
}

/// Lists without an order of their own get one. A partition that holds nothing may be listed or not: it gives its memory back.
fn settle_order(said: &mut Said) {
    let Said::Answer(answer) = said else { return };
    match answer {
        Answer::Acked(outcomes) => outcomes.sort_by_key(|(index, _)| *index),
        Answer::Listed(rows) => rows.iter_mut().for_each(|row| row.partitions = 0),
        Answer::Depth(Some(report)) => {
            report.partitions.retain(|p| p.bytes > 0 || p.pending > 0);
            report.partitions.sort_by(|a, b| a.partition.cmp(&b.partition));
            report.groups.sort_by(|a, b| a.group.cmp(&b.group));
        }
        _ => {}
    }
}
