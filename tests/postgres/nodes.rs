//! Whole nodes: what their clients see while PostgreSQL is there, goes, hangs and comes back.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::process::client::{Answer, Client, get, pop, post, push};
use super::process::trials::holds_once;
use super::process::{Node, serve};
use super::proxy::Proxy;
use super::server::{PASSWORD, Server, url};

/// How soon a node is to find a server that came back.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// A configure's answer is there by then, whatever the server does: two seconds, and some for a busy machine; two that waited one after the
/// other would take longer.
const ANSWER_MAX: Duration = Duration::from_millis(3_900);
/// A push, pop or ack that waited for PostgreSQL would take longer than this, each time.
const UNTOUCHED_MAX: Duration = Duration::from_millis(900);
const POLL_EVERY: Duration = Duration::from_millis(20);

fn node(url: &str) -> Node {
    Node::start(serve(2, &["--postgres", url]))
}

fn configure(client: &mut Client, queue: &str, options: &str) -> Answer {
    client.ask(post("/api/v1/ephemeral/configure", &format!(r#"{{"queue":"{queue}","options":{options}}}"#)))
}

#[track_caller]
fn assert_unavailable(answer: &Answer) {
    answer.assert_failure(503, "ephemeral_unavailable");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

/// Asks again until it is so.
#[track_caller]
fn until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "not {what} within {limit:?}");
        thread::sleep(POLL_EVERY);
    }
}

/// A queue's entry among the status reads, when there is one.
fn status(client: &mut Client, queue: &str) -> Option<serde_json::Value> {
    let queues = client.ask(get("/api/v1/ephemeral/queues")).json();
    queues["queues"].as_array().expect("queues").iter().find(|of| of["queue"] == queue).cloned()
}

/// What a node's clients do all the time, each step answered and none late.
#[track_caller]
fn push_pop_ack(client: &mut Client, queue: &str) {
    holds_once(|| {
        let began = Instant::now();
        assert_eq!(client.ask(push(queue, "Default", [1])).status, 201);
        let message = client.ask(pop(queue, "")).messages().pop().expect("a message");
        let acks = format!(r#"{{"queue":"{queue}","acks":[{{"id":{}}}]}}"#, message["id"]);
        let acked = client.ask(post("/api/v1/ephemeral/ack", &acks)).json();
        assert_eq!(acked["results"][0]["outcome"], "acked");
        let took = began.elapsed();
        if took < UNTOUCHED_MAX { Ok(()) } else { Err(format!("{took:?}")) }
    });
}

/// Makes the node read all rows: its session ends, it attaches anew.
fn read_rows_now(server: &Server) {
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mayfly'");
}

#[test]
fn a_node_starts_while_postgres_is_down_and_finds_it_later() {
    let mut server = Server::prepare();
    let node = node(&server.url());
    let mut client = Client::connect(node.address);
    assert!(node.log().contains("starts with the declarations of its own log"), "{}", node.log());
    assert_unavailable(&configure(&mut client, "q", "{}"));
    assert_unavailable(&client.ask("DELETE /api/v1/ephemeral/queue/q HTTP/1.1\r\nHost: h\r\n\r\n"));
    // Refused after all else: what is wrong is said first.
    configure(&mut client, "q", r#"{"ttl":1}"#).assert_failure(400, "ephemeral_bad_request");
    push_pop_ack(&mut client, "q");
    server.resume();
    until("configured", RECOVERY_MAX, || configure(&mut client, "q", r#"{ "ttlSeconds" : 7 }"#).status == 201);
    assert_eq!(server.sql("SELECT options FROM mayfly.ephemeral_queues"), "{\"ttlSeconds\": 7}");
    let log = node.log();
    assert!(log.contains("is reached again") && !log.contains(PASSWORD), "{log}");
    assert_eq!(log.matches("Connection refused").count(), 1, "{log}");
}

#[test]
fn a_configure_is_echoed_as_it_was_spelled_and_a_restart_brings_the_rows() {
    let server = Server::start();
    let first = node(&server.url());
    let mut client = Client::connect(first.address);
    let options = r#"{ "ttl\u0053econds" : 7, "maxLength":null, "windowBuffer" : {} }"#;
    let answer = configure(&mut client, "kept", options);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains(options), "{answer:?}");
    for name in ["edited", "vanished", "deleted"] {
        assert_eq!(configure(&mut client, name, r#"{"maxLength":5}"#).status, 201);
    }
    let deleted = client.ask("DELETE /api/v1/ephemeral/queue/deleted HTTP/1.1\r\nHost: h\r\n\r\n").json();
    assert_eq!((&deleted["deleted"], &deleted["declared"]), (&true.into(), &true.into()), "{deleted}");
    drop(first);
    server.sql(
        "UPDATE mayfly.ephemeral_queues SET options = '{\"maxLength\": 6}' WHERE queue = 'edited';
         DELETE FROM mayfly.ephemeral_queues WHERE queue = 'vanished'",
    );
    let second = node(&server.url());
    let mut client = Client::connect(second.address);
    let kept = status(&mut client, "kept").expect("declared");
    assert_eq!((&kept["tier"], &kept["options"]["ttlSeconds"]), (&"declared".into(), &7.into()), "{kept}");
    assert_eq!(status(&mut client, "edited").expect("declared")["options"]["maxLength"], 6);
    assert!(status(&mut client, "vanished").is_none() && status(&mut client, "deleted").is_none());
}

#[test]
fn rows_edited_by_hand_reach_the_queues_and_a_vanished_one_leaves_their_contents() {
    let server = Server::start();
    let node = node(&server.url());
    let mut client = Client::connect(node.address);
    assert_eq!(configure(&mut client, "q", r#"{"maxLength":5}"#).status, 201);
    assert_eq!(client.ask(push("q", "Default", [1, 2])).status, 201);
    server.sql(
        "DELETE FROM mayfly.ephemeral_queues WHERE queue = 'q';
         INSERT INTO mayfly.ephemeral_queues (tenant_id, queue, options) VALUES
           ('00000000-0000-0000-0000-000000000001', 'by hand', '{\"maxLength\": 3}'),
           ('00000000-0000-0000-0000-000000000001', 'bad', '{\"maxLength\": \"3\"}')",
    );
    read_rows_now(&server);
    until("declared", RECOVERY_MAX, || status(&mut client, "by hand").is_some_and(|of| of["options"]["maxLength"] == 3));
    until("implicit", RECOVERY_MAX, || status(&mut client, "q").is_some_and(|of| of["tier"] == "implicit"));
    assert_eq!(status(&mut client, "q").expect("it has messages")["depth"], 2);
    server.sql("UPDATE mayfly.ephemeral_queues SET options = '{\"maxLength\": 4}' WHERE queue = 'by hand'");
    read_rows_now(&server);
    until("redeclared", RECOVERY_MAX, || status(&mut client, "by hand").is_some_and(|of| of["options"]["maxLength"] == 4));
    let log = node.log();
    assert_eq!(log.matches("options.maxLength must be a non-negative integer").count(), 1, "{log}");
    assert!(status(&mut client, "bad").is_none());
}

#[test]
fn a_server_killed_under_load_costs_no_push_and_no_acknowledged_configure() {
    let mut server = Server::start();
    let node = node(&server.url());
    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<String> = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut client = Client::connect(node.address);
            while !is_over.load(Relaxed) {
                push_pop_ack(&mut client, "load");
            }
        });
        let configuring = scope.spawn(|| {
            let mut client = Client::connect(node.address);
            let (mut acknowledged, mut number) = (Vec::new(), 0);
            while !is_over.load(Relaxed) {
                number += 1;
                let name = format!("q{number}");
                let answer = configure(&mut client, &name, "{}");
                match answer.status {
                    201 => acknowledged.push(name),
                    _ => assert_unavailable(&answer),
                }
            }
            acknowledged
        });
        let mut client = Client::connect(node.address);
        until("configured", RECOVERY_MAX, || status(&mut client, "q20").is_some());
        server.kill();
        until("refused", RECOVERY_MAX, || configure(&mut client, "probe", "{}").status == 503);
        thread::sleep(Duration::from_millis(300));
        server.resume();
        until("configured again", RECOVERY_MAX, || configure(&mut client, "probe", "{}").status == 201);
        is_over.store(true, Relaxed);
        serving.join().expect("every push, pop and ack was answered in time");
        configuring.join().expect("every configure was answered")
    });
    let rows = server.sql("SELECT queue FROM mayfly.ephemeral_queues");
    let rows: std::collections::HashSet<&str> = rows.lines().collect();
    let mut client = Client::connect(node.address);
    let queues = client.ask(get("/api/v1/ephemeral/queues")).json();
    let declared: std::collections::HashSet<&str> = queues["queues"]
        .as_array()
        .expect("queues")
        .iter()
        .filter(|of| of["tier"] == "declared")
        .filter_map(|of| of["queue"].as_str())
        .collect();
    assert!(acknowledged.len() >= 20);
    for name in &acknowledged {
        assert!(rows.contains(name.as_str()) && declared.contains(name.as_str()), "{name} was acknowledged");
    }
    // A configure that was 503 may have happened: then it is so in both.
    assert_eq!(declared, rows);
}

#[test]
fn a_server_that_hangs_delays_configure_alone() {
    let server = Server::start();
    let proxy = Proxy::to(server.address());
    let node = node(&url(proxy.port, PASSWORD));
    let mut client = Client::connect(node.address);
    assert_eq!(configure(&mut client, "q", "{}").status, 201);
    proxy.stop();
    let address = node.address;
    thread::scope(|scope| {
        // More than may wait for the store at once.
        for group in 0..8 {
            scope.spawn(move || {
                let mut clients: Vec<_> = (0..100).map(|_| Client::connect(address)).collect();
                let began = Instant::now();
                for (number, client) in clients.iter_mut().enumerate() {
                    let body = format!(r#"{{"queue":"h{group}-{number}"}}"#);
                    client.send(post("/api/v1/ephemeral/configure", &body));
                }
                for client in &mut clients {
                    assert_unavailable(&client.answer());
                }
                assert!(began.elapsed() < ANSWER_MAX, "{:?}", began.elapsed());
            });
        }
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            push_pop_ack(&mut client, "q");
        }
    });
    proxy.open();
    until("configured", RECOVERY_MAX, || configure(&mut client, "q", r#"{"maxLength":9}"#).status == 201);
    assert_eq!(server.sql("SELECT queue, options FROM mayfly.ephemeral_queues"), "q|{\"maxLength\": 9}");
}

#[test]
fn a_wrong_password_leaves_the_node_to_its_log_until_it_is_mended() {
    let server = Server::start();
    let node = node(&url(server.port, "wr0ng-secret"));
    let mut client = Client::connect(node.address);
    assert_unavailable(&configure(&mut client, "q", "{}"));
    push_pop_ack(&mut client, "q");
    let log = node.log();
    assert!(log.contains("password authentication failed") && !log.contains("wr0ng-secret"), "{log}");
    server.sql("ALTER USER mayfly PASSWORD 'wr0ng-secret'");
    until("configured", RECOVERY_MAX, || configure(&mut client, "q", "{}").status == 201);
    assert_eq!(node.log().matches("password authentication failed").count(), 1);
}

#[test]
fn a_thousand_configures_at_once_are_all_done_with_rows_and_without() {
    const COUNT: usize = 1_000;
    let server = Server::start();
    for (what, arguments) in [("with rows", vec!["--postgres".to_owned(), server.url()]), ("alone", vec![])] {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let node = Node::start(serve(2, &arguments));
        let mut clients: Vec<_> = (0..COUNT).map(|_| Client::connect(node.address)).collect();
        // Some ask for the same queue: those are done one after the other.
        let body = |number: usize| format!(r#"{{"queue":"q{}","options":{{"maxLength":{}}}}}"#, number % 900, number + 1);
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(post("/api/v1/ephemeral/configure", &body(number)));
        }
        let refused = clients.iter_mut().map(|client| client.answer()).filter(|answer| answer.status != 201).count();
        assert_eq!(refused, 0, "{what}");
        let listed = clients[0].ask(get("/api/v1/ephemeral/queues?limit=1000")).json();
        assert_eq!(listed["count"], 900, "{what}");
    }
    assert_eq!(server.sql("SELECT count(*), count(DISTINCT version) FROM mayfly.ephemeral_queues"), "900|900");
}

#[test]
fn a_write_that_the_server_refuses_fails_alone_and_the_session_lives() {
    let server = Server::start();
    let node = node(&server.url());
    let mut client = Client::connect(node.address);
    let session = || server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'mayfly'");
    let before = session();
    server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.queue LIKE 'raises%' THEN RAISE EXCEPTION 'not this one'; END IF;
             IF NEW.queue LIKE 'divides%' THEN PERFORM 1 / 0; END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON mayfly.ephemeral_queues FOR EACH ROW EXECUTE FUNCTION refuse();
         ALTER TABLE mayfly.ephemeral_queues ADD CONSTRAINT short CHECK (length(queue) < 20)",
    );
    for queue in ["raises", "divides", "longer-than-twenty-letters"] {
        assert_unavailable(&configure(&mut client, queue, "{}"));
        assert_eq!(configure(&mut client, "good", "{}").status, 201);
    }
    // Among others that are good, at once: they are not to blame.
    let mut clients: Vec<_> = (0..50).map(|_| Client::connect(node.address)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let name = if number % 10 == 3 { "raises" } else { "good" };
        client.send(post("/api/v1/ephemeral/configure", &format!(r#"{{"queue":"{name}-{number}"}}"#)));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answer().status, if number % 10 == 3 { 503 } else { 201 }, "{number}");
    }
    assert_eq!(session(), before, "the same session");
    assert!(node.log().contains("not this one (SQLSTATE P0001)"), "{}", node.log());
}

#[test]
fn a_configure_says_the_time_of_its_row() {
    let server = Server::start();
    // By the server's clock it is another time: an hour later.
    server.sql("CREATE SCHEMA mayfly");
    let node = node(&server.url());
    server.sql(
        "CREATE OR REPLACE FUNCTION mayfly.stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             NEW.version := nextval('mayfly.row_version'); NEW.updated_at := clock_timestamp() + interval '1 hour'; RETURN NEW;
         END $$",
    );
    let mut client = Client::connect(node.address);
    let said = configure(&mut client, "q", "{}").json();
    let row = server.sql("SELECT to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') FROM mayfly.ephemeral_queues");
    assert_eq!(said["updatedAt"], row.as_str());
}
