//! Who asks, on a real node: what is served to whom, and that what is refused leaves nothing behind.

mod process;

use process::client::{Client, get, post};
use process::{Node, serve};

const ONE: &str = "00000000-0000-0000-0000-0000000000aa";
const OTHER: &str = "0123ABCD-89ab-cdef-0123-456789abcdef";
const PUSH: &str = r#"{"queue":"q","messages":[{"payload":1}]}"#;

/// A request with one more header line.
fn with(header: &str, request: &str) -> String {
    request.replacen("Host: h\r\n", &format!("Host: h\r\n{header}\r\n"), 1)
}

fn of(tenant: &str, request: &str) -> String {
    with(&format!("X-Queen-Tenant: {tenant}"), request)
}

#[test]
fn with_the_tenancy_header_each_request_is_of_the_tenant_it_names() {
    let node = Node::start(serve(2, &["--tenancy-header", "on"]));
    let mut client = Client::connect(node.address);
    let pop = get("/api/v1/ephemeral/pop?queue=q&autoAck=true");
    assert_eq!(client.ask(of(ONE, &post("/api/v1/ephemeral/push", PUSH))).status, 201);
    assert_eq!(client.ask(of(OTHER, &pop)).messages().len(), 0, "another tenant's");
    assert_eq!(client.ask(of(&ONE.to_uppercase(), &pop)).messages().len(), 1);
    assert_eq!(client.ask(of(OTHER, &get("/api/v1/ephemeral/queues"))).json()["count"], 1, "the queue that its own pop made");
}

#[test]
fn with_the_tenancy_header_a_request_without_a_tenant_is_refused_and_public_routes_ask_for_none() {
    let node = Node::start(serve(1, &["--tenancy-header", "on"]));
    let mut client = Client::connect(node.address);
    let push = post("/api/v1/ephemeral/push", PUSH);
    let twice = with(&format!("x-queen-tenant: {ONE}"), &of(ONE, &push));
    for request in [push.clone(), of("", &push), of("tenant", &push), of(&ONE[1..], &push), twice, get("/api/v1/ephemeral/queues")] {
        client.ask(request).assert_failure(400, "ephemeral_bad_request");
    }
    for path in ["/health", "/ready", "/metrics", "/"] {
        assert_eq!(client.ask(get(path)).status, 200, "{path}");
        assert_eq!(client.ask(of("no tenant", &get(path))).status, 200, "{path}");
    }
    client.ask(get("/nope")).assert_failure(404, "no_such_route");
    assert_eq!(node.metric(&mut client, "queen_ephemeral_queues"), 0, "what is refused leaves no trace");
}

#[test]
fn without_the_tenancy_header_whatever_it_says_is_the_default_tenants() {
    let node = Node::start(serve(1, &[]));
    let mut client = Client::connect(node.address);
    for tenant in [ONE, "no tenant"] {
        assert_eq!(client.ask(of(tenant, &post("/api/v1/ephemeral/push", PUSH))).status, 201);
    }
    assert_eq!(client.ask(get("/api/v1/ephemeral/pop?queue=q&batch=9")).messages().len(), 2);
}
