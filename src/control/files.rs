//! The log's files as raft-engine sees them: the usual ones, but never longer than what was written.
//!
//! raft-engine reserves megabytes of zeros ahead of what it writes and cuts them off when it closes a file. After a kill they are there,
//! and a strict reader cannot tell them from an entry that was cut off. Without them whatever does not read as an entry is one that was
//! being written, or damage.

use std::io::{Result, Seek, SeekFrom, Write};
use std::path::Path;
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
