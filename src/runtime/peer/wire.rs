//! What nodes say to each other over a link between two of their cores: packets in postcard's form, one a frame.
//!
//! Whoever dialled asks, the other answers. Each ask has a number of the asker's that its one answer repeats; what an answer delivered
//! has a number of the answerer's, under which the asker says whether its client took it. Spans cross, points in time do not. Names were
//! checked where they came in.

use mayfly_shards::{AckItem, Answer, Command, Payload, ReplyItem, Span, Tenant, Time, Verdict};
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes;

use crate::control::handover::{Reply, Word};

/// See the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Packet<'a> {
    /// From the asker: carry this out.
    #[serde(borrow)]
    Ask(Ask<'a>),
    /// From the asker: nobody waits for this ask any more.
    Cancel { number: u64 },
    /// From the asker: clients took all of these.
    Taken { deliveries: Vec<u64> },
    /// From the asker: this did not reach its client whole.
    Returned { delivery: u64, is_partly: bool },
    /// An answer without messages.
    Answer { number: u64, answer: Answer },
    /// A pop's answer as the client gets it; the messages begin at `messages_at`.
    Delivered { number: u64, delivery: u64, messages_at: u32, body: &'a Bytes },
    /// A call's answer.
    Replied { number: u64, delivery: u64, payload: &'a Bytes },
    /// Nothing was done: the answerer owns no such queue by the table of this epoch. The ask comes back.
    Moved { epoch: u64, ask: Ask<'a> },
    /// From the asker: of a partition on its way to a shard of the answerer.
    Handover { shard: u16, word: Word },
    /// To the last.
    HandoverReply { reply: Reply },
    /// From the asker: this core of its node holds nothing that the table of this epoch gives to others.
    Done { core: u16, epoch: u64 },
}

/// One command for a shard of the answerer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask<'a> {
    pub(super) number: u64,
    /// Of the table by which the answerer owns what it is asked for.
    pub(super) epoch: u64,
    /// It was sent to another node before, in vain: it is not sent on again.
    pub(super) is_second: bool,
    pub(super) shard: u16,
    /// How long it waited elsewhere.
    pub(super) waited: Span,
    pub(super) tenant: u128,
    pub(super) queue: &'a str,
    #[serde(borrow)]
    pub(super) request: Request<'a>,
}

/// How an ask goes: see [`Ask`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) is_second: bool,
    pub(super) shard: u16,
    pub(super) since: Option<Time>,
}

/// See [`Command`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request<'a> {
    Push {
        partition: &'a str,
        #[serde(borrow)]
        payloads: Vec<&'a Bytes>,
    },
    Call {
        partition: &'a str,
        payload: &'a Bytes,
        wait: Span,
        fail_fast: bool,
    },
    Reply {
        #[serde(borrow)]
        items: Vec<CallReply<'a>>,
    },
    Pop {
        partition: Option<&'a str>,
        group: &'a str,
        batch: u32,
        wait: Option<Span>,
        auto_ack: bool,
    },
    Ack {
        group: &'a str,
        #[serde(borrow)]
        items: Vec<Ack<'a>>,
    },
    Leave {
        group: &'a str,
    },
    Reset,
    Delete {
        at: u64,
    },
    List {
        prefix: &'a str,
        after: &'a str,
        limit: u64,
    },
    Depth {
        group: Option<&'a str>,
    },
}

/// See [`ReplyItem`]; the inbox as it is spelled in its name.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallReply<'a> {
    index: u32,
    inbox: u64,
    #[serde(borrow)]
    payload: &'a Bytes,
    late_count: u32,
}

/// See [`AckItem`]; the seq as it is spelled in the message's id.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ack<'a> {
    index: u32,
    partition: &'a str,
    seq: u64,
    delivery: u32,
    verdict: Verdict,
}

impl Packet<'_> {
    /// Appends the packet.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let filled = std::mem::take(out);
        // Into a Vec: nothing can fail.
        *out = postcard::to_extend(self, filled).unwrap_or_else(|error| unreachable!("a packet has a form: {error}"));
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// It is none: the other node is of another version.
    pub(super) fn read(frame: &[u8]) -> Result<Packet<'_>, postcard::Error> {
        postcard::from_bytes(frame)
    }
}

impl<'a> Ask<'a> {
    /// Spells a command. Its seqs and inboxes are as ids spell them.
    pub(super) fn new(way: Way, now: Time, command: &'a Command<'_>) -> Self {
        let Way { number, epoch, is_second, shard, since } = way;
        let (tenant, queue, request) = spell(now, command);
        let waited = since.map_or(Span(0), |since| now.since(since));
        Self { number, epoch, is_second, shard, waited, tenant: tenant.0, queue, request }
    }

    /// Since when it waits, if it waited elsewhere.
    pub(super) fn since(&self, now: Time) -> Option<Time> {
        (self.waited > Span(0)).then(|| now - self.waited)
    }

    /// The partition, or any, of a queue that has to be the answerer's; None: whoever is asked answers for what it has.
    pub(super) fn partition(&self) -> Option<Option<&'a str>> {
        match &self.request {
            Request::Push { partition, .. } | Request::Call { partition, .. } => Some(Some(partition)),
            Request::Pop { partition, .. } => Some(*partition),
            _ => None,
        }
    }

    /// Whether nobody waits for its answer.
    pub(super) const fn is_unheard(&self) -> bool {
        matches!(&self.request, Request::Leave { .. })
    }

    /// Whether its answer may take long: then a cancel ends it.
    pub(super) const fn parks(&self) -> bool {
        matches!(&self.request, Request::Pop { wait: Some(_), .. } | Request::Call { .. })
    }

    /// Runs `f` with the command. `seq_of`: the number behind one that an id spells.
    pub(super) fn lend<T>(&self, now: Time, seq_of: impl Fn(u64) -> u64, f: impl FnOnce(Command<'_>) -> T) -> T {
        let (tenant, queue) = (Tenant(self.tenant), self.queue);
        match &self.request {
            Request::Push { partition, payloads } => {
                let mut payloads: Vec<Payload> = payloads.iter().map(|payload| Payload::from(&payload[..])).collect();
                f(Command::Push { tenant, queue, partition, payloads: &mut payloads })
            }
            Request::Call { partition, payload, wait, fail_fast } => {
                let payloads = &mut vec![Payload::from(&payload[..])];
                f(Command::Call { tenant, queue, partition, payloads, until: now + *wait, fail_fast: *fail_fast })
            }
            Request::Reply { items } => {
                let item = |of: &CallReply<'a>| ReplyItem {
                    index: of.index,
                    inbox: seq_of(of.inbox),
                    payload: of.payload,
                    late_count: of.late_count,
                };
                f(Command::Reply { tenant, items: &items.iter().map(item).collect::<Vec<_>>() })
            }
            Request::Pop { partition, group, batch, wait, auto_ack } => {
                let (wait_until, partition) = (wait.map(|wait| now + wait), *partition);
                f(Command::Pop { tenant, queue, partition, group, batch: *batch, wait_until, auto_ack: *auto_ack })
            }
            Request::Ack { group, items } => {
                let item = |of: &Ack<'a>| {
                    let Ack { index, partition, seq, delivery, verdict } = *of;
                    AckItem { index, partition, seq: seq_of(seq), delivery, verdict }
                };
                f(Command::Ack { tenant, queue, group, items: &items.iter().map(item).collect::<Vec<_>>() })
            }
            Request::Leave { group } => f(Command::Leave { tenant, queue, group }),
            Request::Reset => f(Command::Reset { tenant, queue }),
            Request::Delete { at } => f(Command::Delete { tenant, queue, at: *at }),
            Request::List { prefix, after, limit } => {
                f(Command::List { tenant, prefix, after, limit: usize::try_from(*limit).unwrap_or(usize::MAX) })
            }
            Request::Depth { group } => f(Command::Depth { tenant, queue, group: *group }),
        }
    }
}

fn spell<'a>(now: Time, command: &'a Command<'_>) -> (Tenant, &'a str, Request<'a>) {
    match command {
        Command::Push { tenant, queue, partition, payloads } => {
            let payloads = payloads.iter().map(|payload| Bytes::new(payload)).collect();
            (*tenant, *queue, Request::Push { partition, payloads })
        }
        Command::Call { tenant, queue, partition, payloads, until, fail_fast } => {
            let payload = Bytes::new(payloads.first().map_or(&[], |payload| payload));
            (*tenant, *queue, Request::Call { partition, payload, wait: until.since(now), fail_fast: *fail_fast })
        }
        Command::Reply { tenant, items } => {
            let item = |of: &ReplyItem<'a>| CallReply {
                index: of.index,
                inbox: of.inbox,
                payload: Bytes::new(of.payload),
                late_count: of.late_count,
            };
            (*tenant, "", Request::Reply { items: items.iter().map(item).collect() })
        }
        Command::Pop { tenant, queue, partition, group, batch, wait_until, auto_ack } => {
            let wait = wait_until.map(|until| until.since(now));
            (*tenant, *queue, Request::Pop { partition: *partition, group, batch: *batch, wait, auto_ack: *auto_ack })
        }
        Command::Ack { tenant, queue, group, items } => {
            let item = |of: &AckItem<'a>| {
                let AckItem { index, partition, seq, delivery, verdict } = *of;
                Ack { index, partition, seq, delivery, verdict }
            };
            (*tenant, *queue, Request::Ack { group, items: items.iter().map(item).collect() })
        }
        Command::Leave { tenant, queue, group } => (*tenant, *queue, Request::Leave { group }),
        Command::Reset { tenant, queue } => (*tenant, *queue, Request::Reset),
        Command::Delete { tenant, queue, at } => (*tenant, *queue, Request::Delete { at: *at }),
        Command::List { tenant, prefix, after, limit } => (*tenant, "", Request::List { prefix, after, limit: *limit as u64 }),
        Command::Depth { tenant, queue, group } => (*tenant, *queue, Request::Depth { group: *group }),
        Command::Configure { .. } | Command::Undeclare { .. } => unreachable!("what is declared comes to every node by the log"),
    }
}

#[cfg(test)]
mod tests;
