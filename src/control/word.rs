//! What control cores of a cluster say to each other: the mark of the cluster, a byte for the kind, and the word itself.

use super::folder::ClusterMark;
use super::roll::Heartbeat;

const MARK_BYTES: usize = 8;
const RAFT: u8 = b'r';
const HEARTBEAT: u8 = b'h';

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// raft's, see [`super::Consensus::receive`].
    Raft(&'a [u8]),
    /// How the sender is.
    Heartbeat(Heartbeat),
}

impl Word<'_> {
    /// Spells it. `mark`: None, the sender has not heard yet which cluster it is in.
    #[must_use]
    pub fn encode(&self, mark: Option<ClusterMark>) -> Vec<u8> {
        let mut out = mark.map_or(0, |mark| mark.0).to_le_bytes().to_vec();
        match self {
            Self::Raft(text) => {
                out.push(RAFT);
                out.extend_from_slice(text);
            }
            Self::Heartbeat(beat) => {
                out.push(HEARTBEAT);
                // Text and numbers, into a Vec: nothing can fail.
                let _ = serde_json::to_writer(&mut out, beat);
            }
        }
        out
    }
}

/// Reads it back, with the sender's mark; None: it is of another version of mayfly.
#[must_use]
pub fn decode(text: &[u8]) -> Option<(Option<ClusterMark>, Word<'_>)> {
    let (mark, rest) = text.split_first_chunk::<MARK_BYTES>()?;
    let mark = u64::from_le_bytes(*mark);
    let (kind, body) = rest.split_first()?;
    let word = match *kind {
        RAFT => Word::Raft(body),
        HEARTBEAT => Word::Heartbeat(serde_json::from_slice(body).ok()?),
        _ => return None,
    };
    Some(((mark != 0).then_some(ClusterMark(mark)), word))
}

#[cfg(test)]
mod tests {
    use super::super::roll::Phase;
    use super::*;

    #[test]
    fn words_come_back_as_they_were() {
        let peer = "[::1]:6633".into();
        let beat = Heartbeat { node: 3, incarnation: u64::MAX, shard_count: 4, peer, phase: Phase::Drains, epoch: 5, applied: 6 };
        for word in [Word::Raft(b"\0\xff"), Word::Raft(b""), Word::Heartbeat(beat)] {
            for mark in [None, Some(ClusterMark(u64::MAX))] {
                let text = word.encode(mark);
                assert_eq!(decode(&text).as_ref().map(|(of, word)| (*of, word)), Some((mark, &word)));
            }
        }
        assert_eq!(decode(b"12345678"), None);
        assert_eq!(decode(b"12345678x"), None);
        assert_eq!(decode(b"12345678h{}"), None);
    }
}
