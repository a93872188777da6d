//! The kill switch: what it refuses, what goes on, and that nothing is lost by it.

mod process;

use std::time::Duration;

use process::client::{Client, get, pop, post, push};
use process::{Node, serve, unused_folder};

const SWITCH: &str = "/api/v1/system/ephemeral";

fn start_in(folder: &std::path::Path) -> Node {
    let mut command = serve(2, &[]);
    command.env("MAYFLY_DATA_DIR", folder);
    Node::start(command)
}

fn turn(client: &mut Client, is_enabled: bool) {
    let answer = client.ask(post(SWITCH, &format!(r#"{{"enabled":{is_enabled}}}"#)));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json(), serde_json::json!({"ephemeralEnabled": is_enabled, "mirrored": true}));
}

#[test]
fn switched_off_every_route_of_the_family_is_refused_before_it_is_read() {
    let node = Node::start(serve(2, &[]));
    let mut client = Client::connect(node.address);
    turn(&mut client, false);
    for request in [
        post("/api/v1/ephemeral/push", "not json"),
        post("/api/v1/ephemeral/push", r#"{"queue":"q","messages":[]}"#),
        post("/api/v1/ephemeral/ack", "{}"),
        post("/api/v1/ephemeral/call", "{}"),
        post("/api/v1/ephemeral/reply", "{}"),
        post("/api/v1/ephemeral/configure", "{}"),
        post("/api/v1/ephemeral/reset", "{}"),
        get("/api/v1/ephemeral/pop"),
        get("/api/v1/ephemeral/subscribe"),
        get("/api/v1/ephemeral/queues"),
        get("/api/v1/ephemeral/queues/q/depth"),
        "DELETE /api/v1/ephemeral/queue/q HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
    ] {
        let answer = client.ask(&request);
        answer.assert_failure(503, "ephemeral_disabled");
        assert_eq!(answer.header("retry-after"), Some("1"), "{request}");
    }
    for other in ["/health", "/ready", "/metrics", SWITCH] {
        assert_eq!(client.ask(get(other)).status, 200, "{other}");
    }
    client.ask(post(SWITCH, r#"{"enabled":1}"#)).assert_failure(400, "ephemeral_bad_request");
    client.ask(post(SWITCH, "{}")).assert_failure(400, "ephemeral_bad_request");
    turn(&mut client, true);
    assert_eq!(client.ask(push("q", "Default", [1])).status, 201);
}

#[test]
fn switched_off_nothing_is_delivered_and_switched_on_a_parked_pop_has_it_at_once() {
    let node = Node::start(serve(2, &[]));
    let mut admin = Client::connect(node.address);
    assert_eq!(admin.ask(post("/api/v1/ephemeral/configure", r#"{"queue":"l","options":{"leaseSeconds":1}}"#)).status, 201);
    assert_eq!(admin.ask(push("l", "Default", [1])).status, 201);
    assert_eq!(admin.ask(pop("l", "")).messages().len(), 1);
    let (mut waiter, mut brief) = (Client::connect(node.address), Client::connect(node.address));
    waiter.send(pop("l", "&wait=true&timeout=60000"));
    brief.send(pop("other", "&wait=true&timeout=1500"));
    while node.metric(&mut admin, "mayfly_waiters") < 2 {}
    turn(&mut admin, false);
    // The lease ends meanwhile, then the other pop's time is up.
    assert!(brief.answer().messages().is_empty());
    waiter.stream.set_nonblocking(true).expect("a socket");
    assert!(waiter.arrived().is_none(), "delivered while switched off");
    waiter.stream.set_nonblocking(false).expect("a socket");
    turn(&mut admin, true);
    waiter.stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let messages = waiter.answer().messages();
    assert_eq!((messages.len(), &messages[0]["attempts"]), (1, &2.into()));
}

#[test]
fn switched_off_a_call_waits_on_and_a_stream_is_silent_and_both_have_theirs_when_it_is_on_again() {
    let node = Node::start(serve(2, &[]));
    let mut admin = Client::connect(node.address);
    let mut caller = Client::connect(node.address);
    caller.send(post("/api/v1/ephemeral/call", r#"{"queue":"rpc","payload":7,"timeout":60000}"#));
    while node.metric(&mut admin, "mayfly_calls") < 1 {}
    let mut brief = Client::connect(node.address);
    brief.send(post("/api/v1/ephemeral/call", r#"{"queue":"rpc","payload":8,"timeout":300}"#));
    while node.metric(&mut admin, "mayfly_calls") < 2 {}
    assert_eq!(admin.ask(post("/api/v1/ephemeral/configure", r#"{"queue":"s","options":{"leaseSeconds":1}}"#)).status, 201);
    assert_eq!(admin.ask(push("s", "Default", [1])).status, 201);
    assert_eq!(admin.ask(pop("s", "&group=g")).messages().len(), 1);
    let mut stream = Client::connect(node.address);
    stream.send(get("/api/v1/ephemeral/subscribe?queue=s&group=g"));
    while node.metric(&mut admin, "mayfly_waiters") < 1 {}

    turn(&mut admin, false);
    // A call's own time goes on; what it asked for is withdrawn. Then the lease of what the stream is for ends.
    brief.answer().assert_failure(504, "no_reply");
    std::thread::sleep(Duration::from_millis(1_200));
    let mut arrived = Vec::new();
    stream.stream.set_nonblocking(true).expect("a socket");
    let _ = std::io::Read::read_to_end(&mut stream.stream, &mut arrived);
    assert!(!String::from_utf8_lossy(&arrived).contains("event: message"), "delivered while switched off");
    stream.stream.set_nonblocking(false).expect("a socket");

    turn(&mut admin, true);
    stream.stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&arrived).contains("\"attempts\":2") {
        let count = std::io::Read::read(&mut stream.stream, &mut piece).expect("an event");
        assert!(count > 0, "the stream ended");
        arrived.extend_from_slice(&piece[..count]);
    }
    let requests = admin.ask(pop("rpc", "&batch=10")).messages();
    assert_eq!(requests.len(), 1, "one was withdrawn: {requests:?}");
    let reply = serde_json::json!({"queue": requests[0]["replyTo"], "messages": [{"payload": [9]}]});
    assert_eq!(admin.ask(post("/api/v1/ephemeral/push", &reply.to_string())).status, 201);
    assert_eq!(caller.answer().json(), serde_json::json!({"payload": [9]}));
}

#[test]
fn the_switch_is_remembered_over_a_kill() {
    let mut node = start_in(&unused_folder());
    let folder = node.keep_folder();
    turn(&mut Client::connect(node.address), false);
    node.kill();
    let node = start_in(&folder);
    let mut client = Client::connect(node.address);
    assert_eq!(client.ask(get(SWITCH)).json(), serde_json::json!({"ephemeralEnabled": false, "mirrored": true}));
    client.ask(push("q", "Default", [1])).assert_failure(503, "ephemeral_disabled");
    turn(&mut client, true);
    assert_eq!(client.ask(push("q", "Default", [1])).status, 201);
}
