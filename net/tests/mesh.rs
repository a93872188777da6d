//! The mesh between sleeping cores: no letter is lost or overtaken, and no wake-up either.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};
use mayfly_net::clock::Clock;
use mayfly_net::mesh::Mesh;
use mayfly_net::ring::{Driver, DriverConfig};
use support::{PATIENCE, Random};

type Letter = u64;

#[derive(Clone, Copy)]
struct How {
    spin: Duration,
    /// Of the executor.
    preempt: Duration,
}

const SLEEPY: How = How { spin: Duration::ZERO, preempt: Duration::from_secs(3600) };

/// Runs `work` on a thread with a driver that sleeps whenever it has nothing to do, until it has said that it is done and every letter
/// of its own is on its way.
fn on_core(mut mesh: Mesh<Letter>, how: How, mut work: impl FnMut(&mut Mesh<Letter>) -> bool + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let builder = LocalExecutorBuilder::new(Placement::Unbound).io_memory(0).ring_depth(128).preempt_timer(how.preempt);
        let executor = builder.make().expect("an executor");
        executor.run(async move {
            let mut config = DriverConfig::new(Clock::start(), mesh.waker());
            config.spin = how.spin;
            let mut driver = Driver::new(Vec::new(), config).expect("a ring");
            let mut done = false;
            loop {
                driver.turn(|_, _| {});
                done |= work(&mut mesh);
                mesh.flush();
                if done && mesh.waiting_count() == 0 {
                    break;
                }
                driver.sleep(None, || mesh.has_mail()).await;
            }
        });
    })
}

/// Fails the whole test process when nothing moves for too long: a lost wake-up shows as silence.
fn watch(progress: &Arc<AtomicU64>, threads: Vec<thread::JoinHandle<()>>) {
    let mut last = u64::MAX;
    let mut still = Duration::ZERO;
    while threads.iter().any(|thread| !thread.is_finished()) {
        let now = progress.load(Ordering::Relaxed);
        still = if now == last { still + Duration::from_millis(10) } else { Duration::ZERO };
        last = now;
        assert!(still < PATIENCE, "both cores sleep and mail is on its way: stuck at {now}");
        thread::sleep(Duration::from_millis(10));
    }
    for thread in threads {
        thread.join().expect("no core panicked");
    }
}

fn ping_pong(rounds: u64, how: How) {
    let mut ends = Mesh::of_cores(2, 8).expect("eventfds");
    let (second, first) = (ends.pop().expect("two"), ends.pop().expect("two"));
    let progress = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&progress);
    let mut next = 0;
    let ping = on_core(first, how, move |mesh| {
        if next == 0 {
            mesh.send(1, 0);
            next = 1;
        }
        let mut answer = None;
        mesh.receive(64, |_, letter| answer = Some(letter));
        if let Some(letter) = answer {
            assert_eq!(letter, next - 1);
            counted.store(next, Ordering::Relaxed);
            mesh.send(1, next);
            next += 1;
        }
        next > rounds
    });
    let pong = on_core(second, how, move |mesh| {
        let mut got = None;
        mesh.receive(64, |_, letter| got = Some(letter));
        if let Some(letter) = got {
            mesh.send(0, letter);
        }
        got == Some(rounds)
    });
    watch(&progress, vec![ping, pong]);
}

#[test]
fn no_wake_up_is_lost_between_two_cores_that_always_sleep() {
    ping_pong(20_000, SLEEPY);
}

#[test]
fn no_wake_up_is_lost_between_two_cores_that_spin_and_sleep() {
    ping_pong(20_000, How { spin: Duration::from_micros(20), ..SLEEPY });
}

/// An executor whose preemption timer has fired before it looks at its tasks parks without running them (glommio-ng 0.12): the
/// driver's heartbeat finds them.
#[test]
fn an_executor_that_overlooks_a_task_is_woken_again() {
    ping_pong(100, How { preempt: Duration::from_micros(20), ..SLEEPY });
}

/// Two cores send at random to each other through lanes of four letters, so that letters wait on both sides.
#[test]
fn a_full_lane_keeps_order_and_wakes_its_sender() {
    const LETTERS: u64 = 100_000;
    let progress = Arc::new(AtomicU64::new(0));
    let threads = Mesh::of_cores(2, 4)
        .expect("eventfds")
        .into_iter()
        .map(|mesh| {
            let progress = Arc::clone(&progress);
            let other = 1 - mesh.core();
            let mut random = Random(mesh.core() as u64 + 99);
            let (mut sent, mut received) = (0, 0);
            on_core(mesh, SLEEPY, move |mesh| {
                // Sends by itself only at first; later what it gets makes it send, so that silence would be for good.
                let burst = if sent == 0 { 50 } else { 0 };
                let taken = mesh.receive(1 + random.below(20), |_, letter| {
                    assert_eq!(letter, received, "in order");
                    received += 1;
                }) as u64;
                progress.fetch_add(taken, Ordering::Relaxed);
                for _ in 0..(burst + taken).min(LETTERS - sent) {
                    mesh.send(other, sent);
                    sent += 1;
                }
                sent == LETTERS && received == LETTERS
            })
        })
        .collect();
    watch(&progress, threads);
}

#[test]
fn letters_of_several_senders_are_taken_in_turns() {
    let mut ends: Vec<Mesh<Letter>> = Mesh::of_cores(3, 1024).expect("eventfds");
    let mut receiver = ends.remove(0);
    for sender in &mut ends {
        for letter in 0..200 {
            sender.send(0, letter);
        }
        sender.flush();
    }
    let mut from = [0; 3];
    assert_eq!(receiver.receive(64, |sender, _| from[sender] += 1), 64);
    assert_eq!(from, [0, 32, 32]);
    assert!(receiver.has_mail());
    assert_eq!(receiver.receive(1_000, |sender, _| from[sender] += 1), 336);
    assert_eq!(from, [0, 200, 200]);
    assert!(!receiver.has_mail());
}

/// A sender that sleeps on letters for which there was no room is woken when there is. Without that bell each lane's worth would take the
/// longest sleep, a tenth of a second: 50 s in all.
#[test]
fn letters_that_wait_with_a_sleeping_sender_leave_as_soon_as_there_is_room() {
    const LETTERS: u64 = 2_000;
    let mut ends = Mesh::of_cores(2, 4).expect("eventfds");
    let (receiver, sender) = (ends.pop().expect("two"), ends.pop().expect("two"));
    let progress = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&progress);
    let started = std::time::Instant::now();
    let mut sent = 0;
    let sending = on_core(sender, SLEEPY, move |mesh| {
        while sent < LETTERS {
            mesh.send(1, sent);
            sent += 1;
        }
        true
    });
    let mut received = 0;
    let receiving = on_core(receiver, SLEEPY, move |mesh| {
        mesh.receive(64, |_, letter| {
            assert_eq!(letter, received, "in order");
            received += 1;
        });
        counted.store(received, Ordering::Relaxed);
        received == LETTERS
    });
    watch(&progress, vec![sending, receiving]);
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
}
