//! Connections go to the core that their requests are for: a request that is carried out where it is read costs neither mail nor a wake-up.
//!
//! Invariants: a connection leaves between two requests, with nothing read of the next, nothing unsent and nothing parked; its new core
//! knows nothing of it but the socket, as nothing else is left of it.
//!
//! Not with TLS: the state of its records would have to go along. Not one whose requests are for several cores.

use mayfly_net::http::Stage;
use mayfly_net::ring::{ConnectionId, Connections};
use mayfly_shards::ShardIndex;

use super::core::Core;
use super::place::Place;
use super::session::Session;

/// Requests in a row for one other core after which a connection goes there: fewer are soon over, and going costs about what one hop does.
const IN_A_ROW: u8 = 64;

/// Where a connection's last requests were for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pull {
    core: ShardIndex,
    in_a_row: u8,
}

impl Default for Pull {
    fn default() -> Self {
        Self { core: ShardIndex(0), in_a_row: 0 }
    }
}

impl Pull {
    /// A request of a connection of core `own` was for `place`.
    fn feel(&mut self, own: ShardIndex, place: Place) {
        match place {
            Place::Here(core) if core == own => self.in_a_row = 0,
            Place::Here(core) if core == self.core => self.in_a_row = self.in_a_row.saturating_add(1),
            Place::Here(core) => *self = Self { core, in_a_row: 1 },
            // The link is any core's own.
            Place::There(..) => self.in_a_row = 0,
        }
    }

    /// The core that it should go to. It is asked again after as many requests more: it may not have been possible.
    fn take(&mut self) -> Option<ShardIndex> {
        if self.in_a_row < IN_A_ROW {
            return None;
        }
        self.in_a_row = 0;
        Some(self.core)
    }
}

impl Core {
    /// Notes for whom a connection's request is.
    pub(super) fn feel_pull(&mut self, id: ConnectionId, place: Place) {
        if self.placement.shard_count() == 1 {
            return;
        }
        let own = self.desk.core;
        if let Some(session) = self.desk.sessions.get(id) {
            session.pull.feel(own, place);
        }
    }

    /// Lets a connection whose answer was sent go to the core that it is pulled to.
    pub(super) fn let_near(&mut self, connections: &mut Connections, id: ConnectionId) {
        if self.desk.is_draining {
            return;
        }
        let Some(session) = self.desk.sessions.get(id) else { return };
        if is_between_requests(session)
            && let Some(core) = session.pull.take()
        {
            connections.pass_on(id, usize::from(core.0));
        }
    }
}

/// Whether nothing is left of a connection but its socket.
fn is_between_requests(session: &Session) -> bool {
    !session.must_wait() && !session.is_finished && session.stash.is_empty() && session.reader.stage() == Stage::Idle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_pulled_by_one_core_alone_and_for_long() {
        let (own, other, third) = (ShardIndex(0), Place::Here(ShardIndex(1)), Place::Here(ShardIndex(2)));
        let mut pull = Pull::default();
        let feel = |pull: &mut Pull, place, count| (0..count).for_each(|_| pull.feel(own, place));
        feel(&mut pull, other, IN_A_ROW - 1);
        assert_eq!(pull.take(), None);
        feel(&mut pull, Place::Here(own), 1);
        feel(&mut pull, other, IN_A_ROW - 1);
        assert_eq!(pull.take(), None);
        feel(&mut pull, third, IN_A_ROW);
        assert_eq!((pull.take(), pull.take()), (Some(ShardIndex(2)), None));
        feel(&mut pull, third, 255);
        feel(&mut pull, third, 255);
        assert_eq!(pull.take(), Some(ShardIndex(2)));
    }
}
