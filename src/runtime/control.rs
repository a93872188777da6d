//! The control core at the mesh: a thread of slow things. It takes changes, has them agreed on, and tells the shards.
//!
//! A change's way: the client's core → (of a queue: its home's core, which reserves room) → here → its row, where there is a PostgreSQL →
//! the log, fsynced → the agreed state → the home, in the order of the log → the client. No core ever waits for this thread.
//!
//! In a cluster a change is agreed on by its nodes: it is proposed through the leader, and answered when it holds here and this node's
//! shards know. One that does not hold after [`PROPOSAL_SPAN`], because nobody leads or no quorum is reached, is in doubt.
//!
//! Invariants: every proposal is answered once; the shards are told what holds in the order of the log; what is not in the log is told to
//! nobody.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mayfly_net::mesh::Mesh;
use mayfly_shards::{OwnedCommand, OwnedRequest, QueueName, Reservation, Ticket, home_shard};

use super::attachment::{Attachment, Heard};
use super::cluster::{Cluster, LEAVE_SPAN};
use super::frame::{Frame, Proposal};
use super::session::{control_ticket, core_of};
use crate::api::cluster::{ClusterAsk, members_line};
use crate::api::declaration::OptionDefaults;
use crate::api::{self, Failure};
use crate::control::consensus::{ProposalId, RETRY_EVERY};
use crate::control::grants::Grants;
use crate::control::{Agreed, Change, Consensus, ElectorChange, LogFault, NodeId, Stalled, Standing, State};

/// Pieces of mail read before they are written: they share one fsync.
const TURN_MAIL: usize = 4_096;
/// How long a client waits until what it proposed is agreed on.
const PROPOSAL_SPAN: Duration = Duration::from_secs(2);
/// How often a node that ends looks whether the others know.
const LEAVE_EVERY: Duration = Duration::from_millis(20);

/// What a control core is made of.
pub(super) struct Parts {
    pub(super) mesh: Mesh<Frame>,
    pub(super) shard_count: u16,
    pub(super) defaults: OptionDefaults,
    pub(super) grants: Arc<Grants>,
    pub(super) consensus: Consensus,
    pub(super) state: State,
    /// Where declarations and grants are rows; None: nowhere.
    pub(super) attachment: Option<Attachment>,
    /// The other nodes; None: there are none.
    pub(super) cluster: Option<Cluster>,
}

/// See the module.
pub(super) struct ControlCore {
    mesh: Mesh<Frame>,
    shard_count: u16,
    defaults: OptionDefaults,
    grants: Arc<Grants>,
    consensus: Consensus,
    state: State,
    /// Where declarations and grants are rows; None: nowhere.
    attachment: Option<Attachment>,
    /// The other nodes; None: there are none.
    cluster: Option<Cluster>,
    /// Proposed, and not known to hold.
    waiting: HashMap<ProposalId, Proposal>,
    /// When those are in doubt, in order; some are settled.
    doubtful: VecDeque<(Instant, ProposalId)>,
    /// When changes that rows asked for are.
    rows_doubtful: Option<Instant>,
    /// Operators that wait for a change of the cluster.
    operators: HashMap<ProposalId, Ticket>,
    /// Names of queues with changes in `waiting`, and how many.
    unsettled: HashMap<QueueName, usize>,
    /// Turns of the kill switch that not every shard has confirmed: with how many confirmations are missing.
    turning: HashMap<u64, (Option<Proposal>, u16)>,
    turns: u64,
    /// The entry of the log that turned the kill switch last, as far as is known: one that came before the start is at the start's.
    switched_at: u64,
}

impl ControlCore {
    /// The grants of `state` are in force from here on.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { mesh, shard_count, defaults, grants, consensus, state, attachment, cluster } = parts;
        consensus.gauges().epoch.store(state.members().epoch(), Relaxed);
        let switched_at = consensus.applied();
        state.grants().for_each(|(tenant, grant)| grants.apply(tenant, Some(*grant)));
        Self {
            mesh,
            shard_count,
            defaults,
            grants,
            consensus,
            state,
            attachment,
            cluster,
            waiting: HashMap::new(),
            doubtful: VecDeque::new(),
            rows_doubtful: None,
            operators: HashMap::new(),
            unsettled: HashMap::new(),
            turning: HashMap::new(),
            turns: 0,
            switched_at,
        }
    }

    /// Runs until `is_over`; whoever says so rings this core's waker.
    ///
    /// # Errors
    /// The log holds what this version cannot read.
    pub(super) fn run(mut self, is_over: &AtomicBool) -> Result<(), LogFault> {
        while !is_over.load(Relaxed) {
            self.turn()?;
            self.sleep(is_over);
        }
        self.leave()
    }

    fn sleep(&self, is_over: &AtomicBool) {
        let longest = match (&self.cluster, self.consensus.is_available()) {
            (Some(_), _) => {
                let now = Instant::now();
                let linking = self.cluster.as_ref().and_then(|cluster| cluster.linking.next_at());
                let next = linking.into_iter().chain([self.consensus.next_tick(now)]).min().unwrap_or(now);
                Some(next.saturating_duration_since(now))
            }
            (None, true) => None,
            (None, false) => Some(RETRY_EVERY),
        };
        let (mesh, attachment, cluster) = (&self.mesh, &self.attachment, &self.cluster);
        let has_heard = || attachment.as_ref().is_some_and(Attachment::has_events) || cluster.as_ref().is_some_and(Cluster::has_words);
        mesh.waker().sleep(longest, || mesh.has_mail() || has_heard() || is_over.load(Relaxed));
    }

    /// Ends as a member of its cluster, if it is one: the others know, and can do without this node's vote.
    fn leave(&mut self) -> Result<(), LogFault> {
        let until = Instant::now() + LEAVE_SPAN;
        while let Some(cluster) = &mut self.cluster
            && Instant::now() < until
        {
            cluster.end();
            if cluster.has_left(&self.consensus, &self.state) {
                break;
            }
            self.turn()?;
            std::thread::sleep(LEAVE_EVERY);
        }
        Ok(())
    }

    /// Reads mail, writes what it proposes, and tells what holds.
    fn turn(&mut self) -> Result<(), LogFault> {
        let now = Instant::now();
        let mut mail = Vec::new();
        self.mesh.receive(TURN_MAIL, |core, frame| mail.push((core as u16, frame)));
        for (core, frame) in mail {
            match frame {
                Frame::Propose(proposal) => self.enter(*proposal),
                Frame::Switched { number } => self.shard_turned(number),
                Frame::AskCluster { ticket, ask } => self.ask_cluster(ticket, ask),
                Frame::LinkLost { node, incarnation } => self.link_lost(core, node, incarnation),
                // To what nobody asked for, such as an entry of another start.
                Frame::Answer { .. } => {}
                frame => unreachable!("the control core is not asked for {frame:?}"),
            }
        }
        self.hear_store();
        if let Some(cluster) = &mut self.cluster {
            cluster.hear(now, &mut self.consensus);
            self.consensus.tick(now);
            cluster.keep(now, &mut self.consensus, &self.state);
        }
        self.advance(now)?;
        self.doubt(now);
        self.mirror(now);
        self.link(now);
        if let Some(attachment) = &mut self.attachment {
            attachment.fill_when_agreed();
        }
        self.mesh.flush();
        Ok(())
    }

    /// Tells the cores whether the whole cluster has the kill switch as this node has it.
    fn mirror(&self, now: Instant) {
        let is_mirrored = self.cluster.as_ref().is_none_or(|cluster| cluster.has_everywhere(now, &self.state, self.switched_at));
        self.consensus.gauges().is_mirrored.store(is_mirrored, Relaxed);
    }

    /// A core's link to another node is lost.
    fn link_lost(&mut self, core: u16, node: NodeId, incarnation: u64) {
        if let Some(cluster) = &mut self.cluster {
            cluster.linking.lost(core, node, incarnation);
        }
    }

    /// Tells the cores who is a member, and has their links dialled.
    fn link(&mut self, now: Instant) {
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.linking.epoch() < self.state.members().epoch() {
            cluster.linking.follow(Arc::new(self.state.members().clone()), &mut self.mesh);
        }
        cluster.linking.turn(now, &mut self.mesh);
    }

    /// Goes on with what the declaration store says.
    fn hear_store(&mut self) {
        while let Some(heard) = self.attachment.as_mut().and_then(|attachment| attachment.hear(&self.state)) {
            match heard {
                Heard::Written(proposal) => self.propose(proposal),
                Heard::Failed(proposal) => self.refuse(&proposal),
                Heard::Rows(changes) => {
                    // All or none: what cannot be proposed now is found by the next reading.
                    let ids: Result<Vec<_>, _> = changes.iter().map(|change| self.consensus.propose(change)).collect();
                    self.rows_doubtful = ids.as_ref().ok().filter(|ids| !ids.is_empty()).map(|_| Instant::now() + PROPOSAL_SPAN);
                    if let Some(attachment) = &mut self.attachment {
                        attachment.proposed(ids.ok());
                    }
                }
            }
        }
    }

    /// A change comes in. What has to be asked before the log is asked here: a change that comes back from there goes on with
    /// [`Self::propose`], with what it was given.
    fn enter(&mut self, proposal: Proposal) {
        if let Some(attachment) = &mut self.attachment
            && Attachment::is_asked_for(&proposal.change)
        {
            // A row that nobody here knows of may be there: a deletion of what is not declared goes this way too.
            if let Err(proposal) = attachment.write(proposal) {
                self.refuse(&proposal);
            }
            return;
        }
        if self.is_needless(&proposal.change) {
            let change = proposal.change.clone();
            return self.tell(Some(proposal), change, u64::MAX, false);
        }
        self.propose(proposal);
    }

    /// Whether a change needs no entry: the deletion of a queue that the log does not declare. Nothing of its name is on its way to the
    /// log either, so its place in the order is here; but for a node alone, another may just declare it.
    fn is_needless(&self, change: &Change) -> bool {
        let Change::Delete { queue, version: None } = change else { return false };
        self.consensus.is_alone() && self.state.declaration(queue).is_none() && !self.unsettled.contains_key(queue)
    }

    /// Gives a change to the log.
    fn propose(&mut self, proposal: Proposal) {
        if let (Change::Declare { declaration, .. }, Some(declared_at)) = (&proposal.change, &proposal.declared_at) {
            declared_at.store(declaration.updated_at_ms, Relaxed);
        }
        match self.consensus.propose(&proposal.change) {
            Ok(id) => {
                if let Some(queue) = proposal.change.queue() {
                    *self.unsettled.entry(queue.clone()).or_default() += 1;
                }
                self.waiting.insert(id, proposal);
                self.doubtful.push_back((Instant::now() + PROPOSAL_SPAN, id));
            }
            Err(_) => self.refuse(&proposal),
        }
    }

    fn advance(&mut self, now: Instant) -> Result<(), LogFault> {
        let cluster = self.cluster.as_ref().map(Cluster::way_out);
        let mut send = |to, text: Vec<u8>| {
            if let Some((links, mark)) = cluster {
                Cluster::send(links, mark, to, &text);
            }
        };
        match self.consensus.advance(now, &mut send) {
            Ok(agreed) => {
                agreed.into_iter().for_each(|agreed| self.carry_out(agreed));
                self.consensus.settle_or_give_up(now, &self.state);
            }
            Err(Stalled::Unavailable) => {
                self.refuse_waiting();
                if let Some(attachment) = &mut self.attachment {
                    attachment.proposed(None);
                }
            }
            Err(Stalled::Unreadable(fault)) => return Err(fault),
        }
        if self.waiting.is_empty() && self.operators.is_empty() {
            self.doubtful.clear();
        }
        Ok(())
    }

    fn carry_out(&mut self, agreed: Agreed) {
        let epoch = self.state.members().epoch();
        match agreed {
            Agreed::Change { proposal, change, index } => {
                self.note_agreed(proposal);
                let proposal = proposal.and_then(|id| self.settle(id));
                let was_declared = change.queue().is_some_and(|queue| self.state.declaration(queue).is_some());
                match (self.state.apply(&change), proposal) {
                    (true, proposal) => {
                        self.tell(proposal, change, index, was_declared);
                    }
                    // A later change of the queue came first: this one is over already.
                    (false, Some(proposal)) => self.answer(&proposal, Ok(())),
                    (false, None) => {}
                }
            }
            Agreed::Electors { proposal } => {
                self.note_agreed(proposal);
                if let Some(ticket) = proposal.and_then(|id| self.operators.remove(&id)) {
                    self.answer_operator(ticket, Ok(()));
                }
            }
            // The changes between are not known: the shards are told what is different.
            Agreed::State { state, index } => {
                let changes = self.state.difference(&state);
                self.state = *state;
                changes.into_iter().for_each(|change| self.tell(None, change, index, false));
            }
        }
        if self.state.members().epoch() != epoch {
            self.tell_members();
        }
    }

    fn note_agreed(&mut self, proposal: Option<ProposalId>) {
        let Some(id) = proposal else { return };
        if let Some(attachment) = &mut self.attachment {
            attachment.agreed(id);
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.agreed(id);
        }
    }

    /// There is a newer table of members.
    fn tell_members(&self) {
        let members = self.state.members();
        self.consensus.gauges().epoch.store(members.epoch(), Relaxed);
        log::info!(epoch = members.epoch(); "the cluster's members changed: {}", members_line(members));
    }

    /// What was proposed long ago is in doubt.
    fn doubt(&mut self, now: Instant) {
        while let Some((_, id)) = self.doubtful.pop_front_if(|(due, _)| *due <= now) {
            if let Some(proposal) = self.settle(id) {
                self.refuse(&proposal);
            }
            if let Some(ticket) = self.operators.remove(&id) {
                self.answer_operator(ticket, Err(Failure::Undecided));
            }
        }
        if self.rows_doubtful.take_if(|due| *due <= now).is_some()
            && let Some(attachment) = &mut self.attachment
        {
            attachment.proposed(None);
        }
    }

    /// An operator asks about the cluster, or to change it.
    fn ask_cluster(&mut self, ticket: Ticket, ask: ClusterAsk) {
        let change = match self.elector_change(ask) {
            Ok(Some(change)) => change,
            Ok(None) => return self.answer_operator(ticket, Ok(())),
            Err(failure) => return self.answer_operator(ticket, Err(failure)),
        };
        match self.consensus.propose_electors(change, &self.state) {
            Ok(id) => {
                self.operators.insert(id, ticket);
                self.doubtful.push_back((Instant::now() + PROPOSAL_SPAN, id));
            }
            Err(_) => self.answer_operator(ticket, Err(Failure::Undecided)),
        }
    }

    /// What is to be agreed on for an operator; None: nothing.
    fn elector_change(&self, ask: ClusterAsk) -> Result<Option<ElectorChange>, Failure> {
        if ask != ClusterAsk::Status && self.cluster.is_none() {
            return Err(Failure::ClusterRefused("this node has no peers: start it with --node-id, --peers and --cluster-secret-file"));
        }
        let has = |node| self.consensus.electors().has(node);
        Ok(match ask {
            ClusterAsk::Status => None,
            ClusterAsk::Add(node) => (!has(node)).then_some(ElectorChange::Learns(node)),
            ClusterAsk::Remove(node) => {
                if self.state.members().find(node).is_some_and(|row| row.standing != Standing::Down) {
                    let cause = "the node is not down: stop it first, so that it hands over what it holds";
                    return Err(Failure::ClusterRefused(cause));
                }
                has(node).then_some(ElectorChange::Leaves(node))
            }
        })
    }

    /// Every answer shows the cluster as it is then.
    fn answer_operator(&mut self, ticket: Ticket, outcome: Result<(), Failure>) {
        let now = Instant::now();
        let outcome = outcome.map(|()| {
            let words = self.cluster.iter().flat_map(|cluster| cluster.last_words(now));
            api::cluster::status(&self.consensus, &self.state, words).into()
        });
        self.mesh.send(usize::from(core_of(ticket).0), Frame::ClusterAnswer { ticket, outcome });
    }

    /// Nobody waits for a proposal any more.
    fn settle(&mut self, id: ProposalId) -> Option<Proposal> {
        let proposal = self.waiting.remove(&id)?;
        if let Some(queue) = proposal.change.queue()
            && let Some(count) = self.unsettled.get_mut(queue)
        {
            *count -= 1;
            if *count == 0 {
                self.unsettled.remove(queue);
            }
        }
        Some(proposal)
    }

    /// What was proposed is in doubt.
    fn refuse_waiting(&mut self) {
        let ids: Vec<_> = self.waiting.keys().copied().collect();
        for id in ids {
            if let Some(proposal) = self.settle(id) {
                self.refuse(&proposal);
            }
        }
        let tickets: Vec<_> = self.operators.drain().map(|(_, ticket)| ticket).collect();
        tickets.into_iter().for_each(|ticket| self.answer_operator(ticket, Err(Failure::Undecided)));
    }

    fn refuse(&mut self, proposal: &Proposal) {
        self.answer(proposal, Err(Failure::Undecided));
    }

    fn answer(&mut self, proposal: &Proposal, outcome: Result<(), Failure>) {
        let core = usize::from(core_of(proposal.ticket).0);
        self.mesh.send(core, Frame::Agreed { ticket: proposal.ticket, outcome });
    }

    /// Tells the shards what holds since entry `at` of the log, and the client when they know.
    fn tell(&mut self, proposal: Option<Proposal>, change: Change, at: u64, was_declared: bool) {
        match change {
            Change::Declare { queue, declaration } => {
                let options = declaration.options().in_force(&self.defaults);
                self.tell_home(proposal, queue, OwnedRequest::Configure { options, at });
            }
            Change::Undeclare { queue, .. } => self.tell_home(proposal, queue, OwnedRequest::Undeclare),
            Change::Delete { queue, .. } if self.cluster.is_some() => {
                // What it holds goes by another way, to all nodes at once: what is pushed after that is not in this order.
                self.tell_home(None, queue, OwnedRequest::Undeclare);
                if let Some(Proposal { ticket, .. }) = proposal {
                    self.mesh.send(usize::from(core_of(ticket).0), Frame::Undeclared { ticket, at, was_declared });
                }
            }
            Change::Delete { queue, .. } => self.tell_home(proposal, queue, OwnedRequest::Delete { at }),
            Change::Switch { is_enabled } => {
                self.turns += 1;
                self.switched_at = at;
                for shard in 0..self.shard_count {
                    self.mesh.send(usize::from(shard), Frame::Switch { number: self.turns, is_enabled });
                }
                self.turning.insert(self.turns, (proposal, self.shard_count));
            }
            Change::Grant { tenant, grant, .. } => {
                // Its bounds hold on every core at once; each core turns away who may not wait any more.
                self.grants.apply(tenant, grant);
                (0..usize::from(self.shard_count)).for_each(|core| self.mesh.send(core, Frame::Granted { tenant }));
                if let Some(proposal) = proposal {
                    self.answer(&proposal, Ok(()));
                }
            }
            Change::Member { .. } | Change::Expel { .. } | Change::Epoch { .. } | Change::Cluster { .. } | Change::Settle { .. } => {
                if let Some(proposal) = proposal {
                    self.answer(&proposal, Ok(()));
                }
            }
        }
    }

    /// The client is answered when the last shard has turned.
    fn shard_turned(&mut self, number: u64) {
        let Some((_, missing)) = self.turning.get_mut(&number) else { return };
        *missing -= 1;
        if *missing == 0
            && let Some((Some(proposal), _)) = self.turning.remove(&number)
        {
            self.answer(&proposal, Ok(()));
        }
    }

    /// The home's answer goes to the client by itself.
    fn tell_home(&mut self, proposal: Option<Proposal>, queue: QueueName, request: OwnedRequest) {
        let home = home_shard(queue.tenant, &queue.name, self.shard_count);
        let command = Box::new(OwnedCommand { tenant: queue.tenant, queue: queue.name, request });
        let (ticket, reservation) = match proposal {
            Some(proposal) => (proposal.ticket, proposal.reservation),
            None => (control_ticket(self.shard_count), Reservation::nothing()),
        };
        self.mesh.send(usize::from(home.0), Frame::Apply { ticket, command, reservation });
    }
}
