//! Sockets that were connected elsewhere and adopted by a core.

mod support;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use mayfly_net::mesh::Waker;
use mayfly_net::ring::{ConnectionId, Connections, Event, Share};
use mayfly_net::tls::{Acceptor, Files};
use support::{PATIENCE, Seen, Server, echo_check, pair, reset};

#[test]
fn an_adopted_socket_echoes_blocking_or_not_and_its_opening_is_not_told() {
    let server = Server::echo(|_| {});
    let (_, theirs) = server.link();
    echo_check(theirs, 3 << 20, 11);
    let (ours, theirs) = pair();
    let id = server.adopt(ours);
    echo_check(theirs, 1 << 20, 12);
    server.wait_for(|seen| {
        assert!(!matches!(seen, Seen::Opened(_)), "nothing was accepted");
        matches!(seen, Seen::Closed(closed, _) if *closed == id)
    });
    assert_eq!(server.ask(|driver| (driver.connections().open_count(), driver.connections().link_count())), (0, 0));
}

#[test]
fn what_is_no_socket_fails_by_itself() {
    let server = Server::echo(|_| {});
    let id = server.adopt(std::fs::File::open("/proc/self/status").expect("a file"));
    server.wait_for(|seen| *seen == Seen::Failed(id));
    server.wait_for(|seen| *seen == Seen::Closed(id, 0));
}

#[test]
fn links_count_for_no_bound_and_no_balance() {
    let waker = Arc::new(Waker::new().expect("an eventfd"));
    for share in [None, Share::of_cores(&[Arc::clone(&waker)]).pop()] {
        let server = Server::echo(|config| {
            config.connections_max = 1;
            config.share = share;
        });
        let links: Vec<_> = (0..3).map(|_| server.link()).collect();
        let mut client = server.connect();
        client.write_all(b"x").expect("open");
        client.read_exact(&mut [0]).expect("there is room for it");
        assert_eq!(server.ask(|driver| (driver.connections().open_count(), driver.connections().link_count())), (1, 3));
        for (id, theirs) in links {
            drop(theirs);
            server.wait_for(|seen| matches!(seen, Seen::Closed(closed, _) if *closed == id));
        }
        // Their ends have made no room either.
        assert_eq!(server.connect().read(&mut [0]).unwrap_or(0), 0, "one connection is the bound");
        drop(client);
        server.wait_for(|seen| matches!(seen, Seen::Closed(..)));
        let mut next = server.connect();
        next.write_all(b"x").expect("open");
        next.read_exact(&mut [0]).expect("room again");
    }
}

#[test]
fn a_link_is_plain_on_a_core_whose_clients_speak_tls() {
    let folder = std::env::temp_dir().join(format!("mayfly-links-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let files = Files { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(&files.cert, made.cert.pem()).expect("written");
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("written");
    let acceptor = Arc::new(Acceptor::load(&files).expect("good files"));
    std::fs::remove_dir_all(&folder).expect("removed");
    let server = Server::echo(|config| config.tls = Some(acceptor));
    let (_, theirs) = server.link();
    echo_check(theirs, 1 << 20, 13);
    let mut client = server.connect();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("open");
    let mut refusal = String::new();
    client.read_to_string(&mut refusal).expect("an answer");
    assert!(refusal.contains("this port speaks TLS"), "{refusal}");
}

const FRAME_BYTES: usize = 3 << 20;
/// Bytes that each end of a link says.
const SAID_BYTES: u64 = 20 * FRAME_BYTES as u64;
/// An end that has more than this unsent says nothing more until it has less.
const UNSENT_BYTES_MAX: usize = 4 << 20;

/// The bytes of a direction: each tells its place.
fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8
}

/// Appends whole frames while there is something left to say and little is unsent.
fn speak(connections: &mut Connections, id: ConnectionId) {
    while let Some(output) = connections.output(id) {
        let begins_at = output.appended();
        if begins_at == SAID_BYTES || output.unsent_bytes() > UNSENT_BYTES_MAX {
            return;
        }
        output.buffer().extend((begins_at..begins_at + FRAME_BYTES as u64).map(byte_at));
    }
}

fn speaking(heard_all: Sender<ConnectionId>) -> support::Session {
    let mut heard: HashMap<ConnectionId, u64> = HashMap::new();
    Box::new(move |connections, event| match *event {
        Event::Received(id, bytes) => {
            let offset = heard.entry(id).or_default();
            assert!(bytes.iter().zip(*offset..).all(|(byte, at)| *byte == byte_at(at)), "in order, none lost, none twice");
            *offset += bytes.len() as u64;
            if *offset == SAID_BYTES {
                heard_all.send(id).expect("the test waits");
            }
        }
        Event::Sent { id, .. } => speak(connections, id),
        Event::Finished(id) => connections.close(id),
        _ => {}
    })
}

/// Two links of one core to itself, so that each buffer it lends to the kernel has to come back many times.
fn large_frames(configure: fn(&mut mayfly_net::ring::DriverConfig)) {
    let (heard_all, is_heard) = channel();
    let server = Server::start(configure, || speaking(heard_all));
    let sockets: Vec<_> = (0..2).flat_map(|_| <[TcpStream; 2]>::from(pair())).collect();
    let ids: Vec<_> = sockets.into_iter().map(|socket| server.adopt(socket)).collect();
    let speakers = ids.clone();
    server.ask(move |driver| speakers.iter().for_each(|id| speak(driver.connections(), *id)));
    for _ in &ids {
        is_heard.recv_timeout(PATIENCE).expect("all bytes come");
    }
    assert_eq!(server.ask(|driver| driver.connections().unsent_bytes()), 0);
    server.ask(move |driver| driver.connections().close(ids[0]));
    server.wait_for(|seen| matches!(seen, Seen::Closed(_, SAID_BYTES)));
}

#[test]
fn large_frames_go_both_ways_at_once() {
    large_frames(|_| {});
}

#[test]
fn large_frames_survive_a_want_of_receive_buffers() {
    large_frames(|config| (config.buffer_count, config.buffer_bytes) = (4, 4096));
}

#[test]
fn what_is_appended_in_pieces_goes_in_one_send_and_what_follows_in_the_next() {
    let (told, sends) = channel();
    let server = Server::start(
        |_| {},
        || {
            Box::new(move |_, event| {
                if let Event::Sent { offset, .. } = *event {
                    told.send(offset).expect("the test waits");
                }
            })
        },
    );
    let (id, mut theirs) = server.link();
    server.ask(move |driver| {
        for _ in 0..1_000 {
            driver.output(id).expect("open").buffer().extend_from_slice(&[7; 10]);
        }
        driver.flush();
        driver.output(id).expect("open").buffer().extend_from_slice(&[8; 10]);
    });
    let mut all = [0; 10_010];
    theirs.read_exact(&mut all).expect("all of it");
    assert!(all[..10_000].iter().all(|byte| *byte == 7) && all[10_000..] == [8; 10]);
    let next_send = || sends.recv_timeout(PATIENCE).expect("told");
    assert_eq!([next_send(), next_send()], [10_000, 10_010]);
}

#[test]
fn a_half_closed_link_can_still_be_written_to() {
    let server = Server::start(|_| {}, || Box::new(|_, _| {}));
    let (id, mut theirs) = server.link();
    theirs.write_all(b"last words").expect("open");
    theirs.shutdown(Shutdown::Write).expect("open");
    assert_eq!(server.wait_for(|_| true), Seen::Received(id, 10));
    assert_eq!(server.wait_for(|_| true), Seen::Finished(id));
    server.ask(move |driver| driver.output(id).expect("open").buffer().resize(1 << 20, 7));
    server.ask(move |driver| driver.connections().close(id));
    let mut all = Vec::new();
    theirs.read_to_end(&mut all).expect("ends with a FIN");
    assert_eq!(all.len(), 1 << 20);
    assert_eq!(server.wait_for(|_| true), Seen::Closed(id, 1 << 20));
}

#[test]
fn a_reset_link_fails_and_closes_with_its_unsent_bytes_known() {
    let server = Server::start(|_| {}, || Box::new(|_, _| {}));
    let (id, theirs) = server.link();
    server.ask(move |driver| driver.output(id).expect("open").buffer().resize(64 << 20, 7));
    let (unsent, sent) = server.ask(move |driver| {
        let output = driver.connections().offsets(id).expect("open");
        (output.unsent_bytes() as u64, output.sent())
    });
    assert_eq!(unsent + sent, 64 << 20);
    assert!(unsent > 0, "more than any socket takes");
    reset(theirs);
    server.wait_for(|seen| *seen == Seen::Failed(id));
    server.wait_for(|seen| matches!(seen, Seen::Closed(closed, sent) if *closed == id && *sent < 64 << 20));
    assert!(server.ask(move |driver| driver.output(id).is_none() && driver.connections().offsets(id).is_none()));
}

#[test]
fn closing_sends_what_is_unsent_and_aborting_drops_it() {
    let server = Server::start(|_| {}, || Box::new(|_, _| {}));
    let (closed, mut theirs) = server.link();
    server.ask(move |driver| {
        driver.output(closed).expect("open").buffer().resize(32 << 20, 7);
        driver.close(closed);
        assert!(driver.output(closed).is_none());
    });
    let mut all = Vec::new();
    theirs.read_to_end(&mut all).expect("ends with a FIN");
    assert_eq!(all.len(), 32 << 20);
    drop(theirs);
    server.wait_for(|seen| *seen == Seen::Closed(closed, 32 << 20));

    let (aborted, mut theirs) = server.link();
    server.ask(move |driver| {
        driver.output(aborted).expect("open").buffer().resize(32 << 20, 7);
        driver.abort(aborted);
    });
    let mut all = Vec::new();
    let _ = theirs.read_to_end(&mut all);
    assert!(all.len() < 32 << 20);
    server.wait_for(|seen| matches!(seen, Seen::Closed(id, _) if *id == aborted));
}

#[test]
fn a_peer_that_stops_reading_fails_its_link_and_harms_no_other() {
    let server = Server::echo(|config| config.send_stall = Duration::from_millis(300));
    let (stuck, _never_read) = server.link();
    let (_, other) = server.link();
    server.ask(move |driver| driver.output(stuck).expect("open").buffer().resize(64 << 20, 7));
    echo_check(other, 1 << 20, 14);
    server.wait_for(|seen| *seen == Seen::Failed(stuck));
    server.wait_for(|seen| matches!(seen, Seen::Closed(closed, _) if *closed == stuck));
}

#[test]
fn links_and_clients_side_by_side_reuse_slots() {
    let server = Server::echo(|_| {});
    for round in 0..200 {
        let (_, theirs) = server.link();
        let client = server.connect();
        if round % 3 == 0 {
            reset(theirs);
        } else {
            echo_check(theirs, 1_000, round + 1);
        }
        echo_check(client, 1_000, round + 1);
    }
    for _ in 0..400 {
        let Seen::Closed(id, _) = server.wait_for(|seen| matches!(seen, Seen::Closed(..))) else { unreachable!() };
        assert!(id.slot() < 32, "slots are reused");
    }
    assert_eq!(server.ask(|driver| (driver.connections().open_count(), driver.connections().link_count())), (0, 0));
}
