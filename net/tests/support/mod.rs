//! A driver on a thread of its own, for tests that talk to it with plain sockets.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use glommio::{LocalExecutorBuilder, Placement};
use mayfly_net::clock::Clock;
use mayfly_net::listener::{listen, local_address};
use mayfly_net::mesh::Waker;
use mayfly_net::ring::{ConnectionId, Connections, Driver, DriverConfig, Event};

/// No test waits longer than this for something that should happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An event without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Opened(ConnectionId),
    Received(ConnectionId, usize),
    HangUp(ConnectionId),
    Finished(ConnectionId),
    Failed(ConnectionId),
    Closed(ConnectionId, u64),
}

/// What the server does with events, on its own thread.
pub type Session = Box<dyn FnMut(&mut Connections, &Event<'_>)>;

pub struct Server {
    pub address: SocketAddr,
    /// Everything but `Sent` and `Woken`.
    pub seen: Receiver<Seen>,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Runs until dropped.
    pub fn start(configure: impl FnOnce(&mut DriverConfig), session: impl FnOnce() -> Session + Send + 'static) -> Self {
        let listeners = listen(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        let address = local_address(&listeners[0]).expect("bound");
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let mut config = DriverConfig::new(Clock::start(), Arc::clone(&waker));
        configure(&mut config);
        let stop = Arc::new(AtomicBool::new(false));
        let (see, seen) = channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
            executor.run(async move {
                let mut driver = Driver::new(listeners, config).expect("a ring");
                let mut session = session();
                while !stopped.load(Ordering::SeqCst) {
                    driver.turn(|connections, event| {
                        tell(&see, &event);
                        session(connections, &event);
                    });
                    driver.sleep(None, || stopped.load(Ordering::SeqCst)).await;
                }
            });
        });
        Self { address, seen, stop, waker, thread: Some(thread) }
    }

    /// A server that sends back what it gets, pausing a connection whose answers are not read, and closes after the peer's FIN.
    pub fn echo(configure: impl FnOnce(&mut DriverConfig)) -> Self {
        Self::start(configure, || Box::new(echo))
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.set_write_timeout(Some(PATIENCE)).expect("settable");
        stream
    }

    /// Waits for an event.
    pub fn wait_for(&self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen.recv_timeout(end.saturating_duration_since(Instant::now())).expect("the event comes");
            if wanted(&seen) {
                return seen;
            }
        }
    }

    /// Everything seen so far and until the server has ended.
    pub fn finish(mut self) -> Vec<Seen> {
        self.end();
        self.seen.try_iter().collect()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server did not panic");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// Above this an echo stops reading.
const UNREAD_BYTES_MAX: usize = 128 * 1024;

pub fn echo(connections: &mut Connections, event: &Event<'_>) {
    match *event {
        Event::Received(id, bytes) => {
            let Some(output) = connections.output(id) else { return };
            output.buffer().extend_from_slice(bytes);
            if output.unsent_bytes() > UNREAD_BYTES_MAX {
                connections.pause(id);
            }
        }
        Event::Sent { id, .. } if connections.offsets(id).is_some_and(|output| output.unsent_bytes() == 0) => connections.resume(id),
        Event::Finished(id) => connections.close(id),
        _ => {}
    }
}

fn tell(see: &Sender<Seen>, event: &Event<'_>) {
    let seen = match *event {
        Event::Opened(id) => Seen::Opened(id),
        Event::Received(id, bytes) => Seen::Received(id, bytes.len()),
        Event::HangUp(id) => Seen::HangUp(id),
        Event::Finished(id) => Seen::Finished(id),
        Event::Failed(id) => Seen::Failed(id),
        Event::Closed { id, sent, .. } => Seen::Closed(id, sent),
        Event::Secured(_) | Event::Sent { .. } | Event::Woken => return,
    };
    // A test that has seen enough has dropped its end.
    let _ = see.send(seen);
}

/// A reproducible stream of numbers (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Closes with a reset instead of a FIN.
pub fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("settable");
}
