//! The io_uring itself: submission, completion, and the memory that the kernel may write to.
//!
//! Set-up: SINGLE_ISSUER and COOP_TASKRUN (completions never interrupt the running core; they are posted at its next system call)
//! with TASKRUN_FLAG (a flag in shared memory says that there is something to post, so looking costs no system call). Measured
//! against DEFER_TASKRUN, with the core asleep in the ring itself: 1.05 times as many messages in batches of 100, calls at 32
//! connections alike; but a receive whose socket was shut down while bytes streamed in completed only a minute later (Linux 6.18).

#![allow(unsafe_code)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffers::{Buffers, GROUP};

/// How long the end of a ring waits for the operations that it cancels.
const CANCEL_WAIT: Duration = Duration::from_secs(1);

/// One completion.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    /// A count, a descriptor, or a negated errno.
    pub(super) result: i32,
    flags: u32,
}

impl Completion {
    /// Whether the operation goes on (multishot).
    pub(super) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// The provided buffer that holds the bytes.
    pub(super) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

pub(super) struct Queue {
    ring: IoUring,
    buffers: ManuallyDrop<Buffers>,
    /// Nothing that the kernel could still write to is left.
    quiet: bool,
}

impl Queue {
    pub(super) fn new(submissions: u32, completions: u32, buffer_count: u16, buffer_bytes: usize) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(completions)
            .build(submissions)?;
        let buffers = ManuallyDrop::new(Buffers::register(&ring, buffer_count, buffer_bytes)?);
        Ok(Self { ring, buffers, quiet: false })
    }

    /// Whether completions wait, or would after [`Queue::enter`].
    pub(super) fn ready(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.wants_entry()
    }

    /// Whether completions wait that need no system call.
    pub(super) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Whether operations are queued but not submitted, or the kernel has completions to post.
    pub(super) fn wants_entry(&mut self) -> bool {
        let submission = self.ring.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Whether operations are queued but not submitted.
    pub(super) fn has_submissions(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Submits what is queued and has the kernel post what is done. Does not wait.
    pub(super) fn enter(&mut self) {
        match self.ring.submit() {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => log::error!("io_uring_enter failed: {error}"),
        }
    }

    /// Submits what is queued and waits for a completion, for `span` at most.
    pub(super) fn wait(&mut self, span: Duration) {
        let span = Timespec::from(span);
        let arguments = SubmitArgs::new().timespec(&span);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => {}
            // Nothing came in time, or as for `enter`.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME)) || is_passing(&error) => {}
            Err(error) => log::error!("io_uring_enter failed: {error}"),
        }
    }

    /// Appends up to `limit` completions.
    pub(super) fn reap(&mut self, limit: usize, into: &mut Vec<Completion>) {
        let completions = self.ring.completion().take(limit);
        into.extend(completions.map(|entry| Completion { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() }));
    }

    /// The bytes of a receive; valid until the buffer is given back.
    pub(super) fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        self.buffers.bytes(buffer, len)
    }

    pub(super) fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// See [`Buffers::ran_out`].
    pub(super) fn ran_out_of_buffers(&mut self) {
        self.buffers.ran_out();
    }

    /// See [`Buffers::end_turn`].
    pub(super) fn end_turn(&mut self) {
        self.buffers.end_turn();
    }

    pub(super) fn accept(&mut self, listener: RawFd, user_data: u64) {
        // Blocking, so that the ring waits for readiness instead of answering EAGAIN.
        let flags = libc::SOCK_CLOEXEC;
        self.push(opcode::AcceptMulti::new(Fd(listener)).flags(flags).build().user_data(user_data));
    }

    pub(super) fn receive(&mut self, socket: RawFd, user_data: u64) {
        self.push(opcode::RecvMulti::new(Fd(socket), GROUP).build().user_data(user_data));
    }

    /// Queues a send.
    ///
    /// # Safety
    /// `bytes` stays allocated, unmoved and unchanged until the completion with this `user_data`.
    pub(super) unsafe fn send(&mut self, socket: RawFd, bytes: &[u8], user_data: u64) {
        // The kernel takes less than 2 GiB at a time anyway; the rest goes with the next send.
        let len = bytes.len().min(1 << 30) as u32;
        self.push(opcode::Send::new(Fd(socket), bytes.as_ptr(), len).flags(libc::MSG_NOSIGNAL).build().user_data(user_data));
    }

    /// Completes once when one of `events` (or error or hang-up) is there, or each time with `multishot`.
    pub(super) fn poll(&mut self, descriptor: RawFd, events: i16, multishot: bool, user_data: u64) {
        let entry = opcode::PollAdd::new(Fd(descriptor), events as u16 as u32).multi(multishot).build();
        self.push(entry.user_data(user_data));
    }

    /// Cancels the operation with `target` as its user data.
    pub(super) fn cancel(&mut self, target: u64, user_data: u64) {
        self.push(opcode::AsyncCancel::new(target).build().user_data(user_data));
    }

    /// Cancels everything and waits for it. `false`: the kernel may still use memory that was handed to it.
    pub(super) fn cancel_all(&mut self) -> bool {
        if !self.quiet {
            self.enter();
            let cancelled = self.ring.submitter().register_sync_cancel(Some(Timespec::from(CANCEL_WAIT)), CancelBuilder::any());
            self.quiet = match cancelled {
                Ok(()) => true,
                Err(error) => error.raw_os_error() == Some(libc::ENOENT),
            };
        }
        self.quiet
    }

    fn push(&mut self, entry: squeue::Entry) {
        while self.ring.submission().is_full() {
            self.enter();
        }
        // SAFETY: descriptors are only looked up by the kernel; the memory behind an entry is the provided buffers (kept until
        // `cancel_all` succeeded) or a send's bytes, for which the caller of `send` answers.
        unsafe { self.ring.submission().push(&entry) }.expect("there is room: checked above");
    }
}

/// Interrupted, or out of memory for the moment: what was not taken stays queued for the next turn.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.cancel_all() {
            // SAFETY: dropped once, here; nothing is in flight that could write to the buffers. Otherwise they are leaked.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}
