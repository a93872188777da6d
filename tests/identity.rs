//! Who asks, on a real node: what is served to whom, and that what is refused leaves nothing behind.

mod process;
mod tokens;

use std::time::Duration;

use jsonwebtoken::Algorithm;
use mayfly::api::route::{Access, ENDPOINTS, find};
use mayfly_net::http::Method;
use process::client::{Answer, Client, get, pop, post, push};
use process::{Node, run, serve};
use serde_json::{Value, json};

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
    let node = Node::start(serve(2, &["--tenancy-header", "on", "--require-grant", "off"]));
    let mut client = Client::connect(node.address);
    let pop = get("/api/v1/ephemeral/pop?queue=q&autoAck=true");
    assert_eq!(client.ask(of(ONE, &post("/api/v1/ephemeral/push", PUSH))).status, 201);
    assert_eq!(client.ask(of(OTHER, &pop)).messages().len(), 0, "another tenant's");
    assert_eq!(client.ask(of(&ONE.to_uppercase(), &pop)).messages().len(), 1);
    assert_eq!(client.ask(of(OTHER, &get("/api/v1/ephemeral/queues"))).json()["count"], 1, "the queue that its own pop made");
}

#[test]
fn with_the_tenancy_header_a_request_without_a_tenant_is_refused_and_public_routes_ask_for_none() {
    let node = Node::start(serve(1, &["--tenancy-header", "on", "--require-grant", "off"]));
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

fn with_tokens(shards: usize, arguments: &[&str]) -> Node {
    let mut command = serve(shards, &[&["--jwt-enabled", "on"][..], arguments].concat());
    command.env("JWT_SECRET", tokens::SECRET);
    Node::start(command)
}

fn bearing(token: &str, request: &str) -> String {
    with(&format!("Authorization: Bearer {token}"), request)
}

fn as_role(role: &str, request: &str) -> String {
    bearing(&tokens::token(role, json!({})), request)
}

/// Who asks, and what becomes of it on a route of each access.
struct Asker {
    name: &'static str,
    header: String,
    outcome: fn(Access) -> Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Served,
    Refused(u16, &'static str),
}

const UNAUTHORIZED: Outcome = Outcome::Refused(401, "unauthorized");
const FORBIDDEN: Outcome = Outcome::Refused(403, "forbidden");

fn served_if(is_served: bool) -> Outcome {
    if is_served { Outcome::Served } else { FORBIDDEN }
}

fn askers() -> Vec<Asker> {
    let good = |more: Value| {
        tokens::token(
            "admin",
            [("iss", "idp"), ("aud", "mayfly")].iter().fold(more, |mut all, (name, value)| {
                if all.get(name).is_none() {
                    all[name] = json!(value);
                }
                all
            }),
        )
    };
    let role = |name: &str| good(json!({ "role": name }));
    let claims = tokens::claims("admin", json!({ "iss": "idp", "aud": "mayfly" }));
    let wrong_key = tokens::sign(Algorithm::HS256, None, &tokens::secret("another secret"), &claims);
    let wrong_algorithm = tokens::sign(Algorithm::HS512, None, &tokens::secret(tokens::SECRET), &claims);
    let payload = wrong_key.split('.').nth(1).expect("a payload").to_owned();
    let now = tokens::now();
    let unauthorized: Vec<(&'static str, String)> = vec![
        ("no token", String::new()),
        ("an empty token", "Authorization: Bearer \r\n".into()),
        ("another scheme", "Authorization: Basic dXNlcjpwYXNz\r\n".into()),
        ("expired", bearer(&good(json!({ "exp": now - 3600 })))),
        ("not yet valid", bearer(&good(json!({ "nbf": now + 3600 })))),
        ("wrong key", bearer(&wrong_key)),
        ("wrong algorithm", bearer(&wrong_algorithm)),
        ("none", bearer(&format!("eyJhbGciOiJub25lIn0.{payload}."))),
        ("wrong issuer", bearer(&good(json!({ "iss": "other" })))),
        ("wrong audience", bearer(&good(json!({ "aud": "other" })))),
        ("a tenant that is none", bearer(&good(json!({ "tenant": "everyone" })))),
        ("two tokens", bearer(&good(json!({}))) + &bearer(&good(json!({})))),
    ];
    let asker = |name, header, outcome| Asker { name, header, outcome };
    let mut askers: Vec<_> = unauthorized.into_iter().map(|(name, header)| asker(name, header, |_| UNAUTHORIZED)).collect();
    askers.push(asker("admin", bearer(&role("admin")), |_| Outcome::Served));
    askers.push(asker("read-write", bearer(&role("read-write")), |access| served_if(access != Access::Admin)));
    askers.push(asker("read-only", bearer(&role("read-only")), |access| served_if(access == Access::ReadOnly)));
    askers.push(asker("write-only", bearer(&role("write-only")), |access| served_if(access == Access::WriteOnly)));
    askers.push(asker("no known role", bearer(&role("guest")), |_| FORBIDDEN));
    let tenant = |name: &str| format!("X-Queen-Tenant: {name}\r\n");
    let of_one = bearer(&good(json!({ "tenant": ONE })));
    askers.push(asker("its own tenant", of_one.clone() + &tenant(&ONE.to_uppercase()), |_| Outcome::Served));
    askers.push(asker("another tenant", of_one.clone() + &tenant(OTHER), |_| FORBIDDEN));
    askers.push(asker("another tenant than the default", bearer(&role("admin")) + &tenant(ONE), |_| FORBIDDEN));
    askers.push(asker("a malformed tenant", of_one + &tenant("x"), |_| Outcome::Refused(400, "ephemeral_bad_request")));
    askers
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn every_route_and_method_serves_exactly_who_may() {
    let node = with_tokens(2, &["--jwt-issuer", "idp", "--jwt-audience", "mayfly"]);
    let methods = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PATCH", Method::Other),
    ];
    let mut client = Client::connect(node.address);
    let mut served = 0;
    for endpoint in &ENDPOINTS {
        let path = endpoint.pattern.to_string().replace(":queue", "q");
        for (name, method) in methods {
            for asker in askers() {
                client.send(format!("{name} {path} HTTP/1.1\r\nHost: h\r\n{}\r\n", asker.header));
                let answer = if method == Method::Head { client.answer_to_head() } else { client.answer() };
                let seen = format!("{name} {path} of {}: {answer:?}", asker.name);
                let Ok(found) = find(method, path.as_bytes()) else {
                    assert_eq!(answer.status, 405, "{seen}");
                    continue;
                };
                let access = found.endpoint.access;
                let wanted = if access == Access::Public { Outcome::Served } else { (asker.outcome)(access) };
                match wanted {
                    // Without body and parameters most routes go on to say what they lack.
                    Outcome::Served => assert!(!matches!(answer.status, 401 | 403) && !says_tenant(&answer), "{seen}"),
                    Outcome::Refused(status, code) => {
                        assert_eq!(answer.status, status, "{seen}");
                        assert!(method == Method::Head || answer.json()["code"] == code, "{seen}");
                    }
                }
                assert_eq!(answer.header("www-authenticate"), (wanted == UNAUTHORIZED).then_some("Bearer"), "{seen}");
                served += u32::from(wanted == Outcome::Served);
            }
        }
    }
    assert!(served > 100);
}

fn says_tenant(answer: &Answer) -> bool {
    answer.status == 400 && String::from_utf8_lossy(&answer.body).contains("x-queen-tenant")
}

#[test]
fn a_tokens_claim_is_its_tenant_and_without_one_it_is_the_default_tenants() {
    let node = with_tokens(2, &["--tenancy-header", "on", "--require-grant", "off"]);
    let mut client = Client::connect(node.address);
    let of_one = tokens::token("read-write", json!({ "tenant": ONE }));
    let pop = get("/api/v1/ephemeral/pop?queue=q&autoAck=true");
    assert_eq!(client.ask(bearing(&of_one, &post("/api/v1/ephemeral/push", PUSH))).status, 201);
    assert_eq!(client.ask(as_role("admin", &pop)).messages().len(), 0, "the default tenant's");
    let no_claim = tokens::token("admin", json!({ "tenant": null }));
    assert_eq!(client.ask(of("00000000-0000-0000-0000-000000000001", &bearing(&no_claim, &pop))).messages().len(), 0);
    client.ask(of(OTHER, &bearing(&of_one, &pop))).assert_failure(403, "forbidden");
    assert_eq!(client.ask(bearing(&of_one, &pop)).messages().len(), 1);
}

#[test]
fn requests_of_one_connection_are_each_their_own_tokens() {
    let node = with_tokens(2, &[]);
    let mut client = Client::connect(node.address);
    let (one, other) = (tokens::token("read-write", json!({ "tenant": ONE })), tokens::token("read-write", json!({ "tenant": OTHER })));
    let request = push("q", "p", [1]);
    let depth = get("/api/v1/ephemeral/queues/q/depth");
    let sent = [
        bearing(&one, &request),
        bearing(&other, &depth),
        request.clone(),
        as_role("read-only", &request),
        bearing(&one, &depth),
        depth.clone(),
        get("/health"),
    ];
    client.send(sent.concat());
    let statuses: Vec<_> = sent.iter().map(|_| client.answer().status).collect();
    assert_eq!(statuses, [201, 404, 401, 403, 200, 401, 200]);
}

#[test]
fn a_pop_that_is_parked_stays_although_its_token_expires() {
    let node = with_tokens(1, &["--jwt-clock-skew", "0"]);
    let token = tokens::token("read-write", json!({ "exp": tokens::now() + 2 }));
    let mut waiting = Client::connect(node.address);
    waiting.send(bearing(&token, &pop("q", "&wait=true&autoAck=true&timeout=20000")));
    let mut client = Client::connect(node.address);
    while client.ask(bearing(&token, &get("/api/v1/ephemeral/queues"))).status == 200 {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.ask(as_role("admin", &push("q", "p", [1]))).status, 201);
    assert_eq!(waiting.answer().messages().len(), 1);
    waiting.ask(bearing(&token, &pop("q", ""))).assert_failure(401, "unauthorized");
}

#[test]
fn a_subscription_may_give_its_token_in_the_query_and_nothing_else_may_and_no_token_is_logged() {
    let node = with_tokens(1, &["--log", "trace"]);
    let (good, bad) = (tokens::token("read-write", json!({})), tokens::token("read-write", json!({ "exp": 1 })));
    let subscribe = |token: &str| get(&format!("/api/v1/ephemeral/subscribe?queue=q&access_token={token}"));
    let mut client = Client::connect(node.address);
    client.ask(subscribe("")).assert_failure(401, "unauthorized");
    client.ask(subscribe(&bad)).assert_failure(401, "unauthorized");
    client.ask(subscribe(&tokens::token("read-only", json!({})))).assert_failure(403, "forbidden");
    client.ask(bearing(&bad, &subscribe(&good))).assert_failure(401, "unauthorized");
    client.ask(pop("q", &format!("&access_token={good}"))).assert_failure(401, "unauthorized");
    client.ask(get("/api/v1/ephemeral/queues?access_token=x")).assert_failure(401, "unauthorized");
    client.send(get(&format!("/{good} {bad}")));
    client.answer().assert_failure(400, "bad_request");
    for request in [subscribe(&good), bearing(&good, &subscribe(&bad))] {
        let mut stream = Client::connect(node.address);
        let answer = stream.ask(request);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    }
    let (_, log) = node.stop();
    for token in [&good, &bad] {
        let signature = token.rsplit('.').next().expect("a signature");
        assert!(!log.contains(signature) && !log.contains("access_token"), "{log}");
    }
}

#[test]
fn a_path_that_is_skipped_needs_no_token() {
    let node = with_tokens(1, &["--jwt-skip-paths", "/api/v1/ephemeral/push, /api/v1/ephemeral/queues/"]);
    let mut client = Client::connect(node.address);
    assert_eq!(client.ask(push("q", "p", [1])).status, 201);
    assert_eq!(client.ask(get("/api/v1/ephemeral/queues/q/depth")).status, 200);
    client.ask(get("/api/v1/ephemeral/queues")).assert_failure(401, "unauthorized");
    client.ask(of(ONE, &push("q", "p", [1]))).assert_failure(403, "forbidden");
}

#[test]
fn a_start_without_what_tokens_need_is_refused_with_one_line_that_shows_no_secret() {
    let refusal = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = serve(1, arguments);
        command.args(["--listen", "127.0.0.1:0"]).envs(environment.iter().copied());
        let ended = run(command);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
        ended.stderr
    };
    let on = "--jwt-enabled=on";
    assert!(refusal(&[on], &[]).contains("--jwt-algorithm: HS256 needs a key; give JWT_SECRET or --jwt-secret-file"));
    assert!(refusal(&[on, "--jwt-algorithm", "RS256"], &[("JWT_SECRET", "hush")]).contains("--jwt-public-key or --jwt-jwks-url"));
    assert!(refusal(&[on, "--jwt-algorithm", "auto"], &[]).contains("--jwt-enabled: there is no key"));
    assert!(refusal(&[on, "--jwt-algorithm", "none"], &[]).contains("--jwt-algorithm: cannot read \"none\""));
    let shown = refusal(&[on], &[("JWT_SECRET", "hush\nhush")]);
    assert!(shown.contains("JWT_SECRET: cannot read") && !shown.contains("hush"), "{shown}");
    assert!(refusal(&[on], &[("JWT_SECRET", "hush"), ("JWT_CLOCK_SKEW", "soon")]).contains("JWT_CLOCK_SKEW: cannot read \"soon\""));
}
