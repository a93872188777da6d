//! How a core waits: polls for a while when that paid lately, then sleeps in its own ring; and how it lets the executor breathe.
//!
//! The order before sleeping is: submit everything, say "asleep" to the mesh, look once more, wait. The kernel's wait returns at once
//! when a completion is there, so one that comes after the last look is not lost; a mail that comes after it finds the core asleep and
//! rings the bell, which is a completion (see [`crate::mesh`]).
//!
//! It sleeps in its own ring and not in the executor's, on this one's descriptor, which would be two wake-ups instead of one. So the
//! executor's other tasks run in breaths: every millisecond of work, every 100 ms of sleep.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use glommio::io::PollableFd;
use glommio::timer::Timer;

use super::driver::{Driver, SetupError};
use super::syscalls::eventfd;
use crate::mesh::Waker;

/// Longest work without giving the executor a turn. Nothing that a request waits for needs one.
const BREATH_NS: u64 = 1_000_000;
/// When a breath is ended that the executor sleeps through; see [`Driver::take_breath`].
const ALARMS_MS: [u64; 4] = [2, 20, 200, 2_000];
/// Longest sleep in the ring, so that the executor's other tasks wait no longer than this while the core is idle.
const SLEEP_NS_MAX: u64 = 100_000_000;
/// Looks between two readings of the clock while polling.
const LOOKS: usize = 16;
/// Credit for polling: how many fruitless rounds until it is off.
const CREDIT_MAX: u32 = 8;
/// What waking up costs on top of a sleep that polling would have spared.
const WAKE_UP_NS: u64 = 30_000;

pub(super) struct Sleeper {
    /// Readable at all times: waiting for it is a round through the reactor.
    always: PollableFd<OwnedFd>,
    waker: Arc<Waker>,
    spin_ns: u64,
    credit: u32,
    breathed_at: u64,
    woke_at: u64,
}

impl Sleeper {
    pub(super) fn new(waker: Arc<Waker>, spin: Duration) -> Result<Self, SetupError> {
        let always = eventfd(1).map_err(SetupError::Ring)?;
        Ok(Self {
            always: PollableFd::new(always).map_err(|error| SetupError::Watch(error.to_string()))?,
            waker,
            spin_ns: u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX),
            credit: 0,
            breathed_at: 0,
            woke_at: 0,
        })
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl Driver {
    /// Flushes, and waits until there is work: a completion, mail (`has_mail`), or `until` (nanoseconds of the clock). Returns at
    /// once when there is work already, after a breath if one is due. The mesh has to be flushed before.
    pub async fn sleep(&mut self, until: Option<u64>, has_mail: impl Fn() -> bool) {
        self.flush();
        let now = self.clock.now_ns();
        self.busy.waits(now);
        let deadline = until.unwrap_or(u64::MAX).min(self.next_deadline());
        if self.has_work() || deadline <= now || has_mail() || self.spin(now, deadline, &has_mail) {
            return self.breathe().await;
        }
        if now.saturating_sub(self.sleeper.breathed_at) >= SLEEP_NS_MAX {
            return self.take_breath().await;
        }
        self.sleeper.waker.fall_asleep();
        if !self.has_arrived() && !has_mail() {
            self.wait(now, deadline);
        }
        self.sleeper.waker.awake();
    }

    /// Lets the executor run its reactor, timers and other tasks, if the core has worked for a millisecond since it last did, or slept.
    pub async fn breathe(&mut self) {
        let rested_at = self.sleeper.breathed_at.max(self.sleeper.woke_at);
        if self.clock.now_ns().saturating_sub(rested_at) >= BREATH_NS {
            self.take_breath().await;
        }
    }

    /// glommio-ng 0.12 returns from `run_task_queues` as if there were nothing to run when its latency ring holds a completion at that
    /// moment, such as that of its preemption timer, and then parks although a task was woken. Seen as a rare stall on a crowded
    /// machine, and at once with a preemption timer of 20 us; any timer ends that sleep. One alone would not do: the task that it wakes
    /// may be overlooked in its turn, and then nothing is left that could end the sleep. So give the executor a long preemption timer
    /// too (an hour): nothing here uses it.
    async fn take_breath(&mut self) {
        let mut alarms = ALARMS_MS.map(|ms| Timer::new(Duration::from_millis(ms)));
        // What an alarm says is nothing new: it has ended the sleep. Polled once each, which sets it.
        let set = poll_fn(|context| {
            let _ = alarms.each_mut().map(|alarm| Pin::new(alarm).poll(context));
            Poll::Ready(())
        });
        set.await;
        if let Err(error) = self.sleeper.always.readable().await {
            log::error!("the executor refused a breath: {error}");
        }
        self.sleeper.breathed_at = self.clock.now_ns();
    }

    fn wait(&mut self, since: u64, deadline: u64) {
        let now = self.clock.now_ns();
        self.queue.wait(Duration::from_nanos(deadline.saturating_sub(now).min(SLEEP_NS_MAX)));
        let now = self.clock.now_ns();
        self.sleeper.woke_at = now;
        // Polling would have found this: worth another try.
        if now - since < self.sleeper.spin_ns.saturating_add(WAKE_UP_NS) {
            self.sleeper.credit = (self.sleeper.credit + 1).min(CREDIT_MAX);
        }
    }

    /// Polls; `true` when it found something.
    fn spin(&mut self, since: u64, deadline: u64, has_mail: &impl Fn() -> bool) -> bool {
        if self.sleeper.spin_ns == 0 || self.sleeper.credit == 0 {
            return false;
        }
        let end = since.saturating_add(self.sleeper.spin_ns).min(deadline);
        loop {
            for _ in 0..LOOKS {
                if self.has_arrived() || has_mail() {
                    self.sleeper.credit = (self.sleeper.credit + 1).min(CREDIT_MAX);
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.clock.now_ns() >= end {
                self.sleeper.credit -= 1;
                return false;
            }
        }
    }
}
