//! The buffers that multishot receives are filled from: one block of memory, offered to the kernel through a mapped ring.
//!
//! A buffer is the kernel's from [`Buffers::give_back`] until a completion names it, and ours from then until it is given back; only
//! then is a slice of it formed. The block outlives the io_uring it is registered with (see `queue::Queue`).

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

const PAGE_BYTES: usize = 4096;

/// The only group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    data: NonNull<u8>,
    count: u16,
    buffer_bytes: usize,
    tail: u16,
}

impl Buffers {
    /// `count` buffers (a power of two, at most 32,768) of `buffer_bytes` each, all offered to the kernel.
    pub(super) fn register(ring: &IoUring, count: u16, buffer_bytes: usize) -> io::Result<Self> {
        if !count.is_power_of_two() || count > 1 << 15 || buffer_bytes == 0 || u32::try_from(buffer_bytes).is_err() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let entries = allocate(entries_layout(count)).cast::<BufRingEntry>();
        let data = allocate(data_layout(count, buffer_bytes));
        let mut buffers = Self { entries, data, count, buffer_bytes, tail: 0 };
        for buffer in 0..count {
            buffers.offer(buffer);
        }
        buffers.publish();
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

    /// Offers a buffer to the kernel again.
    pub(super) fn give_back(&mut self, buffer: u16) {
        assert!(buffer < self.count, "the kernel names only buffers it was offered");
        self.offer(buffer);
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
