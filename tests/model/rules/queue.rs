//! One queue: its messages in one list, and for each group what it has done with each of them.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_shards::{ANSWER_PAYLOAD_BYTES_MAX, Options, PrivateGroup, Time};

use crate::facts::{Name, Seen};

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(super) name: Name,
    /// False: deleted, with pops still parked on it.
    pub(super) exists: bool,
    pub(super) declared: bool,
    pub(super) options: Options,
    /// A new one at every making and reset.
    pub(super) life: u64,
    /// Every partition a push or pop has named.
    pub(super) partitions: BTreeSet<String>,
    pub(super) groups: Vec<Group>,
    /// Held, in order of push.
    pub(super) messages: Vec<Message>,
    /// Freed because every group had settled them; only an answer taken back can need them again.
    pub(super) settled: Vec<Message>,
    /// Dropped by bounds or ttl.
    pub(super) dropped: Vec<u64>,
    /// When a pop of each partition (None: of any) was last answered.
    pub(super) answered: BTreeMap<Option<String>, Time>,
    /// For bounds, ttl, retry.
    pub(super) drops: [u64; 3],
    /// Last push, pop, ack, reset or configure, and last moment with a pop parked.
    pub(super) used_at: Time,
    /// When the last message went.
    pub(super) emptied_at: Time,
    /// Whether it held messages when this was last looked at.
    pub(super) is_holding: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(super) id: u64,
    pub(super) partition: String,
    pub(super) size_bytes: usize,
    pub(super) pushed_at: Time,
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(super) name: String,
    pub(super) life: u64,
    /// One entry for each message held, and for those that this group and all others settled.
    pub(super) states: BTreeMap<u64, State>,
    /// Evicted before this group had reached them.
    pub(super) skipped: u64,
    /// CHOICE: the partition served last is remembered per group, by name, and only by pops without a partition.
    pub(super) served_last: Option<String>,
    /// Last pop or ack, and last moment with a parked pop, a lease or a pending redelivery.
    pub(super) busy_at: Time,
}

/// What a group has done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unread,
    Leased {
        until: Time,
        attempts: u32,
        delivery: u32,
    },
    /// Awaiting redelivery; `attempts` is what the next delivery will say.
    Back {
        attempts: u32,
        delivery: u32,
        why: Why,
    },
    Settled {
        delivery: u32,
    },
}

/// How a message came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    LeaseEnded,
    Nacked,
    /// Its answer did not reach the client.
    Returned,
}

impl Queue {
    pub(super) fn new(name: Name, life: u64, options: Options) -> Self {
        Self {
            name,
            exists: false,
            declared: false,
            options,
            life,
            partitions: BTreeSet::new(),
            groups: vec![],
            messages: vec![],
            settled: vec![],
            dropped: vec![],
            answered: BTreeMap::new(),
            drops: [0; 3],
            used_at: Time(0),
            emptied_at: Time(0),
            is_holding: false,
        }
    }

    /// Payload bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.messages.iter().map(|m| m.size_bytes as u64).sum()
    }

    pub(super) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|g| g.name == name)
    }

    pub(super) fn group_mut(&mut self, name: &str) -> Option<&mut Group> {
        self.groups.iter_mut().find(|g| g.name == name)
    }

    pub(super) fn message(&self, id: u64) -> Option<&Message> {
        self.messages.iter().find(|m| m.id == id)
    }

    /// The message is dropped, by bounds (0) or ttl (1), whatever the groups were doing with it.
    pub(super) fn drop_counted(&mut self, id: u64, cause: usize) {
        self.messages.retain(|m| m.id != id);
        self.groups.iter_mut().for_each(|g| _ = g.states.remove(&id));
        self.dropped.push(id);
        self.drops[cause] += 1;
    }

    /// Forgets a group; what it alone had not settled is freed.
    pub(super) fn forget_group(&mut self, name: &str) {
        let Some(gone) = self.groups.iter().position(|g| g.name == name).map(|at| self.groups.remove(at)) else { return };
        let is_settled = |g: &Group, id: u64| matches!(g.states[&id], State::Settled { .. });
        let (freed, held) =
            self.messages.drain(..).partition(|m| !is_settled(&gone, m.id) && self.groups.iter().all(|g| is_settled(g, m.id)));
        self.messages = held;
        self.settled.extend::<Vec<Message>>(freed);
    }

    /// Frees what every known group has settled. With no group nothing is freed, nor what all groups, being private, passed unread.
    pub(super) fn free_settled(&mut self) {
        for message in self.messages.clone() {
            let is_settled = |g: &Group| matches!(g.states[&message.id], State::Settled { .. });
            let was_given = |g: &Group| matches!(g.states[&message.id], State::Settled { delivery: 1.. });
            if self.groups.iter().all(is_settled) && self.groups.iter().any(was_given) {
                // What the groups did with it stays known, for its return.
                self.messages.retain(|m| m.id != message.id);
                self.settled.push(message);
            }
        }
    }

    /// What a pop of the group could take, in the order it would: partition by partition; in each, redeliveries, then the unread.
    pub(super) fn ready(&self, group: &str, partition: Option<&str>) -> Vec<u64> {
        let Some(group) = self.group(group) else { return vec![] };
        let of = |p: &str, wanted: fn(&State) -> bool| -> Vec<u64> {
            self.messages.iter().filter(|m| m.partition == p && wanted(&group.states[&m.id])).map(|m| m.id).collect()
        };
        let mut ids = vec![];
        for name in self.serving_order(group, partition) {
            ids.extend(of(&name, |s| matches!(s, State::Back { .. })));
            ids.extend(of(&name, |s| matches!(s, State::Unread)));
        }
        ids
    }

    /// Partitions in name order, beginning after the one served last.
    fn serving_order(&self, group: &Group, partition: Option<&str>) -> Vec<String> {
        if let Some(partition) = partition {
            return vec![partition.to_owned()];
        }
        let is_after = |p: &&String| group.served_last.as_ref().is_some_and(|last| *p > last);
        let mut order: Vec<String> = self.partitions.iter().filter(is_after).cloned().collect();
        order.extend(self.partitions.iter().filter(|p| !is_after(p)).cloned());
        order
    }

    /// As many of `ready` as one answer may hold. CHOICE: the first message that would pass 1 MiB ends the answer.
    pub(super) fn fitting(&self, ready: &[u64], batch: u32) -> Vec<u64> {
        let mut total_bytes = 0;
        let mut taken = vec![];
        for &id in ready.iter().take(batch as usize) {
            total_bytes += self.message(id).map_or(0, |m| m.size_bytes);
            if !taken.is_empty() && total_bytes > ANSWER_PAYLOAD_BYTES_MAX {
                break;
            }
            taken.push(id);
        }
        taken
    }

    /// Delivers these messages to the group.
    pub(super) fn deliver(&mut self, group: &str, ids: &[u64], auto_ack: bool, now: Time) -> Vec<Seen> {
        let until = now + self.options.lease_span();
        let mut seen = vec![];
        for &id in ids {
            let partition = self.message(id).map(|m| m.partition.clone()).unwrap_or_default();
            let Some(state) = self.group_mut(group).and_then(|g| g.states.get_mut(&id)) else { continue };
            let (attempts, delivery) = match *state {
                State::Back { attempts, delivery, .. } => (attempts, delivery + 1),
                _ => (1, 1),
            };
            *state = if auto_ack { State::Settled { delivery } } else { State::Leased { until, attempts, delivery } };
            seen.push(Seen { partition, id, attempts, delivery, is_call: false });
        }
        self.free_settled();
        seen
    }
}

impl Group {
    pub(super) fn new(name: &str, life: u64, held: &[Message]) -> Self {
        let first = if PrivateGroup::of(name).is_some() { State::Settled { delivery: 0 } } else { State::Unread };
        let states = held.iter().map(|m| (m.id, first)).collect();
        Self { name: name.to_owned(), life, states, skipped: 0, served_last: None, busy_at: Time(0) }
    }

    pub(super) fn is_private(&self) -> bool {
        PrivateGroup::of(&self.name).is_some()
    }

    /// Of a message that is pushed now: a private group may read one partition alone.
    pub(super) fn first_state(&self, partition: &str) -> State {
        let is_passed = PrivateGroup::of(&self.name).is_some_and(|group| group.partition.is_some_and(|of| of != partition));
        if is_passed { State::Settled { delivery: 0 } } else { State::Unread }
    }

    /// Not yet delivered, or awaiting redelivery.
    pub(super) fn is_pending(&self, id: u64) -> bool {
        matches!(self.states[&id], State::Unread | State::Back { .. })
    }

    /// Whether it has a lease or a pending redelivery.
    pub(super) fn has_work_out(&self) -> bool {
        self.states.values().any(|s| matches!(s, State::Leased { .. } | State::Back { .. }))
    }
}
