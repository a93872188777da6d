//! The links between cores of this node and other nodes: the control core has them dialled, and gives every one to its core.
//!
//! Each core asks each other member over one link that this node dialled, and answers over those that others dialled. Dialling takes its
//! time on threads of its own, one a node at a time; a link that broke is dialled again after a pause.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_net::mesh::{Mesh, Waker};
use mayfly_net::peer::dial::{Failure, dial};
use mayfly_net::peer::handshake::{Credentials, Purpose};
use mayfly_net::peer::{Link, Spans};

use super::frame::Frame;
use super::peer::NewLink;
use crate::control::{Member, Members, NodeId, Standing};

/// Between two attempts to reach a node.
const PAUSE: Duration = Duration::from_millis(200);

/// Links that are through their handshake, from other threads to the control core's.
#[derive(Clone)]
pub(super) struct Arrivals {
    arrived: Arc<Mutex<Vec<Arrival>>>,
    waker: Arc<Waker>,
}

enum Arrival {
    /// Another node dialled, for this core.
    Came(u16, Link),
    /// An attempt to dial for these cores has ended.
    Dialled { node: NodeId, cores: Vec<u16>, links: Vec<(u16, Link)>, failure: Option<Failure> },
}

impl Arrivals {
    /// `waker`: the control core's.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { arrived: Arc::default(), waker }
    }

    /// Another node dialled, for one of this node's cores.
    pub(super) fn came(&self, core: u16, link: Link) {
        self.put(Arrival::Came(core, link));
    }

    /// Whether something has arrived.
    pub(super) fn has_some(&self) -> bool {
        !self.arrived.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn put(&self, arrival: Arrival) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
        self.waker.wake();
    }

    fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// See the module.
pub(super) struct Linking {
    own: Arc<Credentials>,
    core_count: u16,
    arrivals: Arrivals,
    members: Arc<Members>,
    /// From each core to each other member.
    ways: BTreeMap<(NodeId, u16), Way>,
}

/// How a core reaches a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Over a link to the node's start of this incarnation.
    Open(u64),
    Dialling,
    /// Not before then.
    Broken(Instant),
}

impl Linking {
    pub(super) fn new(own: Arc<Credentials>, core_count: u16, arrivals: Arrivals) -> Self {
        Self { own, core_count, arrivals, members: Arc::default(), ways: BTreeMap::new() }
    }

    /// Whether there is something to do.
    pub(super) fn has_work(&self) -> bool {
        self.arrivals.has_some()
    }

    /// The number of the table that it goes by.
    pub(super) fn epoch(&self) -> u64 {
        self.members.epoch()
    }

    /// Goes by a newer table of members, and tells the cores.
    pub(super) fn follow(&mut self, members: Arc<Members>, mesh: &mut Mesh<Frame>) {
        for core in 0..self.core_count {
            mesh.send(usize::from(core), Frame::Members(Arc::clone(&members)));
        }
        self.members = members;
        // The cores end their links to a start that is over by themselves.
        let (members, own) = (&self.members, self.own.node());
        self.ways.retain(|(node, _), way| match (wanted(members, *node, own), *way) {
            (None, way) => way == Way::Dialling,
            (Some(now), Way::Open(of)) => of == now.incarnation,
            (Some(_), _) => true,
        });
    }

    /// The link of a core to a node is lost.
    pub(super) fn lost(&mut self, core: u16, node: NodeId, incarnation: u64) {
        if self.ways.get(&(node, core)) == Some(&Way::Open(incarnation)) {
            self.ways.insert((node, core), Way::Broken(Instant::now()));
        }
    }

    /// When to look again.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.ways.values().filter_map(|way| if let Way::Broken(until) = way { Some(*until) } else { None }).min()
    }

    /// Gives links that arrived to their cores, and has those dialled that are missing.
    pub(super) fn turn(&mut self, now: Instant, mesh: &mut Mesh<Frame>) {
        for arrival in self.arrivals.take() {
            match arrival {
                Arrival::Came(core, link) => give(mesh, core, link, false),
                Arrival::Dialled { node, cores, links, failure } => {
                    if let Some(failure) = failure {
                        log::debug!(node = node.0, cause:% = failure; "a link to another node cannot be had yet");
                    }
                    let is_wanted = wanted(&self.members, node, self.own.node()).is_some();
                    for core in cores {
                        self.ways.remove(&(node, core));
                        if is_wanted {
                            self.ways.insert((node, core), Way::Broken(now + PAUSE));
                        }
                    }
                    for (core, link) in links.into_iter().filter(|_| is_wanted) {
                        self.ways.insert((node, core), Way::Open(link.peer.incarnation));
                        give(mesh, core, link, true);
                    }
                }
            }
        }
        let members = Arc::clone(&self.members);
        let own = self.own.node();
        for member in members.rows().iter().filter_map(|member| wanted(&members, member.id, own)) {
            self.dial_missing(now, member);
        }
    }

    fn dial_missing(&mut self, now: Instant, member: &Member) {
        let is_missing = |core: &u16| match self.ways.get(&(member.id, *core)) {
            None => true,
            Some(Way::Broken(until)) => *until <= now,
            Some(Way::Open(_) | Way::Dialling) => false,
        };
        let cores: Vec<u16> = (0..self.core_count).filter(is_missing).collect();
        if cores.is_empty() {
            return;
        }
        for core in &cores {
            self.ways.insert((member.id, *core), Way::Dialling);
        }
        let (own, arrivals, member) = (Arc::clone(&self.own), self.arrivals.clone(), member.clone());
        thread::spawn(move || arrivals.put(dial_for(&own, &member, cores)));
    }
}

/// The row of another node that is worth a link.
fn wanted(members: &Members, node: NodeId, own: u64) -> Option<&Member> {
    members.find(node).filter(|member| node.0 != own && member.standing != Standing::Down)
}

/// Dials a node for cores of this one, one after the other, until it cannot be reached.
fn dial_for(own: &Arc<Credentials>, member: &Member, cores: Vec<u16>) -> Arrival {
    let (mut links, mut failure) = (Vec::new(), None);
    for core in &cores {
        // Spread over the cores that it has.
        let purpose = Purpose::Core(core % member.shard_count.max(1));
        match dial(own, &member.peer, member.id.0, purpose, Spans::default()) {
            // Of another start than the table says: one of both is behind.
            Ok(link) if link.peer.incarnation != member.incarnation => break,
            Ok(link) => links.push((*core, link)),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    Arrival::Dialled { node: member.id, cores, links, failure }
}

fn give(mesh: &mut Mesh<Frame>, core: u16, link: Link, is_dialled: bool) {
    let new = NewLink { node: NodeId(link.peer.node), incarnation: link.peer.incarnation, is_dialled, socket: link.stream.into() };
    mesh.send(usize::from(core), Frame::Link(Box::new(new)));
}
