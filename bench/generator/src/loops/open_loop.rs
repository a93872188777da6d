//! Calls in an open loop: one is due at a steady rate, whatever became of those before, and goes when a caller is free. Its latency counts
//! from when it was due, so that a server that stalls is charged for all who would have called meanwhile (no coordinated omission).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::fleet::{Fleet, Watch};
use crate::meter::Meter;
use crate::process::Process;
use crate::report::Figure;
use crate::session::Event;

/// Calls that are due, and who may make them.
#[derive(Debug)]
struct Schedule {
    interval: Duration,
    next_at: Instant,
    /// Due, and no caller is free.
    waiting: VecDeque<Instant>,
    idle: Vec<usize>,
    /// When the call that a caller makes was due.
    due_at: Vec<Option<Instant>>,
}

impl Schedule {
    fn new(caller_count: usize, rate_per_s: u32, now: Instant) -> Self {
        let (interval, idle) = (Duration::from_secs(1) / rate_per_s, (0..caller_count).collect());
        Self { interval, next_at: now, waiting: VecDeque::new(), idle, due_at: vec![None; caller_count] }
    }

    /// Makes the calls that are due by `now`, as far as callers are free.
    fn turn(&mut self, now: Instant, starts: &mut Vec<usize>) {
        while self.next_at <= now {
            self.waiting.push_back(self.next_at);
            self.next_at += self.interval;
        }
        while !self.waiting.is_empty()
            && let Some(slot) = self.idle.pop()
        {
            self.due_at[slot] = self.waiting.pop_front();
            starts.push(slot);
        }
    }

    /// A caller has its reply: when the call was due.
    fn done(&mut self, slot: usize) -> Option<Instant> {
        self.idle.push(slot);
        self.due_at[slot].take()
    }
}

/// Measures calls at a rate.
pub(super) fn run(
    fleet: &mut Fleet,
    process: Option<Process>,
    span: Duration,
    caller_count: usize,
    rate_per_s: u32,
) -> io::Result<Vec<Figure>> {
    let schedule = RefCell::new(Schedule::new(caller_count, rate_per_s, Instant::now()));
    let mut figures = Vec::new();
    for span in [span / 4, span] {
        let (mut meter, watch) = (Meter::new(), Watch::start(process));
        let turn = |starts: &mut Vec<usize>| schedule.borrow_mut().turn(Instant::now(), starts);
        let _ = fleet.run_paced(Instant::now() + span, turn, |slot, event, starts| {
            if let Event::Done(_) = event {
                let (mut schedule, now) = (schedule.borrow_mut(), Instant::now());
                if let Some(due_at) = schedule.done(slot) {
                    meter.took(now - due_at);
                }
                schedule.turn(now, starts);
            }
            ControlFlow::Continue(())
        })?;
        // Those not done by now count with the time they have waited: a run must not look better for ending.
        let (schedule, now) = (schedule.borrow(), Instant::now());
        for due_at in schedule.waiting.iter().chain(schedule.due_at.iter().flatten()) {
            meter.waited(now - *due_at);
        }
        figures = watch.figures(&meter);
        figures.push(("late_count", schedule.waiting.len() as f64));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_found_no_caller_counts_from_when_it_was_due() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let (mut schedule, mut starts) = (Schedule::new(1, 100, start), Vec::new());
        schedule.turn(at(25), &mut starts);
        assert_eq!((&starts[..], schedule.waiting.len()), (&[0][..], 2));
        assert_eq!(schedule.done(0), Some(start));
        schedule.turn(at(25), &mut starts);
        assert_eq!(schedule.done(0), Some(at(10)));
        schedule.turn(at(29), &mut starts);
        assert_eq!((schedule.done(0), starts.len()), (Some(at(20)), 3));
        schedule.turn(at(29), &mut starts);
        assert_eq!((starts.len(), schedule.idle.len()), (3, 1));
    }
}
