//! What must be true once nothing is under way, and at the end of a run.

use std::sync::Arc;

use mayfly_shards::{Answer, Command, DropCause, OwnedCommand, OwnedRequest, QueueReport, Refusal, Span, TENANT_IDLE, Usage, home_shard};

use crate::clients::{Clients, Expected, GROUPS, Pop, QUEUES, TENANTS, tenant_of};
use crate::world::Heard;

impl Clients {
    /// Until nothing is under way; hearing an answer may set more off.
    pub(crate) fn come_to_rest(&mut self) {
        loop {
            self.world.settle();
            self.hear();
            if self.world.is_quiet() && self.world.heard.is_empty() {
                return self.world.check_holdings();
            }
        }
    }

    /// Nothing is under way: whoever still waits must have nothing to wait for.
    pub(crate) fn check_nobody_sleeps_on_something(&mut self) {
        if self.habits.windows {
            return;
        }
        let waiting: Vec<Pop> = self.parked().map(|(_, pop)| pop.clone()).collect();
        let now = self.world.now;
        for pop in waiting.into_iter().filter(|pop| !pop.is_cancelled && pop.until.is_some_and(|until| until > now)) {
            let pending = self.pending(pop.queue, pop.group, pop.partition);
            assert_eq!(pending, 0, "{pop:?} sleeps at {:?} while {pending} messages are there for it", self.world.now);
        }
    }

    /// A queue's parts.
    fn parts(&mut self, queue: &'static str) -> Vec<QueueReport> {
        let request = OwnedRequest::List { prefix: queue.into(), after: "".into(), limit: 1 };
        let answers = self.world.inspect(|| OwnedCommand { tenant: tenant_of(queue), queue: Arc::from(queue), request: request.clone() });
        answers.into_iter().filter_map(|answer| if let Answer::Listed(rows) = answer { Some(rows) } else { None }).flatten().collect()
    }

    /// Nothing holds more than its bound, but for what was taken back; nothing is collected while it holds messages.
    pub(crate) fn check_bounds(&mut self) {
        let abandoned = self.world.sum(|gauges| gauges.dropped[DropCause::Abandoned as usize]);
        assert_eq!(abandoned, 0, "messages were collected with their queue");
        if !self.habits.is_tight {
            return;
        }
        let bounds = self.habits.defaults();
        for queue in QUEUES {
            let parts = self.parts(queue);
            let (depth, bytes) = parts.iter().fold((0, 0), |sum, part| (sum.0 + part.depth, sum.1 + part.bytes));
            let has_group = parts.iter().all(|part| part.groups > 0);
            assert!(depth == 0 || has_group || !self.debts.has_group(queue), "{queue} has lost its last group");
            assert!(depth <= u64::from(bounds.max_length) + self.returned, "{queue} holds {depth} messages");
            assert!(bytes <= bounds.max_bytes + self.returned * 16, "{queue} holds {bytes} bytes");
        }
    }

    /// A queue that was drained has room for all it may hold: nothing is charged for what is gone.
    fn check_room(&mut self, queue: &'static str) {
        let parts = self.parts(queue);
        let Some(home) = parts.iter().find(|part| part.is_home) else { return };
        let (count, depth) = (u64::from(home.options.max_length), parts.iter().map(|part| part.depth).sum::<u64>());
        assert_eq!(depth, 0, "{queue} was drained");
        self.habits.is_tight = false; // Payloads without padding.
        let ticket = self.push_to(queue, "a", count);
        self.world.settle();
        let is_full = |refusal: &Refusal| matches!(refusal, Refusal::QueueFull { .. });
        let refused = self
            .world
            .heard
            .iter()
            .find(|(_, of, heard)| *of == ticket && matches!(heard, Heard::Answer(Answer::Refused(refusal)) if is_full(refusal)));
        assert!(refused.is_none(), "{queue} is empty and has no room for {count}");
        self.come_to_rest();
    }

    /// Messages there for a group, in one partition or all; of a queue that exists.
    fn pending(&mut self, queue: &'static str, group: &'static str, partition: Option<&str>) -> u64 {
        let request = OwnedRequest::Depth { group: Some(group.into()) };
        let answers = self.world.inspect(|| OwnedCommand { tenant: tenant_of(queue), queue: Arc::from(queue), request: request.clone() });
        let parts = answers.into_iter().filter_map(|answer| if let Answer::Depth(report) = answer { report } else { None });
        parts
            .flat_map(|part| part.partitions)
            .filter(|part| partition.is_none_or(|name| *part.partition == *name))
            .map(|part| part.pending)
            .sum()
    }

    /// Everything comes to rest; a group that was there from the beginning must have seen every message, and nothing may be left.
    pub(crate) fn finish(mut self) {
        TENANTS.into_iter().for_each(|tenant| self.world.grant(0, tenant, None));
        // Longer than any wait, lease and redelivery.
        for _ in 0..6 {
            self.world.run_until(self.world.now + Span::from_secs(4));
            self.come_to_rest();
        }
        // A pop or call whose client hung up may end unanswered.
        self.expected.retain(|_, expected| match expected {
            Expected::Pop(pop) => !pop.is_cancelled,
            Expected::Call(call) => call.cancelled_at.is_none(),
            _ => true,
        });
        assert!(self.expected.is_empty(), "never answered: {:?}", self.expected);
        assert_eq!(self.world.sum(|gauges| gauges.waiters), 0, "waiters are left");
        assert_eq!(self.world.sum(|gauges| gauges.calls), 0, "calls are left");
        self.habits.broken_answers = false;
        self.check_drain();
        for queue in QUEUES {
            self.check_room(queue);
            self.debts.change_begins(queue);
            let ticket = self.ticket(Expected::Change { queue, asked_at: self.world.now });
            let of = home_shard(tenant_of(queue), queue, self.world.shard_count());
            self.world.ask(0, of, ticket, Command::Delete { tenant: tenant_of(queue), queue, at: 1 });
            self.come_to_rest();
        }
        assert_eq!(self.world.budget.bytes.used(), 0, "bytes are left");
        for tenant in TENANTS {
            let Usage { bytes, queues, parked, .. } = self.world.budget.usage(tenant);
            assert_eq!((bytes, queues, parked), (0, 0, 0), "{tenant:?} is still charged");
        }
        assert_eq!(self.world.sum(|gauges| gauges.queues), 0, "queue parts are left");
        assert_eq!(self.world.sum(|gauges| gauges.deadlines), 0, "deadlines are left");
        self.world.run_until(self.world.now + Span(3 * TENANT_IDLE.0));
        assert_eq!((self.world.budget.tenant_count(), self.world.next_event()), (1, None), "only the default tenant is known");
    }

    /// Drains every queue for one group: it gets everything that is held, and the ledger closes.
    fn check_drain(&mut self) {
        for queue in QUEUES {
            for group in GROUPS {
                for _ in 0..400 {
                    let before = self.pending(queue, group, None);
                    if before == 0 {
                        break;
                    }
                    self.pop_of(queue, None, group, None, true, 4);
                    self.come_to_rest();
                    let got = before - self.pending(queue, group, None);
                    let is_full = got == before.min(4) || (self.habits.is_bulky && got > 0);
                    assert!(is_full, "{group} gets {got} of {queue} though {before} are there");
                }
            }
        }
        self.check_bounds();
        let lost = self.world.sum(|gauges| gauges.dropped[DropCause::Bounds as usize] + gauges.dropped[DropCause::GroupIdle as usize]);
        for (queue, group, payload) in self.debts.owed().filter(|_| lost == 0) {
            assert!(self.oracle.has_seen(group, *payload), "{group} of {queue} never got {payload}, pushed after it was known");
        }
        // What ends a call is no loss.
        let of_calls = [DropCause::LateReply, DropCause::Withdrawn];
        let causes = || DropCause::ALL.into_iter().filter(|cause| !of_calls.contains(cause));
        let dropped = self.world.sum(|gauges| causes().map(|cause| gauges.dropped[cause as usize]).sum());
        if self.habits.changes || dropped > 0 {
            return;
        }
        for queue in QUEUES {
            let is_pushed = |payload: &u64| !self.called.contains(payload);
            let of_queue = self.oracle.pushed.iter().filter(|(_, name)| **name == *queue);
            let pushed = of_queue.filter(|(payload, _)| is_pushed(payload)).count();
            assert_eq!(
                self.oracle.seen(queue).iter().filter(|payload| is_pushed(payload)).count(),
                pushed,
                "{queue}: every message reached somebody"
            );
        }
    }
}
