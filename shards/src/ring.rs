//! One partition's messages, in order, and every group's cursor in it.
//!
//! Invariants: slots are in order of seq; the first slot holds a message; a slot without payload is a message that every group has
//! settled, or that was withdrawn, waiting for those before it, and such are never many more than the others; `held` and `bytes` are what
//! the slots hold; a group without a cursor stands at the beginning.
//!
//! What a private group passed unread counts as settled by it, but is never freed for that: a message that nobody was given stays for
//! the first group that begins at the oldest.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cursor::{Cursor, Delivered, DeliveryState};
use crate::deadlines::DeadlineId;
use crate::handover::{Aside, Request};
use crate::ledger::Freed;
use crate::payload::Payload;
use crate::queue::GroupIndex;
use crate::time::Time;

/// Empty slots behind a message that is still held are swept once they outnumber the others by this.
const EMPTY_SPARE: usize = 32;

/// One message's place.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) seq: u64,
    pub(crate) pushed_at: Time,
    /// Groups that are done with it.
    pub(crate) settled_count: u32,
    /// None once it was freed.
    pub(crate) payload: Option<Payload>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) partition: Arc<str>,
    slots: VecDeque<Slot>,
    pub(crate) cursors: SmallVec<[Cursor; 1]>,
    /// Messages ever appended (a returned one anew).
    pub(crate) appended: u64,
    pub(crate) held: u64,
    pub(crate) bytes: u64,
    /// Last push to it or pop of it by name.
    pub(crate) used_at: Time,
    /// When a pop of it by name was last answered; 0: never.
    pub(crate) answered_at: Time,
    pub(crate) deadline: DeadlineId,
    /// What few rings ever need: see `handover`.
    pub(crate) aside: Option<Box<Aside>>,
    /// A late hand-over was appended: later messages may be older.
    pub(crate) is_bent: bool,
}

/// A message that a group would be given next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) index: usize,
    pub(crate) seq: u64,
    pub(crate) is_redelivery: bool,
}

impl Ring {
    pub(crate) fn new(partition: Arc<str>, now: Time) -> Self {
        Self {
            partition,
            slots: VecDeque::new(),
            cursors: SmallVec::new(),
            appended: 0,
            held: 0,
            bytes: 0,
            used_at: now,
            answered_at: Time(0),
            deadline: DeadlineId::NONE,
            aside: None,
            is_bent: false,
        }
    }

    /// Appends one message. Seqs only grow.
    pub(crate) fn append(&mut self, seq: u64, now: Time, payload: Payload) {
        debug_assert!(self.slots.back().is_none_or(|last| last.seq < seq));
        self.appended += 1;
        self.held += 1;
        self.bytes += payload.len() as u64;
        self.slots.push_back(Slot { seq, pushed_at: now, settled_count: 0, payload: Some(payload) });
    }

    /// Room for `count` more without growing step by step.
    pub(crate) fn reserve(&mut self, count: usize) {
        if count > 1 {
            self.slots.reserve(count);
        }
    }

    pub(crate) fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    pub(crate) fn slot_mut(&mut self, index: usize) -> &mut Slot {
        &mut self.slots[index]
    }

    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot> {
        self.slots.iter()
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The oldest message held.
    pub(crate) fn first(&self) -> Option<&Slot> {
        self.slots.front()
    }

    /// The slot of `seq`, if a message is held there.
    pub(crate) fn find_held(&self, seq: u64) -> Option<usize> {
        let index = self.find(seq).ok()?;
        self.slots[index].payload.is_some().then_some(index)
    }

    fn find(&self, seq: u64) -> Result<usize, usize> {
        match self.slots.front() {
            None => Err(0),
            Some(first) if seq <= first.seq => {
                if first.seq == seq {
                    Ok(0)
                } else {
                    Err(0)
                }
            }
            Some(_) => self.slots.binary_search_by_key(&seq, |slot| slot.seq),
        }
    }

    /// The first held message at or above `seq`, looking from slot `from`.
    fn first_held_from(&self, seq: u64, from: usize) -> Option<usize> {
        let start = if self.slots.get(from).is_some_and(|slot| slot.seq >= seq) && (from == 0 || self.slots[from - 1].seq < seq) {
            from
        } else {
            self.find(seq).unwrap_or_else(|index| index)
        };
        (start..self.slots.len()).find(|index| self.slots[*index].payload.is_some())
    }

    pub(crate) fn cursor(&self, group: GroupIndex) -> Option<&Cursor> {
        self.cursors.iter().find(|cursor| cursor.group == group)
    }

    /// The group's cursor, made at the beginning if there is none.
    pub(crate) fn cursor_mut(&mut self, group: GroupIndex) -> &mut Cursor {
        let index = match self.cursors.iter().position(|cursor| cursor.group == group) {
            Some(index) => index,
            None => {
                self.cursors.push(Cursor::new(group, self.appended - self.held));
                self.cursors.len() - 1
            }
        };
        &mut self.cursors[index]
    }

    /// Moves the group's cursor past everything, to `end`; what it passes it is done with: messages passed.
    pub(crate) fn pass_all(&mut self, group: GroupIndex, end: u64) -> u64 {
        let appended = self.appended;
        let cursor = self.cursor_mut(group);
        let (next, passed) = (cursor.next, appended - cursor.seen);
        (cursor.next, cursor.began_at) = (end, end);
        cursor.seen = appended;
        for slot in self.slots.iter_mut().rev().take_while(|slot| slot.seq >= next).filter(|slot| slot.payload.is_some()) {
            slot.settled_count += 1;
        }
        passed
    }

    /// Messages the group has not been given, and those that wait to be given again.
    pub(crate) fn pending(&self, group: GroupIndex) -> u64 {
        self.cursor(group).map_or(self.held, |cursor| self.appended - cursor.seen + cursor.ready_count() as u64)
    }

    /// What the group is given next: redeliveries first, in order. `hint`: the slot after the one picked last.
    pub(crate) fn pick(&self, group: GroupIndex, hint: usize) -> Option<Pick> {
        let Some(cursor) = self.cursor(group) else {
            let first = self.slots.front()?;
            return Some(Pick { index: 0, seq: first.seq, is_redelivery: false });
        };
        if let Some(seq) = cursor.first_ready() {
            let index = self.find_held(seq)?;
            return Some(Pick { index, seq, is_redelivery: true });
        }
        if self.appended == cursor.seen {
            return None;
        }
        let index = self.first_held_from(cursor.next, hint)?;
        Some(Pick { index, seq: self.slots[index].seq, is_redelivery: false })
    }

    /// The group is done with the message at `index`; when it was the last of `group_count`, the message is freed and its payload
    /// returned.
    pub(crate) fn settle(&mut self, index: usize, group: GroupIndex, group_count: u32) -> Option<Payload> {
        let seq = self.slots[index].seq;
        self.cursor_mut(group).settle(seq);
        let slot = &mut self.slots[index];
        slot.settled_count += 1;
        if slot.settled_count < group_count { None } else { self.free(index) }
    }

    /// Frees the message at `index`: its payload.
    pub(crate) fn free(&mut self, index: usize) -> Option<Payload> {
        let payload = self.slots[index].payload.take()?;
        if let Some(Aside::Requests(requests)) = self.aside.as_deref_mut() {
            requests.remove(&self.slots[index].seq);
        }
        self.held -= 1;
        self.bytes -= payload.len() as u64;
        while self.slots.front().is_some_and(|slot| slot.payload.is_none()) {
            self.slots.pop_front();
        }
        if self.slots.is_empty() {
            self.give_memory_back();
        } else if self.slots.len() > 2 * self.held as usize + EMPTY_SPARE {
            // Each slot is moved at most twice in its life on average.
            self.slots.retain(|slot| slot.payload.is_some());
            self.slots.shrink_to(2 * self.slots.len());
        }
        Some(payload)
    }

    fn give_memory_back(&mut self) {
        self.slots = VecDeque::new();
        self.forget_requests();
        self.is_bent = false;
        for cursor in &mut self.cursors {
            cursor.release_memory();
        }
    }

    /// Puts a message back that was freed at its delivery to `group`, where its seq belongs. To every group that had passed its place
    /// it stays settled; to `group` it is the caller's to make ready. The groups that had passed it.
    pub(crate) fn put_back(&mut self, seq: u64, pushed_at: Time, payload: Payload, group: GroupIndex) -> SmallVec<[GroupIndex; 4]> {
        let mut passed = SmallVec::new();
        self.held += 1;
        self.appended += 1;
        self.bytes += payload.len() as u64;
        for cursor in self.cursors.iter_mut().filter(|cursor| cursor.next > seq) {
            cursor.seen += 1;
            passed.push(cursor.group);
        }
        let settled_count = passed.iter().filter(|index| **index != group).count() as u32;
        let slot = Slot { seq, pushed_at, settled_count, payload: Some(payload) };
        match self.find(seq) {
            Ok(index) => self.slots[index] = slot,
            Err(index) => self.slots.insert(index, slot),
        }
        passed
    }

    /// Takes a group out, of which `group_count` are left: what only it had held up is freed.
    pub(crate) fn forget_group(&mut self, group: GroupIndex, group_count: u32) -> Freed {
        let cursor = self.cursors.iter().position(|cursor| cursor.group == group).map(|index| self.cursors.swap_remove(index));
        let mut done: Vec<u64> = Vec::new();
        for slot in self.slots.iter_mut().filter(|slot| slot.payload.is_some()) {
            if cursor.as_ref().is_some_and(|cursor| cursor.is_settled(slot.seq)) {
                slot.settled_count -= 1;
            } else if slot.settled_count >= group_count {
                done.push(slot.seq);
            }
        }
        let mut freed = Freed::default();
        while let Some(seq) = done.pop() {
            // Freeing one may move others.
            if let Some(index) = self.find_held(seq) {
                freed.add_payload(self.free(index).as_ref());
            }
        }
        freed
    }

    /// Drops everything: messages and payload bytes that were held.
    pub(crate) fn clear(&mut self) -> (u64, u64) {
        let dropped = (self.held, self.bytes);
        let end = self.slots.back().map_or(0, |last| last.seq + 1);
        self.held = 0;
        self.bytes = 0;
        self.slots = VecDeque::new();
        self.forget_requests();
        self.is_bent = false;
        let appended = self.appended;
        for cursor in &mut self.cursors {
            cursor.move_to(end, appended);
        }
        dropped
    }

    /// The slot of the message that was pushed first.
    pub(crate) fn oldest(&self) -> Option<usize> {
        if !self.is_bent {
            return (!self.slots.is_empty()).then_some(0);
        }
        let held = self.slots.iter().enumerate().filter(|(_, slot)| slot.payload.is_some());
        held.min_by_key(|(_, slot)| slot.pushed_at).map(|(index, _)| index)
    }

    /// The request that a message is of a call on another node.
    pub(crate) fn request(&self, seq: u64) -> Option<Request> {
        self.requests()?.get(&seq).copied()
    }

    /// Whether no group was given the message, or what was given came back unread.
    pub(crate) fn is_untaken(&self, seq: u64) -> bool {
        let came_back = |delivered: &Delivered| delivered.state == DeliveryState::Returned && delivered.attempts == 0;
        self.cursors.iter().all(|cursor| cursor.next <= seq || seq < cursor.began_at || cursor.unsettled(seq).is_some_and(came_back))
    }

    /// Whether any pop is parked on this partition by name.
    pub(crate) fn has_waiters(&self) -> bool {
        self.cursors.iter().any(|cursor| !cursor.waiters.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_does_not_keep_the_places_of_all_behind_it() {
        let mut ring = Ring::new("p".into(), Time(0));
        ring.append(0, Time(0), Payload::from(&b"0"[..]));
        for seq in 1..100_000 {
            ring.append(seq, Time(seq), Payload::from(&b"1"[..]));
            let index = ring.find_held(seq).expect("held");
            assert!(ring.free(index).is_some());
        }
        assert!(ring.slots.capacity() < 500, "{} places", ring.slots.capacity());
        assert_eq!((ring.held, ring.bytes, ring.find_held(0)), (1, 1, Some(0)));
    }
}
