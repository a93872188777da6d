//! What clients were told: which messages were acknowledged, and what became of each.

use std::collections::{BTreeMap, BTreeSet};

/// Queue and partition.
pub(crate) type Place = (String, String);

#[derive(Default)]
pub(crate) struct Ledger {
    /// In order of their acknowledgement.
    acknowledged: BTreeMap<Place, Vec<String>>,
    delivered: BTreeSet<String>,
    spent: BTreeSet<String>,
    /// Pushed again, since nobody knew: it may be there twice.
    doubtful: BTreeSet<String>,
    /// Their node died, or was taken for dead.
    excused: BTreeSet<String>,
    /// Order may bend.
    bent: BTreeSet<Place>,
    last: BTreeMap<Place, usize>,
}

impl Ledger {
    pub(crate) fn acknowledge(&mut self, place: &Place, text: &str) {
        self.acknowledged.entry(place.clone()).or_default().push(text.to_owned());
    }

    pub(crate) fn doubt(&mut self, text: &str) {
        self.doubtful.insert(text.to_owned());
    }

    pub(crate) fn bend(&mut self, place: &Place) {
        self.bent.insert(place.clone());
    }

    /// What was acknowledged of a place and not delivered was with a node that died or was taken for dead.
    pub(crate) fn excuse(&mut self, place: &Place) {
        self.bend(place);
        let of_place = self.acknowledged.get(place).into_iter().flatten();
        self.excused.extend(of_place.filter(|text| !self.delivered.contains(*text)).cloned());
    }

    pub(crate) fn deliver(&mut self, place: &Place, text: &str, auto_ack: bool) {
        let is_free = self.doubtful.contains(text) || self.excused.contains(text);
        assert!(!self.spent.contains(text) || is_free, "{text} of {place:?} is delivered although it was settled");
        let is_first = self.delivered.insert(text.to_owned());
        if auto_ack {
            self.spent.insert(text.to_owned());
        }
        // One client pushes to a place, one message after another.
        let number: usize = text.rsplit('-').next().and_then(|text| text.parse().ok()).expect("a number");
        let last = self.last.entry(place.clone()).or_default();
        if is_first && !is_free && !self.bent.contains(place) {
            assert!(number >= *last, "{text} of {place:?} comes behind {last}");
        }
        *last = number.max(*last);
    }

    /// Every message has its end.
    pub(crate) fn close(&self) {
        for (place, texts) in &self.acknowledged {
            let lost: Vec<_> = texts.iter().filter(|text| !self.delivered.contains(*text) && !self.excused.contains(*text)).collect();
            assert!(lost.is_empty(), "{lost:?} of {place:?} are lost");
        }
    }
}
