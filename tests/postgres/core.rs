//! What the control core does with the store, without its log and shards: one thread that asks, hears and applies at once.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mayfly::api::declaration::DeclaredOptions;
use mayfly::config::PostgresTarget;
use mayfly::control::change::{Change, Declaration, Grant};
use mayfly::control::state::State;
use mayfly::control::store::keeper::Keeper;
use mayfly::control::store::{Ask, Event, Stamp, Store, WRITE_SPAN, Write};
use mayfly_shards::{QueueName, Tenant};

/// How late an answer may be on a busy test machine. What is kept in error is kept until the server is there again.
pub(crate) const LATE_MAX: Duration = Duration::from_secs(2);
/// Longer than anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(15);

pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) is_attached: bool,
    /// Why it was not attached, the last time.
    pub(crate) reason: String,
    pub(crate) misfits: Vec<String>,
    /// Readings that came to their end.
    pub(crate) readings: usize,
    keeper: Keeper,
    store: Store,
    events: mpsc::Receiver<Event>,
    done: HashMap<u64, Option<Stamp>>,
    tickets: u64,
    start: Instant,
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName { tenant: Tenant::DEFAULT, name: name.into() }
}

impl Core {
    pub(crate) fn start(url: &str, state: State) -> Self {
        let (say, events) = mpsc::channel();
        let target = PostgresTarget::read(url).expect("a URL");
        let store = Store::start(target, move |event| drop(say.send(event))).expect("a thread");
        Self {
            state,
            is_attached: false,
            reason: String::new(),
            misfits: Vec::new(),
            readings: 0,
            keeper: Keeper::default(),
            store,
            events,
            done: HashMap::new(),
            tickets: 0,
            start: Instant::now(),
        }
    }

    /// One that is attached.
    #[track_caller]
    pub(crate) fn attached(url: &str, state: State) -> Self {
        let mut core = Self::start(url, state);
        core.until("attached", SOON, |core| core.is_attached);
        core
    }

    /// Goes on until something is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, limit: Duration, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + limit;
        while !is_so(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not {what} within {limit:?}: {}", self.reason);
            if let Ok(event) = self.events.recv_timeout(left) {
                self.hear(event);
            }
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Reading { round } => {
                let ask = self.keeper.mark(round, &self.state, self.start.elapsed());
                assert!(self.store.ask(ask));
            }
            Event::Rows { round, cluster, is_first, rows } => {
                let reading = self.keeper.rows(round, cluster, is_first, &rows, &self.state, self.start.elapsed());
                let Some(reading) = reading else { return };
                for change in &reading.changes {
                    self.state.apply(change);
                }
                self.misfits.extend(reading.misfits.into_iter().map(|misfit| format!("{}: {}", misfit.row, misfit.reason)));
                self.readings += 1;
                assert!(self.store.ask(reading.then));
            }
            Event::Done { ticket, stamp } => {
                self.done.insert(ticket, stamp);
            }
            Event::Attached => self.is_attached = true,
            Event::Detached { reason, .. } => {
                self.is_attached = false;
                self.reason = reason;
            }
        }
    }

    /// Asks for a write; its answer is for [`Self::stamp`]. None: too much is asked already.
    pub(crate) fn ask(&mut self, write: Write) -> Option<u64> {
        self.tickets += 1;
        let ticket = self.tickets;
        self.store.ask(Ask::Write { ticket, write, due: Instant::now() + WRITE_SPAN }).then_some(ticket)
    }

    /// The answer, when it is there, and its change applied.
    #[track_caller]
    fn write(&mut self, write: Write) -> Option<Stamp> {
        let ticket = self.ask(write.clone()).expect("room");
        self.until("answered", WRITE_SPAN + LATE_MAX, |core| core.done.contains_key(&ticket));
        let stamp = self.done.remove(&ticket).flatten()?;
        let version = Some(stamp.version);
        let change = match write {
            Write::Declare { queue, options } => {
                let options_text = options.plain_text().into_bytes().into();
                Change::Declare { queue, declaration: Declaration { options_text, updated_at_ms: stamp.updated_at_ms, version } }
            }
            Write::Delete { queue } => Change::Delete { queue, version },
            Write::Grant { tenant, grant } => Change::Grant { tenant, grant, version },
        };
        assert!(self.state.apply(&change), "{change:?} is older than what is known");
        Some(stamp)
    }

    /// Declares a queue with a ttl. Whether it held.
    #[track_caller]
    pub(crate) fn configure(&mut self, name: &str, ttl: u64) -> bool {
        self.write(Write::Declare { queue: queue(name), options: ttl_options(ttl) }).is_some()
    }

    #[track_caller]
    pub(crate) fn delete(&mut self, name: &str) -> bool {
        self.write(Write::Delete { queue: queue(name) }).is_some()
    }

    #[track_caller]
    pub(crate) fn grant(&mut self, tenant: Tenant, grant: Option<Grant>) -> bool {
        self.write(Write::Grant { tenant, grant }).is_some()
    }

    /// The ttl that a queue is declared with.
    pub(crate) fn ttl(&self, name: &str) -> Option<u64> {
        let declaration = self.state.declaration(&queue(name))?;
        DeclaredOptions::read(&declaration.options_text).expect("readable").ttl_seconds
    }

    /// Answers that have come, of tickets.
    pub(crate) fn answered(&self, tickets: &[u64]) -> usize {
        tickets.iter().filter(|ticket| self.done.contains_key(ticket)).count()
    }
}

pub(crate) fn ttl_options(ttl: u64) -> DeclaredOptions {
    DeclaredOptions { ttl_seconds: Some(ttl), ..DeclaredOptions::default() }
}

/// A state that declares queues with a ttl and a version.
pub(crate) fn declared(queues: &[(&str, u64, Option<u64>)]) -> State {
    let mut state = State::default();
    for (name, ttl, version) in queues {
        let options_text = ttl_options(*ttl).plain_text().into_bytes().into();
        let declaration = Declaration { options_text, updated_at_ms: 1, version: *version };
        state.apply(&Change::Declare { queue: queue(name), declaration });
    }
    state
}
