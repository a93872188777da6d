//! The node's certificate: what is refused at the start, and how it is renewed while the node runs.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::client::get;
use crate::process::trials::holds_once;
use crate::process::{run, serve};
use crate::secure::Authority;

#[test]
fn a_start_without_a_usable_pair_ends_with_one_line() {
    let authority = Authority::new();
    let (cert, key) = (authority.path("cert.pem"), authority.path("key.pem"));
    let assert_refused = |arguments: &[&str], says: &[&str]| {
        holds_once(|| {
            let ended = run(serve(1, &[&["--listen", "127.0.0.1:0"], arguments].concat()));
            assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
            for part in says {
                assert!(ended.stderr.contains(part), "{part:?} in {}", ended.stderr);
            }
            if ended.took < Duration::from_secs(1) { Ok(()) } else { Err(format!("{:?}", ended.took)) }
        });
    };
    assert_refused(&["--tls-cert", &cert], &["--tls-key is missing"]);
    assert_refused(&["--tls-key", &key], &["--tls-cert is missing"]);
    assert_refused(&["--tls-cert", "/nowhere/c.pem", "--tls-key", &key], &["\"/nowhere/c.pem\": cannot be read"]);
    assert_refused(&["--tls-cert", &cert, "--tls-key", &cert], &["no private key in it"]);
    let other = Authority::new();
    assert_refused(&["--tls-cert", &cert, "--tls-key", &other.path("key.pem")], &["it is not the key of the certificate"]);
    authority.renew(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    assert_refused(&["--tls-cert", &cert, "--tls-key", &key], &["has expired (valid until 2020-01-01"]);
}

#[test]
fn a_renewed_certificate_is_taken_at_sighup_and_a_bad_one_is_not() {
    let authority = Authority::new();
    let node = authority.node(2, &[]);
    let hang_up = |says: &str| {
        let before = node.log().matches(says).count();
        let sent = Command::new("kill").args(["-HUP", &node.pid().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let began = Instant::now();
        while node.log().matches(says).count() == before {
            assert!(began.elapsed() < Duration::from_secs(10), "{}", node.log());
        }
    };
    let shown = || {
        let client = authority.connect(node.address);
        client.stream.conn.peer_certificates().expect("shook hands")[0].clone()
    };
    let mut old = authority.connect(node.address);
    let first = shown();
    authority.renew(|_| ());
    assert_eq!(shown(), first, "not before it was told");
    hang_up("the certificate was read again");
    let second = shown();
    assert_ne!(second, first);
    assert_eq!(old.ask(get("/health")).status, 200);
    // A key of another, then no file at all: what serves stays.
    authority.write("key.pem", &std::fs::read_to_string(Authority::new().path("key.pem")).expect("a key"));
    hang_up("the certificate in use stays");
    assert_eq!(shown(), second);
    std::fs::remove_file(authority.path("cert.pem")).expect("was there");
    hang_up("the certificate in use stays");
    assert_eq!(shown(), second);
    assert_eq!(old.ask(get("/health")).status, 200);
    authority.renew(|_| ());
    hang_up("the certificate was read again");
    assert_ne!(shown(), second);
    let (status, log) = node.stop();
    assert!(status.success(), "{log}");
    old.assert_ended();
}
