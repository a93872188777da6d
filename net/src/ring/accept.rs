//! Taking connections in: one multishot accept per listener, and what happens when there is no descriptor left for them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::connection::operation;
use super::queue::{Completion, Queue};
use super::syscalls::own;
use super::{ConnectionId, DRIVER_SLOT};
use crate::deadlines::NEVER;

/// How long accepting rests when the process or the machine is out of descriptors or memory.
const BACK_OFF_NS: u64 = 50_000_000;

/// An episode ends when its trouble did not show for this long.
const EPISODE_NS: u64 = 10_000_000_000;

/// Trouble that is logged once, not each time it shows.
#[derive(Default)]
struct Episode {
    last_at: Option<u64>,
}

impl Episode {
    /// Whether this is the first of an episode.
    fn begins(&mut self, now: u64) -> bool {
        self.last_at.replace(now).is_none_or(|last| now.saturating_sub(last) > EPISODE_NS)
    }
}

struct Listener {
    socket: OwnedFd,
    armed: bool,
}

pub(super) struct Accepting {
    listeners: Vec<Listener>,
    stopped: bool,
    /// Not before this time is an accept armed again.
    rest_until: u64,
    /// Accepts refused for want of descriptors or memory.
    starved: Episode,
    /// Connections closed because there are too many.
    full: Episode,
}

impl Accepting {
    pub(super) fn new(listeners: Vec<OwnedFd>) -> Self {
        let listeners = listeners.into_iter().map(|socket| Listener { socket, armed: false }).collect();
        Self { listeners, stopped: false, rest_until: 0, starved: Episode::default(), full: Episode::default() }
    }

    /// Arms what is not armed, unless accepting rests or was stopped.
    pub(super) fn settle(&mut self, now: u64, queue: &mut Queue) {
        if self.stopped || now < self.rest_until {
            return;
        }
        self.rest_until = 0;
        for (index, listener) in self.listeners.iter_mut().enumerate().filter(|(_, listener)| !listener.armed) {
            listener.armed = true;
            queue.accept(listener.socket.as_raw_fd(), tag(index));
        }
    }

    /// When accepting ends its rest.
    pub(super) fn next_at(&self) -> u64 {
        if self.rest_until == 0 || self.stopped { NEVER } else { self.rest_until }
    }

    /// A completion of an accept: the socket, if there is one and there is room for it.
    pub(super) fn accepted(&mut self, completion: &Completion, has_room: bool, now: u64) -> Option<OwnedFd> {
        let (id, _) = ConnectionId::of_tag(completion.user_data);
        if !completion.more()
            && let Some(listener) = self.listeners.get_mut(id.generation() as usize)
        {
            listener.armed = false;
        }
        if completion.result < 0 {
            self.refused(-completion.result, now);
            return None;
        }
        let socket = own(completion.result);
        if !has_room && self.full.begins(now) {
            log::warn!("all connections are in use: new ones are closed at once");
        }
        has_room.then_some(socket)
    }

    /// Accepts no more; the listeners are closed.
    pub(super) fn stop(&mut self, queue: &mut Queue) {
        self.stopped = true;
        for (index, _) in self.listeners.iter().enumerate().filter(|(_, listener)| listener.armed) {
            queue.cancel(tag(index), ConnectionId::new(DRIVER_SLOT, 0).tag(operation::IGNORED));
        }
        queue.enter();
        self.listeners.clear();
    }

    fn refused(&mut self, errno: i32, now: u64) {
        // The peer gave up before it was accepted, a signal, or the cancel of `stop`: nothing is short.
        if matches!(errno, libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::ECANCELED | libc::EPROTO) || self.stopped {
            return;
        }
        self.rest_until = now + BACK_OFF_NS;
        if self.starved.begins(now) {
            log::warn!("cannot accept: {}; trying again every {} ms", io::Error::from_raw_os_error(errno), BACK_OFF_NS / 1_000_000);
        }
    }
}

fn tag(listener_index: usize) -> u64 {
    ConnectionId::new(DRIVER_SLOT, listener_index as u32).tag(operation::ACCEPT)
}
