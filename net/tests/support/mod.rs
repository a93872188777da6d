//! A driver on a thread of its own, for tests that talk to it with plain sockets.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
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

/// Something for the server's thread to do between two turns.
type Errand = Box<dyn FnOnce(&mut Driver) + Send>;

pub struct Server {
    pub address: SocketAddr,
    /// Everything but `Sent` and `Woken`.
    pub seen: Receiver<Seen>,
    stop: Arc<AtomicBool>,
    errands: Arc<Mutex<Vec<Errand>>>,
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
        let errands: Arc<Mutex<Vec<Errand>>> = Arc::default();
        let errands_of_thread = Arc::clone(&errands);
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
                    let errands = std::mem::take(&mut *errands_of_thread.lock().expect("no panic"));
                    errands.into_iter().for_each(|errand| errand(&mut driver));
                    let has_mail = || stopped.load(Ordering::SeqCst) || !errands_of_thread.lock().expect("no panic").is_empty();
                    driver.sleep(None, has_mail).await;
                }
            });
        });
        Self { address, seen, stop, errands, waker, thread: Some(thread) }
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

    /// What the server's own thread makes of its driver.
    pub fn ask<T: Send + 'static>(&self, errand: impl FnOnce(&mut Driver) -> T + Send + 'static) -> T {
        let (reply, answer) = channel();
        let errand = Box::new(move |driver: &mut Driver| reply.send(errand(driver)).expect("the test waits"));
        self.errands.lock().expect("no panic").push(errand);
        self.waker.wake();
        answer.recv_timeout(PATIENCE).expect("the server's thread lives")
    }

    pub fn adopt(&self, socket: impl Into<OwnedFd>) -> ConnectionId {
        let socket = socket.into();
        self.ask(|driver| driver.connections().adopt(socket)).expect("a slot")
    }

    /// A connection that the server did not accept, and its other end.
    pub fn link(&self) -> (ConnectionId, TcpStream) {
        let (ours, theirs) = pair();
        ours.set_nonblocking(true).expect("settable");
        (self.adopt(ours), theirs)
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

/// Both ends of a connection over loopback, with this test's patience.
pub fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
    let other = listener.accept().expect("it is there").0;
    for stream in [&one, &other] {
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.set_write_timeout(Some(PATIENCE)).expect("settable");
    }
    (one, other)
}

/// Writes `total` bytes in pieces of random sizes while reading them back; every byte and their order must be kept.
pub fn echo_check(stream: TcpStream, total: usize, seed: u64) {
    let mut random = Random(seed);
    let sent: Vec<u8> = (0..total).map(|_| random.next() as u8).collect();
    let expected = sent.clone();
    let mut writer = stream.try_clone().expect("clonable");
    let writing = std::thread::spawn(move || {
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((1 + random.below(40_000)).min(rest.len()));
            writer.write_all(piece).expect("the server reads");
            rest = after;
        }
        writer.shutdown(Shutdown::Write).expect("open");
    });
    let mut received = Vec::new();
    let mut reader = stream;
    reader.read_to_end(&mut received).expect("ends with a FIN");
    writing.join().expect("wrote all");
    assert!(received == expected, "{} of {} bytes came back, or other ones", received.len(), expected.len());
}
