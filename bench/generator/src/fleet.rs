//! Sessions of one protocol over the connections of a [`Load`]: moves their bytes, hands out their events, starts operations.
//!
//! Operations are numbered by slots, over the members of all sessions in their order; where no session is shared, a slot is a connection.
//!
//! Invariant: what one turn makes a connection say leaves in one write.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use crate::load::Load;
use crate::meter::Meter;
use crate::process::Process;
use crate::report::Figure;
use crate::session::{Event, Session};
use crate::wire::Target;

/// Longest that sessions may take to be in place.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is sent last, such as a blocking pop, is with the server after this.
const SETTLING: Duration = Duration::from_millis(100);

/// Connections that speak.
pub struct Fleet {
    load: Load,
    sessions: Vec<Box<dyn Session>>,
    /// Each slot's connection, and which member of its session it is.
    members: Vec<(usize, usize)>,
    /// Each connection's first slot.
    first_slots: Vec<usize>,
    /// Slots that are told to start an operation.
    starts: Vec<usize>,
    /// Connections with something to say.
    speaking: Vec<usize>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fleet").field("session_count", &self.sessions.len()).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Connects without a word.
    ///
    /// # Errors
    /// The server does not take the connections.
    pub fn connect(target: impl Into<Target>, sessions: Vec<Box<dyn Session>>) -> io::Result<Self> {
        let (mut members, mut first_slots) = (Vec::new(), Vec::with_capacity(sessions.len()));
        for (connection, session) in sessions.iter().enumerate() {
            first_slots.push(members.len());
            members.extend((0..session.member_count()).map(|member| (connection, member)));
        }
        let load = Load::connect(target, sessions.len())?;
        Ok(Self { load, sessions, members, first_slots, starts: Vec::new(), speaking: Vec::new() })
    }

    /// Opens every session and waits until all are in place.
    ///
    /// # Errors
    /// A connection broke, the server lacks something ([`ErrorKind::Unsupported`]), or they are not ready in time.
    pub fn open(&mut self) -> io::Result<()> {
        let mut due_count = 0;
        for (connection, session) in self.sessions.iter_mut().enumerate() {
            if !session.open(self.load.unsent(connection)) {
                due_count += 1;
            }
            self.load.flush(connection)?;
        }
        let mut end = Instant::now() + if due_count > 0 { PATIENCE } else { SETTLING };
        while Instant::now() < end {
            let flow = self.run(end, |_, event, _| {
                due_count -= usize::from(event == Event::Ready);
                if event == Event::Ready && due_count == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if flow.is_break() {
                end = Instant::now() + SETTLING;
            }
        }
        if due_count > 0 { Err(io::Error::new(ErrorKind::TimedOut, "not every session got ready")) } else { Ok(()) }
    }

    /// Starts an operation.
    ///
    /// # Errors
    /// The connection broke.
    pub fn start(&mut self, slot: usize) -> io::Result<()> {
        self.start_together(slot..slot + 1)
    }

    /// Starts an operation of each slot, all in one turn.
    ///
    /// # Errors
    /// A connection broke.
    pub fn start_together(&mut self, slots: Range<usize>) -> io::Result<()> {
        self.starts.extend(slots);
        self.start_all(None)
    }

    /// Runs until `end`, or until `happened` breaks; what happened may start operations, by pushing their slots.
    ///
    /// # Errors
    /// As [`Fleet::run_paced`].
    pub fn run(
        &mut self,
        end: Instant,
        happened: impl FnMut(usize, Event, &mut Vec<usize>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        self.run_inner(end, None::<fn(&mut Vec<usize>)>, happened)
    }

    /// Runs like [`Fleet::run`] and calls `turn` all the time, which may start operations too: polls instead of
    /// waiting, so as to keep time.
    ///
    /// # Errors
    /// A connection broke, the server lacks something ([`ErrorKind::Unsupported`]), or said what does not belong in a measurement.
    pub fn run_paced(
        &mut self,
        end: Instant,
        turn: impl FnMut(&mut Vec<usize>),
        happened: impl FnMut(usize, Event, &mut Vec<usize>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        self.run_inner(end, Some(turn), happened)
    }

    fn run_inner(
        &mut self,
        end: Instant,
        mut turn: Option<impl FnMut(&mut Vec<usize>)>,
        mut happened: impl FnMut(usize, Event, &mut Vec<usize>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(ControlFlow::Continue(()));
            }
            let mut wait_ms = (end - now).as_millis().clamp(1, 20) as u16;
            if let Some(turn) = &mut turn {
                turn(&mut self.starts);
                self.start_all(None)?;
                wait_ms = 0;
            }
            for connection in self.load.wait(wait_ms)? {
                if self.receive(connection, &mut happened)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }

    fn receive(
        &mut self,
        connection: usize,
        happened: &mut impl FnMut(usize, Event, &mut Vec<usize>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        let (mut flow, mut fault) = (ControlFlow::Continue(()), None);
        let (session, starts, first_slot) = (&mut self.sessions[connection], &mut self.starts, self.first_slots[connection]);
        self.load.receive(connection, |rest, next| {
            let (length, event) = session.receive(rest, next)?;
            let (slot, event) = match event {
                Event::Replied(member) => (first_slot + member, Event::Done(1)),
                event => (first_slot, event),
            };
            match event {
                Event::Nothing => {}
                Event::Missing => fault = Some(io::Error::new(ErrorKind::Unsupported, "the server does not have it")),
                Event::Fault(text) => fault = Some(io::Error::other(text)),
                event => {
                    if happened(slot, event, starts).is_break() {
                        flow = ControlFlow::Break(());
                    }
                }
            }
            Some(length)
        })?;
        self.start_all(Some(connection))?;
        fault.map_or(Ok(flow), Err)
    }

    /// Starts what is to be started, then lets each connection say all it has to say; `heard` may have more than that.
    fn start_all(&mut self, heard: Option<usize>) -> io::Result<()> {
        self.speaking.extend(heard);
        for slot in self.starts.drain(..) {
            let (connection, member) = self.members[slot];
            self.sessions[connection].start_member(member, self.load.unsent(connection));
            self.speaking.push(connection);
        }
        // A connection that is named again has nothing left to say.
        for connection in self.speaking.drain(..) {
            self.sessions[connection].finish_turn(self.load.unsent(connection));
            self.load.flush(connection)?;
        }
        Ok(())
    }

    /// Measures a load whose first operations are started: a quarter of `span` to warm up, then `span`. `process` is the server's, where it
    /// is on this host.
    ///
    /// # Errors
    /// As [`Fleet::run`].
    pub fn measure(
        &mut self,
        process: Option<Process>,
        span: Duration,
        mut happened: impl FnMut(&mut Meter, usize, Event, &mut Vec<usize>),
    ) -> io::Result<Vec<Figure>> {
        let mut run = |span: Duration| {
            let (mut meter, watch) = (Meter::new(), Watch::start(process));
            // It ends with the time: nothing in it breaks.
            let _ = self.run(Instant::now() + span, |slot, event, starts| {
                happened(&mut meter, slot, event, starts);
                ControlFlow::Continue(())
            })?;
            io::Result::Ok(watch.figures(&meter))
        };
        run(span / 4)?;
        run(span)
    }
}

/// What a run costs both sides.
#[derive(Debug)]
pub struct Watch {
    started_at: Instant,
    server: Option<(Process, Duration, Option<Duration>)>,
    load_cpu: Duration,
}

impl Watch {
    /// Begins now. `process` is the server's, where it is on this host.
    #[must_use]
    pub fn start(process: Option<Process>) -> Self {
        let server = process.map(|process| (process, process.cpu_time(), process.waited_time()));
        Self { started_at: Instant::now(), server, load_cpu: own_cpu_time() }
    }

    /// What `meter` counted since, and what it cost.
    #[must_use]
    pub fn figures(&self, meter: &Meter) -> Vec<Figure> {
        let elapsed = self.started_at.elapsed();
        let percent = |time: Duration| time.as_secs_f64() * 100.0 / elapsed.as_secs_f64();
        let load_cpu = own_cpu_time().saturating_sub(self.load_cpu);
        let cpu = self.server.map(|(process, before, _)| process.cpu_time().saturating_sub(before));
        let mut figures = meter.figures(elapsed, cpu);
        let waited = self.server.and_then(|(process, _, before)| Some(process.waited_time()?.saturating_sub(before?)));
        // Far from 0 for a server of one thread: something else ran on its CPU.
        figures.extend(waited.map(|waited| ("server_waited_percent", percent(waited))));
        // Near 100, the load is what limits.
        figures.push(("load_cpu_percent", percent(load_cpu)));
        figures
    }
}

/// CPU time of this thread, which is all of the load.
fn own_cpu_time() -> Duration {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(line.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0))
}
