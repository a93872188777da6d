//! The one timer of a ring: wakes the core from its sleep at a deadline.
//!
//! It is moved only when a deadline is earlier than what is armed; a timer that fires early costs one look.

use std::time::Duration;

use super::connection::operation;
use super::queue::Queue;
use super::{ConnectionId, DRIVER_SLOT};

/// What is armed in the ring.
#[derive(Default)]
pub(super) struct Timer {
    armed_until: Option<u64>,
}

impl Timer {
    /// Makes sure that the timer fires at `deadline` at the latest.
    pub(super) fn arm(&mut self, deadline: u64, now: u64, queue: &mut Queue) {
        let id = ConnectionId::new(DRIVER_SLOT, 0);
        let update = match self.armed_until {
            Some(armed) if armed <= deadline => return,
            Some(_) => Some(id.tag(operation::IGNORED)),
            None => None,
        };
        queue.timer(Duration::from_nanos(deadline.saturating_sub(now)), id.tag(operation::TIMER), update);
        self.armed_until = Some(deadline);
    }

    pub(super) fn fired(&mut self) {
        self.armed_until = None;
    }
}
