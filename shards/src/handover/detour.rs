//! Commands on a partition that is on its way: away from here they are handed back, on the way to here they wait.

use super::PartitionName;
use super::arrivals::Held;
use crate::command::{Command, OwnedCommand, OwnedRequest, Refusal};
use crate::ledger::Ledger;
use crate::limits::{ARRIVAL_BYTES_MAX, ARRIVAL_COMMANDS_MAX, WAITER_OVERHEAD_BYTES};
use crate::name::Tenant;
use crate::outbox::{Answer, Moved, Outbox, Ticket};
use crate::queue::QueueIndex;
use crate::shard::{Shard, Standing};
use crate::time::Time;

/// What stands in the way of a command.
enum Obstacle {
    Packed,
    /// The arrival that it waits for.
    Arriving(u64),
}

/// Hands a command back.
pub(crate) fn moved(command: OwnedCommand, since: Option<Time>) -> Answer {
    Answer::Moved(Box::new(Moved { command, since }))
}

impl Shard {
    /// The command, if it can be carried out here and now.
    pub(crate) fn detour<'a>(
        &mut self,
        now: Time,
        ticket: Ticket,
        command: Command<'a>,
        standing: Standing,
        out: &mut impl Outbox,
    ) -> Option<Command<'a>> {
        if self.handover.is_idle() {
            return Some(command);
        }
        match self.obstacle(&command) {
            None => return Some(command),
            Some(Obstacle::Packed) => out.answer(ticket, moved(command.into_owned(), standing.since)),
            Some(Obstacle::Arriving(arrival)) => {
                if let Err(refusal) = self.hold_back(now, arrival, ticket, command, standing) {
                    self.refuse(ticket, refusal, out);
                }
            }
        }
        None
    }

    fn obstacle(&self, command: &Command<'_>) -> Option<Obstacle> {
        match command {
            Command::Push { tenant, queue, partition, .. }
            | Command::Call { tenant, queue, partition, .. }
            | Command::Pop { tenant, queue, partition: Some(partition), .. } => self.obstacle_at(*tenant, queue, partition),
            // Its acks are carried out together.
            Command::Ack { tenant, queue, items, .. } => {
                let mut partitions: Vec<&str> = items.iter().map(|item| item.partition).collect();
                partitions.dedup();
                partitions.into_iter().find_map(|partition| self.obstacle_at(*tenant, queue, partition))
            }
            _ => None,
        }
    }

    fn obstacle_at(&self, tenant: Tenant, queue: &str, partition: &str) -> Option<Obstacle> {
        let index = self.queues.find(tenant, queue);
        if index.is_some_and(|index| self.is_packed(index, partition)) {
            return Some(Obstacle::Packed);
        }
        let name = PartitionName { tenant, queue: queue.into(), partition: partition.into() };
        self.handover.arrivals.holding_back(&name).map(Obstacle::Arriving)
    }

    /// Whether a partition is packed.
    pub(crate) fn is_packed(&self, index: QueueIndex, partition: &str) -> bool {
        let rings = &self.queues.get(index).rings;
        self.handover.packed_count > 0 && rings.find(partition).is_some_and(|ring| rings.get(ring).packed().is_some())
    }

    /// A command waits for its partition, charged to the node.
    fn hold_back(&mut self, now: Time, arrival: u64, ticket: Ticket, command: Command<'_>, standing: Standing) -> Result<(), Refusal> {
        let cost = cost_of(&command);
        let entry = self.handover.arrivals.get_mut(arrival);
        if entry.is_overdue || entry.held.len() >= ARRIVAL_COMMANDS_MAX || entry.cost + cost > ARRIVAL_BYTES_MAX {
            return Err(Refusal::NotHereYet);
        }
        if !self.ledger.budget.bytes.charge(cost) {
            return Err(Refusal::NodeBytes);
        }
        let since = matches!(command, Command::Pop { .. }).then(|| standing.since.unwrap_or(now));
        let until = match command {
            Command::Pop { wait_until: Some(until), .. } if until > now => until,
            Command::Call { until, .. } => until,
            _ => Time::NEVER,
        };
        let standing = Standing { since, ..standing };
        self.handover.arrivals.hold(arrival, Held { ticket, command: command.into_owned(), standing, until, cost });
        Ok(())
    }

    /// Lets commands that waited go, uncharged.
    pub(super) fn uncharge_held(&self, held: &[Held]) {
        self.ledger.budget.bytes.release(held.iter().map(|held| held.cost).sum());
    }

    /// The client of a command that waits for its partition hung up.
    pub(crate) fn forget_held_back(&mut self, ticket: Ticket) {
        if let Some(held) = self.handover.arrivals.take_ticket(ticket) {
            self.uncharge_held(&[held]);
        }
    }

    /// What time does to commands that wait for their partition: each ends at its own timeout, and all when it is overdue.
    pub(crate) fn arrivals_due(&mut self, now: Time, out: &mut impl Outbox) {
        while let Some((held, is_overdue)) = self.handover.arrivals.pop_due(now) {
            self.uncharge_held(&held);
            for Held { ticket, command, .. } in held {
                match command.request {
                    _ if is_overdue => self.refuse(ticket, Refusal::NotHereYet, out),
                    OwnedRequest::Call { .. } => out.answer(ticket, Answer::NoReply),
                    _ => {
                        out.begin_delivery(ticket, &command.queue);
                        out.end_delivery(smallvec::SmallVec::new());
                    }
                }
            }
        }
    }
}

/// What the node is charged for a command that waits.
fn cost_of(command: &Command<'_>) -> u64 {
    let of_payloads = match command {
        Command::Push { payloads, .. } | Command::Call { payloads, .. } => {
            Ledger::node_bytes(payloads.len() as u64, payloads.iter().map(|payload| payload.len() as u64).sum())
        }
        Command::Ack { items, .. } => Ledger::node_bytes(items.len() as u64, 0),
        _ => 0,
    };
    WAITER_OVERHEAD_BYTES + of_payloads
}
