//! Streams: a producer sends a batch, and the next when every group has all of it. An operation is a message delivered to a group; a latency
//! that of a whole batch.

use std::io;
use std::time::Instant;

use super::{GROUP_COUNT, Run};
use crate::peer::{Event, Flow, Role, Stream};
use crate::report::Figure;

/// Measures `count` streams.
pub(super) fn run(run: &Run<'_>, count: usize, batch: usize, payload_bytes: usize, flow: Flow) -> io::Result<Option<Vec<Figure>>> {
    let group_count = if flow == Flow::FanOut { GROUP_COUNT } else { 1 };
    let stream = |channel| Stream { channel, batch, payload_bytes, flow };
    let producers = (0..count).map(|channel| Role::Producer(stream(channel)));
    let consumers =
        (0..count * group_count).map(|index| Role::Consumer { stream: stream(index / group_count), group: index % group_count });
    let Some((server, mut fleet)) = run.open(producers.chain(consumers))? else { return Ok(None) };
    let whole = batch * group_count;
    let (mut asked_at, mut due_count) = (vec![Instant::now(); count], vec![whole; count]);
    for slot in 0..count {
        fleet.start(slot)?;
    }
    let figures = fleet.measure(&server, run.setup.span, |meter, slot, event, starts| match event {
        Event::Refused => {
            meter.refused();
            starts.push(slot);
        }
        Event::Done(done_count) => {
            let channel = (slot - count) / group_count;
            due_count[channel] = due_count[channel].saturating_sub(done_count);
            if due_count[channel] == 0 {
                meter.done(asked_at[channel], whole);
                due_count[channel] = whole;
                asked_at[channel] = Instant::now();
                starts.push(channel);
            }
        }
        _ => {}
    })?;
    Ok(Some(figures))
}
