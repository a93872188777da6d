//! Asks the kernel for a ring like the driver's and for every operation it uses, before anything depends on them.

use std::io;

use io_uring::{IoUring, Probe, opcode};

use super::buffers::Buffers;

/// What the kernel refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The ring itself.
    Ring(io::Error),
    /// To say which operations there are.
    Register(io::Error),
    /// This operation is not known.
    Operation(&'static str),
    /// Receive buffers in a mapped ring.
    Buffers(io::Error),
}

const OPERATIONS: [(u8, &str); 7] = [
    (opcode::AcceptMulti::CODE, "IORING_OP_ACCEPT"),
    (opcode::RecvMulti::CODE, "IORING_OP_RECV"),
    (opcode::Send::CODE, "IORING_OP_SEND"),
    (opcode::PollAdd::CODE, "IORING_OP_POLL_ADD"),
    (opcode::AsyncCancel::CODE, "IORING_OP_ASYNC_CANCEL"),
    (opcode::Timeout::CODE, "IORING_OP_TIMEOUT"),
    (opcode::TimeoutUpdate::CODE, "IORING_OP_TIMEOUT_REMOVE"),
];

/// Sets a small ring up and takes it down again.
pub(crate) fn probe() -> Result<(), Refusal> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .build(8)
        .map_err(Refusal::Ring)?;
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known).map_err(Refusal::Register)?;
    for (code, name) in OPERATIONS {
        if !known.is_supported(code) {
            return Err(Refusal::Operation(name));
        }
    }
    let buffers = Buffers::register(&ring, 1, 4096).map_err(Refusal::Buffers)?;
    // The ring first: it knows the buffers.
    drop(ring);
    drop(buffers);
    Ok(())
}
