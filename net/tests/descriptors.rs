//! Running out of descriptors: accepting rests, nobody is reset, and everybody is served in the end.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use support::{PATIENCE, Server};

/// Enough for the server itself and some connections.
const DESCRIPTORS: usize = 64;
const CLIENTS: usize = 120;

/// The server, in a process of its own with few descriptors; started by the test below.
#[test]
#[ignore = "the other half of emfile_is_survived"]
fn server_with_few_descriptors() {
    let server = Server::echo(|_| {});
    println!("\naddress {}", server.address);
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing).expect("readable");
}

#[test]
fn emfile_is_survived() {
    let test = std::env::current_exe().expect("known");
    let limited = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" --exact server_with_few_descriptors --ignored --nocapture");
    let mut child =
        Command::new("sh").args(["-c", &limited]).arg(test).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    // Kept to the end: the server's process still reports its test as passed.
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let address: SocketAddr = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("address ").map(str::to_owned))
        .expect("the server starts")
        .parse()
        .expect("an address");

    let mut streams: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(address)).collect();
    // More than the server has descriptors for: the last ones wait in the backlog until others leave.
    while let Some(mut stream) = (!streams.is_empty()).then(|| streams.remove(0)) {
        stream.write_all(b"x").expect("not reset");
        stream.read_exact(&mut [0]).expect("served once others have left");
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("ends").success());
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the backlog takes it");
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    stream
}
