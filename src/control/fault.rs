//! What can be wrong with the data folder, each with the one line that names cause and remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub enum LogFault {
    /// The system refused.
    Io {
        /// What could not be read or written.
        path: PathBuf,
        /// In the system's words.
        error: io::Error,
    },
    /// Another process has it.
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// It is not empty, and no node's.
    Foreign {
        /// The folder.
        path: PathBuf,
        /// What lies there.
        found: String,
    },
    /// It is another node's.
    OfAnotherNode {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u64,
        /// Who asked.
        node_id: u64,
    },
    /// It is that of a node of a cluster, and this node is alone.
    OfACluster {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        node_id: u64,
    },
    /// Something that was acknowledged cannot be read any more.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// An entry is of a version that this one does not know.
    Unreadable {
        /// The log's folder.
        path: PathBuf,
        /// Which entry.
        index: u64,
        /// Why it cannot be read.
        cause: String,
    },
    /// The log's own library gave up.
    Log {
        /// Its folder.
        path: PathBuf,
        /// In its words.
        cause: String,
    },
}

impl LogFault {
    /// The system refused something about `path`.
    #[must_use]
    pub fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }

    /// Whether trying again cannot help.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }
}

impl fmt::Display for LogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => {
                write!(f, "data folder: {}: {error}; it has to be a folder that this user can write: see --data-dir", path.display())
            }
            Self::InUse { path } => {
                write!(
                    f,
                    "data folder {} is in use by another node; stop that one or choose another folder with --data-dir",
                    path.display()
                )
            }
            Self::Foreign { path, found } => write!(
                f,
                "data folder {} is not empty ({found:?}) and no node's; choose an empty or a new folder with --data-dir",
                path.display()
            ),
            Self::OfAnotherNode { path, owner, node_id } => write!(
                f,
                "data folder {} is that of node {owner} and this is node {node_id}; choose its own folder with --data-dir",
                path.display()
            ),
            Self::OfACluster { path, node_id } => write!(
                f,
                "data folder {} is that of node {node_id} of a cluster; start it with --node-id, --peers and --cluster-secret-file, or choose \
                 another folder with --data-dir",
                path.display()
            ),
            Self::Damaged { path, cause } => write!(
                f,
                "{} is damaged: {cause}; declarations that were acknowledged are lost: restore the data folder from a copy, or move it away \
                 and declare anew",
                path.display()
            ),
            Self::Unreadable { path, index, cause } => write!(
                f,
                "the log in {} holds entry {index}, which this version of mayfly cannot read: {cause}; nothing behind it can be carried \
                 out: start the node with the version that wrote it, or a later one",
                path.display()
            ),
            Self::Log { path, cause } => write!(f, "the log in {} cannot be used: {cause}; see --data-dir", path.display()),
        }
    }
}

impl std::error::Error for LogFault {}
