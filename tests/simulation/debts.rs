//! Which group must be given which message: one that was known before the push began, whatever core it was known on.
//!
//! Conservative: where clients cannot tell (a change under way, a queue or group that may have been forgotten for idleness), nothing is owed.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_shards::{Span, Ticket, Time};

/// How clients know that a group exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// A pop of it was answered.
    Answered,
    /// A delete left this pop of it parked.
    Parked(Ticket),
}

type Name = &'static str;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    known: BTreeMap<(Name, Name), Known>,
    used_at: BTreeMap<(Name, Name), Time>,
    /// Grows when a change is asked for and when it is answered; odd numbers of changes under way are told by `changing`.
    epochs: BTreeMap<Name, u64>,
    changing: BTreeMap<Name, u64>,
    owed: BTreeSet<(Name, Name, u64)>,
    /// Queues that have had a group ever since.
    popped: BTreeSet<Name>,
}

impl Debts {
    /// The queue's epoch; None while a change is under way.
    pub(crate) fn epoch(&self, queue: Name) -> Option<u64> {
        let is_changing = self.changing.get(queue).is_some_and(|count| *count > 0);
        (!is_changing).then(|| self.epochs.get(queue).copied().unwrap_or(0))
    }

    /// A client uses the queue, or a group of it; for certain once that was answered. Whether the group may have been forgotten since
    /// the last use.
    pub(crate) fn used(&mut self, queue: Name, group: Option<Name>, idle: (Span, Span), now: Time, is_certain: bool) -> bool {
        let mut is_over = |key, idle: Span| {
            let before = self.used_at.get(&key).copied().unwrap_or(now);
            if is_certain {
                self.used_at.insert(key, now);
            }
            // Clients hear and ask a little late or early.
            before + idle < now + Span::from_millis(500)
        };
        if is_over((queue, ""), idle.0) {
            self.known.retain(|(of, _), _| *of != queue);
            self.popped.remove(queue);
        }
        let Some(group) = group else { return false };
        let is_forgotten = is_over((queue, group), idle.1);
        if is_forgotten {
            self.known.remove(&(queue, group));
            self.owed.retain(|(of, who, _)| (*of, *who) != (queue, group));
        }
        is_forgotten
    }

    /// A pop that was asked in `epoch` was answered.
    pub(crate) fn answered(&mut self, queue: Name, group: Name, epoch: Option<u64>, ticket: Ticket) {
        if self.known.get(&(queue, group)) == Some(&Known::Parked(ticket)) {
            self.known.remove(&(queue, group));
        }
        if epoch.is_some() && epoch == self.epoch(queue) {
            self.known.insert((queue, group), Known::Answered);
            self.popped.insert(queue);
        }
    }

    /// A parked pop hangs up.
    pub(crate) fn hung_up(&mut self, ticket: Ticket) {
        self.known.retain(|_, known| *known != Known::Parked(ticket));
    }

    /// The groups known for certain that were used after `since`; `stays` says whether a pop will stay parked for a while.
    pub(crate) fn groups(&self, queue: Name, since: Time, stays: impl Fn(Ticket) -> bool) -> Vec<Name> {
        let is_sure = |known: &Known| if let Known::Parked(ticket) = known { stays(*ticket) } else { true };
        let is_used = |key: &(Name, Name)| self.used_at.get(key).is_some_and(|at| *at > since);
        self.known.iter().filter(|(key, known)| key.0 == queue && is_sure(known) && is_used(key)).map(|((_, group), _)| *group).collect()
    }

    /// A push that was asked in `epoch`, when these groups were known, was accepted.
    pub(crate) fn pushed(&mut self, queue: Name, groups: &[Name], epoch: Option<u64>, payloads: &[u64]) {
        if epoch.is_none() || epoch != self.epoch(queue) {
            return;
        }
        for group in groups.iter().filter(|group| self.known.contains_key(&(queue, **group))) {
            self.owed.extend(payloads.iter().map(|payload| (queue, *group, *payload)));
        }
    }

    /// Reset or delete is asked for.
    pub(crate) fn change_begins(&mut self, queue: Name) {
        *self.epochs.entry(queue).or_default() += 1;
        *self.changing.entry(queue).or_default() += 1;
        self.popped.remove(queue);
        self.owed.retain(|(of, _, _)| *of != queue);
    }

    /// It was answered; `parked` are the groups of pops that stood parked all the while.
    pub(crate) fn change_ends(&mut self, queue: Name, parked: Vec<(Name, Ticket)>) {
        *self.epochs.entry(queue).or_default() += 1;
        *self.changing.entry(queue).or_default() -= 1;
        self.known.retain(|(of, _), _| *of != queue);
        if self.epoch(queue).is_some() {
            self.known.extend(parked.into_iter().map(|(group, ticket)| ((queue, group), Known::Parked(ticket))));
        }
    }

    /// Whether the queue must have a group: one that holds messages is not collected, and its last group not forgotten.
    pub(crate) fn has_group(&self, queue: Name) -> bool {
        self.popped.contains(queue)
    }

    /// Queue, group, payload.
    pub(crate) fn owed(&self) -> impl Iterator<Item = &(Name, Name, u64)> {
        self.owed.iter()
    }
}
