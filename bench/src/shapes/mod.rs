//! What is measured. Every shape starts a node of its own, so that none inherits another's memory.
//!
//! Latencies are of whole operations as the client sees them: a call is push to reply, a one-way cycle push to pop or ack.

mod drain;
mod inboxes;
mod one_way;
mod parked;
mod push;
mod rpc;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mayfly_generator::load::Load;
use mayfly_generator::meter::Meter;
use mayfly_generator::report::{Figure, Row};
use mayfly_generator::request::Answer;

use crate::server::Server;

/// What all shapes share.
#[derive(Debug)]
pub struct Setup {
    /// The node's binary.
    pub program: PathBuf,
    /// The CPU the node runs on; the load runs on another.
    pub server_cpu: usize,
    /// How long a closed loop is measured, after a quarter of it to warm up.
    pub span: Duration,
}

/// A shape with its parameters.
pub type Shape = (&'static str, fn(&Setup) -> io::Result<Row>);

/// Every shape, in the order of a round.
pub const SHAPES: [Shape; 20] = [
    ("rpc 1x1", |setup| rpc::run(setup, rpc::Rpc { caller_count: 1, responder_count: 1, is_pipelined: false, is_acked: false })),
    ("rpc 1x1 pipelined", |setup| rpc::run(setup, rpc::Rpc { caller_count: 1, responder_count: 1, is_pipelined: true, is_acked: false })),
    ("rpc 32x4", |setup| rpc::run(setup, rpc::Rpc { caller_count: 32, responder_count: 4, is_pipelined: false, is_acked: false })),
    ("rpc 32x4 pipelined", |setup| rpc::run(setup, rpc::Rpc { caller_count: 32, responder_count: 4, is_pipelined: true, is_acked: false })),
    ("rpc 32x4 acked", |setup| rpc::run(setup, rpc::Rpc { caller_count: 32, responder_count: 4, is_pipelined: false, is_acked: true })),
    ("push b1", |setup| push::run(setup, 32, 1)),
    ("push b100", |setup| push::run(setup, 4, 100)),
    ("oneway b1", |setup| one_way::run(setup, one_way::OneWay { connection_count: 16, batch: 1, is_leased: false })),
    ("oneway b1 leased", |setup| one_way::run(setup, one_way::OneWay { connection_count: 16, batch: 1, is_leased: true })),
    ("oneway b100", |setup| one_way::run(setup, one_way::OneWay { connection_count: 4, batch: 100, is_leased: false })),
    ("oneway b100 leased", |setup| one_way::run(setup, one_way::OneWay { connection_count: 4, batch: 100, is_leased: true })),
    ("inboxes", |setup| inboxes::run(setup, &inboxes::IDLE)),
    ("cycles", |setup| inboxes::run(setup, &inboxes::CYCLES)),
    ("parked", |setup| parked::run(setup, 10_000)),
    ("drain 2500", |setup| drain::run(setup, 2_500)),
    ("drain 5000", |setup| drain::run(setup, 5_000)),
    ("drain 10000", |setup| drain::run(setup, 10_000)),
    ("drain 20000", |setup| drain::run(setup, 20_000)),
    ("drain 40000", |setup| drain::run(setup, 40_000)),
    ("drain 80000", |setup| drain::run(setup, 80_000)),
];

impl Setup {
    fn start(&self, environment: &[(&str, &str)]) -> io::Result<Server> {
        Server::start(&self.program, self.server_cpu, environment)
    }
}

/// Runs a load whose first requests are sent, and measures it: a quarter of the time to warm up, then the time itself.
///
/// # Errors
/// A connection broke.
fn measure(
    server: &Server,
    load: &mut Load,
    span: Duration,
    mut answered: impl FnMut(&mut Meter, usize, Answer<'_>, &mut Vec<u8>),
) -> io::Result<Vec<Figure>> {
    let mut run = |span: Duration| {
        let (mut meter, started_at, cpu_before) = (Meter::new(), Instant::now(), server.process.cpu_time());
        // It ends with the time: nothing in it breaks.
        let _ = load.run(started_at + span, |slot, answer, next| {
            answered(&mut meter, slot, answer, next);
            ControlFlow::Continue(())
        })?;
        io::Result::Ok(meter.figures(started_at.elapsed(), Some(server.process.cpu_time().saturating_sub(cpu_before))))
    };
    run(span / 4)?;
    run(span)
}
