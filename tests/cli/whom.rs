//! Whom a command asks and as whom: tokens, tenants, TLS, nodes that are not there; and the exit codes.

use serde_json::json;

use crate::process::{Node, mayfly, serve, unused_folder};
use crate::{Done, run, tokens};

#[test]
fn each_way_to_end_has_its_code() {
    let node = Node::start(serve(1, &[]));
    assert_eq!(run(node.address, &["push", "q", "1"]).code, Some(0));
    run(node.address, &["push", "", "1"]).assert_ended(1, "(ephemeral_bad_request)");
    assert_eq!(run(node.address, &["push"]).code, Some(2));
    assert_eq!(run(node.address, &["pop", "q", "--batch", "0"]).code, Some(2));
    run(node.address, &["pop", "empty"]).assert_ended(3, "no message");
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    for arguments in [&["queues"][..], &["tail", "q"], &["push", "q", "1"], &["cluster", "status"], &["top"]] {
        run(nowhere, arguments).assert_ended(4, "cannot be asked");
    }
}

#[test]
fn a_token_goes_along_from_the_environment_or_a_file_and_is_never_printed() {
    let mut command = serve(1, &["--jwt-enabled", "on"]);
    command.env("JWT_SECRET", tokens::SECRET);
    let node = Node::start(command);
    run(node.address, &["queues"]).assert_ended(1, "(unauthorized)");
    let token = tokens::token("read-only", json!({}));
    let file = unused_folder();
    std::fs::write(&file, format!("{token}\n")).expect("a file");
    let path = file.to_str().expect("text");
    assert_eq!(run(node.address, &["queues", "--token-file", path, "--json"]).out(), "");
    let refused = run(node.address, &["push", "q", "1", "--token", &token]);
    refused.assert_ended(1, "(forbidden)");
    assert!(!refused.err.contains(&token));
    std::fs::remove_file(&file).expect("removed");
    run(node.address, &["queues", "--token-file", path]).assert_ended(1, "--token-file");
}

#[test]
fn a_tenant_goes_along_in_the_header() {
    let node = Node::start(serve(1, &["--tenancy-header", "on", "--require-grant", "off"]));
    run(node.address, &["push", "q", "1"]).assert_ended(1, "x-queen-tenant");
    let (one, other) = ("00000000-0000-0000-0000-0000000000aa", "00000000-0000-0000-0000-0000000000bb");
    assert_eq!(run(node.address, &["push", "q", "1", "--tenant", one]).out(), "pushed 1\n");
    run(node.address, &["pop", "q", "--tenant", other]).assert_ended(3, "no message");
    assert_eq!(run(node.address, &["pop", "q", "--payload", "--tenant", one]).out(), "1\n");
}

#[test]
fn tls_is_trusted_by_the_authority_that_is_named_and_not_without() {
    let file = |name: &str| format!("{}/tests/tokens/{name}", env!("CARGO_MANIFEST_DIR"));
    let node = Node::start(serve(1, &["--tls-cert", &file("tls.pem"), "--tls-key", &file("tls.key.pem")]));
    let url = format!("https://localhost:{}", node.address.port());
    let ask = |more: &[&str]| -> Done {
        let mut command = mayfly();
        command.args(["push", "q", "1", "--url", &url]).args(more);
        command.output().expect("runs").into()
    };
    assert_eq!(ask(&["--ca", &file("tls-ca.pem")]).out(), "pushed 1\n");
    ask(&[]).assert_ended(4, "cannot be asked");
    ask(&["--ca", "/nowhere"]).assert_ended(1, "--ca /nowhere");
}
