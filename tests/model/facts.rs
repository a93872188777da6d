//! The vocabulary both sides are compared in: what is asked, and what is said.
//!
//! A message is known by its push number (`id`), which the driver writes into its payload. Seqs are the core's own affair: the
//! driver learns them from deliveries and uses them only to write acks.

use mayfly_shards::{Allowance, Answer, Options, Tenant, Time, Verdict};

/// One request, owned, so that both sides can be given the same one.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Push {
        queue: Name,
        partition: String,
        messages: Vec<Pushed>,
    },
    Pop {
        queue: Name,
        partition: Option<String>,
        group: String,
        batch: u32,
        wait_until: Option<Time>,
        auto_ack: bool,
    },
    Ack {
        queue: Name,
        group: String,
        items: Vec<Item>,
    },
    Call {
        queue: Name,
        partition: String,
        request: Pushed,
        until: Time,
        fail_fast: bool,
    },
    Reply {
        tenant: Tenant,
        items: Vec<ReplyTo>,
    },
    Leave {
        queue: Name,
        group: String,
    },
    Configure {
        queue: Name,
        options: Options,
    },
    Undeclare {
        queue: Name,
    },
    /// Nobody's request: what a tenant may use from now on. Not answered.
    Grant {
        tenant: Tenant,
        allowance: Option<Allowance>,
    },
    Reset {
        queue: Name,
    },
    Delete {
        queue: Name,
        /// By a declaration that came behind it in the log.
        is_overtaken: bool,
    },
    List {
        tenant: Tenant,
        prefix: String,
        after: String,
        limit: usize,
    },
    Depth {
        queue: Name,
        group: Option<String>,
    },
}

/// A queue: whose, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) tenant: Tenant,
    pub(crate) queue: String,
}

/// One pushed message: its number and how many bytes its payload has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushed {
    pub(crate) id: u64,
    pub(crate) size_bytes: usize,
}

/// One answer to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyTo {
    /// The message whose inbox it goes to; None: an inbox that no call ever had.
    pub(crate) request: Option<u64>,
    pub(crate) answer: Pushed,
    pub(crate) late_count: u32,
}

/// One ack.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) partition: String,
    /// None: a seq that no message ever had.
    pub(crate) id: Option<u64>,
    pub(crate) delivery: u32,
    pub(crate) verdict: Verdict,
}

/// One delivered message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) partition: String,
    pub(crate) id: u64,
    pub(crate) attempts: u32,
    pub(crate) delivery: u32,
    /// Whether it names an inbox.
    pub(crate) is_call: bool,
}

/// Something said to one ticket.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    pub(crate) ticket: u64,
    pub(crate) said: Said,
}

/// What was said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Answer(Answer),
    /// A call's answer, by its number.
    Reply(u64),
    Messages {
        queue: String,
        messages: Vec<Seen>,
    },
}

/// How the connection of an answer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The socket had taken nothing of it.
    Unsent,
    /// The socket had taken some of it.
    Partly,
}
