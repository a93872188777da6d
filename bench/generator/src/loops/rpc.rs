//! Calls in a closed loop: each caller calls again when it has its reply.

use std::io;
use std::time::{Duration, Instant};

use crate::fleet::Fleet;
use crate::process::Process;
use crate::report::Figure;
use crate::session::{Event, Role};

/// Callers first, then responders.
pub(super) fn roles(caller_count: usize, responder_count: usize) -> Vec<Role> {
    (0..caller_count).map(|index| Role::Caller { index }).chain((0..responder_count).map(|_| Role::Responder)).collect()
}

/// Measures calls.
pub(super) fn run(fleet: &mut Fleet, process: Option<Process>, span: Duration, caller_count: usize) -> io::Result<Vec<Figure>> {
    let mut asked_at = vec![Instant::now(); caller_count];
    fleet.start_together(0..caller_count)?;
    fleet.measure(process, span, |meter, slot, event, starts| {
        if let Event::Done(_) = event {
            meter.done(asked_at[slot], 1);
            asked_at[slot] = Instant::now();
            starts.push(slot);
        }
    })
}
