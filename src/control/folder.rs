//! The data folder: whose it is, one node at a time, and the files that lie in it beside the log.
//!
//! `node` says which node it belongs to and in which format, `lock` is held while the node runs, `log/` is raft-engine's, `snapshot` the
//! state up to an entry of it (see [`super::snapshot`]), `acknowledged` the last entry that a client was told of (see
//! [`Acknowledged`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::fault::LogFault;

const NODE: &str = "node";
const LOCK: &str = "lock";
const ACKNOWLEDGED: &str = "acknowledged";
const FORMAT: &str = "mayfly data 1";

/// The folder of a node that runs.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Opens the folder of node `node_id`, made if it is not there, and keeps others out.
    ///
    /// # Errors
    /// It is another's, it is in use, or it cannot be written.
    pub fn open(path: &Path, node_id: u64) -> Result<Self, LogFault> {
        fs::create_dir_all(path).map_err(|error| LogFault::io(path, error))?;
        let is_new = !path.join(NODE).exists();
        if is_new {
            refuse_foreign(path)?;
        }
        let lock = lock(path)?;
        if is_new {
            File::create(path.join(ACKNOWLEDGED)).map_err(|error| LogFault::io(&path.join(ACKNOWLEDGED), error))?;
            write_whole(&path.join(NODE), format!("{FORMAT}\nnode {node_id}\n").as_bytes())?;
        } else {
            check_owner(path, node_id)?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where raft-engine keeps its files.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The snapshot's file.
    #[must_use]
    pub fn snapshot(&self) -> PathBuf {
        self.path.join("snapshot")
    }

    /// Where a damaged file is kept that the log goes on without.
    #[must_use]
    pub fn set_aside(&self) -> PathBuf {
        self.path.join("damaged")
    }

    /// The file of the last acknowledged entry.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn acknowledged(&self) -> Result<Acknowledged, LogFault> {
        Acknowledged::open(self.path.join(ACKNOWLEDGED))
    }
}

/// A folder that is not empty and has no owner is somebody else's. What a start that was interrupted left is not.
fn refuse_foreign(path: &Path) -> Result<(), LogFault> {
    let entries = fs::read_dir(path).map_err(|error| LogFault::io(path, error))?;
    for entry in entries {
        let name = entry.map_err(|error| LogFault::io(path, error))?.file_name();
        if ![LOCK, ACKNOWLEDGED, "node.new", "lost+found"].iter().any(|known| name == *known) {
            return Err(LogFault::Foreign { path: path.to_owned(), found: name.to_string_lossy().into_owned() });
        }
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, LogFault> {
    let file = path.join(LOCK);
    let lock = OpenOptions::new().create(true).append(true).open(&file).map_err(|error| LogFault::io(&file, error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(LogFault::InUse { path: path.to_owned() }),
        Err(fs::TryLockError::Error(error)) => Err(LogFault::io(&file, error)),
    }
}

fn check_owner(path: &Path, node_id: u64) -> Result<(), LogFault> {
    let file = path.join(NODE);
    let text = fs::read_to_string(&file).map_err(|error| LogFault::io(&file, error))?;
    let owner = text.strip_prefix(FORMAT).and_then(|rest| rest.trim().strip_prefix("node ")?.parse::<u64>().ok());
    match owner {
        Some(owner) if owner == node_id => Ok(()),
        Some(owner) => Err(LogFault::OfAnotherNode { path: path.to_owned(), owner, node_id }),
        None => Err(LogFault::Damaged { path: file, cause: "it does not say whose folder this is".to_owned() }),
    }
}

/// Writes a file so that it is there whole or as it was before, whatever happens meanwhile.
///
/// # Errors
/// It cannot be written.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), LogFault> {
    let written = path.with_extension("new");
    let write = || {
        let mut file = File::create(&written)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&written, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(|error: io::Error| LogFault::io(path, error))
}

/// The last entry that anybody was told of. It is written before they are, without an fsync of its own: after a kill it is exact, after
/// a power cut it is a lower bound. A log that ends before it has lost something.
#[derive(Debug)]
pub struct Acknowledged {
    file: File,
    path: PathBuf,
    index: u64,
}

impl Acknowledged {
    fn open(path: PathBuf) -> Result<Self, LogFault> {
        let read = || {
            let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            Ok((file, text))
        };
        let (file, text): (File, Vec<u8>) = read().map_err(|error| LogFault::io(&path, error))?;
        let index = match text.as_chunks::<8>().0 {
            [] => 0,
            [index, sum] if xxh3_64(index) == u64::from_le_bytes(*sum) => u64::from_le_bytes(*index),
            _ => return Err(LogFault::Damaged { path, cause: "its checksum does not match".to_owned() }),
        };
        Ok(Self { file, path, index })
    }

    /// The entry's index.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// Every entry up to `index` may be told of from now on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn raise(&mut self, index: u64) -> Result<(), LogFault> {
        if index > self.index {
            let mut text = [0; 16];
            text[..8].copy_from_slice(&index.to_le_bytes());
            text[8..].copy_from_slice(&xxh3_64(&index.to_le_bytes()).to_le_bytes());
            self.file.write_all_at(&text, 0).map_err(|error| LogFault::io(&self.path, error))?;
            self.index = index;
        }
        Ok(())
    }
}
