//! Pushing 64-byte messages as fast as they are taken, with one consumer beside that drains the queue with autoAck, so that its bound is
//! not met. An operation is a message; a latency is of one push call.

use std::io;
use std::time::Instant;

use super::Setup;
use super::measure;
use mayfly_generator::load::Load;
use mayfly_generator::report::Row;
use mayfly_generator::request::{self, Kind, PAYLOAD};

/// Measures `pusher_count` connections that push `batch` messages a call.
pub(super) fn run(setup: &Setup, pusher_count: usize, batch: usize) -> io::Result<Row> {
    let server = setup.start(&[])?;
    let mut load = Load::connect(server.address, pusher_count + 1)?;
    let (mut push, mut pop) = (Vec::new(), Vec::new());
    request::push(&mut push, "stream", PAYLOAD, batch);
    request::pop(&mut pop, "stream", "&batch=2000&wait=true&autoAck=true");
    load.send(pusher_count, |next| next.extend_from_slice(&pop))?;
    for slot in 0..pusher_count {
        load.send(slot, |next| next.extend_from_slice(&push))?;
    }
    let mut asked_at = vec![Instant::now(); pusher_count];
    let figures = measure(&server, &mut load, setup.span, |meter, slot, answer, next| {
        if slot == pusher_count {
            next.extend_from_slice(&pop);
            return;
        }
        match answer.kind() {
            Kind::Pushed => meter.done(asked_at[slot], batch),
            _ => meter.refused(),
        }
        asked_at[slot] = Instant::now();
        next.extend_from_slice(&push);
    })?;
    Ok(Row { shape: "push", parameters: format!("batch {batch} 64 B, {pusher_count} pushers, 1 drain"), figures })
}
