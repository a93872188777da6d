//! What the sockets of links have in common: options, waiting, and a bell that ends the waiting.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use crate::ring::syscalls::{self, eventfd};

/// The kernel counts keep-alive in seconds.
const KEEPALIVE_MIN: Duration = Duration::from_secs(1);

/// Sends at once, and breaks when for `silence` sent bytes were not acknowledged, buffered ones not taken, or probes not answered.
/// A peer whose process is stopped still answers probes: its link stays while there is nothing to send.
pub(super) fn prepare(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let pace = (silence / 3).max(KEEPALIVE_MIN);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(silence))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(pace).with_interval(pace).with_retries(3))
}

/// Random bytes that nobody else knows: the kernel's. The first of aws-lc cost a second on a busy machine, in which it gathers its own.
pub(super) fn random<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Whether to try again when the socket is ready, or at once.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Wakes a thread that waits in [`Watch::wait`]. What it is to find must have been written before.
#[derive(Debug)]
pub(super) struct Bell {
    file: File,
    is_rung: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { file: File::from(eventfd(0)?), is_rung: AtomicBool::new(false) })
    }

    pub(super) fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::SeqCst) {
            // Fails only with 2^64 - 1 rings outstanding.
            let _ = (&self.file).write(&1_u64.to_ne_bytes());
        }
    }

    /// To be called before looking for what is to be found.
    fn hush(&self) {
        // Who rings before the flag is down writes nothing, but has left what is to be found. A swap, so that looking comes after it.
        let _ = (&self.file).read(&mut [0; 8]);
        self.is_rung.swap(false, Ordering::SeqCst);
    }
}

/// The descriptors of one wait. The bell is the first.
pub(super) struct Watch {
    polled: Vec<libc::pollfd>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { polled: Vec::new() }
    }

    /// Forgets all but the bell.
    pub(super) fn begin(&mut self, bell: &Bell) {
        self.polled.clear();
        self.add(bell.file.as_raw_fd(), false);
    }

    /// For reading, or for writing too. The place that it has in [`Watch::is_ready`].
    pub(super) fn add(&mut self, descriptor: RawFd, for_writing: bool) -> usize {
        let events = libc::POLLIN | libc::POLLRDHUP | if for_writing { libc::POLLOUT } else { 0 };
        self.polled.push(libc::pollfd { fd: descriptor, events, revents: 0 });
        self.polled.len() - 1
    }

    /// Until something is ready, the bell rings or `until` has come.
    pub(super) fn wait(&mut self, bell: &Bell, until: Option<Instant>) {
        syscalls::poll(&mut self.polled, until.map(|until| until.saturating_duration_since(Instant::now())));
        bell.hush();
    }

    pub(super) fn is_ready(&self, place: usize) -> bool {
        self.polled[place].revents != 0
    }
}
