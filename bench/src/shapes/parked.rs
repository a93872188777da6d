//! Connections parked on a pop: what each adds to resident memory, and what they cost while nothing happens.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::Setup;
use mayfly_generator::load::Load;
use mayfly_generator::report::Row;
use mayfly_generator::request;

const IDLE: Duration = Duration::from_secs(3);

/// Parks `count` connections on one queue.
pub(super) fn run(setup: &Setup, count: usize) -> io::Result<Row> {
    let server = setup.start(&[])?;
    let before_bytes = server.process.resident_bytes();
    let mut load = Load::connect(server.address, count)?;
    std::thread::sleep(Duration::from_millis(500));
    let connected_bytes = server.process.resident_bytes();
    for slot in 0..count {
        load.send(slot, |next| request::pop(next, "parked", "&wait=true&timeout=300000&autoAck=true"))?;
    }
    std::thread::sleep(Duration::from_millis(500));
    let cpu_before = server.process.cpu_time();
    std::thread::sleep(IDLE);
    let cpu = server.process.cpu_time().saturating_sub(cpu_before);
    let parked_bytes = server.process.resident_bytes();
    // Nothing was pushed: an answer is a fault, and would mean that fewer are parked.
    let flow = load.run(Instant::now() + Duration::from_millis(50), |_, _, _| ControlFlow::Break(()))?;
    if flow.is_break() {
        return Err(io::Error::other("a parked pop was answered"));
    }
    let each = |bytes: u64| bytes.saturating_sub(before_bytes) as f64 / count as f64;
    let figures = vec![
        ("connected_bytes", each(connected_bytes)),
        ("parked_bytes", each(parked_bytes)),
        ("idle_cpu_percent", cpu.as_secs_f64() * 100.0 / IDLE.as_secs_f64()),
    ];
    Ok(Row { shape: "parked", parameters: format!("{count} connections"), figures })
}
