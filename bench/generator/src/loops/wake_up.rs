//! One message to a consumer that waits, from the producer's write to the consumer's read: after a pause in which both sides fall asleep,
//! or as soon as the one before was read.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::fleet::{Fleet, Watch};
use crate::meter::Meter;
use crate::process::Process;
use crate::report::Figure;
use crate::session::{Event, Flow, Role, Stream};

/// Longest that a message may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The producer first, then the consumer.
pub(super) fn roles() -> Vec<Role> {
    let stream = Stream { channel: 0, batch: 1, payload_bytes: 64, flow: Flow::OneWay };
    vec![Role::Producer(stream), Role::Consumer { stream, group: 0 }]
}

/// Measures deliveries.
pub(super) fn run(fleet: &mut Fleet, process: Option<Process>, span: Duration, pause: Option<Duration>) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for span in [span / 4, span] {
        let (mut meter, watch) = (Meter::new(), Watch::start(process));
        let end = Instant::now() + span;
        while Instant::now() < end {
            if let Some(pause) = pause {
                std::thread::sleep(pause);
            }
            let asked_at = Instant::now();
            fleet.start(0)?;
            let flow = fleet.run(asked_at + PATIENCE, |_, event, _| match event {
                Event::Done(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })?;
            if flow.is_continue() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a waiting consumer was not woken in 5 s"));
            }
            meter.done(asked_at, 1);
        }
        figures = watch.figures(&meter);
    }
    Ok(figures)
}
