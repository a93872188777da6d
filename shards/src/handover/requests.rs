//! Requests whose call waits on another node: the partition moved, the inbox did not.
//!
//! A call is answered by whoever keeps its inbox, under the name that it was given, wherever its request is; the request takes that name
//! along. Invariants: a ring knows the inbox of every such request that it holds, and of no other message; one that nobody took goes when
//! its call ends.

use std::collections::BTreeMap;

use super::{Aside, Inbox, PartitionName};
use crate::queue::{QueueIndex, RingIndex};
use crate::shard::Shard;
use crate::time::Time;

/// A request of a call on another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) inbox: Inbox,
    /// None: its call is over.
    pub(super) until: Option<Time>,
}

impl Request {
    /// Whether nobody waits for its answer any more.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

impl Shard {
    /// A message held in a ring is such a request.
    pub(crate) fn await_request(&mut self, index: QueueIndex, ring: RingIndex, seq: u64, request: Request) {
        let entry = self.queues.get_mut(index).rings.get_mut(ring);
        if entry.requests().is_none() {
            entry.aside = Some(Box::new(Aside::Requests(BTreeMap::new())));
        }
        entry.requests_mut().into_iter().for_each(|requests| _ = requests.insert(seq, request));
        if let Some(until) = request.until {
            self.arm_ring(index, ring, until);
        }
    }

    /// Withdraws requests whose call ended by time.
    pub(crate) fn end_requests(&mut self, now: Time, index: QueueIndex, ring: RingIndex) {
        let Some(requests) = self.queues.get_mut(index).rings.get_mut(ring).requests_mut() else { return };
        let due = end(requests, |request| request.until.is_some_and(|until| until <= now));
        let next = requests.values().filter_map(|request| request.until).min();
        due.into_iter().for_each(|seq| self.withdraw(now, index, ring, seq));
        if let Some(next) = next {
            self.arm_ring(index, ring, next);
        }
    }

    /// The call of a request that moved here from another node is over: answered, or its client hung up. What nobody took of it goes.
    /// Without it the request goes when the call would have timed out.
    pub fn end_moved_call(&mut self, now: Time, name: &PartitionName, inbox: Inbox) {
        self.end_call_in_copies(now, name, inbox);
        let Some(index) = self.queues.find(name.tenant, &name.queue) else { return };
        let Some(ring) = self.queues.get(index).rings.find(&name.partition) else { return };
        let queue = self.queues.get_mut(index);
        let was_packed = queue.thaw(ring);
        let requests = queue.rings.get_mut(ring).requests_mut();
        let due = requests.map(|requests| end(requests, |request| request.inbox == inbox)).unwrap_or_default();
        due.into_iter().for_each(|seq| self.withdraw(now, index, ring, seq));
        if was_packed {
            self.queues.get_mut(index).freeze(ring);
        }
    }
}

/// Marks those as over: their seqs.
fn end(requests: &mut BTreeMap<u64, Request>, is_meant: impl Fn(&Request) -> bool) -> Vec<u64> {
    let mut ended = Vec::new();
    for (seq, request) in requests.iter_mut().filter(|(_, request)| is_meant(request)) {
        request.until = None;
        ended.push(*seq);
    }
    ended
}
