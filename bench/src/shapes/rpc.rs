//! Request and reply over plain push and pop: callers with an inbox each, responders of one group parked on one queue.
//!
//! Four requests a call, five with acks. Pipelined, a client's push and its next pop leave in one write.

use std::io;
use std::time::Instant;

use super::Setup;
use super::measure;
use mayfly_generator::load::Load;
use mayfly_generator::report::Row;
use mayfly_generator::request::{self, Kind};

/// Parameters of the shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rpc {
    pub(super) caller_count: usize,
    pub(super) responder_count: usize,
    pub(super) is_pipelined: bool,
    /// Responders lease and ack, the reply first; else they pop with autoAck.
    pub(super) is_acked: bool,
}

/// Measures calls: connections 0 to `caller_count` call, the others respond.
pub(super) fn run(setup: &Setup, rpc: Rpc) -> io::Result<Row> {
    let server = setup.start(&[])?;
    let mut load = Load::connect(server.address, rpc.caller_count + rpc.responder_count)?;
    for slot in rpc.caller_count..rpc.caller_count + rpc.responder_count {
        load.send(slot, |next| rpc.await_request(next))?;
    }
    for slot in 0..rpc.caller_count {
        load.send(slot, |next| rpc.call(next, slot))?;
    }
    let mut asked_at = vec![Instant::now(); rpc.caller_count];
    // What a responder sends when its reply was taken: the ack.
    let mut acks = vec![Vec::new(); rpc.responder_count];
    let figures = measure(&server, &mut load, setup.span, |meter, slot, answer, next| {
        let responder = slot.checked_sub(rpc.caller_count);
        match (answer.kind(), responder) {
            (Kind::Refused, _) => meter.refused(),
            (Kind::Pushed, None) if !rpc.is_pipelined => await_reply(next, slot),
            (Kind::Popped, None) if answer.ids().next().is_some() => {
                meter.done(asked_at[slot], 1);
                asked_at[slot] = Instant::now();
                rpc.call(next, slot);
            }
            (Kind::Popped, None) => await_reply(next, slot),
            (Kind::Popped, Some(responder)) => {
                for (id, queue) in answer.ids().zip(answer.reply_queues()) {
                    request::push(next, queue, "{\"ok\":true}", 1);
                    if rpc.is_acked {
                        request::ack(&mut acks[responder], "requests", "workers", [id].into_iter());
                    }
                }
                if rpc.is_pipelined || next.is_empty() {
                    rpc.await_request(next);
                }
            }
            (Kind::Pushed, Some(responder)) if rpc.is_acked => next.append(&mut acks[responder]),
            (Kind::Pushed | Kind::Acked, Some(_)) if !rpc.is_pipelined => rpc.await_request(next),
            (Kind::Pushed | Kind::Acked, _) => {}
        }
    })?;
    let style = if rpc.is_pipelined { " pipelined" } else { "" };
    let acks = if rpc.is_acked { "lease+ack" } else { "autoAck" };
    let parameters = format!("{}x{}{style} {acks}", rpc.caller_count, rpc.responder_count);
    Ok(Row { shape: "rpc", parameters, figures })
}

impl Rpc {
    fn call(self, next: &mut Vec<u8>, slot: usize) {
        request::push(next, "requests", &format!("{{\"replyTo\":\"inbox-{slot}\"}}"), 1);
        if self.is_pipelined {
            await_reply(next, slot);
        }
    }

    fn await_request(self, next: &mut Vec<u8>) {
        let rest = if self.is_acked { "&group=workers&wait=true" } else { "&group=workers&wait=true&autoAck=true" };
        request::pop(next, "requests", rest);
    }
}

fn await_reply(next: &mut Vec<u8>, slot: usize) {
    request::pop(next, &format!("inbox-{slot}"), "&wait=true&autoAck=true");
}
