//! Tenants that share a real node: what one is granted, and that nothing of another is visible to it.

mod process;

use process::client::{Answer, Client, get, post};
use process::{Node, serve, unused_folder};

const ONE: &str = "00000000-0000-0000-0000-0000000000aa";
const OTHER: &str = "00000000-0000-0000-0000-0000000000bb";

fn of(tenant: &str, request: &str) -> String {
    request.replacen("Host: h\r\n", &format!("Host: h\r\nx-queen-tenant: {tenant}\r\n"), 1)
}

/// A node of several tenants, which need grants if `requires_grant`.
fn node(shards: usize, requires_grant: &str, more: &[&str]) -> Node {
    Node::start(serve(shards, &[&["--tenancy-header", "on", "--require-grant", requires_grant], more].concat()))
}

fn push_of(queue: &str, count: usize) -> String {
    let messages = vec![r#"{"payload":1}"#; count].join(",");
    post("/api/v1/ephemeral/push", &format!(r#"{{"queue":"{queue}","messages":[{messages}]}}"#))
}

fn pop_of(queue: &str, more: &str) -> String {
    get(&format!("/api/v1/ephemeral/pop?queue={queue}{more}"))
}

/// `rest` begins with a comma, or is empty.
fn grant(client: &mut Client, tenant: &str, rest: &str) -> Answer {
    client.ask(of(ONE, &post("/api/v1/system/quota", &format!(r#"{{"tenant":"{tenant}","kind":"ephemeral"{rest}}}"#))))
}

fn quota(client: &mut Client, tenant: &str) -> serde_json::Value {
    client.ask(of(ONE, &get(&format!("/api/v1/system/quota?tenant={tenant}")))).json()
}

/// Every route of the family, well-formed.
fn family() -> Vec<String> {
    let below = |path: &str| format!("/api/v1/ephemeral/{path}");
    vec![
        push_of("q", 1),
        push_of("q", 0),
        pop_of("q", ""),
        post(&below("ack"), r#"{"queue":"q","acks":[]}"#),
        post(&below("call"), r#"{"queue":"q","payload":1,"timeout":10}"#),
        post(&below("reply"), r#"{"queue":"q","replies":[]}"#),
        get(&below("subscribe?queue=q")),
        post(&below("configure"), r#"{"queue":"q"}"#),
        post(&below("reset"), r#"{"queue":"q"}"#),
        format!("DELETE {} HTTP/1.1\r\nHost: h\r\n\r\n", below("queue/q")),
        get(&below("queues")),
        get(&below("queues/q/depth")),
    ]
}

#[test]
fn without_a_grant_every_route_of_the_family_is_refused_after_its_shape_and_leaves_nothing() {
    let node = node(2, "on", &[]);
    let mut client = Client::connect(node.address);
    for request in family() {
        client.ask(of(OTHER, &request)).assert_failure(403, "feature_gated");
    }
    client.ask(of(OTHER, &post("/api/v1/ephemeral/push", "{}"))).assert_failure(400, "ephemeral_bad_request");
    assert_eq!(grant(&mut client, OTHER, "").status, 200);
    assert_eq!(client.ask(of(OTHER, &get("/api/v1/ephemeral/queues"))).json()["count"], 0);
    let used = quota(&mut client, OTHER);
    assert_eq!((&used["pushed"], &used["queues"], &used["parked"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!(client.ask(of(OTHER, &push_of("q", 1))).status, 201);
    client.ask(of(ONE, &push_of("q", 1))).assert_failure(403, "feature_gated");
    assert_eq!(grant(&mut client, OTHER, r#","enabled":false"#).status, 200);
    client.ask(of(OTHER, &push_of("q", 1))).assert_failure(403, "feature_gated");
    grant(&mut client, OTHER, "");
    assert_eq!(client.ask(of(OTHER, &pop_of("q", ""))).messages().len(), 1, "what it held stayed");
}

#[test]
fn the_bounds_of_a_grant_hold_for_its_tenant_alone() {
    let node = node(2, "off", &[]);
    let mut client = Client::connect(node.address);
    let echo = grant(&mut client, OTHER, r#","maxBytes":3,"maxQueues":1,"maxMessagesPerSecond":1000,"maxParked":0"#);
    assert_eq!(
        String::from_utf8(echo.body).unwrap(),
        format!(
            r#"{{"tenant":"{OTHER}","kind":"ephemeral","enabled":true,"maxBytes":3,"maxQueues":1,"maxMessagesPerSecond":1000,"maxParked":0}}"#
        )
    );
    client.ask(of(OTHER, &push_of("q", 4))).assert_failure(403, "ephemeral_quota_exceeded");
    assert_eq!(client.ask(of(OTHER, &get("/api/v1/ephemeral/queues"))).json()["count"], 0, "refused whole");
    assert_eq!(client.ask(of(OTHER, &push_of("q", 3))).status, 201, "equal is allowed");
    client.ask(of(OTHER, &push_of("q", 1))).assert_failure(403, "ephemeral_quota_exceeded");
    client.ask(of(OTHER, &pop_of("p", ""))).assert_failure(403, "ephemeral_quota_exceeded");
    let parked = client.ask(of(OTHER, &pop_of("q", "&group=late&partition=empty&wait=true")));
    parked.assert_failure(429, "rate_limited");
    assert_eq!(client.ask(of(ONE, &push_of("q", 4))).status, 201, "another tenant");
    let used = quota(&mut client, OTHER);
    assert_eq!((&used["pushed"], &used["bytes"], &used["queues"], &used["maxBytes"]), (&3.into(), &3.into(), &1.into(), &3.into()));
    grant(&mut client, OTHER, r#","maxBytes":2"#);
    client.ask(of(OTHER, &push_of("q", 1))).assert_failure(403, "ephemeral_quota_exceeded");
    assert_eq!(client.ask(of(OTHER, &pop_of("q", "&batch=9&autoAck=true"))).messages().len(), 3, "a shrunk bound keeps what is held");
    assert_eq!(client.ask(of(OTHER, &push_of("q", 2))).status, 201);
    assert_eq!(quota(&mut client, OTHER)["delivered"], 3);
    let all = client.ask(of(ONE, &get("/api/v1/system/quota"))).json();
    assert_eq!((&all["count"], &all["grants"][0]["tenant"], &all["grants"][0]["bytes"]), (&1.into(), &OTHER.into(), &2.into()));
    let metrics = String::from_utf8(client.ask(get("/metrics")).body).unwrap();
    assert!(!metrics.contains(OTHER) && !metrics.contains(ONE), "anybody may read these: {metrics}");
}

#[test]
fn the_rate_of_a_grant_replaces_the_nodes_and_says_when_to_come_again() {
    let node = node(1, "off", &["--rate", "1", "--burst", "2"]);
    let mut client = Client::connect(node.address);
    assert_eq!(client.ask(of(OTHER, &push_of("q", 2))).status, 201);
    let refused = client.ask(of(OTHER, &push_of("q", 2)));
    refused.assert_failure(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("2"));
    grant(&mut client, OTHER, r#","maxMessagesPerSecond":10"#);
    assert_eq!(client.ask(of(OTHER, &push_of("q", 20))).status, 201, "twice as much at once");
    client.ask(of(OTHER, &push_of("q", 5))).assert_failure(429, "rate_limited");
    assert_eq!(client.ask(of(ONE, &push_of("q", 2))).status, 201, "another tenant has its own");
    client.ask(of(ONE, &push_of("q", 2))).assert_failure(429, "rate_limited");
}

#[test]
fn who_is_parked_when_the_grant_goes_is_told_so_at_once_on_every_core() {
    let node = node(2, "on", &[]);
    let mut client = Client::connect(node.address);
    grant(&mut client, OTHER, "");
    grant(&mut client, ONE, "");
    let call = post("/api/v1/ephemeral/call", r#"{"queue":"c","payload":1,"timeout":60000}"#);
    let mut parked: Vec<Client> = Vec::new();
    for queue in ["a", "b", "d", "e", "f", "g"] {
        let mut waiting = Client::connect(node.address);
        waiting.send(of(OTHER, &pop_of(queue, "&wait=true&timeout=60000")));
        parked.push(waiting);
    }
    let mut calling = Client::connect(node.address);
    calling.send(of(OTHER, &call));
    parked.push(calling);
    let mut bystander = Client::connect(node.address);
    bystander.send(of(ONE, &pop_of("a", "&wait=true&timeout=60000&autoAck=true")));
    while quota(&mut client, OTHER)["parked"] != 7 || quota(&mut client, ONE)["parked"] != 1 {}
    grant(&mut client, OTHER, r#","enabled":false"#);
    for waiting in &mut parked {
        waiting.answer().assert_failure(403, "feature_gated");
    }
    let used = quota(&mut client, OTHER);
    assert_eq!((&used["parked"], &used["bytes"]), (&0.into(), &0.into()), "nobody had taken the call's request");
    client.ask(of(ONE, &push_of("a", 1)));
    assert_eq!(bystander.answer().messages().len(), 1, "another tenant's stays");
}

/// What an id ends with.
fn number(id: &str) -> u64 {
    id.rsplit(':').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("an id: {id}"))
}

fn take(client: &mut Client, tenant: &str) -> String {
    let answer = client.ask(of(tenant, &pop_of("q", "")));
    answer.json()["messages"][0]["id"].as_str().unwrap_or_else(|| panic!("a message")).to_owned()
}

#[test]
fn the_ids_of_another_tenant_settle_nothing_and_tell_nothing() {
    let node = node(1, "off", &[]);
    let mut client = Client::connect(node.address);
    client.ask(of(ONE, &push_of("q", 1)));
    client.ask(of(OTHER, &push_of("q", 1)));
    let (mine, theirs) = (take(&mut client, ONE), take(&mut client, OTHER));
    let ack = |id: &str| post("/api/v1/ephemeral/ack", &format!(r#"{{"queue":"q","acks":[{{"id":"{id}"}}]}}"#));
    assert_eq!(client.ask(of(OTHER, &ack(&mine))).json()["results"][0]["outcome"], "unknown");
    assert_eq!(client.ask(of(ONE, &ack(&mine))).json()["results"][0]["outcome"], "acked");
    assert_eq!(client.ask(of(OTHER, &ack(&theirs))).json()["results"][0]["outcome"], "acked");
    // However much another pushes between two of its own, a tenant sees no difference: neither grows with the other.
    let mut numbers = vec![number(&mine)];
    for others in [0, 1, 100] {
        if others > 0 {
            client.ask(of(OTHER, &push_of("q", others)));
        }
        client.ask(of(ONE, &push_of("q", 1)));
        numbers.push(number(&take(&mut client, ONE)));
    }
    let steps: Vec<u64> = numbers.windows(2).map(|pair| pair[0].abs_diff(pair[1])).collect();
    assert!(steps.iter().all(|step| *step > 1 << 16), "{steps:?}");
}

#[test]
fn an_inbox_takes_nothing_from_another_tenant() {
    let node = node(2, "off", &[]);
    let (mut client, mut caller) = (Client::connect(node.address), Client::connect(node.address));
    caller.send(of(ONE, &post("/api/v1/ephemeral/call", r#"{"queue":"work","payload":1,"timeout":60000}"#)));
    let request = client.ask(of(ONE, &pop_of("work", "&wait=true"))).json();
    let inbox = request["messages"][0]["replyTo"].as_str().expect("an inbox").to_owned();
    let id = request["messages"][0]["id"].as_str().expect("an id").to_owned();
    let answer =
        |payload: &str| post("/api/v1/ephemeral/push", &format!(r#"{{"queue":"{inbox}","messages":[{{"payload":"{payload}"}}]}}"#));
    assert_eq!(client.ask(of(OTHER, &answer("stolen"))).status, 201, "as for any inbox that is gone");
    let reply = format!(r#"{{"queue":"work","replies":[{{"id":"{id}","replyTo":"{inbox}","payload":"stolen"}}]}}"#);
    let replied = client.ask(of(OTHER, &post("/api/v1/ephemeral/reply", &reply)));
    assert_eq!(replied.json()["results"][0]["outcome"], "unknown");
    assert_eq!(client.ask(of(ONE, &answer("right"))).status, 201);
    assert_eq!(caller.answer().json()["payload"], "right");
}

#[test]
fn names_gauges_groups_and_wake_ups_are_each_tenants_own() {
    let node = node(2, "off", &[]);
    let mut client = Client::connect(node.address);
    let mut waiting = Client::connect(node.address);
    waiting.send(of(ONE, &pop_of("q", "&wait=true&timeout=60000&autoAck=true&group=g")));
    while quota(&mut client, ONE)["parked"] != 1 {}
    client.ask(of(OTHER, &push_of("q", 3)));
    let depth = |client: &mut Client, tenant| client.ask(of(tenant, &get("/api/v1/ephemeral/queues/q/depth"))).json();
    assert_eq!(depth(&mut client, OTHER)["groups"], serde_json::json!([]), "the other's group is not known here");
    assert_eq!(depth(&mut client, ONE)["pending"], 0);
    let row = client.ask(of(ONE, &get("/api/v1/ephemeral/queues"))).json()["queues"][0].clone();
    assert_eq!((&row["depth"], &row["bytes"], &row["drops"]["bounds"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!(client.ask(of(ONE, &post("/api/v1/ephemeral/reset", r#"{"queue":"q"}"#))).json()["dropped"], 0);
    client.ask(of(ONE, "DELETE /api/v1/ephemeral/queue/q HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_eq!(depth(&mut client, OTHER)["pending"], 3, "neither a reset nor a delete is another's");
    assert_eq!(quota(&mut client, ONE)["parked"], 1, "it was not woken");
    client.ask(of(ONE, &push_of("q", 1)));
    assert_eq!(waiting.answer().messages().len(), 1);
    // Groups of subscribers are drawn by lot.
    let mut names = Vec::new();
    for tenant in [ONE, OTHER, ONE] {
        let mut subscriber = Client::connect(node.address);
        subscriber.send(of(tenant, &get("/api/v1/ephemeral/subscribe?queue=s")));
        while quota(&mut client, tenant)["parked"] == 0 {}
        let groups = client.ask(of(tenant, &get("/api/v1/ephemeral/queues/s/depth"))).json()["groups"].clone();
        names.extend(groups.as_array().expect("groups").iter().filter_map(|group| Some(group["group"].as_str()?.to_owned())));
        drop(subscriber);
        while quota(&mut client, tenant)["parked"] != 0 {}
    }
    names.sort();
    names.dedup();
    let numbers: Vec<u64> = names.iter().map(|name| u64::from_str_radix(name.rsplit(':').next().unwrap(), 16).unwrap()).collect();
    assert!(numbers.len() == 3 && numbers.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1 << 16), "{names:?}");
}

#[test]
fn a_grant_is_remembered_over_a_kill() {
    let start = |folder: &std::path::Path| {
        let mut command = serve(2, &["--tenancy-header", "on", "--require-grant", "on"]);
        command.env("MAYFLY_DATA_DIR", folder);
        Node::start(command)
    };
    let mut node = start(&unused_folder());
    let folder = node.keep_folder();
    let mut client = Client::connect(node.address);
    assert_eq!(grant(&mut client, ONE, r#","enabled":true,"maxBytes":4,"maxQueues":1"#).status, 200);
    assert_eq!(grant(&mut client, OTHER, r#","enabled":false"#).status, 200);
    node.kill();

    let node = start(&folder);
    let mut client = Client::connect(node.address);
    let granted = quota(&mut client, ONE);
    assert_eq!((&granted["enabled"], &granted["maxBytes"], &granted["maxQueues"]), (&true.into(), &4.into(), &1.into()), "{granted}");
    assert_eq!(client.ask(of(ONE, &push_of("q", 4))).status, 201);
    client.ask(of(ONE, &push_of("q", 1))).assert_failure(403, "ephemeral_quota_exceeded");
    client.ask(of(OTHER, &push_of("q", 1))).assert_failure(403, "feature_gated");
}
