//! Calls and replies: an inbox is a call that waits, found by its request's number.

use mayfly_shards::{Answer, DropCause, LISTENING_SPAN, Refusal, Tenant, Time};

use super::Model;
use super::queue::{State, Why};
use crate::facts::{Fact, Name, Pushed, ReplyTo, Said};

/// A call that waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(super) ticket: u64,
    pub(super) tenant: Tenant,
    /// The message it pushed.
    pub(super) id: u64,
    pub(super) until: Time,
    /// Its request is on another node.
    pub(super) is_moved: bool,
}

impl Model {
    pub(super) fn call(&mut self, ticket: u64, name: &Name, partition: &str, request: Pushed, until: Time, fail_fast: bool) {
        if let Err(refusal) = self.spend_rate(name.tenant, 1) {
            return self.answer(ticket, Answer::Refused(refusal));
        }
        // CHOICE: asked after the rate and before every bound.
        if fail_fast && !self.is_listened_to(name, partition) {
            return self.answer(ticket, Answer::Refused(Refusal::NoConsumers));
        }
        if let Err(refusal) = self.check_tenant(name, request.size_bytes as u64, 1) {
            return self.answer(ticket, Answer::Refused(refusal));
        }
        let is_over = self.is_over_node_bytes();
        // It waits from the first, so that its inbox is charged with its message.
        self.calls.push(Call { ticket, tenant: name.tenant, id: request.id, until, is_moved: false });
        self.call_requests.insert(request.id);
        match self.append_anyhow(name, partition, &[request], is_over) {
            Ok(()) => {
                self.pushed.push((name.tenant, 1));
                self.serve_waiters();
            }
            Err(refusal) => {
                self.calls.retain(|call| call.ticket != ticket);
                self.answer(ticket, Answer::Refused(refusal));
            }
        }
    }

    /// Whether a pop is parked that could take from the partition, a lease is live in it, or such a pop was answered a moment ago.
    fn is_listened_to(&self, name: &Name, partition: &str) -> bool {
        let reaches = |of: Option<&str>| of.is_none_or(|of| of == partition);
        let is_parked = self.waiters.iter().any(|w| w.queue == *name && reaches(w.partition.as_deref()));
        let Some(queue) = self.find(name).map(|at| &self.queues[at]) else { return false };
        let here = || queue.messages.iter().filter(|m| m.partition == partition);
        let is_leased = here().any(|m| queue.groups.iter().any(|g| matches!(g.states[&m.id], State::Leased { .. })));
        let is_recent = |at: Time| self.now < at + LISTENING_SPAN;
        let was_answered = queue.answered.iter().any(|(of, at)| reaches(of.as_deref()) && is_recent(*at));
        is_parked || is_leased || was_answered
    }

    pub(super) fn reply(&mut self, ticket: u64, tenant: Tenant, items: &[ReplyTo]) {
        let mut refused = vec![];
        for (index, item) in (0..).zip(items) {
            // CHOICE: each answer spends the rate for itself; an answer of several messages, all or nothing.
            if let Err(refusal) = self.spend_rate(tenant, 1 + item.late_count as usize) {
                refused.push((index, refusal));
                continue;
            }
            self.pushed.push((tenant, 1 + u64::from(item.late_count)));
            self.ended[DropCause::LateReply as usize] += u64::from(item.late_count);
            let found = self.calls.iter().position(|call| Some(call.id) == item.request && call.tenant == tenant);
            match found {
                Some(at) => {
                    let call = self.calls.remove(at);
                    if !self.leave_behind(&call) {
                        self.withdraw(call.id);
                    }
                    self.delivered.push((tenant, 1));
                    self.said.push(Fact { ticket: call.ticket, said: Said::Reply(item.answer.id) });
                }
                None => self.ended[DropCause::LateReply as usize] += 1,
            }
        }
        self.answer(ticket, Answer::Replied(refused));
    }

    /// Calls whose time is up are told so, and what nobody took of them goes.
    pub(super) fn time_out_calls(&mut self) {
        let (over, waiting): (Vec<Call>, Vec<Call>) = self.calls.drain(..).partition(|call| call.until <= self.now);
        self.calls = waiting;
        for call in over {
            self.withdraw(call.id);
            self.answer(call.ticket, Answer::NoReply);
        }
        self.withdraw_left_behind();
    }

    /// The caller is gone.
    pub(super) fn hang_up_call(&mut self, ticket: u64) {
        if let Some(at) = self.calls.iter().position(|call| call.ticket == ticket) {
            let call = self.calls.remove(at);
            if !self.leave_behind(&call) {
                self.withdraw(call.id);
            }
        }
    }

    /// A request came back unread: with its call over, it has no reason to stay.
    pub(super) fn withdraw_if_over(&mut self, id: u64) {
        let is_waiting = self.calls.iter().any(|call| call.id == id) || self.left_behind.iter().any(|(of, _)| *of == id);
        if self.call_requests.contains(&id) && !is_waiting {
            self.withdraw(id);
        }
    }

    /// Takes a message out of its queue, unless a group was given it. CHOICE: what came back without costing an attempt was not given; nor
    /// was what a private group passed.
    pub(super) fn withdraw(&mut self, id: u64) {
        let is_untaken = |state: &State| {
            matches!(state, State::Unread | State::Settled { delivery: 0 } | State::Back { attempts: 1, why: Why::Returned, .. })
        };
        let holds = |queue: &&mut super::queue::Queue| queue.message(id).is_some();
        let Some(queue) = self.queues.iter_mut().find(holds) else { return };
        if queue.groups.iter().all(|g| is_untaken(&g.states[&id])) {
            queue.messages.retain(|m| m.id != id);
            queue.groups.iter_mut().for_each(|g| _ = g.states.remove(&id));
            self.ended[DropCause::Withdrawn as usize] += 1;
            if queue.messages.is_empty() {
                queue.emptied_at = self.now;
            }
        }
    }
}
