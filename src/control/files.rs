//! The log's files as raft-engine sees them: the usual ones, but never longer than what was written.
//!
//! raft-engine reserves megabytes of zeros ahead of what it writes and cuts them off when it closes a file. After a kill they are there,
//! and a strict reader cannot tell them from an entry that was cut off. Without them whatever does not read as an entry is one that was
//! being written, or damage.

use std::io::{Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use raft_engine::env::{DefaultFileSystem, FileSystem, Permission, WriteExt};

/// See the module.
pub struct LogFiles;

type File = <DefaultFileSystem as FileSystem>::Writer;

/// A file that is written to.
pub struct Writer(File);

impl FileSystem for LogFiles {
    type Handle = <DefaultFileSystem as FileSystem>::Handle;
    type Reader = <DefaultFileSystem as FileSystem>::Reader;
    type Writer = Writer;

    fn create<P: AsRef<Path>>(&self, path: P) -> Result<Self::Handle> {
        DefaultFileSystem.create(path)
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> Result<Self::Handle> {
        DefaultFileSystem.open(path, permission)
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> Result<()> {
        DefaultFileSystem.delete(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> Result<()> {
        DefaultFileSystem.rename(from, to)
    }

    fn new_reader(&self, handle: Arc<Self::Handle>) -> Result<Self::Reader> {
        DefaultFileSystem.new_reader(handle)
    }

    fn new_writer(&self, handle: Arc<Self::Handle>) -> Result<Self::Writer> {
        DefaultFileSystem.new_writer(handle).map(Writer)
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        may_write()?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

impl Seek for Writer {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.0.seek(to)
    }
}

impl WriteExt for Writer {
    fn truncate(&mut self, offset: usize) -> Result<()> {
        self.0.truncate(offset)
    }

    fn allocate(&mut self, _offset: usize, _size: usize) -> Result<()> {
        Ok(())
    }
}

/// The files of a log, oldest first of each kind.
pub(super) fn all(log: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(log).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "raftlog" || kind == "rewrite")).collect();
    files.sort();
    files
}

/// The file that was written last; the folder, if there is none.
pub(super) fn newest(log: &Path) -> PathBuf {
    let written = all(log).into_iter().rfind(|file| file.extension().is_some_and(|kind| kind == "raftlog"));
    written.unwrap_or_else(|| log.to_owned())
}

/// Whether the disk takes one more write. It says itself when it does not; tests choose one that fails.
#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "under test it may refuse")]
pub(super) const fn may_write() -> Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use failing::may_write;

/// A disk that fails once.
#[cfg(test)]
pub(super) mod failing {
    use std::cell::Cell;
    use std::io::{Error, Result};

    thread_local! {
        /// Writes of this thread before the one that fails.
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Runs `work`; of its writes the one behind `left` fails. None: that one was, or none is to.
    pub(crate) fn with<T>(left: &mut Option<u32>, work: impl FnOnce() -> T) -> T {
        LEFT.set(*left);
        let done = work();
        *left = LEFT.replace(None);
        done
    }

    pub(crate) fn may_write() -> Result<()> {
        match LEFT.get() {
            Some(0) => {
                LEFT.set(None);
                Err(Error::other("a test's disk fails"))
            }
            left => {
                LEFT.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }
}
