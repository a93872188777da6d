//! A snapshot of a peer and a kill: whatever of it was on the disk, the log that is opened then is whole.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly::control::snapshot::{self, Place};
use mayfly::control::storage::LogStorage;
use mayfly::control::{Change, ControlGauges, DataFolder, Electors, NodeId, Origin, State};
use raft::Storage as _;
use raft::eraftpb::{Entry, HardState};

/// A folder that goes with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("mayfly-storage-{}-{number}", std::process::id())))
    }

    fn folder(&self) -> DataFolder {
        DataFolder::open(&self.0, 2).expect("a folder")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn origin() -> Origin {
    Origin { node: NodeId(2), voters: [1, 2, 3].map(NodeId).to_vec() }
}

fn entries(indexes: std::ops::RangeInclusive<u64>, term: u64) -> Vec<Entry> {
    let entry = |index| {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, term);
        entry
    };
    indexes.map(entry).collect()
}

fn hard_state(term: u64, commit: u64) -> HardState {
    let mut state = HardState::default();
    (state.term, state.vote, state.commit) = (term, 1, commit);
    state
}

/// What a peer had agreed on.
fn peers_state() -> State {
    let mut state = State::default();
    state.apply(&Change::Cluster { id: 77 });
    state
}

fn peers_snapshot(place: Place) -> Vec<u8> {
    snapshot::encode(place, Some(&Electors::of(&[1, 2, 3].map(NodeId))), &peers_state())
}

fn open(folder: &DataFolder) -> (LogStorage, State) {
    LogStorage::open(folder, &origin(), 0).expect("a log")
}

/// A log with entries 2 to 6 of term 1, of which 3 are agreed on, and nobody has it open.
fn written(scratch: &Scratch) -> DataFolder {
    let folder = scratch.folder();
    let (mut log, _) = open(&folder);
    log.write(&entries(2..=6, 1), Some(&hard_state(1, 3)), &ControlGauges::default()).expect("written");
    folder
}

/// That the log goes on behind `last`, also after it was opened again.
fn assert_goes_on(folder: &DataFolder, mut log: LogStorage, last: u64, term: u64) {
    assert_eq!(log.last_index().expect("a log"), last);
    let more = entries(last + 1..=last + 3, term);
    log.write(&more, Some(&hard_state(term, last)), &ControlGauges::default()).expect("written");
    drop(log);
    let (log, state) = open(folder);
    assert_eq!((log.last_index().expect("a log"), log.term(last + 2).expect("a term")), (last + 3, term));
    assert_eq!(state, peers_state());
}

/// The file came, and the entries that it replaces are still there.
#[test]
fn a_kill_between_a_snapshot_and_its_log_is_made_up_for() {
    let cases = [
        // Of another history: what follows is too.
        (Place { index: 4, term: 2 }, 4),
        // The log ends before.
        (Place { index: 9, term: 2 }, 9),
        // Of this history: what follows stays.
        (Place { index: 4, term: 1 }, 6),
    ];
    for (place, last) in cases {
        let scratch = Scratch::new();
        let folder = written(&scratch);
        snapshot::write(&folder.snapshot(), &peers_snapshot(place)).expect("written");
        let (log, state) = open(&folder);
        assert_eq!((&state, log.place()), (&peers_state(), place));
        let hard_state = log.initial_state().expect("a state").hard_state;
        assert!(hard_state.term >= place.term && hard_state.commit >= place.index, "{hard_state:?} behind {place:?}");
        assert_eq!(hard_state.vote == 0, place.term == 2, "a vote is of its term");
        assert_goes_on(&folder, log, last, place.term.max(2));
    }
}

#[test]
fn a_snapshot_takes_the_place_of_all_that_was_there() {
    for place in [Place { index: 5, term: 3 }, Place { index: 60, term: 3 }] {
        let scratch = Scratch::new();
        let folder = written(&scratch);
        let (mut log, _) = open(&folder);
        assert_eq!(log.install(&peers_snapshot(place), Some(&hard_state(3, place.index))).expect("installed"), peers_state());
        assert_eq!((log.first_index().expect("a log"), log.place()), (place.index + 1, place));
        drop(log);
        let (log, state) = open(&folder);
        assert_eq!(state, peers_state());
        assert_eq!(log.electors(), &Electors::of(&[1, 2, 3].map(NodeId)));
        assert_goes_on(&folder, log, place.index, 3);
    }
}

#[test]
fn a_damaged_snapshot_replaces_nothing() {
    let scratch = Scratch::new();
    let folder = written(&scratch);
    let (mut log, _) = open(&folder);
    let mut text = peers_snapshot(Place { index: 9, term: 2 });
    text[20] ^= 1;
    assert!(log.install(&text, None).is_err());
    drop(log);
    let (log, state) = open(&folder);
    assert_eq!((log.last_index().expect("a log"), state), (6, State::default()));
}

/// What a cluster's node was told of is there or the node does not start, a snapshot that is missing too.
#[test]
fn less_than_was_acknowledged_is_refused() {
    let scratch = Scratch::new();
    let folder = written(&scratch);
    assert!(LogStorage::open(&folder, &origin(), 6).is_ok());
    assert!(LogStorage::open(&folder, &origin(), 7).is_err());
    std::fs::remove_dir_all(folder.log()).expect("removed");
    assert!(LogStorage::open(&folder, &origin(), 3).is_err());
}

/// A log of several files, and their paths.
fn several_files(scratch: &Scratch) -> (DataFolder, Vec<PathBuf>) {
    let folder = scratch.folder();
    let (mut log, _) = open(&folder);
    for index in 2..=60 {
        let mut entries = entries(index..=index, 1);
        // Which no packing makes small.
        entries[0].data = (0..200_000_u64)
            .flat_map(|at| (at ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
            .take(200_000)
            .collect::<Vec<_>>()
            .into();
        log.write(&entries, Some(&hard_state(1, index)), &ControlGauges::default()).expect("written");
    }
    drop(log);
    let files = std::fs::read_dir(folder.log()).expect("a log").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "raftlog")).collect();
    files.sort();
    assert!(files.len() > 2, "{files:?}");
    (folder, files)
}

#[test]
fn damage_is_told_of_the_file_that_has_it() {
    let scratch = Scratch::new();
    let (folder, files) = several_files(&scratch);
    for file in &files {
        let whole = std::fs::read(file).expect("the log");
        for at in [whole.len() / 3, whole.len() / 2] {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            std::fs::write(file, flipped).expect("flipped");
            let fault = LogStorage::open(&folder, &origin(), 60).err().expect("damaged").to_string();
            assert!(fault.contains(&file.display().to_string()) && fault.contains("is damaged"), "{file:?} at {at}: {fault}");
        }
        std::fs::write(file, whole).expect("restored");
    }
    let (log, _) = LogStorage::open(&folder, &origin(), 60).expect("whole again");
    assert_eq!(log.last_index().expect("a log"), 60);
}

#[test]
fn a_snapshot_that_is_missing_is_told_of_as_itself() {
    let scratch = Scratch::new();
    let folder = written(&scratch);
    let (mut log, _) = open(&folder);
    log.compact(4, &State::default()).expect("written");
    drop(log);
    std::fs::remove_file(folder.snapshot()).expect("removed");
    let fault = LogStorage::open(&folder, &origin(), 6).err().expect("damaged").to_string();
    assert!(fault.contains(&folder.snapshot().display().to_string()) && fault.contains("not there"), "{fault}");
}

/// A joiner begins with nothing, and stays one.
#[test]
fn a_joiner_never_votes_by_itself() {
    let scratch = Scratch::new();
    let folder = scratch.folder();
    for _ in 0..2 {
        let (log, _) = LogStorage::open(&folder, &Origin { node: NodeId(2), voters: Vec::new() }, 0).expect("a log");
        assert_eq!((log.last_index().expect("a log"), log.electors()), (0, &Electors::default()));
    }
    // Also as one that is told to begin a cluster later: its folder says what it is.
    assert_eq!(open(&folder).0.electors(), &Electors::default());
}
