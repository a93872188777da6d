//! What a client may ask of a shard, and the facts it may be told.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::name::Tenant;
use crate::options::Options;
use crate::payload::Payload;
use crate::time::{Span, Time};

/// One request, parsed. Names are valid (1 to 512 bytes, no control characters); counts are within `limits`.
///
/// Where it must be given: a push, a call, and a pop with a partition, to the partition's owner (`shard_of`); a reply to the shard of each
/// inbox (`inbox_shard`); an ack to the owner of each id's partition (the caller splits one call and joins the results); a pop without a partition, configure, undeclare, reset, delete to the
/// queue's home (`home_shard`); list and depth to every shard (the caller merges).
#[derive(Debug)]
pub enum Command<'a> {
    /// Append messages to a partition, all or none. The payloads are taken.
    Push {
        /// Whose.
        tenant: Tenant,
        /// Queue, made if absent.
        queue: &'a str,
        /// Partition, made if absent.
        partition: &'a str,
        /// At most `CALL_ITEMS_MAX`, at least one.
        payloads: &'a mut Vec<Payload>,
    },
    /// Append one message to a partition and wait for its answer: all that a push may be refused for, and what a parked pop may.
    Call {
        /// Whose.
        tenant: Tenant,
        /// Queue, made if absent.
        queue: &'a str,
        /// Partition, made if absent.
        partition: &'a str,
        /// Exactly one; taken.
        payloads: &'a mut Vec<Payload>,
        /// When it is answered that there was no reply.
        until: Time,
        /// Refused when nobody seems to listen.
        fail_fast: bool,
    },
    /// Answer calls whose inboxes are this shard's.
    Reply {
        /// Whose.
        tenant: Tenant,
        /// At most `CALL_ITEMS_MAX`.
        items: &'a [ReplyItem<'a>],
    },
    /// Take messages for a group, or wait for some.
    Pop {
        /// Whose.
        tenant: Tenant,
        /// Queue, made if absent.
        queue: &'a str,
        /// None: any partition.
        partition: Option<&'a str>,
        /// Group, registered if unknown; `QUEUE_MODE` when the client named none.
        group: &'a str,
        /// 1 to `BATCH_MAX`.
        batch: u32,
        /// When a waiting pop answers empty; None: do not wait.
        wait_until: Option<Time>,
        /// Settled at delivery.
        auto_ack: bool,
    },
    /// Settle or return deliveries. Every item's partition is this shard's.
    Ack {
        /// Whose.
        tenant: Tenant,
        /// Queue; never made.
        queue: &'a str,
        /// Group; never registered.
        group: &'a str,
        /// At most `CALL_ITEMS_MAX`.
        items: &'a [AckItem<'a>],
    },
    /// A private group's subscriber left: in `DEPARTURE_SPAN` the group is forgotten. Given to the queue's home; not answered.
    Leave {
        /// Whose.
        tenant: Tenant,
        /// Queue; never made.
        queue: &'a str,
        /// Private: no pop of it comes any more.
        group: &'a str,
    },
    /// Declare a queue with these options, in place of any earlier declaration. Carried out whatever the bounds: see `Shard::admit_declaration`.
    Configure {
        /// Whose.
        tenant: Tenant,
        /// Queue, made if absent.
        queue: &'a str,
        /// In force from now on.
        options: Options,
        /// Its place in the log of declarations.
        at: u64,
    },
    /// Forget the declaration and nothing else: what the queue holds stays, as an implicit one's.
    Undeclare {
        /// Whose.
        tenant: Tenant,
        /// Queue; never made.
        queue: &'a str,
    },
    /// Drop every message, void every lease; groups and declaration stay.
    Reset {
        /// Whose.
        tenant: Tenant,
        /// Queue; never made.
        queue: &'a str,
    },
    /// Forget contents, cursors and declaration; what was declared by a later entry of the log stays declared, and its groups known.
    Delete {
        /// Whose.
        tenant: Tenant,
        /// Queue; never made.
        queue: &'a str,
        /// Its place in the log of declarations.
        at: u64,
    },
    /// This shard's part of the listing: at most `limit` queues after `after`, by name.
    List {
        /// Whose.
        tenant: Tenant,
        /// Only names that begin so.
        prefix: &'a str,
        /// Only names greater than this; empty: from the beginning.
        after: &'a str,
        /// Most rows.
        limit: usize,
    },
    /// This shard's part of a queue's depth.
    Depth {
        /// Whose.
        tenant: Tenant,
        /// Queue; never made.
        queue: &'a str,
        /// The group asked for.
        group: Option<&'a str>,
    },
}

/// One ack of a call.
#[derive(Clone, Copy, Debug)]
pub struct AckItem<'a> {
    /// Its place in the call, given back with the outcome.
    pub index: u32,
    /// From the id.
    pub partition: &'a str,
    /// From the id.
    pub seq: u64,
    /// Which delivery of the message to this group, from the id: 1 for the first.
    pub delivery: u32,
    /// What the client said of it.
    pub verdict: Verdict,
}

/// One answer to a call.
#[derive(Clone, Copy, Debug)]
pub struct ReplyItem<'a> {
    /// Its place in the request, given back when it is refused.
    pub index: u32,
    /// From the inbox's name; `NO_INBOX` when it is none of this incarnation.
    pub inbox: u64,
    /// JSON text.
    pub payload: &'a [u8],
    /// Further messages of the same push: a call takes one answer.
    pub late_count: u32,
}

/// What a client says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// Done.
    Completed,
    /// Give it again at once (`retry`, `failed`).
    Nack,
}

/// What an ack did. The words are the contract's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Completed, or nacked with its attempts used up (dropped, counted).
    Acked,
    /// Back in the queue.
    Redelivered,
    /// Delivered again since.
    Stale,
    /// Nothing of that name is outstanding.
    Unknown,
}

/// Why a shard refused a command. A refused command left no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// A bound of the queue; `can_fit` says whether waiting can help.
    QueueFull {
        /// False: larger than the bound itself.
        can_fit: bool,
    },
    /// `GROUPS_MAX` groups exist.
    TooManyGroups,
    /// `PARTITIONS_MAX` partitions exist.
    TooManyPartitions,
    /// The tenant's rate; it fits after this span.
    RateLimited {
        /// Until it fits.
        retry_after: Span,
    },
    /// The tenant's parked pops.
    TooManyParked,
    /// The tenant's bytes.
    TenantBytes,
    /// The tenant's queues.
    TenantQueues,
    /// The node's bytes.
    NodeBytes,
    /// Tenants of the node that have no grant.
    TooManyTenants,
    /// The tenant may not use the family.
    NotGranted,
    /// Nobody seems to listen, and the call was to fail then.
    NoConsumers,
    /// The partition is still on its way here, and too much waits for it, or for too long.
    NotHereYet,
}

/// Why a message ended unread or unsettled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropCause {
    /// dropOldest made room.
    Bounds,
    /// Older than ttlSeconds.
    Ttl,
    /// Attempts used up.
    Retry,
    /// reset.
    Reset,
    /// delete.
    Deleted,
    /// Held only for a forgotten idle group.
    GroupIdle,
    /// In a queue nobody used any more.
    Abandoned,
    /// An answer to a call that was over.
    LateReply,
    /// A request that nobody took before its call was over.
    Withdrawn,
}

impl DropCause {
    /// Every cause, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Bounds,
        Self::Ttl,
        Self::Retry,
        Self::Reset,
        Self::Deleted,
        Self::GroupIdle,
        Self::Abandoned,
        Self::LateReply,
        Self::Withdrawn,
    ];
}

/// A [`Command`] that owns what it names: to wait with, or to cross to another core.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedCommand {
    /// Whose.
    pub tenant: Tenant,
    /// Queue.
    pub queue: Arc<str>,
    /// The rest.
    pub request: OwnedRequest,
}

/// See [`Command`].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant and field is that of `Command`")]
pub enum OwnedRequest {
    Push { partition: Arc<str>, payloads: Vec<Payload> },
    Call { partition: Arc<str>, payloads: Vec<Payload>, until: Time, fail_fast: bool },
    Reply { items: Vec<OwnedReplyItem> },
    Pop { partition: Option<Arc<str>>, group: Arc<str>, batch: u32, wait_until: Option<Time>, auto_ack: bool },
    Ack { group: Arc<str>, items: Vec<OwnedAckItem> },
    Leave { group: Arc<str> },
    Configure { options: Options, at: u64 },
    Undeclare,
    Reset,
    Delete { at: u64 },
    List { prefix: Box<str>, after: Box<str>, limit: usize },
    Depth { group: Option<Arc<str>> },
}

/// See [`AckItem`].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each field is that of `AckItem`")]
pub struct OwnedAckItem {
    pub index: u32,
    pub partition: Arc<str>,
    pub seq: u64,
    pub delivery: u32,
    pub verdict: Verdict,
}

/// See [`ReplyItem`].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each field is that of `ReplyItem`")]
pub struct OwnedReplyItem {
    pub index: u32,
    pub inbox: u64,
    pub payload: Box<[u8]>,
    pub late_count: u32,
}

impl Command<'_> {
    /// Whose grant it needs, where it makes or takes anything. A declaration is agreed on, and was asked for before; the others are
    /// asked for by the caller, as parts of one request.
    pub(crate) fn gated_tenant(&self) -> Option<Tenant> {
        match self {
            Self::Push { tenant, .. } | Self::Call { tenant, .. } | Self::Pop { tenant, .. } => Some(*tenant),
            _ => None,
        }
    }

    /// Takes the command over, payloads included.
    #[must_use]
    pub fn into_owned(self) -> OwnedCommand {
        let own = |tenant, queue: &str, request| OwnedCommand { tenant, queue: queue.into(), request };
        match self {
            Self::Push { tenant, queue, partition, payloads } => {
                own(tenant, queue, OwnedRequest::Push { partition: partition.into(), payloads: std::mem::take(payloads) })
            }
            Self::Call { tenant, queue, partition, payloads, until, fail_fast } => {
                let payloads = std::mem::take(payloads);
                own(tenant, queue, OwnedRequest::Call { partition: partition.into(), payloads, until, fail_fast })
            }
            Self::Reply { tenant, items } => {
                own(tenant, "", OwnedRequest::Reply { items: items.iter().map(|item| item.to_owned_item()).collect() })
            }
            Self::Pop { tenant, queue, partition, group, batch, wait_until, auto_ack } => {
                let partition = partition.map(Arc::from);
                own(tenant, queue, OwnedRequest::Pop { partition, group: group.into(), batch, wait_until, auto_ack })
            }
            Self::Ack { tenant, queue, group, items } => {
                let items = items.iter().map(|item| item.to_owned_item()).collect();
                own(tenant, queue, OwnedRequest::Ack { group: group.into(), items })
            }
            Self::Leave { tenant, queue, group } => own(tenant, queue, OwnedRequest::Leave { group: group.into() }),
            Self::Configure { tenant, queue, options, at } => own(tenant, queue, OwnedRequest::Configure { options, at }),
            Self::Undeclare { tenant, queue } => own(tenant, queue, OwnedRequest::Undeclare),
            Self::Reset { tenant, queue } => own(tenant, queue, OwnedRequest::Reset),
            Self::Delete { tenant, queue, at } => own(tenant, queue, OwnedRequest::Delete { at }),
            Self::List { tenant, prefix, after, limit } => {
                own(tenant, "", OwnedRequest::List { prefix: prefix.into(), after: after.into(), limit })
            }
            Self::Depth { tenant, queue, group } => own(tenant, queue, OwnedRequest::Depth { group: group.map(Arc::from) }),
        }
    }
}

impl AckItem<'_> {
    fn to_owned_item(self) -> OwnedAckItem {
        let Self { index, partition, seq, delivery, verdict } = self;
        OwnedAckItem { index, partition: partition.into(), seq, delivery, verdict }
    }
}

impl ReplyItem<'_> {
    fn to_owned_item(self) -> OwnedReplyItem {
        let Self { index, inbox, payload, late_count } = self;
        OwnedReplyItem { index, inbox, payload: payload.into(), late_count }
    }
}

impl OwnedCommand {
    /// Runs `f` with the command as it was.
    pub fn lend<T>(self, f: impl FnOnce(Command<'_>) -> T) -> T {
        let Self { tenant, queue, request } = self;
        let queue = &*queue;
        match request {
            OwnedRequest::Push { partition, mut payloads } => {
                f(Command::Push { tenant, queue, partition: &partition, payloads: &mut payloads })
            }
            OwnedRequest::Call { partition, mut payloads, until, fail_fast } => {
                f(Command::Call { tenant, queue, partition: &partition, payloads: &mut payloads, until, fail_fast })
            }
            OwnedRequest::Reply { items } => {
                let items: Vec<ReplyItem<'_>> = items
                    .iter()
                    .map(|item| ReplyItem { index: item.index, inbox: item.inbox, payload: &item.payload, late_count: item.late_count })
                    .collect();
                f(Command::Reply { tenant, items: &items })
            }
            OwnedRequest::Pop { partition, group, batch, wait_until, auto_ack } => {
                f(Command::Pop { tenant, queue, partition: partition.as_deref(), group: &group, batch, wait_until, auto_ack })
            }
            OwnedRequest::Ack { group, items } => {
                let items: Vec<AckItem<'_>> = items
                    .iter()
                    .map(|item| AckItem {
                        index: item.index,
                        partition: &item.partition,
                        seq: item.seq,
                        delivery: item.delivery,
                        verdict: item.verdict,
                    })
                    .collect();
                f(Command::Ack { tenant, queue, group: &group, items: &items })
            }
            OwnedRequest::Leave { group } => f(Command::Leave { tenant, queue, group: &group }),
            OwnedRequest::Configure { options, at } => f(Command::Configure { tenant, queue, options, at }),
            OwnedRequest::Undeclare => f(Command::Undeclare { tenant, queue }),
            OwnedRequest::Reset => f(Command::Reset { tenant, queue }),
            OwnedRequest::Delete { at } => f(Command::Delete { tenant, queue, at }),
            OwnedRequest::List { prefix, after, limit } => f(Command::List { tenant, prefix: &prefix, after: &after, limit }),
            OwnedRequest::Depth { group } => f(Command::Depth { tenant, queue, group: group.as_deref() }),
        }
    }
}
