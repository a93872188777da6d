//! Entries of the log read back from the disk: on a thread that lives as long as the log is open.
//!
//! See [`super::recent`] for why the thread that writes must not read. It is there from the beginning: raft takes it for the end of the
//! world when an entry that it has cannot be read, and a thread may be what a running node cannot get.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use raft::eraftpb::Entry;
use raft_engine::{Engine, Error, Result};

use super::files::LogFiles;
use super::storage::{Entries, REGION};

/// Entries `low` to before `high`, so many bytes of them.
struct Asked {
    low: u64,
    high: u64,
    bytes_max: Option<usize>,
}

/// See the module.
pub(super) struct Reader {
    /// None: it ends.
    asks: Option<mpsc::Sender<Asked>>,
    answers: mpsc::Receiver<Result<Vec<Entry>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reader {
    /// Begins to read for the log's owner, who lets go of the engine last.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(engine: Arc<Engine<LogFiles>>) -> std::io::Result<Self> {
        let (asks, asked) = mpsc::channel::<Asked>();
        let (answer, answers) = mpsc::channel();
        let work = move || asked.iter().for_each(|asked| drop(answer.send(read(&engine, &asked))));
        let thread = thread::Builder::new().name("mayfly-log".to_owned()).spawn(work)?;
        Ok(Self { asks: Some(asks), answers, thread: Some(thread) })
    }

    /// Entries from the disk, at least one.
    pub(super) fn read(&self, low: u64, high: u64, bytes_max: Option<u64>) -> Result<Vec<Entry>> {
        let bytes_max = bytes_max.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let asked = self.asks.as_ref().is_some_and(|asks| asks.send(Asked { low, high, bytes_max }).is_ok());
        let answer = if asked { self.answers.recv().ok() } else { None };
        answer.unwrap_or_else(|| Err(Error::Corruption("the thread that reads the log is gone".to_owned())))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.asks = None;
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// raft-engine panics where an entry is not where it should be.
fn read(engine: &Engine<LogFiles>, Asked { low, high, bytes_max }: &Asked) -> Result<Vec<Entry>> {
    let read = || {
        let mut entries = Vec::new();
        engine.fetch_entries_to::<Entries>(REGION, *low, *high, *bytes_max, &mut entries).map(|_| entries)
    };
    let read = catch_unwind(AssertUnwindSafe(read));
    read.unwrap_or_else(|_| Err(Error::Corruption("an entry is not where it should be".to_owned())))
}
