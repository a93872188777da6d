//! Links between nodes that fail: a node that pauses, one that dies. Who asked gets the right answer in time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::nodes::Nodes;
use crate::process::client::{get, pop, post, push};
use crate::requests::{ACK, SOON, queue_of};

/// No test is to wait for this: members stay what they are although nodes are silent.
const LONG_TTL: [&str; 2] = ["--member-ttl-ms", "30000"];

#[test]
fn an_owner_that_pauses_shorter_than_that_answers_late() {
    let nodes = Nodes::start(2, 0, &LONG_TTL);
    nodes.wait_for_live(&[1, 2]);
    let queue = queue_of(&nodes, 1);
    nodes.node(1).signal("STOP");
    let mut pusher = nodes.client(2);
    pusher.send(push(&queue, "Default", [1]));
    sleep(Duration::from_millis(2_200));
    nodes.node(1).signal("CONT");
    assert_eq!(pusher.answer().status, 201);
}

#[test]
fn an_ack_of_which_a_part_was_done_never_says_that_nothing_was() {
    let mut nodes = Nodes::start(3, 0, &LONG_TTL);
    nodes.wait_for_live(&[1, 2, 3]);
    let queue = queue_of(&nodes, 1);
    let mut client = nodes.client(1);
    let lost = queue_of(&nodes, 3);
    assert_eq!(client.ask(push(&queue, "Default", [1])).status, 201);
    assert_eq!(client.ask(push(&lost, "Default", [1])).status, 201);
    let kept = client.ask(pop(&queue, "")).messages().remove(0);
    let dead = client.ask(pop(&lost, "")).messages().remove(0);
    nodes.take(3).kill();
    let acks = json!({"queue": queue, "acks": [{"id": kept["id"]}, {"id": dead["id"]}]}).to_string();
    let alone = json!({"queue": queue, "acks": [{"id": dead["id"]}]}).to_string();
    let until = Instant::now() + SOON;
    loop {
        // Once the loss of the link is known.
        let answer = client.ask(post(ACK, &alone));
        if answer.json()["code"] == "owner_moved" {
            break;
        }
        assert!(Instant::now() < until, "{answer:?}");
        sleep(Duration::from_millis(20));
    }
    let answer = client.ask(post(ACK, &acks));
    answer.assert_failure(503, "ephemeral_forward_failed");
    let depth = client.ask(get(&format!("/api/v1/ephemeral/queues/{queue}/depth?scope=node"))).json();
    assert_eq!(depth["bytes"], 0, "the other part was done: {depth}");
}
