//! What clients were told, against what must be true of it.
//!
//! - A leased message is with one consumer of its group at a time: it is not given again before its lease ended, it was nacked, or its
//!   answer was taken back.
//! - What was settled (acked, or given with autoAck and not taken back) is never given again to that group.
//! - No delivery number of a message is used twice for a group, and attempts never fall.
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
    attempts: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    tracks: BTreeMap<(String, u64), Track>,
    /// Messages pushed, and of which queue.
    pub(crate) pushed: BTreeMap<u64, String>,
}

impl Oracle {
    /// A client of `group` got an answer.
    pub(crate) fn given(&mut self, group: &str, messages: &[Got], auto_ack: bool, now: Time, lease_end: Time) {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for got in messages {
            assert!(self.pushed.contains_key(&got.payload), "{group} got {got:?}, which nobody pushed");
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
            self.tracks.insert((group.to_owned(), got.payload), Track { standing, delivery: got.delivery, attempts: got.attempts });
            return;
        };
        match track.standing {
            Standing::Settled => panic!("{group} got {got:?}, which it had settled"),
            Standing::Leased { until, .. } => assert!(until <= now, "{group} got {got:?} at {now:?}, leased to another until {until:?}"),
            Standing::Free => {}
        }
        assert!(got.delivery > track.delivery, "{group} got {got:?}, a delivery number that it knew");
        assert!(got.attempts >= track.attempts, "{group} got {got:?} with fewer attempts than before ({})", track.attempts);
        *track = Track { standing, delivery: got.delivery, attempts: got.attempts };
    }

    /// An ack was answered.
    pub(crate) fn acked(&mut self, group: &str, payload: u64, delivery: u32, verdict: Verdict, outcome: Outcome) {
        let Some(track) = self.tracks.get_mut(&(group.to_owned(), payload)) else { return };
        match (outcome, verdict) {
            // A nack that used up the attempts is answered acked, too: done with it either way.
            (Outcome::Acked, _) => {
                assert!(!matches!(track.standing, Standing::Settled), "{group} settled {payload} twice");
                assert_eq!(track.delivery, delivery, "an ack of an old delivery settled {payload} for {group}");
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

    /// An answer is being taken back: what it gave may come again.
    pub(crate) fn taken_back(&mut self, group: &str, got: &Got) {
        if let Some(track) = self.tracks.get_mut(&(group.to_owned(), got.payload)) {
            track.standing = Standing::Free;
            track.attempts = track.attempts.min(got.attempts.saturating_sub(1));
        }
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
