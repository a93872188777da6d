//! A disk that fails at every place where it may: what was carried out and not given back comes again, on every node, once.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use mayfly_shards::{QueueName, Tenant};

use super::super::change::Declaration;
use super::super::files::failing;
use super::*;

/// Longer than a leader is waited for, and than a log that failed.
const STEPS: u32 = 60;
const MANY: u64 = 1_000;
const FEW: u64 = 3;

/// A node, and what it was given back.
struct Member {
    consensus: Consensus,
    state: State,
    mail: Vec<(NodeId, Vec<u8>)>,
    /// Writes before the one that fails.
    left: Option<u32>,
    has_failed: bool,
    is_cut_off: bool,
    snapshots: u32,
}

/// Some nodes, one step of [`TICK`] after the other.
struct Group {
    folder: PathBuf,
    now: Instant,
    members: Vec<Member>,
    /// As many names are declared: of few, a snapshot is soon worth it.
    queues: u64,
}

fn open_at(folder: &std::path::Path, node: u64, count: u64) -> (Consensus, State) {
    let origin = Origin { node: NodeId(node), voters: (1..=count).map(NodeId).collect() };
    let folder = DataFolder::open(&folder.join(node.to_string()), node).expect("a folder");
    Consensus::open(folder, origin, node, Arc::new(ControlGauges::default())).expect("a log")
}

impl Group {
    fn new(count: u64, queues: u64) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let folder = std::env::temp_dir().join(format!("mayfly-disk-{}-{number}", std::process::id()));
        let member = |node| {
            let (mut consensus, state) = open_at(&folder, node, count);
            consensus.compact_after(6);
            Member { consensus, state, mail: Vec::new(), left: None, has_failed: false, is_cut_off: false, snapshots: 0 }
        };
        let members = (1..=count).map(member).collect();
        Self { folder, now: Instant::now(), members, queues }
    }

    fn step(&mut self) {
        self.now += TICK;
        let mut out = Vec::new();
        for (from, member) in (1..).map(NodeId).zip(&mut self.members) {
            let mut left = member.left;
            let sent = failing::with(&mut left, || member.turn(self.now));
            member.has_failed |= member.left.is_some() && left.is_none();
            member.left = left;
            let is_cut_off = member.is_cut_off;
            out.extend(sent.into_iter().filter(|_| !is_cut_off).map(|(to, text)| (from, to, text)));
        }
        for (from, to, text) in out {
            let to = &mut self.members[to.0 as usize - 1];
            if !to.is_cut_off {
                to.mail.push((from, text));
            }
        }
    }

    fn steps(&mut self, count: u32) {
        (0..count).for_each(|_| self.step());
    }

    fn leader(&mut self) -> usize {
        for _ in 0..STEPS {
            if let Some(leader) = self.members.iter().position(|member| member.consensus.leads()) {
                return leader;
            }
            self.step();
        }
        panic!("nobody leads");
    }

    /// Declares through the leader.
    fn declare(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let leader = self.leader();
            let _: Result<_, Unavailable> = self.members[leader].consensus.propose(&declaration(number, self.queues));
            self.step();
        }
    }

    /// That every node was given back the same, and what it finds when it starts again.
    fn check(mut self, case: &str) {
        let members = std::mem::take(&mut self.members);
        let (count, state) = (members.len() as u64, members[0].state.clone());
        for (node, member) in (1..).zip(members) {
            assert!(member.consensus.is_available(), "{case}: node {node} never wrote again");
            assert_eq!(member.state, state, "{case}: node {node} and node 1");
            drop(member.consensus);
            assert_eq!(open_at(&self.folder, node, count).1, member.state, "{case}: node {node} after a start and before it");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.members.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Member {
    /// What it has for others.
    fn turn(&mut self, now: Instant) -> Vec<(NodeId, Vec<u8>)> {
        for (from, text) in std::mem::take(&mut self.mail) {
            self.consensus.receive(from, &text);
        }
        self.consensus.tick(now);
        let mut out = Vec::new();
        match self.consensus.advance(now, &mut |to, text| out.push((to, text))) {
            Ok(agreed) => agreed.into_iter().for_each(|agreed| self.take(agreed)),
            Err(Stalled::Unavailable) => {}
            Err(Stalled::Unreadable(fault)) => panic!("{fault}"),
        }
        self.consensus.settle_or_give_up(now, &self.state);
        out
    }

    fn take(&mut self, agreed: Agreed) {
        match agreed {
            Agreed::Change { change, .. } => drop(self.state.apply(&change)),
            Agreed::Electors { .. } => {}
            Agreed::State { state, .. } => {
                self.state = *state;
                self.snapshots += 1;
            }
        }
    }
}

fn declaration(number: u64, queues: u64) -> Change {
    let queue = QueueName { tenant: Tenant::DEFAULT, name: format!("q{}", number % queues).into() };
    Change::Declare { queue, declaration: Declaration { options_text: b"{}".as_slice().into(), updated_at_ms: number, version: None } }
}

/// Runs `case` with a disk that fails at its first write, its second, and so on until it needs no more; how many those were.
fn at_every_write(case: impl Fn(u32) -> bool) -> u32 {
    (0..).find(|left| !case(*left)).unwrap_or_default()
}

#[test]
fn a_node_alone_gives_back_what_its_disk_kept_it_from() {
    let writes = at_every_write(|left| {
        let mut group = Group::new(1, MANY);
        group.declare(0..2);
        group.members[0].left = Some(left);
        group.declare(2..8);
        let has_failed = std::mem::take(&mut group.members[0].has_failed);
        group.members[0].left = None;
        group.steps(STEPS);
        group.declare(8..10);
        group.check(&format!("write {left} of a node alone"));
        has_failed
    });
    assert!(writes > 10, "{writes} writes");
}

#[test]
fn three_nodes_give_back_what_one_ones_disk_kept_it_from() {
    for is_leader in [false, true] {
        let writes = at_every_write(|left| {
            let mut group = Group::new(3, MANY);
            let leader = group.leader();
            group.declare(0..2);
            let failing = if is_leader { leader } else { (leader + 1) % 3 };
            group.members[failing].left = Some(left);
            group.declare(2..6);
            let has_failed = std::mem::take(&mut group.members[failing].has_failed);
            group.members[failing].left = None;
            group.steps(STEPS);
            group.declare(6..8);
            group.steps(STEPS);
            group.check(&format!("write {left} of three nodes' {}", if is_leader { "leader" } else { "follower" }));
            has_failed
        });
        assert!(writes > 6, "{writes} writes");
    }
}

#[test]
fn a_snapshot_that_a_disk_failed_behind_is_given_back() {
    let writes = at_every_write(|left| {
        let mut group = Group::new(3, FEW);
        let follower = (group.leader() + 1) % 3;
        group.declare(0..2);
        group.members[follower].is_cut_off = true;
        group.declare(2..20);
        group.members[follower].is_cut_off = false;
        group.members[follower].left = Some(left);
        group.steps(STEPS);
        let has_failed = std::mem::take(&mut group.members[follower].has_failed);
        group.members[follower].left = None;
        group.steps(STEPS);
        assert!(group.members[follower].snapshots > 0, "it was too far behind for entries");
        group.check(&format!("write {left} behind a snapshot"));
        has_failed
    });
    assert!(writes > 4, "{writes} writes");
}

/// An entry that this version cannot read is not passed over, however often it is tried, and says what to do.
#[test]
fn what_cannot_be_read_is_never_passed_over() {
    let mut group = Group::new(1, MANY);
    group.declare(0..2);
    let member = &mut group.members[0];
    let before = member.consensus.applied();
    let node = member.consensus.node.as_mut().expect("a log");
    node.propose(Vec::new(), b"2{\"of\":\"a later version\"}".to_vec()).expect("proposed");
    member.consensus.propose(&declaration(9, MANY)).expect("proposed");
    for _ in 0..3 {
        group.now += RETRY_EVERY;
        let advanced = group.members[0].consensus.advance(group.now, &mut |_, _| {});
        let Err(Stalled::Unreadable(fault)) = advanced else { panic!("{advanced:?}") };
        let line = fault.to_string();
        assert!(line.contains("entry") && line.contains("format '2'") && line.contains("start the node with the version"), "{line}");
        assert_eq!(group.members[0].consensus.applied(), before);
    }
    group.members.clear();
    let folder = DataFolder::open(&group.folder.join("1"), 1).expect("a folder");
    let origin = Origin { node: NodeId(1), voters: vec![NodeId(1)] };
    let opened = Consensus::open(folder, origin, 7, Arc::new(ControlGauges::default()));
    assert!(matches!(opened.err(), Some(LogFault::Unreadable { .. })));
}

/// A leader does not put into the log what would end the others.
#[test]
fn a_leader_takes_no_proposal_that_it_cannot_read() {
    let mut group = Group::new(3, MANY);
    let leader = group.leader();
    let follower = (leader + 1) % 3;
    group.steps(10);
    let mut context = 77_u64.to_le_bytes().to_vec();
    context.extend_from_slice(&1_u64.to_le_bytes());
    let node = group.members[follower].consensus.node.as_mut().expect("a log");
    node.propose(context, b"2{}".to_vec()).expect("proposed");
    group.steps(10);
    group.declare(0..2);
    group.steps(10);
    group.check("a proposal of another version");
}
