//! HTTP as clients get it wrong, slowly, in pieces or in floods, on a real node.

mod process;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use process::client::{Client, get, pop, post, push};
use process::{Node, raise_open_files, serve};

/// How long the node may take to end a connection that has its answer.
const END_MAX: Duration = Duration::from_secs(9);
const PUSH: &str = "/api/v1/ephemeral/push";

fn start(arguments: &[&str]) -> Node {
    Node::start(serve(2, arguments))
}

/// Messages held by a queue.
fn held(node: &Node, queue: &str) -> usize {
    Client::connect(node.address).ask(pop(queue, "&autoAck=true&batch=10000")).messages().len()
}

fn pipelined_requests_are_answered_in_order(shards: usize) {
    let node = Node::start(serve(shards, &[]));
    let mut client = Client::connect(node.address);
    let mut requests = String::new();
    for index in 0..250 {
        // Queues of many cores, so that answers are ready out of order.
        requests += &push(&format!("q{index}"), "p", [index]);
        requests += &pop(&format!("q{index}"), "&autoAck=true&wait=true&timeout=5000");
        requests += &get(&format!("/no/{index}"));
        requests += &post("/api/v1/ephemeral/ack", &format!(r#"{{"queue":"q{index}","acks":[{{"id":"never-{index}"}}]}}"#));
    }
    client.send(requests);
    for index in 0..250 {
        assert_eq!(client.answer().status, 201);
        assert_eq!(client.answer().messages()[0]["payload"], index);
        client.answer().assert_failure(404, "no_such_route");
        assert_eq!(client.answer().json()["results"][0]["id"], format!("never-{index}"));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_shard() {
    pipelined_requests_are_answered_in_order(1);
}

#[test]
fn pipelined_requests_are_answered_in_order_on_four_shards() {
    pipelined_requests_are_answered_in_order(4);
}

fn a_client_that_sent_its_last_byte_is_answered_all_that_does_not_wait(shards: usize) {
    let node = Node::start(serve(shards, &[]));
    for round in 0..40 {
        let mut client = Client::connect(node.address);
        // Queues of many cores: most of these are still under way there when the FIN comes.
        let queue = format!("q{round}");
        let next = format!(r#"{{"queue":"{queue}","replies":[],"next":{{"partition":"other"}}}}"#);
        let push = push(&queue, "p", [round]);
        client.send([pop(&queue, ""), push, pop(&queue, "&autoAck=true"), post("/api/v1/ephemeral/reply", &next)].concat());
        client.finish();
        assert_eq!(client.answer().messages().len(), 0);
        assert_eq!(client.answer().status, 201);
        assert_eq!(client.answer().messages()[0]["payload"], round);
        assert_eq!(client.answer().messages().len(), 0);
        assert_eq!(client.stream.read(&mut [0]).expect("a socket"), 0, "then the connection ends");
    }
}

#[test]
fn a_client_that_sent_its_last_byte_is_answered_all_that_does_not_wait_on_one_shard() {
    a_client_that_sent_its_last_byte_is_answered_all_that_does_not_wait(1);
}

#[test]
fn a_client_that_sent_its_last_byte_is_answered_all_that_does_not_wait_on_four_shards() {
    a_client_that_sent_its_last_byte_is_answered_all_that_does_not_wait(4);
}

fn requests_behind_a_parked_pop_wait_for_it(shards: usize) {
    let node = Node::start(serve(shards, &[]));
    for count in [10, 3_000] {
        let mut client = Client::connect(node.address);
        let behind: String = (0..count).map(|index| get(&format!("/no/{index}"))).collect();
        let behind = behind + &push("behind", "p", [format!("\"{}\"", "b".repeat(100 << 10))]);
        client.send(pop("first", "&wait=true&timeout=60000&autoAck=true") + &behind);
        client.stream.set_nonblocking(true).expect("a socket");
        sleep(Duration::from_millis(200));
        assert!(client.arrived().is_none(), "nothing overtakes the pop");
        client.stream.set_nonblocking(false).expect("a socket");
        assert_eq!(Client::connect(node.address).ask(push("first", "p", [1])).status, 201);
        assert_eq!(client.answer().messages().len(), 1);
        for _ in 0..count {
            client.answer().assert_failure(404, "no_such_route");
        }
        assert_eq!(client.answer().status, 201);
        assert_eq!(client.ask(get("/health")).status, 200);
    }
}

#[test]
fn requests_behind_a_parked_pop_wait_for_it_on_one_shard() {
    requests_behind_a_parked_pop_wait_for_it(1);
}

#[test]
fn requests_behind_a_parked_pop_wait_for_it_on_four_shards() {
    requests_behind_a_parked_pop_wait_for_it(4);
}

#[test]
fn a_request_may_come_in_any_pieces() {
    let node = start(&[]);
    let mut client = Client::connect(node.address);
    let body = r#"{"queue":"pieces","messages":[{"payload":"a longer one"}]}"#;
    let (first, second) = body.split_at(13);
    let chunked = format!(
        "POST {PUSH} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{:x};name=value\r\n{first}\r\n{:X}\r\n{second}\r\n0\r\nTrailer: t\r\n\r\n",
        first.len(),
        second.len()
    );
    for request in [&chunked, &post(PUSH, body)] {
        for size in [1, 7, 100] {
            for piece in request.as_bytes().chunks(size) {
                client.send(piece);
                sleep(Duration::from_micros(100));
            }
            assert_eq!(client.answer().status, 201, "in pieces of {size}");
        }
    }
    assert_eq!(client.ask(chunked.repeat(2)).status, 201);
    assert_eq!(client.answer().status, 201);
    assert_eq!(held(&node, "pieces"), 8);
}

#[test]
fn a_client_that_expects_100_continue_gets_it_before_its_body() {
    let node = start(&["--max-body-bytes", "1000"]);
    let mut client = Client::connect(node.address);
    let body = r#"{"queue":"expect","messages":[{"payload":1}]}"#;
    let head = |length: usize| format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n");
    for _ in 0..2 {
        assert_eq!(client.ask(head(body.len())).status, 100);
        assert_eq!(client.ask(body).status, 201);
    }
    let answer = client.ask(head(1_001));
    answer.assert_failure(413, "payload_too_large");
    assert!(answer.closes());
    client.assert_ended_within(END_MAX);
}

#[test]
fn a_connection_lives_as_long_as_its_version_and_header_say() {
    let node = start(&[]);
    let old = |more: &str| format!("GET /health HTTP/1.0\r\n{more}\r\n");
    let new = |more: &str| format!("GET /health HTTP/1.1\r\nHost: h\r\n{more}\r\n");
    for (request, stays) in [
        (old(""), false),
        (old("Connection: keep-alive\r\n"), true),
        (new(""), true),
        (new("Connection: close\r\n"), false),
        (new("Connection: x, Close\r\n"), false),
    ] {
        let mut client = Client::connect(node.address);
        let answer = client.ask(&request);
        assert_eq!((answer.status, answer.closes()), (200, !stays), "{request} {answer:?}");
        if stays {
            assert_eq!(client.ask(&request).status, 200, "{request}");
        } else {
            client.assert_ended_within(END_MAX);
        }
    }
}

#[test]
fn idle_connections_are_closed_and_parked_ones_are_not() {
    let node = start(&["--idle-timeout", "1"]);
    let mut parked = Client::connect(node.address);
    parked.send(pop("idle", "&wait=true&timeout=2500"));
    let since = Instant::now();
    let mut fresh = Client::connect(node.address);
    let mut used = Client::connect(node.address);
    assert_eq!(used.ask(get("/health")).status, 200);
    for client in [&mut fresh, &mut used] {
        client.assert_ended_within(END_MAX);
        let took = since.elapsed();
        assert!((900..9_000).contains(&took.as_millis()), "closed after {took:?}");
    }
    assert!(parked.answer().messages().is_empty());
    assert_eq!(parked.ask(get("/health")).status, 200);
}

#[test]
fn slow_requests_are_cut_off_while_others_are_served() {
    let node = start(&["--header-timeout", "1"]);
    let head = format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\n");
    let beginnings = [
        ("head", "GET /health HTTP/1.1\r\nHost: h\r\nX: ".to_owned()),
        ("first line", "GET /hea".to_owned()),
        ("body", format!("{head}Content-Length: 1000\r\n\r\n{{")),
        ("chunk", format!("{head}Transfer-Encoding: chunked\r\n\r\n3e8\r\n{{")),
        ("chunk size", format!("{head}Transfer-Encoding: chunked\r\n\r\n3")),
        ("trailer", format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nX: ")),
    ];
    let since = Instant::now();
    let mut slow: Vec<_> = beginnings
        .iter()
        .map(|(what, begin)| {
            let mut client = Client::connect(node.address);
            client.send(begin);
            (what, client)
        })
        .collect();
    let mut other = Client::connect(node.address);
    while since.elapsed() < Duration::from_millis(800) {
        for (what, client) in &mut slow {
            // A byte now and then wins no time to speak of. One that is read as a chunk's size must be a digit.
            client.send(if **what == "chunk size" { "0" } else { "a" });
        }
        assert_eq!(other.ask(get("/health")).status, 200);
        sleep(Duration::from_millis(100));
    }
    for (what, client) in &mut slow {
        let answer = client.answer();
        let took = since.elapsed();
        println!("slow {what}: {} after {took:?}", answer.status);
        assert_eq!(answer.status, 408, "{what}: {answer:?}");
        answer.assert_failure(408, answer.json()["code"].as_str().expect("a code"));
        assert!(answer.closes(), "{what}");
        // Without the setting it would be 10 s.
        assert!((900..9_000).contains(&took.as_millis()), "{what}: {took:?}");
        client.assert_ended_within(END_MAX);
    }
}

#[test]
fn a_body_that_came_fast_and_stops_is_cut_off_as_soon_as_a_slow_one() {
    let node = start(&["--header-timeout", "1"]);
    let head = format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\n");
    let much = " ".repeat(1 << 20);
    let beginnings =
        [format!("{head}Content-Length: 3000000\r\n\r\n{much}"), format!("{head}Transfer-Encoding: chunked\r\n\r\n2dc6c0\r\n{much}")];
    for begin in beginnings {
        let mut client = Client::connect(node.address);
        client.send(begin);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(800) {
            client.send(" ");
            sleep(Duration::from_millis(100));
        }
        assert_eq!(client.answer().status, 408);
        let took = since.elapsed();
        assert!((900..9_000).contains(&took.as_millis()), "{took:?}");
        client.assert_ended_within(END_MAX);
    }
    // One that goes on is read, however long it takes in all.
    let mut steady = Client::connect(node.address);
    let body = format!(r#"{{"queue":"steady","messages":[{{"payload":"{}"}}]}}"#, "x".repeat(20 << 10));
    steady.send(format!("{head}Content-Length: {}\r\n\r\n", body.len()));
    for part in body.as_bytes().chunks(3 << 10) {
        sleep(Duration::from_millis(300));
        steady.send(part);
    }
    assert_eq!(steady.answer().status, 201);
}

#[test]
fn what_is_too_long_is_refused_with_its_code() {
    let node = start(&[]);
    let many: String = (0..101).map(|index| format!("X-{index}: 1\r\n")).collect();
    let requests = [
        (431, "headers_too_large", format!("GET /health HTTP/1.1\r\nHost: h\r\n{many}\r\n")),
        (431, "headers_too_large", format!("GET /health HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(130 << 10))),
        (414, "uri_too_long", get(&format!("/{}", "x".repeat(65 << 10)))),
        (413, "payload_too_large", format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", (64 << 20) + 1)),
        (413, "payload_too_large", format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n")),
        (413, "payload_too_large", format!("POST {PUSH} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n")),
    ];
    for (status, code, request) in requests {
        let mut client = Client::connect(node.address);
        let answer = client.ask(&request);
        answer.assert_failure(status, code);
        assert!(answer.closes(), "{answer:?}");
        client.assert_ended_within(END_MAX);
    }
    let legal: String = (0..98).map(|index| format!("X-{index}: 1\r\n")).collect();
    let mut client = Client::connect(node.address);
    assert_eq!(client.ask(format!("GET /health HTTP/1.1\r\nHost: h\r\n{legal}\r\n")).status, 200);
    assert_eq!(client.ask(get(&format!("/health?{}", "x".repeat(60 << 10)))).status, 200);
}

/// Each hides a second push to `smuggled`, for whoever reads the request otherwise than the node.
fn smugglers() -> Vec<(&'static str, String)> {
    let hidden = push("smuggled", "p", [1]);
    let asked = |headers: &str, body: &str| format!("POST {PUSH} HTTP/1.1\r\n{headers}\r\n{body}");
    let chunked = |chunks: &str| asked("Host: h\r\nTransfer-Encoding: chunked\r\n", chunks);
    let length = |spelled: &str| asked(&format!("Host: h\r\nContent-Length: {spelled}\r\n"), &hidden);
    let both = |first: &str, second: &str| asked(&format!("Host: h\r\n{first}\r\n{second}\r\n"), &format!("0\r\n\r\n{hidden}"));
    let coding = |spelled: &str| asked(&format!("Host: h\r\n{spelled}\r\n"), &format!("0\r\n\r\n{hidden}"));
    vec![
        ("CL.TE", both("Content-Length: 6", "Transfer-Encoding: chunked")),
        ("TE.CL", both("Transfer-Encoding: chunked", "Content-Length: 6")),
        ("two lengths", asked("Host: h\r\nContent-Length: 0\r\nContent-Length: 5\r\n", &hidden)),
        ("a list of lengths", length("0, 5")),
        ("a signed length", length("+0")),
        ("a negative length", length("-1")),
        ("a hex length", length("0x0")),
        ("an empty length", length("")),
        ("a folded line", asked("Host: h\r\nX: a\r\n Content-Length: 5\r\n", &hidden)),
        ("a space before the colon", asked("Host: h\r\nContent-Length : 5\r\n", &hidden)),
        ("a coding with a tab before its colon", coding("Transfer-Encoding\t: chunked")),
        ("chunked twice", coding("Transfer-Encoding: chunked, chunked")),
        ("chunked not last", coding("Transfer-Encoding: chunked, identity")),
        ("two codings", coding("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity")),
        ("a coding of 1.0", format!("POST {PUSH} HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}")),
        ("no host", asked("", &hidden)),
        ("two hosts", asked("Host: h\r\nHost: g\r\n", &hidden)),
        ("a bare LF in the head", asked("Host: h\r\nX: a\nContent-Length: 0\r\n", &hidden)),
        ("a bare CR in a value", asked("Host: h\r\nX: a\rb\r\n", &hidden)),
        ("a NUL in a value", asked("Host: h\r\nX: a\0b\r\n", &hidden)),
        ("a chunk size with 0x", chunked(&format!("0x0\r\n\r\n{hidden}"))),
        ("a signed chunk size", chunked(&format!("+0\r\n\r\n{hidden}"))),
        ("a chunk size with a space before", chunked(&format!(" 0\r\n\r\n{hidden}"))),
        ("a chunk size with a bare LF", chunked(&format!("0\n\r\n{hidden}"))),
        ("no chunk size", chunked(&format!("\r\n\r\n{hidden}"))),
        ("a chunk size of too many digits", chunked(&format!("1{}\r\n{hidden}", "0".repeat(16)))),
        ("a chunk longer than its size", chunked(&format!("1\r\n{{}}\r\n0\r\n\r\n{hidden}"))),
        ("a chunk that ends by a bare LF", chunked(&format!("1\r\n{{\n0\r\n\r\n{hidden}"))),
        ("a bare LF in an extension", chunked(&format!("0;a\nb\r\n\r\n{hidden}"))),
        ("a bare LF in the trailer", chunked(&format!("0\r\nX: a\n\r\n{hidden}"))),
    ]
}

#[test]
fn a_request_that_can_be_read_in_two_ways_is_refused() {
    let node = start(&[]);
    for (what, request) in smugglers() {
        let mut client = Client::connect(node.address);
        let answer = client.ask(&request);
        println!("{what}: {}", answer.status);
        assert!([400, 501].contains(&answer.status), "{what}: {answer:?}");
        answer.assert_failure(answer.status, answer.json()["code"].as_str().expect("a code"));
        assert!(answer.closes(), "{what}: {answer:?}");
        client.assert_ended_within(END_MAX);
        assert_eq!(held(&node, "smuggled"), 0, "{what}: nothing was pushed");
    }
}

#[test]
fn head_answers_like_get_without_a_body() {
    let node = start(&[]);
    let mut client = Client::connect(node.address);
    for target in ["/health", "/ready", "/metrics", "/", "/api/v1/ephemeral/queues"] {
        let got = client.ask(get(target));
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let head = client.answer_to_head();
        assert_eq!(head.status, got.status, "{target}");
        assert_eq!(head.header("content-type"), got.header("content-type"), "{target}");
        assert!(head.header("content-length").is_some(), "{target}");
    }
    client.send(format!("HEAD {} HTTP/1.1\r\nHost: h\r\n\r\n", "/api/v1/ephemeral/pop?queue=q"));
    let head = client.answer_to_head();
    assert_eq!((head.status, head.header("allow")), (405, Some("GET")), "{head:?}");
    client.send("HEAD /no HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.answer_to_head().status, 404);
    assert_eq!(client.ask(get("/health")).status, 200, "no body came after a head");
}

#[test]
fn a_known_path_with_another_method_says_which_it_allows() {
    let node = start(&[]);
    let mut client = Client::connect(node.address);
    for (method, target, allowed) in [
        ("OPTIONS", PUSH, "POST"),
        ("GET", PUSH, "POST"),
        ("DELETE", "/api/v1/ephemeral/pop", "GET"),
        ("OPTIONS", "/health", "GET"),
        ("PUT", "/api/v1/ephemeral/queue/q", "DELETE"),
        ("BREW", "/metrics", "GET"),
    ] {
        let answer = client.ask(format!("{method} {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"));
        answer.assert_failure(405, "method_not_allowed");
        let allow = answer.header("allow").unwrap_or_else(|| panic!("{answer:?}"));
        assert!(allow.split(", ").any(|one| one == allowed), "{method} {target}: {allow}");
    }
    assert_eq!(client.ask(get("/health")).status, 200);
}

#[test]
fn every_failure_has_exactly_an_error_and_a_code() {
    let node = start(&[]);
    let mut client = Client::connect(node.address);
    let post = |path: &str, body: &str| post(&format!("/api/v1/ephemeral/{path}"), body);
    for request in [
        post("push", ""),
        post("push", "[]"),
        post("push", "{"),
        post("push", r#"{"queue":"q","queue":"q","messages":[]}"#),
        post("push", r#"{"queue":"q","messages":[{}]}"#),
        post("push", "\u{feff}{}"),
        post("ack", r#"{"queue":"q","acks":[{"id":"i","status":1}]}"#),
        post("configure", r#"{"queue":"q","options":{"colour":1}}"#),
        post("reset", "{}"),
        get("/api/v1/ephemeral/pop"),
        get(&format!("/api/v1/ephemeral/pop?queue={}", "q".repeat(513))),
        get("/api/v1/ephemeral/pop?queue=%01"),
    ] {
        client.ask(&request).assert_failure(400, "ephemeral_bad_request");
    }
    client.ask(get("/api/v1/ephemeral/queues/none/depth")).assert_failure(404, "ephemeral_queue_not_found");
    client.ask(get("/api/v2")).assert_failure(404, "no_such_route");
}

/// Opens up to `count` connections, each with a request, without waiting for an answer.
fn flood(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(get("/health").as_bytes()).ok()?;
        Some(stream)
    };
    (0..count).filter_map(connect).collect()
}

#[test]
fn a_node_full_of_connections_serves_those_it_has_and_again_when_clients_leave() {
    let node = Node::start(serve(1, &["--max-connections", "50"]));
    let mut old = Client::connect(node.address);
    assert_eq!(old.ask(get("/health")).status, 200);
    for _ in 0..2 {
        let flood = flood(node.address, 300);
        sleep(Duration::from_millis(300));
        assert_eq!(old.ask(get("/health")).status, 200);
        drop(flood);
        let started = Instant::now();
        while !node.is_healthy() {
            assert!(started.elapsed() < END_MAX, "serves new ones again");
        }
    }
    let said = node.log().lines().filter(|line| line.contains("all connections are in use")).count();
    assert_eq!(said, 1, "said once: {}", node.log());
}

fn thousands_connect_at_once_without_a_reset(shards: usize) {
    raise_open_files();
    let node = Node::start(serve(shards, &[]));
    let started = Instant::now();
    let mut streams = flood(node.address, 5_000);
    println!("{shards} shards: 5000 connects in {:?}", started.elapsed());
    assert_eq!(streams.len(), 5_000);
    for stream in &mut streams {
        let mut piece = [0; 512];
        let count = stream.read(&mut piece).expect("an answer, not a reset");
        assert!(piece[..count].starts_with(b"HTTP/1.1 200 "));
    }
    println!("{shards} shards: and answered after {:?}", started.elapsed());
}

#[test]
fn thousands_connect_at_once_without_a_reset_on_one_shard() {
    thousands_connect_at_once_without_a_reset(1);
}

#[test]
fn thousands_connect_at_once_without_a_reset_on_four_shards() {
    thousands_connect_at_once_without_a_reset(4);
}

fn resident_kb(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("its status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("RSS").trim().trim_end_matches(" kB");
    resident.parse().expect("kB")
}

/// What a client asks for and does not read does not pile up in the node.
#[test]
fn a_client_that_never_reads_is_not_read_for_ever() {
    let node = start(&[]);
    let mut client = Client::connect(node.address);
    client.stream.set_nonblocking(true).expect("a socket");
    let requests = get("/metrics").repeat(1_000);
    let started = Instant::now();
    let (mut sent_bytes, mut sent_at) = (0, Instant::now());
    while sent_at.elapsed() < Duration::from_millis(500) {
        match client.stream.write(requests.as_bytes()) {
            Ok(count) => (sent_bytes, sent_at) = (sent_bytes + count, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
        assert!(started.elapsed() < Duration::from_secs(30), "still reading after {sent_bytes} bytes: {} kB resident", resident_kb(&node));
    }
    let resident_kb = resident_kb(&node);
    println!("a client that never reads: {sent_bytes} bytes of requests taken, {resident_kb} kB resident");
    assert!(resident_kb < 200 << 10, "{resident_kb} kB resident");
    assert_eq!(Client::connect(node.address).ask(get("/health")).status, 200);
}

/// Behind a parked pop 64 KiB are read, and the rest stays with its sender; a reset is seen all the same. (A FIN would be behind bytes for
/// which the sender has no window: it cannot be seen before they are read.)
#[test]
fn behind_a_parked_pop_no_more_is_read_than_is_kept() {
    const BUFFERS_OF_THE_KERNEL: usize = 16 << 20;
    let node = start(&[]);
    let mut client = Client::connect(node.address);
    client.send(pop("parked", "&wait=true&timeout=60000"));
    client.stream.set_nonblocking(true).expect("a socket");
    let requests = get("/no").repeat(10_000);
    let (mut sent_bytes, mut sent_at) = (0, Instant::now());
    while sent_at.elapsed() < Duration::from_millis(500) && sent_bytes < 4 * BUFFERS_OF_THE_KERNEL {
        match client.stream.write(requests.as_bytes()) {
            Ok(count) => (sent_bytes, sent_at) = (sent_bytes + count, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent_bytes < BUFFERS_OF_THE_KERNEL, "{sent_bytes} bytes were read behind a parked pop");
    let mut control = Client::connect(node.address);
    assert_eq!(node.metric(&mut control, "mayfly_waiters"), 1);
    socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(client);
    let until = Instant::now() + END_MAX;
    while node.metric(&mut control, "mayfly_waiters") > 0 {
        assert!(Instant::now() < until, "the pop outlives its client");
    }
}

/// Bytes that the node counts as held, of all its queues and connections.
fn node_bytes(node: &Node) -> u64 {
    Client::connect(node.address).ask(get("/api/v1/ephemeral/queues")).json()["cellBytes"].as_u64().expect("a number")
}

/// Waits until the node holds at least, or at most, as much as is said.
#[track_caller]
fn await_node_bytes(node: &Node, what: &str, is_so: impl Fn(u64) -> bool) {
    let started = Instant::now();
    while !is_so(node_bytes(node)) {
        assert!(started.elapsed() < END_MAX, "{what}: {} bytes", node_bytes(node));
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn bodies_being_read_count_as_held_and_too_many_are_refused() {
    let mut command = serve(1, &[]);
    command.env("QUEEN_EPHEMERAL_MAX_BYTES", "2000000");
    let node = Node::start(command);
    let head = |length: usize| format!("POST {PUSH} HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n");
    let text = push("large", "p", [format!("\"{}\"", "x".repeat(1_500_000))]);
    let (first_half, second_half) = text.split_at(1_200_000);

    let mut first = Client::connect(node.address);
    first.send(first_half);
    await_node_bytes(&node, "the first body is counted", |bytes| bytes >= 1_100_000);
    let mut second = Client::connect(node.address);
    second.send(head(1_900_000));
    // Refused before it is whole, which may reset the connection while it is still being written.
    let _ = second.stream.write_all(&vec![b'x'; 1_800_000]);
    second.answer().assert_failure(503, "ephemeral_unavailable");
    assert_eq!(Client::connect(node.address).ask(push("small", "p", [1])).status, 201, "others are served meanwhile");

    first.send(second_half);
    assert_eq!(first.answer().status, 201, "a body is not counted beside the message that it becomes");
    assert_eq!(held(&node, "large") + held(&node, "small"), 2);
    let mut third = Client::connect(node.address);
    third.send(first_half);
    await_node_bytes(&node, "a body is counted", |bytes| bytes >= 1_100_000);
    drop(third);
    await_node_bytes(&node, "what nobody sends on is forgotten", |bytes| bytes < 10_000);
}

#[test]
fn answers_that_are_not_read_count_as_held() {
    let mut command = serve(1, &[]);
    command.env("QUEEN_EPHEMERAL_MAX_BYTES", "12000000");
    let node = Node::start(command);
    let payload = format!("\"{}\"", "x".repeat(1_000_000));
    let mut pusher = Client::connect(node.address);
    for _ in 0..10 {
        assert_eq!(pusher.ask(push("big", "p", [&payload])).status, 201);
    }
    let mut reader = Client::connect(node.address);
    reader.send(pop("big", "&autoAck=true").repeat(10));
    // What the two kernels hold between them is the client's already; the first answers beyond it are the node's.
    sleep(Duration::from_millis(300));
    let kept = node_bytes(&node);
    let queued = pusher.ask(get("/api/v1/ephemeral/queues")).json()["queues"][0]["bytes"].as_u64().expect("bytes");
    assert!(kept >= queued + 500_000, "{kept} held, {queued} of them in the queue");
    for _ in 0..10 {
        assert_eq!(reader.answer().messages().len(), 1);
    }
    await_node_bytes(&node, "answers that were read are forgotten", |bytes| bytes < 10_000);
}

#[test]
fn a_push_that_is_refused_leaves_nothing_behind() {
    let node = Node::start(serve(1, &[]));
    let before_kb = resident_kb(&node);
    let mut client = Client::connect(node.address);
    // Above a queue's maxBytes.
    let refused = push("large", "p", [format!("\"{}\"", "x".repeat(40 << 20))]);
    client.ask(refused).assert_failure(429, "queue_full");
    // Freed pages go back within a second or two.
    let started = Instant::now();
    while resident_kb(&node) > before_kb + (20 << 10) {
        assert!(started.elapsed() < Duration::from_secs(20), "{before_kb} kB before, {} kB after", resident_kb(&node));
        sleep(Duration::from_millis(100));
    }
    assert_eq!(node_bytes(&node), 0);
}
