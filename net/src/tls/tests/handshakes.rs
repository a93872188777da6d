//! How a handshake ends: by tickets the short way, refused, or broken off.

use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};

use super::super::{Acceptor, HELD_BYTES_MAX, Step};
use super::support::{Pair, Wire, client_config};

const WHOLE: (usize, usize) = (usize::MAX, usize::MAX);

#[test]
fn a_client_that_comes_again_resumes_until_the_certificate_was_read_again() {
    for version in [&TLS12, &TLS13] {
        let pair = Pair::made(|_| ());
        let acceptor = Acceptor::load(&pair.files()).expect("served");
        let config = client_config(&pair.files(), &[version], &["http/1.1"]);
        let kind = || {
            let mut wire = Wire::new(&acceptor, &config);
            wire.settle(WHOLE);
            wire.client.handshake_kind().expect("shook hands")
        };
        assert_eq!((kind(), kind()), (HandshakeKind::Full, HandshakeKind::Resumed), "{version:?}");
        acceptor.reload(&pair.files()).expect("the same files");
        assert_eq!(kind(), HandshakeKind::Full, "{version:?}");
    }
}

#[test]
fn http_1_1_is_the_only_protocol_inside() {
    let pair = Pair::made(|_| ());
    let acceptor = Acceptor::load(&pair.files()).expect("served");
    for (offered, agreed) in [(&["h2", "http/1.1"][..], Some(&b"http/1.1"[..])), (&[], None)] {
        let mut wire = Wire::new(&acceptor, &client_config(&pair.files(), rustls::ALL_VERSIONS, offered));
        wire.settle(WHOLE);
        assert_eq!((wire.client.is_handshaking(), wire.client.alpn_protocol()), (false, agreed));
    }
    let mut wire = Wire::new(&acceptor, &client_config(&pair.files(), rustls::ALL_VERSIONS, &["h2"]));
    wire.settle(WHOLE);
    assert!(wire.seal.session.is_failed());
    let alert = rustls::AlertDescription::NoApplicationProtocol;
    assert_eq!(wire.client_error, Some(rustls::Error::AlertReceived(alert)));
}

#[test]
fn an_idle_session_holds_nothing() {
    for version in [&TLS12, &TLS13] {
        let pair = Pair::made(|_| ());
        let acceptor = Acceptor::load(&pair.files()).expect("served");
        let mut wire = Wire::new(&acceptor, &client_config(&pair.files(), &[version], &[]));
        wire.settle((1, 1));
        wire.say(b"GET / HTTP/1.1\r\n");
        let request = wire.take_client();
        let (last, rest) = request.split_last().expect("bytes");
        wire.give_server(rest, 5);
        assert!(wire.heard.is_empty() && wire.seal.session.held_bytes() > 0, "a record that is not whole is held");
        wire.give_server(&[*last], 1);
        assert_eq!(wire.heard, b"GET / HTTP/1.1\r\n");
        assert_eq!((wire.seal.session.held_bytes(), wire.seal.has_output(), wire.buffers.plain.len()), (0, false, 16));
    }
}

#[test]
fn a_client_may_close_its_side_and_is_still_answered() {
    for version in [&TLS12, &TLS13] {
        let pair = Pair::made(|_| ());
        let acceptor = Acceptor::load(&pair.files()).expect("served");
        let mut wire = Wire::new(&acceptor, &client_config(&pair.files(), &[version], &[]));
        wire.settle(WHOLE);
        wire.say(b"question");
        wire.client.send_close_notify();
        let bytes = wire.take_client();
        wire.give_server(&bytes, usize::MAX);
        assert_eq!(wire.heard, b"question");
        assert_eq!(wire.steps.last(), Some(&Step { is_finished: true, ..Step::default() }));
        // Nothing that comes behind is read.
        wire.give_server(b"anything", usize::MAX);
        assert_eq!((wire.heard.len(), wire.seal.session.held_bytes()), (8, 0));
        wire.seal.put(b"answer".to_vec());
        let mut bytes = wire.take_server();
        wire.seal.say_goodbye(&mut bytes);
        assert!(!wire.seal.session.may_seal());
        wire.give_client(&bytes, usize::MAX);
        assert_eq!(wire.read, b"answer");
        assert!(wire.client.process_new_packets().expect("goes on").peer_has_closed());
    }
}

#[test]
fn plain_http_is_told_so_in_plain_http() {
    let pair = Pair::made(|_| ());
    let acceptor = Acceptor::load(&pair.files()).expect("served");
    let mut wire = Wire::new(&acceptor, &client_config(&pair.files(), rustls::ALL_VERSIONS, &[]));
    wire.give_server(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n", 3);
    assert!(wire.seal.session.is_failed());
    let answer = String::from_utf8(wire.take_server()).expect("plain text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n") && head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
    assert!(body.contains("\"code\":\"bad_request\""), "{answer}");
}

#[test]
fn a_handshake_message_without_end_is_given_up() {
    let pair = Pair::made(|_| ());
    let acceptor = Acceptor::load(&pair.files()).expect("served");
    let mut wire = Wire::new(&acceptor, &client_config(&pair.files(), rustls::ALL_VERSIONS, &[]));
    // Records of 16 KiB of a ClientHello that says it has 16 MiB.
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.resize(5 + (16 << 10), 0);
    let mut first = record.clone();
    first[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
    wire.give_server(&first, usize::MAX);
    for _ in 0..16 {
        wire.give_server(&record, 4096);
        assert!(wire.seal.session.held_bytes() <= HELD_BYTES_MAX);
    }
    assert!(wire.seal.session.is_failed());
    // What waits for its turn in line is bounded too.
    let mut session = acceptor.session().expect("a session");
    assert!((0..5).all(|_| session.hold(&record)) && !session.hold(&record));
}
