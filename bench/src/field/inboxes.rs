//! Inboxes used for one message each and never again: how fast, and what resident memory is left when the server has had its time to forget
//! them.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::Run;
use crate::peer::launch::IMPLICIT_IDLE_S;
use mayfly_generator::fleet::Watch;
use mayfly_generator::meter::Meter;
use mayfly_generator::report::Figure;
use mayfly_generator::session::{Event, Role};

const CONNECTION_COUNT: usize = 16;
/// Used before anything is counted: what a server takes once, it has by then.
const WARM_UP_COUNT: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// What counts as memory that came back.
const BACK_BYTES: u64 = 2 << 20;

/// Uses `count` inboxes.
pub(super) fn run(run: &Run<'_>, count: usize) -> io::Result<Option<Vec<Figure>>> {
    let roles = (0..CONNECTION_COUNT).map(|index| Role::Inboxes { index });
    let Some((server, mut fleet)) = run.open(roles)? else { return Ok(None) };
    let mut before_bytes = 0;
    let mut figures = Vec::new();
    for count in [WARM_UP_COUNT, count] {
        before_bytes = server.process.resident_bytes();
        let (mut meter, watch) = (Meter::new(), Watch::start(Some(server.process)));
        let mut asked_at = [Instant::now(); CONNECTION_COUNT];
        for slot in 0..CONNECTION_COUNT {
            fleet.start(slot)?;
        }
        let (mut started_count, mut done_count) = (CONNECTION_COUNT, 0);
        let flow = fleet.run(Instant::now() + PATIENCE, |slot, event, starts| {
            if let Event::Done(_) = event {
                meter.done(asked_at[slot], 1);
                asked_at[slot] = Instant::now();
                done_count += 1;
                if started_count < count {
                    started_count += 1;
                    starts.push(slot);
                }
            }
            if done_count == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if flow.is_continue() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        figures = watch.figures(&meter);
    }
    let with_bytes = server.process.resident_bytes();
    // Twice the idle time: collection runs beside, and gives memory back a little later.
    let end = Instant::now() + Duration::from_secs(2 * IMPLICIT_IDLE_S);
    let mut after_bytes = with_bytes;
    while after_bytes > before_bytes + BACK_BYTES && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        after_bytes = server.process.resident_bytes();
    }
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    figures.push(("rss_before_mib", mib(before_bytes)));
    figures.push(("rss_with_mib", mib(with_bytes)));
    figures.push(("rss_growth_mib", mib(after_bytes) - mib(before_bytes)));
    Ok(Some(figures))
}
