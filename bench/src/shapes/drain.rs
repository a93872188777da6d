//! Acknowledging leased messages out of order, 100 a call: linear in their number, or not.

use std::io;
use std::time::{Duration, Instant};

use super::Setup;
use mayfly_generator::load::Load;
use mayfly_generator::report::Row;
use mayfly_generator::request::{self, Answer, PAYLOAD};

const PATIENCE: Duration = Duration::from_secs(30);
const BATCH: usize = 100;
/// Queues drained one after the other; the figures are of all of them.
const REPEATS: usize = 5;

/// Drains `count` leased messages, a multiple of [`BATCH`].
pub(super) fn run(setup: &Setup, count: usize) -> io::Result<Row> {
    let server = setup.start(&[("QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH", "100000")])?;
    let mut load = Load::connect(server.address, 1)?;
    let (mut elapsed, mut cpu) = (Duration::ZERO, Duration::ZERO);
    for repeat in 0..REPEATS {
        let queue = format!("drain-{repeat}");
        let mut ids = lease(&mut load, &queue, count)?;
        shuffle(&mut ids);
        let (started_at, cpu_before) = (Instant::now(), server.process.cpu_time());
        for batch in ids.chunks(BATCH) {
            let body = load.ask(0, Instant::now() + PATIENCE, |next| request::ack(next, &queue, "", batch.iter().map(String::as_str)))?;
            if body.matches("\"acked\"").count() != batch.len() {
                return Err(io::Error::other("an ack was not taken"));
            }
        }
        elapsed += started_at.elapsed();
        cpu += server.process.cpu_time().saturating_sub(cpu_before);
    }
    let acked_count = (count * REPEATS) as f64;
    let figures = vec![
        ("drain_ms", elapsed.as_secs_f64() * 1e3 / REPEATS as f64),
        ("ack_us", elapsed.as_secs_f64() * 1e6 / acked_count),
        ("server_cpu_us", cpu.as_secs_f64() * 1e6 / acked_count),
    ];
    Ok(Row { shape: "drain", parameters: format!("{count} leased, acked out of order"), figures })
}

fn lease(load: &mut Load, queue: &str, count: usize) -> io::Result<Vec<String>> {
    for _ in 0..count / BATCH {
        load.ask(0, Instant::now() + PATIENCE, |next| request::push(next, queue, PAYLOAD, BATCH))?;
    }
    let mut ids = Vec::with_capacity(count);
    while ids.len() < count {
        let body = load.ask(0, Instant::now() + PATIENCE, |next| request::pop(next, queue, "&batch=1000"))?;
        let length_before = ids.len();
        ids.extend(Answer { status: 200, body: &body }.ids().map(str::to_owned));
        if ids.len() == length_before {
            return Err(io::Error::other("fewer messages than were pushed"));
        }
    }
    Ok(ids)
}

/// The same order every time (Fisher and Yates, drawing from xorshift64).
fn shuffle(ids: &mut [String]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for index in (1..ids.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ids.swap(index, (state % (index as u64 + 1)) as usize);
    }
}
