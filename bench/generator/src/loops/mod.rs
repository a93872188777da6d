//! What is measured over the sessions of any broker. An operation is a call, or a message delivered (and acked, where it is leased).

mod open_loop;
mod rpc;
mod stream;
mod wake_up;

use std::io;
use std::time::Duration;

use crate::fleet::Fleet;
use crate::process::Process;
use crate::report::Figure;
use crate::session::{Flow, Role};

/// A loop with its parameters.
#[derive(Clone, Copy, Debug)]
pub enum Loop {
    /// So many callers and responders, each caller with one call under way.
    Rpc(usize, usize),
    /// The same with so many calls due a second; latency counts from when a call was due.
    OpenRpc(usize, usize, u32),
    /// One message to a consumer that waits: after a pause, in which the server falls asleep, or at once.
    WakeUp(Option<Duration>),
    /// Producers with a stream each, to as many groups.
    Stream {
        /// Producers.
        count: usize,
        /// Messages sent at once; the next go when all of them are delivered.
        batch: usize,
        /// Bytes each.
        payload_bytes: usize,
        /// How they are taken.
        flow: Flow,
    },
}

impl Loop {
    /// Streams.
    #[must_use]
    pub const fn stream(count: usize, batch: usize, payload_bytes: usize, flow: Flow) -> Self {
        Self::Stream { count, batch, payload_bytes, flow }
    }

    /// What the members of a fleet do, in the order of their slots.
    #[must_use]
    pub fn roles(self) -> Vec<Role> {
        match self {
            Self::Rpc(caller_count, responder_count) | Self::OpenRpc(caller_count, responder_count, _) => {
                rpc::roles(caller_count, responder_count)
            }
            Self::WakeUp(_) => wake_up::roles(),
            Self::Stream { count, batch, payload_bytes, flow } => stream::roles(count, batch, payload_bytes, flow),
        }
    }

    /// Runs a fleet of [`Loop::roles`], which is open: a quarter of `span` to warm up, then `span`. `process` is the server's, where it is
    /// on this host.
    ///
    /// # Errors
    /// A connection broke, or an answer does not belong in a measurement; [`io::ErrorKind::Unsupported`]: the server does not have what the
    /// loop needs.
    pub fn run(self, fleet: &mut Fleet, process: Option<Process>, span: Duration) -> io::Result<Vec<Figure>> {
        match self {
            Self::Rpc(caller_count, _) => rpc::run(fleet, process, span, caller_count),
            Self::OpenRpc(caller_count, _, rate_per_s) => open_loop::run(fleet, process, span, caller_count, rate_per_s),
            Self::WakeUp(pause) => wake_up::run(fleet, process, span, pause),
            Self::Stream { count, batch, flow, .. } => stream::run(fleet, process, span, (count, batch, flow)),
        }
    }
}
