//! A closed loop of requests for `driver_fixed` and `epoll_fixed`: `fixed_load ADDRESS CPU CONNECTIONS SECONDS SERVER_PID`.
//!
//! One thread, one request in flight per connection. Prints requests per second, percentiles, and the server's CPU time (user and
//! system, from /proc) per request, after a warm-up of a quarter of the time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mayfly_bench::fixed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::Pid;

struct Connection {
    stream: TcpStream,
    asked_at: Instant,
    received: usize,
}

fn number(index: usize, otherwise: usize) -> usize {
    std::env::args().nth(index).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn main() {
    let mut set = CpuSet::new();
    set.set(number(2, 1)).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).expect("an allowed CPU");
    let (connection_count, seconds, server) = (number(3, 1), number(4, 3) as u64, number(5, 0));
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("an epoll");
    let mut connections: Vec<_> = (0..connection_count).map(|slot| connect(&epoll, slot as u64)).collect();
    run(&epoll, &mut connections, Duration::from_millis(seconds * 250));
    let cpu_before = cpu_us(server);
    let started = Instant::now();
    let latencies = run(&epoll, &mut connections, Duration::from_secs(seconds));
    let elapsed = started.elapsed();
    let cpu = cpu_us(server) - cpu_before;
    let count = latencies.len();
    println!(
        "connections={connection_count} requests={count} per_s={:.0} p50_us={:.1} p99_us={:.1} server_cpu_us={:.3}",
        count as f64 / elapsed.as_secs_f64(),
        latencies.value_at_quantile(0.5) as f64 / 1e3,
        latencies.value_at_quantile(0.99) as f64 / 1e3,
        cpu as f64 / count as f64,
    );
}

fn connect(epoll: &Epoll, slot: u64) -> Connection {
    let mut stream = TcpStream::connect(fixed::address()).expect("a server");
    stream.set_nodelay(true).expect("settable");
    epoll.add(stream.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, slot)).expect("watched");
    stream.write_all(fixed::REQUEST).expect("sent");
    Connection { stream, asked_at: Instant::now(), received: 0 }
}

fn run(epoll: &Epoll, connections: &mut [Connection], span: Duration) -> Histogram<u64> {
    let mut latencies = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds in order");
    let mut events = [EpollEvent::empty(); 256];
    let mut input = [0; 4096];
    let end = Instant::now() + span;
    while Instant::now() < end {
        let count = epoll.wait(&mut events, EpollTimeout::from(100_u16)).unwrap_or(0);
        for event in &events[..count] {
            let connection = &mut connections[event.data() as usize];
            let length = connection.stream.read(&mut input).expect("the server answers");
            assert!(length > 0, "the server closed");
            connection.received += length;
            if connection.received == fixed::ANSWER.len() {
                let now = Instant::now();
                latencies.saturating_record((now - connection.asked_at).as_nanos() as u64);
                connection.received = 0;
                connection.asked_at = now;
                connection.stream.write_all(fixed::REQUEST).expect("sent");
            }
        }
    }
    latencies
}

/// User and system time of a process in microseconds; 0 without one.
fn cpu_us(pid: usize) -> u64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    // After the name in parentheses, which may hold spaces, user and system ticks are fields 12 and 13; a tick is 10 ms.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10_000
}
