//! The control core at the mesh: a thread of slow things. It takes changes, has them agreed on, and tells the shards.
//!
//! A change's way: the client's core → (of a queue: its home's core, which reserves room) → here → its row, where there is a PostgreSQL →
//! the log, fsynced → the agreed state → the home, in the order of the log → the client. No core ever waits for this thread.
//!
//! Invariants: every proposal is answered once; the shards are told what holds in the order of the log; what is not in the log is told to
//! nobody.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use mayfly_net::mesh::Mesh;
use mayfly_shards::{OwnedCommand, OwnedRequest, QueueName, Reservation, home_shard};

use super::attachment::{Attachment, Heard};
use super::frame::{Frame, Proposal};
use super::session::{control_ticket, core_of};
use crate::api::Failure;
use crate::api::declaration::OptionDefaults;
use crate::control::consensus::{ProposalId, RETRY_EVERY};
use crate::control::grants::Grants;
use crate::control::{Agreed, Change, Consensus, State};

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
    /// Where declarations and grants are rows; None: nowhere.
    pub(super) attachment: Option<Attachment>,
    /// Proposed, and not known to hold.
    waiting: HashMap<ProposalId, Proposal>,
    /// Names of queues with changes in `waiting`, and how many.
    unsettled: HashMap<QueueName, usize>,
    /// Turns of the kill switch that not every shard has confirmed: with how many confirmations are missing.
    turning: HashMap<u64, (Option<Proposal>, u16)>,
    turns: u64,
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
        attachment: Option<Attachment>,
    ) -> Self {
        state.grants().for_each(|(tenant, grant)| grants.apply(tenant, Some(*grant)));
        Self {
            mesh,
            shard_count,
            defaults,
            grants,
            consensus,
            state,
            attachment,
            waiting: HashMap::new(),
            unsettled: HashMap::new(),
            turning: HashMap::new(),
            turns: 0,
        }
    }

    /// Runs until `is_over`; whoever says so rings this core's waker.
    pub(super) fn run(mut self, is_over: &AtomicBool) {
        let waker = self.mesh.waker();
        while !is_over.load(Relaxed) {
            self.turn();
            let (mesh, attachment) = (&self.mesh, &self.attachment);
            let has_heard = || attachment.as_ref().is_some_and(Attachment::has_events);
            let longest = (!self.consensus.is_available()).then_some(RETRY_EVERY);
            waker.sleep(longest, || mesh.has_mail() || has_heard() || is_over.load(Relaxed));
        }
    }

    /// Reads mail, writes what it proposes, and tells what holds.
    fn turn(&mut self) {
        let mut mail = Vec::new();
        self.mesh.receive(TURN_MAIL, |_, frame| mail.push(frame));
        for frame in mail {
            match frame {
                Frame::Propose(proposal) => self.enter(*proposal),
                Frame::Switched { number } => self.shard_turned(number),
                // To what nobody asked for, such as an entry of another start.
                Frame::Answer { .. } => {}
                frame => unreachable!("the control core is not asked for {frame:?}"),
            }
        }
        self.hear_store();
        self.advance();
        if let Some(attachment) = &mut self.attachment {
            attachment.fill_when_agreed();
        }
        self.mesh.flush();
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
        match self.consensus.propose(&proposal.change) {
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
        let now = Instant::now();
        match self.consensus.advance(now, &mut |_, _| {}) {
            Ok(agreed) => {
                for agreed in agreed {
                    let Agreed::Change { proposal, change } = agreed else { continue };
                    if let (Some(attachment), Some(id)) = (&mut self.attachment, proposal) {
                        attachment.agreed(id);
                    }
                    let proposal = proposal.and_then(|id| self.settle(id));
                    match (self.state.apply(&change), proposal) {
                        (true, proposal) => self.tell(proposal, change),
                        // A later change of the queue came first: this one is over already.
                        (false, Some(proposal)) => self.answer(&proposal, Ok(())),
                        (false, None) => {}
                    }
                }
                self.consensus.settle_or_give_up(now, &self.state);
            }
            Err(_) => {
                self.refuse_waiting();
                if let Some(attachment) = &mut self.attachment {
                    attachment.proposed(None);
                }
            }
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
                let options = declaration.options().in_force(&self.defaults);
                self.tell_home(proposal, queue, OwnedRequest::Configure { options });
            }
            Change::Undeclare { queue, .. } => self.tell_home(proposal, queue, OwnedRequest::Undeclare),
            Change::Delete { queue, .. } => self.tell_home(proposal, queue, OwnedRequest::Delete),
            Change::Switch { is_enabled } => {
                self.turns += 1;
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
