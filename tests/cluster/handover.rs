//! What a node holds goes to others when it leaves and when others come; what waits for it follows.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::nodes::Nodes;
use crate::process::client::{Client, get, pop, post, push};
use crate::requests::{ACK, SOON, outcome, park, queues_of, wait_for_parked};

/// The payloads of everything that a queue gives, in order, with attempts.
fn drain(client: &mut Client, queue: &str, more: &str) -> Vec<(u64, u64)> {
    let mut got = Vec::new();
    loop {
        let messages = client.ask(pop(queue, &format!("&batch=100&autoAck=true{more}"))).messages();
        if messages.is_empty() {
            return got;
        }
        got.extend(
            messages.iter().map(|message| (message["payload"].as_u64().expect("a number"), message["attempts"].as_u64().expect("one"))),
        );
    }
}

#[test]
fn a_node_that_leaves_hands_over_what_it_holds() {
    let mut nodes = Nodes::start(3, 0, &[]);
    nodes.wait_for_live(&[1, 2, 3]);
    let [queue, waiting] = queues_of(&nodes, 3, 2).try_into().expect("two");
    let mut client = nodes.client(1);
    // A group that has read some, one that has a lease, one that begins later; a partition beside.
    assert_eq!(client.ask(pop(&queue, "&group=half&partition=Default")).messages().len(), 0);
    assert_eq!(client.ask(push(&queue, "Default", 0..10)).status, 201);
    assert_eq!(client.ask(push(&queue, "side", 100..103)).status, 201);
    assert_eq!(client.ask(pop(&queue, "&group=half&batch=4&autoAck=true&partition=Default")).messages().len(), 4);
    let leased = client.ask(pop(&queue, "&group=leased&batch=2&partition=Default")).messages();
    let parked = [1, 2].map(|id| park(&nodes, id, &waiting, "&group=late&partition=else"));
    let mut caller = nodes.client(2);
    caller.send(post("/api/v1/ephemeral/call", &json!({"queue": waiting, "partition": "rpc", "payload": 7}).to_string()));
    wait_for_parked(&nodes, 3, 3);

    let leaver = nodes.take(3);
    let stopping = std::thread::spawn(move || leaver.stop());
    nodes.wait_for(1, "node 3 leaves", |status| status["members"][2]["standing"] != "live");
    // What is pushed now is ordered behind.
    assert_eq!(client.ask(push(&queue, "Default", 10..12)).status, 201);
    let got = drain(&mut client, &queue, "&group=half&partition=Default");
    assert_eq!(got, (4..12).map(|n| (n, 1)).collect::<Vec<_>>());
    let got = drain(&mut client, &queue, "&group=leased&partition=Default");
    let expected: Vec<_> = (0..12).map(|n| (n, if n < 2 { 2 } else { 1 })).collect();
    assert_eq!(got, expected, "leases end with the move, and count as attempts");
    let late = json!({"queue": queue, "group": "leased", "acks": [{"id": leased[0]["id"]}]}).to_string();
    assert_eq!(outcome(&client.ask(post(ACK, &late))), "stale");
    assert_eq!(drain(&mut client, &queue, "&group=leased"), (100..103).map(|n| (n, 1)).collect::<Vec<_>>());
    // Parked pops were moved, not answered: one of them, the older up to a hop, has this, the other the next, wherever it waits by then.
    assert_eq!(client.ask(push(&waiting, "else", [1])).status, 201);
    // The call's request went on, its answer finds the caller.
    let request = client.ask(pop(&waiting, "&partition=rpc&wait=true&timeout=5000")).messages().pop().expect("the request");
    let reply = json!({"queue": waiting, "replies": [{"id": request["id"], "replyTo": request["replyTo"], "payload": 8}]});
    let reply = client.ask(post("/api/v1/ephemeral/reply", &reply.to_string()));
    assert_eq!(outcome(&reply), "acked", "{reply:?}");
    assert_eq!(caller.answer().json(), json!({"payload": 8}));

    let (status, log) = stopping.join().expect("stopped");
    assert_eq!(status.code(), Some(0), "{log}");
    let line = log.lines().find(|line| line.contains("ephemeral rings handed over")).expect("a line");
    assert!(line.contains("lost=0"), "{line}");
    let adopted = |id| nodes.node(id).metric(&mut nodes.client(id), "mayfly_handover_messages_total{way=\"adopted\"}");
    assert!(adopted(1) + adopted(2) > 10 + 3, "the others have taken up what it held");
    assert_eq!(client.ask(push(&waiting, "else", [2])).status, 201);
    let mut got = parked.map(|mut parked| parked.answer().messages().pop().expect("woken")["payload"].clone());
    got.sort_by_key(|payload| payload.as_u64());
    assert_eq!(got, [1, 2]);
}

#[test]
fn a_node_that_joins_is_handed_what_it_owns_and_parked_pops_follow() {
    const QUEUES: u64 = 60;
    let mut nodes = Nodes::start(3, 0, &[]);
    nodes.wait_for_live(&[1, 2, 3]);
    let (status, log) = nodes.take(3).stop();
    assert_eq!(status.code(), Some(0), "{log}");
    nodes.wait_for_live(&[1, 2]);
    let mut client = nodes.client(1);
    let mut parked = Vec::new();
    for n in 0..QUEUES {
        assert_eq!(client.ask(push(&format!("full{n}"), "Default", (0..20).map(|m| 100 * n + m))).status, 201);
        parked.push(park(&nodes, 1 + n % 2, &format!("empty{n}"), ""));
    }
    let until = Instant::now() + SOON;
    let waiters = |nodes: &Nodes, id| nodes.node(id).metric(&mut nodes.client(id), "mayfly_waiters");
    while waiters(&nodes, 1) + waiters(&nodes, 2) < QUEUES {
        assert!(Instant::now() < until);
    }
    nodes.begin(3, 1..=3, false);
    nodes.wait_for_live(&[1, 2, 3]);
    let owned =
        || nodes.client(3).ask(get("/api/v1/ephemeral/queues?scope=node&limit=1000")).json()["queues"].as_array().expect("rows").len();
    let until = Instant::now() + SOON;
    while owned() < QUEUES as usize / 4 {
        assert!(Instant::now() < until, "node 3 was handed {} queues", owned());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut other = nodes.client(3);
    for n in 0..QUEUES {
        assert_eq!(other.ask(push(&format!("full{n}"), "Default", [100 * n + 20])).status, 201);
        let got: Vec<_> = drain(&mut client, &format!("full{n}"), "").into_iter().map(|(payload, _)| payload).collect();
        assert_eq!(got, (0..=20).map(|m| 100 * n + m).collect::<Vec<_>>(), "in order, whole");
        assert_eq!(other.ask(push(&format!("empty{n}"), "Default", [n])).status, 201);
        let message = parked[n as usize].answer().messages().pop().expect("woken where the queue is now");
        assert_eq!(message["payload"], n);
    }
}
