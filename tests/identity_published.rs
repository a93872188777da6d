//! Keys that a URL publishes: over http and https, exchanged while the node runs, and answers that are no keys.

mod process;
mod tokens;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jsonwebtoken::Algorithm;
use process::client::{Client, get};
use process::{Node, serve};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

/// An issuer that publishes what it is told to.
struct Issuer {
    address: SocketAddr,
    /// The whole answer.
    answer: Arc<Mutex<String>>,
    asked: Arc<Mutex<Vec<Instant>>>,
}

impl Issuer {
    fn start(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let issuer = Self { address: listener.local_addr().expect("an address"), answer: Arc::default(), asked: Arc::default() };
        let (answer, asked) = (Arc::clone(&issuer.answer), Arc::clone(&issuer.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                asked.lock().expect("unpoisoned").push(Instant::now());
                let text = answer.lock().expect("unpoisoned").clone();
                match &tls {
                    Some(config) => {
                        let connection = ServerConnection::new(Arc::clone(config)).expect("a configuration");
                        answer_once(StreamOwned::new(connection, stream), &text);
                    }
                    None => answer_once(stream, &text),
                }
            }
        });
        issuer
    }

    fn publish(&self, status: &str, body: &str) {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        *self.answer.lock().expect("unpoisoned") = text;
    }

    fn publish_keys(&self, jwks: &[&str]) {
        self.publish("200 OK", &format!("{{\"keys\":[{}]}}", jwks.join(",")));
    }

    fn asked_count(&self) -> usize {
        self.asked.lock().expect("unpoisoned").len()
    }
}

/// What a client that breaks off makes of it is its own affair.
fn answer_once(mut stream: impl Read + Write, text: &str) {
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(count @ 1..) => head.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}

fn start(url: &str, refresh_s: &str, environment: &[(&str, &str)]) -> Node {
    let on = ["--jwt-enabled", "on", "--jwt-algorithm", "RS256", "--jwt-jwks-url", url, "--jwt-jwks-refresh-s", refresh_s];
    let mut command = serve(1, &on);
    command.envs(environment.iter().copied());
    Node::start(command)
}

fn signed(kid: &str, pem: &[u8]) -> String {
    tokens::sign(Algorithm::RS256, Some(kid), &tokens::rsa(pem), &tokens::claims("admin", json!({})))
}

fn status(node: &Node, token: &str) -> u16 {
    let request = get("/api/v1/ephemeral/queues").replacen("Host: h\r\n", &format!("Host: h\r\nAuthorization: Bearer {token}\r\n"), 1);
    Client::connect(node.address).ask(request).status
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(15);
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_unknown_key_is_looked_for_at_a_bounded_rate_and_bad_answers_leave_the_keys_known() {
    let issuer = Issuer::start(None);
    issuer.publish_keys(&[tokens::RSA_JWK]);
    let began = Instant::now();
    let node = start(&format!("http://{}/keys?hush", issuer.address), "3600", &[]);
    let (first, second) = (signed("rsa", tokens::RSA), signed("other-rsa", tokens::OTHER_RSA));
    assert_eq!((status(&node, &first), status(&node, &second)), (200, 401));

    // What it gets now is no set of keys, nor is a redirect.
    issuer.publish("200 OK", "<html>");
    wait_until("a second fetch", || {
        assert_eq!(status(&node, &second), 401);
        issuer.asked_count() >= 2
    });
    assert_eq!(status(&node, &first), 200, "the keys known stay");

    issuer.publish_keys(&[tokens::OTHER_RSA_JWK]);
    wait_until("the new key", || status(&node, &second) == 200);
    assert_eq!(status(&node, &first), 401, "its key is gone, and so is what was kept of it");
    let asked = issuer.asked.lock().expect("unpoisoned").clone();
    // A fetch that failed is repeated sooner, by itself: after a second, then after more. Tokens asked for keys far more often.
    for pair in asked.windows(2) {
        assert!(pair[1] - pair[0] > Duration::from_millis(500), "{asked:?}");
    }
    assert!(asked.len() as u64 <= 3 + began.elapsed().as_secs(), "{asked:?}");
    let (_, log) = node.stop();
    assert!(log.contains("the keys of tokens cannot be fetched") && !log.contains("hush"), "{log}");
}

#[test]
fn an_unknown_key_is_looked_for_beside_one_that_is_configured() {
    let issuer = Issuer::start(None);
    issuer.publish_keys(&[tokens::RSA_JWK]);
    let public = format!("{}/tests/tokens/rsa.pub.pem", env!("CARGO_MANIFEST_DIR"));
    let node = start(&format!("http://{}/keys", issuer.address), "3600", &[("MAYFLY_JWT_PUBLIC_KEY", &public)]);
    let second = signed("other-rsa", tokens::OTHER_RSA);
    assert_eq!(status(&node, &second), 401);
    issuer.publish_keys(&[tokens::RSA_JWK, tokens::OTHER_RSA_JWK]);
    wait_until("the new key", || status(&node, &second) == 200);
}

#[test]
fn keys_are_fetched_over_https_from_whom_the_host_trusts_and_again_every_so_often() {
    let file = |name: &str| format!("{}/tests/tokens/{name}", env!("CARGO_MANIFEST_DIR"));
    let chain = vec![CertificateDer::from_pem_file(file("tls.pem")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(file("tls.key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let issuer = Issuer::start(Some(Arc::new(versions.with_no_client_auth().with_single_cert(chain, key).expect("a certificate"))));
    issuer.publish_keys(&[tokens::RSA_JWK]);
    let url = format!("https://localhost:{}/keys", issuer.address.port());
    let (first, second) = (signed("rsa", tokens::RSA), signed("other-rsa", tokens::OTHER_RSA));

    let trusting = start(&url, "1", &[("SSL_CERT_FILE", &file("tls-ca.pem"))]);
    assert_eq!(status(&trusting, &first), 200);
    issuer.publish_keys(&[tokens::RSA_JWK, tokens::OTHER_RSA_JWK]);
    wait_until("the next fetch", || status(&trusting, &second) == 200);
    assert_eq!(status(&trusting, &first), 200);

    let distrusting = start(&url, "3600", &[]);
    assert_eq!(status(&distrusting, &first), 401);
    assert!(distrusting.log().contains("the keys of tokens cannot be fetched"), "{}", distrusting.log());
}

#[test]
fn a_node_starts_although_the_issuer_is_down_and_finds_it_later() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let node = start(&format!("http://{address}/keys"), "3600", &[]);
    let token = signed("rsa", tokens::RSA);
    assert_eq!(status(&node, &token), 401);
    assert!(node.is_healthy());
    let listener = TcpListener::bind(address).expect("the same port");
    let body = format!("{{\"keys\":[{}]}}", tokens::RSA_JWK);
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    std::thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(|stream| answer_once(stream, &text)));
    wait_until("the first keys", || status(&node, &token) == 200);
}

#[test]
fn an_issuer_that_hangs_holds_nobody_and_its_keys_stay() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (hangs, hung) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_hanging, count) = (Arc::clone(&hangs), Arc::clone(&hung));
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            if is_hanging.load(Relaxed) {
                count.fetch_add(1, Relaxed);
                held.push(stream);
            } else {
                let keys = format!("{{\"keys\":[{}]}}", tokens::RSA_JWK);
                answer_once(stream, &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{keys}", keys.len()));
            }
        }
    });
    let node = start(&format!("http://{address}/keys"), "1", &[]);
    let token = signed("rsa", tokens::RSA);
    wait_until("the keys", || status(&node, &token) == 200);
    hangs.store(true, Relaxed);
    // It is given up, and asked again.
    wait_until("a second attempt", || {
        let began = Instant::now();
        assert_eq!(status(&node, &token), 200);
        assert!(began.elapsed() < Duration::from_secs(2), "nobody waits for keys: {:?}", began.elapsed());
        hung.load(Relaxed) >= 2
    });
    assert!(node.log().contains("the keys of tokens cannot be fetched"), "{}", node.log());
    // A node that starts meanwhile serves, and knows no token.
    let late = start(&format!("http://{address}/keys"), "1", &[]);
    assert_eq!((status(&late, &token), late.is_healthy()), (401, true));
}
