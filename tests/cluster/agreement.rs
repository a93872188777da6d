//! What nodes agree on, and that they do without one of them, and not without most of them.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::nodes::{Nodes, declaration, standing};
use crate::process::client::{Client, get, pop, post, push};

#[test]
fn three_nodes_agree_and_survive_their_leader() {
    let mut nodes = Nodes::start(3, 0, &["--member-ttl-ms", "1500"]);
    let leader = nodes.wait_for_live(&[1, 2, 3]);
    for id in 1..=3 {
        nodes.declare(id, &format!("q{id}"), Duration::ZERO);
    }
    for id in 1..=3 {
        nodes.wait_for_declared(id, &["q1", "q2", "q3"]);
    }

    nodes.take(leader).kill();
    let others: Vec<u64> = nodes.running();
    nodes.declare(others[0], "q4", Duration::from_secs(5));
    nodes.wait_for_declared(others[1], &["q1", "q2", "q3", "q4"]);
    nodes.wait_for(others[1], "the dead node is down", |status| standing(status, "down") == [leader]);

    nodes.begin(leader, 1..=3, false);
    nodes.wait_for_declared(leader, &["q1", "q2", "q3", "q4"]);
    nodes.wait_for_live(&[1, 2, 3]);
    nodes.declare(leader, "q5", Duration::from_secs(5));
}

#[test]
fn without_a_quorum_nothing_is_declared_and_messages_flow() {
    let mut nodes = Nodes::start(3, 0, &[]);
    let leader = nodes.wait_for_live(&[1, 2, 3]);
    (1..=3).filter(|id| *id != leader).for_each(|id| nodes.take(id).kill());
    let mut client = nodes.client(leader);
    // As the leader it still is, and then as one that knows that it leads nobody.
    for _ in 0..2 {
        let asked_at = Instant::now();
        thread::scope(|scope| {
            let refused = scope.spawn(|| nodes.client(leader).ask(declaration("q")));
            // Some of these are this node's, whoever owns the others.
            let mut flows = |n: u64| {
                let queue = format!("flow{n}");
                client.ask(push(&queue, "Default", [1])).status == 201
                    && client.ask(pop(&queue, "&autoAck=true&partition=Default")).messages().len() == 1
            };
            assert!((0..30).any(&mut flows), "nothing flows");
            let refused = refused.join().expect("answered");
            refused.assert_failure(503, "ephemeral_unavailable");
            assert_eq!(refused.header("retry-after"), Some("1"));
        });
        assert!(asked_at.elapsed() < Duration::from_secs(3), "{:?}", asked_at.elapsed());
    }
}

#[test]
fn a_node_is_added_and_removed_by_an_operator() {
    let mut nodes = Nodes::start(1, 1, &[]);
    nodes.wait_for_live(&[1]);
    nodes.declare(1, "before", Duration::ZERO);
    nodes.begin(2, 1..=2, true);
    let joining = nodes.client(2).ask(get("/ready"));
    assert_eq!((joining.status, joining.json()), (503, json!({"status": "joining"})));
    nodes.client(2).ask(push("q", "Default", [1])).assert_failure(503, "owner_moved");
    assert!(nodes.operate(1, &["add", "2"]).status.success());
    nodes.wait_for(1, "both vote", |status| status["voters"] == json!([1, 2]));
    nodes.wait_for_live(&[1, 2]);
    assert_eq!(nodes.client(2).ask(get("/ready")).status, 200);
    nodes.wait_for_declared(2, &["before"]);
    nodes.declare(2, "later", Duration::from_secs(2));
    nodes.wait_for_declared(1, &["before", "later"]);

    let table = String::from_utf8(nodes.operate(2, &["status"]).stdout).expect("text");
    assert_eq!(table.lines().filter(|line| line.contains(" live ")).count(), 2, "{table}");
    let refused = nodes.operate(1, &["remove", "2"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("stop it first"), "{refused:?}");

    let (status, log) = nodes.take(2).stop();
    assert_eq!(status.code(), Some(0), "{log}");
    nodes.wait_for(1, "it is down", |status| standing(status, "down") == [2]);
    let removed = nodes.operate(1, &["remove", "2", "--json"]);
    assert!(removed.status.success(), "{removed:?}");
    let status = nodes.wait_for(1, "it is gone", |status| status["members"].as_array().is_some_and(|rows| rows.len() == 1));
    assert_eq!((&status["voters"], &status["learners"]), (&json!([1]), &json!([])));
    nodes.declare(1, "last", Duration::ZERO);
}

#[test]
fn of_two_nodes_either_may_leave_and_come_back() {
    let mut nodes = Nodes::start(2, 0, &[]);
    for _ in 0..2 {
        let leader = nodes.wait_for_live(&[1, 2]);
        let other = 3 - leader;
        let (status, log) = nodes.take(leader).stop();
        assert_eq!(status.code(), Some(0), "{log}");
        nodes.declare(other, &format!("without-{leader}"), Duration::from_secs(2));
        nodes.begin(leader, 1..=2, false);
        nodes.wait_for(other, "it votes again", |status| status["voters"] == json!([1, 2]));
    }
}

/// A deletion on one node and declarations on others at once: what the log says last is so on every node, without a restart.
#[test]
fn a_deletion_that_races_a_declaration_never_undoes_a_later_one() {
    let nodes = Nodes::start(3, 0, &[]);
    nodes.wait_for_live(&[1, 2, 3]);
    nodes.declare(1, "first", Duration::from_secs(5));
    let addresses = [1, 2, 3].map(|id| nodes.node(id).address);
    for round in 0..40 {
        let queue = format!("raced-{round}");
        nodes.declare(1, &queue, Duration::ZERO);
        let barrier = Barrier::new(3);
        thread::scope(|scope| {
            for (index, address) in addresses.into_iter().enumerate() {
                let (barrier, queue) = (&barrier, &queue);
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    barrier.wait();
                    match index {
                        0 => drop(client.ask(format!("DELETE /api/v1/ephemeral/queue/{queue} HTTP/1.1\r\nHost: h\r\n\r\n"))),
                        _ => assert_eq!(client.ask(declaration(queue)).status, 201),
                    }
                });
            }
        });
    }
    // One entry more than all of the races: every node that has it has those.
    nodes.declare(1, "last", Duration::ZERO);
    let declared = |id: u64| {
        let listing = nodes.client(id).ask(get("/api/v1/ephemeral/queues?scope=node")).json();
        let rows = listing["queues"].as_array().expect("queues").iter().filter(|row| row["tier"] == "declared");
        rows.map(|row| row["queue"].as_str().expect("a name").to_owned()).collect::<BTreeSet<_>>()
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !(1..=3).all(|id| declared(id).contains("last")) || declared(1) != declared(2) || declared(2) != declared(3) {
        assert!(Instant::now() < deadline, "{:?}", [1, 2, 3].map(declared));
        thread::sleep(Duration::from_millis(50));
    }
    // What a log says is what a restart would bring: the same without one.
    let of_log = nodes.node(1).metric(&mut nodes.client(1), "mayfly_control_declarations");
    assert_eq!(declared(1).len() as u64, of_log);
}

#[test]
fn mirrored_says_whether_every_live_node_has_the_switch() {
    let nodes = Nodes::start(3, 0, &["--member-ttl-ms", "8000"]);
    let leader = nodes.wait_for_live(&[1, 2, 3]);
    let stopped = leader % 3 + 1;
    let switch = |id: u64| {
        let said = nodes.client(id).ask(get("/api/v1/system/ephemeral")).json();
        (said["ephemeralEnabled"].as_bool().expect("a flag"), said["mirrored"].as_bool().expect("a flag"))
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {:?}", switch(leader));
            thread::sleep(Duration::from_millis(20));
        }
    };
    until("at rest", &|| (1..=3).all(|id| switch(id) == (true, true)));
    nodes.node(stopped).signal("STOP");
    let turned = nodes.client(leader).ask(post("/api/v1/system/ephemeral", r#"{"enabled":false}"#)).json();
    assert_eq!((&turned["ephemeralEnabled"], &turned["mirrored"]), (&false.into(), &false.into()));
    // It is no less live before the member-ttl has passed, and does not have it.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        assert_eq!(switch(leader), (false, false));
        thread::sleep(Duration::from_millis(50));
    }
    nodes.node(stopped).signal("CONT");
    until("everywhere", &|| (1..=3).all(|id| switch(id) == (false, true)));
}
