//! The way to a server, which a test can stop: nothing is refused or closed then, nothing comes through.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Proxy {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let gate = Arc::new((Mutex::new(true), Condvar::new()));
        let of_thread = Arc::clone(&gate);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let gate = Arc::clone(&of_thread);
                thread::spawn(move || {
                    pass(&gate);
                    let Ok(upstream) = TcpStream::connect(server) else { return };
                    let back = (upstream.try_clone().expect("a socket"), client.try_clone().expect("a socket"), Arc::clone(&gate));
                    thread::spawn(move || carry(back.0, back.1, &back.2));
                    carry(client, upstream, &gate);
                });
            }
        });
        Self { port, gate }
    }

    pub(crate) fn stop(&self) {
        *self.gate.0.lock().expect("unpoisoned") = false;
    }

    pub(crate) fn open(&self) {
        *self.gate.0.lock().expect("unpoisoned") = true;
        self.gate.1.notify_all();
    }
}

fn pass(gate: &(Mutex<bool>, Condvar)) {
    let open = gate.0.lock().expect("unpoisoned");
    drop(gate.1.wait_while(open, |open| !*open).expect("unpoisoned"));
}

fn carry(mut from: TcpStream, mut to: TcpStream, gate: &(Mutex<bool>, Condvar)) {
    let mut piece = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        pass(gate);
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    pass(gate);
    let _ = to.shutdown(std::net::Shutdown::Write);
}
