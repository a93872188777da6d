//! The receiver's side: which partitions may still be on their way, and who has said that nothing is.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_shards::{Cut, Opening, Outbox, PartitionName, Shard, Tenant, Unpacked};

use super::word::Progress;
use super::{Owner, Reply, Site, TABLES_MAX, View, Word};
use crate::control::members::{Members, NodeId, Standing};

/// See the module.
#[derive(Default)]
pub(super) struct Coming {
    /// The last table of which nothing is on its way any more.
    settled: Arc<Members>,
    /// Those between it and the newest.
    tables: Vec<Arc<Members>>,
    /// The newest table, until nothing of it is on its way.
    newest: Option<Arc<Members>>,
    /// Copies that were released, and may not be all that there is of their partition: what goes before may be elsewhere. They are opened
    /// when everybody is done.
    released: BTreeMap<Cut, PartitionName>,
    /// Something came that is another node's by now: it is to be found.
    has_opened_of_others: bool,
    /// The last epoch that a core of a node's start is done with.
    marks: BTreeMap<(NodeId, u16), (u64, u64)>,
}

impl Coming {
    pub(super) fn settled(&self) -> &Arc<Members> {
        &self.settled
    }

    pub(super) fn is_settling(&self) -> bool {
        self.newest.is_some()
    }

    /// Whether a queue was this node's by every table since nothing was on its way: then nothing of it is now.
    pub(super) fn owned_throughout(&self, view: &View, tenant: Tenant, queue: &str) -> bool {
        let is_owned = |members: &Arc<Members>| view.owns_by(members, tenant, queue);
        self.tables.len() < TABLES_MAX && is_owned(&self.settled) && self.tables.iter().chain(&self.newest).all(is_owned)
    }

    pub(super) fn follow(&mut self, site: &mut Site<'_, impl Outbox>, view: &View) {
        let before = self.newest.replace(Arc::clone(&view.members));
        if self.tables.len() < TABLES_MAX {
            self.tables.extend(before);
        }
        for (cut, name) in self.released.extract_if(.., |_, name| view.owner_of(name) != Owner::Here).collect::<Vec<_>>() {
            self.open_released(site, view, &name, cut);
        }
        self.marks.retain(|(node, _), _| view.members.find(*node).is_some());
        for arrival in site.shard.arrivals() {
            let gone = arrival.cuts.iter().map(|cut| cut.incarnation).filter(|incarnation| !view.is_there(*incarnation));
            for incarnation in gone {
                site.shard.open(site.now, &arrival.name, Opening::SourceGone { incarnation }, site.out);
                self.has_opened_of_others = true;
            }
            if view.owner_of(&arrival.name) != Owner::Here {
                site.shard.turn_back(&arrival.name, site.out);
            }
        }
        self.settle(site, view);
    }

    pub(super) fn mark(&mut self, node: NodeId, incarnation: u64, core: u16, epoch: u64) {
        self.marks.insert((node, core), (incarnation, epoch));
    }

    /// When everybody has said that nothing is on its way, nothing is waited for any more.
    pub(super) fn settle(&mut self, site: &mut Site<'_, impl Outbox>, view: &View) {
        if !self.is_settling() || !self.are_all_done(view) {
            return;
        }
        self.settled = Arc::clone(&view.members);
        (self.tables, self.newest) = (Vec::new(), None);
        // What holds messages goes before what was only there to say so.
        let copies = site.shard.arrivals().into_iter().flat_map(|arrival| arrival.cuts);
        for cut in copies.collect::<Vec<_>>() {
            if let Some(name) = self.released.remove(&cut) {
                self.open_released(site, view, &name, cut);
            }
        }
        self.released.clear();
        for arrival in site.shard.arrivals().into_iter().filter(|arrival| arrival.holds_back) {
            site.shard.open(site.now, &arrival.name, Opening::Nothing, site.out);
        }
    }

    fn are_all_done(&self, view: &View) -> bool {
        self.awaited(view).next().is_none()
    }

    /// The cores of other nodes that have not said yet that nothing of theirs is on its way.
    pub(super) fn awaited(&self, view: &View) -> impl Iterator<Item = (NodeId, u16)> {
        let holders = view.members.rows().iter().filter(|member| matches!(member.standing, Standing::Live | Standing::Leaving));
        let others = holders.filter(|member| !view.is_me(member));
        others.flat_map(move |member| {
            let expected = Some((member.incarnation, view.epoch()));
            let is_awaited = move |core: &u16| self.marks.get(&(member.id, *core)).copied() != expected;
            (0..member.shard_count).filter(is_awaited).map(|core| (member.id, core))
        })
    }

    pub(super) fn hear(&mut self, site: &mut Site<'_, impl Outbox>, view: &View, word: Word) -> Reply {
        match word {
            Word::Chunk(chunk) => {
                let (name, cut) = (chunk.name.clone(), chunk.cut);
                self.open_earlier(site, view, &name, cut);
                let progress = if view.owner_of(&name) == Owner::Here && view.is_there(cut.incarnation) {
                    progress(site.shard.unpack(site.now, *chunk))
                } else {
                    Progress::NotNow
                };
                Reply::Kept { name, cut, progress }
            }
            Word::Released { name, cut, is_all } => {
                if self.is_settling() && view.owner_of(&name) == Owner::Here && !is_all {
                    self.released.insert(cut, name);
                } else {
                    self.open_released(site, view, &name, cut);
                }
                Reply::Closed { cut }
            }
            Word::Discarded { name, cut } => {
                if !self.released.contains_key(&cut) {
                    site.shard.discard(site.now, &name, cut);
                }
                Reply::Closed { cut }
            }
        }
    }

    /// A source cuts anew: what it released of the partition before is opened first, since of two copies of one source the newer counts.
    fn open_earlier(&mut self, site: &mut Site<'_, impl Outbox>, view: &View, name: &PartitionName, cut: Cut) {
        let is_earlier = |of: &Cut, of_name: &mut PartitionName| {
            *of_name == *name && (of.incarnation, of.shard) == (cut.incarnation, cut.shard) && *of != cut
        };
        for (cut, name) in self.released.extract_if(.., is_earlier).collect::<Vec<_>>() {
            self.open_released(site, view, &name, cut);
        }
    }

    fn open_released(&mut self, site: &mut Site<'_, impl Outbox>, view: &View, name: &PartitionName, cut: Cut) {
        // False: a copy that was opened when its source was taken for dead; what is released is here all the same.
        site.shard.open(site.now, name, Opening::Released(cut), site.out);
        self.has_opened_of_others |= view.owner_of(name) != Owner::Here;
    }

    pub(super) fn take_opened_of_others(&mut self) -> bool {
        std::mem::take(&mut self.has_opened_of_others)
    }

    /// Whether there are copies of partitions of other nodes, of which it is not known what becomes, or which are being opened.
    pub(super) fn keeps_of_others(shard: &Shard, view: &View) -> bool {
        let is_of_others = |name| view.owner_of(name) != Owner::Here;
        shard.arrivals().iter().any(|arrival| (arrival.is_opening || !arrival.cuts.is_empty()) && is_of_others(&arrival.name))
    }
}

fn progress(unpacked: Unpacked) -> Progress {
    match unpacked {
        Unpacked::Next(place) => Progress::Next(place),
        Unpacked::Whole => Progress::Whole,
        Unpacked::Stale => Progress::InUse,
        Unpacked::Refused(_) => Progress::NotNow,
    }
}
