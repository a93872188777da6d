//! Some nodes, their clients, and what happens to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mayfly::control::consensus::ProposalId;
use mayfly::control::{
    Agreed, Change, Consensus, ControlGauges, DataFolder, Declaration, ElectorChange, Heartbeat, NodeId, Origin, Phase, Roll, Standing,
    State, Unavailable, Word, word,
};
use mayfly_shards::{QueueName, Tenant};

use crate::network::Network;
use crate::oracle::Oracle;
use crate::random::Random;

/// Milliseconds of one step.
const STEP: u64 = 20;
/// How long things happen to the nodes, and how long they have after that.
const TROUBLE: u64 = 9_000;
const REST: u64 = 9_000;
/// What a client waits for.
const PATIENCE: u64 = 2_000;
const QUEUES: u64 = 5;
/// The member-ttl, and how often a node says that it is there.
const TTL: Duration = Duration::from_millis(2_000);
const BEAT_EVERY: u64 = 240;

/// A start that does not come.
const NEVER: u64 = u64::MAX;

/// A kind of schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Nodes that begin together.
    pub(crate) voters: u64,
    /// Nodes that are taken in later; with those, one that began leaves in the end.
    pub(crate) joiners: u64,
}

/// A node that runs.
struct Running {
    consensus: Consensus,
    state: State,
    waiting: BTreeMap<ProposalId, (u64, u64)>,
    roll: Roll,
    incarnation: u64,
    beat_at: u64,
}

struct Node {
    id: NodeId,
    folder: PathBuf,
    running: Option<Running>,
    /// Its place in the oracle's order.
    place: usize,
    starts_at: u64,
    /// It is stopped until then.
    wakes_at: u64,
    mail: Vec<(NodeId, Vec<u8>)>,
}

impl Running {
    /// What a node says of itself, and what a leader proposes of the others.
    fn keep_roll(&mut self, id: NodeId, now: u64, at: Instant, count: u64) -> Vec<(NodeId, Vec<u8>)> {
        let mut out = Vec::new();
        if now >= self.beat_at {
            self.beat_at = now + BEAT_EVERY;
            let (epoch, applied) = (self.state.members().epoch(), self.consensus.applied());
            let peer = format!("host{}:1", id.0).into();
            let beat = Heartbeat { node: id.0, incarnation: self.incarnation, shard_count: 1, peer, phase: Phase::Serves, epoch, applied };
            self.roll.heard(at, beat.clone());
            let text = Word::Heartbeat(beat).encode(None);
            out.extend((1..=count).map(NodeId).filter(|other| *other != id).map(|other| (other, text.clone())));
        }
        self.roll.lead(at, self.consensus.leads());
        for change in self.roll.due(at, self.state.members(), self.consensus.electors()) {
            // One that cannot be proposed now is due again.
            let _: Result<_, Unavailable> = self.consensus.propose(&change);
        }
        out
    }
}

/// See the module.
pub(crate) struct World {
    plan: Plan,
    random: Random,
    network: Network,
    oracle: Oracle,
    nodes: Vec<Node>,
    base: Instant,
    now: u64,
    numbers: u64,
    folder: PathBuf,
    /// Who is to leave in the end.
    leaver: Option<NodeId>,
    is_calm: bool,
}

impl World {
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let shared = Path::new("/dev/shm");
        let root = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let folder = root.join(format!("mayfly-consensus-{}-{count}", std::process::id()));
        let node = |id| Node {
            id: NodeId(id),
            folder: folder.join(id.to_string()),
            running: None,
            place: 0,
            starts_at: 0,
            wakes_at: 0,
            mail: Vec::new(),
        };
        Self {
            plan,
            random: Random::stream(seed, 12 + plan.voters + 10 * plan.joiners),
            network: Network::new(seed),
            oracle: Oracle::new(),
            nodes: (1..=plan.voters + plan.joiners).map(node).collect(),
            base: Instant::now(),
            now: 0,
            numbers: 0,
            folder: folder.clone(),
            leaver: (plan.voters > 1 && plan.joiners > 0).then_some(NodeId(2)),
            is_calm: false,
        }
    }

    /// Runs the schedule; the order of what held.
    pub(crate) fn run(mut self) -> Vec<String> {
        while self.now < TROUBLE {
            self.step();
        }
        self.is_calm = true;
        self.network.heal();
        for node in &mut self.nodes {
            if node.starts_at < NEVER {
                node.starts_at = self.now;
            }
            node.wakes_at = self.now;
        }
        let end = self.now + REST;
        while self.now < end {
            self.step();
        }
        self.check();
        self.oracle.order()
    }

    fn check(&mut self) {
        let is_in = |node: &&Node| node.running.as_ref().is_some_and(|running| running.consensus.electors().has(node.id));
        let leader = self.nodes.iter().filter_map(|node| node.running.as_ref()).find(|running| running.consensus.is_leader());
        let leader = leader.expect("somebody leads");
        let electors = leader.consensus.electors().clone();
        let wanted: Vec<NodeId> = self.nodes.iter().map(|node| node.id).filter(|id| Some(*id) != self.leaver).collect();
        assert_eq!(electors.voters().collect::<Vec<_>>(), wanted, "who votes in the end: {electors:?}");
        assert!(!electors.is_joint());
        for node in self.nodes.iter().filter(|node| wanted.contains(&node.id)) {
            assert!(is_in(&node), "{:?} does not know that it is in", node.id);
            let running = node.running.as_ref().expect("it runs");
            assert_eq!(running.state, leader.state, "{:?}", node.id);
            assert_eq!(running.consensus.electors(), &electors);
        }
        let live: Vec<NodeId> = leader.state.members().live().map(|member| member.id).collect();
        assert_eq!(live, wanted, "{:?}", leader.state.members());
        assert_eq!(leader.state.members().rows().len(), wanted.len());
        self.oracle.check(&leader.state);
        assert!(self.oracle.acknowledged_count() > 10, "{} changes were acknowledged", self.oracle.acknowledged_count());
        if self.plan.joiners > 0 {
            assert!(self.oracle.snapshot_count >= self.plan.joiners, "a joiner begins with a snapshot");
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        if !self.is_calm {
            self.make_trouble();
        }
        for mail in self.network.arrived(self.now) {
            if let Some(node) = self.nodes.iter_mut().find(|node| node.id == mail.to && node.running.is_some()) {
                node.mail.push((mail.from, mail.text));
            }
        }
        self.ask();
        self.change_electors();
        for index in 0..self.nodes.len() {
            self.turn(index);
        }
    }

    fn make_trouble(&mut self) {
        let index = self.random.below(self.nodes.len() as u64) as usize;
        let span = self.random.pick(&[100, 400, 1_500, 3_000]);
        match self.random.below(400) {
            0 | 1 => self.nodes[index].wakes_at = self.now + span,
            2 | 3 => self.crash(index, span),
            4 | 5 => {
                let other = self.random.below(self.nodes.len() as u64) as usize;
                self.network.cut(self.nodes[index].id, self.nodes[other].id);
            }
            6 => {
                for other in 0..self.nodes.len() {
                    self.network.cut(self.nodes[index].id, self.nodes[other].id);
                    self.network.cut(self.nodes[other].id, self.nodes[index].id);
                }
            }
            7..=12 => self.network.mend(),
            _ => {}
        }
    }

    fn crash(&mut self, index: usize, span: u64) {
        let node = &mut self.nodes[index];
        node.running = None;
        node.mail.clear();
        node.starts_at = node.starts_at.max(self.now + span);
        self.network.forget(node.id);
    }

    /// A client asks some node.
    fn ask(&mut self) {
        let in_a_while = if self.is_calm { 20 } else { 40 };
        if !self.random.chance(in_a_while) {
            return;
        }
        // The end is quiet: everything that is asked for is told everywhere.
        if self.is_calm && self.now > TROUBLE + REST - 2_500 {
            return;
        }
        let index = self.random.below(self.nodes.len() as u64) as usize;
        let queue = self.random.below(QUEUES);
        let is_awake = self.nodes[index].wakes_at <= self.now;
        let Some(running) = self.nodes[index].running.as_mut().filter(|_| is_awake) else { return };
        self.numbers += 1;
        let declaration = Declaration { options_text: b"{}".as_slice().into(), updated_at_ms: self.numbers, version: None };
        let name = QueueName { tenant: Tenant::DEFAULT, name: format!("q{queue}").into() };
        self.oracle.asked(self.numbers, queue, self.now);
        if let Ok(id) = running.consensus.propose(&Change::Declare { queue: name, declaration }) {
            running.waiting.insert(id, (self.numbers, self.now + PATIENCE));
        }
    }

    /// Whoever leads takes joiners in, one step at a time, and lets the leaver go when they are in.
    fn change_electors(&mut self) {
        if self.plan.joiners == 0 || self.now < 1_000 || !self.random.chance(10) {
            return;
        }
        let leaver = self.leaver;
        let (all, now): (Vec<NodeId>, _) = (self.nodes.iter().map(|node| node.id).collect(), self.now);
        let mut stops = None;
        let is_stopped = self.nodes.iter().any(|node| Some(node.id) == leaver && node.starts_at == NEVER);
        let leading = self.nodes.iter_mut().filter(|node| node.wakes_at <= now).filter_map(|node| node.running.as_mut());
        for running in leading.filter(|running| running.consensus.is_leader()) {
            let electors = running.consensus.electors().clone();
            let progress = running.consensus.progress();
            let near =
                |id: NodeId| progress.iter().any(|of| of.node == id && of.is_active && of.matched + 20 > running.consensus.applied());
            let change = if let Some(outside) = all.iter().find(|id| !electors.has(**id) && Some(**id) != leaver) {
                Some(ElectorChange::Learns(*outside))
            } else if let Some(learner) = electors.learners().find(|id| near(*id)) {
                Some(ElectorChange::Votes(learner))
            } else if let Some(id) = leaver.filter(|id| electors.has(*id) && electors.learners().next().is_none()) {
                stops = Some(id);
                // A leader gives the lead away before it goes.
                if running.consensus.node() == id {
                    electors.voters().find(|other| *other != id && near(*other)).into_iter().for_each(|to| running.consensus.transfer(to));
                    stops = None;
                }
                // One that was stopped before anybody heard of it has no row.
                let is_down = running.state.members().find(id).map_or(is_stopped, |row| row.standing == Standing::Down);
                is_down.then_some(ElectorChange::Leaves(id))
            } else {
                // One that came back after it was let go is stopped again.
                stops = leaver.filter(|id| !electors.has(*id));
                None
            };
            if let Some(change) = change {
                // One that is refused is tried again.
                let _: Result<_, Unavailable> = running.consensus.propose_electors(change, &running.state);
            }
        }
        if let Some(index) = self.nodes.iter().position(|node| Some(node.id) == stops && node.running.is_some()) {
            self.crash(index, 0);
            self.nodes[index].starts_at = NEVER;
        }
    }

    fn at(&self, now: u64) -> Instant {
        self.base + Duration::from_millis(now)
    }

    fn turn(&mut self, index: usize) {
        let at = self.at(self.now);
        if self.nodes[index].running.is_none() && self.nodes[index].starts_at <= self.now {
            self.start(index);
        }
        if self.nodes[index].wakes_at > self.now {
            return;
        }
        let node = &mut self.nodes[index];
        let Some(running) = &mut node.running else { return };
        for (from, text) in node.mail.drain(..) {
            match word::decode(&text).expect("a word").1 {
                Word::Raft(text) => running.consensus.receive(from, text),
                Word::Heartbeat(beat) => running.roll.heard(at, beat),
            }
        }
        running.consensus.tick(at);
        let mut out = running.keep_roll(node.id, self.now, at, self.plan.voters + self.plan.joiners);
        let mut send = |to, text: Vec<u8>| out.push((to, Word::Raft(&text).encode(None)));
        let agreed = running.consensus.advance(at, &mut send).expect("the disk works");
        for agreed in &agreed {
            match agreed {
                Agreed::Change { change, .. } => {
                    if running.state.apply(change) {
                        node.place = self.oracle.told(node.place, change, &running.state);
                    }
                }
                Agreed::Electors { .. } => {}
                Agreed::State { state, .. } => {
                    running.state = State::clone(state);
                    let place = self.oracle.place_of(state);
                    assert!(place >= node.place, "a snapshot takes nobody back");
                    node.place = place;
                    self.oracle.snapshot_count += 1;
                }
            }
        }
        if running.consensus.is_leader() {
            self.oracle.leads(running.consensus.term(), node.id);
        }
        // A node may die with its messages half sent, and nobody told.
        let dies = !self.is_calm && self.random.below(1_500) == 0;
        let count = if dies { self.random.below(out.len() as u64 + 1) as usize } else { out.len() };
        let from = node.id;
        for (to, text) in out.into_iter().take(count) {
            self.network.send(self.now, from, to, text);
        }
        if dies {
            return self.crash(index, 300);
        }
        for agreed in agreed {
            if let Agreed::Change { proposal: Some(id), .. } = agreed
                && let Some((number, due)) = running.waiting.remove(&id)
                && due >= self.now
            {
                self.oracle.acknowledged(number, self.now);
            }
        }
        running.consensus.settle(&running.state).expect("the disk works");
    }

    fn start(&mut self, index: usize) {
        let start = self.random.below(u64::MAX);
        let node = &mut self.nodes[index];
        let voters = if node.id.0 <= self.plan.voters { (1..=self.plan.voters).map(NodeId).collect() } else { Vec::new() };
        let origin = Origin { node: node.id, voters };
        let folder = DataFolder::open(&node.folder, node.id.0).expect("a folder");
        let (mut consensus, state) = Consensus::open(folder, origin, start, Arc::new(ControlGauges::default())).expect("a log");
        consensus.compact_after(12);
        node.place = self.oracle.opened(&state, node.place);
        node.wakes_at = self.now;
        let (roll, waiting) = (Roll::new(TTL), BTreeMap::new());
        node.running = Some(Running { consensus, state, waiting, roll, incarnation: start, beat_at: self.now });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.nodes.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
