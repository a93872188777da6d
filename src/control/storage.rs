//! The raft log on disk: entries and the hard state in raft-engine, what they came to in a snapshot beside it.
//!
//! Invariants: what [`LogStorage::write`] returned Ok for is on the disk; after an error this storage is not used any more, and what it
//! was given is in doubt until the log was opened anew. A snapshot that came from a peer is in its file before the entries that it
//! replaces go: a start between the two finds that they do not belong to it, and drops them.

use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use raft::eraftpb::{self, Entry, HardState};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize, RecoveryMode};

use super::electors::Electors;
use super::fault::LogFault;
use super::files::{self, LogFiles};
use super::folder::DataFolder;
use super::gauges::ControlGauges;
use super::members::NodeId;
use super::reader::Reader;
use super::recent::Recent;
use super::snapshot::{self, Place, Snapshot};
use super::state::State;

/// raft-engine keeps many logs; this is the one.
pub(super) const REGION: u64 = 1;
const HARD_STATE: &[u8] = b"hard-state";
/// Bytes of a file of the log.
const FILE_BYTES: u64 = 4 << 20;
/// Bytes of files whose entries a snapshot replaced, before they are removed.
const PURGE_BYTES: u64 = 16 << 20;

pub(super) struct Entries;

impl MessageExt for Entries {
    type Entry = Entry;
    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// Whose log it is, and what it is when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The node.
    pub node: NodeId,
    /// Who votes, in a folder that is new: the node alone, several that begin together, or nobody, when the node waits until a group
    /// takes it in. A folder that is not new says itself who votes.
    pub voters: Vec<NodeId>,
}

impl Origin {
    /// A node that was always alone writes no word of it.
    fn is_alone(&self) -> bool {
        self.voters == [self.node]
    }

    /// What a new group holds. Its log begins behind an entry that nobody has, so that whoever comes later is sent a snapshot, which says
    /// who votes.
    fn begin(&self) -> Snapshot {
        let place = if self.voters.is_empty() { Place::default() } else { Place { index: 1, term: 1 } };
        Snapshot { place, electors: Some(Electors::of(&self.voters)), state: State::default() }
    }
}

/// See the module.
pub struct LogStorage {
    /// It ends before the engine does.
    reader: Reader,
    engine: Arc<Engine<LogFiles>>,
    path: PathBuf,
    snapshot_path: PathBuf,
    hard_state: HardState,
    /// Of the last entry that was carried out.
    electors: Electors,
    place: Place,
    /// Of the snapshot; None: a node that was always alone.
    snapshot_electors: Option<Electors>,
    /// A peer needs a snapshot, and the one that is here does not know of it.
    wants_snapshot: Cell<bool>,
    recent: Recent,
}

impl LogStorage {
    /// Opens the log, with the state at its snapshot. `told`: the last entry that anybody was told of.
    ///
    /// # Errors
    /// It cannot be opened, or something that was told of is not in it.
    pub fn open(folder: &DataFolder, origin: &Origin, told: u64) -> Result<(Self, State), LogFault> {
        let (path, snapshot_path) = (folder.log(), folder.snapshot());
        let found = match snapshot::read(&snapshot_path)? {
            None if !origin.is_alone() && !path.exists() => {
                let begun = origin.begin();
                snapshot::write(&snapshot_path, &snapshot::encode(begun.place, begun.electors.as_ref(), &begun.state))?;
                Some(begun)
            }
            found => found,
        };
        let Snapshot { place, electors, state } = found.unwrap_or_default();
        let engine = Arc::new(open_engine(folder, &path)?);
        let reader = Reader::start(Arc::clone(&engine)).map_err(|error| LogFault::io(&path, error))?;
        let hard_state = engine.get_message::<HardState>(REGION, HARD_STATE).map_err(|error| fault(&path, &error))?.unwrap_or_default();
        let mut storage = Self {
            reader,
            engine,
            path,
            snapshot_path,
            hard_state,
            electors: electors.clone().unwrap_or_else(|| Electors::of(&[origin.node])),
            place,
            snapshot_electors: electors,
            wants_snapshot: Cell::new(false),
            recent: Recent::default(),
        };
        storage.raise_hard_state();
        storage.drop_replaced()?;
        storage.check(folder, told)?;
        let floor = storage.hard_state.commit.max(told);
        storage.hard_state.set_commit(floor);
        Ok((storage, state))
    }

    /// What the snapshot holds was agreed on, in its term or before.
    fn raise_hard_state(&mut self) {
        self.hard_state.commit = self.hard_state.commit.max(self.place.index);
        if self.hard_state.term < self.place.term {
            self.hard_state.term = self.place.term;
            self.hard_state.vote = 0;
        }
    }

    /// A snapshot of a peer may have come before a kill, and what it replaces may still be there.
    fn drop_replaced(&mut self) -> Result<(), LogFault> {
        let (Some(first), Some(last)) = (self.engine.first_index(REGION), self.engine.last_index(REGION)) else { return Ok(()) };
        let belongs = match self.place.index {
            index if last < index => false,
            index if index < first => true,
            index => {
                let entry = self.read(index, index + 1, None);
                entry.map_err(|error| fault(&self.path, &error))?.first().is_some_and(|entry| entry.term == self.place.term)
            }
        };
        if belongs { Ok(()) } else { self.cut() }
    }

    /// Forgets every entry, and nothing else.
    fn cut(&mut self) -> Result<(), LogFault> {
        let mut batch = LogBatch::default();
        batch.add_command(REGION, Command::Clean);
        batch.put_message(REGION, HARD_STATE.to_vec(), &self.hard_state).map_err(|error| fault(&self.path, &error))?;
        self.recent.clear();
        self.put(&mut batch)
    }

    /// Entries from the disk, at least one.
    fn read(&self, low: u64, high: u64, bytes_max: Option<u64>) -> raft_engine::Result<Vec<Entry>> {
        self.reader.read(low, high, bytes_max)
    }

    /// Whether every entry from the snapshot to the last that was told of can be read.
    fn check(&mut self, folder: &DataFolder, told: u64) -> Result<(), LogFault> {
        let last = self.last();
        let first = self.engine.first_index(REGION).unwrap_or(self.place.index + 1);
        if first > self.place.index + 1 {
            let path = self.snapshot_path.clone();
            let cause = match self.place.index {
                0 => format!("it is not there, and the log begins with entry {first}"),
                index => format!("it ends with entry {index}, and the log begins with {first}"),
            };
            return Err(LogFault::Damaged { path, cause });
        }
        let damaged = |cause: String| Err(LogFault::Damaged { path: files::newest(&self.path), cause });
        if last < told {
            return damaged(format!("it ends with entry {last}, and {told} were acknowledged"));
        }
        if last < self.hard_state.commit {
            return damaged(format!("it ends with entry {last}, and {} were agreed on", self.hard_state.commit));
        }
        if last == self.place.index {
            return Ok(());
        }
        match self.read(self.place.index + 1, last + 1, None) {
            Ok(entries) => {
                self.recent.put(&entries);
                Ok(())
            }
            Err(error) => Err(LogFault::Damaged { path: damaged_file(folder, &self.path), cause: error.to_string() }),
        }
    }

    fn last(&self) -> u64 {
        self.engine.last_index(REGION).unwrap_or(0).max(self.place.index)
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
        self.recent.put(entries);
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
        applied.saturating_sub(self.place.index)
    }

    /// Writes a snapshot of the state after entry `index`, and forgets the entries up to it.
    ///
    /// # Errors
    /// The log is as it was, or shorter: either way whole.
    pub fn compact(&mut self, index: u64, state: &State) -> Result<(), LogFault> {
        let term = self.term(index).map_err(|error| LogFault::Log { path: self.path.clone(), cause: error.to_string() })?;
        let place = Place { index, term };
        let is_alone = self.snapshot_electors.is_none() && self.electors.voters().len() == 1 && self.electors.all().len() == 1;
        let electors = (!is_alone).then(|| self.electors.clone());
        snapshot::write(&self.snapshot_path, &snapshot::encode(place, electors.as_ref(), state))?;
        (self.place, self.snapshot_electors) = (place, electors);
        self.wants_snapshot.set(false);
        let mut batch = LogBatch::default();
        batch.add_command(REGION, Command::Compact { index: index + 1 });
        self.put(&mut batch)?;
        self.engine.purge_expired_files().map_err(|error| fault(&self.path, &error))?;
        Ok(())
    }

    /// Puts a snapshot that came from a peer in place of all that is here; its state.
    ///
    /// # Errors
    /// The log is as it was, or as the snapshot says: either way whole.
    pub fn install(&mut self, text: &[u8], hard_state: Option<&HardState>) -> Result<State, LogFault> {
        let damaged = |cause| LogFault::Damaged { path: self.snapshot_path.clone(), cause };
        let Snapshot { place, electors, state } = snapshot::parse(text).map_err(damaged)?;
        snapshot::write(&self.snapshot_path, text)?;
        self.place = place;
        self.electors = electors.clone().unwrap_or_default();
        self.snapshot_electors = electors;
        if let Some(hard_state) = hard_state {
            self.hard_state = hard_state.clone();
        }
        self.raise_hard_state();
        self.cut()?;
        self.engine.purge_expired_files().map_err(|error| fault(&self.path, &error))?;
        Ok(state)
    }

    /// Who votes, as of the last entry that was carried out.
    #[must_use]
    pub const fn electors(&self) -> &Electors {
        &self.electors
    }

    /// An entry changed who votes, or the log was opened anew behind such entries.
    pub fn set_electors(&mut self, electors: Electors) {
        self.electors = electors;
    }

    /// Where the snapshot stands.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Whether a peer waits for a newer snapshot.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        self.wants_snapshot.get()
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
            let file = files::newest(path);
            let kept = keep_copy(folder, &file).map_err(|error| LogFault::io(&file, error))?;
            let damaged = |error: raft_engine::Error| LogFault::Damaged { path: damaged_file(folder, path), cause: error.to_string() };
            let engine = open(RecoveryMode::TolerateTailCorruption).map_err(damaged)?;
            log::warn!(file:% = file.display(), copy:% = kept.display(), cause:% = error; "the log's end was cut off: it is not whole");
            Ok(engine)
        }
    }
}

/// The first file that cannot be read whole, which the library does not tell: each is read by itself, in a folder of its own. The newest, if
/// all can be.
fn damaged_file(folder: &DataFolder, path: &Path) -> PathBuf {
    let aside = folder.set_aside().join("read");
    let is_damaged = |file: &PathBuf| {
        let _ = fs::remove_dir_all(&aside);
        let copied = fs::create_dir_all(&aside).and_then(|()| fs::copy(file, aside.join(file.file_name().unwrap_or_default())));
        copied.is_ok() && !can_be_read(&aside)
    };
    let found = files::all(path).into_iter().find(is_damaged);
    let _ = fs::remove_dir_all(&aside);
    found.unwrap_or_else(|| files::newest(path))
}

/// Whether every entry of a log can be read.
fn can_be_read(path: &Path) -> bool {
    let Ok(engine) = Engine::open_with_file_system(config(path, RecoveryMode::AbsoluteConsistency), Arc::new(LogFiles)) else {
        return false;
    };
    match (engine.first_index(REGION), engine.last_index(REGION)) {
        (Some(first), Some(last)) => engine.fetch_entries_to::<Entries>(REGION, first, last + 1, None, &mut Vec::new()).is_ok(),
        _ => true,
    }
}

fn keep_copy(folder: &DataFolder, file: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(folder.set_aside())?;
    let kept = folder.set_aside().join(file.file_name().unwrap_or_default());
    fs::copy(file, &kept)?;
    Ok(kept)
}

impl Storage for LogStorage {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.electors.conf_state()))
    }

    fn entries(&self, low: u64, high: u64, max_size: impl Into<Option<u64>>, _: GetEntriesContext) -> raft::Result<Vec<Entry>> {
        if low <= self.place.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        let bytes_max = max_size.into();
        if let Some(entries) = self.recent.range(low, high, bytes_max) {
            return Ok(entries);
        }
        self.read(low, high, bytes_max).map_err(|error| raft::Error::Store(StorageError::Other(Box::new(error))))
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.place.index {
            return Ok(self.place.term);
        }
        if index < self.place.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if let Some(entry) = self.recent.get(index) {
            return Ok(entry.term);
        }
        if index > self.last() {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        let entries = self.read(index, index + 1, None).map_err(|error| raft::Error::Store(StorageError::Other(Box::new(error))))?;
        entries.first().map(|entry| entry.term).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.place.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// For a peer that is behind. One that the snapshot does not know of could not take it.
    fn snapshot(&self, _request_index: u64, to: u64) -> raft::Result<eraftpb::Snapshot> {
        let missing = || Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        let Some(electors) = self.snapshot_electors.as_ref().filter(|electors| electors.has(NodeId(to))) else {
            self.wants_snapshot.set(true);
            return missing();
        };
        let text = match fs::read(&self.snapshot_path) {
            Ok(text) => text,
            Err(error) => {
                log::warn!(node = to, error:% = error; "the snapshot cannot be read for a peer");
                return missing();
            }
        };
        let mut snapshot = eraftpb::Snapshot::default();
        snapshot.set_data(text.into());
        let metadata = snapshot.mut_metadata();
        metadata.index = self.place.index;
        metadata.term = self.place.term;
        metadata.set_conf_state(electors.conf_state());
        Ok(snapshot)
    }
}
