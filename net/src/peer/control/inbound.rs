//! A connection that a peer dialled: only read.

use std::io::Read as _;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use crate::peer::Link;
use crate::peer::frame::Frames;
use crate::peer::socket::{Watch, is_passing};

pub(super) struct Inbound {
    stream: TcpStream,
    pub(super) incarnation: u64,
    frames: Frames,
    place: usize,
}

impl Inbound {
    pub(super) fn new(link: Link) -> Self {
        Self { stream: link.stream, incarnation: link.peer.incarnation, frames: Frames::new(), place: 0 }
    }

    pub(super) fn watch(&mut self, watch: &mut Watch) {
        self.place = watch.add(self.stream.as_raw_fd(), false);
    }

    /// Reads once, if there is something. `false`: the connection has ended, or what comes is no frame.
    pub(super) fn read(&mut self, watch: &Watch, buffer: &mut [u8], mut tell: impl FnMut(Vec<u8>)) -> bool {
        if !watch.is_ready(self.place) {
            return true;
        }
        let mut input = match self.stream.read(buffer) {
            Ok(count @ 1..) => &buffer[..count],
            Err(error) if is_passing(&error) => return true,
            _ => return false,
        };
        loop {
            match self.frames.next(&mut input) {
                Ok(Some(body)) => tell(body.to_vec()),
                Ok(None) => return true,
                Err(error) => {
                    log::warn!("a control link ends: {error}");
                    return false;
                }
            }
        }
    }
}
