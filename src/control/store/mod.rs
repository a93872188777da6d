//! The declaration store: PostgreSQL's rows of declarations and grants, kept on a thread of its own.
//!
//! The control core asks ([`Ask`]) and is told ([`Event`]); neither side waits for the other. A configure is a row first, then an entry
//! of the log, then in every shard's memory, then answered; push, pop and ack know nothing of all this. The thread never lets a server
//! that hangs hold a caller: a write is answered at its `due`, and what was answered as failed has happened by then or never will.
//! Declarations that wait together are written together, so that they share a commit.
//!
//! Files: [`row`] what a row says; [`reconcile`] rows and log against each other, pure; [`keeper`] the control core's side of a reading;
//! `schema`, `session` and `worker` the thread. One process has one session, so its own writes and readings are in one order.

mod complaint;
pub mod keeper;
pub mod reconcile;
pub mod row;
mod schema;
mod session;
mod trouble;
mod worker;

use std::io;
use std::time::{Duration, Instant};

use mayfly_shards::{QueueName, Tenant};
use tokio::sync::mpsc;

use self::reconcile::Writes;
use self::row::Rows;
use super::change::Grant;
use crate::api::declaration::DeclaredOptions;
use crate::config::PostgresTarget;

/// How long a write may take from its asking to its answer.
pub const WRITE_SPAN: Duration = Duration::from_secs(2);

/// What the control core asks of the store.
#[derive(Debug)]
pub enum Ask {
    /// A row is to be written or to go.
    Write {
        /// Comes back with the answer.
        ticket: u64,
        /// What.
        write: Write,
        /// When it is answered at the latest.
        due: Instant,
    },
    /// The answer to [`Event::Reading`].
    Known {
        /// Of the reading.
        round: u64,
        /// What is known before rows are read.
        about: About,
    },
    /// The answer to [`Event::Rows`].
    Fill {
        /// Of the reading.
        round: u64,
        /// What rows are to say, unless they changed since they were read.
        writes: Writes,
    },
}

/// A change of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A declaration.
    Declare {
        /// Of which queue.
        queue: QueueName,
        /// As what.
        options: DeclaredOptions,
    },
    /// A declaration goes, if there is one.
    Delete {
        /// Of which queue.
        queue: QueueName,
    },
    /// A grant; None: it goes, if there is one.
    Grant {
        /// Whose.
        tenant: Tenant,
        /// How much.
        grant: Option<Grant>,
    },
}

/// What the agreed state knows before rows are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Which cluster this is, when that was settled.
    pub cluster: Option<u128>,
    /// Whether nothing is declared or granted: such a node takes on the cluster whose rows it finds.
    pub is_blank: bool,
    /// The highest version known: the sequence begins behind it, also after its database was restored from an older copy.
    pub version_max: u64,
}

/// What the store tells the control core.
#[derive(Debug)]
pub enum Event {
    /// Rows are about to be read: [`Ask::Known`] is awaited.
    Reading {
        /// Of the reading.
        round: u64,
    },
    /// Rows were read, after [`Ask::Known`] came: [`Ask::Fill`] is awaited, once what the rows changed is in the log.
    Rows {
        /// Of the reading.
        round: u64,
        /// Whose rows they are.
        cluster: u128,
        /// Whether they were nobody's: then they are filled from the log.
        is_first: bool,
        /// What they say.
        rows: Box<Rows>,
    },
    /// A write is done.
    Done {
        /// Of the [`Ask::Write`].
        ticket: u64,
        /// None: it failed, or its outcome is not known.
        stamp: Option<Stamp>,
    },
    /// Rows and log agree, and writes are done from now on.
    Attached,
    /// Writes fail from now on, or still; a further attempt follows.
    Detached {
        /// Why, in words.
        reason: String,
        /// Whether the rows belong to another cluster: no attempt can mend that.
        is_foreign: bool,
    },
}

/// What PostgreSQL gave a change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Of the row, or of its deletion.
    pub version: u64,
    /// By the server's clock, milliseconds of the Unix epoch.
    pub updated_at_ms: u64,
}

/// The control core's end. The thread ends with it.
#[derive(Debug)]
pub struct Store {
    asks: mpsc::UnboundedSender<Ask>,
}

impl Store {
    /// Starts the thread. `say` is called from it and must not wait.
    ///
    /// # Errors
    /// The system refuses a thread or its poller.
    pub fn start(target: PostgresTarget, say: impl Fn(Event) + Send + 'static) -> io::Result<Self> {
        let (asks, heard) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let worker = worker::Worker::new(target, heard, Box::new(say));
        std::thread::Builder::new().name("mayfly-postgres".to_owned()).spawn(move || runtime.block_on(worker.run()))?;
        Ok(Self { asks })
    }

    /// Asks, without waiting. How many writes may be under way is bounded by who asks: each has a client that waits. Whether it was
    /// taken: not when the thread has ended.
    #[must_use]
    pub fn ask(&self, ask: Ask) -> bool {
        self.asks.send(ask).is_ok()
    }
}
