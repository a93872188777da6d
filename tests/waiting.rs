//! Parked pops on a real node: who is woken, when they answer, what a client that leaves takes with it, and what waiting costs.
//!
//! Each test has the machine for itself: they measure time. What they measure is printed (`--nocapture`).

mod process;

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use process::client::{Client, pop, push};
use process::{Node, raise_open_files, serve};
use socket2::{Domain, Socket, Type};

/// Longest wait of a pop that is not meant to time out.
const LONG: &str = "&wait=true&timeout=60000";
/// How long a wake-up may take on a busy test machine.
const WAKE_MAX: Duration = Duration::from_secs(5);
/// How long one that must not be woken is watched.
const QUIET: Duration = Duration::from_millis(200);

/// Keeps the other tests of this file waiting.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(shards: usize) -> Node {
    raise_open_files();
    Node::start(serve(shards, &[]))
}

/// Waits until the node has exactly `count` parked pops: how long that took.
#[track_caller]
fn await_parked(node: &Node, control: &mut Client, count: u64) -> Duration {
    let started = Instant::now();
    loop {
        let parked = node.metric(control, "mayfly_waiters");
        if parked == count {
            return started.elapsed();
        }
        assert!(started.elapsed() < WAKE_MAX, "{parked} parked, not {count}");
        thread::yield_now();
    }
}

/// Parks `count` pops, each on a connection of its own, surely one after the other.
fn park_in_order(node: &Node, control: &mut Client, count: u64, request: &str) -> Vec<Client> {
    let park = |index| {
        let mut client = Client::connect(node.address);
        client.send(request);
        await_parked(node, control, index + 1);
        client.stream.set_nonblocking(true).expect("a socket");
        client
    };
    (0..count).map(park).collect()
}

/// Watches parked pops until `count` have answered, and then a while for one too many: which ones, in order of their index.
#[track_caller]
fn woken(parked: &mut [Client], count: usize) -> Vec<usize> {
    let started = Instant::now();
    let mut quiet_since = Instant::now();
    let mut woken = Vec::new();
    while woken.len() < count || quiet_since.elapsed() < QUIET {
        assert!(started.elapsed() < WAKE_MAX, "{} woken of {count}: {woken:?}", woken.len());
        for (index, client) in parked.iter_mut().enumerate() {
            if let Some(answer) = client.arrived() {
                assert_eq!(answer.messages().len(), 1, "{answer:?}");
                woken.push(index);
                quiet_since = Instant::now();
            }
        }
        sleep(Duration::from_millis(1));
    }
    woken.sort_unstable();
    woken
}

fn one_push_wakes_the_pop_parked_longest(shards: usize, partition_of_pop: &str) {
    let _alone = alone();
    let node = start(shards);
    let mut control = Client::connect(node.address);
    let request = pop("crowd", &format!("{LONG}&autoAck=true{partition_of_pop}"));
    let mut parked = park_in_order(&node, &mut control, 1_000, &request);

    assert_eq!(control.ask(push("crowd", "p", [0])).status, 201);
    assert_eq!(woken(&mut parked, 1), [0], "one push wakes one pop, the oldest");
    for (turn, oldest) in parked.iter_mut().enumerate().take(40).skip(1) {
        assert_eq!(control.ask(push("crowd", "p", [turn])).status, 201);
        oldest.stream.set_nonblocking(false).expect("a socket");
        assert_eq!(oldest.answer().messages()[0]["payload"], turn, "in order of age");
        oldest.stream.set_nonblocking(true).expect("a socket");
    }
    assert_eq!(control.ask(push("crowd", "p", 0..100)).status, 201);
    assert_eq!(woken(&mut parked, 100), (40..140).collect::<Vec<_>>(), "a push of 100 wakes the next 100");
    await_parked(&node, &mut control, 860);
}

#[test]
fn one_push_wakes_the_oldest_of_1000_pops_on_one_shard() {
    one_push_wakes_the_pop_parked_longest(1, "&partition=p");
}

#[test]
fn one_push_wakes_the_oldest_of_1000_pops_on_four_shards() {
    one_push_wakes_the_pop_parked_longest(4, "&partition=p");
}

#[test]
fn one_push_wakes_the_oldest_of_1000_pops_of_any_partition_on_one_shard() {
    one_push_wakes_the_pop_parked_longest(1, "");
}

#[test]
fn one_push_wakes_the_oldest_of_1000_pops_of_any_partition_on_four_shards() {
    one_push_wakes_the_pop_parked_longest(4, "");
}

/// Times in order, for percentiles: microseconds, below zero what came early.
struct Times(Vec<i64>);

impl Times {
    fn of(mut times: Vec<i64>) -> Self {
        assert!(!times.is_empty());
        times.sort_unstable();
        Self(times)
    }

    /// The time that `part` of 1 do not exceed.
    fn at(&self, part: f64) -> i64 {
        self.0[((self.0.len() - 1) as f64 * part).ceil() as usize]
    }

    fn print(&self, what: &str) {
        let (min, p50, p99, p999, max) = (self.at(0.0), self.at(0.5), self.at(0.99), self.at(0.999), self.at(1.0));
        println!("{what}, us: {} samples, min {min}, p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}", self.0.len());
    }

    /// Asserts that nothing came early, and how late it came.
    #[track_caller]
    fn assert_within(&self, limits: &[(f64, i64)]) {
        assert!(self.at(0.0) >= 0, "early by {} us", -self.at(0.0));
        for &(part, limit) in limits {
            assert!(self.at(part) <= limit, "{part} of them: {} us, at most {limit}", self.at(part));
        }
    }
}

/// Microseconds since `from`.
fn since_us(from: Instant) -> i64 {
    from.elapsed().as_micros() as i64
}

/// A pop is at most 20 ms late, and its client's scheduling may add to the worst; on top of what the machine itself is late by at that
/// moment.
fn assert_punctual(pops: &Times, machine: &Times) {
    pops.assert_within(&[(0.99, 20_000 + machine.at(0.99)), (1.0, 100_000 + machine.at(1.0))]);
}

/// How late a pop answers that times out, in microseconds.
fn lateness(client: &mut Client, queue: &str, timeout: Duration) -> i64 {
    let request = pop(queue, &format!("&wait=true&timeout={}", timeout.as_millis()));
    let asked = Instant::now();
    let answer = client.ask(request);
    let took = since_us(asked);
    assert!(answer.messages().is_empty(), "{answer:?}");
    took - timeout.as_micros() as i64
}

/// How late a thread wakes that only sleeps, in microseconds.
fn oversleep(span: Duration) -> i64 {
    let asleep = Instant::now();
    sleep(span);
    since_us(asleep) - span.as_micros() as i64
}

/// How late 200 pops are of timeouts between 100 and 1500 ms, and 200 threads that sleep as long beside them.
fn latenesses(address: SocketAddr) -> (Times, Times) {
    thread::scope(|scope| {
        let waits = |index: u64| {
            let mut client = Client::connect(address);
            let timeout = Duration::from_millis(100 + index * 7_919 % 1_400);
            let sleeping = scope.spawn(move || oversleep(timeout));
            (scope.spawn(move || lateness(&mut client, &format!("empty{}", index % 7), timeout)), sleeping)
        };
        let waiting: Vec<_> = (0..200).map(waits).collect();
        let (pops, machine) = waiting.into_iter().map(|(pop, thread)| (pop.join().expect("waits"), thread.join().expect("sleeps"))).unzip();
        (Times::of(pops), Times::of(machine))
    })
}

/// One connection that pushes and pops until `is_over`, `batch` messages at a time, `depth` requests in a write.
fn hammer(address: SocketAddr, queue: &str, batch: u32, depth: usize, is_over: &AtomicBool) {
    let mut client = Client::connect(address);
    let one = push(queue, "p", 0..batch) + &pop(queue, &format!("&autoAck=true&batch={batch}"));
    let requests = one.repeat(depth);
    while !is_over.load(Relaxed) {
        client.send(&requests);
        for _ in 0..depth {
            assert_eq!(client.answer().status, 201);
            assert_eq!(client.answer().status, 200);
        }
    }
}

fn parked_pops_answer_at_their_own_timeout(shards: usize) {
    let _alone = alone();
    let node = start(shards);
    let (idle, machine) = latenesses(node.address);
    machine.print("threads that sleep");
    idle.print(&format!("timeouts, {shards} shards, idle, lateness"));
    assert_punctual(&idle, &machine);

    let is_over = AtomicBool::new(false);
    let (loaded, machine) = thread::scope(|scope| {
        scope.spawn(|| hammer(node.address, "load", 1, 1, &is_over));
        let loaded = latenesses(node.address);
        is_over.store(true, Relaxed);
        loaded
    });
    machine.print("threads that sleep beside the load");
    loaded.print(&format!("timeouts, {shards} shards, under load, lateness"));
    assert_punctual(&loaded, &machine);
}

#[test]
fn parked_pops_answer_at_their_own_timeout_on_one_shard() {
    parked_pops_answer_at_their_own_timeout(1);
}

#[test]
fn parked_pops_answer_at_their_own_timeout_on_four_shards() {
    parked_pops_answer_at_their_own_timeout(4);
}

/// 200 parked clients leave by `leave`; one that came after them gets everything that is pushed then.
#[track_caller]
fn leavers_swallow_nothing(node: &Node, what: &str, behind: &str, count: u64, leave: impl Fn(Client) -> Option<Client>) {
    let mut control = Client::connect(node.address);
    for ack in ["", "&autoAck=true"] {
        let queue = format!("left-{what}{}", ack.len());
        let request = pop(&queue, &format!("{LONG}{ack}"));
        let park = |_| {
            let mut client = Client::connect(node.address);
            client.send(request.clone() + behind);
            client
        };
        let parked: Vec<_> = (0..count).map(park).collect();
        await_parked(node, &mut control, count);
        let mut living = Client::connect(node.address);
        living.send(&request);
        await_parked(node, &mut control, count + 1);
        if !behind.is_empty() {
            // What lies behind the pop has arrived, so that the node has stopped reading.
            sleep(QUIET);
        }

        let left = Instant::now();
        let half: Vec<_> = parked.into_iter().filter_map(&leave).collect();
        let leaving = left.elapsed();
        await_parked(node, &mut control, 1);
        let forgotten = left.elapsed();
        println!("{what}{ack}: {count} left in {leaving:?}, forgotten after {forgotten:?}");
        assert!(forgotten <= leaving + Duration::from_millis(100), "{what}: forgotten after {forgotten:?}");

        assert_eq!(control.ask(push(&queue, "p", 0..count)).status, 201);
        assert_eq!(living.answer().messages()[0]["payload"], 0, "{what}: the living one is served");
        let rest = living.ask(pop(&queue, &format!("&batch=10000{ack}"))).messages();
        assert_eq!(rest.len() as u64, count - 1, "{what}: nothing is swallowed");
        assert!(rest.iter().all(|message| message["attempts"] == 1), "{what}");
        for mut client in half {
            client.assert_ended_within(WAKE_MAX);
        }
    }
}

fn a_client_that_leaves_while_parked_swallows_nothing(shards: usize) {
    let _alone = alone();
    let node = start(shards);
    let close = |client| {
        drop(client);
        None
    };
    let reset = |client: Client| {
        client.reset();
        None
    };
    let finish = |client: Client| {
        client.finish();
        Some(client)
    };
    leavers_swallow_nothing(&node, "closed", "", 200, close);
    leavers_swallow_nothing(&node, "reset", "", 200, reset);
    leavers_swallow_nothing(&node, "half-closed", "", 200, finish);
    // More behind the pop than the node keeps, so that it does not read these connections any more, and less than its kernel takes:
    // what lies in the client's own kernel holds back the FIN.
    let much = "x".repeat(90 << 10);
    let behind = push("behind", "p", [format!("\"{much}\"")]);
    leavers_swallow_nothing(&node, "closed-unread", &behind, 20, close);
    leavers_swallow_nothing(&node, "reset-unread", &behind, 20, reset);
    leavers_swallow_nothing(&node, "half-closed-unread", &behind, 20, |client| {
        client.finish();
        // Closed with unread input, which may well be a reset for the client.
        None
    });
}

#[test]
fn a_client_that_leaves_while_parked_swallows_nothing_on_one_shard() {
    a_client_that_leaves_while_parked_swallows_nothing(1);
}

#[test]
fn a_client_that_leaves_while_parked_swallows_nothing_on_four_shards() {
    a_client_that_leaves_while_parked_swallows_nothing(4);
}

/// A client whose kernel takes few bytes that it does not read.
fn tight_client(address: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4 << 10).expect("a socket");
    socket.connect(&address.into()).expect("connects");
    Client::over(socket.into())
}

fn answers_that_could_not_be_sent_are_taken_back(shards: usize) {
    let _alone = alone();
    let node = start(shards);
    let mut control = Client::connect(node.address);
    let big = format!("\"{}\"", "b".repeat(900 << 10));
    let bigs = 12;
    for _ in 0..bigs {
        assert_eq!(control.ask(push("big", "p", [&big])).status, 201);
    }
    for queue in ["spent", "leased"] {
        assert_eq!(control.ask(push(queue, "p", 0..3)).status, 201);
    }
    let mut client = tight_client(node.address);
    client.send(pop("big", "&autoAck=true").repeat(bigs) + &pop("spent", "&autoAck=true&batch=2") + &pop("leased", "&batch=2"));
    sleep(Duration::from_millis(300));
    client.reset();

    for queue in ["spent", "leased"] {
        let mut got = Vec::new();
        let started = Instant::now();
        while got.len() < 3 && started.elapsed() < WAKE_MAX {
            got.extend(control.ask(pop(queue, "&autoAck=true&wait=true&timeout=100&batch=10")).messages());
        }
        // What came back late stands behind what was never taken, so order is not asked for.
        let mut payloads: Vec<_> = got.iter().map(|message| message["payload"].as_u64().expect("a number")).collect();
        payloads.sort_unstable();
        assert_eq!(payloads, [0, 1, 2], "{queue}: came back");
        assert!(got.iter().all(|message| message["attempts"] == 1), "{queue}: free of charge: {got:?}");
    }
    let left = control.ask(pop("big", "&batch=100&autoAck=true&wait=true&timeout=1000")).messages();
    assert!(!left.is_empty() && left.iter().all(|message| message["attempts"] == 1), "big ones came back too");
}

#[test]
fn answers_that_could_not_be_sent_are_taken_back_on_one_shard() {
    answers_that_could_not_be_sent_are_taken_back(1);
}

#[test]
fn answers_that_could_not_be_sent_are_taken_back_on_four_shards() {
    answers_that_could_not_be_sent_are_taken_back(4);
}

/// CPU time of a process, of ticks of 10 ms.
fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its stat");
    let (_, after_name) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<_> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<u64>().expect("ticks");
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// Resident bytes of a process.
fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("RSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kB") * 1024
}

fn parked_pops_cost_next_to_nothing(shards: usize) {
    let _alone = alone();
    let count = (raise_open_files() - 500).min(10_000);
    let node = start(shards);
    let mut control = Client::connect(node.address);
    let before = resident_bytes(node.pid());
    let park = |index: usize| {
        let mut client = Client::connect(node.address);
        client.send(pop(&format!("inbox{}", index % 100), "&wait=true&timeout=300000"));
        client
    };
    let parked: Vec<_> = (0..count).map(park).collect();
    await_parked(&node, &mut control, count as u64);
    let bytes_each = resident_bytes(node.pid()).saturating_sub(before) / count as u64;
    // The first deadlines of the connections as such pass before the measurement.
    sleep(Duration::from_millis(500));
    let cpu = cpu_time(node.pid());
    // The kernel counts in hundredths of a second: three seconds leave two of them between what is used and what may be.
    let span = Duration::from_secs(6);
    sleep(span);
    let used = cpu_time(node.pid()) - cpu;
    println!("{count} parked pops, {shards} shards: {used:?} of CPU in {span:?}, {bytes_each} bytes RSS each");
    assert!(used * 100 < span, "{used:?} of CPU in {span:?}");
    drop(parked);
}

#[test]
fn ten_thousand_parked_pops_cost_next_to_nothing_on_one_shard() {
    parked_pops_cost_next_to_nothing(1);
}

#[test]
fn ten_thousand_parked_pops_cost_next_to_nothing_on_four_shards() {
    parked_pops_cost_next_to_nothing(4);
}

/// Puts this thread before all others of the machine where that is allowed, so that what it measures is the node's lateness and not
/// its own.
fn go_first() {
    let thread = nix::unistd::gettid().to_string();
    let _ = Command::new("chrt").args(["--fifo", "--pid", "10", &thread]).stderr(Stdio::null()).status();
}

/// A node of one core, pinned to the first of this thread's CPUs; the thread keeps the others, if there are any.
fn start_apart() -> Node {
    let here = Pid::from_raw(0);
    let mut cpus = sched_getaffinity(here).expect("its CPUs");
    let first = (0..CpuSet::count()).find(|cpu| cpus.is_set(*cpu).unwrap_or(false)).expect("a CPU");
    let node = Node::start(serve(1, &["--cpus", &first.to_string(), "--pin", "on"]));
    cpus.unset(first).expect("a CPU");
    let _ = sched_setaffinity(here, &cpus);
    node
}

fn a_saturated_core_keeps_its_timers_and_other_connections(shards: usize) {
    let _alone = alone();
    raise_open_files();
    let node = if shards == 1 { start_apart() } else { start(shards) };
    let is_long = std::env::var_os("MAYFLY_LONG").is_some();
    let span = Duration::from_secs(if is_long { 10 } else { 3 });
    let is_over = AtomicBool::new(false);
    let cpu = cpu_time(node.pid());
    let (latenesses, trips) = thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| hammer(node.address, "busy", 20, 32, &is_over));
        }
        let waits = |_| {
            let mut client = Client::connect(node.address);
            let is_over = &is_over;
            scope.spawn(move || {
                go_first();
                let mut latenesses = Vec::new();
                while !is_over.load(Relaxed) {
                    latenesses.push(lateness(&mut client, "empty", Duration::from_millis(50)));
                }
                latenesses
            })
        };
        let waiting: Vec<_> = (0..20).map(waits).collect();
        let mut client = Client::connect(node.address);
        go_first();
        let started = Instant::now();
        let mut trips = Vec::new();
        while started.elapsed() < span {
            let asked = Instant::now();
            assert_eq!(client.ask(push("aside", "p", [1]) + &pop("aside", "&autoAck=true")).status, 201);
            assert_eq!(client.answer().messages().len(), 1);
            trips.push(since_us(asked));
            sleep(Duration::from_millis(1));
        }
        is_over.store(true, Relaxed);
        (Times::of(waiting.into_iter().flat_map(|waiting| waiting.join().expect("waits")).collect()), Times::of(trips))
    });
    println!("saturated, {shards} shards: the node used {:?} of CPU in {span:?}", cpu_time(node.pid()) - cpu);
    latenesses.print(&format!("saturated, {shards} shards, lateness of 50 ms timeouts"));
    trips.print(&format!("saturated, {shards} shards, round trip of a push and a pop"));
    latenesses.assert_within(&[(0.5, 10_000), (0.99, 50_000)]);
    trips.assert_within(&[(0.99, 50_000)]);
    // The design's bound, for a release build and a quiet machine.
    if is_long {
        latenesses.assert_within(&[(0.999, 5_000)]);
    }
}

#[test]
fn a_saturated_core_keeps_its_timers_and_other_connections_on_one_shard() {
    a_saturated_core_keeps_its_timers_and_other_connections(1);
}

#[test]
fn saturated_cores_keep_their_timers_and_other_connections_on_four_shards() {
    a_saturated_core_keeps_its_timers_and_other_connections(4);
}

fn a_pop_of_any_partition_finds_all_and_is_not_starved(shards: usize) {
    let _alone = alone();
    let node = start(shards);
    let mut pusher = Client::connect(node.address);
    let mut popper = Client::connect(node.address);
    let partitions = 32;
    for partition in 0..partitions {
        assert_eq!(pusher.ask(push("wide", &format!("p{partition}"), [partition])).status, 201);
    }
    let mut found: Vec<_> =
        (0..partitions).filter_map(|_| popper.ask(pop("wide", "&autoAck=true&wait=true&timeout=2000")).messages().pop()).collect();
    found.sort_unstable_by_key(|message| message["payload"].as_u64());
    assert_eq!(found.len(), partitions, "each pop finds one, on whichever core it is");
    for partition in 0..partitions {
        popper.send(pop("wide", "&autoAck=true&wait=true&timeout=5000"));
        sleep(Duration::from_millis(2));
        assert_eq!(pusher.ask(push("wide", &format!("p{partition}"), [partition])).status, 201);
        assert_eq!(popper.answer().messages().len(), 1, "a parked pop is woken from partition p{partition}");
    }

    for rare in 0..partitions {
        let rare = format!("p{rare}");
        assert_eq!(pusher.ask(push("wide", "busy", 0..10)).status, 201);
        assert_eq!(pusher.ask(push("wide", &rare, ["\"rare\""])).status, 201);
        let served = (1..=20).find(|_| {
            assert_eq!(pusher.ask(push("wide", "busy", 0..3)).status, 201);
            popper.ask(pop("wide", "&autoAck=true&wait=true&timeout=2000")).messages()[0]["payload"] == "rare"
        });
        assert!(served.is_some_and(|pops| pops <= 8), "{rare} beside a busy partition: served by pop {served:?}");
    }
}

#[test]
fn a_pop_of_any_partition_finds_all_and_is_not_starved_on_one_shard() {
    a_pop_of_any_partition_finds_all_and_is_not_starved(1);
}

#[test]
fn a_pop_of_any_partition_finds_all_and_is_not_starved_on_four_shards() {
    a_pop_of_any_partition_finds_all_and_is_not_starved(4);
}
