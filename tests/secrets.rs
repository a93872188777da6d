//! Nothing that is secret is said: not in the log however much it says, not in an answer, not in a refusal to start.

mod process;
mod tokens;

use mayfly::api::route::ENDPOINTS;
use mayfly_net::http::Method;
use process::client::{Client, get, post};
use process::{Node, run, serve, unused_folder};
use serde_json::json;

const PASSWORD: &str = "pa55word-of-the-store";
const CLUSTER_SECRET: &str = "s3cret-of-the-cluster";

/// All that a node must not say.
fn secrets(tokens: &[String]) -> Vec<String> {
    let signatures = tokens.iter().filter_map(|token| token.rsplit('.').next().map(str::to_owned));
    [tokens::SECRET, PASSWORD, CLUSTER_SECRET].map(str::to_owned).into_iter().chain(signatures).collect()
}

#[track_caller]
fn assert_says_none(secrets: &[String], where_from: &str, text: &str) {
    for secret in secrets {
        assert!(!text.contains(secret.as_str()), "{where_from} says {secret:?}");
    }
}

#[test]
fn no_secret_is_in_the_log_or_in_an_answer_whatever_is_asked() {
    let folder = unused_folder();
    std::fs::create_dir_all(&folder).expect("a folder");
    let secret_file = folder.join("secret");
    std::fs::write(&secret_file, CLUSTER_SECRET).expect("written");
    let peer = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let store = format!("postgres://user:{PASSWORD}@127.0.0.1:1/database");
    let mut command = serve(2, &["--log", "trace", "--jwt-enabled", "on", "--node-id", "1", "--peers", &format!("1={peer}")]);
    command.arg("--cluster-secret-file").arg(&secret_file).env("JWT_SECRET", tokens::SECRET).env("MAYFLY_POSTGRES", store);
    let node = Node::start(command);
    let good = tokens::token("admin", json!({}));
    let bad = tokens::sign(jsonwebtoken::Algorithm::HS256, None, &tokens::secret("another"), &tokens::claims("admin", json!({})));
    let all = [good, bad];
    let secrets = secrets(&all);
    let mut heard = String::new();
    for endpoint in &ENDPOINTS {
        let path = endpoint.pattern.to_string().replace(":queue", "q");
        let method = match endpoint.method {
            Method::Get => "GET",
            Method::Delete => "DELETE",
            _ => "POST",
        };
        for token in &all {
            let body = r#"{"queue":"q","messages":[{"payload":1}],"payload":1,"timeout":1,"replies":[],"enabled":true}"#;
            let head = format!("{method} {path}?queue=q&access_token={token} HTTP/1.1\r\nHost: h\r\n");
            for header in [format!("Authorization: Bearer {token}\r\n"), format!("Authorization: Basic {token}\r\n"), String::new()] {
                let mut client = Client::connect(node.address);
                client.send(format!("{head}{header}Content-Length: {}\r\n\r\n{body}", body.len()));
                let answer = client.answer();
                heard.push_str(&answer.head);
                heard.push_str(&String::from_utf8_lossy(&answer.body));
            }
        }
    }
    // What is no HTTP, and what speaks to peers without the secret.
    let mut client = Client::connect(node.address);
    client.send(format!("GET /?access_token={} HTTP/9.9\r\n\r\n", all[0]));
    heard.push_str(&client.answer().head);
    Client::connect(peer).send(format!("{CLUSTER_SECRET}\r\n").repeat(20));
    let mut client = Client::connect(node.address);
    for path in ["/metrics", "/health", "/ready", "/"] {
        heard.push_str(&String::from_utf8_lossy(&client.ask(get(path)).body));
    }
    assert_says_none(&secrets, "an answer", &heard);
    let (_, log) = node.stop();
    let _ = std::fs::remove_dir_all(&folder);
    assert!(log.contains("PostgreSQL at 127.0.0.1:1"), "{log}");
    assert_says_none(&secrets, "the log", &log);
}

#[test]
fn no_secret_is_in_the_line_of_a_node_that_does_not_start() {
    let secrets = secrets(&[]);
    let refused = [
        ("MAYFLY_POSTGRES", format!("postgres://user:{PASSWORD}@127.0.0.1:port/database")),
        ("MAYFLY_POSTGRES", format!("mysql://user:{PASSWORD}@127.0.0.1/database")),
        ("PG_PASSWORD", PASSWORD.to_owned()),
        ("JWT_ALGORITHM", "RS256".to_owned()),
        ("MAYFLY_CLUSTER_SECRET_FILE", "/nowhere/at/all".to_owned()),
    ];
    for (name, value) in refused {
        let mut command = serve(1, &["--jwt-enabled", "on", "--listen", "not an address"]);
        command.env("JWT_SECRET", tokens::SECRET).env(name, value);
        let ended = run(command);
        assert_ne!(ended.code, Some(0));
        assert_says_none(&secrets, name, &ended.stderr);
    }
}

#[test]
fn what_clients_write_makes_no_line_of_the_log() {
    let node = Node::start(serve(1, &["--log", "trace"]));
    let mut client = Client::connect(node.address);
    let forged = "2026-01-01T00:00:00Z ERROR forged";
    // A line break is in no name; what a terminal takes for one, and for colours, may be.
    for name in [format!("a\u{85}{forged}"), format!("a\u{2028}{forged}"), format!("a\u{9b}31m{forged}")] {
        let body = json!({ "queue": name, "messages": [{ "payload": 1 }] }).to_string();
        assert_eq!(client.ask(post("/api/v1/ephemeral/push", &body)).status, 201);
        assert_eq!(client.ask(post("/api/v1/ephemeral/configure", &json!({ "queue": name }).to_string())).status, 201);
    }
    for name in [format!("a\n{forged}"), format!("a\r\n{forged}"), "a\u{1b}[31m".to_owned()] {
        let body = json!({ "queue": name, "messages": [{ "payload": 1 }] }).to_string();
        client.ask(post("/api/v1/ephemeral/push", &body)).assert_failure(400, "ephemeral_bad_request");
    }
    let (_, log) = node.stop();
    assert!(log.lines().all(|line| !line.starts_with("2026-01-01T00:00:00Z")), "{log}");
    assert!(!log.contains(['\u{85}', '\u{2028}', '\u{9b}', '\u{1b}']), "{log}");
}
