//! One connection's requests, out of bytes that arrive in any pieces.
//!
//! Two ways lead to a request. One that lies whole in the input, with a declared length, is parsed where it lies: nothing
//! is copied or allocated. Any other is copied aside byte for byte as [`Scan`] or [`Chunked`] accepts it, head first, body
//! behind, and parsed again from there when it is whole. The first way only ever accepts; whatever it does not accept
//! takes the second, so that a refusal, too, does not depend on how the bytes were split.
//!
//! Memory: the copy grows with what arrives, never beyond twice that plus [`FIRST_BODY_BYTES`], whatever a head declares,
//! and is given back once its request was handled. Work: each byte of a head is looked at once before its end is there.

use super::chunked::{Chunked, Run};
use super::head::{self, Head, Length, Parsed};
use super::scan::Scan;
use super::{Fault, Limits};

/// Room taken at once for a declared body that is not there yet, at most.
const FIRST_BODY_BYTES: usize = 64 << 10;

/// Empty lines skipped before a request (RFC 9112 2.2 asks for at least one).
const BLANK_LINES_MAX: u8 = 8;

/// What [`Reader::decode`] made of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// All input was taken; more is needed.
    Incomplete,
    /// A head is complete and its body, which has bytes or chunks, is not. Nothing of the body was taken: whoever may not send it is
    /// told so now, and the reader dropped. Else decode on. Said once a request, before anything else is said of its body; of a
    /// request that lies whole in the input it is not said.
    Opened(Head<'a>),
    /// A head that expects `100 Continue` is complete and nothing of its body is there: send [`super::CONTINUE`] (behind
    /// the answers to earlier requests) and decode on. Said at most once a request.
    Continue,
    /// One whole request.
    Request(Request<'a>),
    /// Answer, close. What follows on this connection is discarded.
    Refused(Refused<'a>),
}

/// One whole request, borrowed from the input when it lay there in one piece, else from the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its head.
    pub head: Head<'a>,
    /// Its body, decoded; empty without one.
    pub body: &'a [u8],
}

/// Why no request can be read from this connection any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<'a> {
    /// Not HTTP/1.x, or ambiguous: 400. With what was wrong, in words.
    Malformed(&'static str),
    /// Too many header lines, or too large a head: 431.
    HeadersTooLarge,
    /// Too long a target: 414.
    TargetTooLong,
    /// A version other than 1.0 and 1.1: 505.
    VersionUnsupported,
    /// A transfer coding besides `chunked`: 501.
    TransferCodingUnsupported,
    /// A body above the limit, told by its declared length or by the chunk that would exceed it: 413.
    /// With the head, because who may not ask at all is told that first.
    BodyTooLarge(Head<'a>),
}

/// Where a connection stands: tells which deadline applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Between requests.
    Idle,
    /// In a head.
    Head,
    /// In a body.
    Body,
    /// After a refusal or a request that closes: what arrives is discarded.
    Ended,
}

/// The requests of one connection. Idle, it is [`size_of::<Reader>()`](size_of) bytes (at most 64) and nothing else.
#[derive(Debug, Default)]
pub struct Reader {
    /// The unfinished request: its head so far, or its whole head and its decoded body so far. After a request was handed
    /// out of it, that request, until the next call.
    held: Vec<u8>,
    state: State,
}

/// What is expected next.
#[derive(Clone, Copy, Debug)]
enum State {
    Idle {
        /// Empty lines skipped since the last request.
        blank_lines: u8,
        /// The CR of one more has come.
        after_cr: bool,
    },
    Head(Scan),
    /// The whole head is held and its body not begun: until the call after the one that said so.
    Opened {
        length: Length,
        expects_continue: bool,
        is_told: bool,
    },
    Declared {
        head_bytes: usize,
        body_bytes: usize,
    },
    Chunked {
        head_bytes: usize,
        chunked: Chunked,
    },
    Ended,
}

impl State {
    /// The state behind a request.
    fn after(head: &Head<'_>) -> Self {
        if head.keep_alive { Self::default() } else { Self::Ended }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::Idle { blank_lines: 0, after_cr: false }
    }
}

/// What taking input came to, before anything is borrowed for the caller.
enum Progress {
    Starved,
    Opened,
    Continue,
    /// The held request is whole; its head has this many bytes.
    Whole(usize),
}

impl Reader {
    /// Takes from `input` up to the end of one request and leaves the rest. Call it until it says [`Decoded::Incomplete`];
    /// by then the input is empty. Calling it again after a request gives back what that request held.
    /// A connection keeps the same `limits` throughout.
    pub fn decode<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8], limits: &Limits) -> Decoded<'a> {
        self.release();
        if let State::Idle { .. } = self.state {
            if let Err(fault) = self.skip_blank_lines(input) {
                return self.refuse(input, fault, limits);
            }
            if input.is_empty() {
                return Decoded::Incomplete;
            }
            if let Some(request) = self.decode_in_place(input, limits) {
                return Decoded::Request(request);
            }
        }
        match self.take(input, limits) {
            Ok(Progress::Starved) => Decoded::Incomplete,
            Ok(Progress::Opened) => match head::parse(&self.held, limits) {
                Ok(Some(parsed)) => Decoded::Opened(parsed.head),
                _ => Decoded::Refused(Refused::Malformed("the head has no valid form")),
            },
            Ok(Progress::Continue) => Decoded::Continue,
            Ok(Progress::Whole(head_bytes)) => self.hand_out(head_bytes, limits),
            Err(fault) => self.refuse(input, fault, limits),
        }
    }

    /// Gives back the memory of a request that was handed out and is done with, before the next call of
    /// [`Reader::decode`] would: for a connection that then waits, as one with a parked pop does.
    pub fn release(&mut self) {
        if matches!(self.state, State::Idle { .. } | State::Ended) && self.held.capacity() > 0 {
            self.held = Vec::new();
        }
    }

    /// Where the connection stands.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.state {
            State::Idle { .. } => Stage::Idle,
            State::Head(_) | State::Opened { .. } => Stage::Head,
            State::Declared { .. } | State::Chunked { .. } => Stage::Body,
            State::Ended => Stage::Ended,
        }
    }

    /// Heap bytes held.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// Empty lines are dropped before anything is held, so that one behind a body (old clients send it) leaves the
    /// connection idle.
    fn skip_blank_lines(&mut self, input: &mut &[u8]) -> Result<(), Fault> {
        let State::Idle { mut blank_lines, mut after_cr } = self.state else {
            return Ok(());
        };
        while let Some((byte @ (b'\r' | b'\n'), rest)) = input.split_first() {
            if after_cr != (*byte == b'\n') {
                return Err(Fault::Malformed("a bare CR or LF before a request"));
            }
            *input = rest;
            blank_lines += u8::from(after_cr);
            after_cr = !after_cr;
            if blank_lines > BLANK_LINES_MAX {
                return Err(Fault::Malformed("too many empty lines before a request"));
            }
        }
        if after_cr && !input.is_empty() {
            return Err(Fault::Malformed("a bare CR or LF before a request"));
        }
        self.state = State::Idle { blank_lines, after_cr };
        Ok(())
    }

    /// The first way: a request that lies whole in the input. Where the head is there and its body is not, the head is held;
    /// where the head was not accepted, the second way begins at its first byte.
    fn decode_in_place<'i>(&mut self, input: &mut &'i [u8], limits: &Limits) -> Option<Request<'i>> {
        let Ok(Some(Parsed { head, head_bytes, length, expects_continue })) = head::parse(input, limits) else {
            self.state = State::Head(Scan::default());
            return None;
        };
        let (head_text, rest) = input.split_at(head_bytes);
        if let Some((body, rest)) = declared_bytes(length, limits).and_then(|bytes| rest.split_at_checked(bytes)) {
            *input = rest;
            self.state = State::after(&head);
            return Some(Request { head, body });
        }
        *input = rest;
        self.held.extend_from_slice(head_text);
        self.state = State::Opened { length, expects_continue, is_told: false };
        None
    }

    /// The second way: takes what belongs to the request at hand.
    fn take(&mut self, input: &mut &[u8], limits: &Limits) -> Result<Progress, Fault> {
        if let State::Head(_) = self.state
            && !self.take_head(input, limits)?
        {
            return Ok(Progress::Starved);
        }
        if let State::Opened { length, expects_continue, is_told } = self.state {
            if !is_told && length != Length::Declared(0) {
                self.state = State::Opened { length, expects_continue, is_told: true };
                return Ok(Progress::Opened);
            }
            self.begin_body(length, limits)?;
            if expects_continue && input.is_empty() && length != Length::Declared(0) {
                return Ok(Progress::Continue);
            }
        }
        match self.state {
            State::Declared { head_bytes, body_bytes } => {
                let whole_bytes = head_bytes + body_bytes;
                let count = (whole_bytes - self.held.len()).min(input.len());
                self.hold(input, count, whole_bytes);
                Ok(if self.held.len() == whole_bytes { Progress::Whole(head_bytes) } else { Progress::Starved })
            }
            State::Chunked { head_bytes, .. } => {
                Ok(if self.take_chunks(input, limits)? { Progress::Whole(head_bytes) } else { Progress::Starved })
            }
            State::Ended => {
                *input = &[];
                Ok(Progress::Starved)
            }
            State::Idle { .. } | State::Head(_) | State::Opened { .. } => Ok(Progress::Starved),
        }
    }

    /// Whether the head is whole now.
    fn take_head(&mut self, input: &mut &[u8], limits: &Limits) -> Result<bool, Fault> {
        let State::Head(scan) = &mut self.state else {
            return Ok(true);
        };
        let end = scan.advance(input, limits)?;
        let (taken, rest) = input.split_at(end.unwrap_or(input.len()));
        self.held.extend_from_slice(taken);
        *input = rest;
        if end.is_none() {
            return Ok(false);
        }
        // The scan found an empty line, so a parser that still wants more is at odds with it.
        let parsed = head::parse(&self.held, limits)?.ok_or(Fault::Malformed("the head has no valid form"))?;
        self.state = State::Opened { length: parsed.length, expects_continue: parsed.expects_continue, is_told: false };
        Ok(true)
    }

    fn begin_body(&mut self, length: Length, limits: &Limits) -> Result<(), Fault> {
        let head_bytes = self.held.len();
        self.state = match length {
            Length::Chunked => State::Chunked { head_bytes, chunked: Chunked::START },
            Length::Declared(_) => {
                let body_bytes = declared_bytes(length, limits).ok_or(Fault::BodyTooLarge)?;
                self.held.reserve_exact(body_bytes.min(FIRST_BODY_BYTES));
                State::Declared { head_bytes, body_bytes }
            }
        };
        Ok(())
    }

    /// Whether the body is whole now.
    fn take_chunks(&mut self, input: &mut &[u8], limits: &Limits) -> Result<bool, Fault> {
        let State::Chunked { head_bytes, mut chunked } = self.state else {
            return Ok(false);
        };
        let most_bytes = head_bytes.saturating_add(usize::try_from(limits.body_bytes).unwrap_or(usize::MAX));
        loop {
            let body_bytes = (self.held.len() - head_bytes) as u64;
            match chunked.next_run(input, body_bytes, limits)? {
                Run::Data(count) => self.hold(input, count, most_bytes),
                Run::End => return Ok(true),
                Run::Starved => {
                    self.state = State::Chunked { head_bytes, chunked };
                    return Ok(false);
                }
            }
        }
    }

    /// Moves the first `count` bytes of `input` to the held request, which will never be larger than `most_bytes`.
    fn hold(&mut self, input: &mut &[u8], count: usize, most_bytes: usize) {
        let (taken, rest) = input.split_at(count);
        let wanted_bytes = self.held.len() + count;
        if wanted_bytes > self.held.capacity() {
            let room_bytes = self.held.capacity().saturating_mul(2).min(most_bytes).max(wanted_bytes);
            self.held.reserve_exact(room_bytes - self.held.len());
        }
        self.held.extend_from_slice(taken);
        *input = rest;
    }

    /// The held request, whose head was accepted before.
    fn hand_out(&mut self, head_bytes: usize, limits: &Limits) -> Decoded<'_> {
        let parsed = head::parse(&self.held, limits);
        let body = self.held.get(head_bytes..);
        match (parsed, body) {
            (Ok(Some(parsed)), Some(body)) => {
                self.state = State::after(&parsed.head);
                Decoded::Request(Request { head: parsed.head, body })
            }
            _ => {
                self.state = State::Ended;
                Decoded::Refused(Refused::Malformed("the head has no valid form"))
            }
        }
    }

    fn refuse(&mut self, input: &mut &[u8], fault: Fault, limits: &Limits) -> Decoded<'_> {
        *input = &[];
        self.state = State::Ended;
        if fault != Fault::BodyTooLarge {
            self.release();
        }
        Decoded::Refused(match fault {
            Fault::Malformed(what) => Refused::Malformed(what),
            Fault::HeadTooLarge => Refused::HeadersTooLarge,
            Fault::TargetTooLong => Refused::TargetTooLong,
            Fault::VersionUnsupported => Refused::VersionUnsupported,
            Fault::TransferCodingUnsupported => Refused::TransferCodingUnsupported,
            Fault::BodyTooLarge => match head::parse(&self.held, limits) {
                Ok(Some(parsed)) => Refused::BodyTooLarge(parsed.head),
                _ => Refused::Malformed("the head has no valid form"),
            },
        })
    }
}

/// A declared length that is within the limit.
fn declared_bytes(length: Length, limits: &Limits) -> Option<usize> {
    match length {
        Length::Declared(bytes) if bytes <= limits.body_bytes => usize::try_from(bytes).ok(),
        _ => None,
    }
}

/// What every idle connection costs.
const _: () = assert!(size_of::<Reader>() <= 64);
