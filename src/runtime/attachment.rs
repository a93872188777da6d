//! The control core's declaration store: which proposals wait for their rows, and what rows have to say to the log.
//!
//! Invariants: a change that has a row is proposed only once the row is written; the store goes on with a reading only once what the rows
//! changed is agreed on. This thread never waits for the store's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mayfly_net::mesh::Waker;

use super::frame::Proposal;
use crate::config::PostgresTarget;
use crate::control::consensus::ProposalId;
use crate::control::store::keeper::Keeper;
use crate::control::store::{Ask, Event, Stamp, Store, WRITE_SPAN, Write};
use crate::control::{Change, State};

/// How long a start waits for rows; then the node serves with what its log says.
const BOOT_SPAN: Duration = Duration::from_secs(5);
/// Rows of one reading that are complained of line by line.
const MISFITS_SHOWN: usize = 20;

/// See the module.
pub(super) struct Attachment {
    store: Store,
    events: Events,
    keeper: Keeper,
    /// Their rows are being written.
    asked: HashMap<u64, Proposal>,
    tickets: u64,
    /// What the store awaits, and which proposals have to be agreed on before.
    fill: Option<(HashSet<ProposalId>, Ask)>,
    /// Of a reading whose changes are being proposed.
    then: Option<Ask>,
    started_at: Instant,
    boot: Option<mpsc::Sender<Result<bool, String>>>,
}

/// What the store says, from its thread to this one.
type Events = Arc<Mutex<VecDeque<Event>>>;

/// What is to be done.
pub(super) enum Heard {
    /// The row is written: the change goes on to the log.
    Written(Proposal),
    /// The row was not written, or nobody knows.
    Failed(Proposal),
    /// Rows say this: for the log, and then [`Attachment::proposed`].
    Rows(Vec<Change>),
}

/// The start's end: it waits for the first word of the store.
pub(super) struct Boot {
    word: mpsc::Receiver<Result<bool, String>>,
    shown: String,
}

impl Boot {
    /// Waits until rows and log agree, or it is known that they will not for now.
    ///
    /// # Errors
    /// The rows are another cluster's.
    pub(super) fn wait(self) -> Result<(), String> {
        match self.word.recv_timeout(BOOT_SPAN) {
            Ok(Ok(true)) => return Ok(()),
            Ok(Err(line)) => return Err(line),
            Ok(Ok(false)) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        log::warn!("PostgreSQL at {} is not attached: the node starts with the declarations of its own log", self.shown);
        Ok(())
    }
}

impl Attachment {
    /// Starts the store.
    pub(super) fn start(target: PostgresTarget, waker: Arc<Waker>) -> io::Result<(Self, Boot)> {
        let events = Events::default();
        let told = Arc::clone(&events);
        let shown = target.to_string();
        let store = Store::start(target, move |event| {
            told.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
            waker.wake();
        })?;
        let (give, word) = mpsc::channel();
        let attachment = Self {
            store,
            events,
            keeper: Keeper::default(),
            asked: HashMap::new(),
            tickets: 0,
            fill: None,
            then: None,
            started_at: Instant::now(),
            boot: Some(give),
        };
        Ok((attachment, Boot { word, shown }))
    }

    /// Whether a change has a row.
    pub(super) const fn is_asked_for(change: &Change) -> bool {
        matches!(change, Change::Declare { .. } | Change::Delete { .. } | Change::Grant { .. })
    }

    /// Asks for the row of a change; the proposal comes back when it cannot be asked for.
    pub(super) fn write(&mut self, proposal: Proposal) -> Result<(), Box<Proposal>> {
        let write = match &proposal.change {
            Change::Declare { queue, declaration } => Write::Declare { queue: queue.clone(), options: declaration.options() },
            Change::Delete { queue, .. } => Write::Delete { queue: queue.clone() },
            Change::Grant { tenant, grant, .. } => Write::Grant { tenant: *tenant, grant: *grant },
            change => unreachable!("{change:?} has no row"),
        };
        self.tickets += 1;
        let ticket = self.tickets;
        if !self.store.ask(Ask::Write { ticket, write, due: Instant::now() + WRITE_SPAN }) {
            return Err(Box::new(proposal));
        }
        self.asked.insert(ticket, proposal);
        Ok(())
    }

    /// Whether the store has said something.
    pub(super) fn has_events(&self) -> bool {
        !self.events.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The next thing to do, if any.
    pub(super) fn hear(&mut self, state: &State) -> Option<Heard> {
        loop {
            let event = self.events.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
            let now = self.started_at.elapsed();
            match event {
                Event::Done { ticket, stamp } => {
                    let Some(mut proposal) = self.asked.remove(&ticket) else { continue };
                    let Some(stamp) = stamp else { return Some(Heard::Failed(proposal)) };
                    put_stamp(&mut proposal.change, stamp);
                    return Some(Heard::Written(proposal));
                }
                Event::Reading { round } => {
                    self.fill = None;
                    self.then = None;
                    // One that is not taken is missed by nobody: the store's thread has ended.
                    let _ = self.store.ask(self.keeper.mark(round, state, now));
                }
                Event::Rows { round, cluster, is_first, rows } => {
                    let Some(reading) = self.keeper.rows(round, cluster, is_first, &rows, state, now) else { continue };
                    for misfit in reading.misfits.iter().take(MISFITS_SHOWN) {
                        log::warn!("a row is left alone, it says nothing: {}: {}", misfit.row, misfit.reason);
                    }
                    if reading.misfits.len() > MISFITS_SHOWN {
                        log::warn!("and {} rows more", reading.misfits.len() - MISFITS_SHOWN);
                    }
                    self.then = Some(reading.then);
                    return Some(Heard::Rows(reading.changes));
                }
                Event::Attached => self.tell_start(Ok(true)),
                Event::Detached { reason, is_foreign } => self.tell_start(if is_foreign { Err(reason) } else { Ok(false) }),
            }
        }
    }

    /// The changes of the last rows are proposed under these ids; None: not all of them are.
    pub(super) fn proposed(&mut self, ids: Option<Vec<ProposalId>>) {
        let then = self.then.take();
        self.fill = ids.zip(then).map(|(ids, then)| (ids.into_iter().collect(), then));
    }

    /// A proposal is agreed on.
    pub(super) fn agreed(&mut self, id: ProposalId) {
        if let Some((open, _)) = &mut self.fill {
            open.remove(&id);
        }
    }

    /// Lets the store go on when all that its rows changed is agreed on.
    pub(super) fn fill_when_agreed(&mut self) {
        if let Some((_, ask)) = self.fill.take_if(|(open, _)| open.is_empty()) {
            let _ = self.store.ask(ask);
        }
    }

    fn tell_start(&mut self, word: Result<bool, String>) {
        if let Some(boot) = self.boot.take() {
            // A start that has waited long enough hears no more.
            let _ = boot.send(word);
        }
    }
}

/// What PostgreSQL gave the row, in the change.
fn put_stamp(change: &mut Change, stamp: Stamp) {
    match change {
        Change::Declare { declaration, .. } => {
            declaration.version = Some(stamp.version);
            declaration.updated_at_ms = stamp.updated_at_ms;
        }
        Change::Delete { version, .. } | Change::Grant { version, .. } => *version = Some(stamp.version),
        change => unreachable!("{change:?} has no row"),
    }
}
