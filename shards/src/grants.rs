//! A tenant lost its grant: whoever waits for it here is told so at once.
//!
//! What the tenant holds stays. Commands that wait for other cores find out when they go on; what was admitted before is done.

use std::cmp::Reverse;

use crate::command::Refusal;
use crate::name::Tenant;
use crate::outbox::{Outbox, Ticket};
use crate::shard::Shard;
use crate::time::Time;
use crate::waiters::WaiterState;

impl Shard {
    /// Refuses every parked pop and every call of a tenant that may not use the family any more.
    pub fn turn_away(&mut self, now: Time, tenant: Tenant, out: &mut impl Outbox) {
        self.expire(now, out);
        if self.tenants.admits(tenant) {
            return;
        }
        for ticket in self.parked_of(tenant) {
            if let Some(waiter) = self.waiters.find(ticket) {
                self.cancel_waiter(now, waiter, out);
                self.refuse(ticket, Refusal::NotGranted, out);
            }
        }
        for (call, ticket) in self.calls.of_tenant(tenant) {
            self.cancel_call(now, call);
            self.refuse(ticket, Refusal::NotGranted, out);
        }
    }

    /// The youngest first, so that none is given what an older one's window held. One whose client hung up is not told anything.
    fn parked_of(&self, tenant: Tenant) -> Vec<Ticket> {
        let is_meant = |queue| self.queues.get(queue).tenant() == tenant;
        let waiters = self.waiters.all().filter(|waiter| waiter.state != WaiterState::Gone && is_meant(waiter.queue));
        let mut parked: Vec<_> = waiters.map(|waiter| (Reverse(waiter.age()), waiter.ticket)).collect();
        parked.sort_unstable();
        parked.into_iter().map(|(_, ticket)| ticket).collect()
    }
}
