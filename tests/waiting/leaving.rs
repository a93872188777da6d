//! What a client that leaves takes with it: nothing.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::process::Node;
use super::process::client::{Client, pop, push};
use super::{LONG, QUIET, WAKE_MAX, alone, await_parked, start};

/// How long the node may hold a client that has left; one that nobody noticed is held until its pop's timeout, a minute.
const FORGOTTEN_MAX: Duration = Duration::from_secs(2);

/// 200 parked clients leave by `leave`; one that came after them gets everything that is pushed then.
#[track_caller]
fn leavers_swallow_nothing(node: &Node, what: &str, behind: &str, count: u64, leave: impl Fn(Client) -> Option<Client>) {
    let mut control = Client::connect(node.address);
    for ack in ["", "&autoAck=true"] {
        let queue = format!("left-{what}{}", ack.len());
        let request = pop(&queue, &format!("{LONG}{ack}"));
        let park = |_| {
            let mut client = Client::connect(node.address);
            client.send(request.clone() + behind);
            client
        };
        let parked: Vec<_> = (0..count).map(park).collect();
        await_parked(node, &mut control, count);
        let mut living = Client::connect(node.address);
        living.send(&request);
        await_parked(node, &mut control, count + 1);
        if !behind.is_empty() {
            // What lies behind the pop has arrived, so that the node has stopped reading.
            sleep(QUIET);
        }

        let left = Instant::now();
        let half: Vec<_> = parked.into_iter().filter_map(&leave).collect();
        let leaving = left.elapsed();
        await_parked(node, &mut control, 1);
        let forgotten = left.elapsed();
        println!("{what}{ack}: {count} left in {leaving:?}, forgotten after {forgotten:?}");
        assert!(forgotten <= leaving + FORGOTTEN_MAX, "{what}: forgotten after {forgotten:?}");

        assert_eq!(control.ask(push(&queue, "p", 0..count)).status, 201);
        assert_eq!(living.answer().messages()[0]["payload"], 0, "{what}: the living one is served");
        let rest = living.ask(pop(&queue, &format!("&batch=10000{ack}"))).messages();
        assert_eq!(rest.len() as u64, count - 1, "{what}: nothing is swallowed");
        assert!(rest.iter().all(|message| message["attempts"] == 1), "{what}");
        for mut client in half {
            client.assert_ended_within(WAKE_MAX);
        }
    }
}

fn a_client_that_leaves_while_parked_swallows_nothing(shards: usize) {
    let _alone = alone();
    let node = start(shards);
    let close = |client| {
        drop(client);
        None
    };
    let reset = |client: Client| {
        client.reset();
        None
    };
    let finish = |client: Client| {
        client.finish();
        Some(client)
    };
    leavers_swallow_nothing(&node, "closed", "", 200, close);
    leavers_swallow_nothing(&node, "reset", "", 200, reset);
    leavers_swallow_nothing(&node, "half-closed", "", 200, finish);
    // More behind the pop than the node keeps, so that it does not read these connections any more, and less than its kernel takes:
    // what lies in the client's own kernel holds back the FIN.
    let much = "x".repeat(90 << 10);
    let behind = push("behind", "p", [format!("\"{much}\"")]);
    leavers_swallow_nothing(&node, "closed-unread", &behind, 20, close);
    leavers_swallow_nothing(&node, "reset-unread", &behind, 20, reset);
    leavers_swallow_nothing(&node, "half-closed-unread", &behind, 20, |client| {
        client.finish();
        // Closed with unread input, which may well be a reset for the client.
        None
    });
}

#[test]
fn a_client_that_leaves_while_parked_swallows_nothing_on_one_shard() {
    a_client_that_leaves_while_parked_swallows_nothing(1);
}

#[test]
fn a_client_that_leaves_while_parked_swallows_nothing_on_four_shards() {
    a_client_that_leaves_while_parked_swallows_nothing(4);
}

/// A client whose kernel takes few bytes that it does not read.
fn tight_client(address: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4 << 10).expect("a socket");
    socket.connect(&address.into()).expect("connects");
    Client::over(socket.into())
}

fn answers_that_could_not_be_sent_are_taken_back(shards: usize) {
    let _alone = alone();
    let node = start(shards);
    let mut control = Client::connect(node.address);
    let big = format!("\"{}\"", "b".repeat(900 << 10));
    let bigs = 12;
    for _ in 0..bigs {
        assert_eq!(control.ask(push("big", "p", [&big])).status, 201);
    }
    for queue in ["spent", "leased"] {
        assert_eq!(control.ask(push(queue, "p", 0..3)).status, 201);
    }
    let mut client = tight_client(node.address);
    client.send(pop("big", "&autoAck=true").repeat(bigs) + &pop("spent", "&autoAck=true&batch=2") + &pop("leased", "&batch=2"));
    sleep(Duration::from_millis(300));
    client.reset();

    for queue in ["spent", "leased"] {
        let mut got = Vec::new();
        let started = Instant::now();
        while got.len() < 3 && started.elapsed() < WAKE_MAX {
            got.extend(control.ask(pop(queue, "&autoAck=true&wait=true&timeout=100&batch=10")).messages());
        }
        // What came back late stands behind what was never taken, so order is not asked for.
        let mut payloads: Vec<_> = got.iter().map(|message| message["payload"].as_u64().expect("a number")).collect();
        payloads.sort_unstable();
        assert_eq!(payloads, [0, 1, 2], "{queue}: came back");
        assert!(got.iter().all(|message| message["attempts"] == 1), "{queue}: free of charge: {got:?}");
    }
    let left = control.ask(pop("big", "&batch=100&autoAck=true&wait=true&timeout=1000")).messages();
    assert!(!left.is_empty() && left.iter().all(|message| message["attempts"] == 1), "big ones came back too");
}

#[test]
fn answers_that_could_not_be_sent_are_taken_back_on_one_shard() {
    answers_that_could_not_be_sent_are_taken_back(1);
}

#[test]
fn answers_that_could_not_be_sent_are_taken_back_on_four_shards() {
    answers_that_could_not_be_sent_are_taken_back(4);
}

#[test]
fn a_pop_behind_a_request_of_another_core_does_not_wait_for_a_client_that_left() {
    let _alone = alone();
    let node = start(4);
    let mut control = Client::connect(node.address);
    let leave = |partition: u64| {
        let mut client = Client::connect(node.address);
        // The first is answered by the partition's core, when the client's FIN has come.
        client.send(push("busy", &format!("p{partition}"), [0]) + &pop("empty", LONG));
        client.finish();
        client
    };
    for mut client in (0..32).map(leave) {
        assert_eq!(client.answer().status, 201, "what it asked without waiting is answered");
        client.assert_ended_within(WAKE_MAX);
    }
    await_parked(&node, &mut control, 0);
}
