//! The loops against a node that runs, by address: nothing is started, and what a loop made is deleted.
//!
//! Invariant: every run has queues of its own, so that it meets neither a user's messages nor what another run left under way.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::fleet::Fleet;
use crate::http::{self, Style};
use crate::load::Load;
use crate::loops::Loop;
use crate::report::Figure;
use crate::request;
use crate::session::{Flow, Role};
use crate::wire::Target;

/// Longest that the node may take to connect or to answer what is not measured.
const PATIENCE: Duration = Duration::from_secs(5);
/// What closed connections had under way is done after this.
const SETTLING: Duration = Duration::from_millis(50);

/// The loops by name.
pub const LOOPS: [(&str, Loop); 11] = [
    ("rpc 1x1", Loop::Rpc(1, 1)),
    ("rpc 32x4", Loop::Rpc(32, 4)),
    ("rpc 256x4", Loop::Rpc(256, 4)),
    ("wake idle", Loop::WakeUp(Some(Duration::from_millis(2)))),
    ("wake busy", Loop::WakeUp(None)),
    ("oneway b1 64", Loop::stream(16, 1, 64, Flow::OneWay)),
    ("oneway b100 64", Loop::stream(4, 100, 64, Flow::OneWay)),
    ("leased b1 64", Loop::stream(16, 1, 64, Flow::Leased)),
    ("leased b100 64", Loop::stream(4, 100, 64, Flow::Leased)),
    ("fanout x8 b1", Loop::stream(2, 1, 64, Flow::FanOut)),
    ("fanout x8 b100", Loop::stream(2, 100, 64, Flow::FanOut)),
];

/// Asks whether the broker's wire is spoken there.
///
/// # Errors
/// Nothing answers there, or something else does.
pub fn probe(target: &Target) -> io::Result<()> {
    drop(TcpStream::connect_timeout(&target.address, PATIENCE)?);
    let mut load = Load::connect(target.clone(), 1)?;
    load.send(0, |next| request::get(next, "queues?limit=1"))?;
    let mut is_broker = false;
    let flow = load.run(Instant::now() + PATIENCE, |_, answer, _| {
        is_broker = answer.status == 200 && answer.body.starts_with("{\"queues\":");
        ControlFlow::Break(())
    })?;
    match (flow.is_break(), is_broker) {
        (true, true) => Ok(()),
        (true, false) => Err(io::Error::other("what answers there is not a broker of this wire")),
        (false, _) => Err(io::Error::new(ErrorKind::TimedOut, "it does not answer")),
    }
}

/// Measures `span` after a quarter of it to warm up. None: the style has nothing of the kind.
///
/// # Errors
/// As [`Loop::run`]; the queues could not be deleted.
pub fn measure(target: &Target, what: Loop, style: Style, span: Duration) -> io::Result<Option<Vec<Figure>>> {
    let (prefix, roles) = (unused_prefix(), what.roles());
    let sessions = roles.iter().map(|role| http::session(style, &prefix, *role)).collect::<Option<Vec<_>>>();
    let Some(sessions) = sessions else { return Ok(None) };
    let mut fleet = Fleet::connect(target.clone(), sessions)?;
    let figures = fleet.open().and_then(|()| what.run(&mut fleet, None, span));
    drop(fleet);
    let deleted = delete(target, &prefix, &roles);
    // Why a run failed is told before why its queues stayed.
    figures.and_then(|figures| deleted.map(|()| Some(figures)))
}

/// No other run has it, of this process or another.
fn unused_prefix() -> String {
    static RUN_COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let run = RUN_COUNT.fetch_add(1, Ordering::Relaxed);
    format!("bench-{:x}-{:x}-{run}-", since.as_nanos(), std::process::id())
}

fn delete(target: &Target, prefix: &str, roles: &[Role]) -> io::Result<()> {
    std::thread::sleep(SETTLING);
    let mut queues: Vec<String> = roles.iter().filter_map(|role| http::queue(prefix, *role)).collect();
    queues.sort_unstable();
    queues.dedup();
    let mut load = Load::connect(target.clone(), 1)?;
    for queue in queues {
        load.ask(0, Instant::now() + PATIENCE, |next| request::delete(next, &queue))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_deletes_each_queue_that_it_uses_once() {
        let queues = |what: Loop| -> Vec<String> { what.roles().iter().filter_map(|role| http::queue("b-", *role)).collect() };
        assert_eq!(queues(Loop::Rpc(2, 1)), ["b-inbox-0", "b-inbox-1", "b-requests"]);
        assert_eq!(queues(Loop::stream(2, 1, 64, Flow::FanOut)), ["b-stream-0", "b-stream-1"]);
        assert_eq!(queues(Loop::WakeUp(None)), ["b-stream-0"]);
    }

    #[test]
    fn no_prefix_comes_twice() {
        assert_ne!(unused_prefix(), unused_prefix());
    }
}
