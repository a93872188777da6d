//! A queue's options in force: defaults filled in, values clamped. What was declared, as typed, is the caller's to keep.

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// What happens to a push that does not fit a queue's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// The push is refused.
    Reject,
    /// The oldest messages go, counted, until the push fits.
    DropOldest,
}

/// How waiting pops gather messages before they answer. Both zero: off. `ms` zero: count alone; `count` zero: time alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WindowBuffer {
    /// Milliseconds after a poll first saw a message, at most 60,000.
    pub ms: u32,
    /// Messages that end the window at once, at most 10,000.
    pub count: u32,
}

/// The options in force of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Options {
    /// Most payload bytes held, over the queue's partitions on the node.
    pub max_bytes: u64,
    /// Most messages held, over the queue's partitions on the node.
    pub max_length: u32,
    /// What a push past a bound meets.
    pub policy: Policy,
    /// Age in seconds at which a message is dropped; 0: never.
    pub ttl_seconds: u64,
    /// Seconds a delivery is leased, 1 to 86,400.
    pub lease_seconds: u32,
    /// Attempts after which a failed message is dropped, at most 1000; 0 counts as 1.
    pub retry_limit: u32,
    /// How waiting pops gather.
    pub window: WindowBuffer,
}

impl Options {
    /// Attempts at which a message is dropped for its group: a limit of 0 drops after the first failed delivery.
    #[must_use]
    pub fn attempts_max(&self) -> u32 {
        self.retry_limit.max(1)
    }

    /// Length of a lease.
    #[must_use]
    pub fn lease_span(&self) -> Span {
        Span::from_secs(u64::from(self.lease_seconds))
    }

    /// Whether waiting pops gather at all.
    #[must_use]
    pub fn is_windowed(&self) -> bool {
        self.window.ms > 0 || self.window.count > 0
    }
}
