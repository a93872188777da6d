//! Agreement on changes: proposed here, given back in the order of the log once they hold.
//!
//! A raft group whose log lies in each node's data folder. A node alone is a group of one: the same code, with nobody to write to. This
//! knows no sockets: what peers are to be told comes out of [`Consensus::advance`], what they say goes into [`Consensus::receive`], and
//! the time comes with [`Consensus::tick`].
//!
//! Invariants: what comes out of [`Consensus::advance`] is on this node's disk, comes once, and comes in order; a message that promises
//! something is sent after it is on the disk; a fault of the disk leaves what was proposed in doubt, and the log is opened anew before
//! anything else is proposed, and gives back what this fault kept from being given back. An entry that cannot be read is never passed
//! over. A proposal takes effect once, although the network may bring it twice.

mod proposing;
mod standing;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use protobuf::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType, Message, MessageType};
use raft::{Config, RawNode, SnapshotStatus, StateRole};
use xxhash_rust::xxh3::xxh3_64;

use super::change::Change;
use super::codec;
use super::electors::Electors;
use super::fault::LogFault;
use super::folder::{Acknowledged, DataFolder};
use super::gauges::ControlGauges;
use super::hearing::{Hearing, Unheard};
use super::members::NodeId;
use super::state::State;
use super::storage::{LogStorage, Origin};

/// Between two attempts to open a log that could not be written.
pub const RETRY_EVERY: Duration = Duration::from_millis(500);
/// raft's unit of time.
pub const TICK: Duration = Duration::from_millis(100);
/// A leader that is not heard of for so long, and up to as much again, is stood in for.
const ELECTION_TICKS: usize = 10;
const HEARTBEAT_TICKS: usize = 3;
/// Ticks made up for at once: a node that was stopped hears its mail before it thinks that its leader is silent.
const TICKS_AT_ONCE: u32 = 3;
/// A snapshot that was not confirmed after so many ticks is sent again.
const SNAPSHOT_TICKS: u32 = 20;
/// Entries behind a snapshot before the next: at least, and for each change that a snapshot holds.
const ENTRIES_MIN: u64 = 16_384;
const ENTRIES_PER_CHANGE: u64 = 2;

/// Names a proposal of this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// The log cannot take a change now. What was proposed and is not known to hold may hold all the same, or come to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// Why [`Consensus::advance`] gives nothing back.
#[derive(Debug)]
pub enum Stalled {
    /// See [`Unavailable`]: the log is opened anew in a while.
    Unavailable,
    /// The log holds an entry that this version cannot read: nothing behind it is ever carried out here.
    Unreadable(LogFault),
}

/// What holds from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// An entry of the log.
    Change {
        /// Its place in the log.
        index: u64,
        /// Which proposal of this node's start it was, if it was one.
        proposal: Option<ProposalId>,
        /// What it changes.
        change: Change,
    },
    /// Other nodes vote from now on: see [`Consensus::electors`].
    Electors {
        /// Which proposal of this node's start it was, if it was one.
        proposal: Option<ProposalId>,
    },
    /// This node was too far behind for entries: what they came to, in place of all that it knew.
    State {
        /// The last of those entries.
        index: u64,
        /// See above.
        state: Box<State>,
    },
}

/// How far a peer's log is, as its leader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whose.
    pub node: NodeId,
    /// The last entry that is known to be there.
    pub matched: u64,
    /// Whether it was heard of lately.
    pub is_active: bool,
}

/// Where messages for peers go. It must not wait.
pub type Send<'a> = &'a mut dyn FnMut(NodeId, Vec<u8>);

/// See the module.
pub struct Consensus {
    folder: DataFolder,
    origin: Origin,
    /// Tells this start's proposals from others'.
    start: u64,
    gauges: Arc<ControlGauges>,
    acknowledged: Acknowledged,
    /// None: the log could not be written, and is opened again.
    node: Option<RawNode<LogStorage>>,
    proposals: u64,
    /// The last entry that was given back.
    applied: u64,
    /// As of that entry.
    electors: Electors,
    hearing: Hearing,
    /// Peers that were sent a snapshot, and how many ticks ago.
    snapshots: BTreeMap<u64, u32>,
    tried_at: Option<Instant>,
    ticked_at: Option<Instant>,
    entries_min: u64,
}

impl Consensus {
    /// Opens the log in a folder: with all that is known to hold. `start` is a random number of this start.
    ///
    /// # Errors
    /// The log cannot be opened, or something is missing that was acknowledged.
    pub fn open(folder: DataFolder, origin: Origin, start: u64, gauges: Arc<ControlGauges>) -> Result<(Self, State), LogFault> {
        let acknowledged = folder.acknowledged()?;
        let (storage, mut state) = LogStorage::open(&folder, &origin, acknowledged.index())?;
        let mut consensus = Self {
            folder,
            origin,
            start,
            gauges,
            acknowledged,
            node: None,
            proposals: 0,
            applied: storage.place().index,
            electors: storage.electors().clone(),
            hearing: Hearing::default(),
            snapshots: BTreeMap::new(),
            tried_at: None,
            ticked_at: None,
            entries_min: ENTRIES_MIN,
        };
        consensus.node = Some(consensus.begin(storage)?);
        for agreed in consensus.drive(&mut |_, _| {})? {
            if let Agreed::Change { change, .. } = agreed {
                state.apply(&change);
            }
        }
        consensus.settle(&state)?;
        Ok((consensus, state))
    }

    /// Snapshots are taken after `count` entries and more, in place of some ten thousand.
    pub const fn compact_after(&mut self, count: u64) {
        self.entries_min = count;
    }

    fn begin(&self, storage: LogStorage) -> Result<RawNode<LogStorage>, LogFault> {
        let config = Config {
            id: self.origin.node.0,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: self.applied,
            max_size_per_msg: 1 << 20,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let is_sure = self.electors.voters().eq([self.origin.node]) && !self.electors.is_joint();
        let begin = || {
            let mut node = RawNode::new(&config, storage, &logger)?;
            if is_sure {
                node.campaign()?;
            }
            Ok(node)
        };
        let mut node = begin().map_err(|error| self.raft_fault(&error))?;
        self.vary_election(&mut node);
        Ok(node)
    }

    fn raft_fault(&self, error: &raft::Error) -> LogFault {
        LogFault::Log { path: self.folder.log(), cause: error.to_string() }
    }

    /// Nodes that time out at once split the vote, so raft makes each wait another time in each term. Its own dice are the thread's: with
    /// these a schedule can be repeated.
    fn vary_election(&self, node: &mut RawNode<LogStorage>) {
        let drawn = xxh3_64(&(self.start ^ node.raft.term.rotate_left(32)).to_le_bytes());
        node.raft.set_randomized_election_timeout(ELECTION_TICKS + drawn as usize % ELECTION_TICKS);
    }

    /// A peer says something, in raft's words.
    pub fn receive(&mut self, from: NodeId, text: &[u8]) {
        let Some(mut node) = self.node.take() else { return };
        match self.hearing.read(from, self.origin.node, text, &node) {
            // What raft refuses is of another time.
            Ok(message) => drop(node.step(message)),
            Err(Unheard::Stale) => {}
            Err(unheard) => log::error!(node = from.0; "what a peer says is not heard: {unheard}"),
        }
        self.vary_election(&mut node);
        self.node = Some(node);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        let ticked_at = *self.ticked_at.get_or_insert(now);
        let count = (now.saturating_duration_since(ticked_at).as_millis() / TICK.as_millis()) as u32;
        if count == 0 {
            return;
        }
        self.ticked_at = Some(if count > TICKS_AT_ONCE { now } else { ticked_at + TICK * count });
        for _ in 0..count.min(TICKS_AT_ONCE) {
            self.tick_once();
        }
    }

    fn tick_once(&mut self) {
        let Some(mut node) = self.node.take() else { return };
        node.tick();
        self.vary_election(&mut node);
        for ticks in self.snapshots.values_mut() {
            *ticks += 1;
        }
        while let Some(peer) = self.snapshots.iter().find_map(|(peer, ticks)| (*ticks >= SNAPSHOT_TICKS).then_some(*peer)) {
            self.snapshots.remove(&peer);
            node.report_snapshot(peer, SnapshotStatus::Failure);
        }
        // A leader leaves a joint group by itself, but not one that a leader before it entered and did not come to leave.
        if node.raft.state == StateRole::Leader && self.electors.is_joint() && !node.raft.has_pending_conf() {
            let _ = node.propose_conf_change(Vec::new(), ConfChangeV2::default());
        }
        self.node = Some(node);
    }

    /// When [`Self::tick`] has something to do at the latest.
    #[must_use]
    pub fn next_tick(&self, now: Instant) -> Instant {
        self.ticked_at.map_or(now, |at| at + TICK)
    }

    /// Writes what was proposed or came, all with one fsync, and gives back what holds since, in order. A log that could not be written is
    /// opened anew first, if it is time.
    ///
    /// # Errors
    /// What was proposed and did not come back is in doubt.
    pub fn advance(&mut self, now: Instant, send: Send<'_>) -> Result<Vec<Agreed>, Stalled> {
        if self.node.is_none() && self.tried_at.is_some_and(|at| now.saturating_duration_since(at) < RETRY_EVERY) {
            return Ok(Vec::new());
        }
        let before = (self.applied, self.electors.clone());
        self.drive_anew(send).map_err(|fault| {
            // What was carried out and is not given back comes again with the log.
            (self.applied, self.electors) = before;
            let Unavailable = self.give_up(&fault, Some(now));
            if fault.is_lasting() { Stalled::Unreadable(fault) } else { Stalled::Unavailable }
        })
    }

    /// Opens the log if it is not, and drives it.
    fn drive_anew(&mut self, send: Send<'_>) -> Result<Vec<Agreed>, LogFault> {
        let came = if self.node.is_none() { self.open_again()? } else { None };
        let mut agreed = Vec::from_iter(came.map(|state| Agreed::State { index: self.applied, state: Box::new(state) }));
        agreed.extend(self.drive(send)?);
        Ok(agreed)
    }

    /// The state, if a snapshot was being put in place of it when the disk failed.
    fn open_again(&mut self) -> Result<Option<State>, LogFault> {
        let (mut storage, state) = LogStorage::open(&self.folder, &self.origin, self.applied)?;
        let came = storage.place().index > self.applied;
        if came {
            self.applied = storage.place().index;
            self.electors = storage.electors().clone();
        } else {
            storage.set_electors(self.electors.clone());
        }
        self.node = Some(self.begin(storage)?);
        self.gauges.unavailable.store(0, Relaxed);
        log::info!("the log can be written again");
        Ok(came.then_some(state))
    }

    fn give_up(&mut self, fault: &LogFault, now: Option<Instant>) -> Unavailable {
        if self.gauges.unavailable.swap(1, Relaxed) == 0 && !fault.is_lasting() {
            log::error!(cause:% = fault; "the log cannot be written: configure and delete answer 503 until it can");
        }
        let node = self.node.take();
        // raft-engine waits for the disk once more when it is closed, and panics when that fails too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(node)));
        self.tried_at = now;
        Unavailable
    }

    /// Whether the log can be written, as far as is known.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        self.node.is_some()
    }

    /// raft's loop: write what it wants written, tell it and its peers, take what holds.
    fn drive(&mut self, send: Send<'_>) -> Result<Vec<Agreed>, LogFault> {
        let mut agreed = Vec::new();
        let Some(mut node) = self.node.take() else { return Ok(agreed) };
        let driven = self.drive_node(&mut node, send, &mut agreed);
        self.node = Some(node);
        driven?;
        // Before anybody is told.
        self.acknowledged.raise(self.applied)?;
        let changes = agreed.iter().filter(|agreed| matches!(agreed, Agreed::Change { .. })).count();
        self.gauges.committed.fetch_add(changes as u64, Relaxed);
        Ok(agreed)
    }

    fn drive_node(&mut self, node: &mut RawNode<LogStorage>, send: Send<'_>, agreed: &mut Vec<Agreed>) -> Result<(), LogFault> {
        while node.has_ready() {
            let mut ready = node.ready();
            // A leader's: they promise nothing of its own disk.
            self.post(ready.take_messages(), send)?;
            if !ready.snapshot().is_empty() {
                let snapshot = ready.snapshot();
                let state = node.mut_store().install(snapshot.get_data(), ready.hs())?;
                self.applied = snapshot.get_metadata().index;
                self.electors = node.store().electors().clone();
                agreed.push(Agreed::State { index: self.applied, state: Box::new(state) });
            }
            let written = ready.take_entries();
            if !written.is_empty() || ready.hs().is_some() {
                node.mut_store().write(&written, ready.hs(), &self.gauges)?;
            }
            self.post(ready.take_persisted_messages(), send)?;
            self.carry_out(node, ready.take_committed_entries(), agreed)?;
            let mut light = node.advance(ready);
            self.post(light.take_messages(), send)?;
            self.carry_out(node, light.take_committed_entries(), agreed)?;
            node.advance_apply();
            self.vary_election(node);
        }
        Ok(())
    }

    fn post(&mut self, messages: Vec<Message>, send: Send<'_>) -> Result<(), LogFault> {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.snapshots.insert(message.to, 0);
            }
            let spelled = message.write_to_bytes();
            let cause = |error: protobuf::ProtobufError| LogFault::Log { path: self.folder.log(), cause: error.to_string() };
            send(NodeId(message.to), spelled.map_err(cause)?);
        }
        Ok(())
    }

    /// Entries that hold, in order.
    fn carry_out(&mut self, node: &mut RawNode<LogStorage>, entries: Vec<Entry>, agreed: &mut Vec<Agreed>) -> Result<(), LogFault> {
        for entry in entries {
            let proposal = self.proposal_of(&entry);
            match entry.get_entry_type() {
                // A new leader's first entry is empty.
                EntryType::EntryNormal if entry.data.is_empty() => {}
                EntryType::EntryNormal => agreed.push(Agreed::Change { index: entry.index, proposal, change: self.read(&entry)? }),
                EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                    let change = ConfChangeV2::parse_from_bytes(&entry.data);
                    let change = change.map_err(|error| self.unreadable(&entry, &error))?;
                    // One that says nothing new, such as the vote of a voter, or that would leave nobody, changes nothing on any node.
                    if let Ok(spelled) = node.apply_conf_change(&change) {
                        self.electors = Electors::from(&spelled);
                        node.mut_store().set_electors(self.electors.clone());
                    }
                    agreed.push(Agreed::Electors { proposal });
                }
            }
            self.applied = entry.index;
        }
        Ok(())
    }

    fn read(&self, entry: &Entry) -> Result<Change, LogFault> {
        codec::decode(&entry.data).map_err(|error| self.unreadable(entry, &error))
    }

    fn unreadable(&self, entry: &Entry, error: &dyn std::fmt::Display) -> LogFault {
        LogFault::Unreadable { path: self.folder.log(), index: entry.index, cause: error.to_string() }
    }

    fn proposal_of(&self, entry: &Entry) -> Option<ProposalId> {
        match entry.context.as_chunks::<8>().0 {
            [start, id] if u64::from_le_bytes(*start) == self.start => Some(ProposalId(u64::from_le_bytes(*id))),
            _ => None,
        }
    }

    /// Replaces entries by a snapshot of what they came to when there are many, or when a peer needs it. `state`: after all that
    /// [`Self::advance`] gave back.
    ///
    /// # Errors
    /// It could not be written.
    pub fn settle(&mut self, state: &State) -> Result<(), LogFault> {
        let count = state.len() as u64;
        self.gauges.declarations.store(state.declarations().len() as u64, Relaxed);
        let Some(node) = &mut self.node else { return Ok(()) };
        let entries = node.store().entries_since_snapshot(self.applied);
        let is_wanted = node.store().wants_snapshot() && entries > 0;
        if !is_wanted && entries < self.entries_min.max(count * ENTRIES_PER_CHANGE) {
            return Ok(());
        }
        node.mut_store().compact(self.applied, state)
    }

    /// The same; a fault is one of the log.
    pub fn settle_or_give_up(&mut self, now: Instant, state: &State) {
        if let Err(fault) = self.settle(state) {
            self.give_up(&fault, Some(now));
        }
    }
}

#[cfg(test)]
#[path = "consensus_tests.rs"]
mod tests;
