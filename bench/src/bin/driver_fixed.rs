//! A server with one fixed answer on the io_uring driver: `driver_fixed ADDRESS CPU SPIN_US`.

use std::sync::Arc;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};
use mayfly_bench::fixed;
use mayfly_net::clock::Clock;
use mayfly_net::listener::listen;
use mayfly_net::mesh::Waker;
use mayfly_net::ring::{Connections, Driver, DriverConfig, Event};

fn number(index: usize) -> Option<usize> {
    std::env::args().nth(index).and_then(|text| text.parse().ok())
}

fn main() {
    let placement = number(2).map_or(Placement::Unbound, Placement::Fixed);
    let executor = LocalExecutorBuilder::new(placement).io_memory(0).ring_depth(128).preempt_timer(Duration::from_secs(3600));
    executor.spawn(serve).expect("an executor").join().expect("runs until killed");
}

async fn serve() {
    let waker = Arc::new(Waker::new().expect("an eventfd"));
    let mut config = DriverConfig::new(Clock::start(), waker);
    config.spin = Duration::from_micros(number(3).unwrap_or(0) as u64);
    let mut driver = Driver::new(listen(fixed::address(), 1).expect("a free port"), config).expect("a ring");
    let mut matched: Vec<usize> = Vec::new();
    loop {
        driver.turn(|connections, event| answer(connections, &event, &mut matched));
        driver.sleep(None, || false).await;
    }
}

fn answer(connections: &mut Connections, event: &Event<'_>, matched: &mut Vec<usize>) {
    match *event {
        Event::Opened(id) => {
            if matched.len() <= id.slot() {
                matched.resize(id.slot() + 1, 0);
            }
            matched[id.slot()] = 0;
        }
        Event::Received(id, bytes) => {
            let count = fixed::count_requests(bytes, &mut matched[id.slot()]);
            if let Some(output) = connections.output(id) {
                for _ in 0..count {
                    output.buffer().extend_from_slice(fixed::ANSWER);
                }
            }
        }
        Event::Finished(id) => connections.close(id),
        _ => {}
    }
}
