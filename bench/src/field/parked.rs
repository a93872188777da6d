//! Connections that wait for a message that never comes: what each adds to resident memory.

use std::io;
use std::time::Duration;

use super::Run;
use mayfly_generator::fleet::Fleet;
use mayfly_generator::report::Figure;
use mayfly_generator::session::Role;

/// For what a server does a little later.
const SETTLING: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_secs(1);

/// Parks `count` connections.
pub(super) fn run(run: &Run<'_>, count: usize) -> io::Result<Option<Vec<Figure>>> {
    let Some(sessions) = run.peer.sessions((0..count).map(|_| Role::Parked)) else { return Ok(None) };
    let server = run.serve()?;
    std::thread::sleep(SETTLING);
    let before_bytes = server.process.resident_bytes();
    let mut fleet = Fleet::connect(server.address, sessions)?;
    std::thread::sleep(SETTLING);
    let connected_bytes = server.process.resident_bytes();
    fleet.open()?;
    std::thread::sleep(SETTLING);
    let cpu_before = server.process.cpu_time();
    std::thread::sleep(IDLE);
    let cpu = server.process.cpu_time().saturating_sub(cpu_before);
    let parked_bytes = server.process.resident_bytes();
    let each = |bytes: u64| bytes.saturating_sub(before_bytes) as f64 / count as f64;
    Ok(Some(vec![
        ("connected_bytes", each(connected_bytes)),
        ("parked_bytes", each(parked_bytes)),
        ("idle_cpu_percent", cpu.as_secs_f64() * 100.0 / IDLE.as_secs_f64()),
    ]))
}
