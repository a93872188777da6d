//! `mayfly bench` against a node: what it prints, what it leaves behind, and how it fails.

mod process;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};

use process::client::{Client, get};
use process::{Node, mayfly, run, serve};
use serde_json::Value;

fn bench(arguments: &[&str]) -> Command {
    let mut command = mayfly();
    command.arg("bench").args(arguments);
    command
}

/// What a run that succeeds prints.
#[track_caller]
fn measured(node: &Node, arguments: &[&str]) -> String {
    let url = format!("http://{}", node.address);
    let Output { status, stdout, stderr } = bench(arguments).args(["--url", &url]).output().expect("runs");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Asserts that a row is of a run in which the node did what it was asked.
#[track_caller]
fn assert_sound(row: &Value) {
    let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
    assert!(figure("rate_per_s") > 0.0, "{row}");
    assert_eq!(figure("refused"), 0.0, "{row}");
    assert!(figure("p50_us") > 0.0 && figure("p50_us") <= figure("p99_us") && figure("p99_us") <= figure("max_us"), "{row}");
}

/// Asserts that `command` ends with code 1 and one line that says each of `says`.
#[track_caller]
fn assert_refused(command: Command, says: &[&str]) {
    let ended = run(command);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    for part in says {
        assert!(ended.stderr.contains(part), "{part:?} in {:?}", ended.stderr);
    }
}

#[test]
fn calls_are_measured_and_no_queue_is_left() {
    let node = Node::start(serve(1, &[]));
    let rows = rows(&measured(&node, &["rpc", "--seconds", "0.3", "--json"]));
    rows.iter().for_each(assert_sound);
    let runs: Vec<_> = rows.iter().map(|row| [&row["shape"], &row["parameters"]]).collect();
    let expected = ["rpc 1x1", "rpc 32x4", "rpc 256x4"].map(|shape| ["plain", "call", "call-leased"].map(|style| [shape, style]));
    assert_eq!(runs, expected.concat());
    let queues = Client::connect(node.address).ask(get("/api/v1/ephemeral/queues")).json();
    assert_eq!(queues["count"], 0, "{queues}");
}

#[test]
fn every_other_loop_is_measured_on_two_shards_in_every_round() {
    let node = Node::start(serve(2, &[]));
    let rows = rows(&measured(&node, &["wake", "oneway", "leased", "fanout", "--seconds", "0.2", "--rounds", "2", "--json"]));
    rows.iter().for_each(assert_sound);
    let rounds: Vec<_> = rows.iter().map(|row| row["round"].as_u64().expect("a round")).collect();
    assert_eq!(rounds, [[1; 8], [2; 8]].concat());
    let queues = Client::connect(node.address).ask(get("/api/v1/ephemeral/queues")).json();
    assert_eq!(queues["count"], 0, "{queues}");
}

#[test]
fn at_a_rate_so_many_calls_are_made_and_a_table_is_printed() {
    let node = Node::start(serve(1, &[]));
    let table = measured(&node, &["rpc 32", "--seconds", "0.5", "--rate", "200"]);
    let line = table.lines().find(|line| line.starts_with("| rpc 32x4 plain 200/s |")).unwrap_or_else(|| panic!("no row in {table}"));
    let rate: f64 = line.split('|').nth(2).and_then(|cell| cell.trim().parse().ok()).expect("a rate");
    // Calls that were due before the run, while a busy machine held it up, may be done in it.
    assert!((100.0..=300.0).contains(&rate), "{line}");
    assert!(table.starts_with("| loop | operations/s | p50 µs |"), "{table}");
}

#[test]
fn a_refusal_of_the_node_ends_the_run_with_its_reason() {
    let node = Node::start(serve(1, &["--rate", "5"]));
    let ended = run(bench(&["rpc 32", "--seconds", "0.3", "--url", &format!("http://{}", node.address)]));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("mayfly: rpc 32x4 plain: ") && ended.stderr.contains("rate_limited"), "{}", ended.stderr);
}

#[test]
fn an_address_where_no_node_is_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let url = format!("http://{free}");
    assert_refused(bench(&["--url", &url]), &["mayfly: cannot reach a node at ", &url, "--url"]);
    assert_refused(bench(&["--url", "ftp://x"]), &["mayfly: --url: cannot read \"ftp://x\""]);
}

#[test]
fn another_server_is_told_apart() {
    for answer in ["HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno", "HTTP/1.0 200 OK\r\n\r\n<html>", "220 mail ready\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let server = std::thread::spawn(move || {
            // The first connection only asks whether there is somebody.
            let (_first, (mut second, _)) = (listener.accept().expect("connects"), listener.accept().expect("connects"));
            second.write_all(answer.as_bytes()).expect("sent");
            let _ = second.read(&mut [0; 1024]);
        });
        assert_refused(bench(&["--url", &url]), &["not a broker of this wire", &url]);
        server.join().expect("served");
    }
}
