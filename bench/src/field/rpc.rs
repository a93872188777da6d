//! Calls in a closed loop: each caller calls again when it has its reply.

use std::io;
use std::time::Instant;

use super::Run;
use crate::peer::{Event, Role};
use crate::report::Figure;

/// Callers first, then responders.
pub(super) fn roles(caller_count: usize, responder_count: usize) -> impl Iterator<Item = Role> {
    (0..caller_count).map(|index| Role::Caller { index }).chain((0..responder_count).map(|_| Role::Responder))
}

/// Measures calls.
pub(super) fn run(run: &Run<'_>, caller_count: usize, responder_count: usize) -> io::Result<Option<Vec<Figure>>> {
    let Some((server, mut fleet)) = run.open(roles(caller_count, responder_count))? else { return Ok(None) };
    let mut asked_at = vec![Instant::now(); caller_count];
    for slot in 0..caller_count {
        fleet.start(slot)?;
    }
    let figures = fleet.measure(&server, run.setup.span, |meter, slot, event, starts| {
        if let Event::Done(_) = event {
            meter.done(asked_at[slot], 1);
            asked_at[slot] = Instant::now();
            starts.push(slot);
        }
    })?;
    Ok(Some(figures))
}
