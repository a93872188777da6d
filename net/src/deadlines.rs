//! Coarse deadlines, one per connection slot, one structure per core.
//!
//! A timing wheel of slot indexes with lazy re-check: moving a deadline later, or clearing it, writes one field; the entry in the
//! wheel stays where it is and is looked at again when its tick comes. Moving a deadline earlier adds an entry and the old one
//! becomes void. A deadline fires never early and at most one tick late (plus the lateness of the caller).
//!
//! Invariant: an index with a deadline has exactly one live entry, in the bucket of its `queued_tick`, which is not later than the
//! tick of its deadline; every other entry of it is void.

/// "No deadline": later than every point in time.
pub const NEVER: u64 = u64::MAX;

const NOT_QUEUED: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Entry {
    due_at: u64,
    queued_tick: u64,
}

/// The deadlines of one core's slots. Times are nanoseconds of one [`crate::clock::Clock`].
pub struct Deadlines {
    tick_ns: u64,
    /// Every tick before this one has been handled.
    next_tick: u64,
    entries: Vec<Entry>,
    buckets: Vec<Vec<u32>>,
    /// One bit per bucket that is not empty.
    occupied: Vec<u64>,
}

impl Deadlines {
    /// A wheel with `bucket_count` buckets (rounded up to a multiple of 64) of `tick_ns` each. Deadlines beyond the wheel's span
    /// are re-checked once per span.
    #[must_use]
    pub fn new(tick_ns: u64, bucket_count: usize) -> Self {
        let words = bucket_count.div_ceil(64).max(1);
        Self {
            tick_ns: tick_ns.max(1),
            next_tick: 0,
            entries: Vec::new(),
            buckets: (0..words * 64).map(|_| Vec::new()).collect(),
            occupied: vec![0; words],
        }
    }

    /// Sets the deadline of `index`, earlier or later than before. [`NEVER`] clears it.
    #[inline]
    pub fn set(&mut self, index: usize, due_at: u64) {
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry { due_at: NEVER, queued_tick: NOT_QUEUED });
        }
        self.entries[index].due_at = due_at;
        if due_at == NEVER {
            return;
        }
        let tick = due_at.div_ceil(self.tick_ns).clamp(self.next_tick, self.next_tick + self.buckets.len() as u64 - 1);
        if tick < self.entries[index].queued_tick {
            self.enqueue(index, tick);
        }
    }

    /// Clears the deadline of `index`.
    #[inline]
    pub fn clear(&mut self, index: usize) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.due_at = NEVER;
        }
    }

    /// When the wheel wants to be looked at next: not later than the earliest deadline's tick. `None` when it is empty.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        let start = self.bucket_of(self.next_tick);
        let words = self.occupied.len();
        for step in 0..=words {
            let word_index = (start / 64 + step) % words;
            let mut word = self.occupied[word_index];
            // The first word counts only from the present bucket on, and is looked at again, for what lies before it, at the end.
            if step == 0 {
                word &= u64::MAX << (start % 64);
            }
            if word != 0 {
                let bucket = word_index * 64 + word.trailing_zeros() as usize;
                let ahead = (bucket + self.buckets.len() - start) % self.buckets.len();
                return Some((self.next_tick + ahead as u64) * self.tick_ns);
            }
        }
        None
    }

    /// Appends to `due` every index whose deadline is not later than `now`, and clears those deadlines.
    pub fn expire(&mut self, now: u64, due: &mut Vec<u32>) {
        let last_tick = now / self.tick_ns;
        while let Some(at) = self.next_at() {
            let tick = at / self.tick_ns;
            if tick > last_tick {
                break;
            }
            self.next_tick = tick;
            self.expire_bucket(tick, now, due);
        }
        self.next_tick = self.next_tick.max(last_tick + 1);
    }

    fn expire_bucket(&mut self, tick: u64, now: u64, due: &mut Vec<u32>) {
        let bucket = self.bucket_of(tick);
        let indexes = std::mem::take(&mut self.buckets[bucket]);
        self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        self.next_tick = tick + 1;
        for index in indexes {
            let entry = &mut self.entries[index as usize];
            if entry.queued_tick != tick {
                continue;
            }
            entry.queued_tick = NOT_QUEUED;
            if entry.due_at <= now {
                entry.due_at = NEVER;
                due.push(index);
            } else {
                let due_at = entry.due_at;
                self.set(index as usize, due_at);
            }
        }
    }

    fn enqueue(&mut self, index: usize, tick: u64) {
        let bucket = self.bucket_of(tick);
        self.entries[index].queued_tick = tick;
        self.buckets[bucket].push(index as u32);
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
    }

    fn bucket_of(&self, tick: u64) -> usize {
        (tick % self.buckets.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(deadlines: &mut Deadlines, now: u64) -> Vec<u32> {
        let mut due = Vec::new();
        deadlines.expire(now, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn never_early_and_at_most_one_tick_late() {
        let mut deadlines = Deadlines::new(10, 64);
        for due_at in [1_u64, 9, 10, 11, 99, 5_000, 12_345] {
            let mut late = None;
            deadlines.set(3, due_at);
            for now in 0..due_at + 25 {
                if !expired(&mut deadlines, now).is_empty() {
                    assert!(now >= due_at, "early: {now} < {due_at}");
                    late = Some(now - due_at);
                    break;
                }
            }
            assert!(late.expect("fires") <= 10);
            deadlines = Deadlines::new(10, 64);
        }
    }

    #[test]
    fn moving_later_or_clearing_voids_the_old_deadline() {
        let mut deadlines = Deadlines::new(10, 64);
        deadlines.set(0, 50);
        deadlines.set(1, 50);
        deadlines.set(0, 200);
        deadlines.clear(1);
        assert_eq!(expired(&mut deadlines, 150), Vec::<u32>::new());
        assert_eq!(expired(&mut deadlines, 200), vec![0]);
        assert_eq!(deadlines.next_at(), None);
    }

    #[test]
    fn moving_earlier_fires_once() {
        let mut deadlines = Deadlines::new(10, 64);
        deadlines.set(7, 500);
        deadlines.set(7, 30);
        assert_eq!(expired(&mut deadlines, 30), vec![7]);
        deadlines.set(7, 500);
        assert_eq!(expired(&mut deadlines, 499), Vec::<u32>::new());
        assert_eq!(expired(&mut deadlines, 500), vec![7]);
        assert_eq!(expired(&mut deadlines, 10_000), Vec::<u32>::new());
    }

    #[test]
    fn a_long_pause_of_the_caller_expires_everything() {
        let mut deadlines = Deadlines::new(10, 64);
        for index in 0..200 {
            deadlines.set(index, index as u64 * 97);
        }
        assert_eq!(expired(&mut deadlines, 1_000_000).len(), 200);
        assert_eq!(deadlines.next_at(), None);
    }

    #[test]
    fn next_at_is_never_later_than_the_earliest_deadline_tick() {
        let mut deadlines = Deadlines::new(10, 64);
        assert_eq!(deadlines.next_at(), None);
        deadlines.set(0, 123);
        assert_eq!(deadlines.next_at(), Some(130));
        deadlines.set(1, 100_000);
        expired(&mut deadlines, 130);
        assert!(deadlines.next_at().is_some_and(|at| at <= 100_000 && at > 130));
    }
}
