//! What the control core counts.

use std::sync::atomic::{AtomicBool, AtomicU64};

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Written by the control core, read by whoever is asked for metrics.
#[derive(Debug)]
pub struct ControlGauges {
    /// Entries of the log that hold, since this start.
    pub committed: AtomicU64,
    /// Declared queues.
    pub declarations: AtomicU64,
    /// The number of the table of members.
    pub epoch: AtomicU64,
    /// 1 while the log cannot be written.
    pub unavailable: AtomicU64,
    /// Whether every live member has the kill switch as this node has it.
    pub is_mirrored: AtomicBool,
    /// How long a write of the log took, the disk's word included.
    pub fsync_seconds: Histogram,
}

impl Default for ControlGauges {
    fn default() -> Self {
        Self {
            committed: AtomicU64::new(0),
            declarations: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            unavailable: AtomicU64::new(0),
            is_mirrored: AtomicBool::new(true),
            fsync_seconds: Histogram::new(exponential_buckets(0.000_1, 2.0, 16)),
        }
    }
}
