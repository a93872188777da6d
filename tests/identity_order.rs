//! Which refusal comes first where several are due, and that the others left nothing behind: neither queue, nor bytes, nor rate.

mod process;
mod tokens;

use std::process::Command;

use process::client::{Answer, Client, get, post, push};
use process::{Node, serve};
use serde_json::json;

const PUSH: &str = "/api/v1/ephemeral/push";
const NODE_BYTES: &str = "100000";

/// A refusal that a push can be made to get, the outer ones first: SPEC's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Form,
    Path,
    NoToken,
    Role,
    Tenant,
    Body,
    Switch,
    Shape,
    Grant,
    Rate,
    Queue,
    Node,
}

use Due::{Body, Form, Grant, NoToken, Path, Queue, Rate, Role, Shape, Switch, Tenant};

const ALL: [Due; 12] = [Form, Path, NoToken, Role, Tenant, Body, Switch, Shape, Grant, Rate, Queue, Due::Node];
/// Those that no request makes: the node is so.
const OF_THE_NODE: [Due; 3] = [Switch, Grant, Rate];

impl Due {
    fn answer(self) -> (u16, &'static str) {
        match self {
            Form => (400, "bad_request"),
            Path => (404, "no_such_route"),
            NoToken => (401, "unauthorized"),
            Role => (403, "forbidden"),
            Tenant | Shape => (400, "ephemeral_bad_request"),
            Body => (413, "payload_too_large"),
            Switch => (503, "ephemeral_disabled"),
            Grant => (403, "feature_gated"),
            Rate => (429, "rate_limited"),
            Queue => (429, "queue_full"),
            Self::Node => (503, "ephemeral_unavailable"),
        }
    }

    /// A part of the prose that tells it from others of its code.
    fn prose(self) -> &'static str {
        if self == Tenant { "x-queen-tenant" } else { "" }
    }
}

fn node(arguments: &[&str]) -> Node {
    let mut command: Command = serve(1, &[&["--jwt-enabled", "on", "--max-bytes", NODE_BYTES][..], arguments].concat());
    command.env("JWT_SECRET", tokens::SECRET);
    Node::start(command)
}

fn authorized(role: &str, request: &str) -> String {
    request.replacen("Host: h\r\n", &format!("Host: h\r\nAuthorization: Bearer {}\r\n", tokens::token(role, json!({}))), 1)
}

/// A push that gets each of `due`.
fn request(due: &[Due]) -> Vec<u8> {
    let has = |one| due.contains(&one);
    let queue = if has(Queue) { "full" } else { "fresh" };
    let payload = if has(Due::Node) { format!("\"{}\"", "n".repeat(800)) } else { "1".to_owned() };
    let partition = if has(Shape) { "" } else { "p" };
    let mut request = push(queue, partition, vec![payload; 10]);
    if has(Path) {
        request = request.replacen(PUSH, "/api/v1/ephemeral/pushed", 1);
    }
    if has(Body) {
        let head = request.split("Content-Length").next().expect("a head");
        request = format!("{head}Content-Length: 99999999999\r\n\r\n");
    }
    if has(Tenant) {
        request = request.replacen("Host: h\r\n", "Host: h\r\nX-Queen-Tenant: nobody\r\n", 1);
    }
    if !has(NoToken) {
        request = authorized(if has(Role) { "read-only" } else { "write-only" }, &request);
    }
    if has(Form) {
        request = request.replacen("Host: h\r\n", "", 1);
    }
    request.into_bytes()
}

fn ask(node: &Node, request: &[u8]) -> Answer {
    Client::connect(node.address).ask(request)
}

/// A node whose memory is nearly full and that has a full queue.
fn filled(arguments: &[&str]) -> Node {
    let node = node(arguments);
    let mut client = Client::connect(node.address);
    let configure = r#"{"queue":"full","options":{"maxLength":1}}"#;
    assert_eq!(client.ask(authorized("admin", &post("/api/v1/ephemeral/configure", configure))).status, 201);
    for _ in 0..10 {
        let filler = push("filler", "p", [format!("\"{}\"", "f".repeat(9_300))]);
        assert_eq!(client.ask(authorized("admin", &filler)).status, 201);
    }
    node
}

#[test]
fn of_two_refusals_the_outer_one_is_told_and_neither_leaves_a_trace() {
    for of_node in [None, Some(Switch), Some(Grant), Some(Rate)] {
        let node = filled(if of_node == Some(Rate) { &["--rate", "1", "--burst", "10"] } else { &[] });
        let state = |client: &mut Client| {
            let queues = client.ask(authorized("admin", &get("/api/v1/ephemeral/queues"))).json();
            (queues, node.metric(client, "queen_ephemeral_bytes"))
        };
        let mut client = Client::connect(node.address);
        let before = state(&mut client);
        set(&mut client, of_node, false);
        for (index, outer) in ALL.into_iter().enumerate() {
            for inner in ALL[index..].iter().copied() {
                let pair = [outer, inner];
                // One request has one token or none.
                let is_so = OF_THE_NODE.iter().all(|due| pair.contains(due) == (of_node == Some(*due)));
                if !is_so || pair == [NoToken, Role] {
                    continue;
                }
                let answer = ask(&node, &request(&pair));
                let (status, code) = outer.answer();
                answer.assert_failure(status, code);
                assert!(String::from_utf8_lossy(&answer.body).contains(outer.prose()), "{pair:?}: {answer:?}");
                assert_eq!(answer.header("www-authenticate"), (outer == NoToken).then_some("Bearer"), "{pair:?}");
            }
        }
        set(&mut client, of_node, true);
        assert_eq!(state(&mut client), before);
    }
}

/// Makes the node refuse every push for what it is, or not any more. A rate is spent already.
fn set(client: &mut Client, of_node: Option<Due>, serves: bool) {
    let (route, body) = match of_node {
        Some(Switch) => ("/api/v1/system/ephemeral", json!({ "enabled": serves })),
        Some(Grant) => {
            ("/api/v1/system/quota", json!({ "tenant": "00000000-0000-0000-0000-000000000001", "kind": "ephemeral", "enabled": serves }))
        }
        _ => return,
    };
    let answer = client.ask(authorized("admin", &post(route, &body.to_string())));
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn what_is_refused_before_the_rate_spends_none_of_it() {
    let node = node(&["--rate", "1", "--burst", "10"]);
    for due in [Form, Path, NoToken, Role, Tenant, Body, Shape] {
        for _ in 0..5 {
            assert_eq!(ask(&node, &request(&[due])).status, due.answer().0, "{due:?}");
        }
    }
    let mut client = Client::connect(node.address);
    for due in [Switch, Grant] {
        set(&mut client, Some(due), false);
        assert_eq!(ask(&node, &request(&[])).status, due.answer().0, "{due:?}");
        set(&mut client, Some(due), true);
    }
    assert_eq!(ask(&node, &request(&[])).status, 201, "the whole burst is there");
    assert_eq!(ask(&node, &request(&[])).status, 429);
}

#[test]
fn who_may_not_ask_is_told_at_the_head_and_the_body_is_neither_asked_for_nor_held() {
    let node = node(&[]);
    let expecting = |extra: &str| format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\n{extra}Expect: 100-continue\r\nContent-Length: 60\r\n\r\n");
    let chunked = format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let declared = format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\nContent-Length: 50000000\r\n\r\n");
    for request in [expecting(""), chunked, declared] {
        let mut client = Client::connect(node.address);
        let answer = client.ask(&request);
        answer.assert_failure(401, "unauthorized");
        assert!(answer.closes(), "what follows is a body that nobody reads");
        // A client that sends it all the same gets its answer, not a reset; and none of it is held.
        client.send(vec![b'x'; 1 << 20]);
        assert_eq!(node.metric(&mut Client::connect(node.address), "queen_ephemeral_bytes"), 0);
    }
    ask(&node, authorized("read-only", &expecting("")).as_bytes()).assert_failure(403, "forbidden");
    let mut client = Client::connect(node.address);
    assert_eq!(client.ask(authorized("write-only", &expecting(""))).status, 100);
    let body = format!("{:<60}", r#"{"queue":"q","messages":[{"payload":1}]}"#);
    assert_eq!(client.ask(body).status, 201);
    let mut client = Client::connect(node.address);
    client.ask("POST /nope HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n").assert_failure(404, "no_such_route");
}

#[test]
fn a_body_that_was_begun_with_a_token_is_taken_although_it_expires_meanwhile() {
    let mut command = serve(1, &["--jwt-enabled", "on", "--jwt-clock-skew", "0"]);
    command.env("JWT_SECRET", tokens::SECRET);
    let node = Node::start(command);
    let until = tokens::now() + 2;
    let token = tokens::token("write-only", json!({ "exp": until }));
    let push = push("q", "p", [1]).replacen("Host: h\r\n", &format!("Host: h\r\nAuthorization: Bearer {token}\r\n"), 1);
    let (first, second) = push.split_at(push.len() - 5);
    let mut client = Client::connect(node.address);
    client.send(first);
    while Client::connect(node.address).ask(&push).status == 201 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(tokens::now() >= until);
    assert_eq!(client.ask(second).status, 201);
    client.ask(&push).assert_failure(401, "unauthorized");
}
