//! Nodes restart, die and freeze under load.

use std::thread;
use std::time::{Duration, Instant};

use crate::load::Load;
use crate::nodes::{Nodes, standing};
use crate::process::client::{pop, push};

/// Consumers with leases, each of a queue of its own, and calls a second.
const CONSUMERS: usize = 200;
const CALLS_PER_SECOND: u32 = 200;
/// Threads that call, and that push to the consumers' queues.
const CALLERS: usize = 8;
const PRODUCERS: usize = 4;
/// Beyond, something hangs: what it takes on a machine that is not busy is printed.
const REFUSED_MAX: Duration = Duration::from_secs(8);
/// Queues of two partitions that nobody takes from while nodes restart, and messages in each partition.
const KEPT_QUEUES: usize = 40;
const KEPT_MESSAGES: u64 = 25;
/// Pushes a second of all producers.
const PUSHES_PER_SECOND: u32 = 400;

/// Long runs are for hand: the tests do with less.
fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("MAYFLY_LONG").is_some() { long } else { short }
}

/// Runs `during` while clients work.
fn under_load(load: &Load, during: impl FnOnce()) {
    let queues: Vec<String> = (0..CONSUMERS).map(|n| format!("work{n}")).collect();
    thread::scope(|scope| {
        for seed in 0..CALLERS {
            scope.spawn(move || load.call(seed, &format!("rpc{}", seed % 3), Duration::from_secs(1) * CALLERS as u32 / CALLS_PER_SECOND));
        }
        for seed in 0..6 {
            scope.spawn(move || load.respond(seed, &format!("rpc{}", seed % 3)));
        }
        for (seed, queues) in queues.chunks(CONSUMERS / PRODUCERS).enumerate() {
            scope.spawn(move || load.produce(seed, queues, Duration::from_secs(1) * PRODUCERS as u32 / PUSHES_PER_SECOND));
        }
        for (seed, queue) in queues.iter().enumerate() {
            scope.spawn(move || load.consume(seed, queue));
        }
        during();
        load.end();
    });
}

fn serve_all(load: &Load, nodes: &Nodes) {
    load.serve_at(nodes.running().into_iter().map(|id| nodes.node(id).address).collect());
}

#[test]
fn three_nodes_restart_in_turn_and_nothing_is_lost_or_out_of_order() {
    let mut nodes = Nodes::start(3, 0, &[]);
    nodes.wait_for_live(&[1, 2, 3]);
    let load = Load::default();
    serve_all(&load, &nodes);
    // Beside what is consumed at once: what nobody takes meanwhile.
    let mut client = nodes.client(1);
    for n in 0..KEPT_QUEUES {
        for partition in ["Default", "p"] {
            assert_eq!(client.ask(push(&format!("kept{n}"), partition, 0..KEPT_MESSAGES)).status, 201);
        }
    }
    under_load(&load, || {
        thread::sleep(Duration::from_secs(2));
        for round in 0..rounds(1, 5) {
            for id in 1..=3 {
                load.take_worst();
                let leaver = nodes.take(id);
                serve_all(&load, &nodes);
                let began = Instant::now();
                let (status, log) = leaver.stop();
                assert_eq!(status.code(), Some(0), "{log}");
                let stopped = began.elapsed();
                let line = log.lines().find(|line| line.contains("ephemeral rings handed over")).expect("a line").to_owned();
                assert!(line.contains("lost=0"), "{log}");
                nodes.begin(id, 1..=3, false);
                nodes.wait_for_live(&[1, 2, 3]);
                serve_all(&load, &nodes);
                thread::sleep(Duration::from_secs(1));
                let worst = load.take_worst();
                println!("round {round}, node {id}: stopped in {stopped:?}, refused for at most {worst:?}: {line}");
                assert!(worst < REFUSED_MAX, "clients were refused for {worst:?}");
            }
        }
    });
    println!("{}", load.summary());
    let mut client = nodes.client(2);
    for n in 0..KEPT_QUEUES {
        for partition in ["Default", "p"] {
            let request = pop(&format!("kept{n}"), &format!("&partition={partition}&batch=1000&autoAck=true"));
            let payloads: Vec<_> = client.ask(request).messages().iter().map(|message| message["payload"].clone()).collect();
            assert_eq!(payloads, (0..KEPT_MESSAGES).map(serde_json::Value::from).collect::<Vec<_>>(), "kept{n} {partition}");
        }
    }
    let faults = load.faults(false, false);
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(5)]);
    assert!(load.calls.load(std::sync::atomic::Ordering::Relaxed) > 500);
}

#[test]
fn nodes_are_killed_and_what_others_hold_is_untouched() {
    let ttl = Duration::from_millis(1_500);
    let mut nodes = Nodes::start(3, 0, &["--member-ttl-ms", "1500"]);
    nodes.wait_for_live(&[1, 2, 3]);
    let load = Load::default();
    serve_all(&load, &nodes);
    under_load(&load, || {
        thread::sleep(Duration::from_secs(1));
        for round in 0..rounds(3, 20) {
            let id = 1 + round as u64 % 3;
            load.take_worst();
            nodes.take(id).kill();
            let killed_at = Instant::now();
            serve_all(&load, &nodes);
            let asked = nodes.running()[0];
            nodes.wait_for(asked, "it is down", |status| standing(status, "down") == [id]);
            let took_over = killed_at.elapsed();
            thread::sleep(Duration::from_millis(500));
            nodes.begin(id, 1..=3, false);
            nodes.wait_for_live(&[1, 2, 3]);
            serve_all(&load, &nodes);
            thread::sleep(Duration::from_millis(500));
            let worst = load.take_worst();
            println!("round {round}, node {id}: down after {took_over:?}, refused for at most {worst:?}");
            assert!(took_over < ttl + REFUSED_MAX, "{took_over:?}");
            assert!(worst < ttl + REFUSED_MAX, "clients were refused for {worst:?}");
        }
    });
    println!("{}", load.summary());
    // What an answer gave that died with the node between comes again, behind what was given meanwhile.
    let faults = load.faults(true, true);
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(5)]);
}

#[test]
fn a_node_that_froze_and_was_taken_for_dead_comes_back_without_a_word_of_its_own() {
    let nodes = Nodes::start(3, 0, &["--member-ttl-ms", "1000"]);
    nodes.wait_for_live(&[1, 2, 3]);
    let load = Load::with_patience(Duration::from_millis(2_500));
    serve_all(&load, &nodes);
    let mut frozen = Vec::new();
    under_load(&load, || {
        thread::sleep(Duration::from_secs(1));
        for round in 0..rounds(2, 10) {
            let id = 1 + round as u64 % 3;
            let others: Vec<u64> = nodes.running().into_iter().filter(|other| *other != id).collect();
            nodes.node(id).signal("STOP");
            nodes.wait_for(others[0], "it is down", |status| standing(status, "down") == [id]);
            thread::sleep(Duration::from_secs(1));
            nodes.node(id).signal("CONT");
            nodes.wait_for_live(&[1, 2, 3]);
            thread::sleep(Duration::from_secs(1));
            frozen.push(id);
        }
    });
    println!("{frozen:?} froze: {}", load.summary());
    // What clients are told is right, whatever order the messages of a frozen node come in.
    let faults = load.faults(false, true);
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(5)]);
    // Nobody sleeps: everything is served through everyone.
    for id in nodes.running() {
        let mut client = nodes.client(id);
        for n in 0..30 {
            let queue = format!("after-{id}-{n}");
            assert_eq!(client.ask(push(&queue, "Default", [1])).status, 201);
            assert_eq!(client.ask(pop(&queue, "&wait=true&timeout=2000&autoAck=true")).messages().len(), 1);
        }
    }
}
