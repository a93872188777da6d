//! Doors, dials and control links over loopback, among friends, the curious and the hostile.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mayfly_net::peer::control::{self, ControlLinks, Notice};
use mayfly_net::peer::dial::{Failure, dial};
use mayfly_net::peer::door::{Door, Limits};
use mayfly_net::peer::frame::{Frames, open};
use mayfly_net::peer::handshake::{Credentials, Purpose, Refused};
use mayfly_net::peer::{Link, Spans};
use socket2::{Domain, Socket, Type};
use support::{PATIENCE, Seen, Server};

const SECRET: &[u8] = b"a secret of the cluster";
/// Doors and links end within 100 ms; a machine that is busy with other tests may take longer.
const PROMPTLY: Duration = Duration::from_millis(500);

fn node(id: u64) -> Arc<Credentials> {
    incarnated(id, id * 100)
}

fn incarnated(id: u64, incarnation: u64) -> Arc<Credentials> {
    Arc::new(Credentials::new("c", SECRET, id, incarnation, 4).expect("usable"))
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A port on which nobody listens, and which no other test gets while the socket is there. A door may open on it.
fn reserved() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("settable");
    socket.bind(&loopback().into()).expect("a free port");
    let address = socket.local_addr().expect("bound").as_socket().expect("an address");
    (socket, address)
}

fn spans(handshake_ms: u64) -> Spans {
    Spans { handshake: Duration::from_millis(handshake_ms), ..Spans::default() }
}

fn door(id: u64, limits: Limits) -> (Door, Receiver<Link>) {
    let (told, links) = channel();
    let arrived = move |link| {
        // A test that has seen enough has dropped its end.
        let _ = told.send(link);
    };
    (Door::open(loopback(), node(id), limits, arrived).expect("a free port"), links)
}

fn dial_door(door: &Door, own: u64, wanted: u64, purpose: Purpose) -> Result<Link, Failure> {
    dial(&node(own), &door.address().to_string(), wanted, purpose, Spans::default())
}

fn knock(door: &Door) -> TcpStream {
    let stream = TcpStream::connect(door.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    stream
}

/// Whether the door hangs up, with nothing said.
fn is_sent_away(mut stream: TcpStream) -> bool {
    matches!(stream.read(&mut [0; 100]), Ok(0) | Err(_))
}

#[test]
fn a_link_is_adopted_by_a_core_at_each_end_and_carries_frames() {
    let (door, links) = door(2, Limits::default());
    let dialled = dial_door(&door, 1, 2, Purpose::Core(3)).expect("let in");
    let accepted = links.recv_timeout(PATIENCE).expect("told");
    assert_eq!((dialled.peer.node, dialled.peer.incarnation), (2, 200));
    assert_eq!((accepted.peer.node, accepted.peer.incarnation, accepted.peer.purpose), (1, 100, Purpose::Core(3)));
    for stream in [&dialled.stream, &accepted.stream] {
        let socket = socket2::SockRef::from(stream);
        assert!(socket.tcp_nodelay().expect("readable") && socket.keepalive().expect("readable"));
        assert_eq!(socket.tcp_user_timeout().expect("readable"), Some(Spans::default().silence));
        assert!(socket.tcp_keepalive_time().expect("readable") < Spans::default().silence);
    }
    // The accepter's core echoes frame by frame what the dialler's core says.
    let (told, bodies) = channel();
    let mut frames = Frames::new();
    let client = Server::start(
        |_| {},
        || {
            Box::new(move |_, event| {
                let mayfly_net::ring::Event::Received(_, mut input) = *event else { return };
                while let Some(body) = frames.next(&mut input).expect("short") {
                    told.send(body.to_vec()).expect("the test waits");
                }
            })
        },
    );
    let server = Server::echo(|_| {});
    server.adopt(accepted.stream);
    let id = client.adopt(dialled.stream);
    let said: Vec<Vec<u8>> = [0, 1, 100, 20_000, 3 << 20, 5].iter().enumerate().map(|(at, count)| vec![at as u8; *count]).collect();
    let to_say = said.clone();
    client.ask(move |driver| {
        let out = driver.output(id).expect("open").buffer();
        for body in to_say {
            let frame = open(out);
            out.extend_from_slice(&body);
            frame.finish(out).expect("short");
        }
    });
    for body in said {
        assert!(bodies.recv_timeout(PATIENCE).expect("echoed") == body);
    }
    // An end is an end of the other one too.
    client.ask(move |driver| driver.close(id));
    server.wait_for(|seen| matches!(seen, Seen::Finished(_)));
    client.wait_for(|seen| matches!(seen, Seen::Closed(closed, _) if *closed == id));
}

#[test]
fn who_is_not_let_in_is_told_why_and_the_door_stays_open() {
    let (door, links) = door(2, Limits::default());
    let refusal = |result: Result<Link, Failure>| match result {
        Err(Failure::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(dial_door(&door, 1, 3, Purpose::Control)), Refused::OtherNode { wanted: 3, found: 2 });
    assert_eq!(refusal(dial_door(&door, 1, 2, Purpose::Core(4))), Refused::NoSuchCore { core: 4 });
    assert_eq!(refusal(dial_door(&door, 2, 2, Purpose::Control)), Refused::Itself);
    assert_eq!(refusal(dial_door(&door, 2, 3, Purpose::Control)), Refused::Itself);
    let address = door.address().to_string();
    let stranger = Arc::new(Credentials::new("c", b"another secret than that", 1, 7, 4).expect("usable"));
    assert_eq!(refusal(dial(&stranger, &address, 2, Purpose::Control, Spans::default())), Refused::OtherSecret);
    let twin = incarnated(2, 7);
    assert_eq!(refusal(dial(&twin, &address, 3, Purpose::Control, Spans::default())), Refused::SameNode { node: 2 });
    dial_door(&door, 1, 2, Purpose::Control).expect("let in");
    links.recv_timeout(PATIENCE).expect("the first that is told");
    assert!(links.try_recv().is_err());
    assert_eq!(door.refused_count(), 5, "one of the six has not even knocked");
}

#[test]
fn an_address_that_leads_nowhere_has_its_own_errors() {
    let (_reserved, free) = reserved();
    let dialled = |address: &str, spans| dial(&node(1), address, 2, Purpose::Control, spans);
    assert!(matches!(dialled(&free.to_string(), Spans::default()), Err(Failure::Unreachable(_))));
    assert!(matches!(dialled("no port", Spans::default()), Err(Failure::Unresolved(_))));
    // Nobody answers.
    let silent = TcpListener::bind(loopback()).expect("a free port");
    let started = Instant::now();
    let result = dialled(&silent.local_addr().expect("bound").to_string(), spans(200));
    assert!(matches!(result, Err(Failure::Late)), "{result:?}");
    assert!(started.elapsed() < Duration::from_secs(2));
    // One drip at a time makes no deadline longer.
    let dripping = TcpListener::bind(loopback()).expect("a free port");
    let address = dripping.local_addr().expect("bound").to_string();
    let drip = std::thread::spawn(move || {
        let (mut stream, _) = dripping.accept().expect("dialled");
        for byte in [2, 48, 0].into_iter().chain([0; 40]) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let started = Instant::now();
    assert!(matches!(dialled(&address, spans(300)), Err(Failure::Late)));
    assert!(started.elapsed() < Duration::from_secs(1));
    drip.join().expect("no panic");
}

/// What it says comes back to it: as if it were its own accepter.
#[test]
fn a_mirror_is_no_peer() {
    let mirror = Server::echo(|_| {});
    let result = dial(&node(1), &mirror.address.to_string(), 2, Purpose::Control, Spans::default());
    assert!(matches!(result, Err(Failure::Refused(Refused::Garbled))), "{result:?}");
}

#[test]
fn a_recorded_handshake_is_worth_nothing_a_second_time() {
    let (door, links) = door(2, Limits::default());
    // A listener between the two that keeps what the dialler says.
    let wire = TcpListener::bind(loopback()).expect("a free port");
    let address = wire.local_addr().expect("bound").to_string();
    let to_door = door.address();
    let relay = std::thread::spawn(move || {
        let (mut from, _) = wire.accept().expect("dialled");
        let mut to = TcpStream::connect(to_door).expect("it listens");
        let (mut from_back, mut to_back) = (from.try_clone().expect("clonable"), to.try_clone().expect("clonable"));
        let back = std::thread::spawn(move || std::io::copy(&mut to_back, &mut from_back));
        let (mut kept, mut buffer) = (Vec::new(), [0; 1000]);
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            kept.extend_from_slice(&buffer[..count]);
            to.write_all(&buffer[..count]).expect("open");
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = back.join();
        kept
    });
    drop(dial(&node(1), &address, 2, Purpose::Control, Spans::default()).expect("let in"));
    links.recv_timeout(PATIENCE).expect("told");
    let kept = relay.join().expect("no panic");
    let mut again = knock(&door);
    again.write_all(&kept).expect("open");
    let mut heard = Vec::new();
    let _ = again.read_to_end(&mut heard);
    assert!(links.try_recv().is_err());
    assert_eq!(door.refused_count(), 1);
}

#[test]
fn garbage_is_sent_away_at_once_and_the_slow_at_their_deadline() {
    let (door, links) = door(2, Limits { spans: spans(300), ..Limits::default() });
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 70_000], &[22, 3, 1, 2, 0]] {
        let mut stream = knock(&door);
        let _ = stream.write_all(garbage);
        assert!(is_sent_away(stream));
    }
    let started = Instant::now();
    let mut slow = knock(&door);
    let mut writer = slow.try_clone().expect("clonable");
    let dripping = std::thread::spawn(move || {
        for byte in [1, 127, 0].into_iter().chain(std::iter::repeat_n(0, 100)) {
            if writer.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(matches!(slow.read(&mut [0]), Ok(0) | Err(_)));
    assert!((Duration::from_millis(250)..Duration::from_secs(2)).contains(&started.elapsed()), "{:?}", started.elapsed());
    drop(slow);
    dripping.join().expect("no panic");
    assert_eq!(door.refused_count(), 4);
    dial_door(&door, 1, 2, Purpose::Control).expect("let in");
    links.recv_timeout(PATIENCE).expect("told");
}

#[test]
fn a_thousand_idle_connections_keep_no_node_out() {
    let (door, links) = door(2, Limits { handshakes_max: 32, spans: spans(60_000) });
    let idle: Vec<TcpStream> = (0..1_000).map(|_| knock(&door)).collect();
    let started = Instant::now();
    for _ in 0..20 {
        dial_door(&door, 1, 2, Purpose::Control).expect("let in");
        links.recv_timeout(PATIENCE).expect("told");
    }
    println!("20 nodes let in beside 1,000 idle connections in {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(5));
    // The oldest have lost their places, and no more than those.
    assert!(door.refused_count() >= 968);
    for stream in idle.into_iter().take(900) {
        assert!(is_sent_away(stream));
    }
}

#[test]
fn a_door_closes_at_once_with_guests_inside() {
    let (door, _links) = door(2, Limits::default());
    let guest = knock(&door);
    let started = Instant::now();
    drop(door);
    assert!(started.elapsed() < PROMPTLY, "{:?}", started.elapsed());
    assert!(is_sent_away(guest));
}

/// A node with its control links, its door, and what it was told.
struct Party {
    links: Arc<ControlLinks>,
    door: Option<Door>,
    notices: Receiver<Notice>,
}

impl Party {
    fn start(own: &Arc<Credentials>, address: SocketAddr, limits: control::Limits) -> Self {
        let (told, notices) = channel();
        let tell = move |notice| {
            let _ = told.send(notice);
        };
        let links = Arc::new(ControlLinks::start(Arc::clone(own), limits, tell).expect("a thread"));
        let adopting = Arc::clone(&links);
        let door = Door::open(address, Arc::clone(own), Limits::default(), move |link| adopting.adopt(link)).expect("the port");
        Self { links, door: Some(door), notices }
    }

    fn address(&self) -> SocketAddr {
        self.door.as_ref().expect("open").address()
    }

    fn next(&self) -> Notice {
        self.notices.recv_timeout(PATIENCE).expect("told")
    }

    fn wait_for(&self, wanted: &Notice) {
        while self.next() != *wanted {}
    }

    fn end(mut self) {
        // The door first: it holds the links.
        self.door = None;
        let started = Instant::now();
        drop(Arc::try_unwrap(self.links).expect("the only one"));
        assert!(started.elapsed() < PROMPTLY, "{:?}", started.elapsed());
    }
}

fn parties() -> (Party, Party) {
    let (one, two) = (1, 2);
    let [one, two] = [one, two].map(|id| Party::start(&node(id), loopback(), control::Limits::default()));
    one.links.set_peers(vec![(1, "unused".to_owned()), (2, two.address().to_string())]);
    two.links.set_peers(vec![(1, one.address().to_string())]);
    (one, two)
}

fn number(notice: Notice) -> u64 {
    match notice {
        Notice::Received { body, .. } => u64::from_le_bytes(body[..8].try_into().expect("eight bytes")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_go_both_ways_in_order_and_large_ones_too() {
    let (one, two) = parties();
    one.wait_for(&Notice::Up { node: 2, incarnation: 200 });
    two.wait_for(&Notice::Up { node: 1, incarnation: 100 });
    for at in 0..500_u64 {
        let mut body = at.to_le_bytes().to_vec();
        body.resize(if at % 100 == 7 { 2 << 20 } else { 8 }, 9);
        assert!(one.links.send(2, body.clone()) && two.links.send(1, body));
    }
    for at in 0..500 {
        assert_eq!((number(one.next()), number(two.next())), (at, at));
    }
    assert!(!one.links.send(3, vec![1]), "no such peer");
    assert!(!one.links.send(1, vec![1]), "itself");
    assert_eq!((one.links.dropped_count(), two.links.dropped_count()), (2, 0));
    one.end();
    two.wait_for(&Notice::Down { node: 1 });
    two.end();
}

#[test]
fn a_peer_that_comes_back_is_found_again_and_says_that_it_is_another_start() {
    let (_reserved, address) = reserved();
    let one = Party::start(&node(1), loopback(), control::Limits::default());
    let two = Party::start(&node(2), address, control::Limits::default());
    one.links.set_peers(vec![(2, address.to_string())]);
    one.wait_for(&Notice::Up { node: 2, incarnation: 200 });
    two.end();
    one.wait_for(&Notice::Down { node: 2 });
    assert!(one.links.send(2, b"while it was away".to_vec()));
    // Longer than a message stays fresh, while attempts fail.
    std::thread::sleep(Duration::from_millis(1_200));
    let two = Party::start(&incarnated(2, 201), address, control::Limits::default());
    one.wait_for(&Notice::Up { node: 2, incarnation: 201 });
    assert_eq!(one.links.dropped_count(), 1, "what was said to the earlier start is not told to this one");
    assert!(one.links.send(2, b"news".to_vec()));
    assert_eq!(two.next(), Notice::Received { node: 1, incarnation: 100, body: b"news".to_vec() });
    // Taken off the list and put on again.
    one.links.set_peers(vec![]);
    one.wait_for(&Notice::Down { node: 2 });
    assert!(!one.links.send(2, vec![1]));
    one.links.set_peers(vec![(2, address.to_string())]);
    one.wait_for(&Notice::Up { node: 2, incarnation: 201 });
    one.end();
    two.end();
}

#[test]
fn a_peer_that_knocks_ends_the_pause_of_the_other() {
    let limits = control::Limits { back_off_min: Duration::from_secs(600), back_off_max: Duration::from_secs(600), ..Default::default() };
    let (_reserved, free) = reserved();
    let one = Party::start(&node(1), loopback(), limits);
    one.links.set_peers(vec![(2, free.to_string())]);
    // Its first attempt has failed by then, or fails while it is heard: either way it is up at last.
    std::thread::sleep(Duration::from_millis(300));
    let two = Party::start(&node(2), free, control::Limits::default());
    two.links.set_peers(vec![(1, one.address().to_string())]);
    one.wait_for(&Notice::Up { node: 2, incarnation: 200 });
    one.end();
    two.end();
}

#[test]
fn a_peer_that_stops_reading_costs_bounded_memory_and_the_newest_messages_stay() {
    const BODY_BYTES: usize = 64 << 10;
    let limits = control::Limits { queue_messages_max: 16, queue_bytes_max: 16 * BODY_BYTES, ..Default::default() };
    let one = Party::start(&node(1), loopback(), limits);
    // A door whose links nobody reads.
    let (door, links) = door(2, Limits::default());
    one.links.set_peers(vec![(2, door.address().to_string())]);
    one.wait_for(&Notice::Up { node: 2, incarnation: 200 });
    let mut link = links.recv_timeout(PATIENCE).expect("told");
    let message = |at: u64| {
        let mut body = at.to_le_bytes().to_vec();
        body.resize(BODY_BYTES, 7);
        body
    };
    let mut sent = 0_u64;
    let mut slowest = Duration::ZERO;
    while one.links.dropped_count() < 500 {
        let started = Instant::now();
        assert!(one.links.send(2, message(sent)));
        slowest = slowest.max(started.elapsed());
        sent += 1;
        // So that the links' thread keeps up until the socket is full.
        if sent.is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    println!("{sent} messages left with a peer that does not read, the slowest in {slowest:?}");
    // Then it reads: all that was not dropped, in order, the newest among it.
    link.stream.set_nonblocking(false).expect("settable");
    link.stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    let (mut frames, mut buffer, mut seen) = (Frames::new(), vec![0; 1 << 16], Vec::new());
    while seen.last() != Some(&(sent - 1)) {
        let count = link.stream.read(&mut buffer).expect("more");
        assert!(count > 0, "the link stays");
        let mut input = &buffer[..count];
        while let Some(body) = frames.next(&mut input).expect("frames") {
            assert_eq!(body.len(), BODY_BYTES);
            seen.push(u64::from_le_bytes(body[..8].try_into().expect("eight bytes")));
        }
    }
    assert!(seen.len() > 2 * 16, "the socket's own buffers were full too");
    assert!(seen.is_sorted_by(|one, two| one < two));
    assert_eq!(seen.len() as u64 + one.links.dropped_count(), sent);
    one.end();
}

#[test]
fn what_is_no_frame_ends_an_inbound_link_and_words_on_an_outbound_one_end_it() {
    let (one, two) = parties();
    one.wait_for(&Notice::Up { node: 2, incarnation: 200 });
    // A third node, let in, that announces 4 GiB.
    let mut third = dial(&node(3), &one.address().to_string(), 1, Purpose::Control, Spans::default()).expect("let in");
    third.stream.set_nonblocking(false).expect("settable");
    third.stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    third.stream.write_all(&[255; 100]).expect("open");
    assert!(matches!(third.stream.read(&mut [0]), Ok(0) | Err(_)));
    // One that speaks where it should listen.
    let (door, links) = door(4, Limits::default());
    one.links.set_peers(vec![(2, two.address().to_string()), (4, door.address().to_string())]);
    one.wait_for(&Notice::Up { node: 4, incarnation: 400 });
    let mut link = links.recv_timeout(PATIENCE).expect("told");
    link.stream.write_all(b"?").expect("open");
    one.wait_for(&Notice::Down { node: 4 });
    one.wait_for(&Notice::Up { node: 4, incarnation: 400 });
    one.end();
    two.end();
}

#[test]
fn links_end_at_once_while_they_dial_somebody_who_does_not_answer() {
    let silent = TcpListener::bind(loopback()).expect("a free port");
    let one = Party::start(&node(1), loopback(), control::Limits::default());
    one.links.set_peers(vec![(2, silent.local_addr().expect("bound").to_string())]);
    let (_dialled, _) = silent.accept().expect("it dials");
    one.end();
}

const CUT_TEST: &str = "a_cut_is_noticed_and_healed";

/// Sets the loopback device of this process's own network.
fn set_loopback(to: &str) {
    let status = std::process::Command::new("ip").args(["link", "set", "lo", to]).status().expect("ip");
    assert!(status.success());
}

/// In a network of its own, where there may be one: packets stop, with no FIN and no reset.
#[test]
fn a_cut_is_noticed_and_healed() {
    if std::env::var_os("MAYFLY_OWN_NETWORK").is_none() {
        let mut unshare = std::process::Command::new("unshare");
        if !unshare.args(["-rn", "ip", "link", "set", "lo", "up"]).status().is_ok_and(|status| status.success()) {
            return println!("skipped: a network of one's own is refused here");
        }
        let mut again = std::process::Command::new("unshare");
        again.arg("-rn").arg(std::env::current_exe().expect("a path")).args(["--exact", CUT_TEST, "--nocapture"]);
        return assert!(again.env("MAYFLY_OWN_NETWORK", "1").status().expect("started").success());
    }
    set_loopback("up");
    let spans = Spans { silence: Duration::from_secs(2), handshake: Duration::from_millis(500) };
    let limits = control::Limits { spans, ..Default::default() };
    let [one, two] = [1, 2].map(|id| Party::start(&node(id), loopback(), limits));
    one.links.set_peers(vec![(2, two.address().to_string())]);
    two.links.set_peers(vec![(1, one.address().to_string())]);
    one.wait_for(&Notice::Up { node: 2, incarnation: 200 });
    two.wait_for(&Notice::Up { node: 1, incarnation: 100 });
    set_loopback("down");
    // One has something to say, the other is silent: both notice.
    let started = Instant::now();
    assert!(one.links.send(2, vec![0; 100]));
    one.wait_for(&Notice::Down { node: 2 });
    let with_words = started.elapsed();
    two.wait_for(&Notice::Down { node: 1 });
    println!("noticed after {with_words:?} with something unacknowledged, {:?} without", started.elapsed());
    assert!(started.elapsed() < 3 * spans.silence);
    set_loopback("up");
    one.wait_for(&Notice::Up { node: 2, incarnation: 200 });
    two.wait_for(&Notice::Up { node: 1, incarnation: 100 });
    one.end();
    two.end();
}
