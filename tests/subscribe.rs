//! Subscriptions on a real node: messages as server-sent events, who is given which, and what is left when a client goes.

mod process;
mod tokens;

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use process::client::{Client, get, pop, post, push};
use process::{Node, serve};
use serde_json::{Value, json};
use socket2::SockRef;

/// How long something that must happen may take on a busy test machine.
const SOON: Duration = Duration::from_secs(10);

/// One event.
#[derive(Clone, Debug)]
struct Event {
    id: String,
    data: String,
}

/// A subscription's connection. Its body is read as chunks or, of HTTP/1.0, up to the close.
struct Stream {
    socket: TcpStream,
    head: String,
    is_chunked: bool,
    raw: Vec<u8>,
    text: String,
    /// The last chunk came.
    is_ended: bool,
}

impl Stream {
    #[track_caller]
    fn open(node: &Node, more: &str) -> Self {
        Self::ask(node, &get(&format!("/api/v1/ephemeral/subscribe?queue=q{more}")))
    }

    #[track_caller]
    fn ask(node: &Node, request: &str) -> Self {
        let mut client = Client::connect(node.address);
        client.send(request);
        Self::over(client.stream)
    }

    #[track_caller]
    fn over(socket: TcpStream) -> Self {
        let mut stream = Self { socket, head: String::new(), is_chunked: false, raw: vec![], text: String::new(), is_ended: false };
        stream.until("a head", |stream| stream.raw.windows(4).any(|bytes| bytes == b"\r\n\r\n"));
        let end = stream.raw.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("its end") + 4;
        stream.head = String::from_utf8(stream.raw.drain(..end).collect()).expect("text");
        assert!(stream.head.starts_with("HTTP/1.1 200 "), "{}", stream.head);
        assert!(stream.head.contains("content-type: text/event-stream\r\n") && stream.head.contains("cache-control: no-store\r\n"));
        stream.is_chunked = stream.head.contains("transfer-encoding: chunked\r\n");
        stream.decode();
        stream
    }

    fn decode(&mut self) {
        if !self.is_chunked {
            self.text.push_str(&String::from_utf8(std::mem::take(&mut self.raw)).expect("text"));
            return;
        }
        while let Some(line) = self.raw.windows(2).position(|bytes| bytes == b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..line]).expect("text"), 16).expect("a size");
            let end = line + 2 + size;
            if self.raw.len() < end + 2 {
                return;
            }
            assert_eq!(&self.raw[end..end + 2], b"\r\n");
            self.text.push_str(std::str::from_utf8(&self.raw[line + 2..end]).expect("text"));
            self.is_ended |= size == 0;
            self.raw.drain(..end + 2);
        }
    }

    /// Reads for at most `wait`. Whether anything came; an end counts.
    fn read(&mut self, wait: Duration) -> bool {
        self.socket.set_read_timeout(Some(wait)).expect("a socket");
        // Large: what has come is looked through after each.
        let mut piece = vec![0; 1 << 20];
        match self.socket.read(&mut piece) {
            Ok(0) => panic!("closed after {:?}", self.text),
            Ok(count) => {
                self.raw.extend_from_slice(&piece[..count]);
                if !self.head.is_empty() {
                    self.decode();
                }
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, is_met: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + 4 * SOON;
        while !is_met(self) {
            assert!(Instant::now() < deadline, "no {what}: {:?}", self.text);
            self.read(Duration::from_millis(100));
        }
    }

    fn events(&self) -> Vec<Event> {
        let whole = self.text.rfind("\n\n").map_or("", |end| &self.text[..end]);
        let blocks = whole.split("\n\n").filter(|block| !block.is_empty() && !block.starts_with(':'));
        let event = |block: &str| {
            let lines: Vec<_> = block.split('\n').collect();
            let [id, "event: message", data] = lines[..] else { panic!("{block:?}") };
            Event { id: id.strip_prefix("id: ").expect("an id").into(), data: data.strip_prefix("data: ").expect("data").into() }
        };
        blocks.map(event).collect()
    }

    /// The first `count` events.
    #[track_caller]
    fn take(&mut self, count: usize) -> Vec<Event> {
        self.until(&format!("{count} events"), |stream| stream.events().len() >= count);
        self.events()
    }

    #[track_caller]
    fn payloads(&mut self, count: usize) -> Vec<Value> {
        self.take(count).iter().map(|event| serde_json::from_str::<Value>(&event.data).expect("JSON")["payload"].clone()).collect()
    }

    /// Events that came, after nothing came for a while.
    fn settled(&mut self) -> usize {
        while self.read(Duration::from_millis(300)) {}
        self.events().len()
    }
}

fn control(node: &Node) -> Client {
    Client::connect(node.address)
}

#[track_caller]
fn pushed(client: &mut Client, partition: &str, payloads: impl IntoIterator<Item = impl std::fmt::Display>) {
    let answer = client.ask(push("q", partition, payloads));
    assert_eq!(answer.status, 201, "{answer:?}");
}

fn numbers(range: std::ops::Range<u64>) -> Vec<Value> {
    range.map(Value::from).collect()
}

fn depth(client: &mut Client) -> Value {
    client.ask(get("/api/v1/ephemeral/queues/q/depth")).json()
}

#[test]
fn events_are_the_messages_of_a_pop_in_order() {
    for shards in [1, 4] {
        let node = Node::start(serve(shards, &[]));
        let mut client = control(&node);
        for partition in ["Default", "a\\\"b", "d", "r"] {
            client.ask(pop("q", "&group=h"));
            let mut stream = Stream::open(&node, &format!("&group=g&partition={}", partition.replace("\\\"", "%22")));
            assert!(stream.is_chunked && stream.head.contains("connection: close\r\n"), "{}", stream.head);
            pushed(&mut client, partition, ["{\"a\":\n1,\r\n\"b\" : \"x\\ny\"}", "12345678901234567890.50", "null"]);
            let messages = client.ask(pop("q", "&group=h&batch=3&autoAck=true&wait=true&timeout=5000"));
            let body = String::from_utf8(messages.body.clone()).expect("text").replace(['\n', '\r'], " ");
            for (event, message) in stream.take(3).iter().zip(messages.messages()) {
                assert_eq!(Value::from(event.id.as_str()), message["id"]);
                assert!(body.contains(&event.data), "{event:?} in {body}");
            }
            assert_eq!(stream.settled(), 3);
        }
    }
}

#[test]
fn a_private_subscriber_is_given_what_comes_from_now_on_and_a_group_shares() {
    for shards in [1, 4] {
        let node = Node::start(serve(shards, &[]));
        let mut client = control(&node);
        for partition in ["Default", "a", "d", "r"] {
            pushed(&mut client, partition, [0, 1]);
        }
        let (mut one, mut other) = (Stream::open(&node, ""), Stream::open(&node, "&group="));
        let mut confined = Stream::open(&node, "&partition=a");
        let (mut left, mut right) = (Stream::open(&node, "&group=g&partition=Default"), Stream::open(&node, "&group=g&partition=Default"));
        for partition in ["Default", "a", "d", "r", "new"] {
            pushed(&mut client, partition, [2, 3, 4]);
        }
        for stream in [&mut one, &mut other] {
            assert_eq!(stream.payloads(15).iter().filter(|payload| **payload == 2).count(), 5);
            assert_eq!(stream.settled(), 15, "nothing older, nothing twice");
        }
        assert_eq!((confined.payloads(3), confined.settled()), (numbers(2..5), 3));
        let deadline = Instant::now() + SOON;
        while left.events().len() + right.events().len() < 5 && Instant::now() < deadline {
            left.settled();
            right.settled();
        }
        let mut shared = [left.payloads(0), right.payloads(0)].concat();
        shared.sort_by_key(Value::as_u64);
        assert_eq!(shared, numbers(0..5), "a named group begins at the oldest, and shares");
        let groups: Vec<_> =
            depth(&mut client)["groups"].as_array().expect("groups").iter().map(|group| group["group"].to_string()).collect();
        assert_eq!(groups.iter().filter(|name| name.starts_with("\"subscriber:")).count(), 3, "{groups:?}");
        let listed = client.ask(get("/api/v1/ephemeral/queues")).json();
        assert_eq!(listed["queues"][0]["groups"], 1, "private ones are not counted: {listed}");
    }
}

#[test]
fn a_private_subscriber_holds_nothing_up_but_what_it_reads() {
    let node = Node::start(serve(4, &[]));
    let mut client = control(&node);
    let mut stream = Stream::open(&node, "&partition=a");
    pushed(&mut client, "a", [0, 1]);
    assert_eq!(stream.payloads(2), numbers(0..2));
    pushed(&mut client, "d", [2]);
    let pending = depth(&mut client);
    assert_eq!(pending["pending"], 1, "what it read is freed, what it does not read is for the first group: {pending}");
    assert_eq!(client.ask(pop("q", "&partition=d&group=first&autoAck=true")).messages().len(), 1);
    assert_eq!(depth(&mut client)["bytes"], 0);
}

#[test]
fn a_quiet_stream_has_a_comment_after_fifteen_seconds() {
    let node = Node::start(serve(1, &[]));
    let mut stream = Stream::open(&node, "");
    let began = Instant::now();
    stream.until("a comment", |stream| !stream.text.is_empty());
    assert_eq!(stream.text, ": keep-alive\n\n");
    assert!((14..29).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    pushed(&mut control(&node), "Default", [0]);
    assert_eq!(stream.payloads(1), numbers(0..1));
}

#[test]
fn what_a_slow_client_does_not_read_stays_in_the_queue() {
    let node = Node::start(serve(1, &[]));
    let mut client = control(&node);
    let mut slow = Client::connect(node.address);
    SockRef::from(&slow.stream).set_recv_buffer_size(64 << 10).expect("a socket");
    slow.send(get("/api/v1/ephemeral/subscribe?queue=q"));
    let mut stream = Stream::over(slow.stream);
    let padding = "x".repeat(100_000);
    for number in 0..140 {
        pushed(&mut client, "Default", [format!("\"{number} {padding}\"")]);
    }
    let held = depth(&mut client)["bytes"].as_u64().expect("bytes");
    assert!(held > 6_000_000, "{held} of 14,000,000 bytes are in the queue");
    let texts: Vec<_> = stream.payloads(140).iter().map(|payload| payload.as_str().expect("text").to_owned()).collect();
    assert!(texts.iter().enumerate().all(|(number, text)| text.starts_with(&format!("{number} "))), "in order");
    let deadline = Instant::now() + SOON;
    while depth(&mut client)["bytes"] != 0 {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_client_that_leaves_is_forgotten_and_its_group_half_a_minute_later() {
    let node = Node::start(serve(4, &[]));
    let mut client = control(&node);
    pushed(&mut client, "r", [0]);
    let stream = Stream::open(&node, "");
    assert_eq!(node.metric(&mut client, "mayfly_waiters"), 1);
    drop(stream);
    let left_at = Instant::now();
    while node.metric(&mut client, "mayfly_waiters") != 0 {
        assert!(left_at.elapsed() < SOON, "it is still parked");
        sleep(Duration::from_millis(10));
    }
    pushed(&mut client, "a", [1]);
    let names = |client: &mut Client| depth(client)["groups"].as_array().expect("groups").len();
    while names(&mut client) > 0 {
        assert!(left_at.elapsed() < Duration::from_secs(50), "its group stays");
        sleep(Duration::from_millis(100));
    }
    assert!(left_at.elapsed() > Duration::from_secs(28), "{:?}", left_at.elapsed());
    // What only it had still to read went with it; what was there before it came stays for the first group.
    let messages = client.ask(pop("q", "&group=g&batch=9")).messages();
    assert_eq!(messages.iter().map(|message| message["payload"].clone()).collect::<Vec<_>>(), numbers(0..1));
}

#[test]
fn a_subscriber_stays_through_reset_and_delete() {
    for shards in [1, 4] {
        let node = Node::start(serve(shards, &[]));
        let mut client = control(&node);
        let (mut private, mut named) = (Stream::open(&node, ""), Stream::open(&node, "&group=g"));
        pushed(&mut client, "a", [0]);
        assert_eq!((private.payloads(1), named.payloads(1)), (numbers(0..1), numbers(0..1)));
        assert_eq!(client.ask(post("/api/v1/ephemeral/reset", r#"{"queue":"q"}"#)).status, 200);
        pushed(&mut client, "d", [1]);
        assert_eq!((private.payloads(2), named.payloads(2)), (numbers(0..2), numbers(0..2)));
        assert_eq!(client.ask("DELETE /api/v1/ephemeral/queue/q HTTP/1.1\r\nHost: h\r\n\r\n").status, 200);
        pushed(&mut client, "r", [2]);
        assert_eq!((private.payloads(3), named.payloads(3)), (numbers(0..3), numbers(0..3)));
    }
}

#[test]
fn what_is_refused_is_an_ordinary_answer() {
    let node = Node::start(serve(1, &["--max-bytes", "600"]));
    let mut client = control(&node);
    let path = "/api/v1/ephemeral/subscribe";
    client.ask(get(path)).assert_failure(400, "ephemeral_bad_request");
    for group in ["%01", "subscriber:00000000000000ff:1", "subscriber:00000000000000ff:1:p"] {
        client.ask(get(&format!("{path}?queue=q&group={group}"))).assert_failure(400, "ephemeral_bad_request");
        client.ask(pop("q", &format!("&group={group}"))).assert_failure(400, "ephemeral_bad_request");
    }
    client.ask(get(&format!("{path}?queue=q&access_token=t"))).assert_failure(503, "ephemeral_unavailable");
    client.ask(post(path, "")).assert_failure(405, "method_not_allowed");
    client.send(format!("HEAD {path}?queue=q HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_eq!(client.answer_to_head().status, 405);
}

#[test]
fn an_old_client_has_its_events_without_chunks() {
    let node = Node::start(serve(1, &[]));
    let mut stream = Stream::ask(&node, "GET /api/v1/ephemeral/subscribe?queue=q HTTP/1.0\r\n\r\n");
    assert!(!stream.is_chunked);
    pushed(&mut control(&node), "Default", [0]);
    assert_eq!(stream.payloads(1), numbers(0..1));
}

#[test]
fn a_stream_ends_whole_when_the_node_stops() {
    let node = Node::start(serve(2, &[]));
    let mut streams = [Stream::open(&node, ""), Stream::open(&node, "&group=g&partition=a")];
    let (status, log) = node.stop();
    assert!(status.success(), "{log}");
    for stream in &mut streams {
        stream.until("last chunk", |stream| stream.is_ended);
    }
}

#[test]
fn a_stream_ends_when_its_token_does_and_is_given_nothing_behind_it() {
    let node = Node::start(serve(2, &["--jwt-enabled", "on", "--jwt-secret", tokens::SECRET, "--jwt-clock-skew", "0"]));
    let token = |more| tokens::token("read-write", more);
    let mut pusher = Client::connect(node.address);
    let mut push = |payload: u64| {
        let request =
            push("q", "Default", [payload]).replacen("Host: h", &format!("Host: h\r\nAuthorization: Bearer {}", token(json!({}))), 1);
        assert_eq!(pusher.ask(request).status, 201);
    };
    let until = tokens::now() + 3;
    let short = token(json!({ "exp": until }));
    let mut streams =
        [Stream::open(&node, &format!("&access_token={short}")), Stream::open(&node, &format!("&access_token={}", token(json!({}))))];
    push(1);
    for stream in &mut streams {
        assert_eq!(stream.payloads(1), numbers(1..2));
    }
    let [short, long] = &mut streams;
    short.until("ended", |stream| stream.is_ended);
    assert!(tokens::now() >= until, "not before");
    push(2);
    assert_eq!(long.payloads(2), numbers(1..3));
    assert_eq!(short.events().len(), 1);
}
