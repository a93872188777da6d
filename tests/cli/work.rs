//! Messages: push, pop, ack, call, tail.

use std::thread;
use std::time::Duration;

use crate::process::client::{Client, get, post};
use crate::process::{Node, serve};
use crate::{run, run_with};

#[test]
fn what_is_pushed_is_popped_byte_for_byte_and_acked() {
    let node = Node::start(serve(2, &[]));
    let payload = r#"{"a" : 1e400,"a":"\ud800 \u0041", "b":[ 12345678901234567890 ]}"#;
    assert_eq!(run(node.address, &["push", "jobs", payload, "-1"]).out(), "pushed 2\n");
    assert_eq!(run(node.address, &["pop", "jobs", "--payload"]).out(), format!("{payload}\n"));
    let popped = run(node.address, &["pop", "jobs", "--json"]).json();
    let id = popped["messages"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(popped["messages"][0]["payload"], -1);
    assert_eq!(run(node.address, &["ack", "jobs", &id, "--status", "retry"]).out(), format!("{id}  redelivered\n"));
    let again = run(node.address, &["pop", "jobs"]).out();
    let lines: Vec<_> = again.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines[0], ["id", "partition", "attempts", "payload"]);
    assert_eq!(lines[1][1..], ["Default", "2", "-1"]);
    assert_eq!(run(node.address, &["ack", "jobs", lines[1][0]]).out(), format!("{}  acked\n", lines[1][0]));
    let settled = run(node.address, &["ack", "jobs", lines[1][0]]);
    assert_eq!((settled.code, settled.out.as_str()), (Some(1), format!("{}  unknown\n", lines[1][0]).as_str()));
}

#[test]
fn lines_of_text_become_messages_and_a_bad_one_is_named() {
    let node = Node::start(serve(1, &[]));
    assert_eq!(run_with(node.address, &["push", "log", "--text"], "say \"hi\"\n\nno end").out(), "pushed 2\n");
    assert_eq!(run(node.address, &["pop", "log", "--batch", "9", "--ack", "--payload"]).out(), "\"say \\\"hi\\\"\"\n\"no end\"\n");
    run(node.address, &["pop", "log"]).assert_ended(3, "no message in log");
    run_with(node.address, &["push", "log", "--batch", "1"], "1\n{\n3").assert_ended(1, "standard input, line 2 is no JSON");
    assert_eq!(run(node.address, &["pop", "log", "--batch", "9", "--auto-ack", "--payload"]).out(), "1\n");
    let file = crate::process::unused_folder();
    std::fs::write(&file, "1\r\n2\r\n").expect("a file");
    let path = file.to_str().expect("text");
    assert_eq!(run_with(node.address, &["push", "log", "0", "--file", path, "--file", "-"], "3\n").out(), "pushed 4\n");
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(run(node.address, &["pop", "log", "--batch", "9", "--payload"]).out(), "0\n1\n2\n3\n");
    run(node.address, &["push", "log", "--file", "/nowhere"]).assert_ended(1, "/nowhere: No such file");
}

#[test]
fn a_hundred_thousand_lines_are_pushed_in_batches_and_what_is_refused_says_how_far_it_came() {
    let node = Node::start(serve(2, &["--queue-max-length", "100000"]));
    let lines: String = (0..100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(run_with(node.address, &["push", "many"], &lines).out(), "pushed 100000\n");
    assert_eq!(run(node.address, &["depth", "many", "--json"]).json()["pending"], 100_000);
    assert_eq!(run(node.address, &["configure", "few", "--max-length", "2500"]).code, Some(0));
    run_with(node.address, &["push", "few"], &lines).assert_ended(1, "(queue_full); 2000 were pushed before");
}

#[test]
fn a_call_prints_its_reply_and_says_when_there_is_none() {
    let node = Node::start(serve(2, &[]));
    run(node.address, &["call", "service", "1", "--fail-fast"]).assert_ended(3, "(no_consumers)");
    run(node.address, &["call", "service", "1", "--timeout", "20"]).assert_ended(3, "(no_reply)");
    let address = node.address;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = Client::connect(address);
            for _ in 0..2 {
                let message = client.ask(get("/api/v1/ephemeral/pop?queue=service&wait=true")).messages().pop().expect("a request");
                let reply =
                    serde_json::json!({ "id": message["id"], "replyTo": message["replyTo"], "payload": { "got": message["payload"] } });
                let body = serde_json::json!({ "queue": "service", "replies": [reply] }).to_string();
                assert_eq!(client.ask(post("/api/v1/ephemeral/reply", &body)).status, 200);
            }
        });
        assert_eq!(run(address, &["call", "service", "[1]"]).out(), "{\"got\":[1]}\n");
        assert_eq!(run_with(address, &["call", "service", "--text", "--json"], "any\n").json()["payload"]["got"], "any");
    });
}

#[test]
fn tail_prints_what_is_pushed_from_now_on_and_takes_nothing_from_other_groups() {
    let node = Node::start(serve(2, &[]));
    let address = node.address;
    run(address, &["pop", "news", "--group", "readers"]).assert_ended(3, "no message");
    assert_eq!(run(address, &["push", "news", "0"]).out(), "pushed 1\n");
    thread::scope(|scope| {
        let tails: Vec<_> = [&["tail", "news", "--count", "2"][..], &["tail", "news", "--count", "2", "--json"]]
            .into_iter()
            .map(|arguments| scope.spawn(move || run(address, arguments).out()))
            .collect();
        let mut client = Client::connect(address);
        while node.metric(&mut client, "mayfly_waiters") < 2 {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(run(address, &["push", "news", "1", "\"two\""]).out(), "pushed 2\n");
        let printed: Vec<String> = tails.into_iter().map(|tail| tail.join().expect("ends")).collect();
        assert_eq!(printed[0], "1\n\"two\"\n");
        let last: serde_json::Value = serde_json::from_str(printed[1].lines().nth(1).expect("two lines")).expect("JSON");
        assert_eq!((&last["payload"], &last["attempts"]), (&"two".into(), &1.into()));
    });
    assert_eq!(run(address, &["pop", "news", "--group", "readers", "--batch", "9", "--auto-ack", "--payload"]).out(), "0\n1\n\"two\"\n");
}
