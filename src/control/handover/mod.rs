//! Hand-over between nodes, as one core sees it: which partitions leave its shard, which are on their way to it, and when none are.
//!
//! A newer table of members gives queues to other nodes. Each core packs what it holds of those, sends it in chunks to the shard that
//! serves it from now on, releases it when the whole has come, and says to everybody that it is done with that epoch when nothing is
//! left. A core that is given queues holds their requests back until their partitions came, or until everybody has said so.
//!
//! Invariants: a partition is released by its source before it is opened, or its source is gone; what a core has begun to give is ended
//! at the receiver by one word, released or discarded, which is repeated until it is confirmed; a core says that it is done only when it
//! holds nothing of others, not even copies whose source has not said what became of them; nothing is packed before every core of the
//! node goes by the new table, so that nothing comes in for what was packed.
//!
//! Pure: words go in and out, time is an argument. Who carries them is the runtime's.

mod coming;
mod leaving;
mod word;

use std::sync::Arc;

use mayfly_shards::{Command, Outbox, PartitionName, Shard, ShardIndex, Span, Tenant, Time, shard_of};

pub use word::{Reply, Word};

use self::coming::Coming;
use self::leaving::Leaving;
use super::members::{Member, Members, NodeId, Standing};

/// How long requests wait for a partition that is on its way; then they are refused, to be tried again.
const EXPECT_SPAN: Span = Span::from_secs(5);

/// Tables that are remembered since one of which nothing is on its way any more; beyond, nothing is taken as known.
const TABLES_MAX: usize = 16;
/// How often copies of others that are being opened are looked at.
const LOOK_SPAN: Span = Span::from_millis(5);

/// A shard of another node's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Which node.
    pub node: NodeId,
    /// Its start.
    pub incarnation: u64,
    /// Which of its shards.
    pub shard: ShardIndex,
}

/// A core's shard at work.
pub struct Site<'a, O: Outbox> {
    /// Monotonic.
    pub now: Time,
    /// The core's.
    pub shard: &'a mut Shard,
    /// Where its effects go.
    pub out: &'a mut O,
    /// How an inbox's number is spelled for clients.
    pub spell: &'a dyn Fn(u64) -> u64,
}

/// What was given to other nodes by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Partitions.
    pub rings: u64,
    /// Messages in them.
    pub messages: u64,
}

/// By whom a queue is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Here,
    There(Target),
    Nobody,
}

/// Whose things are, by one table.
struct View {
    me: NodeId,
    incarnation: u64,
    members: Arc<Members>,
}

impl View {
    fn epoch(&self) -> u64 {
        self.members.epoch()
    }

    fn owner_of(&self, name: &PartitionName) -> Owner {
        let member = self.members.owner(name.tenant, &name.queue).and_then(|id| self.members.find(id));
        match member {
            None => Owner::Nobody,
            Some(member) if self.is_me(member) => Owner::Here,
            // An earlier start of this node: what it owned is nobody's.
            Some(member) if member.id == self.me => Owner::Nobody,
            Some(member) => {
                let shard = shard_of(name.tenant, &name.queue, &name.partition, member.shard_count);
                Owner::There(Target { node: member.id, incarnation: member.incarnation, shard })
            }
        }
    }

    /// Whether this start of the node owns a queue by some table.
    fn owns_by(&self, members: &Members, tenant: Tenant, queue: &str) -> bool {
        let owner = members.owner(tenant, queue).and_then(|id| members.find(id));
        owner.is_some_and(|member| self.is_me(member))
    }

    fn is_me(&self, member: &Member) -> bool {
        (member.id, member.incarnation) == (self.me, self.incarnation)
    }

    /// Whether this start of the node owns queues.
    fn is_live(&self) -> bool {
        self.members.live().any(|member| self.is_me(member))
    }

    /// Whether a start of a node may still hold something.
    fn is_there(&self, incarnation: u64) -> bool {
        self.members.of_incarnation(incarnation).is_some_and(|member| member.standing != Standing::Down)
    }
}

/// See the module.
pub struct Handover {
    view: View,
    core: ShardIndex,
    coming: Coming,
    leaving: Leaving,
    /// The table by which each core of this node goes.
    followed: Vec<u64>,
    /// The last epoch that this core is done with.
    done: u64,
    is_done_due: bool,
    /// Not every core goes by the newest table.
    is_split: bool,
    /// When copies that are being opened are looked at again.
    look_at: Option<Time>,
}

impl Handover {
    /// Of one core of `core_count`.
    #[must_use]
    pub fn new(me: NodeId, incarnation: u64, core: ShardIndex, core_count: u16) -> Self {
        Self {
            view: View { me, incarnation, members: Arc::default() },
            core,
            coming: Coming::default(),
            leaving: Leaving::new(incarnation),
            followed: vec![0; usize::from(core_count)],
            done: 0,
            is_done_due: false,
            is_split: false,
            look_at: None,
        }
    }

    /// The table of members is this one now, which is newer.
    pub fn follow(&mut self, site: &mut Site<'_, impl Outbox>, members: &Arc<Members>) {
        self.view.members = Arc::clone(members);
        self.core_follows(self.core, members.epoch());
        self.leaving.follow(site, &self.view, self.coming.settled());
        self.coming.follow(site, &self.view);
    }

    /// A core of this node goes by the table of this epoch.
    pub fn core_follows(&mut self, core: ShardIndex, epoch: u64) {
        if let Some(followed) = self.followed.get_mut(usize::from(core.0)) {
            *followed = epoch.max(*followed);
        }
        self.is_split = self.followed.iter().any(|followed| *followed < self.view.epoch());
    }

    /// A core of another node's start holds nothing that the table of this epoch gives to others.
    pub fn mark(&mut self, site: &mut Site<'_, impl Outbox>, node: NodeId, incarnation: u64, core: u16, epoch: u64) {
        self.coming.mark(node, incarnation, core, epoch);
        self.coming.settle(site, &self.view);
    }

    /// Whether requests may have to wait for partitions that are on their way, or come from a core that is behind: [`Self::expect`] says.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.coming.is_settling() || self.is_split
    }

    /// The cores of other nodes that have not said yet that nothing of theirs is on its way here.
    pub fn awaited(&self) -> impl Iterator<Item = (NodeId, u16)> {
        self.coming.awaited(&self.view).filter(|_| self.coming.is_settling())
    }

    /// A command is about to be given to the shard: if its partition may be on its way here, it is to wait there. False: it is not to be
    /// given, since a core that is behind gives what is another's by now, of which nothing is here.
    #[must_use]
    pub fn expect(&self, now: Time, command: &Command<'_>, shard: &mut Shard) -> bool {
        let Some((tenant, queue, partition)) = place_of(command) else { return true };
        if shard.holds(tenant, queue, partition) || self.coming.owned_throughout(&self.view, tenant, queue) {
            return true;
        }
        let name = PartitionName { tenant, queue: queue.into(), partition: partition.into() };
        if self.view.owner_of(&name) != Owner::Here {
            return false;
        }
        if !shard.is_expecting(&name) {
            shard.expect(&name, now + EXPECT_SPAN);
        }
        true
    }

    /// Something of a partition is here, which another node may serve; whether one does.
    pub fn note_stray(&mut self, name: PartitionName) -> bool {
        self.leaving.note_stray(&self.view, name)
    }

    /// A link to a start of a node is open: what it may not have heard is said again.
    pub fn linked(&mut self, site: &mut Site<'_, impl Outbox>, node: NodeId, incarnation: u64) {
        self.leaving.linked(site, node, incarnation);
        self.is_done_due |= self.done > 0;
    }

    /// A source says something; the answer.
    pub fn hear(&mut self, site: &mut Site<'_, impl Outbox>, word: Word) -> Reply {
        self.coming.hear(site, &self.view, word)
    }

    /// A receiver answers.
    pub fn answered(&mut self, site: &mut Site<'_, impl Outbox>, node: NodeId, reply: Reply) {
        self.leaving.answered(site, node, reply);
    }

    /// Does what can be done now.
    pub fn step(&mut self, site: &mut Site<'_, impl Outbox>) {
        if self.is_split {
            return;
        }
        let epoch = self.view.epoch();
        self.leaving.step(site, &self.view);
        if self.done < epoch && self.leaving.is_clear(&self.view) {
            self.look_at = None;
            if Coming::keeps_of_others(site.shard, &self.view) {
                self.look_at = Some(site.now + LOOK_SPAN);
            } else if self.coming.take_opened_of_others() {
                self.leaving.search_again();
            } else {
                (self.done, self.is_done_due) = (epoch, true);
                self.leaving.note_done(&self.view);
            }
        }
    }

    /// When to step again, if nothing is heard before.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.leaving.next_at().into_iter().chain(self.look_at).min().filter(|_| !self.is_split)
    }

    /// Words to be carried. One that cannot be is lost: [`Self::linked`] says it again.
    pub fn take_words(&mut self) -> Vec<(Target, Word)> {
        std::mem::take(&mut self.leaving.words)
    }

    /// The epoch that this core is done with, when others are to be told.
    pub fn take_done(&mut self) -> Option<u64> {
        std::mem::take(&mut self.is_done_due).then_some(self.done)
    }

    /// Who is to be told: the other nodes.
    pub fn others(&self) -> impl Iterator<Item = NodeId> {
        let is_there = |member: &&Member| member.id != self.view.me && member.standing != Standing::Down;
        self.view.members.rows().iter().filter(is_there).map(|member| member.id)
    }

    /// Whether this core holds nothing that the newest table gives to others.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done == self.view.epoch() && self.leaving.is_clear(&self.view)
    }

    /// Whether this start of the node owns queues.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.view.is_live()
    }

    /// Whether this core holds nothing that the newest table gives to others, and owns nothing.
    #[must_use]
    pub fn has_left(&self) -> bool {
        !self.view.is_live() && self.is_done()
    }

    /// What was given to other nodes by now.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.leaving.tally
    }
}

/// The partition of a command that has to wait while it is on its way.
fn place_of<'a>(command: &Command<'a>) -> Option<(Tenant, &'a str, &'a str)> {
    match *command {
        Command::Push { tenant, queue, partition, .. }
        | Command::Call { tenant, queue, partition, .. }
        | Command::Pop { tenant, queue, partition: Some(partition), .. } => Some((tenant, queue, partition)),
        _ => None,
    }
}
