//! Mail between cores: one FIFO per ordered pair, senders never wait, sleeping receivers are woken once per batch.
//!
//! A pair's mail goes through a bounded lock-free queue; what does not fit waits in order with the sender, which flushes every turn.
//! A receiver that has emptied a queue behind which mail waits rings the sender.
//!
//! No wake-up is lost. Falling asleep is: `asleep = true`, full fence, look for mail. Sending is: push, full fence, look at `asleep`.
//! Of the two looks at least one sees the other side's write, so either the receiver finds the mail or the sender rings. The same
//! pattern, with `starved` in the place of `asleep`, tells a receiver that mail waits with the sender.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;

use crate::ring::syscalls::{eventfd, wait_readable};

/// How a core is woken: a flag that it is asleep, and a bell that its driver polls.
#[derive(Debug)]
pub struct Waker {
    asleep: CachePadded<AtomicBool>,
    bell: File,
}

impl Waker {
    /// A waker of a core that is awake.
    ///
    /// # Errors
    /// No descriptor is left for its eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self { asleep: CachePadded::new(AtomicBool::new(false)), bell: File::from(eventfd(0)?) })
    }

    /// Wakes the core if it sleeps. What it is to find must have been written before.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            // Fails only when 2^64 - 1 wakes are outstanding, and then the bell rings anyway.
            let _ = (&self.bell).write(&1_u64.to_ne_bytes());
        }
    }

    /// Says that the core is about to sleep. It must look for mail after this and before it sleeps.
    #[inline]
    pub fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeps on a plain thread until the core is woken or `longest` is over, unless `has_work` finds something at the last look.
    pub fn sleep(&self, longest: Option<Duration>, has_work: impl Fn() -> bool) {
        self.fall_asleep();
        if !has_work() {
            wait_readable(self.bell.as_raw_fd(), longest);
        }
        self.awake();
        let mut count = [0; 8];
        // Empty when nobody rang.
        let _ = (&self.bell).read(&mut count);
    }

    /// Says that the core is awake.
    #[inline]
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

/// The way from one core to another.
struct Lane<T> {
    queue: ArrayQueue<T>,
    /// Mail waits with the sender because the queue was full.
    starved: CachePadded<AtomicBool>,
}

/// What one core needs to send to one other.
struct Outbound<T> {
    lane: Arc<Lane<T>>,
    waker: Arc<Waker>,
    waiting: VecDeque<T>,
    /// Something was pushed since the last flush.
    unrung: bool,
}

struct Inbound<T> {
    lane: Arc<Lane<T>>,
    sender: Arc<Waker>,
}

/// One core's end of the mesh.
pub struct Mesh<T> {
    core: usize,
    waker: Arc<Waker>,
    /// By core; none to itself.
    outbound: Vec<Option<Outbound<T>>>,
    inbound: Vec<Option<Inbound<T>>>,
    /// Where the next receive begins, so that no sender is always last.
    next_sender: usize,
}

impl<T: Send> Mesh<T> {
    /// The ends of a mesh of `core_count` cores whose lanes hold `lane_capacity` letters each before letters wait with the sender.
    ///
    /// # Errors
    /// No descriptor is left for the bells.
    pub fn of_cores(core_count: usize, lane_capacity: usize) -> io::Result<Vec<Self>> {
        let wakers = (0..core_count).map(|_| Waker::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        let lane = || Arc::new(Lane { queue: ArrayQueue::new(lane_capacity.max(1)), starved: CachePadded::new(AtomicBool::new(false)) });
        let lanes: Vec<Vec<_>> = (0..core_count).map(|_| (0..core_count).map(|_| lane()).collect()).collect();
        let others = |core: usize| (0..core_count).map(move |other| (other != core).then_some(other));
        let end = |core: usize| Self {
            core,
            waker: Arc::clone(&wakers[core]),
            outbound: others(core)
                .map(|other| {
                    let other = other?;
                    let (lane, waker) = (Arc::clone(&lanes[core][other]), Arc::clone(&wakers[other]));
                    Some(Outbound { lane, waker, waiting: VecDeque::new(), unrung: false })
                })
                .collect(),
            inbound: others(core)
                .map(|other| other.map(|other| Inbound { lane: Arc::clone(&lanes[other][core]), sender: Arc::clone(&wakers[other]) }))
                .collect(),
            next_sender: 0,
        };
        Ok((0..core_count).map(end).collect())
    }

    /// This core's number.
    #[must_use]
    pub fn core(&self) -> usize {
        self.core
    }

    /// What wakes this core: for its driver.
    #[must_use]
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Sends to another core, behind everything sent to it before. The receiver is told with the next [`Mesh::flush`]. Never waits;
    /// what keeps `waiting_count` bounded is the caller's credits.
    ///
    /// # Panics
    /// `to` is this core or none of the mesh: a fault of the program, not of input.
    pub fn send(&mut self, to: usize, letter: T) {
        let outbound = self.outbound[to].as_mut().expect("a core does not write to itself");
        outbound.unrung = true;
        if !outbound.waiting.is_empty() {
            outbound.waiting.push_back(letter);
        } else if let Err(letter) = outbound.lane.queue.push(letter) {
            outbound.waiting.push_back(letter);
        }
    }

    /// Moves waiting letters into their lanes as far as there is room and wakes the receivers that have got something and sleep.
    pub fn flush(&mut self) {
        for outbound in self.outbound.iter_mut().flatten() {
            outbound.push_waiting();
            if outbound.unrung {
                outbound.unrung = false;
                outbound.waker.wake();
            }
        }
    }

    /// Hands over up to `budget` letters with their senders, a fair share from each sender; returns how many.
    pub fn receive(&mut self, budget: usize, mut take: impl FnMut(usize, T)) -> usize {
        let core_count = self.inbound.len();
        let mut taken = 0;
        let mut found = true;
        while found && taken < budget {
            found = false;
            for step in 0..core_count {
                let sender = (self.next_sender + step) % core_count;
                let Some(inbound) = &self.inbound[sender] else { continue };
                let share = (budget - taken).min(SHARE);
                let count = inbound.receive(share, |letter| take(sender, letter));
                found |= count == share && share > 0;
                taken += count;
            }
        }
        self.next_sender = (self.next_sender + 1) % core_count.max(1);
        taken
    }

    /// Whether there is work: mail to receive, or a lane that has room for waiting letters. To be looked at before sleeping.
    #[must_use]
    pub fn has_mail(&self) -> bool {
        self.inbound.iter().flatten().any(|inbound| !inbound.lane.queue.is_empty())
            || self.outbound.iter().flatten().any(|outbound| !outbound.waiting.is_empty() && !outbound.lane.queue.is_full())
    }

    /// Letters that wait on this side because a lane is full.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.outbound.iter().flatten().map(|outbound| outbound.waiting.len()).sum()
    }
}

/// Letters taken from one sender before the next one's turn.
const SHARE: usize = 16;

impl<T> Outbound<T> {
    fn push_waiting(&mut self) {
        while let Some(letter) = self.waiting.pop_front() {
            match self.lane.queue.push(letter) {
                Ok(()) => self.unrung = true,
                Err(letter) => {
                    self.waiting.push_front(letter);
                    // The receiver may have emptied the lane before it could see this: `has_mail` looks again.
                    self.lane.starved.store(true, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    return;
                }
            }
        }
        if self.waiting.capacity() > 0 {
            self.waiting = VecDeque::new();
        }
    }
}

impl<T> Inbound<T> {
    fn receive(&self, share: usize, mut take: impl FnMut(T)) -> usize {
        let mut count = 0;
        while count < share {
            let Some(letter) = self.lane.queue.pop() else { break };
            take(letter);
            count += 1;
        }
        if count > 0 {
            fence(Ordering::SeqCst);
            if self.lane.starved.load(Ordering::Relaxed) && self.lane.starved.swap(false, Ordering::AcqRel) {
                self.sender.wake();
            }
        }
        count
    }
}
