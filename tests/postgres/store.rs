//! The store alone: what it writes, what it takes over, and what it says when the server is out of reach.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use mayfly::control::change::{Change, Grant};
use mayfly::control::state::State;
use mayfly::control::store::{WRITE_SPAN, Write};
use mayfly_shards::Tenant;

use super::core::{Core, LATE_MAX, SOON, declared, queue, ttl_options};
use super::process::trials::holds_once;
use super::proxy::Proxy;
use super::server::{Server, url};

const ROWS: &str = "SELECT queue, options, version FROM mayfly.ephemeral_queues ORDER BY queue";
/// How soon the store is to find a server that came back.
const RECOVERY_MAX: Duration = Duration::from_secs(10);

#[test]
fn rows_are_written_first_and_read_back_by_whoever_comes_next() {
    let server = Server::start();
    let mut core = Core::attached(&server.url(), State::default());
    assert!(core.configure("a", 1) && core.configure("b", 2) && core.configure("a", 3) && core.delete("b") && core.delete("never"));
    assert!(core.configure("Ünï/\u{1f41d} \"q\"", 9));
    assert!(server.sql(ROWS).starts_with("a|{\"ttlSeconds\": 3}|"), "{}", server.sql(ROWS));
    let grant =
        Grant { is_enabled: true, bytes_max: Some(u64::MAX >> 1), queues_max: Some(2), messages_per_second_max: None, parked_max: None };
    assert!(core.grant(Tenant(7), Some(grant)) && core.grant(Tenant(8), Some(grant)) && core.grant(Tenant(8), None));
    assert_eq!(
        server.sql("SELECT enabled, max_bytes, max_queues, max_msgs_per_sec FROM mayfly.ephemeral_quota"),
        "t|9223372036854775807|2|"
    );
    let blank = Core::attached(&server.url(), State::default());
    assert_eq!((blank.ttl("a"), blank.ttl("b"), blank.ttl("Ünï/\u{1f41d} \"q\"")), (Some(3), None, Some(9)));
    assert_eq!((blank.state.grant(Tenant(7)), blank.state.grant(Tenant(8))), (Some(&grant), None));
    // Which is the cluster's that was there first.
    assert_eq!(blank.state.cluster(), core.state.cluster());
    assert!(blank.state.cluster().is_some());
}

#[test]
fn rows_of_no_cluster_are_filled_from_the_log_and_anothers_are_refused() {
    let server = Server::start();
    // Versions of another server mean nothing here, but new ones have to be higher.
    let mut core = Core::attached(&server.url(), declared(&[("a", 1, None), ("b", 2, Some(500))]));
    let filled = server.sql("SELECT queue, options, version > 500 FROM mayfly.ephemeral_queues ORDER BY queue");
    assert_eq!(filled, "a|{\"ttlSeconds\": 1}|t\nb|{\"ttlSeconds\": 2}|t");
    assert!(core.configure("b", 3));
    let mut stranger = Core::start(&server.url(), declared(&[("c", 1, None)]));
    stranger.until("refused", SOON, |core| core.reason.contains("belongs to cluster"));
    assert_eq!(server.sql("SELECT count(*) FROM mayfly.ephemeral_queues"), "2");
}

#[test]
fn rows_changed_by_hand_win_when_the_store_comes_back() {
    let server = Server::start();
    let mut core = Core::attached(&server.url(), State::default());
    for name in ["edited", "vanished", "kept", "spoiled"] {
        assert!(core.configure(name, 1));
    }
    let state = core.state.clone();
    drop(core);
    server.sql(
        "UPDATE mayfly.ephemeral_queues SET options = '{\"ttlSeconds\": 2}', updated_at = '2001-01-01' WHERE queue = 'edited';
         UPDATE mayfly.ephemeral_queues SET options = '{\"ttl\": 2}' WHERE queue = 'spoiled';
         DELETE FROM mayfly.ephemeral_queues WHERE queue = 'vanished';
         INSERT INTO mayfly.ephemeral_queues (tenant_id, queue, options, updated_at)
           VALUES ('00000000-0000-0000-0000-000000000001', 'added', '{\"ttlSeconds\": 4}', '2001-01-01'),
                  ('00000000-0000-0000-0000-000000000001', 'no declaration', '[]', now()),
                  ('00000000-0000-0000-0000-000000000001', '', '{}', now());
         INSERT INTO mayfly.ephemeral_quota (tenant_id, max_bytes) VALUES ('00000000-0000-0000-0000-000000000007', -1)",
    );
    let mut core = Core::attached(&server.url(), state);
    let ttls = ["edited", "vanished", "kept", "spoiled", "added", "no declaration"].map(|name| core.ttl(name));
    assert_eq!(ttls, [Some(2), None, Some(1), Some(1), Some(4), None]);
    core.misfits.sort();
    let of_queues = "mayfly.ephemeral_queues (00000000-0000-0000-0000-000000000001, ";
    assert_eq!(core.misfits.len(), 4, "{:?}", core.misfits);
    assert!(core.misfits[0].starts_with(&format!("{of_queues}\"\")")) && core.misfits[1].starts_with(&format!("{of_queues}\"no decl")));
    assert!(core.misfits[2].starts_with(&format!("{of_queues}\"spoiled\")")) && core.misfits[3].starts_with("mayfly.ephemeral_quota (000"));
    // Left alone, and mended by whoever configures.
    assert_eq!(server.sql("SELECT count(*) FROM mayfly.ephemeral_queues"), "6");
    assert!(core.configure("spoiled", 5));
    assert_eq!(server.sql("SELECT options FROM mayfly.ephemeral_queues WHERE queue = 'spoiled'"), "{\"ttlSeconds\": 5}");
}

#[test]
fn a_table_that_was_there_gets_what_it_lacks() {
    let server = Server::start();
    server.sql(
        "CREATE SCHEMA mayfly;
         CREATE TABLE mayfly.ephemeral_queues (tenant_id uuid NOT NULL, queue text NOT NULL, note text,
           options jsonb NOT NULL DEFAULT '{}', updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (tenant_id, queue));
         CREATE TABLE mayfly.ephemeral_quota (tenant_id uuid PRIMARY KEY, enabled boolean NOT NULL DEFAULT true, max_bytes bigint,
           max_queues integer, max_msgs_per_sec integer);
         INSERT INTO mayfly.ephemeral_queues VALUES ('00000000-0000-0000-0000-000000000001', 'a', 'mine', '{\"ttlSeconds\": 1}', '2001-01-01');
         INSERT INTO mayfly.ephemeral_quota VALUES ('00000000-0000-0000-0000-000000000007', true, 5, 6, 7)",
    );
    let mut core = Core::attached(&server.url(), State::default());
    assert_eq!(core.ttl("a"), Some(1));
    assert_eq!(core.state.grant(Tenant(7)).and_then(|grant| grant.messages_per_second_max), Some(7));
    assert!(core.configure("a", 2));
    assert_eq!(server.sql("SELECT note, options, version > 0 FROM mayfly.ephemeral_queues"), "mine|{\"ttlSeconds\": 2}|t");
}

#[test]
fn a_database_out_of_an_older_copy_loses_no_later_configure() {
    let server = Server::start();
    let mut core = Core::attached(&server.url(), State::default());
    assert!(core.configure("a", 1));
    server.sql("CREATE TABLE older AS SELECT * FROM mayfly.ephemeral_queues");
    assert!(core.configure("a", 2) && core.configure("a", 3));
    let state = core.state.clone();
    drop(core);
    server.sql(
        "ALTER TABLE mayfly.ephemeral_queues DISABLE TRIGGER ALL; DELETE FROM mayfly.ephemeral_queues;
         INSERT INTO mayfly.ephemeral_queues SELECT * FROM older; ALTER TABLE mayfly.ephemeral_queues ENABLE TRIGGER ALL;
         SELECT setval('mayfly.row_version', 1)",
    );
    let mut core = Core::attached(&server.url(), state);
    assert_eq!(core.ttl("a"), Some(3));
    assert_eq!(server.sql("SELECT options FROM mayfly.ephemeral_queues"), "{\"ttlSeconds\": 3}");
    assert!(core.configure("a", 4));
}

#[test]
fn several_first_starts_at_once_agree_on_one_schema_and_cluster() {
    let server = Server::start();
    let url = server.url();
    let barrier = Barrier::new(4);
    let clusters: Vec<_> = thread::scope(|scope| {
        let start = || {
            barrier.wait();
            let mut core = Core::attached(&url, State::default());
            assert!(core.configure(&format!("{:?}", thread::current().id()), 1));
            core.state.cluster()
        };
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().expect("attached")).collect()
    });
    assert!(clusters[0].is_some() && clusters.iter().all(|cluster| *cluster == clusters[0]), "{clusters:?}");
    assert_eq!(server.sql("SELECT count(*) FROM mayfly.ephemeral_queues"), "4");
}

#[test]
fn a_server_that_was_down_or_killed_is_found_again() {
    let mut server = Server::prepare();
    let mut core = Core::start(&server.url(), declared(&[("a", 1, None)]));
    core.until("refused", SOON, |core| core.reason.contains("refused"));
    assert!(!core.configure("b", 2) && !core.delete("a"));
    server.resume();
    core.until("attached", RECOVERY_MAX, |core| core.is_attached);
    assert!(core.configure("b", 2));
    server.kill();
    core.until("detached", SOON, |core| !core.is_attached);
    assert!(!core.configure("b", 3));
    server.resume();
    core.until("attached", RECOVERY_MAX, |core| core.is_attached);
    assert_eq!(core.ttl("b"), Some(2));
    assert!(core.configure("b", 3));
}

#[test]
fn a_server_that_only_reads_refuses_writes_until_it_does_not() {
    let server = Server::start();
    let mut core = Core::attached(&server.url(), State::default());
    assert!(core.configure("a", 1));
    let switch = |to: &str| {
        let alter = format!("ALTER SYSTEM SET default_transaction_read_only = {to}");
        let mut psql = server.psql();
        psql.stdout(std::process::Stdio::null());
        psql.args(["-c", "SET default_transaction_read_only = off", "-c", &alter, "-c", "SELECT pg_reload_conf()"]);
        assert!(psql.status().expect("psql runs").success());
    };
    switch("on");
    // A session takes the setting between two statements.
    let deadline = Instant::now() + SOON;
    while core.configure("a", 2) {
        assert!(Instant::now() < deadline);
    }
    assert!(core.is_attached, "{}", core.reason);
    // A node that starts meanwhile reads all the same.
    let mut late = Core::attached(&server.url(), State::default());
    assert_eq!(late.ttl("a"), core.ttl("a"));
    assert!(!late.delete("a"));
    switch("off");
    let deadline = Instant::now() + RECOVERY_MAX;
    while !core.configure("a", 3) {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(core.ttl("a"), Some(3));
}

#[test]
fn a_locked_table_fails_one_write_after_another_in_time() {
    let server = Server::start();
    let mut core = Core::attached(&server.url(), State::default());
    let lock = "BEGIN; LOCK TABLE mayfly.ephemeral_queues; SELECT pg_sleep(60)";
    let mut locker = server.psql().arg("-c").arg(lock).stderr(std::process::Stdio::null()).spawn().expect("psql runs");
    let is_locked =
        "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND relation = 'mayfly.ephemeral_queues'::regclass";
    let deadline = Instant::now() + SOON;
    while server.sql(is_locked) != "1" {
        assert!(Instant::now() < deadline, "not locked");
    }
    // All at once, some together and some one after the other: each is answered in time, none is left over.
    let asked_at = Instant::now();
    let names = (0..2_000).map(|number| if number % 2 == 0 { "a".to_owned() } else { format!("a{}", number % 100) });
    let tickets: Vec<_> = names.filter_map(|name| core.ask(Write::Declare { queue: queue(&name), options: ttl_options(1) })).collect();
    assert_eq!(tickets.len(), 2_000);
    core.until("answered", WRITE_SPAN + LATE_MAX, |core| core.answered(&tickets) == tickets.len());
    assert!(asked_at.elapsed() <= WRITE_SPAN + LATE_MAX);
    assert!(!core.configure("a", 1) && core.is_attached, "{}", core.reason);
    let pid = server.sql("SELECT pid FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%'");
    server.sql(&format!("SELECT pg_terminate_backend({pid})"));
    let _ = locker.wait();
    assert!(core.configure("a", 2));
    assert_eq!(server.sql("SELECT options FROM mayfly.ephemeral_queues"), "{\"ttlSeconds\": 2}");
}

#[test]
fn a_server_that_hangs_holds_nobody_and_what_it_gets_too_late_never_happens() {
    let server = Server::start();
    let proxy = Proxy::to(server.address());
    let mut core = Core::attached(&url(proxy.port, super::server::PASSWORD), State::default());
    assert!(core.configure("a", 1));
    proxy.stop();
    let asked_at = Instant::now();
    assert!(!core.configure("a", 2));
    assert!(asked_at.elapsed() <= WRITE_SPAN + LATE_MAX, "{:?}", asked_at.elapsed());
    core.until("detached", SOON, |core| !core.is_attached);
    // A server that is known to be away is not waited for.
    holds_once(|| {
        let asked_at = Instant::now();
        assert!(!core.configure("a", 2));
        let took = asked_at.elapsed();
        if took < WRITE_SPAN / 4 { Ok(()) } else { Err(format!("{took:?}")) }
    });
    proxy.open();
    core.until("attached", RECOVERY_MAX, |core| core.is_attached);
    // The write that hung has come to the server by now, and was late.
    assert!(core.configure("b", 7));
    assert_eq!(server.sql("SELECT queue, options->'ttlSeconds' FROM mayfly.ephemeral_queues ORDER BY queue"), "a|1\nb|7");
    assert_eq!(core.ttl("a"), Some(1));
}

#[test]
fn a_schema_that_was_dropped_is_made_anew_and_what_was_declared_stays() {
    let server = Server::start();
    let mut core = Core::attached(&server.url(), State::default());
    assert!(core.configure("a", 1));
    server.sql("DROP SCHEMA mayfly CASCADE");
    assert!(!core.configure("b", 2));
    core.until("detached", SOON, |core| !core.is_attached);
    core.until("attached", RECOVERY_MAX, |core| core.is_attached);
    assert!(core.configure("b", 2));
    assert_eq!(server.sql("SELECT queue FROM mayfly.ephemeral_queues ORDER BY queue"), "a\nb");
}

#[test]
fn many_declarations_fill_the_rows_at_once() {
    let server = Server::start();
    let mut state = State::default();
    for number in 0..5_000 {
        let Some((_, declaration)) = declared(&[("x", number, None)]).declarations().next().map(|(name, of)| (name.clone(), of.clone()))
        else {
            panic!()
        };
        state.apply(&Change::Declare { queue: queue(&format!("q{number}")), declaration });
    }
    let core = Core::attached(&server.url(), state);
    assert_eq!(server.sql("SELECT count(*), sum((options->>'ttlSeconds')::int) FROM mayfly.ephemeral_queues"), "5000|12497500");
    assert!(core.state.declarations().all(|(_, declaration)| declaration.version.is_some()));
}

#[test]
fn rows_are_read_every_half_minute() {
    let server = Server::start();
    let mut core = Core::attached(&server.url(), declared(&[("a", 1, None)]));
    let since = Instant::now();
    server.sql("UPDATE mayfly.ephemeral_queues SET options = '{\"ttlSeconds\": 8}'");
    core.until("read", Duration::from_secs(35), |core| core.ttl("a") == Some(8));
    assert!(since.elapsed() > Duration::from_secs(20), "{:?}: by another reading", since.elapsed());
}
