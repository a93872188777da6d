//! The control core at the mesh: a thread of slow things. It takes changes, has them agreed on, and tells the shards.
//!
//! A change's way: the client's core → (of a queue: its home's core, which reserves room) → here → the log, fsynced → the agreed state →
//! the home, in the order of the log → the client. No core ever waits for this thread.
//!
//! Invariants: every proposal is answered once; the shards are told what holds in the order of the log; what is not in the log is told to
//! nobody.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use mayfly_net::mesh::Mesh;
use mayfly_shards::{OwnedCommand, OwnedRequest, QueueName, Reservation, home_shard};

use super::frame::{Frame, Proposal};
use super::session::{control_ticket, core_of};
use crate::api::Failure;
use crate::api::declaration::{DeclaredOptions, OptionDefaults};
use crate::control::consensus::{Committed, ProposalId};
use crate::control::grants::Grants;
use crate::control::{Change, Consensus, State};

/// Pieces of mail read before they are written: they share one fsync.
const TURN_MAIL: usize = 4_096;

/// What the control core runs with.
pub(super) struct ControlCore {
    pub(super) mesh: Mesh<Frame>,
    pub(super) shard_count: u16,
    pub(super) defaults: OptionDefaults,
    pub(super) grants: Arc<Grants>,
    pub(super) consensus: Consensus,
    pub(super) state: State,
    /// Proposed, and not known to hold.
    waiting: HashMap<ProposalId, Proposal>,
    /// Names of queues with changes in `waiting`, and how many.
    unsettled: HashMap<QueueName, usize>,
}

impl ControlCore {
    /// The grants of `state` are in force from here on.
    pub(super) fn new(
        mesh: Mesh<Frame>,
        shard_count: u16,
        defaults: OptionDefaults,
        grants: Arc<Grants>,
        consensus: Consensus,
        state: State,
    ) -> Self {
        state.grants().for_each(|(tenant, grant)| grants.apply(tenant, Some(*grant)));
        Self { mesh, shard_count, defaults, grants, consensus, state, waiting: HashMap::new(), unsettled: HashMap::new() }
    }

    /// Runs until `is_over`; whoever says so rings this core's waker.
    pub(super) fn run(mut self, is_over: &AtomicBool) {
        let waker = self.mesh.waker();
        while !is_over.load(Relaxed) {
            self.turn();
            let mesh = &self.mesh;
            waker.sleep(None, || mesh.has_mail() || is_over.load(Relaxed));
        }
    }

    /// Reads mail, writes what it proposes, and tells what holds.
    fn turn(&mut self) {
        let mut mail = Vec::new();
        self.mesh.receive(TURN_MAIL, |_, frame| mail.push(frame));
        for frame in mail {
            match frame {
                Frame::Propose(proposal) => self.enter(*proposal),
                // To what nobody asked for, such as an entry of another start.
                Frame::Answer { .. } => {}
                frame => unreachable!("the control core is not asked for {frame:?}"),
            }
        }
        self.advance();
        self.mesh.flush();
    }

    /// A change comes in. What has to be asked before the log is asked here: a change that comes back from there goes on with
    /// [`Self::propose`], with what it was given.
    fn enter(&mut self, proposal: Proposal) {
        if self.is_needless(&proposal.change) {
            let change = proposal.change.clone();
            return self.tell(Some(proposal), change);
        }
        self.propose(proposal);
    }

    /// Whether a change needs no entry: the deletion of a queue that the log does not declare. Nothing of its name is on its way to the
    /// log either, so its place in the order is here.
    fn is_needless(&self, change: &Change) -> bool {
        let Change::Delete { queue, version: None } = change else { return false };
        self.state.declaration(queue).is_none() && !self.unsettled.contains_key(queue)
    }

    /// Gives a change to the log.
    fn propose(&mut self, proposal: Proposal) {
        match self.consensus.propose(proposal.change.clone()) {
            Ok(id) => {
                if let Some(queue) = proposal.change.queue() {
                    *self.unsettled.entry(queue.clone()).or_default() += 1;
                }
                self.waiting.insert(id, proposal);
            }
            Err(_) => self.refuse(&proposal),
        }
    }

    fn advance(&mut self) {
        match self.consensus.advance() {
            Ok(committed) => {
                for Committed { proposal, change } in committed {
                    let proposal = proposal.and_then(|id| self.settle(id));
                    match (self.state.apply(&change), proposal) {
                        (true, proposal) => self.tell(proposal, change),
                        // A later change of the queue came first: this one is over already.
                        (false, Some(proposal)) => self.answer(&proposal, Ok(())),
                        (false, None) => {}
                    }
                }
            }
            Err(_) => self.refuse_waiting(),
        }
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
    }

    fn refuse(&mut self, proposal: &Proposal) {
        self.answer(proposal, Err(Failure::Undecided));
    }

    fn answer(&mut self, proposal: &Proposal, outcome: Result<(), Failure>) {
        let core = usize::from(core_of(proposal.ticket).0);
        self.mesh.send(core, Frame::Agreed { ticket: proposal.ticket, outcome });
    }

    /// Tells the shards what holds, and the client when they know.
    fn tell(&mut self, proposal: Option<Proposal>, change: Change) {
        match change {
            Change::Declare { queue, declaration } => {
                // It was read when it came in; what this version cannot read any more is as if it had no options.
                let declared = DeclaredOptions::read(&declaration.options_text).unwrap_or_default();
                let options = declared.in_force(&self.defaults);
                self.tell_home(proposal, queue, OwnedRequest::Configure { options });
            }
            Change::Undeclare { queue, .. } => self.tell_home(proposal, queue, OwnedRequest::Undeclare),
            Change::Delete { queue, .. } => self.tell_home(proposal, queue, OwnedRequest::Delete),
            Change::Grant { tenant, grant } => {
                // Its bounds hold on every core at once; each core turns away who may not wait any more.
                self.grants.apply(tenant, grant);
                (0..usize::from(self.shard_count)).for_each(|core| self.mesh.send(core, Frame::Granted { tenant }));
                if let Some(proposal) = proposal {
                    self.answer(&proposal, Ok(()));
                }
            }
            Change::Switch { .. } | Change::Settle { .. } => {
                if let Some(proposal) = proposal {
                    self.answer(&proposal, Ok(()));
                }
            }
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
