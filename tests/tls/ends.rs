//! How connections begin and end: cut, closed by one side, reset, garbage; and what a parked pop loses by it: nothing.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::process::client::{Client, get, pop, push};
use crate::secure::{Authority, Secure, session};

/// Ends a connection: what is left of it, if something is.
type HangUp = fn(Secure) -> Option<Secure>;

fn hang_ups_swallow_nothing(shards: usize) {
    let authority = Authority::new();
    let node = authority.node(shards, &[]);
    let mut other = authority.connect(node.address);
    let ways: [(&str, HangUp); 4] = [
        ("close_notify alone", |mut client| {
            client.close_notify();
            Some(client)
        }),
        ("FIN alone", |client| {
            client.finish();
            Some(client)
        }),
        ("reset", |client| {
            client.reset();
            None
        }),
        ("close_notify and FIN", |mut client| {
            client.close_notify();
            client.finish();
            Some(client)
        }),
    ];
    for (number, (way, hang_up)) in ways.into_iter().enumerate() {
        for options in ["&wait=true", "&wait=true&autoAck=true&partition=p"] {
            let queue = format!("inbox-{number}-{}", options.len());
            let mut parked = authority.connect(node.address);
            parked.send(pop(&queue, options));
            other.await_waiters(1);
            let began = Instant::now();
            let left = hang_up(parked);
            other.await_waiters(0);
            // A pop that nobody took back would be there until its timeout, half a minute.
            assert!(began.elapsed() < Duration::from_secs(10), "{way}: {:?}", began.elapsed());
            assert_eq!(other.ask(push(&queue, "p", [5])).status, 201);
            let messages = other.ask(pop(&queue, "&autoAck=true")).messages();
            assert_eq!((messages.len(), &messages[0]["attempts"]), (1, &1.into()), "{way}");
            if let Some(mut left) = left {
                left.assert_ended();
            }
        }
    }
}

#[test]
fn hang_ups_swallow_nothing_on_one_shard() {
    hang_ups_swallow_nothing(1);
}

#[test]
fn hang_ups_swallow_nothing_on_four_shards() {
    hang_ups_swallow_nothing(4);
}

#[test]
fn a_whole_request_is_answered_to_a_client_that_closed_its_side() {
    let authority = Authority::new();
    let node = authority.node(1, &[]);
    for ends in [|client: &mut Secure| client.close_notify(), |client: &mut Secure| client.finish()] {
        let mut client = authority.connect(node.address);
        client.send(push("q", "p", [1]));
        ends(&mut client);
        assert_eq!(client.answer().status, 201);
        client.assert_ended();
    }
}

/// Answers that lay behind one that the socket took in part go back as they were.
#[test]
fn answers_that_did_not_go_out_return() {
    let authority = Authority::new();
    let node = authority.node(1, &["--lease-s", "3600"]);
    let mut other = authority.connect(node.address);
    let large = format!("\"{}\"", "x".repeat(8 << 20));
    assert_eq!(other.ask(push("large", "p", [&large])).status, 201);
    assert_eq!(other.ask(push("small", "p", [1])).status, 201);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(16 << 10).expect("settable");
    socket.connect(&node.address.into()).expect("connects");
    let mut client = Secure::over(socket.into(), &authority.offer(rustls::ALL_VERSIONS)).expect("shakes hands");
    // More of the socket's buffer than this cannot be taken: the second answer stays here.
    client.send(pop("small", "&batch=10") + &pop("large", "") + &pop("small", ""));
    assert_eq!(client.answer().messages().len(), 1);
    let mut first = [0; 1];
    client.stream.read_exact(&mut first).expect("a part of the large one");
    client.reset();
    let large = other.ask(pop("large", "&wait=true&timeout=5000&autoAck=true")).messages();
    assert_eq!(large[0]["attempts"], 2, "in part");
    // The socket took the first answer whole: only its lease or an ack decides.
    assert!(other.ask(pop("small", "")).messages().is_empty());
}

/// The same with the answer that is behind: not a byte of it went out.
#[test]
fn an_answer_behind_one_that_went_out_in_part_is_free_of_charge() {
    let authority = Authority::new();
    let node = authority.node(1, &[]);
    let mut other = authority.connect(node.address);
    // Small beside the half megabyte of unsent answers at which the node goes on reading: whole ones are always among those.
    const COUNT: usize = 112;
    let small = format!("\"{}\"", "x".repeat(100 << 10));
    for _ in 0..COUNT {
        assert_eq!(other.ask(push("large", "p", [&small])).status, 201);
    }
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(16 << 10).expect("settable");
    socket.connect(&node.address.into()).expect("connects");
    let mut client = Secure::over(socket.into(), &authority.offer(rustls::ALL_VERSIONS)).expect("shakes hands");
    // Until the node reads no more, because what it has answered is not read.
    client.send((0..COUNT).map(|_| pop("large", "&autoAck=true")).collect::<String>());
    let taken = || -> u64 {
        let mut asks = authority.connect(node.address);
        let text = String::from_utf8(asks.ask(get("/metrics")).body).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix("queen_ephemeral_messages_total{verb=\"popped\"} "));
        line.expect("the counter").parse().expect("a number")
    };
    let (mut seen, mut quiet) = (0, 0);
    while quiet < 5 {
        std::thread::sleep(Duration::from_millis(100));
        let now = taken();
        quiet = if now > 0 && now == seen { quiet + 1 } else { 0 };
        seen = now;
    }
    client.reset();
    // It answers nobody any more: what it has answered is what is counted now.
    std::thread::sleep(Duration::from_millis(100));
    let before = taken();
    let began = Instant::now();
    let mut attempts = Vec::new();
    while began.elapsed() < Duration::from_secs(2) {
        let messages = other.ask(pop("large", "&wait=true&timeout=200&autoAck=true")).messages();
        attempts.extend(messages.iter().map(|message| message["attempts"].as_u64().expect("a number")));
    }
    // autoAck: what went out, in part or whole, is spent; everything else came back as if nothing had been.
    assert!(
        attempts.len() < COUNT && attempts.len() as u64 > COUNT as u64 - before,
        "{} of {COUNT}, {before} were answered",
        attempts.len()
    );
    assert!(attempts.iter().all(|attempts| *attempts == 1), "{attempts:?}");
}

/// Waits until the node has closed its side: what it said before.
#[track_caller]
fn rest(mut stream: &TcpStream, limit: Duration) -> Vec<u8> {
    stream.set_read_timeout(Some(limit)).expect("a socket");
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => said,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => said,
        Err(error) => panic!("not closed: {error}"),
    }
}

#[test]
fn a_handshake_that_takes_too_long_is_cut_and_an_idle_connection_is_not() {
    let authority = Authority::new();
    let node = authority.node(1, &["--header-timeout", "0.5", "--idle-timeout", "3600"]);
    let mut hello = Vec::new();
    session(&authority.offer(rustls::ALL_VERSIONS)).write_tls(&mut hello).expect("memory");
    let mut through = authority.connect(node.address);
    let began = Instant::now();
    let silent = TcpStream::connect(node.address).expect("connects");
    let mut half = TcpStream::connect(node.address).expect("connects");
    half.write_all(&hello[..hello.len() / 2]).expect("takes it");
    let mut halfway = TcpStream::connect(node.address).expect("connects");
    halfway.write_all(&hello).expect("takes it");
    for stream in [&silent, &half, &halfway] {
        rest(stream, Duration::from_secs(9));
        // Without the setting it would be 10 s.
        assert!((0.4..9.0).contains(&began.elapsed().as_secs_f64()), "cut after {:?}", began.elapsed());
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(through.ask(get("/health")).status, 200);
}

#[test]
fn what_is_no_tls_is_refused_and_what_breaks_off_leaves_nothing() {
    let authority = Authority::new();
    let node = authority.node(1, &[]);
    let mut plain = Client::connect(node.address);
    plain.ask(push("q", "p", [1])).assert_failure(400, "bad_request");
    plain.assert_ended_within(Duration::from_secs(5));
    // A ClientHello of one byte gets an alert, a message of half a megabyte and what is no record are only closed.
    for (bytes, first) in [(&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0], Some(&21)), (&[0x16, 3, 1, 0, 5, 9, 9, 9, 9, 9], None), (&[0; 10], None)] {
        let mut garbage = TcpStream::connect(node.address).expect("connects");
        garbage.write_all(bytes).expect("takes it");
        let said = rest(&garbage, Duration::from_secs(5));
        assert!(first.is_none() || said.first() == first, "{bytes:?}: {said:?}");
    }
    let mut hello = Vec::new();
    session(&authority.offer(rustls::ALL_VERSIONS)).write_tls(&mut hello).expect("memory");
    for end in [1, hello.len() / 2, hello.len()] {
        let mut broken = TcpStream::connect(node.address).expect("connects");
        broken.write_all(&hello[..end]).expect("takes it");
        if end % 2 == 0 {
            socket2::SockRef::from(&broken).set_linger(Some(Duration::ZERO)).expect("a socket");
        } else {
            broken.shutdown(std::net::Shutdown::Write).expect("a socket");
            rest(&broken, Duration::from_secs(5));
        }
    }
    // A push whose record is not whole was never asked.
    let mut cut = authority.connect(node.address);
    cut.stream.conn.writer().write_all(push("q", "p", [1]).as_bytes()).expect("memory");
    let mut records = Vec::new();
    cut.stream.conn.write_tls(&mut records).expect("memory");
    cut.stream.sock.write_all(&records[..records.len() - 1]).expect("takes it");
    cut.finish();
    rest(&cut.stream.sock, Duration::from_secs(5));
    let mut client = authority.connect(node.address);
    assert!(client.ask(pop("q", "")).messages().is_empty());
}
