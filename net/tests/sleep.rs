//! Waiting: deadlines end a sleep in time, and a core that is never idle still lets its executor breathe.

mod support;

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};
use mayfly_net::clock::Clock;
use mayfly_net::listener::{listen, local_address};
use mayfly_net::mesh::Waker;
use mayfly_net::ring::{Driver, DriverConfig, Event};

const MILLISECOND: u64 = 1_000_000;

/// Runs a driver and what `work` does with it on an executor of this thread.
fn with_driver<F: Future<Output = ()>>(work: impl FnOnce(Driver, Clock) -> F) {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
    executor.run(async move {
        let clock = Clock::start();
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let driver = Driver::new(Vec::new(), DriverConfig::new(clock, waker)).expect("a ring");
        work(driver, clock).await;
    });
}

#[test]
fn a_deadline_ends_the_sleep_never_early_and_soon_after() {
    with_driver(|mut driver, clock| async move {
        // Later, earlier and the same: the one timer is moved only forward.
        for span in [30, 5, 50, 1, 20, 20].map(|span| span * MILLISECOND) {
            let until = clock.now_ns() + span;
            while clock.now_ns() < until {
                driver.turn(|_, _| {});
                driver.sleep(Some(until), || false).await;
            }
            let late = clock.now_ns() - until;
            assert!(late < 500 * MILLISECOND, "{late} ns late");
        }
    });
}

#[test]
fn a_core_that_is_never_idle_lets_other_tasks_and_timers_run() {
    with_driver(|mut driver, clock| async move {
        let ticks = Rc::new(Cell::new(0));
        let counted = Rc::clone(&ticks);
        let ticker = glommio::spawn_local(async move {
            loop {
                glommio::timer::sleep(Duration::from_millis(1)).await;
                counted.set(counted.get() + 1);
            }
        });
        let until = clock.now_ns() + 500 * MILLISECOND;
        while clock.now_ns() < until {
            driver.turn(|_, _| {});
            driver.sleep(None, || true).await;
        }
        assert!(ticks.get() >= 20, "{} ticks of a millisecond in half a second", ticks.get());
        ticker.cancel().await;
    });
}

/// The executor may park although a task of its own was woken (see the driver's `take_breath`): with such a short preemption timer it does so
/// again and again.
#[test]
fn a_breath_in_which_the_executor_overlooks_a_task_is_short() {
    let builder = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).preempt_timer(Duration::from_micros(20));
    builder.make().expect("an executor").run(async {
        let (mut driver, clock) = polling(Duration::ZERO, Vec::new());
        let mut longest = Vec::new();
        // A busy machine has pauses too, but not in each of them.
        while longest.len() < 4 && longest.last().is_none_or(|ns| *ns >= 50 * MILLISECOND) {
            let until = clock.now_ns() + 1_000 * MILLISECOND;
            let mut longest_ns = 0;
            while clock.now_ns() < until {
                let began_at = clock.now_ns();
                driver.turn(|_, _| {});
                driver.sleep(None, || true).await;
                longest_ns = longest_ns.max(clock.now_ns() - began_at);
            }
            longest.push(longest_ns);
        }
        println!("longest breaths: {longest:?} ns");
        assert!(longest.last().is_some_and(|ns| *ns < 50 * MILLISECOND), "{longest:?} ns");
    });
}

#[test]
fn a_driver_that_accepts_no_more_keeps_its_connections() {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
    executor.run(async {
        let (listeners, address) = listening();
        let (mut driver, _) = polling(Duration::ZERO, listeners);
        let mut stopped = false;
        let client = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(address).expect("accepts");
            stream.write_all(b"stop").expect("open");
            stream.read_exact(&mut [0; 4]).expect("echoed after the stop");
            assert!(std::net::TcpStream::connect(address).is_err(), "the listener is closed");
        });
        let mut closed = false;
        while !closed {
            driver.turn(|connections, event| match event {
                Event::Received(id, bytes) => {
                    stopped = true;
                    connections.output(id).expect("open").buffer().extend_from_slice(bytes);
                }
                Event::Finished(id) => connections.close(id),
                Event::Closed { .. } => closed = true,
                _ => {}
            });
            if stopped {
                driver.stop_accepting();
            }
            driver.sleep(None, || closed).await;
        }
        client.join().expect("was served and then refused");
    });
}

fn listening() -> (Vec<OwnedFd>, SocketAddr) {
    let listeners = listen(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
    let address = local_address(&listeners[0]).expect("bound");
    (listeners, address)
}

/// A driver that polls for `spin` before it sleeps, if it has found that this pays.
fn polling(spin: Duration, listeners: Vec<OwnedFd>) -> (Driver, Clock) {
    let clock = Clock::start();
    let config = DriverConfig { spin, ..DriverConfig::new(clock, Arc::new(Waker::new().expect("an eventfd"))) };
    (Driver::new(listeners, config).expect("a ring"), clock)
}

/// Sleeps that end sooner than polling would: the next ones poll.
async fn earn_credit(driver: &mut Driver, clock: Clock) {
    for _ in 0..8 {
        driver.turn(|_, _| {});
        driver.sleep(Some(clock.now_ns() + 20_000), || false).await;
    }
}

fn cpu_time_of_this_thread() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into()
}

/// CPU time of 100 waits of 10 ms in which nothing comes.
async fn cpu_time_of_idle_waits(driver: &mut Driver, clock: Clock) -> Duration {
    let before = cpu_time_of_this_thread();
    for _ in 0..100 {
        let until = clock.now_ns() + 10 * MILLISECOND;
        while clock.now_ns() < until {
            driver.turn(|_, _| {});
            driver.sleep(Some(until), || false).await;
        }
    }
    cpu_time_of_this_thread() - before
}

#[test]
fn polling_that_keeps_finding_nothing_is_given_up() {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
    executor.run(async {
        let (mut driver, clock) = polling(Duration::from_millis(5), Vec::new());
        let (mut still, still_clock) = polling(Duration::ZERO, Vec::new());
        // A poll or a few of 5 ms, and then no more: a hundred would be half a second.
        let is_given_up = |polled: Duration| (Duration::from_millis(3)..Duration::from_millis(200)).contains(&polled);
        // On a busy machine a sleep of 20 us may take longer than polling would, which earns nothing.
        let mut polled = Vec::new();
        while polled.len() < 5 && !polled.last().is_some_and(|polled| is_given_up(*polled)) {
            let without = cpu_time_of_idle_waits(&mut still, still_clock).await;
            earn_credit(&mut driver, clock).await;
            polled.push(cpu_time_of_idle_waits(&mut driver, clock).await.saturating_sub(without));
        }
        println!("CPU of polling in a second of idle waits: {polled:?}");
        assert!(polled.last().is_some_and(|polled| is_given_up(*polled)), "{polled:?}");
    });
}

#[test]
fn a_core_that_polls_sees_mail_and_connections_at_once() {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
    executor.run(async {
        let (listeners, address) = listening();
        let (mut driver, clock) = polling(Duration::from_secs(20), listeners);
        earn_credit(&mut driver, clock).await;
        let mail = Arc::new(AtomicBool::new(false));
        let sender = Arc::clone(&mail);
        let began_at = clock.now_ns();
        // No bell: a core that polls is awake, and nobody rings it.
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender.store(true, Ordering::SeqCst);
        });
        while !mail.load(Ordering::SeqCst) {
            driver.turn(|_, _| {});
            driver.sleep(None, || mail.load(Ordering::SeqCst)).await;
        }
        thread.join().expect("sent");
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            std::net::TcpStream::connect(address).expect("accepts")
        });
        let mut is_open = false;
        while !is_open {
            driver.turn(|_, event| is_open |= matches!(event, Event::Opened { .. }));
            driver.sleep(None, || is_open).await;
        }
        let spent = clock.now_ns() - began_at;
        assert!(spent < 5_000 * MILLISECOND, "{spent} ns until both were seen");
        drop(thread.join().expect("connected"));
    });
}

#[test]
fn a_turn_of_slow_events_ends_in_time_and_the_rest_comes_with_the_next() {
    const CLIENTS: usize = 48;
    const EVENT_NS: u64 = 300_000;
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
    executor.run(async {
        let (listeners, address) = listening();
        let (mut driver, clock) = polling(Duration::ZERO, listeners);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| std::net::TcpStream::connect(address).expect("in the backlog")).collect();
        let mut open = 0;
        while open < CLIENTS {
            driver.turn(|_, event| open += usize::from(matches!(event, Event::Opened { .. })));
            driver.sleep(None, || open == CLIENTS).await;
        }
        driver.flush();
        for client in &mut clients {
            std::io::Write::write_all(client, b"slow").expect("sends");
        }
        let (mut received, mut most) = (0, 0);
        while received < CLIENTS {
            let before = received;
            driver.turn(|_, event| {
                if matches!(event, Event::Received(..)) {
                    received += 1;
                    let until = clock.now_ns() + EVENT_NS;
                    while clock.now_ns() < until {}
                }
            });
            most = most.max(received - before);
            driver.sleep(None, || received == CLIENTS).await;
        }
        // Half a millisecond of 300 us each, looked at after every eighth.
        assert!(most <= 8, "{most} events of 300 us in one turn");
    });
}
