//! What the cores count, and its text for Prometheus.
//!
//! Every core writes its own line of numbers; whoever is asked adds them up. No number is labelled with a queue or a tenant: anybody may
//! read these, and labels do not grow by what clients send. What tenants use is an admin's to ask, of the quota route.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mayfly_shards::{DropCause, ShardGauges};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::control::ControlGauges;

const CAUSES: usize = DropCause::ALL.len();

/// One core's numbers, written by it alone.
#[derive(Debug, Default)]
struct CoreLine {
    pushed: AtomicU64,
    popped: AtomicU64,
    acked: AtomicU64,
    redelivered: AtomicU64,
    stale: AtomicU64,
    handed_over: AtomicU64,
    adopted: AtomicU64,
    wipes: AtomicU64,
    dropped: [AtomicU64; CAUSES],
    queues: AtomicU64,
    waiters: AtomicU64,
    calls: AtomicU64,
    hops: AtomicU64,
    forwards: AtomicU64,
}

/// What a core counts of requests and partitions on their way to others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways {
    /// Requests sent to other cores.
    pub hops: u64,
    /// Requests sent to other nodes.
    pub forwards: u64,
    /// Partitions that were lost with their node, or in part, on their way to or from here.
    pub wipes: u64,
}

/// The numbers of all cores.
#[derive(Debug)]
pub struct Gauges {
    cores: Vec<CoreLine>,
    control: Arc<ControlGauges>,
}

impl Gauges {
    /// Of a node of `core_count` cores.
    #[must_use]
    pub fn new(core_count: usize) -> Self {
        Self { cores: (0..core_count).map(|_| CoreLine::default()).collect(), control: Arc::default() }
    }

    /// The control core's numbers, which it writes itself.
    #[must_use]
    pub fn control(&self) -> Arc<ControlGauges> {
        Arc::clone(&self.control)
    }

    /// Writes one core's numbers.
    pub fn publish(&self, core: usize, gauges: &ShardGauges, ways: &Ways) {
        let line = &self.cores[core];
        line.pushed.store(gauges.pushed, Relaxed);
        line.popped.store(gauges.popped, Relaxed);
        line.acked.store(gauges.acked, Relaxed);
        line.redelivered.store(gauges.redelivered, Relaxed);
        line.stale.store(gauges.stale, Relaxed);
        line.handed_over.store(gauges.handed_over, Relaxed);
        line.adopted.store(gauges.adopted, Relaxed);
        line.wipes.store(ways.wipes, Relaxed);
        for (cell, number) in line.dropped.iter().zip(gauges.dropped) {
            cell.store(number, Relaxed);
        }
        line.queues.store(gauges.queues, Relaxed);
        line.waiters.store(gauges.waiters, Relaxed);
        line.calls.store(gauges.calls, Relaxed);
        line.hops.store(ways.hops, Relaxed);
        line.forwards.store(ways.forwards, Relaxed);
    }

    fn sum(&self, of: impl Fn(&CoreLine) -> &AtomicU64) -> u64 {
        self.cores.iter().map(|line| of(line).load(Relaxed)).sum()
    }
}

fn cause_name(cause: DropCause) -> &'static str {
    match cause {
        DropCause::Bounds => "bounds",
        DropCause::Ttl => "ttl",
        DropCause::Retry => "retry",
        DropCause::Reset => "reset",
        DropCause::Deleted => "deleted",
        DropCause::GroupIdle => "group_idle",
        DropCause::Abandoned => "abandoned",
        DropCause::LateReply => "late_reply",
        DropCause::Withdrawn => "withdrawn",
    }
}

/// The text of all metrics; `node_bytes` is what the node's bound is measured against.
#[must_use]
pub fn render(gauges: &Gauges, node_bytes: u64) -> String {
    let mut registry = Registry::default();
    let verbs = [
        ("pushed", gauges.sum(|line| &line.pushed)),
        ("popped", gauges.sum(|line| &line.popped)),
        ("acked", gauges.sum(|line| &line.acked)),
    ];
    for (verb, count) in verbs {
        let labelled = registry.sub_registry_with_label(("verb".into(), verb.into()));
        labelled.register("queen_ephemeral_messages", "Messages by what was done to them", ConstCounter::new(count));
    }
    for cause in DropCause::ALL {
        let count = gauges.sum(|line| &line.dropped[cause as usize]);
        let labelled = registry.sub_registry_with_label(("cause".into(), cause_name(cause).into()));
        labelled.register("queen_ephemeral_dropped", "Messages dropped, by cause", ConstCounter::new(count));
    }
    registry.register("queen_ephemeral_bytes", "Bytes held: payloads and fixed overheads", ConstGauge::new(node_bytes));
    registry.register("queen_ephemeral_queues", "Queues, by the cores that have a part", ConstGauge::new(gauges.sum(|line| &line.queues)));
    registry.register("mayfly_waiters", "Parked pops", ConstGauge::new(gauges.sum(|line| &line.waiters)));
    registry.register("mayfly_calls", "Calls waiting for their reply", ConstGauge::new(gauges.sum(|line| &line.calls)));
    registry.register("mayfly_redeliveries", "Messages given back for redelivery", ConstCounter::new(gauges.sum(|line| &line.redelivered)));
    registry.register("mayfly_stale_acks", "Acks of an earlier delivery", ConstCounter::new(gauges.sum(|line| &line.stale)));
    registry.register("mayfly_hops", "Requests handed to another core", ConstCounter::new(gauges.sum(|line| &line.hops)));
    registry.register("queen_ephemeral_forwarded", "Requests handed to another node", ConstCounter::new(gauges.sum(|line| &line.forwards)));
    let moved = [("handed_over", gauges.sum(|line| &line.handed_over)), ("adopted", gauges.sum(|line| &line.adopted))];
    for (way, count) in moved {
        let labelled = registry.sub_registry_with_label(("way".into(), way.into()));
        labelled.register("mayfly_handover_messages", "Messages given to other nodes, and taken up from them", ConstCounter::new(count));
    }
    let wipes = ConstCounter::new(gauges.sum(|line| &line.wipes));
    registry.register("queen_ephemeral_wipes", "Partitions that were lost, whole or in part, on their way between nodes", wipes);
    let ControlGauges { committed, declarations, epoch, unavailable, fsync_seconds, is_mirrored: _ } = &*gauges.control;
    registry.register("mayfly_control_committed", "Entries of the control log that hold", ConstCounter::new(committed.load(Relaxed)));
    registry.register("mayfly_control_declarations", "Declared queues", ConstGauge::new(declarations.load(Relaxed)));
    registry.register("mayfly_epoch", "Number of the table of the cluster's members", ConstGauge::new(epoch.load(Relaxed)));
    registry.register("mayfly_control_unavailable", "1 while the log cannot be written", ConstGauge::new(unavailable.load(Relaxed)));
    registry.register("mayfly_control_fsync_seconds", "Writes of the control log, the disk's word included", fsync_seconds.clone());
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}
