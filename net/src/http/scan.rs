//! Finds the end of a head that arrives in pieces, looking at each byte once.
//!
//! It judges only what must be judged before the end is there: sizes, line ends, and bytes that no head may hold. Being
//! byte by byte, its verdict does not depend on how the head was split. What a head means is [`super::head`]'s.

use super::{Fault, HEADER_LINES_MAX, Limits};

/// How far the search got. Starts at the first byte of a request line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    head_bytes: usize,
    target_bytes: usize,
    /// Finished lines, the request line among them.
    line_count: u32,
    /// Spaces seen in the request line; the target is what lies between the first and the second.
    space_count: u8,
    line_has_bytes: bool,
    after_cr: bool,
}

impl Scan {
    /// Goes on with the head's next bytes. `Some(count)`: the head ends with the first `count` bytes of `input`;
    /// `None`: all of `input` belongs to it.
    pub(super) fn advance(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, Fault> {
        for (index, byte) in input.iter().enumerate() {
            self.head_bytes += 1;
            if self.head_bytes > limits.head_bytes {
                return Err(Fault::HeadTooLarge);
            }
            match byte {
                b'\n' if self.after_cr => {
                    if !self.line_has_bytes {
                        return Ok(Some(index + 1));
                    }
                    self.end_line(limits)?;
                }
                b'\n' => return Err(Fault::Malformed("a line of the head ends in a bare LF")),
                _ if self.after_cr => return Err(Fault::Malformed("a bare CR in the head")),
                b'\r' => self.after_cr = true,
                0x00..=0x08 | 0x0b..=0x1f | 0x7f => return Err(Fault::Malformed("a control character in the head")),
                _ => self.line_byte(*byte, limits)?,
            }
        }
        Ok(None)
    }

    fn end_line(&mut self, limits: &Limits) -> Result<(), Fault> {
        self.after_cr = false;
        self.line_has_bytes = false;
        self.line_count += 1;
        let most = limits.header_lines.min(HEADER_LINES_MAX);
        if self.line_count as usize > most + 1 { Err(Fault::HeadTooLarge) } else { Ok(()) }
    }

    fn line_byte(&mut self, byte: u8, limits: &Limits) -> Result<(), Fault> {
        self.line_has_bytes = true;
        if self.line_count > 0 || self.space_count > 1 {
            return Ok(());
        }
        if byte == b' ' {
            self.space_count += 1;
        } else if self.space_count == 1 {
            self.target_bytes += 1;
            if self.target_bytes > limits.target_bytes {
                return Err(Fault::TargetTooLong);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(head: &[u8], limits: &Limits) -> Result<Option<usize>, Fault> {
        let whole = Scan::default().advance(head, limits);
        let mut dribbled = Scan::default();
        let mut found = Ok(None);
        for (index, byte) in head.iter().enumerate() {
            found = dribbled.advance(&[*byte], limits).map(|end| end.map(|count| index + count));
            if found != Ok(None) {
                break;
            }
        }
        assert_eq!(found, whole, "byte by byte");
        whole
    }

    #[test]
    fn a_head_ends_with_its_empty_line() {
        let limits = Limits::default();
        assert_eq!(scan(b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest", &limits), Ok(Some(24)));
        assert_eq!(scan(b"GET / HTTP/1.1\r\n\r\n", &limits), Ok(Some(18)));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nA: b\r\n\r", &limits), Ok(None));
    }

    #[test]
    fn the_first_offending_byte_decides() {
        let tight = Limits { header_lines: 1, head_bytes: 40, target_bytes: 4, body_bytes: 0 };
        let malformed = |fault| matches!(fault, Err(Fault::Malformed(_)));
        assert!(malformed(scan(b"GET / HTTP/1.1\nA: b\r\n", &tight)));
        assert!(malformed(scan(b"GET / HTTP/1.1\r\r\n", &tight)));
        assert!(malformed(scan(b"\x16\x03\x01", &tight)));
        assert_eq!(scan(b"GET /abc HTTP/1.1\r\n", &tight), Ok(None));
        assert_eq!(scan(b"GET /abcd HTTP/1.1\r\n", &tight), Err(Fault::TargetTooLong));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nA:\r\n\r\n", &tight), Ok(Some(22)));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nA:\r\nB:\r\n", &tight), Err(Fault::HeadTooLarge));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nA: 34567890123456789012\r\n\r\n", &tight), Err(Fault::HeadTooLarge));
    }
}
