//! Queues used once: one push, one pop, never again, until the node collects them. What they hold while idle, and what of it comes back.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::Setup;
use mayfly_generator::load::Load;
use mayfly_generator::report::Row;
use mayfly_generator::request::{self, Kind};

const CONNECTION_COUNT: usize = 16;
/// Longest that a step may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parameters of the shape.
#[derive(Debug)]
pub(super) struct Inboxes {
    shape: &'static str,
    count: usize,
    /// MAYFLY_IMPLICIT_IDLE_S.
    idle_s: &'static str,
    /// All are in place together, so that their size can be told.
    is_sized: bool,
}

/// Long enough to make all of them before the first is collected.
pub(super) const IDLE: Inboxes = Inboxes { shape: "inboxes", count: 100_000, idle_s: "15", is_sized: true };
/// Short: collection runs beside the making.
pub(super) const CYCLES: Inboxes = Inboxes { shape: "cycles", count: 150_000, idle_s: "1", is_sized: false };

/// Makes the inboxes, waits until they are collected, and tells the resident memory before, with and after them.
pub(super) fn run(setup: &Setup, inboxes: &Inboxes) -> io::Result<Row> {
    let server = setup.start(&[("MAYFLY_IMPLICIT_IDLE_S", inboxes.idle_s)])?;
    let mut load = Load::connect(server.address, CONNECTION_COUNT)?;
    queue_count(&mut load)?;
    let before_bytes = server.process.resident_bytes();
    let (started_at, cpu_before) = (Instant::now(), server.process.cpu_time());
    use_once(&mut load, inboxes.count)?;
    let elapsed = started_at.elapsed();
    let cpu = server.process.cpu_time().saturating_sub(cpu_before);
    let made_count = queue_count(&mut load)?;
    let with_bytes = server.process.resident_bytes();
    let end = Instant::now() + PATIENCE;
    while queue_count(&mut load)? > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    // A node that gives memory back a little later than it collects gets the time to.
    std::thread::sleep(Duration::from_millis(500));
    let after_bytes = server.process.resident_bytes();
    let mut figures = vec![
        ("rate_per_s", inboxes.count as f64 / elapsed.as_secs_f64()),
        ("server_cpu_us", cpu.as_secs_f64() * 1e6 / inboxes.count as f64),
        ("queues_in_place", made_count as f64),
        ("rss_before_mib", mib(before_bytes)),
        ("rss_with_mib", mib(with_bytes)),
        ("rss_after_mib", mib(after_bytes)),
        ("rss_growth_mib", mib(after_bytes) - mib(before_bytes)),
    ];
    if inboxes.is_sized {
        // Too high when the machine is so slow that some were collected by now: `queues_in_place` tells.
        let grown_bytes = with_bytes.saturating_sub(before_bytes) as f64;
        figures.push(("inbox_bytes", grown_bytes / made_count as f64));
    }
    Ok(Row { shape: inboxes.shape, parameters: format!("{} idle {} s", inboxes.count, inboxes.idle_s), figures })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// Pushes to and pops from each inbox once; both requests leave in one write.
fn use_once(load: &mut Load, count: usize) -> io::Result<()> {
    let mut made_count = CONNECTION_COUNT;
    for slot in 0..CONNECTION_COUNT {
        load.send(slot, |next| push_and_pop(next, slot))?;
    }
    let mut done_count = 0;
    let end = Instant::now() + PATIENCE;
    let flow = load.run(end, |_, answer, next| {
        match answer.kind() {
            Kind::Popped if answer.ids().next().is_some() => done_count += 1,
            Kind::Pushed => return ControlFlow::Continue(()),
            _ => panic!("not what an inbox answers: {answer:?}"),
        }
        if made_count < count {
            push_and_pop(next, made_count);
            made_count += 1;
        }
        if done_count == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if flow.is_break() { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// Names as long as published clients make them: 42 bytes.
fn push_and_pop(next: &mut Vec<u8>, index: usize) {
    let queue = format!("inbox-7f3a1c52-9d0e-4b7a-8c21-{index:012}");
    request::push(next, &queue, "{\"ok\":true}", 1);
    request::pop(next, &queue, "&autoAck=true");
}

/// How many queues the node holds, by its own count.
fn queue_count(load: &mut Load) -> io::Result<u64> {
    let text = load.ask(0, Instant::now() + PATIENCE, request::metrics)?;
    let value = text.lines().find_map(|line| line.strip_prefix("queen_ephemeral_queues "));
    value.and_then(|value| value.parse().ok()).ok_or_else(|| io::Error::other("the metrics do not count queues"))
}
