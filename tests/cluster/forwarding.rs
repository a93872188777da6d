//! Any node serves any queue: what it does not own it asks of the owner, and a client cannot tell.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::nodes::Nodes;
use crate::process::client::{Client, get, pop, post, push};
use crate::requests::{ACK, SOON, ack, outcome, park, queue_of, wait_for_parked};

#[test]
fn every_request_is_served_by_every_node() {
    let nodes = Nodes::start(3, 0, &[]);
    nodes.wait_for_live(&[1, 2, 3]);
    for owner in 1..=3 {
        let listing = nodes.client(owner).ask(get("/api/v1/ephemeral/queues")).json();
        assert!(listing["cellBytes"].as_u64() > Some(0), "a node that holds no queue holds its links: {listing}");
        let queue = queue_of(&nodes, owner);
        let (near, far) = (1 + owner % 3, 1 + (owner + 1) % 3);
        // Pushed at one, parked at another, acked at a third.
        let mut parked = park(&nodes, near, &queue, "&group=g");
        wait_for_parked(&nodes, owner, 1);
        assert_eq!(nodes.client(far).ask(push(&queue, "Default", ["{ \"a\":1e4 }"])).status, 201);
        let message = parked.answer().messages().pop().expect("woken");
        assert_eq!(message["attempts"], 1);
        let mut client = nodes.client(far);
        assert_eq!(outcome(&client.ask(ack(&format!("not-{queue}"), &message["id"]))), "unknown");
        let request = post(ACK, &json!({"queue": queue, "group": "g", "acks": [{"id": message["id"]}]}).to_string());
        assert_eq!(outcome(&client.ask(&request)), "acked");
        assert_eq!(outcome(&client.ask(&request)), "unknown");

        // A call at one, popped and answered at others, is answered once.
        let mut caller = nodes.client(near);
        caller.send(post("/api/v1/ephemeral/call", &json!({"queue": queue, "partition": "rpc", "payload": 7}).to_string()));
        let request = park(&nodes, far, &queue, "&partition=rpc&group=g").answer().messages().pop().expect("a request");
        let reply =
            json!({"queue": queue, "group": "g", "replies": [{"id": request["id"], "replyTo": request["replyTo"], "payload": [8]}]})
                .to_string();
        assert_eq!(outcome(&nodes.client(owner).ask(post("/api/v1/ephemeral/reply", &reply))), "acked");
        assert_eq!(caller.answer().json(), json!({"payload": [8]}));
        assert_eq!(outcome(&nodes.client(far).ask(post("/api/v1/ephemeral/reply", &reply))), "unknown");

        // Gauges of the whole, whoever is asked.
        assert_eq!(nodes.client(near).ask(push(&queue, "p", [1, 2])).status, 201);
        let depth = nodes.client(far).ask(get(&format!("/api/v1/ephemeral/queues/{queue}/depth"))).json();
        assert_eq!((&depth["pending"], &depth["missing"]), (&json!(2), &Value::Null), "{depth}");
        let reset = nodes.client(near).ask(post("/api/v1/ephemeral/reset", &json!({"queue": queue}).to_string())).json();
        // The two of the other group are held for the first one, too.
        assert_eq!(reset["dropped"], 4, "{reset}");
        nodes.declare(far, &queue, SOON);
        let delete = format!("DELETE /api/v1/ephemeral/queue/{queue} HTTP/1.1\r\nhost: m\r\n\r\n");
        let deleted = nodes.client(near).ask(&delete).json();
        assert_eq!((&deleted["deleted"], &deleted["declared"]), (&json!(true), &json!(true)), "{deleted}");
        assert_eq!(nodes.client(owner).ask(get(&format!("/api/v1/ephemeral/queues/{queue}/depth"))).status, 404);
    }
}

#[test]
fn a_client_of_another_node_that_hangs_up_swallows_nothing() {
    let nodes = Nodes::start(2, 0, &[]);
    nodes.wait_for_live(&[1, 2]);
    let queue = queue_of(&nodes, 1);
    for more in ["", "&autoAck=true"] {
        let leavers: Vec<_> = (0..20).map(|_| park(&nodes, 2, &queue, more)).collect();
        wait_for_parked(&nodes, 1, 20);
        let mut living = park(&nodes, 2, &queue, more);
        wait_for_parked(&nodes, 1, 21);
        // Some leave while the messages are on their way to them.
        let mut pusher = nodes.client(1);
        pusher.send(push(&queue, "Default", 0..20));
        leavers.into_iter().for_each(Client::reset);
        assert_eq!(pusher.answer().status, 201);
        let mut got = living.answer().messages();
        let until = Instant::now() + SOON;
        while got.len() < 20 && Instant::now() < until {
            got.extend(living.ask(pop(&queue, &format!("&batch=100&wait=true&timeout=200{more}"))).messages());
        }
        // Of what was on its way some may have reached its client: spent with autoAck, given back or leased without.
        let mut seen: Vec<_> = got.iter().map(|message| message["payload"].as_u64().expect("a number")).collect();
        seen.sort_unstable();
        let all = seen.len();
        seen.dedup();
        assert_eq!(all, seen.len(), "nothing is given twice");
        let depth = nodes.client(2).ask(get(&format!("/api/v1/ephemeral/queues/{queue}/depth"))).json();
        assert_eq!(depth["pending"], 0, "{depth}");
        assert_eq!(nodes.client(1).ask(post("/api/v1/ephemeral/reset", &json!({"queue": queue}).to_string())).status, 200);
        wait_for_parked(&nodes, 1, 0);
    }
}

#[test]
fn a_dead_owner_is_stood_in_for_and_the_others_do_not_notice() {
    let mut nodes = Nodes::start(3, 0, &["--member-ttl-ms", "1500"]);
    nodes.wait_for_live(&[1, 2, 3]);
    let (dying, living) = (queue_of(&nodes, 3), queue_of(&nodes, 2));
    let mut client = nodes.client(1);
    for queue in [&dying, &living] {
        assert_eq!(client.ask(push(queue, "Default", [1, 2])).status, 201);
    }
    let lost = client.ask(pop(&dying, "")).messages().pop().expect("a message");
    let kept = client.ask(pop(&living, "")).messages().pop().expect("a message");
    let mut parked = park(&nodes, 1, &dying, "&group=late&partition=nobody");
    wait_for_parked(&nodes, 3, 1);

    let killed_at = Instant::now();
    nodes.take(3).kill();
    // Whoever waited is told at once that nobody knows, never that there was nothing.
    parked.answer().assert_failure(503, "ephemeral_forward_failed");
    assert!(killed_at.elapsed() < Duration::from_secs(1), "{:?}", killed_at.elapsed());
    assert_eq!(client.ask(push(&living, "Default", [3])).status, 201);
    assert_eq!(outcome(&client.ask(ack(&living, &kept["id"]))), "acked");
    loop {
        let answer = client.ask(push(&dying, "Default", [4]));
        if answer.status == 201 {
            break;
        }
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
        assert!(killed_at.elapsed() < SOON, "nobody stands in");
        sleep(Duration::from_millis(50));
    }
    assert_eq!(client.ask(pop(&dying, "&autoAck=true&batch=10")).messages().len(), 1, "it begins empty");
    assert_eq!(outcome(&client.ask(ack(&dying, &lost["id"]))), "stale");
    assert_eq!(client.ask(pop(&living, "&autoAck=true&batch=10")).messages().len(), 2, "nothing of the others is lost");
}
