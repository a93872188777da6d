//! Forgetting dormant groups: a group that nobody uses any more cannot block a queue.
//!
//! A group is forgotten only when a push would otherwise be refused for room that groups idle for `group_idle` alone hold, the one
//! longest idle first, and never the last group. What it had not read is counted.

use std::sync::Arc;

use crate::command::DropCause;
use crate::ledger::{Freed, Ledger};
use crate::letter::Idleness;
use crate::link::Link;
use crate::queue::{GroupIndex, Queue, QueueIndex};
use crate::shard::Shard;
use crate::time::{Span, Time};

/// A home asks its members for idle groups at most this often for one queue: each time holds the queue's commands back for a hop.
pub(crate) const FORGET_INTERVAL: Span = Span::from_secs(1);

impl Queue {
    /// Dormant groups not used since `before`, the one longest idle first; at least one group is left out.
    fn idle_groups(&self, before: Time) -> Vec<GroupIndex> {
        let holds =
            |(index, group): &(GroupIndex, &crate::group::Group)| group.is_dormant() && group.used_at <= before && self.pending(*index) > 0;
        let mut idle: Vec<_> =
            self.groups.iter().filter(holds).map(|(index, group)| ((group.used_at, Arc::clone(&group.name)), index)).collect();
        idle.sort_unstable();
        idle.truncate((self.groups.count() as usize).saturating_sub(1));
        idle.into_iter().map(|(_, index)| index).collect()
    }

    /// The payload sizes of the messages that are held for groups of `idle` alone.
    fn held_by_alone(&self, idle: &[GroupIndex]) -> impl Iterator<Item = u64> {
        let others: Vec<_> = self.groups.iter().map(|(index, _)| index).filter(|index| !idle.contains(index)).collect();
        self.rings.iter().flat_map(move |(_, ring)| {
            let others = others.clone();
            let has_settled = |group: &GroupIndex, seq| ring.cursor(*group).is_some_and(|cursor| cursor.is_settled(seq));
            // What none of them was ever to read is not theirs to let go.
            let is_done =
                move |seq| others.iter().all(|group| has_settled(group, seq)) && !idle.iter().all(|group| has_settled(group, seq));
            ring.slots().filter_map(move |slot| slot.payload.as_ref().filter(|_| is_done(slot.seq)).map(|payload| payload.len() as u64))
        })
    }

    /// Forgets a group; what it alone held is freed.
    pub(crate) fn remove_group(&mut self, group: GroupIndex, ledger: &mut Ledger, freed: &mut Freed) {
        ledger.dropped[DropCause::GroupIdle as usize] += self.pending(group);
        let packed = self.thaw_all();
        self.groups.remove(group);
        let group_count = self.groups.count();
        for (_, ring) in self.rings.iter_mut() {
            freed.add(ring.forget_group(group, group_count));
        }
        self.freeze_all(&packed);
    }
}

impl Shard {
    /// The idle groups of a queue that lives on this shard alone which hold the room that lacks, and how much they hold.
    pub(crate) fn groups_to_forget(&self, now: Time, index: QueueIndex, lacks: (u64, u64)) -> Option<(Vec<GroupIndex>, (u64, u64))> {
        let queue = self.queues.get(index);
        if !matches!(queue.link, Link::Alone) {
            return None;
        }
        let mut idle = self.idle_groups(now, index);
        let room_of = |idle: &[GroupIndex]| queue.held_by_alone(idle).fold((0, 0), |room, size| (room.0 + 1, room.1 + size));
        let (count, room) = (1..=idle.len())
            .map(|count| (count, room_of(&idle[..count])))
            .find(|(_, (messages, bytes))| *messages >= lacks.0 && *bytes >= lacks.1)?;
        idle.truncate(count);
        Some((idle, room))
    }

    /// Forgets these groups.
    pub(crate) fn forget_groups(&mut self, index: QueueIndex, idle: &[GroupIndex]) {
        let queue = self.queues.get_mut(index);
        let mut freed = Freed::default();
        for group in idle {
            queue.remove_group(*group, &mut self.ledger, &mut freed);
        }
        queue.release(freed, &self.ledger);
    }

    fn idle_groups(&self, now: Time, index: QueueIndex) -> Vec<GroupIndex> {
        let span = self.config.group_idle;
        if span == Span(0) || now.0 < span.0 { Vec::new() } else { self.queues.get(index).idle_groups(now - span) }
    }

    /// Whether, as far as this shard knows, forgetting idle groups would make room.
    pub(crate) fn may_forget_groups(&self, now: Time, index: QueueIndex) -> bool {
        let idle = self.idle_groups(now, index);
        !idle.is_empty() && self.queues.get(index).held_by_alone(&idle).next().is_some()
    }

    /// Forgets groups by name, as the home decided.
    pub(crate) fn forget_named_groups(&mut self, index: QueueIndex, names: &[Arc<str>]) {
        let groups = &self.queues.get(index).groups;
        let named: Vec<_> = names.iter().filter_map(|name| groups.find(name)).collect();
        self.forget_groups(index, &named);
    }

    /// How idle this part of a queue is.
    pub(crate) fn idleness(&self, index: QueueIndex) -> Idleness {
        let queue = self.queues.get(index);
        Idleness {
            used_at: queue.used_at,
            held: queue.held,
            waiting: queue.waiting_count() + queue.packed_count() as u64,
            groups: queue.groups.iter().map(|(_, group)| (Arc::clone(&group.name), group.used_at, group.is_dormant())).collect(),
        }
    }

    /// The groups that were idle on every part since `before`, longest idle first; at least one is left out.
    pub(crate) fn idle_everywhere(before: Time, parts: &[Idleness]) -> Vec<Arc<str>> {
        let Some(home) = parts.first() else { return Vec::new() };
        let latest = |name: &Arc<str>| {
            let of_part = |part: &Idleness| {
                part.groups.iter().find(|(other, _, _)| other == name).map(|(_, used_at, is_dormant)| (*used_at, *is_dormant))
            };
            let found = parts.iter().filter_map(of_part);
            found.fold((Time(0), true), |(used_at, dormant), part| (used_at.max(part.0), dormant && part.1))
        };
        let all: Vec<_> = home.groups.iter().map(|(name, _, _)| (latest(name), Arc::clone(name))).collect();
        let count = all.len();
        let mut idle: Vec<_> = all
            .into_iter()
            .filter(|((used_at, dormant), _)| *dormant && *used_at <= before)
            .map(|((used_at, _), name)| (used_at, name))
            .collect();
        idle.sort_unstable();
        idle.truncate(count.saturating_sub(1));
        idle.into_iter().map(|(_, name)| name).collect()
    }
}
