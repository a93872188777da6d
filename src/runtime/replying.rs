//! A reply request on its way: first its answers are pushed, then their requests acked, then more is popped, each when all cores have
//! answered what came before. It goes on although its client is gone, so that what was answered is settled.

use std::borrow::Cow;

use mayfly_shards::{Answer, Outcome, Tenant};

use super::gather::SpelledIds;
use crate::api::call::{self, ReplyOutcome};
use crate::api::id::MessageId;
use crate::api::query::PopRequest;

/// A result without its id.
const RESULT_BYTES: usize = 32;

/// What was answered so far.
#[derive(Debug)]
pub(super) struct Replying {
    ids: SpelledIds,
    outcomes: Vec<ReplyOutcome>,
    /// The items that went to queues, in the order of their tickets.
    to_queues: Vec<u32>,
    /// Answers of shards that are still to come.
    pub(super) awaiting: usize,
    /// Whether other parts of it may be done when one fails.
    pub(super) has_other_parts: bool,
    /// What is left to do when they came; None while the core is giving commands.
    pub(super) rest: Option<Rest<'static>>,
}

/// What a reply asks for beside the pushes.
#[derive(Debug)]
pub(super) struct Rest<'a> {
    pub(super) tenant: Tenant,
    pub(super) queue: Cow<'a, str>,
    pub(super) group: Cow<'a, str>,
    /// The deliveries of this incarnation to ack, each with its item's place.
    pub(super) acks: Vec<(u32, MessageId<'a>)>,
    pub(super) next: Option<PopRequest<'a>>,
}

impl Rest<'_> {
    /// The same, independent of the request's body.
    pub(super) fn into_owned(self) -> Rest<'static> {
        let own = |name: Cow<'_, str>| Cow::Owned(name.into_owned());
        Rest {
            tenant: self.tenant,
            queue: own(self.queue),
            group: own(self.group),
            acks: self.acks.into_iter().map(|(index, id)| (index, id.into_owned())).collect(),
            next: self.next.map(PopRequest::into_owned),
        }
    }
}

impl Replying {
    pub(super) fn new(ids: SpelledIds, outcomes: Vec<ReplyOutcome>, to_queues: Vec<u32>, awaiting: usize) -> Self {
        Self { ids, outcomes, to_queues, awaiting, has_other_parts: awaiting > 1, rest: None }
    }

    /// Takes the answer to the request's `nth` ticket. Whether there is something left to do now.
    pub(super) fn add(&mut self, nth: u64, answer: Answer) -> bool {
        self.awaiting -= 1;
        match answer {
            Answer::Replied(refused) => {
                for (index, refusal) in refused {
                    self.note(index, ReplyOutcome::Refused(refusal));
                }
            }
            Answer::Acked(outcomes) => {
                for (index, outcome) in outcomes {
                    self.note(index, ReplyOutcome::Acked(outcome));
                }
            }
            Answer::Refused(refusal) => {
                let index = (nth as usize).checked_sub(1).and_then(|nth| self.to_queues.get(nth)).copied();
                if let Some(index) = index {
                    self.note(index, ReplyOutcome::Refused(refusal));
                }
            }
            _ => {}
        }
        self.awaiting == 0 && self.rest.is_some()
    }

    /// Another node may say more than it was asked for.
    fn note(&mut self, index: u32, outcome: ReplyOutcome) {
        if let Some(known) = self.outcomes.get_mut(index as usize) {
            *known = outcome;
        }
    }

    /// Whether it has an `nth` ticket.
    pub(super) fn covers(&self, nth: u64) -> bool {
        nth <= self.to_queues.len() as u64
    }

    /// Whether an item's push was refused.
    pub(super) fn is_refused(&self, index: u32) -> bool {
        matches!(self.outcomes[index as usize], ReplyOutcome::Refused(_))
    }

    /// About what the results take.
    pub(super) fn results_bytes(&self) -> usize {
        RESULT_BYTES * (1 + self.outcomes.len()) + self.ids.bytes()
    }

    /// Appends the results.
    pub(super) fn render(&self, out: &mut Vec<u8>) {
        call::results(out, self.ids.iter().zip(&self.outcomes));
    }
}

/// What an ack says of a delivery when nobody is asked.
pub(super) fn unasked_outcome(id: Option<&MessageId<'_>>, incarnation: u64) -> Outcome {
    // An id of another incarnation is stale, whatever else it says.
    if id.is_some_and(|id| id.incarnation != incarnation) { Outcome::Stale } else { Outcome::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_node_says_of_items_that_nobody_asked_about_is_dropped() {
        let mut ids = SpelledIds::default();
        ids.push(b"one");
        let mut replying = Replying::new(ids, vec![ReplyOutcome::Acked(Outcome::Unknown)], Vec::new(), 3);
        replying.add(0, Answer::Acked(vec![(7, Outcome::Stale)]));
        replying.add(0, Answer::Refused(mayfly_shards::Refusal::NodeBytes));
        replying.add(0, Answer::Acked(vec![(0, Outcome::Acked)]));
        let mut out = Vec::new();
        replying.render(&mut out);
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("\"one\"") && text.contains("acked"), "{text}");
    }
}
