//! The control core's part in a cluster: what it hears from the other nodes and tells them, who is there, and who votes.
//!
//! Invariants: no word is heard of a node of another cluster; a heartbeat goes out every eighth of the member-ttl and at once when this
//! node's phase changes; only a leader that has carried out all that was agreed on before it led judges who is there. A node that ends
//! has given the lead away first, and of two voters its vote, or has waited for that as long as it may.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mayfly_net::mesh::Waker;

use super::linking::Linking;
use crate::control::consensus::ProposalId;
use crate::control::roll::BEATS_PER_TTL;
use crate::control::{ClusterMark, Consensus, Heartbeat, NodeId, Phase, Roll, Standing, State, Word, word};

/// What was proposed and did not come back in so long is proposed again.
const PROPOSAL_SPAN: Duration = Duration::from_secs(2);
/// Between two attempts to give the lead away.
const TRANSFER_EVERY: Duration = Duration::from_millis(500);
/// How long a node that ends waits until the others know.
pub(super) const LEAVE_SPAN: Duration = Duration::from_secs(2);
/// A turn that comes so much later than the one before follows a stop of this node: nobody was silent meanwhile.
const STOP_SPAN: Duration = Duration::from_secs(1);
/// Words that wait for this thread; more are lost, as a network would lose them.
const WORDS_MAX: usize = 8_192;

/// The way to the other nodes. Words come back through [`Inbox`].
pub(super) trait Links: Send {
    /// With whom links are kept, by id and address.
    fn set_peers(&self, peers: Vec<(u64, String)>);
    /// Leaves a word for a peer. It never waits.
    fn send(&self, node: NodeId, text: Vec<u8>);
}

/// Words of other nodes, from the links' threads to the control core's.
#[derive(Clone)]
pub(super) struct Inbox {
    words: Arc<Mutex<VecDeque<Mail>>>,
    waker: Arc<Waker>,
}

/// A word, and who proved to have said it.
struct Mail {
    from: NodeId,
    incarnation: u64,
    text: Vec<u8>,
}

impl Inbox {
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { words: Arc::default(), waker }
    }

    /// A node said something.
    pub(super) fn put(&self, from: NodeId, incarnation: u64, text: Vec<u8>) {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() < WORDS_MAX {
            words.push_back(Mail { from, incarnation, text });
        }
        drop(words);
        self.waker.wake();
    }

    fn take(&self) -> VecDeque<Mail> {
        std::mem::take(&mut *self.words.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn has_words(&self) -> bool {
        !self.words.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// How far this node is, as its other threads say.
#[derive(Clone, Default)]
pub(super) struct Stage {
    pub(super) serves: Arc<AtomicBool>,
    pub(super) is_stopping: Arc<AtomicBool>,
}

/// See the module.
pub(super) struct Cluster {
    links: Box<dyn Links>,
    /// The cores' links to other nodes.
    pub(super) linking: Linking,
    inbox: Inbox,
    stage: Stage,
    mark: Option<ClusterMark>,
    roll: Roll,
    own: Heartbeat,
    beat_every: Duration,
    beat_due: Instant,
    kept_at: Instant,
    has_ended: bool,
    /// As configured.
    named: BTreeMap<NodeId, Box<str>>,
    /// As the links were told.
    reached: BTreeMap<NodeId, Box<str>>,
    /// The last step that was proposed for the roll.
    rolling: Option<(ProposalId, Instant)>,
    transferred_at: Option<Instant>,
    /// Nodes whose words are not heard: it was said once.
    foreign: BTreeMap<NodeId, u64>,
}

/// What [`Cluster::new`] is made of.
pub(super) struct Setup {
    pub(super) links: Box<dyn Links>,
    pub(super) linking: Linking,
    pub(super) inbox: Inbox,
    pub(super) stage: Stage,
    pub(super) mark: Option<ClusterMark>,
    pub(super) node: NodeId,
    pub(super) incarnation: u64,
    pub(super) shard_count: u16,
    /// Every node that was named, this one too.
    pub(super) named: BTreeMap<NodeId, Box<str>>,
    pub(super) member_ttl: Duration,
}

impl Cluster {
    pub(super) fn new(setup: Setup) -> Self {
        let Setup { links, linking, inbox, stage, mark, node, incarnation, shard_count, named, member_ttl } = setup;
        let peer = named.get(&node).cloned().unwrap_or_default();
        Self {
            links,
            linking,
            inbox,
            stage,
            mark,
            roll: Roll::new(member_ttl),
            own: Heartbeat { node: node.0, incarnation, shard_count, peer, phase: Phase::Starts, epoch: 0, applied: 0 },
            beat_every: member_ttl / BEATS_PER_TTL,
            beat_due: Instant::now(),
            kept_at: Instant::now(),
            has_ended: false,
            named,
            reached: BTreeMap::new(),
            rolling: None,
            transferred_at: None,
            foreign: BTreeMap::new(),
        }
    }

    pub(super) fn has_words(&self) -> bool {
        self.inbox.has_words() || self.linking.has_work()
    }

    /// Takes what other nodes said.
    pub(super) fn hear(&mut self, now: Instant, consensus: &mut Consensus) {
        for Mail { from, incarnation, text } in self.inbox.take() {
            let Some((mark, word)) = word::decode(&text) else {
                self.complain(from, incarnation, "its words cannot be read: both nodes have to be of one version of mayfly");
                continue;
            };
            if !self.is_ours(mark, consensus) {
                self.complain(from, incarnation, "it is of another cluster: see --data-dir and --peers of both");
                continue;
            }
            match word {
                Word::Raft(text) => consensus.receive(from, text),
                Word::Heartbeat(beat) if beat.node == from.0 && beat.incarnation == incarnation => self.roll.heard(now, beat),
                Word::Heartbeat(_) => self.complain(from, incarnation, "it speaks for another node"),
            }
        }
    }

    /// A node that joins belongs where it is spoken to first.
    fn is_ours(&mut self, theirs: Option<ClusterMark>, consensus: &Consensus) -> bool {
        match (self.mark, theirs) {
            (Some(own), Some(theirs)) => own == theirs,
            (None, Some(theirs)) => match consensus.join(theirs) {
                Ok(()) => {
                    self.mark = Some(theirs);
                    true
                }
                Err(fault) => {
                    log::error!(cause:% = fault; "the data folder cannot be made the cluster's");
                    false
                }
            },
            (_, None) => true,
        }
    }

    fn complain(&mut self, from: NodeId, incarnation: u64, cause: &str) {
        if self.foreign.insert(from, incarnation) != Some(incarnation) {
            log::error!(node = from.0; "a node is not heard: {cause}");
        }
    }

    /// A word of raft's goes out.
    pub(super) fn send(links: &dyn Links, mark: Option<ClusterMark>, to: NodeId, text: &[u8]) {
        links.send(to, Word::Raft(text).encode(mark));
    }

    pub(super) fn way_out(&self) -> (&dyn Links, Option<ClusterMark>) {
        (&*self.links, self.mark)
    }

    fn phase(&self) -> Phase {
        if self.has_ended {
            Phase::Ended
        } else if self.stage.is_stopping.load(Relaxed) {
            Phase::Drains
        } else if self.stage.serves.load(Relaxed) {
            Phase::Serves
        } else {
            Phase::Starts
        }
    }

    /// Does what time asks for: heartbeats, and when this node leads the next steps of the roll and of the votes.
    pub(super) fn keep(&mut self, now: Instant, consensus: &mut Consensus, state: &State) {
        self.reach(state);
        self.beat(now, consensus, state);
        let leads = consensus.leads();
        let was_stopped = now.saturating_duration_since(std::mem::replace(&mut self.kept_at, now)) >= STOP_SPAN;
        if was_stopped {
            self.roll.lead(now, false);
        }
        self.roll.lead(now, leads);
        if leads {
            self.leave_the_lead(now, consensus);
            self.roll_on(now, consensus, state);
        }
    }

    /// Links are kept with every node that was named, is a member, or says that it is there.
    fn reach(&mut self, state: &State) {
        let own = NodeId(self.own.node);
        let mut wanted = self.named.clone();
        wanted.extend(self.roll.last_words(self.beat_due).map(|(beat, _)| (NodeId(beat.node), beat.peer.clone())));
        for member in state.members().rows() {
            wanted.entry(member.id).or_insert_with(|| member.peer.clone());
        }
        wanted.remove(&own);
        if wanted != self.reached {
            self.links.set_peers(wanted.iter().map(|(node, address)| (node.0, address.to_string())).collect());
            self.reached = wanted;
        }
    }

    fn beat(&mut self, now: Instant, consensus: &Consensus, state: &State) {
        let phase = self.phase();
        if phase == self.own.phase && now < self.beat_due {
            return;
        }
        self.beat_due = now + self.beat_every;
        self.own = Heartbeat { phase, epoch: state.members().epoch(), applied: consensus.applied(), ..self.own.clone() };
        self.roll.heard(now, self.own.clone());
        let text = Word::Heartbeat(self.own.clone()).encode(self.mark);
        self.reached.keys().for_each(|node| self.links.send(*node, text.clone()));
    }

    fn leave_the_lead(&mut self, now: Instant, consensus: &mut Consensus) {
        if self.phase() < Phase::Drains || self.transferred_at.is_some_and(|at| now < at + TRANSFER_EVERY) {
            return;
        }
        let heir = self.roll.heir(now, consensus.node(), consensus.electors(), &consensus.progress());
        if let Some(heir) = heir {
            self.transferred_at = Some(now);
            consensus.transfer(heir);
        }
    }

    fn roll_on(&mut self, now: Instant, consensus: &mut Consensus, state: &State) {
        if self.rolling.is_some_and(|(_, at)| now < at + PROPOSAL_SPAN) {
            return;
        }
        let due = self.roll.due(now, state.members(), consensus.electors());
        let proposed = due.iter().filter_map(|change| consensus.propose(change).ok()).last();
        let proposed = proposed.or_else(|| {
            let vote = self.roll.vote(now, consensus.electors(), &consensus.progress(), consensus.applied())?;
            log::info!("the votes of the cluster change: {vote:?}");
            consensus.propose_electors(vote, state).ok()
        });
        self.rolling = proposed.map(|id| (id, now));
    }

    /// A proposal holds.
    pub(super) fn agreed(&mut self, id: ProposalId) {
        self.rolling.take_if(|(rolling, _)| *rolling == id);
    }

    /// This node is about to end: it says so.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether nothing is missing when this node ends now.
    pub(super) fn has_left(&self, consensus: &Consensus, state: &State) -> bool {
        let own = consensus.node();
        let is_noted = state.members().find(own).is_none_or(|row| row.standing == Standing::Down);
        // Of two, or while two sets of voters decide together, what is to be agreed on needs this one's word.
        let electors = consensus.electors();
        let is_missed = electors.counts(own) && (electors.voters().len() == 2 || electors.is_joint());
        consensus.is_alone() || !consensus.electors().has(own) || (is_noted && !is_missed && !consensus.is_leader())
    }

    /// Whether every other live member said that it has carried out the log up to this entry.
    pub(super) fn has_everywhere(&self, now: Instant, state: &State, index: u64) -> bool {
        let has = |node: NodeId| self.roll.last_words(now).any(|(beat, _)| beat.node == node.0 && beat.applied >= index);
        let others = state.members().rows().iter().filter(|row| row.standing == Standing::Live && row.id.0 != self.own.node);
        others.map(|row| row.id).all(has)
    }

    /// What each node said last, and how long ago.
    pub(super) fn last_words(&self, now: Instant) -> impl Iterator<Item = (&Heartbeat, Duration)> {
        self.roll.last_words(now)
    }
}
