//! What the tests ask of nodes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::nodes::Nodes;
use crate::process::client::{Answer, Client, pop, post, push};

/// How soon what another node does is seen.
pub(crate) const SOON: Duration = Duration::from_secs(5);
pub(crate) const ACK: &str = "/api/v1/ephemeral/ack";

/// The name of a queue that this node owns.
pub(crate) fn queue_of(nodes: &Nodes, id: u64) -> String {
    queues_of(nodes, id, 1).remove(0)
}

/// Names of queues that this node owns.
pub(crate) fn queues_of(nodes: &Nodes, id: u64, count: usize) -> Vec<String> {
    let status = nodes.status(id);
    let member = status["members"].as_array().expect("members").iter().find(|member| member["id"] == id).expect("a member");
    let incarnation = member["incarnation"].as_str().expect("hex").to_owned();
    let mut client = nodes.client(id);
    let is_owned = |queue: &String| {
        assert_eq!(client.ask(push(queue, "Default", [0])).status, 201);
        let message = client.ask(pop(queue, "&autoAck=true")).messages().pop().expect("a message");
        message["id"].as_str().expect("an id").contains(&incarnation)
    };
    (0..).map(|n| format!("of-{id}-{n}")).filter(is_owned).take(count).collect()
}

pub(crate) fn park(nodes: &Nodes, id: u64, queue: &str, more: &str) -> Client {
    let mut client = nodes.client(id);
    client.send(pop(queue, &format!("&wait=true&timeout=20000{more}")));
    client
}

/// Waits until a node has exactly so many parked pops and calls.
#[track_caller]
pub(crate) fn wait_for_parked(nodes: &Nodes, id: u64, count: u64) {
    let until = Instant::now() + SOON;
    let mut client = nodes.client(id);
    loop {
        let parked = nodes.node(id).metric(&mut client, "mayfly_waiters") + nodes.node(id).metric(&mut client, "mayfly_calls");
        if parked == count {
            return;
        }
        assert!(Instant::now() < until, "{parked} are parked at node {id}, not {count}");
        sleep(Duration::from_millis(10));
    }
}

pub(crate) fn ack(queue: &str, id: &Value) -> String {
    post(ACK, &json!({"queue": queue, "acks": [{"id": id}]}).to_string())
}

pub(crate) fn outcome(answer: &Answer) -> Value {
    answer.json()["results"][0]["outcome"].clone()
}
