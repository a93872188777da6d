//! Queues: list, depth, configure, reset, delete, top.

use std::process::{Command, Stdio};

use crate::process::{Node, mayfly, serve};
use crate::{run, run_with};

/// Names that mean something in a path, a query, a table or JSON.
const NAMES: [&str; 6] = ["a/b c", "..", "q?x=1&y#z", "100%", "ünïcode \u{1f41d}", "\"quoted\""];

#[test]
fn any_name_can_be_declared_listed_read_and_deleted() {
    let node = Node::start(serve(2, &[]));
    for name in NAMES {
        let declared = run(node.address, &["configure", name, "--max-length", "7", "--policy", "dropOldest", "--window-ms", "5"]).out();
        let options = r#"{"maxLength":7,"policy":"dropOldest","windowBuffer":{"count":0,"ms":5}}"#;
        assert!(declared.starts_with(&format!("declared {name} with {options} at 20")), "{declared}");
        assert_eq!(run(node.address, &["push", name, "1", "--partition", name]).out(), "pushed 1\n");
    }
    let listed = run(node.address, &["queues", "--json"]).out();
    let names: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["queue"].as_str().expect("a name").to_owned())
        .collect();
    let mut sorted = NAMES.map(str::to_owned).to_vec();
    sorted.sort();
    assert_eq!(names, sorted);
    let table = run(node.address, &["queues", "a/"]).out();
    assert_eq!(
        table.split_whitespace().collect::<Vec<_>>()[..9],
        ["queue", "tier", "depth", "bytes", "partitions", "groups", "dropped", "a/b", "c"]
    );
    for name in NAMES {
        let depth = run(node.address, &["depth", name]).out();
        assert!(depth.starts_with(&format!("{name}: declared, 1 pending, 1 bytes\n")), "{depth}");
        assert_eq!(run(node.address, &["reset", name, "--yes"]).out(), "dropped 1\n");
        assert_eq!(run(node.address, &["delete", name]).out(), "deleted, and it is not declared any more\n");
        assert_eq!(run(node.address, &["delete", name]).out(), "there was nothing to delete\n");
        run(node.address, &["depth", name]).assert_ended(3, "(ephemeral_queue_not_found)");
    }
}

#[test]
fn options_as_the_wire_spells_them_are_echoed_and_bad_ones_refused() {
    let node = Node::start(serve(1, &[]));
    let echo = run(node.address, &["configure", "q", "--options", r#"{ "ttlSeconds" : 5 }"#, "--json"]).out();
    assert!(echo.contains(r#"{ "ttlSeconds" : 5 }"#), "{echo}");
    run(node.address, &["configure", "q", "--options", "{"]).assert_ended(1, "--options is no JSON");
    run(node.address, &["configure", "q", "--options", r#"{"ttl":5}"#]).assert_ended(1, "(ephemeral_bad_request)");
    assert_eq!(run(node.address, &["configure", "q", "--policy", "any"]).code, Some(2));
}

#[test]
fn more_queues_than_a_page_are_listed_and_a_reader_that_goes_is_no_error() {
    let node = Node::start(serve(2, &[]));
    let mut client = crate::process::client::Client::connect(node.address);
    for number in 0..2_500 {
        let request = crate::process::client::push(&format!("q{number:04}"), "Default", [1]);
        assert_eq!(client.ask(request).status, 201);
    }
    assert_eq!(run(node.address, &["queues", "--json"]).out().lines().count(), 2_500);
    assert_eq!(run(node.address, &["queues", "--json", "--limit", "1200"]).out().lines().count(), 1_200);
    assert_eq!(run(node.address, &["queues", "q24"]).out().lines().count(), 101);
    let mut child = mayfly();
    child.args(["queues", "--json"]).env("MAYFLY_URL", format!("http://{}", node.address)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("runs");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("ends");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn top_shows_the_fullest_queues_and_gives_the_terminal_back() {
    let node = Node::start(serve(1, &[]));
    assert_eq!(run_with(node.address, &["push", "full"], "1\n2\n3\n").out(), "pushed 3\n");
    assert_eq!(run(node.address, &["push", "less", "1"]).out(), "pushed 1\n");
    let shown = run(node.address, &["top", "--count", "1", "--rows", "1"]).out();
    let words: Vec<_> = shown.split_whitespace().collect();
    assert_eq!(words[..2], ["2", "queues"], "{shown}");
    assert!(shown.contains("full") && !shown.contains("less") && !shown.contains('\u{1b}'), "{shown}");
    assert_eq!(run(node.address, &["top", "--count", "1", "--json"]).json()["queues"][0]["queue"], "full");
    // On a terminal, until it is interrupted.
    let inner = format!("timeout --foreground -s INT 2 {} top --url http://{}", env!("CARGO_BIN_EXE_mayfly"), node.address);
    let recorded = Command::new("script").args(["-qec", &inner, "/dev/null"]).stdin(Stdio::null()).output().expect("script runs");
    let text = String::from_utf8_lossy(&recorded.stdout).into_owned();
    let (enter, leave) = (text.find("\u{1b}[?1049h"), text.rfind("\u{1b}[?1049l"));
    assert!(enter.is_some() && leave > enter && text.contains("full"), "{text:?}");
}
