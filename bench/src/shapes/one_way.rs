//! Push, then pop what was pushed: with autoAck, or leased and acked. Each connection has a queue of its own; an operation is a message, a
//! latency that of the whole cycle of two or three requests.

use std::io;
use std::time::Instant;

use super::Setup;
use super::measure;
use mayfly_generator::load::Load;
use mayfly_generator::report::Row;
use mayfly_generator::request::{self, Kind, PAYLOAD};

/// Parameters of the shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneWay {
    pub(super) connection_count: usize,
    pub(super) batch: usize,
    pub(super) is_leased: bool,
}

/// Measures cycles.
pub(super) fn run(setup: &Setup, one_way: OneWay) -> io::Result<Row> {
    let OneWay { connection_count, batch, is_leased } = one_way;
    let server = setup.start(&[])?;
    let mut load = Load::connect(server.address, connection_count)?;
    let queues: Vec<String> = (0..connection_count).map(|slot| format!("stream-{slot}")).collect();
    let (mut pushes, mut pops) = (vec![Vec::new(); connection_count], vec![Vec::new(); connection_count]);
    for (slot, queue) in queues.iter().enumerate() {
        request::push(&mut pushes[slot], queue, PAYLOAD, batch);
        let rest = if is_leased { format!("&batch={batch}") } else { format!("&batch={batch}&autoAck=true") };
        request::pop(&mut pops[slot], queue, &rest);
        load.send(slot, |next| next.extend_from_slice(&pushes[slot]))?;
    }
    let mut asked_at = vec![Instant::now(); connection_count];
    let figures = measure(&server, &mut load, setup.span, |meter, slot, answer, next| match answer.kind() {
        Kind::Pushed => next.extend_from_slice(&pops[slot]),
        Kind::Popped if is_leased => request::ack(next, &queues[slot], "", answer.ids()),
        Kind::Popped | Kind::Acked => {
            meter.done(asked_at[slot], batch);
            asked_at[slot] = Instant::now();
            next.extend_from_slice(&pushes[slot]);
        }
        Kind::Refused => {
            meter.refused();
            next.extend_from_slice(&pushes[slot]);
        }
    })?;
    let acks = if is_leased { "lease+ack" } else { "autoAck" };
    Ok(Row { shape: "oneway", parameters: format!("batch {batch} 64 B, {connection_count} connections, {acks}"), figures })
}
