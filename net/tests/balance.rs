//! Connections spread over cores at accept, however the kernel spreads them, and pass from one to another later without losing a byte.

mod support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use glommio::{LocalExecutorBuilder, Placement};
use mayfly_net::clock::Clock;
use mayfly_net::listener::{listen, local_address};
use mayfly_net::mesh::Waker;
use mayfly_net::ring::{Driver, DriverConfig, Event, Share};
use support::PATIENCE;

/// Says on which core a connection is, as its answer to anything.
fn serve(core: u8, driver: impl FnOnce() -> Driver + Send + 'static, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
        executor.run(async move {
            let mut driver = driver();
            while !stop.load(Ordering::SeqCst) {
                driver.turn(|connections, event| match event {
                    Event::Received(id, _) => connections.output(id).expect("open").buffer().push(core),
                    Event::Finished(id) => connections.close(id),
                    _ => {}
                });
                driver.sleep(None, || stop.load(Ordering::SeqCst)).await;
            }
        });
    })
}

fn ask(stream: &mut TcpStream) -> usize {
    let mut core = [0];
    stream.write_all(b"?").expect("open");
    stream.read_exact(&mut core).expect("answered");
    usize::from(core[0])
}

#[test]
fn a_core_that_accepts_all_keeps_its_share_and_room_is_filled_again() {
    const CORES: usize = 3;
    let wakers: Vec<_> = (0..CORES).map(|_| Arc::new(Waker::new().expect("an eventfd"))).collect();
    let listeners = listen(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
    let address = local_address(&listeners[0]).expect("bound");
    let (stop, mut listeners) = (Arc::new(AtomicBool::new(false)), Some(listeners));
    let mut threads = Vec::new();
    for (core, share) in Share::of_cores(&wakers).into_iter().enumerate() {
        // Only the first listens.
        let (listeners, waker) = (listeners.take().unwrap_or_default(), Arc::clone(&wakers[core]));
        let config = DriverConfig { share: Some(share), connections_max: 4, ..DriverConfig::new(Clock::start(), waker) };
        threads.push(serve(core as u8, move || Driver::new(listeners, config).expect("a ring"), Arc::clone(&stop)));
    }
    let connect = || {
        let stream = TcpStream::connect(address).expect("accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream
    };
    let mut streams: Vec<Vec<TcpStream>> = (0..CORES).map(|_| Vec::new()).collect();
    for _ in 0..4 * CORES {
        let mut stream = connect();
        let core = ask(&mut stream);
        streams[core].push(stream);
    }
    assert_eq!(streams.iter().map(Vec::len).collect::<Vec<_>>(), [4; CORES]);
    // All are full: one more is closed.
    assert_eq!(connect().read(&mut [0]).unwrap_or(0), 0);
    // Two leave the last core, which sees it: their places are taken again.
    for mut stream in streams[2].drain(..2) {
        stream.shutdown(Shutdown::Write).expect("open");
        assert_eq!(stream.read(&mut [0]).expect("closed in order"), 0);
    }
    let mut filled = [0; CORES];
    while filled.iter().sum::<usize>() < 2 {
        // The close reaches the client before the count.
        let mut stream = connect();
        if stream.write_all(b"?").is_ok() && stream.read_exact(&mut [0]).is_ok() {
            filled[ask(&mut stream)] += 1;
            streams[2].push(stream);
        }
    }
    assert_eq!(filled, [0, 0, 2]);
    stop.store(true, Ordering::SeqCst);
    wakers.iter().for_each(|waker| waker.wake());
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// Says back what it is told, and passes a connection on whenever it has said all.
fn echo(
    core: usize,
    driver: impl FnOnce() -> Driver + Send + 'static,
    passed: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).make().expect("an executor");
        executor.run(async move {
            let mut driver = driver();
            while !stop.load(Ordering::SeqCst) {
                driver.turn(|connections, event| match event {
                    Event::Received(id, bytes) => connections.output(id).expect("open").buffer().extend_from_slice(bytes),
                    Event::Sent { id, .. } => connections.pass_on(id, 1 - core),
                    Event::Finished(id) => connections.close(id),
                    Event::Closed { .. } => {
                        passed.fetch_add(1, Ordering::SeqCst);
                    }
                    _ => {}
                });
                driver.sleep(None, || stop.load(Ordering::SeqCst)).await;
            }
        });
    })
}

/// Sends `bytes` in pieces of changing length, some of which wait for the answer to what came before, and reads all back.
fn hear_back(address: std::net::SocketAddr, bytes: &[u8], seed: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    stream.set_nodelay(true).expect("settable");
    let (mut heard, mut said) = (vec![0; bytes.len()], 0);
    let mut heard_count = 0;
    for turn in seed.. {
        let end = (said + 1 + turn * 7 % 23).min(bytes.len());
        stream.write_all(&bytes[said..end]).expect("open");
        said = end;
        if said == bytes.len() {
            break;
        }
        // Twice without waiting, then all that was said: the next piece often meets a connection that is just leaving.
        if turn % 3 == 0 {
            stream.read_exact(&mut heard[heard_count..said]).expect("answered");
            heard_count = said;
        }
    }
    stream.shutdown(Shutdown::Write).expect("open");
    stream.read_exact(&mut heard[heard_count..]).expect("answered");
    assert_eq!(stream.read(&mut [0]).expect("closed in order"), 0);
    heard
}

#[test]
fn a_connection_passes_between_cores_without_losing_a_byte_or_its_end() {
    let wakers: Vec<_> = (0..2).map(|_| Arc::new(Waker::new().expect("an eventfd"))).collect();
    let mut listeners = listen(([127, 0, 0, 1], 0).into(), 2).expect("a free port");
    let address = local_address(&listeners[0]).expect("bound");
    let (stop, closed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut threads = Vec::new();
    for (core, share) in Share::of_cores(&wakers).into_iter().enumerate() {
        let (listener, waker) = (listeners.remove(0), Arc::clone(&wakers[core]));
        let config = DriverConfig { share: Some(share), ..DriverConfig::new(Clock::start(), waker) };
        threads.push(echo(core, move || Driver::new(vec![listener], config).expect("a ring"), Arc::clone(&closed), Arc::clone(&stop)));
    }
    const CLIENTS: usize = 8;
    let clients = (0..CLIENTS).map(|seed| {
        std::thread::spawn(move || {
            let bytes: Vec<u8> = (0..20_000_usize).map(|at| (at * 31 % 251) as u8).collect();
            assert!(hear_back(address, &bytes, seed) == bytes, "client {seed} heard something else");
        })
    });
    clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().expect("heard all"));
    // Each closing beyond one a client was a passage.
    let passages = closed.load(Ordering::SeqCst).saturating_sub(CLIENTS);
    assert!(passages > CLIENTS, "{passages} passages");
    stop.store(true, Ordering::SeqCst);
    wakers.iter().for_each(|waker| waker.wake());
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}
