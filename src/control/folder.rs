//! The data folder: whose it is, one node at a time, and the files that lie in it beside the log.
//!
//! `node` says which node of which cluster it belongs to and in which format, `lock` is held while the node runs, `log/` is raft-engine's, `snapshot` the
//! state up to an entry of it (see [`super::snapshot`]), `acknowledged` the last entry that a client was told of (see
//! [`Acknowledged`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::fault::LogFault;
use super::files::may_write;

const NODE: &str = "node";
const LOCK: &str = "lock";
const ACKNOWLEDGED: &str = "acknowledged";
const FORMAT: &str = "mayfly data 1";

/// What a cluster's nodes call it among themselves: those that begin it together make the same one of their list, a node that was alone
/// takes a random one, and one that joins takes that of whoever speaks to it first. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterMark(pub u64);

impl ClusterMark {
    /// Of nodes that begin together.
    #[must_use]
    pub fn of(peers: &str) -> Self {
        Self(xxh3_64(peers.as_bytes()).max(1))
    }
}

/// The folder of a node that runs.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    node_id: u64,
    _lock: File,
}

impl DataFolder {
    /// Opens the folder of a node alone, made if it is not there, and keeps others out.
    ///
    /// # Errors
    /// It is another's, it is in use, or it cannot be written.
    pub fn open(path: &Path, node_id: u64) -> Result<Self, LogFault> {
        let (folder, belongs) = Self::open_any(path, node_id, None)?;
        match belongs {
            Belongs::Nowhere => Ok(folder),
            Belongs::ToCluster(_) => Err(LogFault::OfACluster { path: path.to_owned(), node_id }),
        }
    }

    /// The same for a node of a cluster; with the cluster's mark, as far as it is known. `begins`: the mark of a cluster that begins, in a
    /// folder that is new. `taken`: what a node that was alone calls its cluster from now on.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn open_of_cluster(
        path: &Path,
        node_id: u64,
        begins: Option<ClusterMark>,
        taken: ClusterMark,
    ) -> Result<(Self, Option<ClusterMark>), LogFault> {
        let (folder, belongs) = Self::open_any(path, node_id, Some(begins))?;
        let mark = match belongs {
            Belongs::ToCluster(mark) => mark,
            Belongs::Nowhere => {
                let mark = if folder.log().exists() { Some(taken) } else { begins };
                folder.write_owner(Some(mark))?;
                mark
            }
        };
        Ok((folder, mark))
    }

    fn open_any(path: &Path, node_id: u64, cluster: Option<Option<ClusterMark>>) -> Result<(Self, Belongs), LogFault> {
        fs::create_dir_all(path).map_err(|error| LogFault::io(path, error))?;
        let is_new = !path.join(NODE).exists();
        if is_new {
            refuse_foreign(path)?;
        }
        let folder = Self { path: path.to_owned(), node_id, _lock: lock(path)? };
        if !is_new {
            let belongs = check_owner(path, node_id)?;
            return Ok((folder, belongs));
        }
        File::create(path.join(ACKNOWLEDGED)).map_err(|error| LogFault::io(&path.join(ACKNOWLEDGED), error))?;
        folder.write_owner(cluster)?;
        Ok((folder, cluster.map_or(Belongs::Nowhere, Belongs::ToCluster)))
    }

    /// Says whose folder this is; a cluster whose mark is not known yet is `0`.
    fn write_owner(&self, cluster: Option<Option<ClusterMark>>) -> Result<(), LogFault> {
        let line = cluster.map_or(String::new(), |mark| format!("cluster {:x}\n", mark.map_or(0, |mark| mark.0)));
        write_whole(&self.path.join(NODE), format!("{FORMAT}\nnode {}\n{line}", self.node_id).as_bytes())
    }

    /// The folder is this cluster's from now on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn join(&self, mark: ClusterMark) -> Result<(), LogFault> {
        self.write_owner(Some(Some(mark)))
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

/// Where a folder's node was.
enum Belongs {
    /// It was alone.
    Nowhere,
    /// In a cluster, whose mark may not be known yet.
    ToCluster(Option<ClusterMark>),
}

fn check_owner(path: &Path, node_id: u64) -> Result<Belongs, LogFault> {
    let file = path.join(NODE);
    let text = fs::read_to_string(&file).map_err(|error| LogFault::io(&file, error))?;
    match read_owner(&text) {
        Some((owner, belongs)) if owner == node_id => Ok(belongs),
        Some((owner, _)) => Err(LogFault::OfAnotherNode { path: path.to_owned(), owner, node_id }),
        None => Err(LogFault::Damaged { path: file, cause: "it does not say whose folder this is".to_owned() }),
    }
}

fn read_owner(text: &str) -> Option<(u64, Belongs)> {
    let mut lines = text.strip_prefix(FORMAT)?.trim().lines();
    let owner = lines.next()?.strip_prefix("node ")?.parse().ok()?;
    let belongs = match lines.next() {
        None => Belongs::Nowhere,
        Some(line) => {
            let mark = u64::from_str_radix(line.strip_prefix("cluster ")?, 16).ok()?;
            Belongs::ToCluster((mark != 0).then_some(ClusterMark(mark)))
        }
    };
    Some((owner, belongs))
}

/// Writes a file so that it is there whole or as it was before, whatever happens meanwhile.
///
/// # Errors
/// It cannot be written.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), LogFault> {
    let written = path.with_extension("new");
    let write = || {
        may_write()?;
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
            may_write().and_then(|()| self.file.write_all_at(&text, 0)).map_err(|error| LogFault::io(&self.path, error))?;
            self.index = index;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes with this.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mayfly-folder-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const TAKEN: ClusterMark = ClusterMark(9);

    #[test]
    fn a_folder_of_a_cluster_keeps_its_mark_and_is_no_node_alones() {
        let scratch = Scratch::new("cluster");
        let begins = ClusterMark::of("1=a:1,2=b:1");
        let open = |node_id| DataFolder::open_of_cluster(&scratch.0, node_id, Some(ClusterMark(5)), TAKEN);
        let (folder, mark) = DataFolder::open_of_cluster(&scratch.0, 2, Some(begins), TAKEN).expect("new");
        assert_eq!(mark, Some(begins));
        drop(folder);
        assert_eq!(open(2).expect("its own").1, Some(begins));
        assert!(matches!(open(3), Err(LogFault::OfAnotherNode { owner: 2, node_id: 3, .. })));
        assert!(matches!(DataFolder::open(&scratch.0, 2), Err(LogFault::OfACluster { node_id: 2, .. })));
    }

    #[test]
    fn a_joiner_takes_the_mark_that_it_hears() {
        let scratch = Scratch::new("joiner");
        let open = || DataFolder::open_of_cluster(&scratch.0, 4, None, TAKEN).expect("its own");
        let (folder, mark) = open();
        assert_eq!(mark, None);
        folder.join(ClusterMark(77)).expect("written");
        drop(folder);
        assert_eq!(open().1, Some(ClusterMark(77)));
    }

    #[test]
    fn a_node_that_was_alone_may_have_peers_later() {
        let scratch = Scratch::new("alone");
        let folder = DataFolder::open(&scratch.0, 1).expect("new");
        assert_eq!(fs::read_to_string(scratch.0.join(NODE)).expect("text"), "mayfly data 1\nnode 1\n");
        fs::create_dir(folder.log()).expect("a log");
        drop(folder);
        assert_eq!(DataFolder::open_of_cluster(&scratch.0, 1, Some(ClusterMark(5)), TAKEN).expect("its own").1, Some(TAKEN));
    }
}
