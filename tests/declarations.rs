//! What was declared survives: restarts, kills at any moment, damaged files, a disk that does not take it.

mod process;

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use process::client::{Client, get, pop, post, push};
use process::{Node, mayfly, run, serve, unused_folder};

const CONFIGURE: &str = "/api/v1/ephemeral/configure";

fn configure(queue: &str, max_length: u64) -> String {
    post(CONFIGURE, &format!(r#"{{"queue":"{queue}","options":{{"maxLength":{max_length},"ttlSeconds":{}}}}}"#, max_length + 1))
}

fn delete(queue: &str) -> String {
    format!("DELETE /api/v1/ephemeral/queue/{queue} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// A node that leaves its data where it is.
fn start_in(folder: &Path) -> Node {
    let mut command = serve(2, &[]);
    command.env("MAYFLY_DATA_DIR", folder);
    let mut node = Node::start(command);
    node.keep_folder();
    node
}

/// What is declared: maxLength and ttlSeconds by name.
fn declared(client: &mut Client) -> Vec<(String, u64, u64)> {
    let listing = client.ask(get("/api/v1/ephemeral/queues")).json();
    let rows = listing["queues"].as_array().expect("queues").iter().filter(|row| row["tier"] == "declared");
    let number = |row: &serde_json::Value, key: &str| row["options"][key].as_u64().expect("a number");
    rows.map(|row| (row["queue"].as_str().expect("a name").to_owned(), number(row, "maxLength"), number(row, "ttlSeconds"))).collect()
}

#[test]
fn a_restart_brings_declarations_back_configured_and_empty() {
    let folder = Folder::new();
    let node = start_in(&folder.0);
    let mut client = Client::connect(node.address);
    for (queue, length) in [("a", 7), ("b/c", 8), ("gone", 9), ("d", 1), ("d", 10)] {
        let answer = client.ask(configure(queue, length));
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.json()["options"]["maxLength"], length);
    }
    assert_eq!(client.ask(push("a", "Default", [1])).status, 201);
    let answer = client.ask(delete("gone")).json();
    assert_eq!((&answer["deleted"], &answer["declared"]), (&true.into(), &true.into()));
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    let node = start_in(&folder.0);
    let mut client = Client::connect(node.address);
    assert_eq!(declared(&mut client), [("a".to_owned(), 7, 8), ("b/c".to_owned(), 8, 9), ("d".to_owned(), 10, 11)]);
    for name in ["a", "b%2Fc", "d"] {
        assert!(client.ask(pop(name, "")).messages().is_empty());
    }
}

#[test]
fn the_delete_of_a_queue_that_is_not_declared_writes_nothing() {
    let node = Node::start(serve(2, &[]));
    let mut client = Client::connect(node.address);
    const FSYNCS: &str = "mayfly_control_fsync_seconds_count";
    let before = node.metric(&mut client, FSYNCS);
    assert_eq!(client.ask(push("q", "Default", [1])).status, 201);
    let answer = client.ask(delete("q")).json();
    assert_eq!((&answer["deleted"], &answer["declared"]), (&true.into(), &false.into()));
    assert_eq!(client.ask(delete("q")).json()["deleted"], false);
    assert_eq!(node.metric(&mut client, FSYNCS), before);
    assert_eq!(client.ask(configure("q", 5)).status, 201);
    assert_eq!(node.metric(&mut client, FSYNCS), before + 1);
    assert_eq!(client.ask(delete("q")).json()["declared"], true);
}

/// What one client of a killed node knows of its queue.
struct Known {
    queue: String,
    /// Its last acknowledged length; 0: deleted, or never declared.
    acknowledged: u64,
    /// What it asked for and was not answered.
    doubtful: Option<u64>,
}

/// Configures and deletes a queue again and again until the node is gone.
fn change_until_killed(address: SocketAddr, known: &mut Known, round: u64) {
    let Ok(stream) = TcpStream::connect(address) else { return };
    let mut client = Client::over(stream);
    for step in 1.. {
        let length = if step % 4 == 0 { 0 } else { 1 + (round * 100 + step) % 9_000 };
        let request = if length == 0 { delete(&known.queue) } else { configure(&known.queue, length) };
        known.doubtful = Some(length);
        if client.stream.write_all(request.as_bytes()).is_err() {
            return;
        }
        let Ok(answer) = client.next(true) else { return };
        assert!(answer.status == 200 || answer.status == 201, "{answer:?}");
        (known.acknowledged, known.doubtful) = (length, None);
    }
}

/// Asserts that each queue is as its client was told last, or as it asked last; never half of one.
fn check_known(client: &mut Client, clients: &mut [Known], round: u64) {
    let rows = declared(client);
    for known in clients {
        let row = rows.iter().find(|(name, ..)| *name == known.queue);
        let length = row.map_or(0, |(_, length, _)| *length);
        assert!(row.is_none_or(|(_, length, ttl)| *ttl == length + 1), "round {round}: half of one: {row:?}");
        let is_known = length == known.acknowledged || Some(length) == known.doubtful;
        assert!(is_known, "round {round}: {} is {length}, told {}, asked {:?}", known.queue, known.acknowledged, known.doubtful);
        (known.acknowledged, known.doubtful) = (length, None);
    }
}

/// `MAYFLY_LONG=1` makes it 1,000 rounds.
#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    let rounds = if std::env::var_os("MAYFLY_LONG").is_some() { 1_000 } else { 25 };
    let folder = Folder::new();
    let mut clients: Vec<Known> = (0..6).map(|n| Known { queue: format!("q{n}"), acknowledged: 0, doubtful: None }).collect();
    for round in 0..rounds {
        let node = start_in(&folder.0);
        check_known(&mut Client::connect(node.address), &mut clients, round);
        let address = node.address;
        thread::scope(|scope| {
            for known in &mut clients {
                scope.spawn(move || change_until_killed(address, known, round));
            }
            // The moment of the kill: another each time.
            thread::sleep(Duration::from_micros(1_000 + (round * 7_919) % 40_000));
            node.kill();
        });
    }
    let node = start_in(&folder.0);
    check_known(&mut Client::connect(node.address), &mut clients, rounds);
}

/// A folder that goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(unused_folder())
    }

    /// With declarations, of a node that was killed.
    fn written(count: u64) -> Self {
        let folder = Self::new();
        let node = start_in(&folder.0);
        let mut client = Client::connect(node.address);
        for number in 0..count {
            assert_eq!(client.ask(configure(&format!("q{number}"), number + 1)).status, 201);
        }
        node.kill();
        folder
    }

    fn log_file(&self) -> PathBuf {
        let files = fs::read_dir(self.0.join("log")).expect("a log").map(|entry| entry.expect("an entry").path());
        files.filter(|path| path.extension().is_some_and(|kind| kind == "raftlog")).max().expect("a file")
    }

    /// The last line of a node that does not start in a copy of it.
    fn refusal(&self) -> String {
        let copy = unused_folder();
        assert!(Command::new("cp").arg("-r").args([&self.0, &copy]).status().expect("cp runs").success());
        let mut command = mayfly();
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("MAYFLY_DATA_DIR", copy);
        let ended = run(command);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        ended.stderr.lines().last().expect("a line").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn name_of(file: &Path) -> String {
    file.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn a_damaged_log_is_never_started_with_less_than_was_acknowledged() {
    let folder = Folder::written(40);
    let file = folder.log_file();
    let whole = fs::read(&file).expect("the log");
    let length = whole.iter().rposition(|byte| *byte != 0).expect("entries") + 1;
    for step in 1..8 {
        let at = length * step / 8;
        fs::write(&file, &whole[..at]).expect("cut");
        let line = folder.refusal();
        assert!(line.contains(&name_of(&file)) && line.contains("damaged"), "cut at {at}: {line}");
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        fs::write(&file, &flipped).expect("flipped");
        let line = folder.refusal();
        assert!(line.contains(&name_of(&file)) && line.contains("damaged"), "flipped at {at}: {line}");
    }
    fs::remove_file(&file).expect("removed");
    assert!(folder.refusal().contains("acknowledged"));
    fs::write(&file, &whole).expect("restored");
    let node = start_in(&folder.0);
    assert_eq!(declared(&mut Client::connect(node.address)).len(), 40);
}

#[test]
fn a_torn_end_that_nobody_was_told_of_is_dropped_and_said() {
    let folder = Folder::written(5);
    let file = folder.log_file();
    let mut text = fs::read(&file).expect("the log");
    let length = text.iter().rposition(|byte| *byte != 0).expect("entries") + 1;
    text.truncate(length);
    // A write that did not come to its end leaves something that is no entry.
    text.extend_from_within(length - 60..length - 20);
    fs::write(&file, &text).expect("torn");
    let node = start_in(&folder.0);
    assert_eq!(declared(&mut Client::connect(node.address)).len(), 5);
    let is_said = |line: &str| line.contains("WARN") && line.contains(&name_of(&file));
    assert!(node.log().lines().any(is_said), "{}", node.log());
}

#[test]
fn a_folder_of_somebody_else_is_refused() {
    let folder = Folder::new();
    let refused = || {
        let mut command = mayfly();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&folder.0);
        let ended = run(command);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
        ended.stderr
    };
    let node = start_in(&folder.0);
    assert!(refused().contains("in use by another node"));
    node.kill();
    fs::write(folder.0.join("node"), "mayfly data 1\nnode 2\n").expect("written");
    assert!(refused().contains("that of node 2"));
    fs::remove_file(folder.0.join("node")).expect("removed");
    assert!(refused().contains("no node's"));
    fs::remove_dir_all(&folder.0).expect("removed");
    fs::write(&folder.0, "a file").expect("written");
    assert!(refused().contains("--data-dir"));
    fs::remove_file(&folder.0).expect("removed");
}

/// A small file system of its own, unmounted with this.
struct Disk(PathBuf);

impl Disk {
    fn mount() -> Self {
        let folder = unused_folder();
        fs::create_dir_all(&folder).expect("a folder");
        mount(&["-t", "tmpfs", "-o", "size=24m", "mayfly-test"], &folder);
        Self(folder)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

fn mount(arguments: &[&str], folder: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(folder).status().expect("mount runs");
    assert!(mounted.success(), "this test mounts a tmpfs and needs root");
}

/// Declares until that is refused, asserts that messages flow, and that declarations are taken again once `mend` was called.
#[track_caller]
fn assert_recovers(client: &mut Client, mend: impl FnOnce()) {
    let deadline = Instant::now() + Duration::from_secs(20);
    // As large as they may be, and nothing that can be compressed: numbers by lot.
    let mut digits = 1_u64;
    for number in 0.. {
        let spelled = |_| {
            digits = digits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:09}", (digits >> 33) % 1_000_000_000)
        };
        let length: String = (0..400).map(spelled).collect();
        let answer = client.ask(post(CONFIGURE, &format!(r#"{{"queue":"big{number}","options":{{"maxLength":{length}}}}}"#)));
        if answer.status == 503 {
            answer.assert_failure(503, "ephemeral_unavailable");
            assert_eq!(answer.header("retry-after"), Some("1"));
            break;
        }
        assert_eq!(answer.status, 201, "{answer:?}");
        assert!(Instant::now() < deadline, "never refused");
    }
    assert_eq!(client.ask(push("flow", "Default", [1, 2])).status, 201);
    assert_eq!(client.ask(pop("flow", "&batch=2&autoAck=true")).messages().len(), 2);
    mend();
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.ask(configure("after", 77)).status != 201 {
        assert!(Instant::now() < deadline, "never taken again");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_disk_that_is_full_or_broken_refuses_declarations_alone_until_it_recovers() {
    let disk = Disk::mount();
    let folder = disk.0.join("data");
    let node = start_in(&folder);
    let mut client = Client::connect(node.address);
    assert_eq!(client.ask(configure("before", 66)).status, 201);
    let hog = disk.0.join("hog");
    // What fits of it.
    let _ = fs::write(&hog, vec![1; 24 << 20]);
    assert_recovers(&mut client, || fs::remove_file(&hog).expect("removed"));
    node.kill();
    let node = start_in(&folder);
    let rows = declared(&mut Client::connect(node.address));
    assert!(rows.contains(&("before".to_owned(), 66, 67)) && rows.contains(&("after".to_owned(), 77, 78)), "{rows:?}");
}

#[test]
fn concurrent_declarations_share_an_fsync() {
    let node = Node::start(serve(2, &[]));
    let mut client = Client::connect(node.address);
    let before = node.metric(&mut client, "mayfly_control_fsync_seconds_count");
    thread::scope(|scope| {
        for number in 0..16 {
            let address = node.address;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for step in 0..40 {
                    assert_eq!(client.ask(configure(&format!("s{number}"), step + 1)).status, 201);
                }
            });
        }
    });
    let fsyncs = node.metric(&mut client, "mayfly_control_fsync_seconds_count") - before;
    assert!(fsyncs < 16 * 40, "{fsyncs} fsyncs for 640 declarations");
    assert_eq!(node.metric(&mut client, "mayfly_control_declarations"), 16);
}

/// What strace says of a node's threads, while it runs.
struct Trace(std::process::Child, PathBuf);

impl Trace {
    fn of(node: &Node) -> Self {
        let out = unused_folder();
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-e", "trace=fsync,fdatasync", "-o"]).arg(&out);
        let child = command.args(["-p", &node.pid().to_string()]).stderr(std::process::Stdio::piped()).spawn().expect("strace runs");
        Self(child, out)
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.1).unwrap_or_default()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_file(&self.1);
    }
}

#[test]
fn the_disk_has_confirmed_a_declaration_before_it_is_answered() {
    let node = Node::start(serve(1, &[]));
    let mut client = Client::connect(node.address);
    let trace = Trace::of(&node);
    let deadline = Instant::now() + Duration::from_secs(10);
    while trace.text().is_empty() {
        assert!(Instant::now() < deadline, "strace did not attach");
        assert_eq!(client.ask(configure("early", 1)).status, 201);
    }
    for number in 0..5 {
        let count =
            |text: &str| text.lines().filter(|line| line.contains("sync(") && line.contains(".raftlog") && line.ends_with("= 0")).count();
        let before = count(&trace.text());
        assert_eq!(client.ask(configure(&format!("q{number}"), 1)).status, 201);
        // Written by strace before the call's thread went on, so before the answer.
        assert!(count(&trace.text()) > before, "no fsync before the answer\n{}", trace.text());
    }
}

#[test]
fn a_snapshot_replaces_a_long_log_and_a_restart_behind_it_knows_everything() {
    const EACH: u64 = 1_100;
    let folder = Folder::new();
    let node = start_in(&folder.0);
    let address = node.address;
    thread::scope(|scope| {
        for number in 0..16 {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for step in 1..=EACH {
                    assert_eq!(client.ask(configure(&format!("s{number}"), step)).status, 201);
                }
            });
        }
    });
    let mut client = Client::connect(node.address);
    for step in 1..=20 {
        assert_eq!(client.ask(configure("behind", step)).status, 201);
    }
    assert!(folder.0.join("snapshot").exists(), "{} entries and no snapshot", 16 * EACH);
    node.kill();
    let node = start_in(&folder.0);
    let rows = declared(&mut Client::connect(node.address));
    assert_eq!(rows.len(), 17);
    assert!(rows.iter().all(|(queue, length, _)| *length == if queue == "behind" { 20 } else { EACH }), "{rows:?}");
}
