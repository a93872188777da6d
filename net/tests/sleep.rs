//! Waiting: deadlines end a sleep in time, and a core that is never idle still lets its executor breathe.

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
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
        assert!(ticks.get() >= 50, "{} ticks of a millisecond in half a second", ticks.get());
        ticker.cancel().await;
    });
}

#[test]
fn a_driver_that_accepts_no_more_keeps_its_connections() {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
    executor.run(async {
        let clock = Clock::start();
        let listeners = listen(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        let address = local_address(&listeners[0]).expect("bound");
        let mut driver = Driver::new(listeners, DriverConfig::new(clock, Arc::new(Waker::new().expect("an eventfd")))).expect("a ring");
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
