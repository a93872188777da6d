//! How a node stops: parked pops are sent away, requests under way are answered, and it is gone soon; at once when told twice.

mod process;

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use process::client::{Client, get, pop, post, push};
use process::{Node, serve};

/// What a stop may take with nothing under way on a busy test machine; what is under way is waited for longer, 10 s and more.
const STOP_MAX: Duration = Duration::from_secs(6);

fn terminate(node: &Node) {
    let sent = Command::new("kill").args(["-TERM", &node.pid().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

/// Waits until the node is gone: its exit code.
#[track_caller]
fn ended_within(node: &mut Node, limit: Duration) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = node.ended() {
            return status.code();
        }
        assert!(started.elapsed() < limit, "still there after {limit:?}\n{}", node.log());
        sleep(Duration::from_millis(5));
    }
}

fn parked_pops_are_sent_away_and_the_node_is_gone(shards: usize) {
    let mut node = Node::start(serve(shards, &[]));
    let park = |index: usize| {
        let mut client = Client::connect(node.address);
        client.send(pop("inbox", ["&wait=true", "&wait=true&autoAck=true", "&wait=true&partition=p"][index % 3]));
        client
    };
    let mut parked: Vec<_> = (0..100).map(park).collect();
    let mut idle = Client::connect(node.address);
    while node.metric(&mut idle, "mayfly_waiters") < 100 {}
    let stopped = Instant::now();
    terminate(&node);
    for client in &mut parked {
        let answer = client.answer();
        answer.assert_failure(503, "owner_moved");
        assert!(answer.closes(), "{answer:?}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        client.assert_ended_within(STOP_MAX);
    }
    idle.assert_ended_within(STOP_MAX);
    drop((parked, idle));
    assert_eq!(ended_within(&mut node, STOP_MAX), Some(0));
    println!("{shards} shards: 100 parked pops sent away and gone after {:?}", stopped.elapsed());
}

#[test]
fn parked_pops_are_sent_away_and_the_node_is_gone_on_one_shard() {
    parked_pops_are_sent_away_and_the_node_is_gone(1);
}

#[test]
fn parked_pops_are_sent_away_and_the_node_is_gone_on_four_shards() {
    parked_pops_are_sent_away_and_the_node_is_gone(4);
}

/// A client that keeps its side open is waited for as long as one that may still read its answer, and no longer.
#[test]
fn a_client_that_does_not_close_does_not_hold_the_node() {
    let mut node = Node::start(serve(1, &[]));
    let mut parked = Client::connect(node.address);
    parked.send(pop("inbox", "&wait=true"));
    let mut idle = Client::connect(node.address);
    while node.metric(&mut idle, "mayfly_waiters") < 1 {}
    let stopped = Instant::now();
    terminate(&node);
    assert_eq!(ended_within(&mut node, STOP_MAX), Some(0));
    println!("gone after {:?} beside clients that do not close", stopped.elapsed());
    parked.answer().assert_failure(503, "owner_moved");
}

fn a_request_under_way_is_answered(shards: usize) {
    let mut node = Node::start(serve(shards, &[]));
    let pushed = push("late", "p", ["\"whole\""]);
    // Every core has a part in the last one's answer, also those without a connection of their own.
    let requests = [get("/ready"), pop("late", "&wait=true"), pushed, get("/api/v1/ephemeral/queues")];
    let begin = |request: &String| {
        let mut client = Client::connect(node.address);
        client.send(&request[..request.len() - 3]);
        client
    };
    let clients: Vec<_> = requests.iter().map(begin).collect();
    sleep(Duration::from_millis(200));
    terminate(&node);
    sleep(Duration::from_millis(200));
    assert!(node.ended().is_none(), "requests are under way");
    for ((mut client, request), status) in clients.into_iter().zip(&requests).zip([503, 503, 201, 200]) {
        client.send(&request[request.len() - 3..]);
        let answer = client.answer();
        assert_eq!((answer.status, answer.closes()), (status, true), "{request}: {answer:?}");
        client.assert_ended_within(STOP_MAX);
    }
    assert_eq!(ended_within(&mut node, STOP_MAX), Some(0));
}

#[test]
fn a_request_under_way_is_answered_on_one_shard() {
    a_request_under_way_is_answered(1);
}

#[test]
fn a_request_under_way_is_answered_on_four_shards() {
    a_request_under_way_is_answered(4);
}

/// What was pipelined behind a parked pop is not carried out once the pop's answer has closed the connection.
#[test]
fn nothing_is_carried_out_behind_an_answer_that_closes() {
    let mut node = Node::start(serve(1, &[]));
    let mut client = Client::connect(node.address);
    client.send(pop("inbox", "&wait=true") + &post("/api/v1/ephemeral/push", r#"{"queue":"q","messages":[{"payload":1}]}"#));
    let mut idle = Client::connect(node.address);
    while node.metric(&mut idle, "mayfly_waiters") < 1 {}
    terminate(&node);
    assert!(client.answer().closes());
    client.assert_ended_within(STOP_MAX);
    drop((client, idle));
    assert_eq!(ended_within(&mut node, STOP_MAX), Some(0));
}

#[test]
fn a_second_signal_ends_the_node_at_once() {
    let mut node = Node::start(serve(2, &[]));
    let mut client = Client::connect(node.address);
    client.send(&get("/health")[..20]);
    sleep(Duration::from_millis(200));
    terminate(&node);
    sleep(Duration::from_millis(300));
    assert!(node.ended().is_none(), "a request is under way");
    terminate(&node);
    assert!(ended_within(&mut node, STOP_MAX).is_some());
}

/// A signal that servers with certificates are sent to read them again, by people who send it to all of theirs.
#[test]
fn a_hangup_signal_does_not_end_a_node_without_a_certificate() {
    let node = Node::start(serve(1, &[]));
    node.signal("HUP");
    let mut client = Client::connect(node.address);
    assert_eq!(client.ask(push("q", "Default", [1])).status, 201);
    assert!(node.is_healthy());
}
