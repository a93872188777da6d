//! The raft log on disk: entries and the hard state in raft-engine, what they came to in a snapshot beside it.
//!
//! Invariants: what [`LogStorage::write`] returned Ok for is on the disk; after an error this storage is not used any more, and what it
//! was given is in doubt until the log was opened anew.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize, RecoveryMode};

use super::fault::LogFault;
use super::files::LogFiles;
use super::folder::DataFolder;
use super::gauges::ControlGauges;
use super::snapshot::{self, Place};
use super::state::State;

/// raft-engine keeps many logs; this is the one.
const REGION: u64 = 1;
const HARD_STATE: &[u8] = b"hard-state";
/// Bytes of a file of the log.
const FILE_BYTES: u64 = 4 << 20;
/// Bytes of files whose entries a snapshot replaced, before they are removed.
const PURGE_BYTES: u64 = 16 << 20;

struct Entries;

impl MessageExt for Entries {
    type Entry = Entry;
    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// See the module.
pub struct LogStorage {
    engine: Engine<LogFiles>,
    path: PathBuf,
    hard_state: HardState,
    voters: Vec<u64>,
    snapshot: Place,
}

impl LogStorage {
    /// Opens the log of `voters`, with the state at its snapshot. `told`: the last entry that anybody was told of.
    ///
    /// # Errors
    /// It cannot be opened, or something that was told of is not in it.
    pub fn open(folder: &DataFolder, voters: Vec<u64>, told: u64) -> Result<(Self, State), LogFault> {
        let path = folder.log();
        let (place, state) = snapshot::read(&folder.snapshot())?;
        let engine = open_engine(folder, &path)?;
        let hard_state = engine.get_message::<HardState>(REGION, HARD_STATE).map_err(|error| fault(&path, &error))?.unwrap_or_default();
        let mut storage = Self { engine, path, hard_state, voters, snapshot: place };
        storage.check(told)?;
        let floor = storage.hard_state.commit.max(told).max(place.index);
        storage.hard_state.set_commit(floor);
        Ok((storage, state))
    }

    /// Whether every entry from the snapshot to the last that was told of can be read.
    fn check(&self, told: u64) -> Result<(), LogFault> {
        let last = self.last();
        let damaged = |cause: String| Err(LogFault::Damaged { path: newest_file(&self.path), cause });
        if last < told {
            return damaged(format!("it ends with entry {last}, and {told} were acknowledged"));
        }
        if last < self.hard_state.commit {
            return damaged(format!("it ends with entry {last}, and {} were agreed on", self.hard_state.commit));
        }
        let first = self.engine.first_index(REGION).unwrap_or(self.snapshot.index + 1);
        if first > self.snapshot.index + 1 {
            return damaged(format!("it begins with entry {first}, and the snapshot ends with {}", self.snapshot.index));
        }
        let mut entries = Vec::new();
        let read = self.engine.fetch_entries_to::<Entries>(REGION, self.snapshot.index + 1, last + 1, None, &mut entries);
        match read {
            Ok(_) => Ok(()),
            Err(error) => damaged(error.to_string()),
        }
    }

    fn last(&self) -> u64 {
        self.engine.last_index(REGION).unwrap_or(0).max(self.snapshot.index)
    }

    /// Writes entries and the hard state, and waits for the disk when they have to be there.
    ///
    /// # Errors
    /// They may be on the disk or not.
    pub fn write(&mut self, entries: &[Entry], hard_state: Option<&HardState>, gauges: &ControlGauges) -> Result<(), LogFault> {
        let mut batch = LogBatch::default();
        batch.add_entries::<Entries>(REGION, entries).map_err(|error| fault(&self.path, &error))?;
        if let Some(hard_state) = hard_state {
            batch.put_message(REGION, HARD_STATE.to_vec(), hard_state).map_err(|error| fault(&self.path, &error))?;
            self.hard_state = hard_state.clone();
        }
        let began_at = Instant::now();
        self.put(&mut batch)?;
        if !entries.is_empty() {
            gauges.fsync_seconds.observe(began_at.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// raft-engine panics when an fsync fails, because nobody knows then what is on the disk. So do we not, and the node goes on.
    fn put(&self, batch: &mut LogBatch) -> Result<(), LogFault> {
        match catch_unwind(AssertUnwindSafe(|| self.engine.write(batch, true))) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(fault(&self.path, &error)),
            Err(_) => Err(LogFault::Log { path: self.path.clone(), cause: "the disk did not confirm a write".to_owned() }),
        }
    }

    /// Entries behind the snapshot that were told of or may be.
    #[must_use]
    pub fn entries_since_snapshot(&self, applied: u64) -> u64 {
        applied.saturating_sub(self.snapshot.index)
    }

    /// Writes a snapshot of the state after entry `index`, and forgets the entries up to it.
    ///
    /// # Errors
    /// The log is as it was, or shorter: either way whole.
    pub fn compact(&mut self, folder: &DataFolder, index: u64, state: &State) -> Result<(), LogFault> {
        let term = self.term(index).map_err(|error| LogFault::Log { path: self.path.clone(), cause: error.to_string() })?;
        let place = Place { index, term };
        snapshot::write(&folder.snapshot(), place, state)?;
        self.snapshot = place;
        let mut batch = LogBatch::default();
        batch.add_command(REGION, Command::Compact { index: index + 1 });
        self.put(&mut batch)?;
        self.engine.purge_expired_files().map_err(|error| fault(&self.path, &error))?;
        Ok(())
    }
}

fn fault(path: &Path, error: &raft_engine::Error) -> LogFault {
    LogFault::Log { path: path.to_owned(), cause: error.to_string() }
}

fn config(path: &Path, recovery_mode: RecoveryMode) -> Config {
    Config {
        dir: path.to_string_lossy().into_owned(),
        recovery_mode,
        target_file_size: ReadableSize(FILE_BYTES),
        purge_threshold: ReadableSize(PURGE_BYTES),
        recovery_threads: 1,
        // A file that is used again holds old entries behind the new ones.
        enable_log_recycle: false,
        ..Config::default()
    }
}

/// Opens the log strictly. A file that ends in the middle of something is one that was being written when the node died, or is damaged:
/// its end is cut off, a copy of it is kept, and whoever knows what was told of finds out which it was.
fn open_engine(folder: &DataFolder, path: &Path) -> Result<Engine<LogFiles>, LogFault> {
    let open = |mode| Engine::open_with_file_system(config(path, mode), Arc::new(LogFiles));
    match open(RecoveryMode::AbsoluteConsistency) {
        Ok(engine) => Ok(engine),
        Err(raft_engine::Error::Io(error)) => Err(LogFault::io(path, error)),
        Err(error) => {
            let file = newest_file(path);
            let kept = keep_copy(folder, &file).map_err(|error| LogFault::io(&file, error))?;
            let damaged = |error: raft_engine::Error| LogFault::Damaged { path: file.clone(), cause: error.to_string() };
            let engine = open(RecoveryMode::TolerateTailCorruption).map_err(damaged)?;
            log::warn!(file:% = file.display(), copy:% = kept.display(), cause:% = error; "the log's end was cut off: it is not whole");
            Ok(engine)
        }
    }
}

/// The file that was written last.
fn newest_file(path: &Path) -> PathBuf {
    let files = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|file| file.extension().is_some_and(|kind| kind == "raftlog")).max().unwrap_or_else(|| path.to_owned())
}

fn keep_copy(folder: &DataFolder, file: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(folder.set_aside())?;
    let kept = folder.set_aside().join(file.file_name().unwrap_or_default());
    fs::copy(file, &kept)?;
    Ok(kept)
}

impl Storage for LogStorage {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), ConfState::from((self.voters.clone(), Vec::new()))))
    }

    fn entries(&self, low: u64, high: u64, max_size: impl Into<Option<u64>>, _: GetEntriesContext) -> raft::Result<Vec<Entry>> {
        if low <= self.snapshot.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        let max_bytes = max_size.into().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut entries = Vec::new();
        let read = self.engine.fetch_entries_to::<Entries>(REGION, low, high, max_bytes, &mut entries);
        read.map_err(|error| raft::Error::Store(StorageError::Other(Box::new(error))))?;
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.snapshot.index {
            return Ok(self.snapshot.term);
        }
        if index < self.snapshot.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        let entry = self.engine.get_entry::<Entries>(REGION, index);
        let entry = entry.map_err(|error| raft::Error::Store(StorageError::Other(Box::new(error))))?;
        entry.map(|entry| entry.term).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.snapshot.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // Asked for by a peer that is behind, and there is none.
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
