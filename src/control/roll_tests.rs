use super::super::state::State;
use super::*;

const TTL: Duration = Duration::from_millis(4_000);

/// A leader's roll, with a table that takes at once what is proposed.
struct Seen {
    roll: Roll,
    state: State,
    electors: Electors,
    base: Instant,
    now: u64,
}

impl Seen {
    fn new(voters: &[u64]) -> Self {
        let base = Instant::now();
        let mut roll = Roll::new(TTL);
        roll.lead(base, true);
        let voters: Vec<NodeId> = voters.iter().copied().map(NodeId).collect();
        Self { roll, state: State::default(), electors: Electors::of(&voters), base, now: 0 }
    }

    fn at(&self) -> Instant {
        self.base + Duration::from_millis(self.now)
    }

    fn beat(&mut self, node: u64, incarnation: u64, phase: Phase) -> &mut Self {
        let epoch = self.state.members().epoch();
        self.beat_of(node, incarnation, phase, epoch)
    }

    fn beat_of(&mut self, node: u64, incarnation: u64, phase: Phase, epoch: u64) -> &mut Self {
        let peer = format!("host{node}:6633").into();
        self.roll.heard(self.at(), Heartbeat { node, incarnation, shard_count: 2, peer, phase, epoch, applied: 0 });
        self
    }

    fn later(&mut self, milliseconds: u64) -> &mut Self {
        self.now += milliseconds;
        self
    }

    /// What is proposed until there is nothing to propose: id, incarnation, standing of each row.
    fn due(&mut self) -> Vec<(u64, u64, Standing)> {
        let mut rows = Vec::new();
        loop {
            let due = self.roll.due(self.at(), self.state.members(), &self.electors);
            if due.is_empty() {
                return rows;
            }
            for change in due {
                assert!(self.state.apply(&change), "{change:?} changes nothing");
                match change {
                    Change::Member { member } => rows.push((member.id.0, member.incarnation, member.standing)),
                    Change::Expel { id } => rows.push((id.0, 0, Standing::Down)),
                    change => panic!("{change:?}"),
                }
            }
        }
    }
}

#[test]
fn a_node_joins_serves_leaves_and_ends() {
    let mut seen = Seen::new(&[1, 2, 3]);
    assert_eq!(seen.beat(2, 7, Phase::Starts).due(), [(2, 7, Standing::Joining)]);
    assert_eq!(seen.later(500).beat(2, 7, Phase::Starts).due(), []);
    assert_eq!(seen.beat(2, 7, Phase::Serves).due(), [(2, 7, Standing::Live)]);
    assert_eq!(seen.beat(2, 7, Phase::Drains).due(), [(2, 7, Standing::Leaving)]);
    assert_eq!(seen.beat(2, 7, Phase::Ended).due(), [(2, 7, Standing::Down)]);
    assert_eq!(seen.later(10_000).due(), []);
    assert_eq!(seen.state.members().find(NodeId(2)).map(|row| &*row.peer), Some("host2:6633"));
}

#[test]
fn a_silent_node_is_down_after_the_ttl_and_not_before() {
    let mut seen = Seen::new(&[1, 2]);
    seen.beat(2, 7, Phase::Serves).due();
    assert_eq!(seen.later(3_999).due(), []);
    assert_eq!(seen.later(1).due(), [(2, 7, Standing::Down)]);
}

#[test]
fn a_new_leader_counts_anew() {
    let mut seen = Seen::new(&[1, 2]);
    seen.beat(2, 7, Phase::Serves).due();
    seen.roll.lead(seen.at(), false);
    assert_eq!(seen.later(60_000).due(), [], "who does not lead judges nobody");
    seen.roll.lead(seen.at(), true);
    assert_eq!(seen.later(3_999).due(), []);
    assert_eq!(seen.later(1).due(), [(2, 7, Standing::Down)]);
}

#[test]
fn another_incarnation_is_down_then_joining_then_live() {
    let mut seen = Seen::new(&[1, 2]);
    seen.beat(2, 7, Phase::Serves).due();
    assert_eq!(seen.beat(2, 8, Phase::Starts).due(), [(2, 7, Standing::Down), (2, 8, Standing::Joining)]);
    assert_eq!(seen.beat(2, 7, Phase::Serves).due(), [], "late mail of the start before");
    assert_eq!(seen.beat(2, 8, Phase::Serves).due(), [(2, 8, Standing::Live)]);
}

#[test]
fn a_node_that_was_stopped_comes_back_once_it_knows_that_it_was_down() {
    let mut seen = Seen::new(&[1, 2]);
    seen.beat(2, 7, Phase::Serves).due();
    let before = seen.state.members().epoch();
    assert_eq!(seen.later(4_000).due(), [(2, 7, Standing::Down)]);
    assert_eq!(seen.beat_of(2, 7, Phase::Serves, before).due(), []);
    assert_eq!(seen.beat(2, 7, Phase::Serves).due(), [(2, 7, Standing::Joining), (2, 7, Standing::Live)]);
}

#[test]
fn whoever_is_not_of_the_group_is_no_member() {
    let mut seen = Seen::new(&[1, 2]);
    assert_eq!(seen.beat(3, 9, Phase::Serves).due(), []);
    seen.beat(2, 7, Phase::Serves).due();
    seen.electors = Electors::of(&[NodeId(1)]);
    assert_eq!(seen.due(), [], "one that serves still hands over what it holds");
    assert_eq!(seen.beat(2, 7, Phase::Ended).due(), [(2, 7, Standing::Down), (2, 0, Standing::Down)]);
    assert!(seen.state.members().rows().is_empty());
    assert_eq!(seen.beat(2, 7, Phase::Serves).due(), []);
}

#[test]
fn a_learner_votes_when_it_has_caught_up() {
    let mut seen = Seen::new(&[1]);
    let of = |node, matched, is_active| Progress { node: NodeId(node), matched, is_active };
    let learning: Electors = serde_json::from_str(r#"{"voters":[1],"learners":[2]}"#).expect("electors");
    let vote = |seen: &Seen, progress| seen.roll.vote(seen.at(), &learning, &[of(1, 900, true), progress], 900);
    assert_eq!(vote(&seen, of(2, 900, true)), None, "it was not heard of");
    seen.beat(2, 7, Phase::Starts);
    assert_eq!(vote(&seen, of(2, 100, true)), None);
    assert_eq!(vote(&seen, of(2, 900, false)), None);
    assert_eq!(vote(&seen, of(2, 890, true)), Some(ElectorChange::Votes(NodeId(2))));
    seen.beat(2, 7, Phase::Drains);
    assert_eq!(vote(&seen, of(2, 900, true)), None);
}

#[test]
fn of_two_voters_one_that_leaves_gives_its_vote_back() {
    let mut seen = Seen::new(&[1, 2]);
    let progress = [1, 2].map(|node| Progress { node: NodeId(node), matched: 5, is_active: true });
    let vote = |seen: &Seen, electors: &Electors| seen.roll.vote(seen.at(), electors, &progress, 5);
    let (two, three) = (Electors::of(&[NodeId(1), NodeId(2)]), Electors::of(&[NodeId(1), NodeId(2), NodeId(3)]));
    seen.beat(1, 6, Phase::Serves).beat(2, 7, Phase::Serves);
    assert_eq!(vote(&seen, &two), None);
    seen.beat(2, 7, Phase::Drains);
    assert_eq!(vote(&seen, &two), Some(ElectorChange::Learns(NodeId(2))));
    assert_eq!(vote(&seen, &three), None);
    seen.beat(1, 6, Phase::Drains);
    assert_eq!(vote(&seen, &two), None, "somebody has to stay");
}

#[test]
fn the_heir_is_the_voter_that_stays_and_is_nearest() {
    let mut seen = Seen::new(&[1, 2, 3, 4]);
    seen.beat(2, 7, Phase::Serves).beat(3, 8, Phase::Drains).beat(4, 9, Phase::Serves);
    let progress = [(1, 9), (2, 5), (3, 9), (4, 7)].map(|(node, matched)| Progress { node: NodeId(node), matched, is_active: true });
    assert_eq!(seen.roll.heir(seen.at(), NodeId(1), &seen.electors, &progress), Some(NodeId(4)));
}
