//! A queue's partitions on one shard, by index and, in order, by name.
//!
//! Most queues have one partition: it lies in the queue itself, and there is no index. With a second one there is.
//!
//! Invariant: a ring that holds a message is among `holding`. One that was emptied may still be, until somebody looks at it, so that a pop
//! of any partition costs by those that have something and not by all there are.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::queue::RingIndex;
use crate::ring::Ring;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    /// Index 0.
    one: Option<Ring>,
    more: Option<Box<More>>,
}

/// Index 1 and above, and all names.
#[derive(Debug, Default)]
struct More {
    cells: Vec<Option<Ring>>,
    free: Vec<RingIndex>,
    by_name: BTreeMap<Arc<str>, RingIndex>,
    holding: BTreeMap<Arc<str>, RingIndex>,
}

fn cell_of(index: RingIndex) -> usize {
    index.0 as usize - 1
}

impl Rings {
    pub(crate) fn count(&self) -> usize {
        self.more.as_ref().map_or(usize::from(self.one.is_some()), |more| more.by_name.len())
    }

    pub(crate) fn find(&self, partition: &str) -> Option<RingIndex> {
        match (&self.more, &self.one) {
            (Some(more), _) => more.by_name.get(partition).copied(),
            (None, Some(one)) if *one.partition == *partition => Some(RingIndex(0)),
            (None, _) => None,
        }
    }

    /// The ring of that index, if it still exists.
    pub(crate) fn find_at(&self, index: RingIndex) -> Option<&Ring> {
        match index {
            RingIndex(0) => self.one.as_ref(),
            index => self.more.as_ref()?.cells.get(cell_of(index))?.as_ref(),
        }
    }

    /// Above every index.
    pub(crate) fn end(&self) -> u32 {
        1 + self.more.as_ref().map_or(0, |more| more.cells.len() as u32)
    }

    fn cell_mut(&mut self, index: RingIndex) -> Option<&mut Option<Ring>> {
        match index {
            RingIndex(0) => Some(&mut self.one),
            index => self.more.as_mut()?.cells.get_mut(cell_of(index)),
        }
    }

    pub(crate) fn get(&self, index: RingIndex) -> &Ring {
        self.find_at(index).unwrap_or_else(|| unreachable!("an index names a ring"))
    }

    pub(crate) fn get_mut(&mut self, index: RingIndex) -> &mut Ring {
        self.cell_mut(index).and_then(Option::as_mut).unwrap_or_else(|| unreachable!("an index names a ring"))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RingIndex, &Ring)> {
        let more = self.more.iter().flat_map(|more| &more.cells);
        let cells = std::iter::once(&self.one).chain(more).enumerate();
        cells.filter_map(|(index, cell)| Some((RingIndex(index as u32), cell.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (RingIndex, &mut Ring)> {
        let more = self.more.iter_mut().flat_map(|more| &mut more.cells);
        let cells = std::iter::once(&mut self.one).chain(more).enumerate();
        cells.filter_map(|(index, cell)| Some((RingIndex(index as u32), cell.as_mut()?)))
    }

    pub(crate) fn indexes(&self) -> Vec<RingIndex> {
        self.iter().map(|(index, _)| index).collect()
    }

    pub(crate) fn add(&mut self, ring: Ring) -> RingIndex {
        if self.count() == 0 {
            self.one = Some(ring);
            return RingIndex(0);
        }
        if self.more.is_none() {
            let by_name: BTreeMap<_, _> = self.one.iter().map(|one| (Arc::clone(&one.partition), RingIndex(0))).collect();
            self.more = Some(Box::new(More { holding: by_name.clone(), by_name, ..More::default() }));
        }
        let Self { one, more: Some(more) } = self else { unreachable!("made above") };
        let partition = Arc::clone(&ring.partition);
        let index = if one.is_none() {
            *one = Some(ring);
            RingIndex(0)
        } else if let Some(index) = more.free.pop() {
            more.cells[cell_of(index)] = Some(ring);
            index
        } else {
            more.cells.push(Some(ring));
            RingIndex(more.cells.len() as u32)
        };
        more.by_name.insert(partition, index);
        index
    }

    pub(crate) fn remove(&mut self, index: RingIndex) -> Option<Ring> {
        let ring = self.cell_mut(index)?.take()?;
        if let Some(more) = &mut self.more {
            more.by_name.remove(&ring.partition);
            more.holding.remove(&ring.partition);
            if index != RingIndex(0) {
                more.free.push(index);
            }
            if more.free.len() == more.cells.len() {
                self.more = None;
            }
        }
        Some(ring)
    }

    /// Says that a ring, which held nothing, has got a message.
    pub(crate) fn note_holding(&mut self, index: RingIndex) {
        let partition = self.more.is_some().then(|| Arc::clone(&self.get(index).partition));
        if let (Some(more), Some(partition)) = (&mut self.more, partition) {
            more.holding.insert(partition, index);
        }
    }

    /// How many rings hold messages, at most.
    pub(crate) fn holding_count(&self) -> usize {
        self.more.as_ref().map_or(usize::from(self.one.is_some()), |more| more.holding.len())
    }

    /// The ring with messages whose name follows `partition`, the first one after the last; None: no ring has any.
    pub(crate) fn following_holding(&mut self, partition: Option<&str>) -> Option<RingIndex> {
        loop {
            let Some(More { holding, .. }) = self.more.as_deref() else {
                return self.one.as_ref().filter(|one| one.held > 0).map(|_| RingIndex(0));
            };
            let after = partition.and_then(|partition| holding.range::<str, _>((Excluded(partition), Unbounded)).next());
            let (name, index) = after.or_else(|| holding.first_key_value()).map(|(name, index)| (Arc::clone(name), *index))?;
            if self.get(index).held > 0 {
                return Some(index);
            }
            if let Some(more) = &mut self.more {
                more.holding.remove(&name);
            }
        }
    }

    /// Whether [`Rings::following_holding`] would come to a ring.
    pub(crate) fn is_noted(&self, index: RingIndex) -> bool {
        self.more.as_ref().is_none_or(|more| more.holding.contains_key(&self.get(index).partition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    fn add(rings: &mut Rings, name: &str) -> RingIndex {
        rings.add(Ring::new(name.into(), Time(0)))
    }

    fn push(rings: &mut Rings, index: RingIndex) {
        let seq = rings.get(index).appended;
        rings.get_mut(index).append(seq, Time(0), Arc::from(&b"1"[..]));
        rings.note_holding(index);
    }

    #[test]
    fn rings_are_found_and_walked_by_name_whatever_came_and_went() {
        let mut rings = Rings::default();
        let (b, d, a) = (add(&mut rings, "b"), add(&mut rings, "d"), add(&mut rings, "a"));
        assert_eq!((rings.count(), rings.find("d"), rings.find("c")), (3, Some(d), None));
        for ring in [b, d, a] {
            push(&mut rings, ring);
        }
        assert_eq!([None, Some("a"), Some("c"), Some("d")].map(|last| rings.following_holding(last)), [Some(a), Some(b), Some(d), Some(a)]);
        rings.remove(b);
        assert_eq!((rings.count(), rings.find("b"), rings.following_holding(Some("a"))), (2, None, Some(d)));
        let c = add(&mut rings, "c");
        assert_eq!((rings.get(c).partition.to_string(), rings.indexes().len()), ("c".to_owned(), 3));
        for index in rings.indexes() {
            rings.remove(index);
        }
        assert!(rings.count() == 0 && rings.following_holding(None).is_none() && rings.more.is_none());
    }

    #[test]
    fn rings_without_messages_are_passed_over_and_looked_at_once() {
        let mut rings = Rings::default();
        let all: Vec<_> = (0..1_000).map(|number| add(&mut rings, &format!("p{number:04}"))).collect();
        assert_eq!(rings.following_holding(None), None);
        push(&mut rings, all[500]);
        assert_eq!((rings.following_holding(Some("p0900")), rings.holding_count()), (Some(all[500]), 1));
        assert!(rings.get_mut(all[500]).free(0).is_some());
        push(&mut rings, all[7]);
        assert_eq!((rings.following_holding(Some("p0400")), rings.holding_count()), (Some(all[7]), 1));
    }
}
