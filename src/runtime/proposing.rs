//! A core's part in changes that are agreed on: it proposes them for its clients, and reserves the room for queues whose home it is.

use std::sync::Arc;

use mayfly_net::ring::Connections;
use mayfly_shards::{Answer, Command, Delivery, Letter, Outbox, Receipt, Reservation, ShardIndex, Ticket, home_shard};
use smallvec::SmallVec;

use super::core::Core;
use super::frame::{Frame, Proposal};
use super::intake::Asking;
use super::session::Asked;
use crate::api::Failure;
use crate::api::cluster::ClusterAsk;
use crate::api::declaration::OptionDefaults;
use crate::control::{Change, State};

/// Takes what a shard says while nobody asks anything of it: that it did as it was told.
struct Unheard;

impl Outbox for Unheard {
    fn answer(&mut self, _: Ticket, _: Answer) {}
    fn reply(&mut self, _: Ticket, _: &[u8]) {}
    fn begin_delivery(&mut self, _: Ticket, _: &str) {}
    fn message(&mut self, _: Delivery<'_>) {}
    fn end_delivery(&mut self, _: SmallVec<[Receipt; 1]>) {}
    fn send(&mut self, _: ShardIndex, _: Letter) {}
}

impl Core {
    /// Proposes a change, which the connection's request then waits for: its answer, as `asked` says, comes when it holds and every shard
    /// that has to know it does, or when that could not be made certain.
    pub(super) fn propose(&mut self, asking: Asking<'_>, asked: Asked, change: Change) -> Result<(), Failure> {
        let place = self.gate.enter().ok_or(Failure::TooManyChanges)?;
        let declared_at = match &asked {
            Asked::Configure { declared_at, .. } => Some(Arc::clone(declared_at)),
            _ => None,
        };
        let ticket = self.await_answer(&asking, asked);
        let proposal = Box::new(Proposal { ticket, change, declared_at, reservation: Reservation::nothing(), _place: place });
        let first = match proposal.change.queue() {
            Some(queue) => home_shard(queue.tenant, &queue.name, self.placement.shard_count()),
            None => self.control(),
        };
        if first == self.desk.core {
            self.pass_on(asking.connections, proposal);
        } else {
            self.desk.mesh.send(usize::from(first.0), Frame::Propose(proposal));
        }
        Ok(())
    }

    /// Asks the control core about the cluster.
    pub(super) fn ask_cluster(&mut self, asking: Asking<'_>, ask: ClusterAsk) -> Result<(), Failure> {
        let ticket = self.await_answer(&asking, Asked::Cluster);
        self.desk.mesh.send(usize::from(self.control().0), Frame::AskCluster { ticket, ask });
        Ok(())
    }

    /// A proposal for a queue whose home this is: a declaration is refused here when there is no room for the queue it would make.
    pub(super) fn pass_on(&mut self, connections: &mut Connections, mut proposal: Box<Proposal>) {
        if let Change::Declare { queue, .. } = &proposal.change {
            match self.shard.admit_declaration(queue.tenant, &queue.name) {
                Ok(reservation) => proposal.reservation = reservation,
                Err(refusal) => {
                    let answer = Answer::Refused(refusal);
                    return self.clerk(connections).answer(proposal.ticket, answer);
                }
            }
        }
        let control = self.control();
        self.desk.mesh.send(usize::from(control.0), Frame::Propose(proposal));
    }

    /// Declares what the log up to entry `at` declares, and turns the kill switch as it says: before this core serves anybody.
    pub(super) fn declare_all(&mut self, state: &State, at: u64, defaults: &OptionDefaults) {
        self.is_enabled = state.is_enabled();
        self.shard.switch(self.now, state.is_enabled(), &mut Unheard);
        for (queue, declaration) in state.declarations() {
            if home_shard(queue.tenant, &queue.name, self.placement.shard_count()) == self.desk.core {
                let options = declaration.options().in_force(defaults);
                let command = Command::Configure { tenant: queue.tenant, queue: &queue.name, options, at };
                self.shard.step(self.now, Ticket(0), command, &mut Unheard);
            }
        }
    }

    /// The control core's place in the mesh: behind the shards'.
    pub(super) fn control(&self) -> ShardIndex {
        ShardIndex(self.placement.shard_count())
    }
}
