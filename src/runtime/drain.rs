//! A core's end: no new connections, what it holds goes to other nodes, what may be parked is sent away, then it stops.
//!
//! A node alone sends parked pops and calls away at once. One of a cluster relays them while it hands over what it holds; calls, whose
//! requests may be under way elsewhere, a while longer. Bounded by [`DRAIN_NS`].

use std::sync::atomic::Ordering::Relaxed;

use mayfly_net::http::Stage;
use mayfly_net::ring::{Connections, Driver};

use super::core::Core;
use super::session::{Asked, Pending};
use crate::api::Failure;
use crate::control::handover::Handover;

/// How long a drain may take: what is being sent then is cut.
const DRAIN_NS: u64 = 15_000_000_000;
/// So long before its end everything that is parked is sent away, so that clients hear of it.
const LAST_NS: u64 = 1_000_000_000;
/// A node that is still to own queues after so long is in no cluster that could take them.
const RELIEF_NS: u64 = 5_000_000_000;
/// How long a node of a cluster stays when all is done, for its last words to go from core to core and out.
const LINGER_NS: u64 = 20_000_000;
/// How often a draining core looks whether the others have.
const LOOK_NS: u64 = 5_000_000;
/// Rows of a last look at what is left.
const PAGE: usize = 1_024;

/// How far a drain is.
pub(super) struct Drain {
    began_at: u64,
    /// Pops are sent away.
    sends_away: bool,
    /// Calls too.
    cuts_calls: bool,
    has_drained: bool,
    /// All cores have drained: what they said to each other last goes out.
    lingers_until: Option<u64>,
}

impl Drain {
    fn ends_at(&self) -> u64 {
        self.began_at + DRAIN_NS
    }
}

impl Core {
    /// Drains when the node was told to stop.
    pub(super) fn follow_stop(&mut self, driver: &mut Driver) {
        if self.drain.is_none() {
            if !self.is_stopping.load(Relaxed) {
                return;
            }
            self.drain =
                Some(Drain { began_at: self.now.0, sends_away: false, cuts_calls: false, has_drained: false, lingers_until: None });
            self.desk.is_draining = true;
            driver.stop_accepting();
        }
        let has_handed_over = self.has_handed_over();
        let Some(drain) = &mut self.drain else { return };
        let is_last = self.handover.is_none() || self.now.0 + LAST_NS >= drain.ends_at();
        if has_handed_over && !drain.sends_away || is_last && !drain.cuts_calls {
            drain.sends_away = true;
            drain.cuts_calls |= is_last;
            self.send_parked_away(driver.connections(), is_last);
        }
    }

    /// Whether there is nothing left that other nodes could take.
    fn has_handed_over(&self) -> bool {
        let Some(drain) = &self.drain else { return false };
        let is_out = |handover: &Handover| handover.has_left() || (handover.is_live() && self.now.0 >= drain.began_at + RELIEF_NS);
        self.handover.as_deref().is_none_or(is_out) || self.now.0 + LAST_NS >= drain.ends_at()
    }

    fn send_parked_away(&mut self, connections: &mut Connections, with_calls: bool) {
        for id in self.desk.sessions.ids() {
            if self.end_subscription(connections, id) {
                continue;
            }
            let is_call = |pending: &Pending| matches!(pending.asked, Asked::Call { .. });
            let stays = |pending: &Pending| is_call(pending) && !with_calls;
            if self.desk.sessions.get(id).and_then(|session| session.pending.as_ref()).is_some_and(stays) {
                continue;
            }
            match self.cancel_parked(connections, id) {
                // Its replies are done: that must be told.
                Some(Pending { delivery, asked: Asked::Next { results, .. }, .. }) => {
                    self.clerk(connections).say_no_messages(id, delivery, &results);
                }
                Some(pending) => self.clerk(connections).fail(id, pending.delivery, &Failure::OwnerMoved),
                None => {}
            }
            let Some(session) = self.desk.sessions.get(id) else { continue };
            if session.pending.is_none() && session.reader.stage() == Stage::Idle && !session.is_closing {
                self.close(connections, id);
            }
        }
    }

    /// Whether pops and calls that would be parked are sent away.
    pub(super) fn sends_away(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| drain.sends_away)
    }

    /// When a draining core looks again.
    pub(super) fn drain_at(&self) -> Option<u64> {
        self.drain.as_ref().map(|drain| drain.ends_at().min(self.now.0 + LOOK_NS))
    }

    /// Whether the drain has ended.
    pub(super) fn is_done(&mut self, driver: &mut Driver) -> bool {
        let are_links_quiet = self.are_links_quiet(driver.connections());
        let is_handed_over = self.handover.is_none() || (are_links_quiet && self.has_handed_over() && self.shard.gauges().calls == 0);
        let Some(drain) = &mut self.drain else { return false };
        if driver.connections().open_count() == 0 && is_handed_over && !drain.has_drained {
            drain.has_drained = true;
            self.draining_count.fetch_sub(1, Relaxed);
        }
        if drain.ends_at() <= self.now.0 {
            return true;
        }
        // Others may have requests under way that need this core's shard, and its last answers go over their links.
        if self.draining_count.load(Relaxed) > 0 {
            return false;
        }
        let span = if self.handover.is_some() { LINGER_NS } else { 0 };
        let until = *drain.lingers_until.get_or_insert(self.now.0 + span);
        until <= self.now.0 && are_links_quiet
    }

    /// Says what went to other nodes and what did not.
    pub(super) fn report_end(&mut self) {
        let Some(handover) = &self.handover else { return };
        self.departure.note(handover.tally());
        let mut from = None;
        loop {
            let page = self.shard.inventory(from, PAGE);
            for row in page.rows.iter().filter(|row| row.message_count > 0) {
                self.departure.note_lost(row.message_count);
                self.desk.wipes += 1;
            }
            from = page.next;
            if from.is_none() {
                return;
            }
        }
    }
}
