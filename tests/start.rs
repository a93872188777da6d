//! How a node starts, and how it refuses to: one line with cause and remedy, exit 1, within a second.

mod process;

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use process::trials::holds_once;
use process::{Ended, Node, clean, mayfly, run};

const BINARY: &str = env!("CARGO_BIN_EXE_mayfly");
/// What a refusal may take.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// Asserts that the start is refused, by one line that says each of `says`, within a second, on top of what the same command takes for
/// its help text: a wrapper's own start and a busy machine are not the node's.
#[track_caller]
fn assert_refused(start: impl Fn() -> Command, says: &[&str]) {
    holds_once(|| {
        let mut helps = start();
        helps.arg("--help");
        let machine = run(helps).took;
        let ended = run(start());
        assert_refusal(&ended, says);
        if ended.took <= REFUSAL_MAX + machine { Ok(()) } else { Err(format!("{:?}, its help {machine:?}", ended.took)) }
    });
}

#[track_caller]
fn assert_refusal(ended: &Ended, says: &[&str]) {
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("mayfly: "), "{}", ended.stderr);
    for part in says {
        assert!(ended.stderr.contains(part), "{part:?} in {:?}", ended.stderr);
    }
}

/// A command that runs the node under `wrapper`.
fn wrapped(wrapper: &[&str], arguments: &[&str]) -> Command {
    let mut command = clean(Command::new(wrapper[0]));
    command.args(&wrapper[1..]).arg(BINARY).arg("serve").args(arguments);
    command
}

fn serve(arguments: &[&str]) -> Command {
    let mut command = mayfly();
    command.arg("serve").args(arguments);
    command
}

#[test]
fn a_setting_that_cannot_be_read_is_named() {
    assert_refused(|| serve(&["--spin-us", "soon"]), &["--spin-us: cannot read \"soon\"; expected whole microseconds"]);
    let by_environment = || {
        let mut command = serve(&[]);
        command.env("QUEEN_EPHEMERAL_MAX_BYTES", "much\nmore");
        command
    };
    assert_refused(by_environment, &["QUEEN_EPHEMERAL_MAX_BYTES: cannot read \"much\\nmore\"; expected bytes"]);
}

#[test]
fn settings_of_a_cluster_that_do_not_go_together_are_named() {
    assert_refused(|| serve(&["--peers", "1=a:1"]), &["--node-id is missing"]);
    assert_refused(|| serve(&["--peers", "1=a:1", "--node-id", "1"]), &["--cluster-secret-file is missing"]);
    assert_refused(|| serve(&["--peers", "2=a:1", "--node-id", "1"]), &["--peers does not name node 1"]);
    let folder = process::unused_folder();
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("secret");
    let with_secret = || {
        let mut command = serve(&["--listen", "127.0.0.1:0", "--peers", "1=127.0.0.1:1", "--node-id", "1", "--cluster-secret-file"]);
        command.arg(&file);
        command
    };
    assert_refused(with_secret, &["--cluster-secret-file", "secret", "No such file"]);
    std::fs::write(&file, "fifteen bytes..\n").expect("written");
    // The file is readable by others too, which is said on a line before.
    let ended = run(with_secret());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("chmod 600") && ended.stderr.contains("less than 16 bytes"), "{}", ended.stderr);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_cpu_that_is_not_allowed_is_named() {
    assert_refused(|| serve(&["--cpus", "0,1000"]), &["--cpus names CPU 1000", "expected CPUs of"]);
}

#[test]
fn shards_that_cannot_be_pinned_are_refused() {
    assert_refused(|| serve(&["--shards", "256", "--pin", "on"]), &["--shards 256 cannot be pinned", "--pin off"]);
}

#[test]
fn a_usage_error_is_exit_2_and_help_is_exit_0() {
    assert_eq!(run(serve(&["--no-such-flag"])).code, Some(2));
    assert_eq!(run(mayfly()).code, Some(2));
    let mut help = mayfly();
    help.arg("--help");
    assert_eq!(run(help).code, Some(0));
}

#[test]
fn a_taken_port_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = holder.local_addr().expect("its address").to_string();
    assert_refused(|| serve(&["--listen", &address]), &[&address, "--listen"]);
}

#[test]
fn two_nodes_never_share_a_port() {
    let node = Node::start(serve(&["--shards", "1"]));
    let address = node.address.to_string();
    assert_refused(|| serve(&["--listen", &address]), &[&address, "--listen"]);
    assert!(node.is_healthy());
}

#[test]
fn refused_io_uring_is_named() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/without_io_uring.py");
    assert_refused(|| wrapped(&["python3", script], &["--listen", "127.0.0.1:0"]), &["io_uring", "seccomp"]);
}

#[test]
fn a_small_memlock_limit_is_named() {
    let small = ["bash", "-c", "ulimit -l 64 && exec \"$@\"", "bash"];
    assert_refused(|| wrapped(&small, &["--listen", "127.0.0.1:0"]), &["locked memory", "ulimit -l"]);
}

#[test]
fn too_few_open_files_are_named() {
    let few = ["bash", "-c", "ulimit -n 60 && exec \"$@\"", "bash"];
    assert_refused(|| wrapped(&few, &["--listen", "127.0.0.1:0"]), &["open files", "ulimit -n"]);
}

#[test]
fn a_node_says_where_it_serves_and_stops_at_sigterm() {
    let node = Node::start(serve(&["--shards", "2", "--log-format", "json"]));
    let address = node.address;
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    let line = log.lines().find(|line| line.contains("mayfly serves")).unwrap_or_else(|| panic!("no banner in {log}"));
    for part in
        [&format!("\"address\":\"{address}\""), "\"shards\":2", "\"epoch\":0", "\"incarnation\":", "\"memory_bound_bytes\":268435456"]
    {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn a_node_serves_on_whichever_cpu_it_is_given() {
    let allowed = std::fs::read_to_string("/proc/self/status").expect("status");
    let list = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let last = list.rsplit([',', '-']).next().expect("a CPU");
    let node = Node::start(wrapped(&["taskset", "-c", last], &[]));
    assert!(node.is_healthy());
}

#[test]
fn a_node_serves_for_an_ordinary_user() {
    let is_root = std::fs::read_to_string("/proc/self/status").expect("status").contains("\nUid:\t0\t");
    if !is_root {
        // Every other test of this file runs as an ordinary user then.
        return;
    }
    let folder = std::env::temp_dir().join(format!("mayfly-ordinary-user-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let copy = folder.join("mayfly");
    std::fs::copy(BINARY, &copy).expect("a copy that the user may run");
    let mut command = clean(Command::new("setpriv"));
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]).arg(&copy).arg("serve");
    let node = Node::start(command);
    assert!(node.is_healthy());
    drop(node);
    std::fs::remove_dir_all(&folder).expect("removed");
}
