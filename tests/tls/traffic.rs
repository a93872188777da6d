//! Requests and answers of every shape.

use rustls::version::{TLS12, TLS13};

use crate::process::client::{get, pop, push};
use crate::secure::{Authority, Secure};

#[test]
fn requests_of_every_shape_are_answered_in_both_versions() {
    let authority = Authority::new();
    for (shards, version) in [(1, &TLS12), (1, &TLS13), (4, &TLS13)] {
        let node = authority.node(shards, &[]);
        assert!(node.log().contains("scheme=https"), "{}", node.log());
        let mut client = Secure::connect(&authority.offer(&[version]), node.address).expect("shakes hands");
        // Pipelined in one write: pops behind pushes, in order.
        client.send((0..50).map(|index| push("q", "p", [index]) + &pop("q", "&partition=p&autoAck=true")).collect::<String>());
        for index in 0..50 {
            assert_eq!(client.answer().status, 201);
            assert_eq!(client.answer().messages()[0]["payload"], index);
        }
        // 3 MiB there and back, which no record and no send holds.
        let large = format!("\"{}\"", "x".repeat(3 << 20));
        assert_eq!(client.ask(push("large", "p", [&large])).status, 201);
        assert_eq!(client.ask(pop("large", "&autoAck=true")).messages()[0]["payload"].as_str().map(str::len), Some(3 << 20));
        // Chunked, each chunk in a record of its own.
        client.send("POST /api/v1/ephemeral/push HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in ["{\"queue\":\"c\",\"mess", "ages\":[{\"payload\":", "7}]}"] {
            client.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
        assert_eq!(client.ask("0\r\n\r\n").status, 201);
        assert_eq!(client.ask(pop("c", "&autoAck=true")).messages()[0]["payload"], 7);
        client.send("HEAD /health HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.next(false).expect("an answer").status, 200);
        let refused = client.ask("GET /health HTTP/1.1\r\n\r\n");
        refused.assert_failure(400, "bad_request");
        client.assert_ended();
    }
}

/// Several are in one turn of the node with the end of their handshake.
#[test]
fn a_large_request_that_comes_with_the_end_of_its_handshake_is_answered() {
    let authority = Authority::new();
    let node = authority.node(1, &[]);
    let offer = authority.offer(&[&TLS13]);
    let request = push("large", "p", [format!("\"{}\"", "x".repeat(400 << 10))]);
    for _ in 0..20 {
        let mut client = Secure::connect_and_send(&offer, node.address, request.as_bytes()).expect("connects");
        assert_eq!(client.answer().status, 201);
    }
}

#[test]
fn new_keys_in_the_middle_of_a_connection_change_nothing() {
    let authority = Authority::new();
    let node = authority.node(1, &[]);
    let mut client = Secure::connect(&authority.offer(&[&TLS13]), node.address).expect("shakes hands");
    for index in 0..20 {
        client.stream.conn.refresh_traffic_keys().expect("new keys");
        assert_eq!(client.ask(push("q", "p", [index])).status, 201);
        assert_eq!(client.ask(pop("q", "&autoAck=true")).messages()[0]["payload"], index);
    }
}

/// A parked pop that has more than 64 KiB behind it is read on when it was answered.
#[test]
fn what_comes_behind_a_parked_pop_waits() {
    let authority = Authority::new();
    let node = authority.node(1, &[]);
    let mut parked = authority.connect(node.address);
    parked.send(pop("inbox", "&wait=true&autoAck=true"));
    let mut other = authority.connect(node.address);
    other.await_waiters(1);
    let payload = format!("\"{}\"", "y".repeat(40 << 10));
    parked.send((0..4).map(|_| push("behind", "p", [&payload])).collect::<String>() + &get("/health"));
    assert_eq!(other.ask(push("inbox", "p", [1])).status, 201);
    assert_eq!(parked.answer().messages()[0]["payload"], 1);
    for _ in 0..4 {
        assert_eq!(parked.answer().status, 201);
    }
    assert_eq!(parked.answer().status, 200);
}

/// The flood's own line is long; who is through does not stand in it.
#[test]
fn connections_that_are_through_do_not_wait_for_handshakes() {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Instant;

    const COUNT: usize = 400;
    const ROUNDS: usize = 8;
    let authority = Authority::new();
    // Its signatures are the slow ones.
    authority.write("cert.pem", include_str!("../../net/src/tls/tests/rsa-pkcs1.cert.pem"));
    authority.write("key.pem", include_str!("../../net/src/tls/tests/rsa-pkcs1.key.pem"));
    let node = authority.node(1, &[]);
    let mut roots = rustls::RootCertStore::empty();
    let own: rustls::pki_types::CertificateDer<'_> =
        rustls::pki_types::pem::PemObject::from_pem_file(authority.path("cert.pem")).expect("one");
    roots.add(own).expect("an authority");
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS12]).expect("versions");
    let offer = std::sync::Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    let mut through = Secure::connect(&offer, node.address).expect("shakes hands");
    // The same hello from everybody: it costs its sender nothing.
    let mut hello = Vec::new();
    crate::secure::session(&offer).write_tls(&mut hello).expect("memory");
    // In turn the request would come last, each time; how soon it comes on a busy machine is another matter.
    let is_soon = (0..ROUNDS).any(|_| {
        let mut flood: Vec<_> = (0..COUNT).map(|_| TcpStream::connect(node.address).expect("connects")).collect();
        assert_eq!(through.ask(get("/health")).status, 200);
        let began = Instant::now();
        for stream in &mut flood {
            stream.write_all(&hello).expect("takes it");
        }
        let asked = Instant::now();
        assert_eq!(through.ask(get("/health")).status, 200);
        let answered_after = asked.elapsed();
        for stream in &mut flood {
            stream.read_exact(&mut [0]).expect("the node's hello");
        }
        let all_after = began.elapsed();
        println!("{COUNT} handshakes took {all_after:?}; a request behind them {answered_after:?}");
        answered_after < all_after / 4
    });
    assert!(is_soon, "it never was before most of them");
}
