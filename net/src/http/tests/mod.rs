//! Tests of the module as a whole, through its public interface.

mod answers;
mod bodies;
mod connections;
mod heads;
mod properties;
mod proptests;

use super::{Decoded, Limits, Reader, Refused};

/// One line of a table: what is sent, and what must come of it.
type Case = (&'static str, Outcome);

/// The first final thing that a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Accepted,
    Waiting,
    Malformed,
    HeadersTooLarge,
    TargetTooLong,
    VersionUnsupported,
    CodingUnsupported,
    BodyTooLarge,
}

/// What becomes of `sent`: whole, byte by byte, and cut in two at every place. All must agree.
fn outcome(sent: &[u8], limits: &Limits) -> Outcome {
    let whole = outcome_of_pieces(&[sent], limits);
    let bytes: Vec<_> = sent.chunks(1).collect();
    assert_eq!(outcome_of_pieces(&bytes, limits), whole, "byte by byte: {}", sent.escape_ascii());
    if sent.len() < 2000 {
        for at in 1..sent.len() {
            let (first, second) = sent.split_at(at);
            assert_eq!(outcome_of_pieces(&[first, second], limits), whole, "cut at {at}: {}", sent.escape_ascii());
        }
    }
    whole
}

fn outcome_of_pieces(pieces: &[&[u8]], limits: &Limits) -> Outcome {
    let mut reader = Reader::default();
    for piece in pieces {
        let mut input = *piece;
        loop {
            match reader.decode(&mut input, limits) {
                Decoded::Incomplete => break,
                Decoded::Opened(_) | Decoded::Continue => {}
                Decoded::Request(_) => return Outcome::Accepted,
                Decoded::Refused(refused) => return outcome_of_refusal(refused),
            }
        }
        assert!(input.is_empty(), "an incomplete request takes all input");
    }
    Outcome::Waiting
}

fn outcome_of_refusal(refused: Refused<'_>) -> Outcome {
    match refused {
        Refused::Malformed(_) => Outcome::Malformed,
        Refused::HeadersTooLarge => Outcome::HeadersTooLarge,
        Refused::TargetTooLong => Outcome::TargetTooLong,
        Refused::VersionUnsupported => Outcome::VersionUnsupported,
        Refused::TransferCodingUnsupported => Outcome::CodingUnsupported,
        Refused::BodyTooLarge(_) => Outcome::BodyTooLarge,
    }
}

fn check(table: &[Case]) {
    for (sent, wanted) in table {
        assert_eq!(outcome(sent.as_bytes(), &Limits::default()), *wanted, "{}", sent.escape_debug());
    }
}
