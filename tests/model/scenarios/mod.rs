//! Sentences of SPEC.md as short runs: what the two sides agree on is also what the sentence says.

mod bounds;
mod calls;
mod grants;
mod leases;
mod lifetimes;
mod returns;
mod waiting;

use mayfly_shards::{Allowance, Answer, DepthReport, Options, Outcome, Policy, QueueReport, Span, Tenant, Verdict, WindowBuffer};

use crate::drive::{Delivered, Rig};
use crate::facts::{Ask, Broken, Fact, Name, ReplyTo, Said};
use crate::rules::Settings;

const PARTITION: &str = "Default";

/// The defaults of SPEC.md, with a short lease.
fn settings() -> Settings {
    let defaults = Options {
        max_bytes: 16 << 20,
        max_length: 10_000,
        policy: Policy::Reject,
        ttl_seconds: 0,
        lease_seconds: 10,
        retry_limit: 5,
        window: WindowBuffer::default(),
    };
    let never = Span(0);
    Settings { defaults, implicit_idle: never, group_idle: never, abandoned: never, node_bytes: 256 << 20, allowance: Allowance::UNBOUNDED }
}

/// One message as a scenario sees it: its number (in order of push), attempts, delivery.
type Got = (u64, u32, u32);

/// A rig with short words, for one tenant.
struct Talk {
    rig: Rig,
}

impl Talk {
    fn new(settings: Settings) -> Self {
        Self { rig: Rig::new(settings, true) }
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let mut settings = settings();
        change(&mut settings.defaults);
        Self::new(settings)
    }

    fn ask(&mut self, ask: &Ask) -> (u64, Vec<Fact>) {
        self.rig.ask(ask).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn answer(&mut self, ask: &Ask) -> Answer {
        let (ticket, facts) = self.ask(ask);
        let answer = facts.into_iter().find(|fact| fact.ticket == ticket).map(|fact| fact.said);
        let Some(Said::Answer(answer)) = answer else { panic!("no answer to {ask:?}, but {answer:?}") };
        answer
    }

    fn push_sized(&mut self, partition: &str, sizes: &[usize]) -> (Answer, Vec<(u64, Vec<Got>)>) {
        let messages = self.rig.number(sizes);
        let (ticket, facts) = self.ask(&Ask::Push { queue: name("q"), partition: partition.to_owned(), messages });
        let answer = facts.iter().find(|fact| fact.ticket == ticket).map(|fact| fact.said.clone());
        let Some(Said::Answer(answer)) = answer else { panic!("a push without an answer: {facts:?}") };
        (answer, got(&facts))
    }

    /// Pushes so many messages; the parked pops that got them, oldest first.
    fn push(&mut self, partition: &str, count: usize) -> Vec<(u64, Vec<Got>)> {
        let (answer, woken) = self.push_sized(partition, &vec![10; count]);
        assert_eq!(answer, Answer::Pushed(count));
        woken
    }

    fn pop_with(&mut self, group: &str, partition: Option<&str>, batch: u32, wait_ms: Option<u64>, auto_ack: bool) -> (u64, Vec<Fact>) {
        let wait_until = wait_ms.map(|ms| self.rig.now + Span::from_millis(ms));
        let partition = partition.map(str::to_owned);
        self.ask(&Ask::Pop { queue: name("q"), partition, group: group.to_owned(), batch, wait_until, auto_ack })
    }

    /// What a plain leased pop gets.
    fn pop(&mut self, group: &str, batch: u32) -> Vec<Got> {
        let (_, facts) = self.pop_with(group, None, batch, None, false);
        got(&facts).remove(0).1
    }

    /// A pop that parks: its ticket.
    fn park(&mut self, group: &str, batch: u32, wait_ms: u64) -> u64 {
        let (ticket, facts) = self.pop_with(group, None, batch, Some(wait_ms), false);
        assert_eq!(facts, [], "it parks");
        ticket
    }

    fn pass_millis(&mut self, ms: u64) -> Vec<(u64, Vec<Got>)> {
        got(&self.rig.pass(Span::from_millis(ms)).unwrap_or_else(|failure| panic!("{failure}")))
    }

    /// Acks one delivery of a message under `group`; the outcome and who was woken.
    fn ack(&mut self, group: &str, id: u64, delivery: u32, verdict: Verdict) -> (Outcome, Vec<(u64, Vec<Got>)>) {
        let is_meant = |d: &&Delivered| d.seen.id == id;
        let mut item = Rig::item(self.rig.delivered.iter().find(is_meant).expect("delivered before"), verdict);
        item.delivery = delivery;
        let (ticket, facts) = self.ask(&Ask::Ack { queue: name("q"), group: group.to_owned(), items: vec![item] });
        let outcome = facts.iter().find_map(|fact| match &fact.said {
            Said::Answer(Answer::Acked(outcomes)) if fact.ticket == ticket => Some(outcomes[0].1),
            _ => None,
        });
        (outcome.expect("an ack is answered"), got(&facts))
    }

    fn complete(&mut self, group: &str, id: u64, delivery: u32) -> Outcome {
        self.ack(group, id, delivery, Verdict::Completed).0
    }

    fn nack(&mut self, group: &str, id: u64, delivery: u32) -> Outcome {
        self.ack(group, id, delivery, Verdict::Nack).0
    }

    fn undeliver(&mut self, ticket: u64, broken: Broken) -> Vec<(u64, Vec<Got>)> {
        got(&self.rig.undeliver(ticket, broken).unwrap_or_else(|failure| panic!("{failure}")))
    }

    fn configure(&mut self, change: impl FnOnce(&mut Options)) {
        let mut options = settings().defaults;
        change(&mut options);
        assert_eq!(self.answer(&Ask::Configure { queue: name("q"), options }), Answer::Configured);
    }

    fn row(&mut self) -> Option<QueueReport> {
        let ask = Ask::List { tenant: Tenant::DEFAULT, prefix: "q".to_owned(), after: String::new(), limit: 1 };
        let Answer::Listed(rows) = self.answer(&ask) else { panic!("a listing is answered") };
        rows.into_iter().next()
    }

    fn depth(&mut self, group: Option<&str>) -> Option<DepthReport> {
        let Answer::Depth(report) = self.answer(&Ask::Depth { queue: name("q"), group: group.map(str::to_owned) }) else {
            panic!("a depth is answered")
        };
        report
    }

    /// Dropped for bounds, ttl, retry.
    fn drops(&mut self) -> [u64; 3] {
        self.row().map(|row| row.drops).unwrap_or_default()
    }
}

fn name(queue: &str) -> Name {
    Name { tenant: Tenant::DEFAULT, queue: queue.to_owned() }
}

/// Pops that were answered, in order, and what each got.
fn got(facts: &[Fact]) -> Vec<(u64, Vec<Got>)> {
    let of = |fact: &Fact| match &fact.said {
        Said::Messages { messages, .. } => Some((fact.ticket, messages.iter().map(|m| (m.id, m.attempts, m.delivery)).collect())),
        Said::Answer(_) | Said::Reply(_) => None,
    };
    facts.iter().filter_map(of).collect()
}
