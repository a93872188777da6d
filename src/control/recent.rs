//! The last entries of the log in memory: what raft asks for again and again while it writes, sends and carries out.
//!
//! raft-engine keeps the block that a thread read last under its place in a file, whichever log that was of: a log that is opened anew and
//! written where another entry was could give that one back. So what is not here is read on a thread that
//! reads no other log: see [`super::reader`].

use std::collections::VecDeque;

use raft::eraftpb::Entry;

/// Entries and bytes of them that are kept.
const ENTRIES_MAX: usize = 1_024;
const BYTES_MAX: usize = 4 << 20;

/// Entries without a gap, up to the log's last.
#[derive(Default)]
pub(super) struct Recent {
    entries: VecDeque<Entry>,
    bytes: usize,
}

fn size(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len() + size_of::<Entry>()
}

impl Recent {
    /// These were written: they follow what is here, or take the place of its end.
    pub(super) fn put(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        while self.entries.back().is_some_and(|last| last.index >= first.index) {
            self.bytes -= self.entries.pop_back().as_ref().map_or(0, size);
        }
        if self.entries.back().is_some_and(|last| last.index + 1 != first.index) {
            self.clear();
        }
        for entry in entries {
            self.bytes += size(entry);
            self.entries.push_back(entry.clone());
        }
        while self.entries.len() > ENTRIES_MAX || self.bytes > BYTES_MAX {
            self.bytes -= self.entries.pop_front().as_ref().map_or(0, size);
        }
    }

    /// There is no entry any more.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// The entry at an index.
    pub(super) fn get(&self, index: u64) -> Option<&Entry> {
        let first = self.entries.front()?.index;
        self.entries.get(usize::try_from(index.checked_sub(first)?).ok()?)
    }

    /// The entries from `low` on and before `high`, up to `bytes_max` and at least one; None: they are not all here.
    pub(super) fn range(&self, low: u64, high: u64, bytes_max: Option<u64>) -> Option<Vec<Entry>> {
        self.get(low)?;
        self.get(high.checked_sub(1)?)?;
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let is_first = entry.index == low;
            bytes += size(entry) as u64;
            is_first || bytes_max.is_none_or(|most| bytes <= most)
        };
        Some((low..high).map_while(|index| self.get(index)).take_while(fits).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, term);
        entry.data = vec![7; 1_000].into();
        entry
    }

    fn entries(indexes: std::ops::Range<u64>, term: u64) -> Vec<Entry> {
        indexes.map(|index| entry(index, term)).collect()
    }

    #[test]
    fn the_end_is_replaced_and_the_beginning_forgotten() {
        let mut recent = Recent::default();
        recent.put(&entries(5..10, 1));
        recent.put(&entries(8..12, 2));
        let terms: Vec<u64> = (5..12).map(|index| recent.get(index).expect("here").term).collect();
        assert_eq!(terms, [1, 1, 1, 2, 2, 2, 2]);
        assert!(recent.get(4).is_none() && recent.get(12).is_none());
        recent.put(&entries(12..3_000, 3));
        assert!(recent.get(11).is_none() && recent.get(2_999).is_some());
        assert_eq!(recent.entries.len(), ENTRIES_MAX);
        assert_eq!(recent.bytes, recent.entries.iter().map(size).sum::<usize>());
        recent.put(&entries(4_000..4_001, 3));
        assert_eq!(recent.entries.len(), 1, "no gap");
    }

    #[test]
    fn a_range_is_whole_or_cut_at_its_bytes() {
        let mut recent = Recent::default();
        recent.put(&entries(5..10, 1));
        let count = |low, high, most| recent.range(low, high, most).map(|entries| entries.len());
        assert_eq!(count(5, 10, None), Some(5));
        assert_eq!(count(6, 8, None), Some(2));
        assert_eq!(count(5, 10, Some(0)), Some(1));
        assert_eq!(count(5, 10, Some(2 * size(&entry(5, 1)) as u64)), Some(2));
        assert_eq!(count(4, 10, None), None);
        assert_eq!(count(5, 11, None), None);
    }
}
