//! A queue's groups on one shard, by index and by name.
//!
//! Invariants: an index names one group until that is removed; the list of those that want to hear of a new message is true.

use smallvec::SmallVec;

use crate::group::Group;
use crate::queue::GroupIndex;

/// A queue's groups. A removed one leaves its index free.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    cells: SmallVec<[Option<Group>; 1]>,
    count: u32,
    /// Those that read one partition alone.
    confined_count: u32,
    /// Those with a parked pop here, or with one on another core that asked to be told.
    waiting: SmallVec<[GroupIndex; 4]>,
}

impl Groups {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Groups that do not read this partition.
    pub(crate) fn bystanders(&self, partition: &str) -> SmallVec<[GroupIndex; 4]> {
        if self.confined_count == 0 {
            return SmallVec::new();
        }
        self.iter().filter(|(_, group)| !group.reads(partition)).map(|(index, _)| index).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<GroupIndex> {
        self.iter().find(|(_, group)| *group.name == *name).map(|(index, _)| index)
    }

    pub(crate) fn get(&self, index: GroupIndex) -> &Group {
        self.cells[usize::from(index.0)].as_ref().unwrap_or_else(|| unreachable!("an index names a group"))
    }

    pub(crate) fn get_mut(&mut self, index: GroupIndex) -> &mut Group {
        self.cells[usize::from(index.0)].as_mut().unwrap_or_else(|| unreachable!("an index names a group"))
    }

    /// The group of that index, if it still exists.
    pub(crate) fn find_at(&self, index: GroupIndex) -> Option<&Group> {
        self.cells.get(usize::from(index.0))?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (GroupIndex, &Group)> {
        self.cells.iter().enumerate().filter_map(|(index, cell)| Some((GroupIndex(index as u16), cell.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (GroupIndex, &mut Group)> {
        self.cells.iter_mut().enumerate().filter_map(|(index, cell)| Some((GroupIndex(index as u16), cell.as_mut()?)))
    }

    /// Adds a group under a free index.
    pub(crate) fn add(&mut self, group: Group) -> GroupIndex {
        self.count += 1;
        self.confined_count += u32::from(group.is_confined);
        let index = match self.cells.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.cells.push(None);
                self.cells.len() - 1
            }
        };
        self.cells[index] = Some(group);
        GroupIndex(index as u16)
    }

    pub(crate) fn remove(&mut self, index: GroupIndex) {
        if let Some(group) = self.cells[usize::from(index.0)].take() {
            self.count -= 1;
            self.confined_count -= u32::from(group.is_confined);
            self.waiting.retain(|waiting| *waiting != index);
        }
    }

    /// Those that want to hear of a new message.
    pub(crate) fn waiting(&self) -> &[GroupIndex] {
        &self.waiting
    }

    /// Keeps the list of those that want to hear true to `index`.
    pub(crate) fn note_waiting(&mut self, index: GroupIndex) {
        let wants = self.get(index).wants_to_hear();
        match self.waiting.iter().position(|waiting| *waiting == index) {
            Some(position) if !wants => {
                self.waiting.swap_remove(position);
            }
            None if wants => self.waiting.push(index),
            _ => {}
        }
    }
}
