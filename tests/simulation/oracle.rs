//! What clients were told, against what must be true of it.
//!
//! - A leased message is with one consumer of its group at a time: it is not given again before its lease ended, it was nacked, or its
//!   answer was taken back.
//! - What was settled (acked, or given with autoAck and not taken back) is never given again to that group.
//! - No delivery number of a message is used twice for a group; attempts count what was given and not taken back unsent, exactly.
//! - A seq names one message, ever.
//! - What was pushed before a reset or delete began is not given after it was answered.
//! - First deliveries in one answer are in order of push within each partition.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_shards::{Outcome, Time, Verdict};

use crate::world::Got;

/// Where a message stands for a group, as far as clients can know.
#[derive(Clone, Debug)]
enum Standing {
    Leased { until: Time, delivery: u32 },
    Settled,
    Free,
}

/// One message of one group.
#[derive(Debug)]
struct Track {
    standing: Standing,
    delivery: u32,
    /// Charged so far: at least, at most.
    attempts: (u32, u32),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    tracks: BTreeMap<(String, u64), Track>,
    /// Messages pushed, and of which queue.
    pub(crate) pushed: BTreeMap<u64, String>,
    /// When a push was answered.
    pub(crate) accepted: BTreeMap<u64, Time>,
    /// Messages that a reset or delete dropped, and when that was answered.
    dead: BTreeMap<u64, Time>,
    /// Seqs, and the messages they name.
    seqs: BTreeMap<u64, u64>,
}

impl Oracle {
    /// A client of `group` got an answer.
    pub(crate) fn given(&mut self, group: &str, messages: &[Got], auto_ack: bool, now: Time, lease_end: Time) {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for got in messages {
            assert!(self.pushed.contains_key(&got.payload), "{group} got {got:?}, which nobody pushed");
            assert_eq!(*self.seqs.entry(got.seq).or_insert(got.payload), got.payload, "{got:?} has the seq of another message");
            assert!(
                self.dead.get(&got.payload).is_none_or(|at| now <= *at),
                "{group} got {got:?} at {now:?}, from before a reset or delete"
            );
            if got.delivery == 1 {
                let before = last.insert(&got.partition, got.seq);
                assert!(before < Some(got.seq), "{group} got {got:?} out of order");
            }
            self.give(group, got, auto_ack, now, lease_end);
        }
    }

    fn give(&mut self, group: &str, got: &Got, auto_ack: bool, now: Time, lease_end: Time) {
        let standing = if auto_ack { Standing::Settled } else { Standing::Leased { until: lease_end, delivery: got.delivery } };
        let Some(track) = self.tracks.get_mut(&(group.to_owned(), got.payload)) else {
            assert_eq!(got.attempts, 1, "{group} was never given {got:?}");
            self.tracks.insert((group.to_owned(), got.payload), Track { standing, delivery: got.delivery, attempts: (1, 1) });
            return;
        };
        match track.standing {
            Standing::Settled => panic!("{group} got {got:?}, which it had settled"),
            Standing::Leased { until, .. } => assert!(until <= now, "{group} got {got:?} at {now:?}, leased to another until {until:?}"),
            Standing::Free => {}
        }
        assert!(got.delivery > track.delivery, "{group} got {got:?}, a delivery number that it knew");
        let (least, most) = track.attempts;
        assert!((least + 1..=most + 1).contains(&got.attempts), "{group} got {got:?} with {least} to {most} attempts behind it");
        *track = Track { standing, delivery: got.delivery, attempts: (got.attempts, got.attempts) };
    }

    /// An ack was answered.
    pub(crate) fn acked(&mut self, group: &str, payload: u64, delivery: u32, verdict: Verdict, outcome: Outcome) {
        let Some(track) = self.tracks.get_mut(&(group.to_owned(), payload)) else { return };
        match (outcome, verdict) {
            // A nack that used up the attempts is answered acked, too: done with it either way.
            (Outcome::Acked, _) => {
                assert!(!matches!(track.standing, Standing::Settled), "{group} settled {payload} twice");
                assert!([0, delivery].contains(&track.delivery), "an ack of an old delivery settled {payload} for {group}");
                track.standing = Standing::Settled;
            }
            (Outcome::Redelivered, Verdict::Completed) => panic!("a completion of {payload} was answered redelivered"),
            (Outcome::Redelivered, Verdict::Nack) => {
                if matches!(track.standing, Standing::Leased { delivery: current, .. } if current == delivery) {
                    track.standing = Standing::Free;
                }
            }
            (Outcome::Stale | Outcome::Unknown, _) => {}
        }
    }

    /// An answer is being taken back: what it gave may come again. Unsent, it costs no attempt, unless its lease may have ended first.
    pub(crate) fn taken_back(&mut self, group: &str, got: &Got, is_unsent: bool, is_late: bool) {
        if let Some(track) = self.tracks.get_mut(&(group.to_owned(), got.payload)) {
            track.standing = Standing::Free;
            if is_unsent {
                let least = got.attempts.saturating_sub(1);
                track.attempts = (least.min(track.attempts.0), if is_late { track.attempts.1 } else { least });
            }
        }
    }

    /// A reset or delete, asked for at `asked_at`, was answered.
    pub(crate) fn changed(&mut self, queue: &str, asked_at: Time, now: Time) {
        let is_gone = |payload: &u64| self.pushed.get(payload).is_some_and(|name| name == queue);
        let gone = self.accepted.iter().filter(|(payload, at)| **at < asked_at && is_gone(payload)).map(|(payload, _)| *payload);
        for payload in gone {
            self.dead.entry(payload).or_insert(now);
        }
    }

    /// A group may have been forgotten for idleness: it stands anywhere.
    pub(crate) fn forget(&mut self, queue: &str, of: &str) {
        let pushed = &self.pushed;
        let is_of = |group: &str, payload: &u64| *group == *of && pushed.get(payload).is_some_and(|name| name == queue);
        for (_, track) in self.tracks.iter_mut().filter(|((group, payload), _)| is_of(group, payload)) {
            *track = Track { standing: Standing::Free, delivery: 0, attempts: (0, u32::MAX - 1) };
        }
    }

    /// Whether that delivery is on lease for certain.
    pub(crate) fn is_leased(&self, group: &str, payload: u64, of: u32, now: Time) -> bool {
        let track = self.tracks.get(&(group.to_owned(), payload));
        matches!(track.map(|track| &track.standing), Some(Standing::Leased { until, delivery }) if *delivery == of && *until > now)
    }

    /// Whether a group was given a message.
    pub(crate) fn has_seen(&self, group: &str, payload: u64) -> bool {
        self.tracks.contains_key(&(group.to_owned(), payload))
    }

    /// Messages of `queue` that some group was given.
    pub(crate) fn seen(&self, queue: &str) -> BTreeSet<u64> {
        self.tracks
            .keys()
            .map(|(_, payload)| *payload)
            .filter(|payload| self.pushed.get(payload).is_some_and(|name| name == queue))
            .collect()
    }
}
