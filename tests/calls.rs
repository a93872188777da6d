//! Calls and replies on a real node: who gets which answer, and what is left when either side vanishes.
//!
//! Every test ends by asserting that nothing is left behind: no call, no parked pop, no byte.

mod process;

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use process::client::{Answer, Client, get, pop, post, push};
use process::{Node, serve};
use serde_json::{Value, json};

/// How long something that must happen may take on a busy test machine.
const SOON: Duration = Duration::from_secs(10);
/// An idle queue's end, unless a test says otherwise.
const IDLE: &[&str] = &["--implicit-idle-s", "0.2"];

fn call(queue: &str, payload: &str, more: &str) -> String {
    post("/api/v1/ephemeral/call", &format!(r#"{{"queue":"{queue}","payload":{payload}{more}}}"#))
}

/// A reply to delivered messages with one payload each; `more` begins with a comma.
fn reply(queue: &str, messages: &[Value], payload: &str, more: &str) -> String {
    let items: Vec<_> = messages.iter().map(|message| reply_item(message, &message["replyTo"], payload)).collect();
    post("/api/v1/ephemeral/reply", &format!(r#"{{"queue":"{queue}","replies":[{}]{more}}}"#, items.join(",")))
}

fn reply_item(message: &Value, to: &Value, payload: &str) -> String {
    format!(r#"{{"id":{},"replyTo":{to},"payload":{payload}}}"#, message["id"])
}

#[track_caller]
fn outcomes(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    let results = body["results"].as_array().unwrap_or_else(|| panic!("results: {body}"));
    results.iter().map(|result| result["outcome"].as_str().expect("an outcome").to_owned()).collect()
}

/// One message, popped by a waiting pop.
#[track_caller]
fn take(client: &mut Client, queue: &str) -> Value {
    let messages = client.ask(pop(queue, "&wait=true&timeout=10000")).messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages[0].clone()
}

/// A node with a connection to ask it about itself.
struct Bench {
    node: Node,
    control: Client,
}

impl Bench {
    fn start(shards: usize, arguments: &[&str]) -> Self {
        let idle = if arguments.contains(&IDLE[0]) { &[] } else { IDLE };
        let node = Node::start(serve(shards, &[idle, arguments].concat()));
        let control = Client::connect(node.address);
        Self { node, control }
    }

    fn client(&self) -> Client {
        Client::connect(self.node.address)
    }

    fn metric(&mut self, name: &str) -> u64 {
        self.node.metric(&mut self.control, name)
    }

    /// A connection whose call is parked.
    #[track_caller]
    fn caller(&mut self, request: impl AsRef<[u8]>) -> Client {
        let before = self.metric("mayfly_calls");
        let mut client = self.client();
        client.send(request);
        self.await_metric("mayfly_calls", before + 1);
        client
    }

    #[track_caller]
    fn await_metric(&mut self, name: &str, value: u64) {
        let started = Instant::now();
        loop {
            let found = self.metric(name);
            if found == value {
                return;
            }
            assert!(started.elapsed() < SOON, "{name} is {found}, not {value}");
            sleep(Duration::from_millis(1));
        }
    }

    fn dropped(&mut self, cause: &str) -> u64 {
        self.metric(&format!("queen_ephemeral_dropped_total{{cause=\"{cause}\"}}"))
    }

    /// A core tells what it counts when it goes to sleep.
    #[track_caller]
    fn await_dropped(&mut self, cause: &str, count: u64) {
        self.await_metric(&format!("queen_ephemeral_dropped_total{{cause=\"{cause}\"}}"), count);
    }

    /// Nothing is left of anything: every message has ended in exactly one way, and idle queues are collected.
    #[track_caller]
    fn assert_nothing_left(mut self) {
        self.await_metric("mayfly_calls", 0);
        self.await_metric("mayfly_waiters", 0);
        self.await_metric("queen_ephemeral_queues", 0);
        self.await_metric("queen_ephemeral_bytes", 0);
        let causes = ["bounds", "ttl", "retry", "reset", "deleted", "late_reply", "group_idle", "abandoned", "withdrawn"];
        let started = Instant::now();
        loop {
            let pushed = self.metric("queen_ephemeral_messages_total{verb=\"pushed\"}");
            let acked = self.metric("queen_ephemeral_messages_total{verb=\"acked\"}");
            let dropped: u64 = causes.iter().map(|cause| self.dropped(cause)).sum();
            if pushed == acked + dropped {
                return;
            }
            assert!(started.elapsed() < SOON, "of {pushed} messages {acked} are acked and {dropped} dropped with a cause");
        }
    }
}

#[test]
fn a_call_is_answered_byte_for_byte_by_a_reply_or_a_push() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        let mut responder = bench.client();
        for partition in ["Default", "a", "b", "c", "d"] {
            let payload = r#"{ "x" : 1 }"#;
            let mut caller = bench.caller(call("q", payload, &format!(r#","partition":"{partition}""#)));
            let message = responder.ask(pop("q", &format!("&partition={partition}"))).messages().remove(0);
            let inbox = message["replyTo"].as_str().expect("an inbox").to_owned();
            assert!(inbox.starts_with("reply:"), "{inbox}");
            if partition < "b" {
                let answer = responder.ask(reply("q", &[message], r#"[ 1e400 , "\ud800" ]"#, ""));
                assert_eq!(outcomes(&answer), ["acked"]);
                assert_eq!(caller.answer().body, br#"{"payload":[ 1e400 , "\ud800" ]}"#);
            } else {
                let answer = responder.ask(push(&inbox, "Default", [r#"{ "y" : 2.50 }"#]));
                assert_eq!((answer.status, answer.json()), (201, json!({"pushed": 1})));
                assert_eq!(caller.answer().body, br#"{"payload":{ "y" : 2.50 }}"#);
                let ack = format!(r#"{{"queue":"q","acks":[{{"id":{}}}]}}"#, message["id"]);
                assert_eq!(outcomes(&responder.ask(post("/api/v1/ephemeral/ack", &ack))), ["acked"]);
            }
        }
        bench.assert_nothing_left();
    }
}

#[test]
fn a_message_that_was_pushed_names_no_inbox() {
    let bench = Bench::start(1, &[]);
    let mut client = bench.client();
    client.ask(push("q", "Default", ["1"]));
    let message = client.ask(pop("q", "&autoAck=true")).messages().remove(0);
    let keys: Vec<_> = message.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["attempts", "id", "partition", "payload"]);
    bench.assert_nothing_left();
}

#[test]
fn requests_and_answers_flow_through_next() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        let mut responder = bench.client();
        let wait = r#","next":{"wait":true,"timeout":10000,"batch":2}"#;
        responder.send(reply("q", &[], "0", wait));
        bench.await_metric("mayfly_waiters", 1);
        for round in 0..5 {
            let mut caller = bench.client();
            caller.send(call("q", &round.to_string(), ""));
            let answer = responder.answer();
            assert_eq!(outcomes(&answer).len(), usize::from(round > 0));
            let messages = answer.messages();
            assert_eq!(messages[0]["payload"], round);
            responder.send(reply("q", &messages, "\"done\"", wait));
            assert_eq!(caller.answer().json(), json!({"payload": "done"}));
        }
        responder.finish();
        bench.assert_nothing_left();
    }
}

#[test]
fn next_without_wait_and_at_its_timeout_answers_empty() {
    let bench = Bench::start(4, &[]);
    let mut client = bench.client();
    let answer = client.ask(reply("q", &[], "0", r#","next":{"partition":"b"}"#));
    assert_eq!(answer.json(), json!({"results": [], "messages": []}));
    let started = Instant::now();
    let answer = client.ask(reply("q", &[], "0", r#","next":{"partition":"b","wait":true,"timeout":100}"#));
    assert_eq!(answer.json(), json!({"results": [], "messages": []}));
    assert!((Duration::from_millis(100)..SOON).contains(&started.elapsed()));
    assert_eq!(client.ask(reply("q", &[], "0", "")).json(), json!({"results": []}));
    bench.assert_nothing_left();
}

#[test]
fn a_client_that_leaves_its_next_takes_nothing() {
    let mut bench = Bench::start(4, &[]);
    for partition in ["Default", "b"] {
        let next = format!(r#","next":{{"partition":"{partition}","wait":true,"timeout":20000}}"#);
        let mut gone = bench.client();
        gone.send(reply("q", &[], "0", &next));
        bench.await_metric("mayfly_waiters", 1);
        gone.reset();
        bench.await_metric("mayfly_waiters", 0);
        let mut client = bench.client();
        client.ask(push("q", partition, ["1"]));
        let message = client.ask(pop("q", &format!("&partition={partition}&autoAck=true"))).messages().remove(0);
        assert_eq!(message["attempts"], 1);
    }
    bench.assert_nothing_left();
}

#[test]
fn a_call_times_out_and_takes_back_what_nobody_took() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        for partition in ["Default", "a", "b", "c"] {
            let mut client = bench.client();
            let started = Instant::now();
            client.ask(call("q", "1", &format!(r#","partition":"{partition}","timeout":150"#))).assert_failure(504, "no_reply");
            let took = started.elapsed();
            assert!(took >= Duration::from_millis(150) && took < SOON, "{took:?}");
            assert!(client.ask(pop("q", &format!("&partition={partition}"))).messages().is_empty());
        }
        bench.await_dropped("withdrawn", 4);
        let mut client = bench.client();
        client.ask(call("q", "1", r#","timeout":0"#)).assert_failure(504, "no_reply");
        bench.await_dropped("withdrawn", 5);
        bench.assert_nothing_left();
    }
}

#[test]
fn the_caller_leaves_before_anyone_takes_its_request() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        for (round, leave) in [Client::reset as fn(Client), |client| client.finish(), drop].into_iter().enumerate() {
            let caller = bench.caller(call("q", "1", r#","partition":"b""#));
            leave(caller);
            bench.await_metric("mayfly_calls", 0);
            bench.await_dropped("withdrawn", round as u64 + 1);
        }
        let mut client = bench.client();
        assert!(client.ask(pop("q", "")).messages().is_empty());
        bench.assert_nothing_left();
    }
}

#[test]
fn the_caller_leaves_while_its_request_is_worked_on() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        let mut responder = bench.client();
        let caller = bench.caller(call("q", "1", ""));
        let message = take(&mut responder, "q");
        caller.reset();
        bench.await_metric("mayfly_calls", 0);
        assert_eq!(bench.dropped("withdrawn"), 0, "it was taken: it stays with its lease");
        assert_eq!(outcomes(&responder.ask(reply("q", &[message], "1", ""))), ["acked"]);
        bench.await_dropped("late_reply", 1);
        bench.assert_nothing_left();
    }
}

#[test]
fn answers_that_are_late_double_or_foreign_are_dropped_and_counted() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        let mut responder = bench.client();
        let mut caller = bench.caller(call("q", "1", ""));
        let message = take(&mut responder, "q");
        let to = message["replyTo"].clone();
        assert_eq!(outcomes(&responder.ask(reply("q", std::slice::from_ref(&message), "1", ""))), ["acked"]);
        assert_eq!(caller.answer().json(), json!({"payload": 1}));
        // Double: by a reply and by a push.
        assert_eq!(outcomes(&responder.ask(reply("q", &[message], "2", ""))), ["unknown"]);
        assert_eq!(responder.ask(push(to.as_str().expect("text"), "Default", ["3"])).status, 201);
        bench.await_dropped("late_reply", 2);
        // Foreign: of another incarnation, and never given.
        for name in ["reply:00000000000000ff:1", "reply:00000000000000ff:ffff", &format!("{}1", to.as_str().expect("text"))] {
            assert_eq!(responder.ask(push(name, "Default", ["4", "5"])).json(), json!({"pushed": 2}));
        }
        bench.await_dropped("late_reply", 8);
        let item = reply_item(&json!({"id": "e:00000000000000ff:Default:3"}), &json!("reply:00000000000000ff:3"), "6");
        let foreign = post("/api/v1/ephemeral/reply", &format!(r#"{{"queue":"q","replies":[{item}]}}"#));
        assert_eq!(outcomes(&responder.ask(foreign)), ["stale"]);
        bench.await_dropped("late_reply", 9);
        // After its call timed out, while the request is leased.
        let mut caller = bench.client();
        caller.send(call("q", "1", r#","timeout":300"#));
        let message = take(&mut responder, "q");
        caller.answer().assert_failure(504, "no_reply");
        assert_eq!(outcomes(&responder.ask(reply("q", &[message], "7", ""))), ["acked"]);
        bench.await_dropped("late_reply", 10);
        assert!(caller.ask(get("/health")).status == 200, "the late answer did not come to the caller's next request");
        bench.assert_nothing_left();
    }
}

#[test]
fn a_push_of_several_messages_to_an_inbox_answers_with_the_first() {
    let mut bench = Bench::start(4, &[]);
    let mut caller = bench.caller(call("q", "1", ""));
    let mut responder = bench.client();
    let message = responder.ask(pop("q", "&autoAck=true")).messages().remove(0);
    let answer = responder.ask(push(message["replyTo"].as_str().expect("text"), "any", ["1", "2", "3"]));
    assert_eq!((answer.status, answer.json()), (201, json!({"pushed": 3})));
    assert_eq!(caller.answer().json(), json!({"payload": 1}));
    bench.await_dropped("late_reply", 2);
    bench.assert_nothing_left();
}

#[test]
fn a_responder_that_leaves_before_its_answer_leaves_the_request_to_another() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &["--lease-s", "1"]);
        let mut caller = bench.caller(call("q", "1", ""));
        let mut gone = bench.client();
        let message = take(&mut gone, "q");
        gone.reset();
        let mut other = bench.client();
        let again = take(&mut other, "q");
        assert_eq!((&again["attempts"], &again["replyTo"]), (&json!(2), &message["replyTo"]));
        assert_eq!(outcomes(&other.ask(reply("q", &[message, again], "1", ""))), ["stale", "acked"], "the stale one was pushed first");
        assert_eq!(caller.answer().json(), json!({"payload": 1}));
        bench.await_dropped("late_reply", 1);
        bench.assert_nothing_left();
    }
}

#[test]
fn a_responder_that_leaves_right_after_its_answer_has_given_it() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &["--lease-s", "60"]);
        for partition in ["Default", "a", "b", "c"] {
            let mut caller = bench.caller(call("q", "1", &format!(r#","partition":"{partition}""#)));
            let mut responder = bench.client();
            let message = responder.ask(pop("q", &format!("&partition={partition}"))).messages().remove(0);
            responder.send(reply("q", &[message], "1", r#","next":{"wait":true}"#));
            responder.reset();
            assert_eq!(caller.answer().json(), json!({"payload": 1}));
        }
        bench.assert_nothing_left();
    }
}

#[test]
fn a_refused_answer_leaves_its_request_unacked() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &["--lease-s", "60"]);
        let mut client = bench.client();
        let configure = post("/api/v1/ephemeral/configure", r#"{"queue":"full","options":{"maxLength":1}}"#);
        assert_eq!(client.ask(configure).status, 201);
        client.ask(push("full", "Default", ["0"]));
        client.ask(push("q", "Default", ["1", "2", "3"]));
        let messages = client.ask(pop("q", "&batch=3")).messages();
        let items: Vec<_> =
            [("other", 0), ("full", 1), ("third", 2)].map(|(to, index)| reply_item(&messages[index], &json!(to), "9")).into();
        let request = post("/api/v1/ephemeral/reply", &format!(r#"{{"queue":"q","replies":[{}]}}"#, items.join(",")));
        let answer = client.ask(request).json();
        let ids: Vec<_> = messages.iter().map(|message| message["id"].clone()).collect();
        let expected = json!({"results": [
            {"id": ids[0], "outcome": "acked"},
            {"id": ids[1], "outcome": "refused", "code": "queue_full"},
            {"id": ids[2], "outcome": "acked"},
        ]});
        assert_eq!(answer, expected);
        let ack = format!(r#"{{"queue":"q","acks":[{{"id":{}}}]}}"#, ids[1]);
        assert_eq!(outcomes(&client.ask(post("/api/v1/ephemeral/ack", &ack))), ["acked"], "its lease was live");
        for queue in ["other", "third", "full"] {
            assert_eq!(client.ask(pop(queue, "&autoAck=true&batch=9")).messages().len(), 1, "{queue}");
        }
        assert_eq!(client.ask("DELETE /api/v1/ephemeral/queue/full HTTP/1.1\r\nHost: h\r\n\r\n").status, 200);
        bench.await_metric("mayfly_calls", 0);
        bench.assert_nothing_left();
    }
}

#[test]
fn fail_fast_asks_whether_anybody_listens() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &["--lease-s", "60"]);
        let fast = |partition: &str| call("q", "1", &format!(r#","failFast":true,"timeout":200,"partition":"{partition}""#));
        let mut client = bench.client();
        let partitions = ["Default", "a", "b", "c", "d"];
        for partition in partitions {
            client.ask(fast(partition)).assert_failure(409, "no_consumers");
        }
        // Nothing was made.
        bench.await_metric("queen_ephemeral_queues", 0);
        // A pop that is parked on any partition listens to all, one on a partition by name to that.
        let mut listener = bench.client();
        listener.send(pop("q", "&wait=true&timeout=20000"));
        bench.await_metric("mayfly_waiters", 1);
        client.ask(fast("c")).assert_failure(504, "no_reply");
        let message = listener.answer().messages().remove(0);
        // Its lease is live, and it was answered a moment ago.
        client.ask(fast("c")).assert_failure(504, "no_reply");
        assert_eq!(outcomes(&client.ask(reply("q", &[message], "1", ""))), ["acked"]);
        client.ask(post("/api/v1/ephemeral/reset", r#"{"queue":"q"}"#));
        let mut named = bench.client();
        named.send(pop("p", "&partition=a&wait=true&timeout=20000"));
        bench.await_metric("mayfly_waiters", 1);
        let to = |partition: &str| call("p", "1", &format!(r#","failFast":true,"timeout":200,"partition":"{partition}""#));
        client.ask(to("b")).assert_failure(409, "no_consumers");
        client.ask(to("a")).assert_failure(504, "no_reply");
        assert_eq!(named.answer().messages().len(), 1);
        client.ask(post("/api/v1/ephemeral/reset", r#"{"queue":"p"}"#));
        bench.assert_nothing_left();
    }
}

#[test]
fn fail_fast_forgets_listeners_that_left_or_were_answered_long_ago() {
    let mut bench = Bench::start(4, &["--implicit-idle-s", "60"]);
    let fast = |partition: &str| call("q", "1", &format!(r#","failFast":true,"timeout":0,"partition":"{partition}""#));
    let mut client = bench.client();
    let mut gone = bench.client();
    gone.send(pop("q", "&partition=a&wait=true&timeout=20000"));
    bench.await_metric("mayfly_waiters", 1);
    gone.reset();
    bench.await_metric("mayfly_waiters", 0);
    client.ask(fast("a")).assert_failure(409, "no_consumers");
    client.ask(pop("q", "&partition=a"));
    client.ask(fast("a")).assert_failure(504, "no_reply");
    client.ask(fast("b")).assert_failure(409, "no_consumers");
    sleep(Duration::from_millis(5_100));
    client.ask(fast("a")).assert_failure(409, "no_consumers");
}

#[test]
fn pipelined_calls_are_answered_in_order() {
    let mut bench = Bench::start(4, &[]);
    let mut caller = bench.client();
    caller.send((0..20).map(|n| call("q", &n.to_string(), "")).collect::<String>());
    let mut responder = bench.client();
    for n in 0..20 {
        let message = take(&mut responder, "q");
        assert_eq!(message["payload"], n);
        assert_eq!(outcomes(&responder.ask(reply("q", &[message], &(n * n).to_string(), ""))), ["acked"]);
        assert_eq!(caller.answer().json(), json!({"payload": n * n}));
    }
    bench.await_metric("mayfly_calls", 0);
    bench.assert_nothing_left();
}

#[test]
fn a_call_is_refused_like_a_push() {
    let bench = Bench::start(1, &["--max-body-bytes", "10000"]);
    let mut client = bench.client();
    let configure = post("/api/v1/ephemeral/configure", r#"{"queue":"full","options":{"maxLength":1,"maxBytes":100}}"#);
    assert_eq!(client.ask(configure).status, 201);
    client.ask(push("full", "Default", ["0"]));
    let answer = client.ask(call("full", "1", ""));
    answer.assert_failure(429, "queue_full");
    assert_eq!(answer.header("retry-after"), Some("1"));
    let long = format!("\"{}\"", "x".repeat(200));
    let answer = client.ask(call("full", &long, ""));
    answer.assert_failure(429, "queue_full");
    assert_eq!(answer.header("retry-after"), None, "it can never fit");
    let huge = format!("\"{}\"", "x".repeat(20_000));
    bench.client().ask(call("q", &huge, "")).assert_failure(413, "payload_too_large");
    for body in [r#"{"queue":"q"}"#, r#"{"queue":"q","payload":1,"timeout":"1"}"#, "", "x", r#"{"queue":"q","payload":}"#] {
        client.ask(post("/api/v1/ephemeral/call", body)).assert_failure(400, "ephemeral_bad_request");
        client.ask(post("/api/v1/ephemeral/reply", body)).assert_failure(400, "ephemeral_bad_request");
    }
    for path in ["/api/v1/ephemeral/call", "/api/v1/ephemeral/reply"] {
        let answer = client.ask(get(path));
        answer.assert_failure(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some("POST"));
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(client.answer_to_head().status, 405);
    }
    assert_eq!(client.ask("DELETE /api/v1/ephemeral/queue/full HTTP/1.1\r\nHost: h\r\n\r\n").status, 200);
    bench.assert_nothing_left();
}

#[test]
fn an_inbox_is_no_queue() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        let mut caller = bench.caller(call("q", "1", ""));
        let mut client = bench.client();
        let message = take(&mut client, "q");
        let inbox = message["replyTo"].as_str().expect("text").to_owned();
        client.ask(pop(&inbox, "")).assert_failure(400, "ephemeral_bad_request");
        client.ask(call(&inbox, "1", "")).assert_failure(400, "ephemeral_bad_request");
        let body = format!(r#"{{"queue":"{inbox}"}}"#);
        client.ask(post("/api/v1/ephemeral/configure", &body)).assert_failure(400, "ephemeral_bad_request");
        assert_eq!(client.ask(post("/api/v1/ephemeral/reset", &body)).json(), json!({"queue": inbox, "dropped": 0}));
        let answer = client.ask(format!("DELETE /api/v1/ephemeral/queue/{inbox} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(answer.json(), json!({"queue": inbox, "deleted": false, "declared": false}));
        client.ask(get(&format!("/api/v1/ephemeral/queues/{inbox}/depth"))).assert_failure(404, "ephemeral_queue_not_found");
        assert_eq!(outcomes(&client.ask(reply("q", &[message], "1", ""))), ["acked"], "none of it touched the call");
        assert_eq!(caller.answer().json(), json!({"payload": 1}));
        bench.assert_nothing_left();
    }
}

#[test]
fn a_call_outlives_its_requests_queue() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        let mut responder = bench.client();
        let mut one = bench.caller(call("q", "1", r#","partition":"a""#));
        let message = responder.ask(pop("q", "&partition=a")).messages().remove(0);
        let mut other = bench.client();
        other.send(call("q", "2", r#","partition":"a","timeout":1000"#));
        bench.await_metric("mayfly_calls", 2);
        assert_eq!(responder.ask(post("/api/v1/ephemeral/reset", r#"{"queue":"q"}"#)).json()["dropped"], 2);
        assert_eq!(responder.ask("DELETE /api/v1/ephemeral/queue/q HTTP/1.1\r\nHost: h\r\n\r\n").status, 200);
        assert_eq!(outcomes(&responder.ask(reply("q", &[message], "1", ""))), ["unknown"]);
        assert_eq!(one.answer().json(), json!({"payload": 1}));
        other.answer().assert_failure(504, "no_reply");
        bench.await_dropped("reset", 2);
        assert_eq!(bench.dropped("withdrawn"), 0);
        bench.assert_nothing_left();
    }
}

#[test]
fn a_drain_sends_callers_away_and_tells_what_was_done() {
    for shards in [1, 4] {
        let mut bench = Bench::start(shards, &[]);
        let mut caller = bench.caller(call("q", "1", ""));
        let mut responder = bench.client();
        responder.send(reply("other", &[], "1", r#","next":{"wait":true}"#));
        bench.await_metric("mayfly_waiters", 1);
        assert!(Command::new("kill").args(["-TERM", &bench.node.pid().to_string()]).status().is_ok_and(|status| status.success()));
        let answer = caller.answer();
        answer.assert_failure(503, "owner_moved");
        assert!(answer.closes());
        let answer = responder.answer();
        assert_eq!((answer.status, answer.json()), (200, json!({"results": [], "messages": []})));
        assert!(answer.closes());
    }
}

#[test]
fn thousands_of_calls_leave_nothing_behind() {
    let bench = Bench::start(4, &[]);
    let mut callers: Vec<Client> = (0..8).map(|_| bench.client()).collect();
    let requests = |caller: usize| (0..250).map(|n| call("q", &format!("{}", caller * 250 + n), r#","timeout":60000"#)).collect::<String>();
    for (index, caller) in callers.iter_mut().enumerate() {
        caller.send(requests(index));
    }
    let mut responder = bench.client();
    let mut messages = Vec::new();
    let mut answered = 0;
    while answered < 2_000 {
        answered += messages.len();
        let items: Vec<_> =
            messages.iter().map(|message: &Value| reply_item(message, &message["replyTo"], &message["payload"].to_string())).collect();
        let next = r#"{"wait":true,"timeout":200,"batch":100}"#;
        let body = format!(r#"{{"queue":"q","replies":[{}],"next":{next}}}"#, items.join(","));
        let answer = responder.ask(post("/api/v1/ephemeral/reply", &body));
        assert!(outcomes(&answer).iter().all(|outcome| outcome == "acked"), "{answer:?}");
        messages = answer.messages();
    }
    for (index, caller) in callers.iter_mut().enumerate() {
        for n in 0..250 {
            assert_eq!(caller.answer().json(), json!({"payload": index * 250 + n}));
        }
    }
    bench.assert_nothing_left();
}
