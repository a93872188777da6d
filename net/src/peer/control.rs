//! Control links: messages between the control cores of nodes, never behind data. One thread; it waits for nothing but its sockets.
//!
//! Each node dials every other one and only writes on that connection; it only reads on those that others dialled. So there is no tie to
//! break when two dial at once, and each direction breaks and heals for itself.
//!
//! Invariants: [`ControlLinks::send`] never waits for a peer; what waits for a peer is bounded in messages and bytes, and what is older
//! than [`Limits::stale`] does not outlive a broken connection; when there is no room the oldest messages go, and are counted. The
//! order of messages is kept, within a connection and over the connections of a peer; a message comes once or not at all. Messages on
//! their way when a connection breaks are lost.

mod inbound;
mod outbound;
mod queue;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::dial::{Failure, dial};
use super::handshake::{Credentials, Purpose};
use super::socket::{Bell, Watch};
use super::{Link, Spans};
use inbound::Inbound;
use outbound::Outbound;
use queue::Queue;

/// How much waits for a peer, and how it is sought.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages that wait for one peer.
    pub queue_messages_max: usize,
    /// Bytes of messages that wait for one peer; one message may be larger.
    pub queue_bytes_max: usize,
    /// Messages that waited longer than this are not sent on a connection that was opened since.
    pub stale: Duration,
    /// Pause after the first attempt that failed; doubled with each, and never exactly that.
    pub back_off_min: Duration,
    /// The longest pause.
    pub back_off_max: Duration,
    /// See there.
    pub spans: Spans,
}

impl Default for Limits {
    /// 1,024 messages and 64 MiB a peer, stale after 1 s, pauses of 50 ms to 1 s, the usual spans.
    fn default() -> Self {
        Self {
            queue_messages_max: 1024,
            queue_bytes_max: 64 << 20,
            stale: Duration::from_secs(1),
            back_off_min: Duration::from_millis(50),
            back_off_max: Duration::from_secs(1),
            spans: Spans::default(),
        }
    }
}

/// What happened, told on the links' thread: whoever hears it has to be quick.
#[derive(Debug, PartialEq, Eq)]
pub enum Notice {
    /// Messages can be sent to this peer.
    Up {
        /// Its id.
        node: u64,
        /// Of its start.
        incarnation: u64,
    },
    /// They cannot any more: the connection broke, or the peer was taken off the list.
    Down {
        /// Its id.
        node: u64,
    },
    /// A message.
    Received {
        /// Who sent it.
        node: u64,
        /// Of the sender's start.
        incarnation: u64,
        /// The message.
        body: Vec<u8>,
    },
}

/// The control links of one node. End with it, at once: what was not sent is dropped.
#[derive(Debug)]
pub struct ControlLinks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    bell: Bell,
    is_ending: AtomicBool,
    dropped_count: AtomicU64,
    own_node: u64,
    limits: Limits,
    mail: Mutex<Mail>,
}

/// What others leave for the thread.
#[derive(Debug, Default)]
struct Mail {
    /// The list of peers, when it was set anew.
    peers: Option<Vec<(u64, String)>>,
    /// One for each peer of the list.
    queues: HashMap<u64, Queue>,
    arrived: Vec<Link>,
    dialled: Vec<Dialled>,
}

/// How an attempt ended.
#[derive(Debug)]
struct Dialled {
    node: u64,
    address: String,
    result: Result<Link, Failure>,
}

impl Shared {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_dropped(&self, count: usize) {
        self.dropped_count.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl ControlLinks {
    /// Without peers yet.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn start(own: Arc<Credentials>, limits: Limits, tell: impl FnMut(Notice) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            bell: Bell::new()?,
            is_ending: AtomicBool::new(false),
            dropped_count: AtomicU64::new(0),
            own_node: own.node(),
            limits,
            mail: Mutex::default(),
        });
        let mut links = Links { own, shared: Arc::clone(&shared), tell, outbound: HashMap::new(), inbound: HashMap::new() };
        let thread = std::thread::Builder::new().name("peer-control".to_owned()).spawn(move || links.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// With whom links are kept, by id and address (`host:port` of the peer port). Those that are not in the list any more are left, those
    /// with another address dialled anew; the own id is passed over.
    /// Links that others opened stay: who has the secret is heard, whether in the list or not.
    pub fn set_peers(&self, peers: Vec<(u64, String)>) {
        let mut mail = self.shared.mail();
        let peers: Vec<_> = peers.into_iter().filter(|(node, _)| *node != self.shared.own_node).collect();
        let mut queues = std::mem::take(&mut mail.queues);
        mail.queues = peers.iter().map(|(node, _)| (*node, queues.remove(node).unwrap_or_default())).collect();
        self.shared.count_dropped(queues.values().map(Queue::len).sum());
        mail.peers = Some(peers);
        drop(mail);
        self.shared.bell.ring();
    }

    /// Leaves a message for a peer. `false`: it is not in the list of peers, or the message is longer than a frame can be.
    pub fn send(&self, node: u64, body: Vec<u8>) -> bool {
        let mut mail = self.shared.mail();
        let Some(queue) = mail.queues.get_mut(&node).filter(|_| body.len() <= super::frame::BODY_BYTES_MAX) else {
            self.shared.count_dropped(1);
            return false;
        };
        let dropped = queue.push(body, Instant::now(), &self.shared.limits);
        drop(mail);
        self.shared.count_dropped(dropped);
        self.shared.bell.ring();
        true
    }

    /// Takes a link for [`Purpose::Control`] that came through the door. One that its node opened before ends.
    pub fn adopt(&self, link: Link) {
        self.shared.mail().arrived.push(link);
        self.shared.bell.ring();
    }

    /// Messages that were given to [`ControlLinks::send`] and dropped before they were written on a connection.
    #[must_use]
    pub fn dropped_count(&self) -> u64 {
        self.shared.dropped_count.load(Ordering::Relaxed)
    }
}

impl Drop for ControlLinks {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A callback that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Links<F> {
    own: Arc<Credentials>,
    shared: Arc<Shared>,
    tell: F,
    outbound: HashMap<u64, Outbound>,
    inbound: HashMap<u64, Inbound>,
}

impl<F: FnMut(Notice)> Links<F> {
    fn run(&mut self) {
        let mut watch = Watch::new();
        let mut buffer = vec![0; 64 << 10];
        while !self.shared.is_ending.load(Ordering::SeqCst) {
            self.read_mail();
            self.write();
            let next_dial_at = self.dial_due();
            watch.begin(&self.shared.bell);
            self.inbound.values_mut().for_each(|link| link.watch(&mut watch));
            self.outbound.values_mut().for_each(|link| link.watch(&mut watch));
            watch.wait(&self.shared.bell, next_dial_at);
            self.read(&watch, &mut buffer);
            self.notice_ends(&watch);
        }
    }

    fn read_mail(&mut self) {
        let mut mail = self.shared.mail();
        let (peers, arrived, dialled) = (mail.peers.take(), std::mem::take(&mut mail.arrived), std::mem::take(&mut mail.dialled));
        drop(mail);
        if let Some(peers) = peers {
            self.follow(peers);
        }
        for dialled in dialled {
            self.dialled(dialled);
        }
        for link in arrived {
            // Whoever knocks is there: no need to wait for the end of a pause.
            if let Some(outbound) = self.outbound.get_mut(&link.peer.node) {
                outbound.hurry();
            }
            self.inbound.insert(link.peer.node, Inbound::new(link));
        }
    }

    fn follow(&mut self, peers: Vec<(u64, String)>) {
        let peers: HashMap<u64, String> = peers.into_iter().collect();
        let is_left = |node: &u64, link: &Outbound| peers.get(node).is_none_or(|address| *address != link.address);
        let left: Vec<u64> = self.outbound.iter().filter(|(node, link)| is_left(node, link)).map(|(node, _)| *node).collect();
        for node in left {
            if self.outbound.remove(&node).is_some_and(|link| link.is_up()) {
                (self.tell)(Notice::Down { node });
            }
        }
        for (node, address) in peers {
            self.outbound.entry(node).or_insert_with(|| Outbound::new(address));
        }
    }

    fn dialled(&mut self, Dialled { node, address, result }: Dialled) {
        // Not wanted any more, or wanted elsewhere, or the end of an attempt from before it was left and wanted again.
        let Some(outbound) = self.outbound.get_mut(&node).filter(|link| link.address == address && link.is_dialling()) else { return };
        match result {
            Ok(link) => {
                let incarnation = link.peer.incarnation;
                let stale = self.shared.mail().queues.get_mut(&node).map_or(0, |queue| queue.drop_stale(&self.shared.limits));
                self.shared.count_dropped(stale);
                outbound.connected(link);
                (self.tell)(Notice::Up { node, incarnation });
            }
            Err(failure) => outbound.failed(node, &failure, &self.shared.limits),
        }
    }

    /// Begins the attempts whose time has come; when the next one's comes.
    fn dial_due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        for (node, link) in &mut self.outbound {
            if link.dial_at().is_some_and(|at| at <= now) {
                match spawn_dial(&self.own, &self.shared, *node, link.address.clone()) {
                    Ok(()) => link.dialling(),
                    Err(error) => link.failed(*node, &Failure::Unreachable(error), &self.shared.limits),
                }
            }
        }
        self.outbound.values().filter_map(Outbound::dial_at).min()
    }

    fn write(&mut self) {
        let mut broken = Vec::new();
        for (node, link) in &mut self.outbound {
            if link.write(&self.shared, *node).is_err() {
                broken.push(*node);
            }
        }
        broken.into_iter().for_each(|node| self.broke(node));
    }

    fn notice_ends(&mut self, watch: &Watch) {
        let ended = self.outbound.iter_mut().filter_map(|(node, link)| link.has_ended(watch).then_some(*node));
        let ended: Vec<u64> = ended.collect();
        ended.into_iter().for_each(|node| self.broke(node));
    }

    fn broke(&mut self, node: u64) {
        if let Some(link) = self.outbound.get_mut(&node) {
            link.broke(&self.shared.limits);
            (self.tell)(Notice::Down { node });
        }
    }

    fn read(&mut self, watch: &Watch, buffer: &mut [u8]) {
        let (tell, shared) = (&mut self.tell, &self.shared);
        self.inbound.retain(|node, link| {
            let incarnation = link.incarnation;
            link.read(watch, buffer, |body| {
                if !shared.is_ending.load(Ordering::SeqCst) {
                    tell(Notice::Received { node: *node, incarnation, body });
                }
            })
        });
    }
}

/// Resolving and connecting block, so an attempt has a thread of its own; it ends with its deadline at the latest.
fn spawn_dial(own: &Arc<Credentials>, shared: &Arc<Shared>, node: u64, address: String) -> io::Result<()> {
    let (own, shared) = (Arc::clone(own), Arc::clone(shared));
    let attempt = move || {
        let result = dial(&own, &address, node, Purpose::Control, shared.limits.spans);
        shared.mail().dialled.push(Dialled { node, address, result });
        shared.bell.ring();
    };
    std::thread::Builder::new().name("peer-dial".to_owned()).spawn(attempt).map(|_| ())
}
