//! The store's thread: attach, serve, and when the server is out of reach say so and try again.
//!
//! Invariants: a write is answered once, at its `due` at the latest, whatever the server does; writes of one row are done in the order in
//! which they were asked; while there is no session every write is refused at once; the pause between attempts and what one attempt may hang sum to less than
//! the ten seconds within which the node is to find a server that came back.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::complaint::Complaint;
use super::reconcile::Writes;
use super::session::{BULK_SPAN, Owner, STATEMENT_SPAN, Session};
use super::trouble::Trouble;
use super::{About, Ask, Event, Write};
use crate::config::PostgresTarget;

/// Declarations written with one statement.
const TOGETHER_MAX: usize = 256;
/// How often rows are read while all is well.
const READ_EVERY: Duration = Duration::from_secs(30);
/// Pauses between attempts to attach.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long the control core may take to bring what rows say into the log.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// Readings in a row, each to see what the last one wrote.
const PASSES_MAX: usize = 3;

/// A write that waits.
struct Waiting {
    ticket: u64,
    write: Write,
    due: Instant,
    /// The server refused it together with others.
    is_alone: bool,
}

/// What the control core answered to a reading.
enum Reply {
    Known(About),
    Fill(Writes),
}

/// See the module.
pub(super) struct Worker {
    target: PostgresTarget,
    asks: mpsc::UnboundedReceiver<Ask>,
    say: Box<dyn Fn(Event) + Send>,
    round: u64,
    reply: Option<Reply>,
    is_attached: bool,
    waiting: VecDeque<Waiting>,
    unreached: Complaint,
    refused: Complaint,
}

impl Worker {
    pub(super) fn new(target: PostgresTarget, asks: mpsc::UnboundedReceiver<Ask>, say: Box<dyn Fn(Event) + Send>) -> Self {
        Self {
            target,
            asks,
            say,
            round: 0,
            reply: None,
            is_attached: false,
            waiting: VecDeque::new(),
            unreached: Complaint::default(),
            refused: Complaint::default(),
        }
    }

    /// Runs until the control core is gone.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let trouble = match self.attach().await {
                Ok(session) => {
                    pause = PAUSE_MIN;
                    self.serve(session).await
                }
                Err(trouble) => trouble,
            };
            if matches!(trouble, Trouble::Ended) {
                return;
            }
            self.detach(&trouble);
            if self.during(pause, "", std::future::pending::<()>()).await.is_err_and(|trouble| matches!(trouble, Trouble::Ended)) {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn detach(&mut self, trouble: &Trouble) {
        self.is_attached = false;
        while let Some(waiting) = self.waiting.pop_front() {
            self.refuse(waiting.ticket);
        }
        let line = trouble.line(&self.target);
        if self.unreached.is_due(&line, std::time::Instant::now()) {
            log::warn!("{line}; until it is reached configure and delete are 503, everything else goes on");
        }
        (self.say)(Event::Detached { reason: line, is_foreign: trouble.is_foreign() });
    }

    async fn attach(&mut self) -> Result<Session, Trouble> {
        let target = self.target.clone();
        let mut session = self.during(BULK_SPAN, "connecting", Session::connect(&target)).await??;
        self.reconcile(&mut session).await?;
        self.is_attached = true;
        let is_again = self.unreached.is_over();
        log::info!("PostgreSQL at {target} {}: its rows and the log agree", if is_again { "is reached again" } else { "is attached" });
        (self.say)(Event::Attached);
        Ok(session)
    }

    /// Serves until something is wrong.
    async fn serve(&mut self, mut session: Session) -> Trouble {
        loop {
            if let Err(trouble) = self.serve_until_read(&mut session).await {
                return trouble;
            }
            if let Err(trouble) = self.reconcile(&mut session).await {
                return trouble;
            }
        }
    }

    /// Writes row after row until rows are to be read.
    async fn serve_until_read(&mut self, session: &mut Session) -> Result<(), Trouble> {
        let read_at = Instant::now() + READ_EVERY;
        while Instant::now() < read_at {
            self.note_all();
            if let Some(together) = self.next_together() {
                self.declare(session, together).await?;
                continue;
            }
            if let Some(waiting) = self.waiting.pop_front() {
                self.write(session, waiting).await?;
                continue;
            }
            tokio::select! {
                ask = self.asks.recv() => self.note(ask.ok_or(Trouble::Ended)?),
                () = session.ended() => return Err(Trouble::Lost),
                () = sleep_until(read_at) => {}
            }
        }
        Ok(())
    }

    /// Takes in what was asked meanwhile, so that it can be done together.
    fn note_all(&mut self) {
        while let Ok(ask) = self.asks.try_recv() {
            self.note(ask);
        }
    }

    /// The declarations at the head of what waits, when there are several, each of another queue.
    fn next_together(&mut self) -> Option<Vec<Waiting>> {
        let mut queues = HashSet::new();
        let mut count = 0;
        for waiting in self.waiting.iter().take(TOGETHER_MAX) {
            let Write::Declare { queue, .. } = &waiting.write else { break };
            if waiting.is_alone || !queues.insert(queue) {
                break;
            }
            count += 1;
        }
        (count > 1).then(|| self.waiting.drain(..count).collect())
    }

    /// Writes declarations with one statement; when the server refuses that, each by itself, as one of them may be to blame.
    async fn declare(&mut self, session: &Session, together: Vec<Waiting>) -> Result<(), Trouble> {
        // They were asked in this order: the first is due first.
        let Some(due) = together.first().map(|first| first.due) else { return Ok(()) };
        let (begun_by, now) = (due - STATEMENT_SPAN, Instant::now());
        let writes: Vec<_> = together.iter().map(|waiting| &waiting.write).collect();
        let outcome = match now < begun_by {
            true => self.during(due - now, "writes", session.declare(&writes, begun_by.into_std())).await.and_then(|done| done),
            false => Err(Trouble::Late),
        };
        match outcome {
            Ok(stamps) => {
                self.refused.is_over();
                for (waiting, stamp) in together.iter().zip(stamps) {
                    (self.say)(Event::Done { ticket: waiting.ticket, stamp });
                }
                Ok(())
            }
            Err(trouble) if trouble.is_of_one_write() || matches!(trouble, Trouble::Late) => {
                for waiting in together.into_iter().rev() {
                    self.waiting.push_front(Waiting { is_alone: true, ..waiting });
                }
                Ok(())
            }
            Err(trouble) => {
                together.iter().for_each(|waiting| self.refuse(waiting.ticket));
                Err(trouble)
            }
        }
    }

    async fn write(&mut self, session: &Session, waiting: Waiting) -> Result<(), Trouble> {
        let Waiting { ticket, write, due, .. } = waiting;
        let begun_by = due - STATEMENT_SPAN;
        let now = Instant::now();
        if now >= begun_by {
            self.refuse(ticket);
            return Ok(());
        }
        let written = self.during(due - now, "a write", session.write(&write, begun_by.into_std())).await.and_then(|written| written);
        match written {
            Ok(stamp) => {
                self.refused.is_over();
                (self.say)(Event::Done { ticket, stamp: Some(stamp) });
                Ok(())
            }
            Err(trouble) => {
                self.refuse(ticket);
                if !trouble.is_of_one_write() {
                    return Err(trouble);
                }
                let line = trouble.line(&self.target);
                if self.refused.is_due(&line, std::time::Instant::now()) {
                    log::warn!("{line}; the configure or delete was 503");
                }
                Ok(())
            }
        }
    }

    /// Makes rows and log agree: reads, has the control core take over what rows say, writes what they lack, and reads that again.
    async fn reconcile(&mut self, session: &mut Session) -> Result<(), Trouble> {
        for _ in 0..PASSES_MAX {
            self.round += 1;
            let round = self.round;
            self.reply = None;
            (self.say)(Event::Reading { round });
            let Reply::Known(about) = self.reply().await? else { return Err(Trouble::Unheard) };
            let candidate = about.cluster.unwrap_or_else(random_id);
            let owner = self.during(BULK_SPAN, "looking at the schema", session.prepare(about.version_max, candidate)).await??;
            let cluster = settle_cluster(about, candidate, owner)?;
            let is_first = !owner.is_filled;
            let rows = self.during(BULK_SPAN, "reading rows", session.read()).await??;
            (self.say)(Event::Rows { round, cluster, is_first, rows: Box::new(rows) });
            let Reply::Fill(writes) = self.reply().await? else { return Err(Trouble::Unheard) };
            if writes.is_empty() && !is_first {
                break;
            }
            // As many rows as there are: each statement has its own bound on the server.
            self.during(BULK_SPAN * 6, "filling rows", session.fill(&writes, is_first.then_some(cluster))).await??;
        }
        Ok(())
    }

    /// What the control core answers to the reading under way.
    async fn reply(&mut self) -> Result<Reply, Trouble> {
        let by = Instant::now() + HEARD_WITHIN;
        loop {
            if let Some(reply) = self.reply.take() {
                return Ok(reply);
            }
            let due = self.next_due().unwrap_or(by).min(by);
            tokio::select! {
                ask = self.asks.recv() => self.note(ask.ok_or(Trouble::Ended)?),
                () = sleep_until(due) => {
                    self.refuse_overdue();
                    if Instant::now() >= by {
                        return Err(Trouble::Unheard);
                    }
                }
            }
        }
    }

    /// Carries on with the asks while some work is being done, which has so long.
    async fn during<T>(&mut self, span: Duration, what: &'static str, work: impl Future<Output = T>) -> Result<T, Trouble> {
        let mut work = pin!(timeout_at(Instant::now() + span, work));
        let far = Instant::now() + span + HEARD_WITHIN;
        loop {
            let due = self.next_due().unwrap_or(far);
            tokio::select! {
                biased;
                done = &mut work => return done.map_err(|_| Trouble::Hung(what)),
                ask = self.asks.recv() => self.note(ask.ok_or(Trouble::Ended)?),
                () = sleep_until(due) => self.refuse_overdue(),
            }
        }
    }

    /// Takes in what was asked: a write waits for its turn, or is refused when there is no session.
    fn note(&mut self, ask: Ask) {
        match ask {
            Ask::Write { ticket, write, due } if self.is_attached => {
                self.waiting.push_back(Waiting { ticket, write, due: due.into(), is_alone: false });
            }
            Ask::Write { ticket, .. } => self.refuse(ticket),
            Ask::Known { round, about } if round == self.round => self.reply = Some(Reply::Known(about)),
            Ask::Fill { round, writes } if round == self.round => self.reply = Some(Reply::Fill(writes)),
            // Of a reading that was given up.
            Ask::Known { .. } | Ask::Fill { .. } => {}
        }
    }

    /// When the write that waits longest could not be begun any more.
    fn next_due(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.due - STATEMENT_SPAN)
    }

    fn refuse_overdue(&mut self) {
        let now = Instant::now();
        while self.next_due().is_some_and(|due| due <= now) {
            if let Some(waiting) = self.waiting.pop_front() {
                self.refuse(waiting.ticket);
            }
        }
    }

    fn refuse(&self, ticket: u64) {
        (self.say)(Event::Done { ticket, stamp: None });
    }
}

/// Whose the rows are from now on. A node that lost its data folder, or never had one, finds its declarations in the rows.
fn settle_cluster(about: About, candidate: u128, owner: Owner) -> Result<u128, Trouble> {
    let Owner { id, is_filled, is_old } = owner;
    match about.cluster {
        _ if id == candidate => Ok(id),
        None if about.is_blank || (!is_filled && is_old) => Ok(id),
        None if !is_filled => Err(Trouble::Overtaken),
        ours => Err(Trouble::Foreign { theirs: id, ours }),
    }
}

/// Of the operating system's randomness, with the bits that mark a random UUID.
fn random_id() -> u128 {
    let half = || {
        getrandom::u64().unwrap_or_else(|error| {
            // Two clusters could take each other's rows for their own.
            unreachable!("the kernel refuses random numbers: {error}")
        })
    };
    let number = u128::from(half()) << 64 | u128::from(half());
    number & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_knows_nothing_takes_on_the_cluster_of_the_rows_and_no_other_does() {
        let settle = |ours, is_blank, id, is_filled, is_old| {
            let about = About { cluster: ours, is_blank, version_max: 0 };
            settle_cluster(about, ours.unwrap_or(9), Owner { id, is_filled, is_old })
        };
        assert!(matches!(settle(Some(1), false, 1, true, true), Ok(1)));
        assert!(matches!(settle(None, false, 9, false, false), Ok(9)));
        assert!(matches!(settle(None, true, 2, true, true), Ok(2)));
        assert!(matches!(settle(None, false, 2, true, true), Err(Trouble::Foreign { theirs: 2, ours: None })));
        assert!(matches!(settle(Some(1), true, 2, false, true), Err(Trouble::Foreign { theirs: 2, ours: Some(1) })));
        // Somebody claims them at this moment, or ended before it could fill them.
        assert!(matches!(settle(None, false, 2, false, false), Err(Trouble::Overtaken)));
        assert!(matches!(settle(None, false, 2, false, true), Ok(2)));
        let id = random_id();
        assert!(id >> 76 & 0xf == 4 && id >> 62 & 3 == 2 && id != random_id());
    }
}
