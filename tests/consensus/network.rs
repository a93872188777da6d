//! A network that loses, delays, doubles and cuts; late mail is overtaken.

use std::collections::{BTreeMap, BTreeSet};

use mayfly::control::NodeId;

use crate::random::Random;

/// A message on its way.
pub(crate) struct Mail {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) text: Vec<u8>,
}

/// See the module. Times are milliseconds.
pub(crate) struct Network {
    random: Random,
    lost_percent: u64,
    doubled_percent: u64,
    late_percent: u64,
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// By when it arrives, and in which order it was sent.
    way: BTreeMap<(u64, u64), Mail>,
    sent: u64,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, 11);
        let [lost_percent, doubled_percent, late_percent] = [random.pick(&[0, 2, 15]), random.pick(&[0, 5]), random.pick(&[0, 5, 20])];
        Self { random, lost_percent, doubled_percent, late_percent, cuts: BTreeSet::new(), way: BTreeMap::new(), sent: 0 }
    }

    pub(crate) fn send(&mut self, now: u64, from: NodeId, to: NodeId, text: Vec<u8>) {
        if self.cuts.contains(&(from, to)) || self.random.chance(self.lost_percent) {
            return;
        }
        if self.random.chance(self.doubled_percent) {
            self.put(now, Mail { from, to, text: text.clone() });
        }
        self.put(now, Mail { from, to, text });
    }

    fn put(&mut self, now: u64, mail: Mail) {
        let span = if self.random.chance(self.late_percent) { 800 } else { 20 };
        let at = now + 1 + self.random.below(span);
        self.sent += 1;
        self.way.insert((at, self.sent), mail);
    }

    /// What arrives by `now`.
    pub(crate) fn arrived(&mut self, now: u64) -> Vec<Mail> {
        let later = self.way.split_off(&(now + 1, 0));
        std::mem::replace(&mut self.way, later).into_values().collect()
    }

    /// Nothing from `from` reaches `to` any more.
    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    /// Whoever is cut off is reached again.
    pub(crate) fn mend(&mut self) {
        self.cuts.clear();
    }

    /// From now on it does what it should.
    pub(crate) fn heal(&mut self) {
        self.mend();
        (self.lost_percent, self.doubled_percent, self.late_percent) = (0, 0, 0);
    }

    /// The connections of a node that died are gone, with what was on them.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.way.retain(|_, mail| mail.to != node && mail.from != node);
    }
}
