//! Streams: a producer sends a batch, and the next when every group has all of it. An operation is a message delivered to a group; a
//! latency that of a whole batch.

use std::io;
use std::time::{Duration, Instant};

use crate::fleet::Fleet;
use crate::process::Process;
use crate::report::Figure;
use crate::session::{Event, Flow, Role, Stream};

/// Groups of a fan-out.
const GROUP_COUNT: usize = 8;

/// A producer a stream first, then each stream's consumers.
pub(super) fn roles(count: usize, batch: usize, payload_bytes: usize, flow: Flow) -> Vec<Role> {
    let group_count = group_count(flow);
    let stream = |channel| Stream { channel, batch, payload_bytes, flow };
    let producers = (0..count).map(|channel| Role::Producer(stream(channel)));
    let consumers =
        (0..count * group_count).map(|index| Role::Consumer { stream: stream(index / group_count), group: index % group_count });
    producers.chain(consumers).collect()
}

fn group_count(flow: Flow) -> usize {
    if flow == Flow::FanOut { GROUP_COUNT } else { 1 }
}

/// Measures `count` streams.
pub(super) fn run(
    fleet: &mut Fleet,
    process: Option<Process>,
    span: Duration,
    (count, batch, flow): (usize, usize, Flow),
) -> io::Result<Vec<Figure>> {
    let group_count = group_count(flow);
    let whole = batch * group_count;
    let (mut asked_at, mut due_count) = (vec![Instant::now(); count], vec![whole; count]);
    for slot in 0..count {
        fleet.start(slot)?;
    }
    fleet.measure(process, span, |meter, slot, event, starts| match event {
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
    })
}
