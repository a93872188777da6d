//! The driver under plain, slow, hasty and hostile clients.

mod support;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_net::ring::{Connections, Event};
use support::{Random, Seen, Server, echo_check, reset};

fn echo_many(server: &Server, client_count: u64, total: usize) {
    let clients: Vec<_> = (1..=client_count)
        .map(|seed| {
            let stream = server.connect();
            thread::spawn(move || echo_check(stream, total, seed * 7919))
        })
        .collect();
    for client in clients {
        client.join().expect("its bytes came back in order");
    }
}

#[test]
fn pipelined_bytes_come_back_whole_and_in_order() {
    let server = Server::echo(|_| {});
    echo_many(&server, 8, 3 << 20);
}

#[test]
fn running_out_of_receive_buffers_loses_nothing() {
    let server = Server::echo(|config| {
        config.buffer_count = 2;
        config.buffer_bytes = 512;
    });
    echo_many(&server, 8, 200_000);
}

/// An echo that sends at once whatever it can; `Sent` has to tell all of it before the end.
fn hasty_echo() -> support::Session {
    let (mut appended, mut sent) = (HashMap::new(), HashMap::new());
    Box::new(move |connections, event| {
        support::echo(connections, event);
        match *event {
            Event::Received(id, bytes) => {
                *appended.entry(id).or_insert(0) += bytes.len() as u64;
                connections.send_now(id);
                connections.send_now(id);
            }
            Event::Sent { id, offset } => assert!(sent.insert(id, offset).unwrap_or(0) <= offset, "what was sent never shrinks"),
            Event::Closed { id, sent: all, .. } => {
                assert_eq!(appended.remove(&id).unwrap_or(0), all, "all of it was counted");
                assert_eq!(sent.remove(&id).unwrap_or(0), all, "and told");
            }
            _ => {}
        }
    })
}

#[test]
fn what_is_sent_at_once_keeps_its_order_whole_and_is_told() {
    let server = Server::start(|_| {}, hasty_echo);
    echo_many(&server, 8, 3 << 20);
    for _ in 0..8 {
        server.wait_for(|seen| matches!(seen, Seen::Closed(_, 3_145_728)));
    }
}

#[test]
fn sending_at_once_to_a_peer_that_reset_fails_its_connection_only() {
    let (busy, is_busy) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    let server = Server::start(
        |_| {},
        || {
            Box::new(move |connections: &mut Connections, event: &Event<'_>| {
                if let Event::Received(id, _) = *event {
                    busy.send(()).expect("the test waits");
                    may_go_on.recv().expect("the test goes on");
                    connections.output(id).expect("open").buffer().extend_from_slice(b"answer");
                    connections.send_now(id);
                }
            })
        },
    );
    let mut gone = server.connect();
    gone.write_all(b"x").expect("open");
    is_busy.recv().expect("its byte came");
    reset(gone);
    go_on.send(()).expect("the server waits");
    server.wait_for(|seen| matches!(seen, Seen::Failed(_)));
    server.wait_for(|seen| matches!(seen, Seen::Closed(..)));
    let mut alive = server.connect();
    alive.write_all(b"x").expect("open");
    is_busy.recv().expect("its byte came");
    go_on.send(()).expect("the server waits");
    let mut answer = [0; 6];
    alive.read_exact(&mut answer).expect("answered");
    assert_eq!(&answer, b"answer");
}

#[test]
fn spinning_before_sleep_changes_no_result() {
    let server = Server::echo(|config| config.spin = Duration::from_micros(50));
    echo_many(&server, 2, 1 << 20);
}

#[test]
fn slots_are_reused_and_no_byte_goes_to_a_later_connection() {
    let server = Server::echo(|_| {});
    let churners: Vec<_> = (1..=4_u64)
        .map(|seed| {
            let address = server.address;
            thread::spawn(move || churn(address, seed * 31, 400))
        })
        .collect();
    echo_many(&server, 2, 2 << 20);
    for churner in churners {
        churner.join().expect("its echoes were its own");
    }
    // One more that is closed last, so that everything before it was told.
    let (mut opened, mut closed, mut slot_max) = (0, 0, 0);
    while closed < 4 * 400 + 2 {
        match server.wait_for(|seen| matches!(seen, Seen::Opened(_) | Seen::Closed(..))) {
            Seen::Opened(id) => {
                opened += 1;
                slot_max = slot_max.max(id.slot());
            }
            _ => closed += 1,
        }
    }
    assert_eq!(opened, 4 * 400 + 2);
    assert!(slot_max < 64, "slots up to {slot_max} for at most a few connections at once");
}

/// Connects again and again and leaves in different ways; what comes back must be a prefix of what was sent.
fn churn(address: std::net::SocketAddr, seed: u64, count: usize) {
    let mut random = Random(seed);
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).expect("connects");
        let sent: Vec<u8> = (0..1 + random.below(5_000)).map(|_| random.next() as u8).collect();
        stream.write_all(&sent).expect("fits the socket's buffer");
        match random.below(5) {
            0 => reset(stream),
            1 => drop(stream),
            2 => {
                let mut some = vec![0; sent.len() / 2 + 1];
                let length = stream.read(&mut some).expect("an echo");
                assert_eq!(some[..length], sent[..length]);
                reset(stream);
            }
            _ => {
                stream.shutdown(Shutdown::Write).expect("open");
                let mut all = Vec::new();
                stream.read_to_end(&mut all).expect("ends with a FIN");
                assert!(all == sent);
            }
        }
    }
}

#[test]
fn five_thousand_connects_at_once_are_all_served() {
    const CONNECTS: usize = 5_000;
    let server = Server::echo(|_| {});
    let started = Instant::now();
    let mut streams: Vec<TcpStream> = Vec::with_capacity(CONNECTS);
    for _ in 0..CONNECTS {
        let mut stream = server.connect();
        stream.write_all(b"x").expect("open");
        streams.push(stream);
    }
    for stream in &mut streams {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("no reset, an echo");
    }
    println!("{CONNECTS} connects and echoes in {:?}", started.elapsed());
}

#[test]
fn a_reader_that_never_reads_fails_and_harms_no_other() {
    let server = Server::start(
        |config| config.send_stall = Duration::from_millis(300),
        || {
            Box::new(|connections: &mut Connections, event: &Event<'_>| match *event {
                Event::Received(id, bytes) => {
                    let Some(output) = connections.output(id) else { return };
                    let answer = if bytes == b"much" { vec![7; 32 << 20] } else { bytes.to_vec() };
                    output.buffer().extend_from_slice(&answer);
                }
                Event::Finished(id) => connections.close(id),
                _ => {}
            })
        },
    );
    let mut lazy = server.connect();
    lazy.write_all(b"much").expect("open");
    let mut other = server.connect();
    for _ in 0..20 {
        other.write_all(b"ping").expect("open");
        let mut pong = [0; 4];
        other.read_exact(&mut pong).expect("an echo");
        assert_eq!(&pong, b"ping");
    }
    let Seen::Failed(failed) = server.wait_for(|seen| matches!(seen, Seen::Failed(_))) else { unreachable!() };
    server.wait_for(|seen| matches!(seen, Seen::Closed(id, sent) if *id == failed && *sent < 32 << 20));
}

#[test]
fn a_slow_reader_that_makes_progress_does_not_fail() {
    const ANSWER_BYTES: usize = 24 << 20;
    let server = Server::start(
        |config| config.send_stall = Duration::from_millis(400),
        || {
            Box::new(|connections: &mut Connections, event: &Event<'_>| {
                if let Event::Received(id, _) = *event {
                    connections.output(id).expect("open").buffer().resize(ANSWER_BYTES, 7);
                    connections.close(id);
                }
            })
        },
    );
    let mut slow = server.connect();
    slow.write_all(b"?").expect("open");
    let (mut total, mut piece) = (0, vec![0; 2 << 20]);
    loop {
        match slow.read(&mut piece).expect("no reset") {
            0 => break,
            length => total += length,
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(total, ANSWER_BYTES);
}

#[test]
fn fin_and_reset_are_told_apart() {
    let server = Server::start(|_| {}, || Box::new(answer_after_fin));
    let mut polite = server.connect();
    polite.write_all(b"request").expect("open");
    polite.shutdown(Shutdown::Write).expect("open");
    let mut answer = Vec::new();
    polite.read_to_end(&mut answer).expect("a half-closed peer is answered");
    assert_eq!(answer, b"answer");
    server.wait_for(|seen| matches!(seen, Seen::Finished(_)));
    server.wait_for(|seen| matches!(seen, Seen::Closed(_, 6)));

    let mut rude = server.connect();
    rude.write_all(b"request").expect("open");
    server.wait_for(|seen| matches!(seen, Seen::Received(_, 7)));
    reset(rude);
    server.wait_for(|seen| {
        assert!(!matches!(seen, Seen::Finished(_)), "a reset is not a FIN");
        matches!(seen, Seen::Failed(_))
    });
    server.wait_for(|seen| matches!(seen, Seen::Closed(_, 0)));
}

fn answer_after_fin(connections: &mut Connections, event: &Event<'_>) {
    if let Event::Finished(id) = *event {
        connections.output(id).expect("open").buffer().extend_from_slice(b"answer");
        connections.close(id);
    }
}

/// Reads nothing until a hang-up, then everything.
fn paused_until_hang_up(connections: &mut Connections, event: &Event<'_>) {
    match *event {
        Event::Opened(id) => connections.pause(id),
        Event::HangUp(id) => connections.resume(id),
        Event::Finished(id) => connections.close(id),
        _ => {}
    }
}

#[test]
fn a_hang_up_is_seen_while_reading_is_paused_and_its_bytes_are_kept() {
    let server = Server::start(|_| {}, || Box::new(paused_until_hang_up));
    let mut stream = server.connect();
    stream.write_all(&[7; 100_000]).expect("fits the sockets' buffers");
    server.wait_for(|seen| matches!(seen, Seen::Opened(_)));
    stream.shutdown(Shutdown::Write).expect("open");
    server.wait_for(|seen| {
        assert!(!matches!(seen, Seen::Received(..)), "reading was paused");
        matches!(seen, Seen::HangUp(_))
    });
    let mut count = 0;
    while count < 100_000 {
        let Seen::Received(_, length) = server.wait_for(|_| true) else { panic!("bytes first, then the end") };
        count += length;
    }
    server.wait_for(|seen| matches!(seen, Seen::Finished(_)));
    server.wait_for(|seen| matches!(seen, Seen::Closed(..)));
}

#[test]
fn a_reset_is_seen_while_reading_is_paused() {
    let server = Server::start(|_| {}, || Box::new(paused_until_hang_up));
    let stream = server.connect();
    server.wait_for(|seen| matches!(seen, Seen::Opened(_)));
    reset(stream);
    server.wait_for(|seen| matches!(seen, Seen::HangUp(_)));
    server.wait_for(|seen| matches!(seen, Seen::Failed(_)));
    server.wait_for(|seen| matches!(seen, Seen::Closed(..)));
}

/// Pauses and resumes at every event, in every order.
fn restless(connections: &mut Connections, event: &Event<'_>) {
    if let Event::Received(id, bytes) = *event {
        connections.pause(id);
        if bytes.len() % 2 == 0 {
            connections.resume(id);
        }
    }
    if let Event::Sent { id, .. } = *event {
        connections.resume(id);
    }
    if let Event::HangUp(id) = *event {
        connections.resume(id);
    }
    support::echo(connections, event);
}

#[test]
fn pausing_and_resuming_all_the_time_keeps_every_byte() {
    let server = Server::start(|_| {}, || Box::new(restless));
    echo_many(&server, 6, 1 << 20);
}

#[test]
fn a_refusal_arrives_although_the_client_is_still_sending() {
    const BODY_BYTES: usize = 65 << 20;
    let server = Server::start(
        |_| {},
        || {
            Box::new(|connections: &mut Connections, event: &Event<'_>| {
                if let Event::Received(id, _) = *event
                    && let Some(output) = connections.output(id)
                {
                    output.buffer().extend_from_slice(b"413");
                    connections.close(id);
                }
            })
        },
    );
    let mut stream = server.connect();
    let mut writer = stream.try_clone().expect("clonable");
    let writing = thread::spawn(move || {
        writer.write_all(&vec![7; BODY_BYTES]).expect("the server drains it");
        writer.shutdown(Shutdown::Write).expect("open");
    });
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("no reset");
    assert_eq!(answer, b"413");
    writing.join().expect("all of the body was taken");
    server.wait_for(|seen| matches!(seen, Seen::Closed(_, 3)));
}

#[test]
fn draining_ends_at_its_bounds() {
    let start = |configure: fn(&mut mayfly_net::ring::DriverConfig)| {
        Server::start(configure, || {
            Box::new(|connections: &mut Connections, event: &Event<'_>| {
                if let Event::Received(id, _) = *event {
                    connections.close(id);
                }
            })
        })
    };
    // A peer that says nothing more and never closes.
    let quiet = start(|config| config.drain_quiet = Duration::from_millis(200));
    let mut stream = quiet.connect();
    stream.write_all(b"x").expect("open");
    quiet.wait_for(|seen| matches!(seen, Seen::Closed(..)));
    // A peer that never stops.
    let bounded = start(|config| config.drain_bytes = 1 << 20);
    let mut stream = bounded.connect();
    while stream.write_all(&[7; 65_536]).is_ok() {}
    bounded.wait_for(|seen| matches!(seen, Seen::Closed(..)));
}

/// While the core is busy, bytes of one peer arrive and then another leaves: the leaving is told first.
#[test]
fn an_end_is_told_before_bytes_of_others_that_came_earlier() {
    let (busy, is_busy) = std::sync::mpsc::channel();
    let server = Server::start(
        |_| {},
        || {
            Box::new(move |connections: &mut Connections, event: &Event<'_>| match *event {
                Event::Received(_, b"busy") => {
                    busy.send(()).expect("the test waits");
                    thread::sleep(Duration::from_millis(300));
                }
                Event::Finished(id) => connections.close(id),
                _ => {}
            })
        },
    );
    let mut streams: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let ids: Vec<_> = (0..3)
        .map(|_| match server.wait_for(|seen| matches!(seen, Seen::Opened(_))) {
            Seen::Opened(id) => id,
            _ => unreachable!(),
        })
        .collect();
    streams[0].write_all(b"busy").expect("open");
    is_busy.recv().expect("the core is busy");
    streams[1].write_all(b"bytes").expect("open");
    streams[2].shutdown(Shutdown::Write).expect("open");
    server.wait_for(|seen| *seen == Seen::Received(ids[0], 4));
    assert_eq!(server.wait_for(|_| true), Seen::Finished(ids[2]));
    assert_eq!(server.wait_for(|seen| !matches!(seen, Seen::Closed(..))), Seen::Received(ids[1], 5));
}

#[test]
fn an_aborted_connection_drops_its_output_and_closes() {
    let server = Server::start(
        |_| {},
        || {
            Box::new(|connections: &mut Connections, event: &Event<'_>| {
                if let Event::Received(id, _) = *event {
                    connections.output(id).expect("open").buffer().extend_from_slice(b"never sent");
                    connections.abort(id);
                    assert!(connections.output(id).is_none() && !connections.is_open(id));
                }
            })
        },
    );
    let mut stream = server.connect();
    stream.write_all(b"x").expect("open");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    server.wait_for(|seen| matches!(seen, Seen::Closed(_, 0)));
}

#[test]
fn connections_beyond_the_bound_are_closed_at_once() {
    let server = Server::echo(|config| config.connections_max = 3);
    let mut kept: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for _ in 0..3 {
        server.wait_for(|seen| matches!(seen, Seen::Opened(_)));
    }
    let mut refused = server.connect();
    let mut nothing = Vec::new();
    let _ = refused.read_to_end(&mut nothing);
    assert!(nothing.is_empty());
    drop(kept.pop());
    server.wait_for(|seen| matches!(seen, Seen::Closed(..)));
    let mut next = server.connect();
    next.write_all(b"x").expect("open");
    next.read_exact(&mut [0]).expect("room again");
}
