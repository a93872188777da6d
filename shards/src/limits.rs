//! Every bound, with its unit. What has no bound here is bounded by one of these.

use crate::time::Span;

/// Messages in one push, acks in one ack call, and replies in one reply call.
pub const CALL_ITEMS_MAX: usize = 10_000;
/// Messages one pop may ask for.
pub const BATCH_MAX: u32 = 10_000;
/// Payload bytes of one answer; one message always fits.
pub const ANSWER_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Groups of one queue.
pub const GROUPS_MAX: usize = 1_024;
/// Partitions of one queue.
pub const PARTITIONS_MAX: usize = 1_000_000;
/// Bytes of a queue, partition or group name.
pub const NAME_BYTES_MAX: usize = 512;
/// Shards of one node.
pub const SHARDS_MAX: usize = 256;

/// Tenants of one node at once that have no grant.
pub const TENANTS_MAX: usize = 65_536;

/// A tenant without a grant that holds nothing is forgotten when it was not seen for this long, or up to as long again.
pub const TENANT_IDLE: Span = Span::from_secs(60);

/// How long after a pop was answered a partition counts as listened to.
pub const LISTENING_SPAN: Span = Span::from_secs(5);

/// How long after its subscriber left a private group is forgotten.
pub const DEPARTURE_SPAN: Span = Span::from_secs(30);

/// Bytes charged to the node for a message beside its payload.
pub const MESSAGE_OVERHEAD_BYTES: u64 = 64;
/// Bytes charged to the node for a queue beside its messages.
pub const QUEUE_OVERHEAD_BYTES: u64 = 512;
/// Bytes charged to the node for a parked pop, and for a call's inbox.
pub const WAITER_OVERHEAD_BYTES: u64 = 192;

/// Payload bytes of one chunk of a partition on its way to another node, and what is said beside them; one message always fits.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Commands that wait for one partition on its way here, and the bytes charged for them.
pub const ARRIVAL_COMMANDS_MAX: usize = 10_000;
/// See `ARRIVAL_COMMANDS_MAX`.
pub const ARRIVAL_BYTES_MAX: u64 = 16 << 20;
/// How long a transfer that ended is remembered, so that a chunk of it that comes late makes nothing.
pub const ENDED_TRANSFER_SPAN: Span = Span::from_secs(300);

const _: () = assert!(CALL_ITEMS_MAX >= BATCH_MAX as usize);
