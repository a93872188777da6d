//! A queue's partitions on one shard, by index and, in order, by name.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::queue::RingIndex;
use crate::ring::Ring;

/// Rings by name. Boxed: most queues have one partition and no index.
#[derive(Debug, Default)]
struct NameIndex(BTreeMap<Arc<str>, RingIndex>);

/// A queue's partitions on this shard. With one there is no index; with more they are found and walked by name.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    cells: Vec<Option<Ring>>,
    free: Vec<u32>,
    by_name: Option<Box<NameIndex>>,
}

impl Rings {
    pub(crate) fn count(&self) -> usize {
        self.cells.len() - self.free.len()
    }

    pub(crate) fn find(&self, partition: &str) -> Option<RingIndex> {
        match &self.by_name {
            Some(names) => names.0.get(partition).copied(),
            None => self.iter().find(|(_, ring)| *ring.partition == *partition).map(|(index, _)| index),
        }
    }

    pub(crate) fn get(&self, index: RingIndex) -> &Ring {
        self.cells[index.0 as usize].as_ref().unwrap_or_else(|| unreachable!("an index names a ring"))
    }

    pub(crate) fn get_mut(&mut self, index: RingIndex) -> &mut Ring {
        self.cells[index.0 as usize].as_mut().unwrap_or_else(|| unreachable!("an index names a ring"))
    }

    /// The ring of that index, if it still exists.
    pub(crate) fn find_at(&self, index: RingIndex) -> Option<&Ring> {
        self.cells.get(index.0 as usize)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RingIndex, &Ring)> {
        self.cells.iter().enumerate().filter_map(|(index, cell)| Some((RingIndex(index as u32), cell.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (RingIndex, &mut Ring)> {
        self.cells.iter_mut().enumerate().filter_map(|(index, cell)| Some((RingIndex(index as u32), cell.as_mut()?)))
    }

    pub(crate) fn indexes(&self) -> Vec<RingIndex> {
        self.iter().map(|(index, _)| index).collect()
    }

    pub(crate) fn add(&mut self, ring: Ring) -> RingIndex {
        let partition = Arc::clone(&ring.partition);
        let index = match self.free.pop() {
            Some(index) => {
                self.cells[index as usize] = Some(ring);
                RingIndex(index)
            }
            None => {
                if self.cells.is_empty() {
                    self.cells.reserve_exact(1);
                }
                self.cells.push(Some(ring));
                RingIndex((self.cells.len() - 1) as u32)
            }
        };
        if self.by_name.is_none() && self.count() > 1 {
            let names = self.iter().map(|(index, ring)| (Arc::clone(&ring.partition), index)).collect();
            self.by_name = Some(Box::new(NameIndex(names)));
        } else if let Some(names) = &mut self.by_name {
            names.0.insert(partition, index);
        }
        index
    }

    pub(crate) fn remove(&mut self, index: RingIndex) -> Option<Ring> {
        let ring = self.cells[index.0 as usize].take()?;
        self.free.push(index.0);
        if let Some(names) = &mut self.by_name {
            names.0.remove(&ring.partition);
        }
        if self.count() == 0 {
            *self = Self::default();
        }
        Some(ring)
    }

    /// The ring whose name follows `partition`, the first one after the last; None: there is no ring.
    pub(crate) fn following(&self, partition: Option<&str>) -> Option<RingIndex> {
        let Some(NameIndex(names)) = self.by_name.as_deref() else { return self.iter().next().map(|(index, _)| index) };
        let after = partition.and_then(|partition| names.range::<str, _>((Excluded(partition), Unbounded)).next());
        after.or_else(|| names.first_key_value()).map(|(_, index)| *index)
    }
}
