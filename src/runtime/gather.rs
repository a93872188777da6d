//! Requests that several shards answer, of this node or of several: their parts are gathered on the client's core and answered as one.

use mayfly_shards::{Answer, Outcome};
use smallvec::SmallVec;

use super::place::Place;
use crate::api::{Failure, answer, merge, status};
use crate::control::NodeId;

/// Things by the shard that they are for; mostly all are for one.
pub(super) type ByPlace<T> = SmallVec<[(Place, Vec<T>); 1]>;

/// Adds a thing for a shard.
pub(super) fn put<T>(by_place: &mut ByPlace<T>, place: Place, item: T) {
    match by_place.iter_mut().find(|(of, _)| *of == place) {
        Some((_, items)) => items.push(item),
        None => by_place.push((place, vec![item])),
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
    Reset {
        queue: Box<str>,
    },
    /// The log declared it, or not.
    Delete {
        queue: Box<str>,
        was_declared: bool,
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
    /// Parts to come, by the node that they come from; None: this one.
    awaiting: SmallVec<[(Option<NodeId>, u32); 1]>,
    /// Nodes that did not answer.
    missing: Vec<NodeId>,
    /// This node's first: it knows what it has answered.
    parts: Vec<Answer>,
    own_count: usize,
    has_other_parts: bool,
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
    /// Waits for the answers of shards, one for each place.
    pub(super) fn new(wanted: Wanted, places: impl IntoIterator<Item = Place>) -> Self {
        let mut awaiting: SmallVec<[(Option<NodeId>, u32); 1]> = SmallVec::new();
        for place in places {
            let node = place.node();
            match awaiting.iter_mut().find(|(of, _)| *of == node) {
                Some((_, count)) => *count += 1,
                None => awaiting.push((node, 1)),
            }
        }
        let has_other_parts = awaiting.iter().map(|(_, count)| count).sum::<u32>() > 1;
        Self { wanted, awaiting, missing: Vec::new(), parts: Vec::new(), own_count: 0, has_other_parts }
    }

    /// Whether it was asked of more than one shard.
    pub(super) fn has_other_parts(&self) -> bool {
        self.has_other_parts
    }

    /// `count` parts of a node do not come. Whether the request is answered without them, and whether no part is missing now.
    pub(super) fn miss(&mut self, node: NodeId, count: u32) -> Option<bool> {
        if !matches!(self.wanted, Wanted::List { .. } | Wanted::Depth { .. }) {
            return None;
        }
        if !self.missing.contains(&node) {
            self.missing.push(node);
        }
        Some(self.count_down(Some(node), count))
    }

    /// The nodes whose parts are still to come, and how many of each.
    pub(super) fn laggards(&self) -> Vec<(NodeId, u32)> {
        self.awaiting.iter().filter_map(|(node, count)| Some(((*node)?, *count))).filter(|(_, count)| *count > 0).collect()
    }

    fn count_down(&mut self, node: Option<NodeId>, by: u32) -> bool {
        if let Some((_, count)) = self.awaiting.iter_mut().find(|(of, _)| *of == node) {
            *count = count.saturating_sub(by);
        }
        self.awaiting.iter().all(|(_, count)| *count == 0)
    }

    /// Takes one shard's part. Whether that was the last.
    pub(super) fn add(&mut self, node: Option<NodeId>, part: Answer) -> bool {
        match (&mut self.wanted, part) {
            (Wanted::Ack { outcomes, .. }, Answer::Acked(part)) => {
                // Another node may say more than it was asked for.
                for (index, outcome) in part {
                    if let Some(known) = outcomes.get_mut(index as usize) {
                        *known = outcome;
                    }
                }
            }
            (_, part) if node.is_none() => {
                self.parts.insert(self.own_count, part);
                self.own_count += 1;
            }
            (_, part) => self.parts.push(part),
        }
        self.count_down(node, 1)
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
                status::missing(out, self.missing.iter().map(|node| node.0));
            }
            Wanted::Reset { queue } => {
                let dropped = self.parts.into_iter().map(|part| if let Answer::Reset(dropped) = part { dropped } else { 0 }).sum();
                answer::reset(out, &queue, dropped);
            }
            Wanted::Delete { queue, was_declared } => {
                let (mut deleted, mut declared) = (was_declared, was_declared);
                for part in self.parts {
                    if let Answer::Deleted { deleted: anything, declared: here } = part {
                        deleted |= anything;
                        declared |= here;
                    }
                }
                answer::deleted(out, &queue, deleted, declared);
            }
            Wanted::Depth { queue, group } => {
                let parts = self.parts.into_iter().filter_map(|part| if let Answer::Depth(depth) = part { Some(depth) } else { None });
                let unknown = if self.missing.is_empty() { Failure::QueueNotFound } else { Failure::ForwardFailed };
                let depth = merge::depth(parts).ok_or(unknown)?;
                status::depth(out, &queue, group.as_deref(), &depth);
                status::missing(out, self.missing.iter().map(|node| node.0));
            }
        }
        Ok(())
    }
}
