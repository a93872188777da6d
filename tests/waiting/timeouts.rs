//! When parked pops answer: at their own timeout, on an idle core and on a saturated one.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::process::client::{Client, get, pop, push};
use super::process::trials::holds_once;
use super::process::{Node, raise_open_files, serve};
use super::times::{HERE, Times, cpus_of_cores, oversleep, scheduled, since_us};
use super::{alone, hammer, start};

/// Threads that wake one after the other until a pop's client knows: the core that keeps its deadline, the core of its connection, itself.
const WAKE_UPS: i64 = 3;

/// Between the beginnings of two pops whose lateness is measured.
const APART: Duration = Duration::from_millis(4);

/// Whether pops are at most 20 ms late, half of them 10 ms and the worst 100 ms, on top of what the machine itself is late by at that
/// moment. Others' work moves the worst of both, and hardly the half: it is what tells a node that is late, and a machine on which half
/// of what sleeps is late by milliseconds, such as one that stood still, excuses nothing.
fn punctual(pops: &Times, machine: &Times) -> Result<(), String> {
    let half = 10_000 + (WAKE_UPS * machine.at(0.5)).min(10_000);
    pops.within(&[(0.5, half), (0.99, 20_000 + WAKE_UPS * machine.at(0.99)), (1.0, 100_000 + WAKE_UPS * machine.at(1.0))])
}

/// How late a pop answers that times out, in microseconds.
fn lateness(client: &mut Client, queue: &str, timeout: Duration) -> i64 {
    let request = pop(queue, &format!("&wait=true&timeout={}", timeout.as_millis()));
    let asked = Instant::now();
    let answer = client.ask(request);
    let took = since_us(asked);
    assert!(answer.messages().is_empty(), "{answer:?}");
    took - timeout.as_micros() as i64
}

/// How late 200 pops are of timeouts between 100 and 1500 ms, and 200 threads that sleep as long beside the node's cores.
fn latenesses(node: &Node) -> (Times, Times) {
    let cores = cpus_of_cores(node.pid());
    thread::scope(|scope| {
        let waits = |index: usize| {
            let mut client = Client::connect(node.address);
            assert_eq!(client.ask(get("/health")).status, 200);
            let timeout = Duration::from_millis(100 + index as u64 * 7_919 % 1_400);
            let cpus = cores[index % cores.len()];
            let sleeping = scope.spawn(move || oversleep(&cpus, timeout));
            let pop = move || {
                // One after the other: how long a node takes to read 200 requests at once is another matter.
                sleep(APART * index as u32);
                lateness(&mut client, &format!("empty{}", index % 7), timeout)
            };
            (scope.spawn(pop), sleeping)
        };
        let waiting: Vec<_> = (0..200).map(waits).collect();
        let (pops, machine) = waiting.into_iter().map(|(pop, thread)| (pop.join().expect("waits"), thread.join().expect("sleeps"))).unzip();
        (Times::of(pops), Times::of(machine))
    })
}

fn parked_pops_answer_at_their_own_timeout(shards: usize) {
    let _alone = alone();
    let node = start(shards);
    holds_once(|| {
        let (idle, machine) = latenesses(&node);
        machine.print("threads that sleep where the cores do");
        idle.print(&format!("timeouts, {shards} shards, idle, lateness"));
        punctual(&idle, &machine)
    });
    holds_once(|| {
        let is_over = AtomicBool::new(false);
        let (loaded, machine) = thread::scope(|scope| {
            scope.spawn(|| hammer(node.address, "load", 1, 1, &is_over));
            let loaded = latenesses(&node);
            is_over.store(true, Relaxed);
            loaded
        });
        machine.print("threads that sleep beside the load");
        loaded.print(&format!("timeouts, {shards} shards, under load, lateness"));
        punctual(&loaded, &machine)
    });
}

#[test]
fn parked_pops_answer_at_their_own_timeout_on_one_shard() {
    parked_pops_answer_at_their_own_timeout(1);
}

#[test]
fn parked_pops_answer_at_their_own_timeout_on_four_shards() {
    parked_pops_answer_at_their_own_timeout(4);
}

/// Puts this thread before all others of the machine where that is allowed, so that what it measures is the node's lateness and not
/// its own.
fn go_first() {
    let thread = nix::unistd::gettid().to_string();
    let _ = Command::new("chrt").args(["--fifo", "--pid", "10", &thread]).stderr(Stdio::null()).status();
}

/// A node of one core, pinned to the first of this thread's CPUs; the thread keeps the others, if there are any.
fn start_apart() -> Node {
    let mut cpus = sched_getaffinity(HERE).expect("its CPUs");
    let first = (0..CpuSet::count()).find(|cpu| cpus.is_set(*cpu).unwrap_or(false)).expect("a CPU");
    let node = Node::start(serve(1, &["--cpus", &first.to_string(), "--pin", "on"]));
    cpus.unset(first).expect("a CPU");
    let _ = sched_setaffinity(HERE, &cpus);
    node
}

/// How late timeouts of 50 ms are while the cores are saturated, and how long a push and a pop of another connection take.
fn saturated(address: SocketAddr, span: Duration) -> (Times, Times) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| hammer(address, "busy", 20, 32, &is_over));
        }
        let waits = |_| {
            let mut client = Client::connect(address);
            let is_over = &is_over;
            scope.spawn(move || {
                go_first();
                let mut latenesses = Vec::new();
                while !is_over.load(Relaxed) {
                    latenesses.push(lateness(&mut client, "empty", Duration::from_millis(50)));
                }
                latenesses
            })
        };
        let waiting: Vec<_> = (0..20).map(waits).collect();
        let trips = scope.spawn(|| round_trips(address, span)).join();
        is_over.store(true, Relaxed);
        let latenesses = waiting.into_iter().flat_map(|waiting| waiting.join().expect("waits")).collect();
        (Times::of(latenesses), Times::of(trips.expect("all were answered")))
    })
}

fn round_trips(address: SocketAddr, span: Duration) -> Vec<i64> {
    go_first();
    let mut client = Client::connect(address);
    let started = Instant::now();
    let mut trips = Vec::new();
    while started.elapsed() < span {
        let asked = Instant::now();
        assert_eq!(client.ask(push("aside", "p", [1]) + &pop("aside", "&autoAck=true")).status, 201);
        assert_eq!(client.answer().messages().len(), 1);
        trips.push(since_us(asked));
        sleep(Duration::from_millis(1));
    }
    trips
}

/// A core that does not look at its deadlines and its other connections while it has work is late by what one client sends at once: 80 ms
/// and more.
fn a_saturated_core_keeps_its_timers_and_other_connections(shards: usize) {
    let _alone = alone();
    raise_open_files();
    let node = if shards == 1 { start_apart() } else { start(shards) };
    let is_long = std::env::var_os("MAYFLY_LONG").is_some();
    let span = Duration::from_secs(if is_long { 10 } else { 3 });
    holds_once(|| {
        let before = scheduled(node.pid());
        let (latenesses, trips) = saturated(node.address, span);
        let after = scheduled(node.pid());
        let (ran, waited) = (after.0 - before.0, after.1 - before.1);
        // A core that has a third of a CPU takes three times as long for everything.
        let stretch = (ran + waited) as f64 / ran.max(1) as f64;
        let stretched = |us: f64| (us * stretch.max(1.0)) as i64;
        println!(
            "saturated, {shards} shards: the node ran {} ms and waited {} ms for a CPU in {span:?}",
            ran / 1_000_000,
            waited / 1_000_000
        );
        latenesses.print(&format!("saturated, {shards} shards, lateness of 50 ms timeouts"));
        trips.print(&format!("saturated, {shards} shards, round trip of a push and a pop"));
        latenesses.within(&[(0.5, stretched(10_000.0)), (0.99, stretched(50_000.0))])?;
        trips.within(&[(0.99, stretched(50_000.0))])?;
        // The design's bound, for a release build and a quiet machine.
        if is_long { latenesses.within(&[(0.999, 5_000)]) } else { Ok(()) }
    });
}

#[test]
fn a_saturated_core_keeps_its_timers_and_other_connections_on_one_shard() {
    a_saturated_core_keeps_its_timers_and_other_connections(1);
}

#[test]
fn saturated_cores_keep_their_timers_and_other_connections_on_four_shards() {
    a_saturated_core_keeps_its_timers_and_other_connections(4);
}
