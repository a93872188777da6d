//! What proptest generates: a node's settings, and a run of operations that name earlier things by position, so that they shrink.

use mayfly_shards::{Allowance, Options, Policy, QUEUE_MODE, Span, Tenant, Verdict, WindowBuffer};
use proptest::prelude::*;

use crate::drive::TENANTS;
use crate::facts::{Ask, Broken, Name};
use crate::rules::Settings;

pub(crate) const PARTITIONS: [&str; 3] = ["Default", "p", "q"];
pub(crate) const GROUPS: [&str; 4] = [QUEUE_MODE, "a", "b", "c"];
/// Private groups: one reads everything, one a partition alone.
pub(crate) const SUBSCRIBERS: [&str; 2] = ["subscriber:0000000000000001:1", "subscriber:0000000000000001:2:p"];

/// One step of a run.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Push {
        queue: usize,
        partition: usize,
        sizes: Vec<usize>,
    },
    Pop {
        queue: usize,
        partition: Option<usize>,
        group: usize,
        batch: u32,
        wait_ms: Option<u64>,
        auto_ack: bool,
    },
    /// Each pick counts back from the latest delivery; those of another queue or group than the first are left out.
    Ack {
        picks: Vec<(usize, Verdict)>,
        twist: Twist,
    },
    Call {
        queue: usize,
        partition: usize,
        size: usize,
        wait_ms: u64,
        fail_fast: bool,
    },
    /// Each pick counts back from the latest delivery of a call's request.
    Reply {
        picks: Vec<usize>,
        late_count: u32,
        is_forged: bool,
        is_other_tenant: bool,
    },
    Configure {
        queue: usize,
        options: Options,
    },
    Undeclare {
        queue: usize,
    },
    /// Whose, of `TENANTS`; None: withdrawn.
    Grant {
        tenant: usize,
        allowance: Option<Allowance>,
    },
    /// The subscriber of a private group is gone.
    Leave {
        queue: usize,
        group: usize,
    },
    Reset {
        queue: usize,
    },
    Delete {
        queue: usize,
        is_overtaken: bool,
    },
    /// Asked of both sides as it stands.
    Read(Ask),
    /// Which of the parked pops and calls.
    Cancel(usize),
    /// Which of the answers that may be taken back, counted from the latest.
    Undeliver(usize, Broken),
    Sent(usize),
    Expire,
    /// Everything goes to another node, or was to go.
    Relocate {
        chunk_bytes: usize,
        is_called_off: bool,
    },
    /// The kill switch.
    Switch(bool),
    Pass(Pace),
}

/// What is wrong with an ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    Nothing,
    OtherGroup(usize),
    OtherQueue,
    OtherPartition(usize),
    LaterDelivery,
    EarlierDelivery,
    ForgedSeq,
}

/// How far time goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    Millis(u64),
    /// To the next deadline and so many nanoseconds further.
    Deadline(i64),
}

/// A node and what happens on it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) settings: Settings,
    pub(crate) queues: [Name; 2],
    pub(crate) ops: Vec<Op>,
}

/// Runs on which every deadline is met to the nanosecond.
pub(crate) fn run() -> impl Strategy<Value = Run> {
    (settings(), queues(), prop::collection::vec(op(), 1..60)).prop_map(|(settings, queues, ops)| Run { queues, settings, ops })
}

/// Runs on which deadlines are noticed late: without what depends on how long something was idle.
pub(crate) fn late_run() -> impl Strategy<Value = Run> {
    run().prop_map(|mut run| {
        run.settings.implicit_idle = Span(0);
        run.settings.abandoned = Span(0);
        run.settings.group_idle = Span(0);
        run
    })
}

const NO_WINDOW: WindowBuffer = WindowBuffer { ms: 0, count: 0 };

/// Runs that move from node to node: without what a node alone decides on (bounds and rates of tenants, its bytes), and without
/// subscribers that leave, whom every node of a cluster is told of, and without windows: a move takes one partition after another, and
/// what a window held may be given to pops of one that is still there.
pub(crate) fn moving_run() -> impl Strategy<Value = Run> {
    let stays = |op: &Op| !matches!(op, Op::Grant { .. } | Op::Leave { .. });
    let relocate = (prop_oneof![Just(1usize), Just(200), Just(1 << 20)], prop::bool::weighted(0.3));
    let relocate = relocate.prop_map(|(chunk_bytes, is_called_off)| Op::Relocate { chunk_bytes, is_called_off });
    let op = prop_oneof![12 => op().prop_filter("of one node", stays), 1 => relocate];
    (settings(), queues(), prop::collection::vec(op, 1..60)).prop_map(|(mut settings, queues, mut ops)| {
        settings.node_bytes = 1 << 40;
        settings.allowance = Allowance::UNBOUNDED;
        settings.defaults.window = NO_WINDOW;
        for op in &mut ops {
            if let Op::Configure { options, .. } = op {
                options.window = NO_WINDOW;
            }
        }
        Run { queues, settings, ops }
    })
}

/// Two queues: two names of one tenant, or one name of two tenants.
fn queues() -> impl Strategy<Value = [Name; 2]> {
    let name = |(tenant, queue): (u128, &str)| Name { tenant: Tenant(tenant), queue: queue.to_owned() };
    prop_oneof![
        2 => Just([(1, "inbox"), (1, "inbox/2")]),
        1 => Just([(2, "inbox"), (2, "inbox/2")]),
        1 => Just([(1, "inbox"), (2, "inbox")]),
        1 => Just([(2, "inbox"), (3, "inbox")]),
    ]
    .prop_map(move |names| names.map(name))
}

fn settings() -> impl Strategy<Value = Settings> {
    let idle_secs = || prop_oneof![2 => Just(0u64), 1 => Just(2), 1 => Just(5)];
    let node_bytes = prop_oneof![3 => Just(1u64 << 40), 1 => 700u64..3_000];
    let allowance = prop_oneof![3 => Just(Allowance::UNBOUNDED), 1 => allowance()];
    (options(), idle_secs(), idle_secs(), idle_secs(), node_bytes, allowance).prop_map(
        |(defaults, implicit, group, abandoned, node_bytes, allowance)| Settings {
            defaults,
            implicit_idle: Span::from_secs(implicit),
            group_idle: Span::from_secs(group),
            abandoned: Span::from_secs(abandoned),
            node_bytes,
            allowance,
        },
    )
}

fn allowance() -> impl Strategy<Value = Allowance> {
    let bytes_max = prop_oneof![2 => Just(u64::MAX), 1 => 0u64..150];
    let queues_max = prop_oneof![3 => Just(u64::MAX), 1 => 0u64..3];
    let parked_max = prop_oneof![2 => Just(u64::MAX), 1 => 0u64..3];
    let rate = prop_oneof![4 => Just((0u64, 0u64)), 1 => Just((2, 4)), 1 => Just((10, 3))];
    (prop::bool::weighted(0.85), bytes_max, queues_max, parked_max, rate).prop_map(
        |(is_enabled, bytes_max, queues_max, parked_max, (messages_per_second, burst_messages))| Allowance {
            is_enabled,
            bytes_max,
            queues_max,
            parked_max,
            messages_per_second,
            burst_messages,
        },
    )
}

fn options() -> impl Strategy<Value = Options> {
    let max_bytes = prop_oneof![3 => Just(16u64 << 20), 1 => 20u64..120];
    let max_length = prop_oneof![2 => Just(10_000u32), 1 => 1u32..8];
    let policy = prop_oneof![Just(Policy::Reject), Just(Policy::DropOldest)];
    let ttl_seconds = prop_oneof![3 => Just(0u64), 2 => 1u64..4];
    let window = prop_oneof![
        2 => Just(WindowBuffer::default()),
        1 => (prop_oneof![Just(0u32), Just(100), Just(700), Just(1_500)], prop_oneof![Just(0u32), 1u32..5])
            .prop_map(|(ms, count)| WindowBuffer { ms, count }),
    ];
    (max_bytes, max_length, policy, ttl_seconds, 1u32..4, 0u32..5, window).prop_map(
        |(max_bytes, max_length, policy, ttl_seconds, lease_seconds, retry_limit, window)| Options {
            max_bytes,
            max_length,
            policy,
            ttl_seconds,
            lease_seconds,
            retry_limit,
            window,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => push(),
        24 => pop(),
        16 => ack(),
        10 => call(),
        8 => reply(),
        4 => (queue(), options()).prop_map(|(queue, options)| Op::Configure { queue, options }),
        4 => (0..TENANTS.len(), prop::option::weighted(0.8, allowance())).prop_map(|(tenant, allowance)| Op::Grant { tenant, allowance }),
        2 => (queue(), 0..SUBSCRIBERS.len()).prop_map(|(queue, group)| Op::Leave { queue, group }),
        2 => queue().prop_map(|queue| Op::Reset { queue }),
        3 => (queue(), prop::bool::weighted(0.3)).prop_map(|(queue, is_overtaken)| Op::Delete { queue, is_overtaken }),
        2 => read().prop_map(Op::Read),
        3 => (0usize..4).prop_map(Op::Cancel),
        8 => (0usize..6, broken()).prop_map(|(back, broken)| Op::Undeliver(back, broken)),
        1 => (0usize..6).prop_map(Op::Sent),
        1 => Just(Op::Expire),
        1 => queue().prop_map(|queue| Op::Undeclare { queue }),
        3 => prop::bool::weighted(0.7).prop_map(Op::Switch),
        20 => pace().prop_map(Op::Pass),
    ]
}

fn queue() -> impl Strategy<Value = usize> {
    prop_oneof![5 => Just(0usize), 1 => Just(1)]
}

fn push() -> impl Strategy<Value = Op> {
    let sizes = prop_oneof![
        30 => prop::collection::vec(8usize..40, 1..5),
        // Several of these pass the bound of one answer.
        1 => prop::collection::vec(Just(400_000), 3..5),
    ];
    (queue(), 0..PARTITIONS.len(), sizes).prop_map(|(queue, partition, sizes)| Op::Push { queue, partition, sizes })
}

fn pop() -> impl Strategy<Value = Op> {
    let partition = prop_oneof![2 => Just(None), 1 => (0..PARTITIONS.len()).prop_map(Some)];
    let batch = prop_oneof![3 => 1u32..4, 1 => Just(10)];
    let wait_ms = prop_oneof![3 => Just(None), 1 => Just(Some(0)), 2 => (1u64..20).prop_map(|n| Some(n * 100)), 3 => Just(Some(10_000))];
    (queue(), partition, 0..GROUPS.len() + SUBSCRIBERS.len(), batch, wait_ms, prop::bool::weighted(0.3))
        .prop_map(|(queue, partition, group, batch, wait_ms, auto_ack)| Op::Pop { queue, partition, group, batch, wait_ms, auto_ack })
}

fn ack() -> impl Strategy<Value = Op> {
    let verdict = prop_oneof![3 => Just(Verdict::Completed), 2 => Just(Verdict::Nack)];
    let twist = prop_oneof![
        20 => Just(Twist::Nothing),
        1 => (0..GROUPS.len()).prop_map(Twist::OtherGroup),
        1 => Just(Twist::OtherQueue),
        1 => (0..PARTITIONS.len()).prop_map(Twist::OtherPartition),
        1 => Just(Twist::LaterDelivery),
        1 => Just(Twist::EarlierDelivery),
        1 => Just(Twist::ForgedSeq),
    ];
    (prop::collection::vec((0usize..10, verdict), 1..5), twist).prop_map(|(picks, twist)| Op::Ack { picks, twist })
}

fn call() -> impl Strategy<Value = Op> {
    let wait_ms = prop_oneof![1 => Just(0), 3 => (1u64..20).prop_map(|n| n * 100), 3 => Just(10_000)];
    (queue(), 0..PARTITIONS.len(), 8usize..40, wait_ms, prop::bool::weighted(0.3))
        .prop_map(|(queue, partition, size, wait_ms, fail_fast)| Op::Call { queue, partition, size, wait_ms, fail_fast })
}

fn reply() -> impl Strategy<Value = Op> {
    let late_count = prop_oneof![8 => Just(0u32), 1 => 1u32..3];
    (prop::collection::vec(0usize..6, 1..4), late_count, prop::bool::weighted(0.05), prop::bool::weighted(0.05))
        .prop_map(|(picks, late_count, is_forged, is_other_tenant)| Op::Reply { picks, late_count, is_forged, is_other_tenant })
}

fn read() -> impl Strategy<Value = Ask> {
    let name = || prop_oneof![Just(""), Just("in"), Just("inbox"), Just("inbox/"), Just("x")];
    (name(), name(), 0usize..3).prop_map(|(prefix, after, limit)| Ask::List {
        tenant: Tenant(1),
        prefix: prefix.to_owned(),
        after: after.to_owned(),
        limit,
    })
}

fn broken() -> impl Strategy<Value = Broken> {
    prop_oneof![2 => Just(Broken::Unsent), 1 => Just(Broken::Partly)]
}

fn pace() -> impl Strategy<Value = Pace> {
    prop_oneof![
        4 => (0u64..15).prop_map(|n| Pace::Millis(n * 100)),
        1 => (1u64..6).prop_map(|n| Pace::Millis(n * 1_000)),
        5 => (-1i64..=1).prop_map(Pace::Deadline),
    ]
}
