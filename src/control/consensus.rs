//! Agreement on changes: proposed here, given back in the order of the log once they hold.
//!
//! A raft group whose log lies in the data folder. A node alone is a group of one: the same code, with nobody to write to.
//!
//! Invariants: what comes out of [`Consensus::advance`] is on the disk, comes once, and comes in order; a fault of the disk leaves
//! what was proposed in doubt, and the log is opened anew before anything else is proposed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use raft::eraftpb::{Entry, EntryType};
use raft::{Config, RawNode};

use super::change::Change;
use super::codec;
use super::fault::LogFault;
use super::folder::{Acknowledged, DataFolder};
use super::gauges::ControlGauges;
use super::state::State;
use super::storage::LogStorage;

/// Between two attempts to open a log that could not be written.
pub const RETRY_EVERY: Duration = Duration::from_millis(500);
/// Entries behind a snapshot before the next: at least, and for each change that a snapshot holds.
const ENTRIES_MIN: u64 = 16_384;
const ENTRIES_PER_CHANGE: u64 = 2;

/// Names a proposal of this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// The log cannot take a change now. What was proposed and is not known to hold may hold all the same, or come to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// An entry of the log that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Which proposal of this node's start it was, if it was one.
    pub proposal: Option<ProposalId>,
    /// What it changes.
    pub change: Change,
}

/// See the module.
pub struct Consensus {
    folder: DataFolder,
    node_id: u64,
    /// Tells this start's proposals from others'.
    start: u64,
    gauges: Arc<ControlGauges>,
    acknowledged: Acknowledged,
    /// None: the log could not be written, and is opened again.
    node: Option<RawNode<LogStorage>>,
    proposals: u64,
    /// The last entry that was given back.
    applied: u64,
    tried_at: Instant,
}

impl Consensus {
    /// Opens the log in a folder: with all that holds. `start` is a random number of this start.
    ///
    /// # Errors
    /// The log cannot be opened, or something is missing that was acknowledged.
    pub fn open(folder: DataFolder, node_id: u64, start: u64, gauges: Arc<ControlGauges>) -> Result<(Self, State), LogFault> {
        let acknowledged = folder.acknowledged()?;
        let (storage, mut state) = LogStorage::open(&folder, vec![node_id], acknowledged.index())?;
        let applied = raft::Storage::first_index(&storage).unwrap_or(1) - 1;
        let mut consensus =
            Self { folder, node_id, start, gauges, acknowledged, node: None, proposals: 0, applied, tried_at: Instant::now() };
        consensus.node = Some(consensus.begin(storage)?);
        for committed in consensus.drive()? {
            state.apply(&committed.change);
        }
        consensus.settle(&state)?;
        Ok((consensus, state))
    }

    fn begin(&self, storage: LogStorage) -> Result<RawNode<LogStorage>, LogFault> {
        let config = Config {
            id: self.node_id,
            election_tick: 10,
            heartbeat_tick: 3,
            applied: self.applied,
            max_size_per_msg: 1 << 20,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let begin = || {
            let mut node = RawNode::new(&config, storage, &logger)?;
            node.campaign()?;
            Ok(node)
        };
        begin().map_err(|error| self.raft_fault(&error))
    }

    fn raft_fault(&self, error: &raft::Error) -> LogFault {
        LogFault::Log { path: self.folder.log(), cause: error.to_string() }
    }

    /// Proposes a change. It is on its way to the log after the next [`Self::advance`].
    ///
    /// # Errors
    /// The log cannot take it.
    pub fn propose(&mut self, change: &Change) -> Result<ProposalId, Unavailable> {
        let node = self.node.as_mut().ok_or(Unavailable)?;
        let id = ProposalId(self.proposals + 1);
        let mut context = self.start.to_le_bytes().to_vec();
        context.extend_from_slice(&id.0.to_le_bytes());
        node.propose(context, codec::encode(change)).map_err(|_| Unavailable)?;
        self.proposals = id.0;
        Ok(id)
    }

    /// Writes what was proposed, all with one fsync, and gives back what holds since, in order. A log that could not be written is opened
    /// anew first, if it is time.
    ///
    /// # Errors
    /// What was proposed and did not come back is in doubt.
    pub fn advance(&mut self) -> Result<Vec<Committed>, Unavailable> {
        if self.node.is_none() {
            if self.tried_at.elapsed() < RETRY_EVERY {
                return Ok(Vec::new());
            }
            self.open_again().map_err(|fault| self.give_up(&fault))?;
        }
        self.drive().map_err(|fault| self.give_up(&fault))
    }

    fn open_again(&mut self) -> Result<(), LogFault> {
        let (storage, _) = LogStorage::open(&self.folder, vec![self.node_id], self.applied)?;
        self.node = Some(self.begin(storage)?);
        self.gauges.unavailable.store(0, Relaxed);
        log::info!("the log can be written again");
        Ok(())
    }

    fn give_up(&mut self, fault: &LogFault) -> Unavailable {
        if self.gauges.unavailable.swap(1, Relaxed) == 0 {
            log::error!(cause:% = fault; "the log cannot be written: configure and delete answer 503 until it can");
        }
        let node = self.node.take();
        // raft-engine waits for the disk once more when it is closed, and panics when that fails too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(node)));
        self.tried_at = Instant::now();
        Unavailable
    }

    /// Whether the log can be written, as far as is known.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        self.node.is_some()
    }

    /// raft's loop: write what it wants written, tell it, take what holds.
    fn drive(&mut self) -> Result<Vec<Committed>, LogFault> {
        let mut committed = Vec::new();
        while let Some(node) = self.node.as_mut().filter(|node| node.has_ready()) {
            let mut ready = node.ready();
            let mut entries = ready.take_committed_entries();
            let written = ready.take_entries();
            if !written.is_empty() || ready.hs().is_some() {
                node.mut_store().write(&written, ready.hs(), &self.gauges)?;
            }
            let mut light = node.advance(ready);
            entries.extend(light.take_committed_entries());
            node.advance_apply();
            for entry in entries {
                self.applied = entry.index;
                committed.extend(self.read(&entry)?);
            }
        }
        // Before anybody is told.
        self.acknowledged.raise(self.applied)?;
        self.gauges.committed.fetch_add(committed.len() as u64, Relaxed);
        Ok(committed)
    }

    /// A new leader's first entry is empty.
    fn read(&self, entry: &Entry) -> Result<Option<Committed>, LogFault> {
        if entry.get_entry_type() != EntryType::EntryNormal || entry.data.is_empty() {
            return Ok(None);
        }
        let cause = |error: codec::Unreadable| format!("entry {}: {error}", entry.index);
        let change = codec::decode(&entry.data).map_err(|error| LogFault::Damaged { path: self.folder.log(), cause: cause(error) })?;
        let proposal = match entry.context.as_chunks::<8>().0 {
            [start, id] if u64::from_le_bytes(*start) == self.start => Some(ProposalId(u64::from_le_bytes(*id))),
            _ => None,
        };
        Ok(Some(Committed { proposal, change }))
    }

    /// Replaces entries by a snapshot of what they came to when there are many. `state`: after all that [`Self::advance`] gave back.
    ///
    /// # Errors
    /// It could not be written.
    pub fn settle(&mut self, state: &State) -> Result<(), LogFault> {
        let count = state.len() as u64;
        self.gauges.declarations.store(state.declarations().len() as u64, Relaxed);
        let Some(node) = &mut self.node else { return Ok(()) };
        if node.store().entries_since_snapshot(self.applied) < ENTRIES_MIN.max(count * ENTRIES_PER_CHANGE) {
            return Ok(());
        }
        node.mut_store().compact(&self.folder, self.applied, state)
    }

    /// The same; a fault is one of the log.
    pub fn settle_or_give_up(&mut self, state: &State) {
        if let Err(fault) = self.settle(state) {
            self.give_up(&fault);
        }
    }
}
