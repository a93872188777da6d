//! The shapes that every peer runs, over [`crate::peer`]'s protocols: the loops of the generator, and
//! what can only be seen in a server that starts for it. Each run starts a server of its own, so that none inherits another's
//! memory. An operation is a call, or a message delivered (and acked, where it is leased).

mod inboxes;
mod parked;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mayfly_generator::fleet::Fleet;
use mayfly_generator::loops::Loop;
use mayfly_generator::report::Figure;
use mayfly_generator::session::{Flow, Role};

use crate::peer::Peer;
use crate::peer::launch::Place;
use crate::server::{Server, free_address};

/// What all runs share.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The folder of programs.
    pub programs: PathBuf,
    /// A folder for what servers write.
    pub scratch: PathBuf,
    /// The CPU that servers are pinned to.
    pub server_cpu: Option<usize>,
    /// How long a loop is measured.
    pub span: Duration,
}

/// A peer in one run.
#[derive(Debug)]
pub struct Run<'a> {
    setup: &'a Setup,
    peer: &'a Peer,
}

/// What is measured, with its parameters.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A loop of the generator.
    Loop(Loop),
    /// So many inboxes, each used for one message.
    Inboxes(usize),
    /// So many connections that wait.
    Parked(usize),
}

/// Every shape by its name, in the order of a round.
pub const SHAPES: [(&str, Shape); 20] = [
    ("rpc 1x1", Shape::Loop(Loop::Rpc(1, 1))),
    ("rpc 32x4", Shape::Loop(Loop::Rpc(32, 4))),
    ("rpc 256x4", Shape::Loop(Loop::Rpc(256, 4))),
    ("open 32x4 5000/s", Shape::Loop(Loop::OpenRpc(32, 4, 5_000))),
    ("open 32x4 15000/s", Shape::Loop(Loop::OpenRpc(32, 4, 15_000))),
    ("wake idle", Shape::Loop(Loop::WakeUp(Some(Duration::from_millis(2))))),
    ("wake busy", Shape::Loop(Loop::WakeUp(None))),
    ("oneway b1 64", stream(16, 1, 64, Flow::OneWay)),
    ("oneway b1 1024", stream(16, 1, 1024, Flow::OneWay)),
    ("oneway b100 64", stream(4, 100, 64, Flow::OneWay)),
    ("oneway b100 1024", stream(4, 100, 1024, Flow::OneWay)),
    ("leased b1 64", stream(16, 1, 64, Flow::Leased)),
    ("leased b1 1024", stream(16, 1, 1024, Flow::Leased)),
    ("leased b100 64", stream(4, 100, 64, Flow::Leased)),
    ("leased b100 1024", stream(4, 100, 1024, Flow::Leased)),
    ("fanout x8 b1", stream(2, 1, 64, Flow::FanOut)),
    ("fanout x8 b100", stream(2, 100, 64, Flow::FanOut)),
    ("inboxes 100000", Shape::Inboxes(100_000)),
    ("parked 10000", Shape::Parked(10_000)),
    ("parked 19000", Shape::Parked(19_000)),
];

const fn stream(count: usize, batch: usize, payload_bytes: usize, flow: Flow) -> Shape {
    Shape::Loop(Loop::stream(count, batch, payload_bytes, flow))
}

impl Shape {
    /// Measures `peer`. None: its protocol has nothing of the kind.
    ///
    /// # Errors
    /// The server does not start, a connection broke, or an answer does not belong in a measurement; [`io::ErrorKind::Unsupported`]: the
    /// server does not have what the shape needs.
    pub fn measure(self, setup: &Setup, peer: &Peer) -> io::Result<Option<Vec<Figure>>> {
        let run = Run { setup, peer };
        match self {
            Self::Loop(what) => {
                let Some((server, mut fleet)) = run.open(what.roles())? else { return Ok(None) };
                what.run(&mut fleet, Some(server.process), setup.span).map(Some)
            }
            Self::Inboxes(count) => inboxes::run(&run, count),
            Self::Parked(count) => parked::run(&run, count),
        }
    }
}

impl Run<'_> {
    /// A server and the sessions of all roles, opened.
    fn open(&self, roles: impl IntoIterator<Item = Role>) -> io::Result<Option<(Server, Fleet)>> {
        let Some(sessions) = self.peer.sessions(roles.into_iter()) else { return Ok(None) };
        let server = self.serve()?;
        let mut fleet = Fleet::connect(server.address, sessions)?;
        fleet.open()?;
        Ok(Some((server, fleet)))
    }

    fn serve(&self) -> io::Result<Server> {
        let (setup, address) = (self.setup, free_address()?);
        let scratch = setup.scratch.join(format!("{}-{}", self.peer.name, address.port()));
        std::fs::create_dir_all(&scratch)?;
        let place = Place { programs: &setup.programs, address, scratch: &scratch, cpu: setup.server_cpu };
        Server::launch((self.peer.launch)(&place), address, Duration::from_secs(30))
    }
}
