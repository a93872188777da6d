//! One consumer group as one shard knows it: sums over its cursors here, its waiters, and what is agreed with other cores.

use std::sync::Arc;

use crate::command::DropCause;
use crate::cursor::{Delivered, DeliveryState};
use crate::name::PrivateGroup;
use crate::time::Time;
use crate::waiters::WaiterList;

/// See the module.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    /// Of the queue part's `appended`, those not pending by position any more: the sum over its cursors.
    pub(crate) seen: u64,
    /// Messages awaiting redelivery.
    pub(crate) ready: u32,
    /// Live leases.
    pub(crate) leased: u32,
    /// Pops parked on any partition.
    pub(crate) any: WaiterList,
    /// Pops parked here, on any partition or a named one.
    pub(crate) waiting: u32,
    /// Last pop or ack of it here.
    pub(crate) used_at: Time,
    /// The partition served last by a pop without one.
    pub(crate) served_last: Option<Arc<str>>,
    /// One subscriber's.
    pub(crate) is_private: bool,
    /// It reads one partition alone.
    pub(crate) is_confined: bool,
    rare: Option<Box<Rare>>,
}

/// What most groups never need.
#[derive(Debug, Default)]
struct Rare {
    skipped: u64,
    bid: Option<Time>,
    hinted: u64,
    is_spreading: bool,
}

impl Group {
    pub(crate) fn new(name: Arc<str>, seen: u64, now: Time) -> Self {
        let private = PrivateGroup::of(&name);
        Self {
            is_private: private.is_some(),
            is_confined: private.is_some_and(|group| group.partition.is_some()),
            name,
            seen,
            ready: 0,
            leased: 0,
            any: WaiterList::default(),
            waiting: 0,
            used_at: now,
            served_last: None,
            rare: None,
        }
    }

    /// Whether it reads that partition.
    pub(crate) fn reads(&self, partition: &str) -> bool {
        !self.is_confined || PrivateGroup::of(&self.name).is_some_and(|group| group.partition == Some(partition))
    }

    /// Takes a delivery that ends out of the sums. Until now it kept the group in use.
    pub(crate) fn forget_delivery(&mut self, delivered: Option<&Delivered>, now: Time) {
        if delivered.is_some() {
            self.used_at = self.used_at.max(now);
        }
        match delivered.map(|delivered| delivered.state) {
            Some(DeliveryState::Leased) => self.leased -= 1,
            Some(DeliveryState::Expired | DeliveryState::Returned) => self.ready -= 1,
            Some(DeliveryState::Settled) | None => {}
        }
    }

    /// A message ahead of the group was dropped.
    pub(crate) fn miss(&mut self, cause: DropCause) {
        self.seen += 1;
        if cause == DropCause::Bounds {
            self.rare().skipped += 1;
        }
    }

    /// Everything of the queue part was dropped.
    pub(crate) fn move_to_end(&mut self, appended: u64, now: Time) {
        if self.leased + self.ready > 0 {
            // It was in use until now.
            self.used_at = now;
        }
        self.seen = appended;
        self.ready = 0;
        self.leased = 0;
        // What the home was told is gone, and it forgets it too.
        self.set_hinted(0);
    }

    /// Whether a new message concerns anyone: a pop parked here, or the home's.
    pub(crate) fn wants_to_hear(&self) -> bool {
        self.waiting > 0 || self.bid().is_some()
    }

    /// Whether nothing but its position keeps it: no parked pop, live lease or message awaiting redelivery.
    pub(crate) fn is_dormant(&self) -> bool {
        self.waiting == 0 && self.leased == 0 && self.ready == 0 && self.bid().is_none()
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Dropped for bounds before the group reached them.
    pub(crate) fn skipped(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.skipped)
    }

    /// Nothing was skipped and nothing served: of a queue that begins anew.
    pub(crate) fn begin_anew(&mut self) {
        self.served_last = None;
        if let Some(rare) = &mut self.rare {
            rare.skipped = 0;
        }
    }

    /// On a member: since when the home's oldest pop on any partition is parked. On the home: what was last told to the members.
    pub(crate) fn bid(&self) -> Option<Time> {
        self.rare.as_ref().and_then(|rare| rare.bid)
    }

    pub(crate) fn set_bid(&mut self, bid: Option<Time>) {
        if self.bid() != bid {
            self.rare().bid = bid;
        }
    }

    /// On a member: messages the home was last told of while it bids.
    pub(crate) fn hinted(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.hinted)
    }

    pub(crate) fn set_hinted(&mut self, hinted: u64) {
        if self.hinted() != hinted {
            self.rare().hinted = hinted;
        }
    }

    /// On the home: other cores are being told of the group; its first pops wait for them.
    pub(crate) fn is_spreading(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.is_spreading)
    }

    pub(crate) fn set_spreading(&mut self, is_spreading: bool) {
        if self.is_spreading() != is_spreading {
            self.rare().is_spreading = is_spreading;
        }
    }
}
