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

/// A charge of `amount`, given back if it was granted, of a bound that is 7 at most. Whether it was.
fn charge_and_give_back(bound: &Bound, amount: u64) -> bool {
    let is_granted = bound.charge(amount);
    assert!(bound.used() <= 7);
    if is_granted {
        bound.release(amount);
    }
    is_granted
}

#[test]
fn what_threads_charge_and_give_back_is_counted_to_the_last() {
    const ROUNDS: u64 = 4_000_000;
    let bound = Bound::new(7);
    storm(ROUNDS, |round| charge_and_give_back(&bound, 1 + round % 3));
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

/// One thread moves the ceiling down and up while the other charges; they meet before each look.
#[test]
fn a_ceiling_that_moves_while_others_charge_refuses_from_then_on_and_loses_nothing() {
    let (bound, meeting) = (Bound::new(6), Meeting::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..MEETINGS {
                meeting.meet();
                let first = bound.charge(4);
                meeting.meet();
                // By now the ceiling is 3: what is held stays, and nothing is added to it.
                assert!(!bound.charge(4) && bound.used() == if first { 4 } else { 0 });
                meeting.meet();
                if first {
                    bound.release(4);
                }
                meeting.meet();
            }
        });
        for _ in 0..MEETINGS {
            meeting.meet();
            bound.set_max(3);
            meeting.meet();
            meeting.meet();
            bound.set_max(6);
            meeting.meet();
        }
    });
    assert_eq!(bound.used(), 0);
}

#[test]
fn charges_under_a_moving_ceiling_never_pass_the_highest_and_are_counted_to_the_last() {
    const ROUNDS: u64 = 1_000_000;
    let bound = Bound::new(7);
    let granted = storm(ROUNDS, |round| {
        bound.set_max(3 + round % 5);
        charge_and_give_back(&bound, 1 + round % 3)
    });
    assert_eq!((bound.used(), granted > 0), (0, true));
}

/// A change that a spend meets halfway may let a burst pass by the old number; it never stops the tenant for longer than a burst takes.
#[test]
fn a_rate_that_changes_while_others_spend_is_itself_again_after_one_burst() {
    let rate = Rate::new(1_000_000, 1_000_000);
    let now = Time(1_000_000_000);
    storm(200_000, |round| {
        let (per_second, burst) = if round % 2 == 0 { (1, 2) } else { (1_000_000, 1_000_000) };
        rate.set(per_second, burst);
        rate.spend(now, 10_000).is_ok()
    });
    rate.set(1, 2);
    let later = Time(now.0 + 2_000_000_000);
    assert_eq!((rate.spend(later, 2), rate.spend(later, 1).is_err()), (Ok(()), true));
}
