//! Requests that several shards answer: their parts are gathered on the client's core and answered as one.

use mayfly_shards::{Answer, Outcome, ShardIndex};
use smallvec::SmallVec;

use crate::api::{Failure, answer, merge, status};

/// Things by the shard that they are for; mostly all are for one.
pub(super) type ByShard<T> = SmallVec<[(ShardIndex, Vec<T>); 1]>;

/// Adds a thing for a shard.
pub(super) fn put<T>(by_shard: &mut ByShard<T>, shard: ShardIndex, item: T) {
    match by_shard.iter_mut().find(|(of, _)| *of == shard) {
        Some((_, items)) => items.push(item),
        None => by_shard.push((shard, vec![item])),
    }
}

/// What was asked of several shards.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Outcomes so far, and every id as spelled.
    Ack {
        ids: SpelledIds,
        outcomes: Vec<Outcome>,
    },
    List {
        limit: usize,
    },
    Depth {
        queue: Box<str>,
        group: Option<Box<str>>,
    },
}

/// The parts so far.
#[derive(Debug)]
pub(super) struct Gather {
    wanted: Wanted,
    awaiting: usize,
    parts: Vec<Answer>,
}

/// Ids as the client spelled them, in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct SpelledIds {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl SpelledIds {
    pub(super) fn push(&mut self, id: &[u8]) {
        self.bytes.extend_from_slice(id);
        // A body is at most 64 MiB.
        self.ends.push(self.bytes.len() as u32);
    }

    /// Bytes of all.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin as usize..*end as usize])
    }
}

impl Gather {
    /// Waits for the answers of `awaiting` shards.
    pub(super) fn new(wanted: Wanted, awaiting: usize) -> Self {
        Self { wanted, awaiting, parts: Vec::new() }
    }

    /// Takes one shard's part. Whether that was the last.
    pub(super) fn add(&mut self, part: Answer) -> bool {
        self.awaiting -= 1;
        match (&mut self.wanted, part) {
            (Wanted::Ack { outcomes, .. }, Answer::Acked(part)) => {
                for (index, outcome) in part {
                    outcomes[index as usize] = outcome;
                }
            }
            (_, part) => self.parts.push(part),
        }
        self.awaiting == 0
    }

    /// Appends the whole answer.
    ///
    /// # Errors
    /// There is no such queue.
    pub(super) fn render(self, node_bytes: u64, out: &mut Vec<u8>) -> Result<(), Failure> {
        match self.wanted {
            Wanted::Ack { ids, outcomes } => answer::acked(out, ids.iter().zip(outcomes)),
            Wanted::List { limit } => {
                let parts = self.parts.into_iter().filter_map(|part| if let Answer::Listed(rows) = part { Some(rows) } else { None });
                status::queues(out, &merge::queue_rows(parts.collect(), limit), node_bytes);
            }
            Wanted::Depth { queue, group } => {
                let parts = self.parts.into_iter().filter_map(|part| if let Answer::Depth(depth) = part { Some(depth) } else { None });
                let depth = merge::depth(parts).ok_or(Failure::QueueNotFound)?;
                status::depth(out, &queue, group.as_deref(), &depth);
            }
        }
        Ok(())
    }
}
