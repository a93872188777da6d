//! The shard's table of queues, found by tenant and name, and the names that nearly every queue shares.

use std::sync::Arc;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::name::{DEFAULT_PARTITION, QUEUE_MODE, Tenant};
use crate::queue::{Queue, QueueIndex};

/// See the module.
pub(crate) struct Queues {
    by_name: HashTable<QueueIndex>,
    pub(crate) queues: Cells,
    pub(crate) names: SharedNames,
    hasher: RandomState,
}

/// Queues by index.
#[derive(Default)]
pub(crate) struct Cells {
    cells: Vec<Option<Box<Queue>>>,
    free: Vec<u32>,
}

/// One text each for the names that nearly every queue shares.
pub(crate) struct SharedNames {
    default_partition: Arc<str>,
    queue_mode: Arc<str>,
}

impl SharedNames {
    /// A partition's name.
    pub(crate) fn partition(&self, name: &str) -> Arc<str> {
        if name == DEFAULT_PARTITION { Arc::clone(&self.default_partition) } else { name.into() }
    }

    /// A group's name.
    pub(crate) fn group(&self, name: &str) -> Arc<str> {
        if name == QUEUE_MODE { Arc::clone(&self.queue_mode) } else { name.into() }
    }
}

impl Cells {
    pub(crate) fn get(&self, index: QueueIndex) -> &Queue {
        self.cells[index.0 as usize].as_deref().unwrap_or_else(|| unreachable!("an index names a queue"))
    }

    pub(crate) fn get_mut(&mut self, index: QueueIndex) -> &mut Queue {
        self.cells[index.0 as usize].as_deref_mut().unwrap_or_else(|| unreachable!("an index names a queue"))
    }
}

impl Queues {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            by_name: HashTable::new(),
            queues: Cells::default(),
            names: SharedNames { default_partition: DEFAULT_PARTITION.into(), queue_mode: QUEUE_MODE.into() },
            hasher: RandomState::with_seeds(seed, !seed, seed.rotate_left(32), seed ^ 0x9e37_79b9_7f4a_7c15),
        }
    }

    fn hash(&self, tenant: Tenant, name: &str) -> u64 {
        self.hasher.hash_one((tenant.0, name))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn find(&self, tenant: Tenant, name: &str) -> Option<QueueIndex> {
        let is_it = |index: &QueueIndex| {
            let queue = self.queues.get(*index);
            queue.tenant() == tenant && *queue.name == *name
        };
        self.by_name.find(self.hash(tenant, name), is_it).copied()
    }

    pub(crate) fn get(&self, index: QueueIndex) -> &Queue {
        self.queues.get(index)
    }

    pub(crate) fn get_mut(&mut self, index: QueueIndex) -> &mut Queue {
        self.queues.get_mut(index)
    }

    /// The queue of that index, if it still exists.
    pub(crate) fn find_at(&self, index: QueueIndex) -> Option<&Queue> {
        self.queues.cells.get(index.0 as usize)?.as_deref()
    }

    /// Above every index.
    pub(crate) fn end(&self) -> u32 {
        self.queues.cells.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (QueueIndex, &Queue)> {
        self.by_name.iter().map(|index| (*index, self.queues.get(*index)))
    }

    pub(crate) fn insert(&mut self, queue: Queue) -> QueueIndex {
        let hash = self.hash(queue.tenant(), &queue.name);
        let Cells { cells, free } = &mut self.queues;
        let index = match free.pop() {
            Some(index) => {
                cells[index as usize] = Some(Box::new(queue));
                QueueIndex(index)
            }
            None => {
                cells.push(Some(Box::new(queue)));
                QueueIndex((cells.len() - 1) as u32)
            }
        };
        let (cells, hasher) = (&self.queues, &self.hasher);
        self.by_name.insert_unique(hash, index, |other| {
            let queue = cells.get(*other);
            hasher.hash_one((queue.tenant().0, &*queue.name))
        });
        index
    }

    pub(crate) fn remove(&mut self, index: QueueIndex) -> Box<Queue> {
        let queue = self.queues.cells[index.0 as usize].take().unwrap_or_else(|| unreachable!("an index names a queue"));
        if let Ok(entry) = self.by_name.find_entry(self.hash(queue.tenant(), &queue.name), |other| *other == index) {
            entry.remove();
        }
        self.queues.free.push(index.0);
        if self.by_name.is_empty() {
            self.queues = Cells::default();
            self.by_name = HashTable::new();
        }
        queue
    }
}
