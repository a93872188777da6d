//! What a peer says, read before raft hears it: only what is meant for this node, whole, and for the first time.
//!
//! raft itself stands messages that are lost, late or doubled, but for a proposal: one that came twice would be two entries, and the
//! second could undo what was agreed on between them. So a leader takes a start's proposals in the order of their numbers, each once, and
//! nobody passes one on for another.

use std::collections::BTreeMap;
use std::fmt;

use protobuf::Message as _;
use raft::eraftpb::{EntryType, Message, MessageType};
use raft::{RawNode, StateRole};

use super::codec;
use super::members::NodeId;
use super::snapshot;
use super::storage::LogStorage;

/// Starts whose last proposal is remembered: more than may have anything on its way.
const STARTS_MAX: usize = 1_024;

/// See the module.
#[derive(Default)]
pub(super) struct Hearing {
    /// The last proposal of each start that was taken.
    proposed: BTreeMap<u64, u64>,
}

/// Why a message is not heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// It is of another time, or was heard.
    Stale,
    /// It is none.
    Garbled,
    /// It is another node's, or for another.
    Misled,
    /// A snapshot that this version cannot read.
    Snapshot(String),
    /// This node's log ends before what it had confirmed.
    Lost {
        /// Its last entry.
        last: u64,
        /// One that it had.
        had: u64,
    },
}

impl fmt::Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("it is of another time"),
            Self::Garbled => f.write_str("it cannot be read; both have to be of one version of mayfly"),
            Self::Misled => f.write_str("it is not for this node; see --node-id and --peers of both"),
            Self::Snapshot(cause) => write!(f, "its snapshot cannot be read: {cause}"),
            Self::Lost { last, had } => write!(
                f,
                "this node's log ends with entry {last} and had {had}: its data folder was emptied or is an older copy; remove the node \
                 from the cluster, and add it again with an empty folder and --join"
            ),
        }
    }
}

impl Hearing {
    /// The message, if raft is to hear it.
    pub(super) fn read(&mut self, from: NodeId, to: NodeId, text: &[u8], node: &RawNode<LogStorage>) -> Result<Message, Unheard> {
        let message = Message::parse_from_bytes(text).map_err(|_| Unheard::Garbled)?;
        if message.from != from.0 || message.to != to.0 {
            return Err(Unheard::Misled);
        }
        match message.get_msg_type() {
            MessageType::MsgPropose => self.admit(&message, node.raft.state == StateRole::Leader)?,
            MessageType::MsgSnapshot => {
                snapshot::parse(message.get_snapshot().get_data()).map_err(Unheard::Snapshot)?;
            }
            // raft would end the process: it never sends such a one to a node that keeps what it confirmed.
            MessageType::MsgHeartbeat if message.commit > node.raft.raft_log.last_index() => {
                return Err(Unheard::Lost { last: node.raft.raft_log.last_index(), had: message.commit });
            }
            _ => {}
        }
        Ok(message)
    }

    fn admit(&mut self, message: &Message, leads: bool) -> Result<(), Unheard> {
        if !leads || message.entries.is_empty() {
            return Err(Unheard::Stale);
        }
        for entry in message.get_entries() {
            let [start, number] = entry.context.as_chunks::<8>().0 else { return Err(Unheard::Garbled) };
            let (start, number) = (u64::from_le_bytes(*start), u64::from_le_bytes(*number));
            // In the log it would end every node that cannot read it.
            if entry.get_entry_type() == EntryType::EntryNormal && codec::decode(&entry.data).is_err() {
                return Err(Unheard::Garbled);
            }
            if self.proposed.get(&start).is_some_and(|last| *last >= number) {
                return Err(Unheard::Stale);
            }
            if self.proposed.len() >= STARTS_MAX && !self.proposed.contains_key(&start) {
                self.proposed.pop_first();
            }
            self.proposed.insert(start, number);
        }
        Ok(())
    }
}
