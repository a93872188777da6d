//! The source's side: what this core holds of queues that others serve, and how far each partition of it is on its way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mayfly_shards::{CHUNK_BYTES_MAX, Cut, InventoryCursor, Outbox, Parcel, PartitionName, Span, Time};

use super::word::Progress;
use super::{Owner, Reply, Site, TABLES_MAX, Tally, Target, View, Word};
use crate::control::members::{Members, NodeId};

/// Partitions on their way to one node at once, and bytes of their chunks: what the link may hold up other requests by.
const WINDOW_COUNT: usize = 64;
const WINDOW_BYTES: u64 = 4 << 20;
/// Partitions looked at in one step, and such found ones for one node that are remembered before the search goes on.
const PAGE: usize = 256;
const FOUND_MAX: usize = 1_024;
/// Before a receiver that refused is asked again.
const PAUSE: Span = Span::from_millis(20);

/// See the module.
pub(super) struct Leaving {
    /// Of this node's start, in cuts.
    incarnation: u64,
    search: Search,
    /// The last table of which nothing was on its way any more when the search began. A queue without partitions is told of by who owned
    /// it then: whoever else knows it has nothing to say of it.
    basis: Arc<Members>,
    /// Tables since that this core was done with: what one of them gave to another is that one's to tell of.
    done_with: Vec<Arc<Members>>,
    /// What was given since.
    given: BTreeSet<PartitionName>,
    /// When the search begins again.
    search_at: Option<Time>,
    /// Found, and not begun with.
    found: BTreeMap<NodeId, VecDeque<PartitionName>>,
    going: BTreeMap<PartitionName, Going>,
    /// What receivers are to know of cuts, until they confirm it.
    closing: BTreeMap<(Cut, NodeId), Closing>,
    pub(super) words: Vec<(Target, Word)>,
    pub(super) tally: Tally,
}

/// The search for partitions that others serve.
enum Search {
    Over,
    Due,
    /// It is over when no command was under way as it began: one that was may yet bring something.
    Runs {
        from: Option<InventoryCursor>,
        was_calm: bool,
    },
}

/// A packed partition.
struct Going {
    to: Target,
    cut: Cut,
    chunk_count: u32,
    payload_bytes: u64,
    /// This node owned it when last nothing was on its way.
    is_owned: bool,
    /// The chunk that the receiver wants, which is on its way unless it has to be sent again at a time.
    next: u32,
    again_at: Option<Time>,
}

impl Going {
    fn chunk_bytes(&self) -> u64 {
        self.payload_bytes / u64::from(self.chunk_count.max(1))
    }
}

/// What becomes of a cut at its receiver.
#[derive(Clone, Copy)]
enum Fate {
    /// See [`Word::Released`].
    Released {
        is_all: bool,
    },
    Discarded,
}

struct Closing {
    to: Target,
    name: PartitionName,
    fate: Fate,
}

impl Closing {
    fn word(&self, cut: Cut) -> Word {
        let name = self.name.clone();
        match self.fate {
            Fate::Released { is_all } => Word::Released { name, cut, is_all },
            Fate::Discarded => Word::Discarded { name, cut },
        }
    }
}

impl Leaving {
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            search: Search::Over,
            basis: Arc::default(),
            done_with: Vec::new(),
            given: BTreeSet::new(),
            search_at: None,
            found: BTreeMap::new(),
            going: BTreeMap::new(),
            closing: BTreeMap::new(),
            words: Vec::new(),
            tally: Tally::default(),
        }
    }

    pub(super) fn follow(&mut self, site: &mut Site<'_, impl Outbox>, view: &View, settled: &Arc<Members>) {
        if matches!(self.search, Search::Over) && self.basis.epoch() < settled.epoch() {
            self.basis = Arc::clone(settled);
            self.done_with.clear();
            self.given.clear();
        }
        // A start that is over heard enough; one that is taken for dead may come back.
        self.closing.retain(|_, closing| view.members.of_incarnation(closing.to.incarnation).is_some());
        self.found.clear();
        (self.search, self.search_at) = (Search::Due, None);
        for (name, going) in std::mem::take(&mut self.going) {
            let owner = view.owner_of(&name);
            if owner == Owner::There(going.to) {
                self.going.insert(name, going);
                continue;
            }
            self.close(name.clone(), going.to, going.cut, Fate::Discarded);
            // A cut that was discarded is never sent again: it might come back to where it was discarded.
            if matches!(owner, Owner::There(_)) {
                site.shard.void_cut(&name);
            } else {
                site.shard.restore(site.now, &name, site.out);
            }
        }
    }

    /// Something of others may have come in since the search was over.
    pub(super) fn search_again(&mut self) {
        (self.search, self.search_at) = (Search::Due, None);
    }

    /// Tells a receiver, until it confirms, what becomes of what came.
    fn close(&mut self, name: PartitionName, to: Target, cut: Cut, fate: Fate) {
        let closing = Closing { to, name, fate };
        self.words.push((to, closing.word(cut)));
        self.closing.insert((cut, to.node), closing);
    }

    /// Remembers a partition that is here, if another node serves it.
    pub(super) fn note_stray(&mut self, view: &View, name: PartitionName) -> bool {
        let Owner::There(target) = view.owner_of(&name) else { return false };
        if !self.going.contains_key(&name) {
            self.found.entry(target.node).or_default().push_back(name);
        }
        true
    }

    pub(super) fn linked(&mut self, site: &mut Site<'_, impl Outbox>, node: NodeId, incarnation: u64) {
        let is_there = |to: Target| (to.node, to.incarnation) == (node, incarnation);
        for going in self.going.values_mut().filter(|going| is_there(going.to)) {
            going.again_at = Some(site.now);
        }
        let words =
            self.closing.iter().filter(|(_, closing)| is_there(closing.to)).map(|((cut, _), closing)| (closing.to, closing.word(*cut)));
        self.words.extend(words);
    }

    /// Nothing of others is here, and everybody who is there knows what became of what was given.
    pub(super) fn is_clear(&self, view: &View) -> bool {
        let is_over = |closing: &Closing| !view.is_there(closing.to.incarnation);
        matches!(self.search, Search::Over)
            && self.going.is_empty()
            && self.closing.values().all(is_over)
            && self.found.values().all(VecDeque::is_empty)
    }

    /// When to step again.
    pub(super) fn next_at(&self) -> Option<Time> {
        let search = match self.search {
            Search::Due => Some(self.search_at.unwrap_or(Time(0))),
            Search::Runs { .. } if self.has_room_for_found() => Some(Time(0)),
            Search::Runs { .. } | Search::Over => None,
        };
        self.going.values().filter_map(|going| going.again_at).chain(search).min()
    }

    fn has_room_for_found(&self) -> bool {
        self.found.values().all(|found| found.len() < FOUND_MAX)
    }

    pub(super) fn step(&mut self, site: &mut Site<'_, impl Outbox>, view: &View) {
        self.search_on(site, view);
        self.begin(site, view);
        let due: Vec<_> =
            self.going.iter().filter(|(_, going)| going.again_at.is_some_and(|at| at <= site.now)).map(|(name, _)| name.clone()).collect();
        due.iter().for_each(|name| self.send(site, name));
    }

    /// Looks at one page of what is here.
    fn search_on(&mut self, site: &mut Site<'_, impl Outbox>, view: &View) {
        if matches!(self.search, Search::Due) && self.search_at.is_none_or(|at| at <= site.now) {
            self.search = Search::Runs { from: None, was_calm: !site.shard.has_deferred() };
        }
        if !self.has_room_for_found() {
            return;
        }
        let Search::Runs { from, was_calm } = &mut self.search else { return };
        let page = site.shard.inventory(*from, PAGE);
        let was_calm = *was_calm;
        *from = page.next;
        for row in page.rows {
            if !row.is_bare || self.speaks_for(view, &row.name) {
                self.note_stray(view, row.name);
            }
        }
        if page.next.is_none() {
            self.search = if was_calm { Search::Over } else { Search::Due };
            self.search_at = Some(site.now + PAUSE);
        }
    }

    /// Whether this node owned a partition when last nothing was on its way, and has told nobody since that it holds nothing of it.
    fn is_owned(&self, view: &View, name: &PartitionName) -> bool {
        let is_owned = |members: &Arc<Members>| view.owns_by(members, name.tenant, &name.queue);
        self.done_with.len() < TABLES_MAX && is_owned(&self.basis) && self.done_with.iter().all(is_owned)
    }

    /// The others are told that nothing of theirs is here.
    pub(super) fn note_done(&mut self, view: &View) {
        if self.done_with.len() < TABLES_MAX {
            self.done_with.push(Arc::clone(&view.members));
        }
    }

    /// Whether what is known here of a queue without partitions is what there is to know.
    fn speaks_for(&self, view: &View, name: &PartitionName) -> bool {
        let first = PartitionName { partition: "".into(), ..name.clone() };
        let is_same = |of: &PartitionName| (of.tenant, &of.queue) == (name.tenant, &name.queue);
        self.is_owned(view, name) && !self.given.range(first..).next().is_some_and(is_same)
    }

    /// Begins with what was found, as far as the windows have room.
    fn begin(&mut self, site: &mut Site<'_, impl Outbox>, view: &View) {
        for (node, mut found) in std::mem::take(&mut self.found) {
            while self.has_room(node)
                && let Some(name) = found.pop_front()
            {
                if let Owner::There(target) = view.owner_of(&name)
                    && !self.going.contains_key(&name)
                {
                    let is_owned = self.is_owned(view, &name);
                    self.pack(site, &name, target, is_owned);
                }
            }
            if !found.is_empty() {
                self.found.insert(node, found);
            }
        }
    }

    fn has_room(&self, node: NodeId) -> bool {
        let (count, bytes) = self
            .going
            .values()
            .filter(|going| going.to.node == node)
            .fold((0, 0), |(count, bytes), going| (count + 1, bytes + going.chunk_bytes()));
        count < WINDOW_COUNT && bytes < WINDOW_BYTES
    }

    fn pack(&mut self, site: &mut Site<'_, impl Outbox>, name: &PartitionName, to: Target, is_owned: bool) {
        let parcel = site.shard.pack(site.now, self.incarnation, CHUNK_BYTES_MAX, name, site.out);
        let Some(Parcel { cut, chunk_count, payload_bytes, .. }) = parcel else { return };
        let going = Going { to, cut, chunk_count, payload_bytes, is_owned, next: 0, again_at: None };
        self.going.insert(name.clone(), going);
        self.send(site, name);
    }

    /// Sends the chunk that is wanted next.
    fn send(&mut self, site: &mut Site<'_, impl Outbox>, name: &PartitionName) {
        let Some(going) = self.going.get_mut(name) else { return };
        going.again_at = None;
        let Going { to, cut, next, is_owned, .. } = *going;
        match site.shard.chunk(site.now, name, cut, next, site.spell) {
            Some(chunk) => self.words.push((to, Word::Chunk(Box::new(chunk)))),
            // It has changed since: the receiver drops the earlier cut when the new one comes.
            None => {
                self.going.remove(name);
                self.pack(site, name, to, is_owned);
            }
        }
    }

    pub(super) fn answered(&mut self, site: &mut Site<'_, impl Outbox>, node: NodeId, reply: Reply) {
        match reply {
            Reply::Closed { cut } => _ = self.closing.remove(&(cut, node)),
            Reply::Kept { name, cut, progress } => self.go_on(site, node, &name, cut, progress),
        }
    }

    fn go_on(&mut self, site: &mut Site<'_, impl Outbox>, node: NodeId, name: &PartitionName, cut: Cut, progress: Progress) {
        let Some(going) = self.going.get_mut(name).filter(|going| (going.to.node, going.cut) == (node, cut)) else { return };
        match progress {
            // It is on its way: this answers what was said twice.
            Progress::Next(place) if place == going.next => {}
            Progress::Next(place) => {
                going.next = place;
                self.send(site, name);
            }
            Progress::NotNow => going.again_at = Some(site.now + PAUSE),
            Progress::Whole | Progress::InUse => self.release(site, name),
        }
    }

    /// The receiver has it all.
    fn release(&mut self, site: &mut Site<'_, impl Outbox>, name: &PartitionName) {
        let Some(Going { to, cut, is_owned, .. }) = self.going.remove(name) else { return };
        match site.shard.release(site.now, name, cut) {
            Some(messages) => {
                let is_all = self.given.insert(name.clone()) && is_owned;
                self.tally.rings += 1;
                self.tally.messages += messages;
                self.close(name.clone(), to, cut, Fate::Released { is_all });
            }
            None => self.pack(site, name, to, is_owned),
        }
    }
}
