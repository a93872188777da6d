//! One node: cores with their shards and hand-overs, and the mesh between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mayfly::control::handover::{Handover, Reply, Site, Target, Word};
use mayfly::control::{Members, NodeId};
use mayfly_shards::{
    Adopted, Allowance, Answer, Delivery, Letter, Moved, NodeBudget, Options, Outbox, OwnedCommand, PartitionName, Policy, Receipt, Shard,
    ShardConfig, ShardIndex, Span, Ticket, Time, WindowBuffer,
};
use smallvec::SmallVec;

/// Of every queue.
pub(crate) const LEASE: Span = Span::from_secs(2);

/// Between two cores, or from the control core.
pub(crate) enum Frame {
    Letter(Letter),
    /// From the control core.
    Members(Arc<Members>),
    Follows(Arc<Members>),
    Request {
        ticket: Ticket,
        command: OwnedCommand,
        since: Option<Time>,
    },
    Done {
        node: NodeId,
        incarnation: u64,
        core: u16,
        epoch: u64,
    },
    /// Over a link from a core of another node.
    Handover {
        from: (u64, u16),
        word: Word,
    },
}

/// What clients and links are to hear.
pub(crate) enum Said {
    Answer(Ticket, Answer),
    Messages(Ticket, Vec<String>),
    /// To a core of another node.
    Reply {
        to: (u64, u16),
        reply: Reply,
    },
    Word {
        core: u16,
        to: Target,
        word: Word,
    },
    Done {
        core: u16,
        to: NodeId,
        epoch: u64,
    },
    Late(PartitionName),
}

#[derive(Default)]
struct Effects {
    said: Vec<Said>,
    letters: Vec<(ShardIndex, Letter)>,
    open: Option<(Ticket, Vec<String>)>,
}

impl Outbox for Effects {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.said.push(Said::Answer(ticket, answer));
    }

    fn reply(&mut self, _: Ticket, _: &[u8]) {
        unreachable!("nobody calls")
    }

    fn begin_delivery(&mut self, ticket: Ticket, _: &str) {
        self.open = Some((ticket, Vec::new()));
    }

    fn message(&mut self, delivery: Delivery<'_>) {
        let payload = String::from_utf8_lossy(delivery.payload).into_owned();
        self.open.as_mut().expect("a delivery was begun").1.push(payload);
    }

    fn end_delivery(&mut self, _: SmallVec<[Receipt; 1]>) {
        let (ticket, messages) = self.open.take().expect("a delivery was begun");
        self.said.push(Said::Messages(ticket, messages));
    }

    fn send(&mut self, to: ShardIndex, letter: Letter) {
        self.letters.push((to, letter));
    }

    fn adopted(&mut self, name: &PartitionName, adopted: Adopted) {
        if adopted.is_late || !adopted.is_whole {
            self.said.push(Said::Late(name.clone()));
        }
    }
}

pub(crate) struct Core {
    pub(crate) shard: Shard,
    pub(crate) handover: Handover,
    pub(crate) members: Arc<Members>,
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) incarnation: u64,
    pub(crate) cores: Vec<Core>,
    /// By sender and receiver; the control core sends behind the others.
    pub(crate) lanes: BTreeMap<(u16, u16), VecDeque<Frame>>,
    pub(crate) said: Vec<Said>,
    pub(crate) is_frozen: bool,
    pub(crate) leaves: bool,
    /// No two clocks say the same.
    offset: u64,
}

impl Node {
    pub(crate) fn new(id: NodeId, incarnation: u64, core_count: u16) -> Self {
        let budget = Arc::new(NodeBudget::new(1 << 40, Allowance::UNBOUNDED));
        let window = WindowBuffer { ms: 0, count: 0 };
        let options = Options {
            max_bytes: 1 << 30,
            max_length: 10_000,
            policy: Policy::Reject,
            ttl_seconds: 0,
            lease_seconds: (LEASE.0 / 1_000_000_000) as u32,
            retry_limit: 1_000,
            window,
        };
        let core = |index| Core {
            shard: Shard::new(ShardConfig {
                index: ShardIndex(index),
                shard_count: core_count,
                default_options: options,
                implicit_idle: Span::from_secs(300),
                abandoned: Span(0),
                group_idle: Span(0),
                budget: Arc::clone(&budget),
                hash_seed: incarnation,
            }),
            handover: Handover::new(id, incarnation, ShardIndex(index), core_count),
            members: Arc::default(),
        };
        let cores = (0..core_count).map(core).collect();
        let offset = incarnation * 1_000_000_000_000;
        Self { id, incarnation, cores, lanes: BTreeMap::new(), said: Vec::new(), is_frozen: false, leaves: false, offset }
    }

    pub(crate) fn core_count(&self) -> u16 {
        self.cores.len() as u16
    }

    pub(crate) fn send(&mut self, from: u16, to: u16, frame: Frame) {
        self.lanes.entry((from, to)).or_default().push_back(frame);
    }

    /// The control core tells every core of a table.
    pub(crate) fn tell(&mut self, members: &Arc<Members>) {
        for core in 0..self.core_count() {
            self.send(self.core_count(), core, Frame::Members(Arc::clone(members)));
        }
    }

    fn on<T>(&mut self, core: u16, now: u64, f: impl FnOnce(&mut Handover, &mut Site<'_, Effects>) -> T) -> T {
        let mut effects = Effects::default();
        let Core { shard, handover, .. } = &mut self.cores[usize::from(core)];
        let site = &mut Site { now: Time(self.offset + now), shard, out: &mut effects, spell: &|number| number };
        let done = f(handover, site);
        shard.check_invariants();
        self.said.append(&mut effects.said);
        for (to, letter) in effects.letters {
            self.send(core, to.0, Frame::Letter(letter));
        }
        done
    }

    /// Takes the first frame of the lane that `pick` points at, if there is any.
    pub(crate) fn carry_one(&mut self, pick: u64, now: u64) -> bool {
        let lanes: Vec<_> = self.lanes.iter().filter(|(_, lane)| !lane.is_empty()).map(|(lane, _)| *lane).collect();
        let Some(&(from, to)) = lanes.get(pick as usize % lanes.len().max(1)) else { return false };
        let frame = self.lanes.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("a frame");
        self.read(from, to, frame, now);
        true
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.lanes.values().all(VecDeque::is_empty)
    }

    fn read(&mut self, from: u16, core: u16, frame: Frame, now: u64) {
        if std::env::var_os("MAYFLY_SIM_TRACE").is_some() {
            let said = match &frame {
                Frame::Letter(letter) => format!("{letter:?}"),
                Frame::Members(members) => format!("members of epoch {}", members.epoch()),
                Frame::Follows(members) => format!("it follows epoch {}", members.epoch()),
                Frame::Request { ticket, command, .. } => format!("{ticket:?} {:?}", command.queue),
                Frame::Done { node, core, epoch, .. } => format!("core {core} of {node:?} is done with epoch {epoch}"),
                Frame::Handover { word, .. } => format!("{word:?}"),
            };
            eprintln!("node {} core {from} to core {core}: {said}", self.id.0);
        }
        match frame {
            Frame::Letter(letter) => self.on(core, now, |_, site| site.shard.receive(site.now, ShardIndex(from), letter, site.out)),
            Frame::Members(members) => self.follow(core, &members, now),
            Frame::Follows(members) => {
                self.follow(core, &members, now);
                self.cores[usize::from(core)].handover.core_follows(ShardIndex(from), members.epoch());
            }
            Frame::Request { ticket, command, since } => self.ask(core, ticket, command, since, now),
            Frame::Done { node, incarnation, core: of, epoch } => {
                self.on(core, now, |handover, site| handover.mark(site, node, incarnation, of, epoch));
            }
            Frame::Handover { from, word } => {
                let reply = self.on(core, now, |handover, site| handover.hear(site, word));
                self.said.push(Said::Reply { to: from, reply });
            }
        }
    }

    fn follow(&mut self, core: u16, members: &Arc<Members>, now: u64) {
        if members.epoch() <= self.cores[usize::from(core)].members.epoch() {
            return;
        }
        self.cores[usize::from(core)].members = Arc::clone(members);
        for other in (0..self.core_count()).filter(|other| *other != core) {
            self.send(core, other, Frame::Follows(Arc::clone(members)));
        }
        self.on(core, now, |handover, site| handover.follow(site, members));
    }

    /// A core has a command for a shard: for its own at once, for another's over the mesh.
    pub(crate) fn give(&mut self, from: u16, shard: u16, ticket: Ticket, command: OwnedCommand, since: Option<Time>, now: u64) {
        if from == shard {
            self.ask(shard, ticket, command, since, now);
        } else {
            self.send(from, shard, Frame::Request { ticket, command, since });
        }
    }

    /// A command for this core's shard.
    fn ask(&mut self, core: u16, ticket: Ticket, command: OwnedCommand, since: Option<Time>, now: u64) {
        self.on(core, now, |handover, site| {
            command.lend(|command| {
                if handover.is_settling() && !handover.expect(site.now, &command, site.shard) {
                    let moved = Moved { command: command.into_owned(), since };
                    return site.out.answer(ticket, Answer::Moved(Box::new(moved)));
                }
                match since {
                    None => site.shard.step(site.now, ticket, command, site.out),
                    Some(since) => site.shard.step_since(site.now, ticket, command, since, site.out),
                }
            });
        });
    }

    pub(crate) fn step(&mut self, core: u16, now: u64) {
        let (words, done) = self.on(core, now, |handover, site| {
            handover.step(site);
            (handover.take_words(), handover.take_done())
        });
        self.said.extend(words.into_iter().map(|(to, word)| Said::Word { core, to, word }));
        if std::env::var_os("MAYFLY_SIM_TRACE").is_some() {
            let core_state = &self.cores[usize::from(core)];
            eprintln!(
                "node {} core {core} steps: says done {done:?}, is done {}, next {:?}, {:?} holds {:?}",
                self.id.0,
                core_state.handover.is_done(),
                core_state.handover.next_at(),
                core_state.shard.arrivals(),
                core_state
                    .shard
                    .inventory(None, 99)
                    .rows
                    .iter()
                    .map(|row| (row.name.queue.clone(), row.name.partition.clone(), row.message_count, row.is_packed))
                    .collect::<Vec<_>>()
            );
        }
        if let Some(epoch) = done {
            let others: Vec<NodeId> = self.cores[usize::from(core)].handover.others().collect();
            self.said.extend(others.into_iter().map(|to| Said::Done { core, to, epoch }));
        }
    }

    pub(crate) fn linked(&mut self, core: u16, node: NodeId, incarnation: u64, now: u64) {
        self.on(core, now, |handover, site| handover.linked(site, node, incarnation));
    }

    pub(crate) fn answered(&mut self, core: u16, node: NodeId, reply: Reply, now: u64) {
        self.on(core, now, |handover, site| handover.answered(site, node, reply));
    }

    pub(crate) fn expire(&mut self, now: u64) {
        for core in 0..self.core_count() {
            self.on(core, now, |_, site| site.shard.expire(site.now, site.out));
        }
    }

    /// Partitions of which something is here: held, packed, or copies.
    pub(crate) fn keeps(&self) -> Vec<PartitionName> {
        let mut names = Vec::new();
        for core in &self.cores {
            names.extend(core.shard.inventory(None, usize::MAX).rows.into_iter().filter(|row| row.message_count > 0).map(|row| row.name));
            names.extend(core.shard.arrivals().into_iter().filter(|row| !row.cuts.is_empty() || row.holds_back).map(|row| row.name));
        }
        names
    }

    pub(crate) fn has_left(&self) -> bool {
        self.is_quiet() && self.cores.iter().all(|core| core.handover.has_left())
    }
}
