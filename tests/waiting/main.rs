//! Parked pops on a real node: who is woken, when they answer, what a client that leaves takes with it, and what waiting costs.
//!
//! Each test has the machine for itself: they measure time. What they measure is printed (`--nocapture`). The machine may be busy with
//! others' work all the same: a bound is one of a kind of fault, beside what threads suffer that run where the node's do, and holds in one
//! of several measurements.

#[path = "../process/mod.rs"]
mod process;

mod cost;
mod leaving;
mod timeouts;
mod times;
mod waking;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use process::client::{Client, pop, push};
use process::{Node, raise_open_files, serve};

/// Longest wait of a pop that is not meant to time out.
const LONG: &str = "&wait=true&timeout=60000";
/// How long a wake-up may take on a busy test machine; far below the timeout that would end its pop anyway.
const WAKE_MAX: Duration = Duration::from_secs(20);
/// How long one that must not be woken is watched.
const QUIET: Duration = Duration::from_millis(200);

/// Keeps the other tests of this target waiting.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(shards: usize) -> Node {
    raise_open_files();
    Node::start(serve(shards, &[]))
}

/// Waits until the node has exactly `count` parked pops: how long that took.
#[track_caller]
fn await_parked(node: &Node, control: &mut Client, count: u64) -> Duration {
    let started = Instant::now();
    loop {
        let parked = node.metric(control, "mayfly_waiters");
        if parked == count {
            return started.elapsed();
        }
        assert!(started.elapsed() < WAKE_MAX, "{parked} parked, not {count}");
        thread::yield_now();
    }
}

/// One connection that pushes and pops until `is_over`, `batch` messages at a time, `depth` requests in a write.
fn hammer(address: SocketAddr, queue: &str, batch: u32, depth: usize, is_over: &AtomicBool) {
    let mut client = Client::connect(address);
    let one = push(queue, "p", 0..batch) + &pop(queue, &format!("&autoAck=true&batch={batch}"));
    let requests = one.repeat(depth);
    while !is_over.load(Relaxed) {
        client.send(&requests);
        for _ in 0..depth {
            assert_eq!(client.answer().status, 201);
            assert_eq!(client.answer().status, 200);
        }
    }
}
