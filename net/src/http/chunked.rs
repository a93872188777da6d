//! The chunked coding (RFC 9112 7.1), decoded as it arrives: framing byte by byte, data in runs.
//!
//! Extensions and trailers are checked, bounded and dropped. White space around a chunk's size, which the RFC lets a
//! server tolerate, is refused.

use super::percent::hex_value;
use super::{Fault, HEADER_LINES_MAX, Limits};

/// Bytes of chunk extensions that one body may hold: nobody needs any, and an unbounded one is work without a body.
const EXTENSION_BYTES_MAX: u32 = 16 << 10;

/// Digits of a chunk's size: as many as a u64 has, leading zeros included.
const SIZE_DIGITS_MAX: u8 = 16;

/// The state between two bytes of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunked {
    /// While a size is read: its value so far. In a chunk's data: the bytes still to come.
    size: u64,
    /// Extension bytes of the body; from the last chunk on, trailer bytes.
    spent_bytes: u32,
    trailer_lines: u16,
    digit_count: u8,
    step: Step,
}

/// What the next byte must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    Done,
}

/// What [`Chunked::next_run`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// The input is used up.
    Starved,
    /// The first `count` bytes of what is left of the input are data of the body.
    Data(usize),
    /// The body has ended.
    End,
}

impl Chunked {
    /// The state before a body's first byte.
    pub(super) const START: Self = Self { size: 0, spent_bytes: 0, trailer_lines: 0, digit_count: 0, step: Step::Size };

    /// Consumes framing up to the next run of data, which it leaves in `input` for the caller to take (all of it) before
    /// the next call. `body_bytes` is how much data the body has so far.
    pub(super) fn next_run(&mut self, input: &mut &[u8], body_bytes: u64, limits: &Limits) -> Result<Run, Fault> {
        while self.step != Step::Done {
            if self.step == Step::Data && !input.is_empty() {
                let count = usize::try_from(self.size).unwrap_or(usize::MAX).min(input.len());
                self.size -= count as u64;
                if self.size == 0 {
                    self.step = Step::DataCr;
                }
                return Ok(Run::Data(count));
            }
            let Some((byte, rest)) = input.split_first() else {
                return Ok(Run::Starved);
            };
            *input = rest;
            self.step = self.framing_byte(*byte, body_bytes, limits)?;
        }
        Ok(Run::End)
    }

    fn framing_byte(&mut self, byte: u8, body_bytes: u64, limits: &Limits) -> Result<Step, Fault> {
        match (self.step, byte) {
            (Step::Size, b'\r') if self.digit_count > 0 => Ok(Step::SizeLf),
            (Step::Size, b';') if self.digit_count > 0 => self.spend(Step::Extension, EXTENSION_BYTES_MAX),
            (Step::Size, _) => self.size_digit(byte),
            (Step::Extension, b'\r') => Ok(Step::SizeLf),
            (Step::Extension, _) if is_text(byte) => self.spend(Step::Extension, EXTENSION_BYTES_MAX),
            (Step::SizeLf, b'\n') => self.begin_chunk(body_bytes, limits),
            (Step::DataCr, b'\r') => Ok(Step::DataLf),
            (Step::DataLf, b'\n') => {
                self.digit_count = 0;
                Ok(Step::Size)
            }
            (Step::LastLf, b'\n') => Ok(Step::Done),
            (Step::TrailerStart | Step::TrailerName | Step::TrailerValue | Step::TrailerLf, _) => self.trailer_byte(byte, limits),
            _ => Err(Fault::Malformed("a chunk of the body is malformed")),
        }
    }

    fn size_digit(&mut self, byte: u8) -> Result<Step, Fault> {
        let digit = hex_value(byte).ok_or(Fault::Malformed("a chunk's size is no hexadecimal number"))?;
        if self.digit_count == SIZE_DIGITS_MAX {
            return Err(Fault::Malformed("a chunk's size has too many digits"));
        }
        self.digit_count += 1;
        self.size = self.size << 4 | u64::from(digit);
        Ok(Step::Size)
    }

    /// The size line has ended. What is too large is refused here, before any of the chunk is taken.
    fn begin_chunk(&mut self, body_bytes: u64, limits: &Limits) -> Result<Step, Fault> {
        if self.size == 0 {
            self.spent_bytes = 0;
            return Ok(Step::TrailerStart);
        }
        if body_bytes.saturating_add(self.size) > limits.body_bytes {
            return Err(Fault::BodyTooLarge);
        }
        Ok(Step::Data)
    }

    fn trailer_byte(&mut self, byte: u8, limits: &Limits) -> Result<Step, Fault> {
        let step = match (self.step, byte) {
            (Step::TrailerStart, b'\r') => Step::LastLf,
            (Step::TrailerStart, _) if is_token(byte) => self.begin_trailer(limits)?,
            (Step::TrailerName, b':') => Step::TrailerValue,
            (Step::TrailerName, _) if is_token(byte) => Step::TrailerName,
            (Step::TrailerValue, b'\r') => Step::TrailerLf,
            (Step::TrailerValue, _) if is_text(byte) => Step::TrailerValue,
            (Step::TrailerLf, b'\n') => Step::TrailerStart,
            _ => return Err(Fault::Malformed("a trailer line of the body is malformed")),
        };
        self.spend(step, u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
    }

    fn begin_trailer(&mut self, limits: &Limits) -> Result<Step, Fault> {
        self.trailer_lines += 1;
        if usize::from(self.trailer_lines) > limits.header_lines.min(HEADER_LINES_MAX) {
            return Err(Fault::Malformed("the body has too many trailer lines"));
        }
        Ok(Step::TrailerName)
    }

    /// Counts one byte that is no data.
    fn spend(&mut self, step: Step, most: u32) -> Result<Step, Fault> {
        self.spent_bytes = self.spent_bytes.saturating_add(1);
        if self.spent_bytes > most {
            return Err(Fault::Malformed("the body's chunk extensions or trailers are too long"));
        }
        Ok(step)
    }
}

/// A byte of a header name (RFC 9110 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A byte that may stand in a header value or an extension: no control character but the tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
