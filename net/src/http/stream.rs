//! Answers without an end that is known: server-sent events, chunked for HTTP/1.1, ended by the close of the connection for 1.0.

use super::{DateText, Head, Version};

/// Digits of a chunk's size: 4 GiB fit in no chunk. Leading zeros are legal here.
const SIZE_DIGITS: usize = 8;

/// A stream of events on a connection, which ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventStream {
    is_chunked: bool,
}

/// A piece that is being appended.
#[derive(Debug)]
#[must_use = "a piece has no size before it is finished"]
pub struct OpenPiece {
    begins_at: usize,
    is_chunked: bool,
}

impl EventStream {
    /// As the request's version allows.
    #[must_use]
    pub fn of(head: &Head<'_>) -> Self {
        Self { is_chunked: head.version == Version::Http11 }
    }

    /// Appends the head.
    pub fn begin(self, out: &mut Vec<u8>, date: &DateText) {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n");
        if self.is_chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    }

    /// Begins a piece of the body: what the caller appends to `out` until [`OpenPiece::finish`]. Nothing may be taken off the front of
    /// `out` meanwhile.
    pub fn open(self, out: &mut Vec<u8>) -> OpenPiece {
        let begins_at = out.len();
        if self.is_chunked {
            out.extend_from_slice(&[b'0'; SIZE_DIGITS]);
            out.extend_from_slice(b"\r\n");
        }
        OpenPiece { begins_at, is_chunked: self.is_chunked }
    }

    /// Appends what says that the stream ended as it should.
    pub fn end(self, out: &mut Vec<u8>) {
        if self.is_chunked {
            out.extend_from_slice(b"0\r\n\r\n");
        }
    }
}

impl OpenPiece {
    /// Writes the piece's size; a piece of nothing is taken away, as it would end the stream.
    pub fn finish(self, out: &mut Vec<u8>) {
        if !self.is_chunked {
            return;
        }
        let body_at = self.begins_at + SIZE_DIGITS + 2;
        let mut size = out.len() - body_at;
        if size == 0 {
            return out.truncate(self.begins_at);
        }
        for digit in out[self.begins_at..self.begins_at + SIZE_DIGITS].iter_mut().rev() {
            *digit = b"0123456789abcdef"[size & 15];
            size >>= 4;
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(is_chunked: bool, body: &[u8]) -> String {
        let mut out = b"before".to_vec();
        let open = EventStream { is_chunked }.open(&mut out);
        out.extend_from_slice(body);
        open.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_piece_says_its_size_where_the_version_has_chunks() {
        assert_eq!(piece(true, &[b'x'; 26]), format!("before0000001a\r\n{}\r\n", "x".repeat(26)));
        assert_eq!(piece(true, b""), "before");
        assert_eq!(piece(false, b"x"), "beforex");
    }
}
