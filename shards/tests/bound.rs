//! A [`Bound`] is shared by the cores of a node: what several threads charge at once never passes it, and nothing they do to it is lost.
//!
//! The threads meet before each step, so that they reach the cell together; how often they do, the machine decides.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use mayfly_shards::{Bound, Rate, Time};

const MEETINGS: u64 = 20_000;

/// Where two threads wait for each other, spinning: one that is woken comes too late.
#[derive(Default)]
struct Meeting(AtomicU64);

impl Meeting {
    fn meet(&self) {
        let all = (self.0.fetch_add(1, SeqCst) / 2 + 1) * 2;
        let mut spins = 0;
        while self.0.load(SeqCst) < all {
            spins += 1;
            if spins % 256 == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

/// Both charge three of five: one gets it. That one gives back while the other charges one: one is left.
fn contend(bound: &Bound, meeting: &Meeting, granted: &AtomicU64) {
    for _ in 0..MEETINGS {
        meeting.meet();
        let is_mine = bound.charge(3);
        granted.fetch_add(u64::from(is_mine), SeqCst);
        meeting.meet();
        assert_eq!((granted.load(SeqCst), bound.used()), (1, 3), "one of two threads has three of five");
        meeting.meet();
        if is_mine {
            granted.fetch_sub(1, SeqCst);
            bound.release(3);
        } else {
            bound.charge(1);
        }
        meeting.meet();
        assert_eq!(bound.used(), 1);
        meeting.meet();
        if !is_mine {
            bound.release(1);
        }
    }
}

#[test]
fn two_threads_that_charge_one_bound_never_pass_it_and_leave_nothing() {
    let (bound, meeting, granted) = (Bound::new(5), Meeting::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| contend(&bound, &meeting, &granted));
        }
    });
    assert_eq!(bound.used(), 0);
}

/// Four threads at once, each as fast as it can: how many of `rounds` each were granted.
fn storm(rounds: u64, is_granted: impl Fn(u64) -> bool + Sync) -> u64 {
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        let run = |_| {
            scope.spawn(|| {
                start.wait();
                (0..rounds).filter(|round| is_granted(*round)).count() as u64
            })
        };
        let threads: Vec<_> = (0..4).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rule is broken")).sum()
    })
}

#[test]
fn what_threads_charge_and_give_back_is_counted_to_the_last() {
    const ROUNDS: u64 = 4_000_000;
    let bound = Bound::new(7);
    storm(ROUNDS, |round| {
        let amount = 1 + round % 3;
        let is_granted = bound.charge(amount);
        assert!(bound.used() <= 7);
        if is_granted {
            bound.release(amount);
        }
        is_granted
    });
    assert_eq!(bound.used(), 0);
    let bound = Bound::new(2 * ROUNDS + 1);
    assert_eq!((storm(ROUNDS, |_| bound.charge(1)), bound.used()), (2 * ROUNDS + 1, 2 * ROUNDS + 1));
}

#[test]
fn threads_that_spend_one_rate_spend_its_burst_and_no_more() {
    const ROUNDS: u64 = 4_000_000;
    let (rate, now) = (Rate::new(1, 2 * ROUNDS), Time(1_000_000_000));
    assert_eq!(storm(ROUNDS, |_| rate.spend(now, 1).is_ok()), 2 * ROUNDS);
}
