//! The buffers that multishot receives are filled from: one block of memory, offered to the kernel through a mapped ring.
//!
//! A buffer is the kernel's from [`Buffers::give_back`] until a completion names it, and ours from then until it is given back; only
//! then is a slice of it formed. The kernel fills buffers in the order in which they were offered, so all that circulate are touched in
//! turn: as few circulate as the load needs, which keeps their memory in the CPU's caches (idle wake-ups measured 8 % faster with 16 of
//! 16 KiB than with 256). More are offered when turns use many, or none was left.
//!
//! Invariant: a buffer is held back, or circulates: with the kernel, or named by a completion. The block outlives the io_uring it is registered with (see `queue::Queue`).

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

const PAGE_BYTES: usize = 4096;
/// Buffers that circulate at least.
const CIRCULATING_MIN: u16 = 16;
/// Turns after which a core that needed few of its buffers has half as many.
const SPELL_TURNS: u32 = 4_096;

/// The only group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    data: NonNull<u8>,
    count: u16,
    buffer_bytes: usize,
    tail: u16,
    /// Those that do not circulate; the last that came goes first.
    held: Vec<u16>,
    /// How many are to circulate.
    wanted: u16,
    /// Given back in this turn, and in the fullest turn of this spell.
    used_in_turn: u16,
    used_in_spell: u16,
    turns: u32,
}

impl Buffers {
    /// `count` buffers (a power of two, at most 32,768) of `buffer_bytes` each, the first few offered to the kernel.
    pub(super) fn register(ring: &IoUring, count: u16, buffer_bytes: usize) -> io::Result<Self> {
        if !count.is_power_of_two() || count > 1 << 15 || buffer_bytes == 0 || u32::try_from(buffer_bytes).is_err() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let entries = allocate(entries_layout(count)).cast::<BufRingEntry>();
        let data = allocate(data_layout(count, buffer_bytes));
        let wanted = count.min(CIRCULATING_MIN);
        let held = (0..count).rev().collect();
        let mut buffers =
            Self { entries, data, count, buffer_bytes, tail: 0, held, wanted: 0, used_in_turn: 0, used_in_spell: 0, turns: 0 };
        buffers.want(wanted);
        // SAFETY: the block of `count` entries is page-aligned and lives until `Buffers` is dropped or leaked, which
        // `queue::Queue` does only after the ring has nothing in flight.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries.as_ptr() as u64, count, GROUP, 0) }?;
        Ok(buffers)
    }

    /// The first `len` bytes of a buffer that a completion has named and that was not given back yet.
    pub(super) fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(buffer < self.count && len <= self.buffer_bytes, "the kernel names only buffers it was offered");
        // SAFETY: in bounds by the assertion; the kernel wrote these bytes before it posted the completion and does not touch the
        // buffer until it is given back, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr().add(usize::from(buffer) * self.buffer_bytes), len) }
    }

    /// Offers a buffer to the kernel again, or holds it back when too many circulate.
    pub(super) fn give_back(&mut self, buffer: u16) {
        assert!(buffer < self.count, "the kernel names only buffers it was offered");
        self.used_in_turn = self.used_in_turn.saturating_add(1);
        if self.circulating() > self.wanted {
            self.held.push(buffer);
        } else {
            self.offer(buffer);
            self.publish();
        }
    }

    /// The kernel had none left.
    pub(super) fn ran_out(&mut self) {
        self.want(self.wanted.saturating_mul(4));
    }

    /// A turn has ended: as many are to circulate as two such turns use.
    pub(super) fn end_turn(&mut self) {
        let used = std::mem::take(&mut self.used_in_turn);
        self.used_in_spell = self.used_in_spell.max(used);
        if used > self.wanted / 2 {
            self.want(self.wanted.saturating_mul(2));
        }
        self.turns += 1;
        if self.turns == SPELL_TURNS {
            self.turns = 0;
            if std::mem::take(&mut self.used_in_spell) < self.wanted / 4 {
                self.wanted = (self.wanted / 2).max(self.count.min(CIRCULATING_MIN));
            }
        }
    }

    fn circulating(&self) -> u16 {
        self.count - self.held.len() as u16
    }

    /// Has `wanted` buffers circulate, as far as there are so many.
    fn want(&mut self, wanted: u16) {
        self.wanted = wanted.min(self.count);
        let missing = self.wanted.saturating_sub(self.circulating());
        for _ in 0..missing {
            let Some(buffer) = self.held.pop() else { break };
            self.offer(buffer);
        }
        self.publish();
    }

    fn offer(&mut self, buffer: u16) {
        let index = usize::from(self.tail & (self.count - 1));
        // SAFETY: index < count, and the kernel does not read the entry before `publish`.
        let entry = unsafe { &mut *self.entries.as_ptr().add(index) };
        // The tail shares memory with a reserved field of the first entry, so fields are set one by one.
        entry.set_addr(self.data.as_ptr() as u64 + (usize::from(buffer) * self.buffer_bytes) as u64);
        entry.set_len(self.buffer_bytes as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: `entries` points to the first entry of the block, whose reserved field is the ring's tail: aligned, valid, and
        // read by the kernel only; this thread is its only writer.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: both blocks were allocated with these layouts; the owner has made sure that the kernel is done with them.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), entries_layout(self.count));
            dealloc(self.data.as_ptr(), data_layout(self.count, self.buffer_bytes));
        }
    }
}

fn entries_layout(count: u16) -> Layout {
    layout(usize::from(count) * size_of::<BufRingEntry>())
}

fn data_layout(count: u16, buffer_bytes: usize) -> Layout {
    layout(usize::from(count) * buffer_bytes)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, PAGE_BYTES).expect("a few megabytes, aligned to a page")
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: no layout here has size zero: count and buffer size are at least one.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_buffers_circulate_as_turns_use() {
        let ring = IoUring::new(8).expect("io_uring");
        let mut buffers = Buffers::register(&ring, 64, 512).expect("a ring of buffers");
        assert_eq!(buffers.circulating(), 16);
        (0..9).for_each(|buffer| buffers.give_back(buffer));
        buffers.end_turn();
        assert_eq!(buffers.circulating(), 32, "a turn used more than half of them");
        buffers.ran_out();
        buffers.ran_out();
        assert_eq!((buffers.circulating(), buffers.held.len()), (64, 0), "all there are, and no more");
        for _ in 0..4 * SPELL_TURNS {
            buffers.end_turn();
        }
        (0..64).for_each(|buffer| buffers.give_back(buffer));
        assert_eq!(buffers.circulating(), 16, "what comes back is held back");
        buffers.end_turn();
        let mut held = buffers.held.clone();
        held.sort_unstable();
        held.dedup();
        assert_eq!(held.len(), 64 - usize::from(buffers.circulating()), "each is in one place");
    }

    #[test]
    fn few_buffers_all_circulate() {
        let ring = IoUring::new(8).expect("io_uring");
        let mut buffers = Buffers::register(&ring, 2, 512).expect("a ring of buffers");
        for _ in 0..SPELL_TURNS {
            buffers.give_back(1);
            buffers.end_turn();
        }
        assert_eq!(buffers.circulating(), 2);
    }
}
