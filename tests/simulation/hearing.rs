//! What clients make of an answer: what they note, what they do next, and what they may not be told.
//!
//! - A waiting pop is answered with nothing only once its time is up.
//! - A message goes to the pop of its group that waits longest, of those that could take it (beyond what a few hops explain).
//! - A call hears the answer to its own request, once, or at its timeout that there is none; none fails fast while a pop stands parked.
//! - A live lease can be acked; a queue that drops its oldest refuses no push for room.

use mayfly_shards::{Answer, Outcome, Policy, Receipt, Refusal, Span, Ticket, Time, Undelivered, inbox_of};

use crate::clients::{Call, Clients, Expected, Held, Pop};
use crate::habits::DEFAULTS;
use crate::world::{Got, Heard};

/// Longer than letters, deferrals and freezes can take between a client's asking and its being parked.
pub(crate) const HOPS: Span = Span::from_millis(100);

const LEASE: Span = Span::from_secs(DEFAULTS.lease_seconds as u64);

/// Answers take a while to get here: a lease began at most that much earlier.
const LATENESS: Span = Span::from_millis(40);

impl Clients {
    pub(crate) fn hear(&mut self) {
        for (at, ticket, heard) in std::mem::take(&mut self.world.heard) {
            if self.world.is_traced {
                eprintln!("{at:?} {ticket:?} hears {heard:?}");
            }
            let expected = self.expected.remove(&ticket).unwrap_or_else(|| panic!("{ticket:?} is answered twice: {heard:?}"));
            self.heard(at, ticket, expected, heard);
        }
    }

    fn heard(&mut self, at: Time, ticket: Ticket, expected: Expected, heard: Heard) {
        match (expected, heard) {
            (Expected::Push { queue, payloads, groups, epoch }, Heard::Answer(Answer::Pushed(_))) => {
                self.use_queue(queue, None, at, true);
                self.debts.pushed(queue, &groups, epoch, &payloads);
                self.oracle.accepted.extend(payloads.into_iter().map(|payload| (payload, at)));
            }
            (Expected::Push { payloads, .. }, Heard::Answer(Answer::Refused(refusal))) => {
                assert!(refusal != Refusal::NoConsumers, "a push of {payloads:?} needs nobody who listens");
                let drops_oldest = self.habits.is_tight && self.habits.policy == Policy::DropOldest;
                let is_for_room = refusal == Refusal::QueueFull { can_fit: true };
                assert!(!(drops_oldest && is_for_room), "a queue that drops its oldest refuses {payloads:?}");
                for payload in payloads {
                    self.oracle.pushed.remove(&payload);
                }
            }
            (Expected::Pop(pop), Heard::Messages(messages, receipts)) => {
                self.use_queue(pop.queue, Some(pop.group), at, true);
                self.debts.answered(pop.queue, pop.group, pop.epoch, ticket);
                self.check_turn(at, &pop, &messages);
                self.got(at, pop, messages, receipts);
            }
            (Expected::Pop(_), Heard::Answer(Answer::Refused(_))) => self.debts.hung_up(ticket),
            (Expected::Call(call), Heard::Reply(answer)) => {
                self.use_queue(call.queue, None, at, false);
                assert_eq!(answer, call.payload, "{call:?} heard another's answer");
                self.check_not_gone(&call, at);
            }
            (Expected::Call(call), Heard::Answer(Answer::NoReply)) => {
                assert!(at >= call.until, "{call:?} heard too early, at {at:?}, that nobody answers");
                self.check_not_gone(&call, at);
            }
            // Its grant was withdrawn, maybe while it waited: the request may have reached somebody, or may yet.
            (Expected::Call(_), Heard::Answer(Answer::Refused(Refusal::NotGranted))) => {}
            (Expected::Call(call), Heard::Answer(Answer::Refused(refusal))) => {
                assert!(refusal != Refusal::NoConsumers || !self.is_listened_to(&call, at), "{call:?} is told that nobody listens");
                self.called.remove(&call.payload);
                self.oracle.pushed.remove(&call.payload);
            }
            (Expected::Reply { request }, Heard::Answer(Answer::Replied(refused))) => assert_eq!(refused, [], "{request}"),
            (Expected::Ack { queue, group, items, asked_at }, Heard::Answer(Answer::Acked(outcomes))) => {
                self.use_queue(queue, Some(group), at, false);
                for ((payload, delivery, verdict), (_, outcome)) in items.into_iter().zip(outcomes) {
                    let may_be_gone = self.habits.changes || (self.habits.is_tight && self.habits.policy == Policy::DropOldest);
                    let is_live = self.oracle.is_leased(group, payload, delivery, at.max(asked_at));
                    let is_known = !matches!(outcome, Outcome::Unknown | Outcome::Stale);
                    assert!(may_be_gone || !is_live || is_known, "{group} acks its lease of {payload} and hears {outcome:?}");
                    self.oracle.acked(group, payload, delivery, verdict, outcome);
                }
            }
            (Expected::Change { queue, asked_at }, Heard::Answer(Answer::Reset(_) | Answer::Deleted { .. })) => {
                let stood = |pop: &Pop| pop.queue == queue && pop.asked_at + HOPS < asked_at && !pop.is_cancelled && pop.until > Some(at);
                let parked = self.parked().filter(|(_, pop)| stood(pop)).map(|(ticket, pop)| (pop.group, ticket)).collect();
                self.debts.change_ends(queue, parked);
                self.oracle.changed(queue, asked_at, at);
            }
            (Expected::Configure, Heard::Answer(Answer::Configured | Answer::Refused(_))) => {}
            (expected, heard) => panic!("{expected:?} was answered {heard:?}"),
        }
    }

    /// A call whose client hung up is forgotten at once.
    fn check_not_gone(&self, call: &Call, at: Time) {
        assert!(call.cancelled_at.is_none_or(|gone_at| at <= gone_at + HOPS), "{call:?} is answered at {at:?}, long after its client left");
    }

    /// Whether a pop stood parked all the while that could take what the call pushes.
    fn is_listened_to(&self, call: &Call, at: Time) -> bool {
        self.parked().any(|(_, pop)| {
            pop.queue == call.queue
                && pop.partition.is_none_or(|partition| partition == call.partition)
                && pop.asked_at + HOPS < call.asked_at
                && !pop.is_cancelled
                && pop.until > Some(at)
        })
    }

    /// Pops not answered.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (Ticket, &Pop)> {
        self.expected.iter().filter_map(|(ticket, expected)| if let Expected::Pop(pop) = expected { Some((*ticket, pop)) } else { None })
    }

    /// A waiting pop is answered too early, or before an older one?
    fn check_turn(&self, given_at: Time, pop: &Pop, messages: &[Got]) {
        let Some(until) = pop.until else { return };
        let Some(first) = messages.first() else {
            assert!(pop.is_cancelled || given_at >= until, "{pop:?} is answered with nothing at {given_at:?}");
            return;
        };
        // Which is older takes a hop to be known.
        if self.habits.windows {
            return;
        }
        let could_take = |other: &Pop| {
            (other.queue, other.group) == (pop.queue, pop.group)
                && other.partition.is_none_or(|partition| *partition == *first.partition)
                && other.asked_at + HOPS < pop.asked_at
                && !other.is_cancelled
                && other.until > Some(given_at)
        };
        let overtaken = self.parked().find(|(_, other)| could_take(other));
        assert!(overtaken.is_none(), "{pop:?} got {first:?} at {given_at:?} before {overtaken:?}");
    }

    fn got(&mut self, given_at: Time, pop: Pop, messages: Vec<Got>, receipts: Vec<Receipt>) {
        let Pop { at, queue, group, auto_ack, is_cancelled, .. } = pop;
        self.requests.extend(messages.iter().filter_map(|got| Some((inbox_of(got.seq)?, got.payload, queue))));
        if is_cancelled || (self.habits.broken_answers && self.random.chance(15)) {
            // The client is gone, or its connection breaks under the answer.
            let how = if is_cancelled || self.random.chance(60) { Undelivered::Unsent } else { Undelivered::Partly };
            let (is_unsent, is_late) = (how == Undelivered::Unsent, given_at + LEASE <= self.world.now + LATENESS);
            for got in &messages {
                // In the middle, what was settled at delivery is spent; the rest comes back.
                self.oracle.given(group, std::slice::from_ref(got), auto_ack, given_at, given_at);
                if is_unsent || !auto_ack {
                    self.oracle.taken_back(group, got, is_unsent, is_late && !auto_ack);
                }
            }
            self.returned += if is_unsent && auto_ack && !is_cancelled { messages.len() as u64 } else { 0 };
            receipts.into_iter().for_each(|receipt| self.world.undeliver(at, receipt, how));
            return;
        }
        self.oracle.given(group, &messages, auto_ack, given_at, given_at + LEASE - LATENESS);
        if !auto_ack {
            self.held.extend(messages.into_iter().map(|got| Held { queue, group, got }));
        }
    }
}
