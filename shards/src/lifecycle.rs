//! Configure, undeclare, reset, delete: given to a queue's home, which tells every part before it answers.
//!
//! What is declared is agreed on elsewhere, and a shard carries it out whatever its bounds are: they are asked before, by [`Shard::admit_declaration`].

use std::sync::Arc;

use crate::command::{Command, DropCause, Refusal};
use crate::home::OpKind;
use crate::letter::Order;
use crate::link::Link;
use crate::name::Tenant;
use crate::options::Options;
use crate::outbox::{Answer, Outbox, Ticket};
use crate::queue::QueueIndex;
use crate::shard::Shard;
use crate::tenant::Reservation;
use crate::time::Time;

impl Shard {
    /// Asks whether a queue, whose home this is, may be declared, and reserves what it will be charged: nothing when it exists.
    ///
    /// # Errors
    /// The grant that is missing, or the bound that has no room.
    pub fn admit_declaration(&mut self, tenant: Tenant, queue: &str) -> Result<Reservation, Refusal> {
        if !self.tenants.admits(tenant) {
            return Err(Refusal::NotGranted);
        }
        let exists = self.queues.find(tenant, queue).is_some_and(|index| self.queues.get(index).exists);
        if exists {
            return Ok(Reservation::nothing());
        }
        let budget = self.tenants.obtain(tenant).ok_or(Refusal::TooManyTenants)?;
        Reservation::of_queue(Arc::clone(&self.ledger.budget), Arc::clone(budget))
    }

    pub(crate) fn configure(&mut self, now: Time, ticket: Ticket, command: Command<'_>, out: &mut impl Outbox) {
        let Command::Configure { tenant, queue, options, at } = command else { unreachable!("a configure") };
        let found = self.queues.find(tenant, queue);
        if let Some(index) = found.filter(|index| self.queues.get(*index).link.holds_back()) {
            return self.defer(index, ticket, command.into_owned(), None);
        }
        let index = match found.filter(|index| self.queues.get(*index).exists) {
            Some(index) => index,
            None => {
                self.ledger.budget.charge_agreed_queue(self.tenants.agreed(tenant));
                self.insert_queue(tenant, queue, now)
            }
        };
        let queue = self.queues.get_mut(index);
        queue.used_at = now;
        queue.aside.get_or_insert_default().declared_at = at;
        self.set_options(now, index, options, true, out);
        match self.queues.get(index).link {
            Link::Home(_) => self.begin_op(now, index, OpKind::Configure { ticket }, Order::SetOptions(options, true), out),
            Link::Alone | Link::Member(_) => out.answer(ticket, Answer::Configured),
        }
    }

    /// The queue goes on as if it had never been declared: with what it holds, and the options of any other.
    pub(crate) fn undeclare(&mut self, now: Time, ticket: Ticket, command: Command<'_>, out: &mut impl Outbox) {
        let Command::Undeclare { tenant, queue } = command else { unreachable!("an undeclare") };
        let Some(index) = self.find_for_change(ticket, tenant, queue, command) else { return };
        let Some(index) = index.filter(|index| self.queues.get(*index).exists && self.queues.get(*index).is_declared) else {
            return out.answer(ticket, Answer::Undeclared);
        };
        self.queues.get_mut(index).used_at = now;
        let options = *self.default_options;
        self.set_options(now, index, options, false, out);
        self.arm_queue(now, index);
        match self.queues.get(index).link {
            Link::Home(_) => self.begin_op(now, index, OpKind::Undeclare { ticket }, Order::SetOptions(options, false), out),
            Link::Alone | Link::Member(_) => out.answer(ticket, Answer::Undeclared),
        }
    }

    /// Puts options in force on this part.
    pub(crate) fn set_options(&mut self, now: Time, index: QueueIndex, options: Options, is_declared: bool, out: &mut impl Outbox) {
        let queue = self.queues.get_mut(index);
        queue.options = Arc::new(options);
        queue.is_declared = is_declared;
        if options.ttl_seconds > 0 {
            for ring in queue.rings.indexes() {
                self.arm_ring_ttl(index, ring);
            }
        }
        // What outlived a ttl that is new goes before anyone is offered it.
        self.expire(now, out);
        self.wake_all(now, index, out);
    }

    pub(crate) fn reset(&mut self, now: Time, ticket: Ticket, command: Command<'_>, out: &mut impl Outbox) {
        let Command::Reset { tenant, queue } = command else { unreachable!("a reset") };
        let Some(index) = self.find_for_change(ticket, tenant, queue, command) else { return };
        let Some(index) = index.filter(|index| self.queues.get(*index).exists) else { return out.answer(ticket, Answer::Reset(0)) };
        let dropped = self.drop_contents(now, index, DropCause::Reset);
        match self.queues.get(index).link {
            Link::Home(_) => self.begin_op(now, index, OpKind::Reset { ticket, dropped }, Order::Wipe(DropCause::Reset), out),
            Link::Alone | Link::Member(_) => out.answer(ticket, Answer::Reset(dropped)),
        }
    }

    /// Drops what a queue's home holds and voids its leases; how much.
    fn drop_contents(&mut self, now: Time, index: QueueIndex, cause: DropCause) -> u64 {
        let generation = self.next_generation();
        let dropped = self.wipe(now, index, cause);
        let queue = self.queues.get_mut(index);
        queue.generation = generation;
        queue.used_at = now;
        self.arm_queue(now, index);
        dropped
    }

    pub(crate) fn delete(&mut self, now: Time, ticket: Ticket, command: Command<'_>, out: &mut impl Outbox) {
        let Command::Delete { tenant, queue, at } = command else { unreachable!("a delete") };
        let Some(index) = self.find_for_change(ticket, tenant, queue, command) else { return };
        let Some(index) = index.filter(|index| self.queues.get(*index).exists) else {
            return out.answer(ticket, Answer::Deleted { deleted: false, declared: false });
        };
        let queue = self.queues.get(index);
        let declared = queue.is_declared;
        if declared && queue.aside.as_ref().is_some_and(|aside| aside.declared_at > at) {
            // Declared anew since, by whom this deletion had not reached: what it holds goes all the same.
            self.drop_contents(now, index, DropCause::Deleted);
            let is_home = matches!(self.queues.get(index).link, Link::Home(_));
            return match is_home {
                true => self.begin_op(now, index, OpKind::Delete { ticket, declared }, Order::Wipe(DropCause::Deleted), out),
                false => out.answer(ticket, Answer::Deleted { deleted: true, declared }),
            };
        }
        let generation = self.next_generation();
        self.wipe(now, index, DropCause::Deleted);
        self.queues.get_mut(index).generation = generation;
        self.forget_queue(index);
        match self.queues.get(index).link {
            Link::Home(_) => self.begin_op(now, index, OpKind::Delete { ticket, declared }, Order::Delete, out),
            Link::Alone | Link::Member(_) => {
                self.reap(index, out);
                out.answer(ticket, Answer::Deleted { deleted: true, declared });
            }
        }
    }

    /// The queue of a reset or delete; None: the command was deferred.
    fn find_for_change(&mut self, ticket: Ticket, tenant: Tenant, queue: &str, command: Command<'_>) -> Option<Option<QueueIndex>> {
        let found = self.queues.find(tenant, queue);
        match found.filter(|index| self.queues.get(*index).link.holds_back()) {
            Some(index) => {
                self.defer(index, ticket, command.into_owned(), None);
                None
            }
            None => Some(found),
        }
    }
}
