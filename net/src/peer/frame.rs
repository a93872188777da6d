//! Frames of a link: the length of the body as a little-endian u32, then the body. Pure.
//!
//! A frame is shown where it is when the input holds it whole; only an unfinished one is copied aside. What a peer makes a reader hold is
//! bounded by [`BODY_BYTES_MAX`], and grows with what has come, not with what was announced.

/// Most bytes of a body: a request of 64 MiB and what is said about it.
pub const BODY_BYTES_MAX: usize = (64 + 1) << 20;
/// Bytes in front of a body.
pub const HEAD_BYTES: usize = size_of::<u32>();
/// A reader's buffer of this size is kept for its next unfinished frame, a larger one is given back.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A body longer than the bound. On reading nothing of the connection means anything any more; on writing the frame was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Bytes that were announced or appended.
    pub body_bytes: usize,
}

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a frame of {} bytes is longer than the {BODY_BYTES_MAX} that a link carries", self.body_bytes)
    }
}

impl std::error::Error for TooLong {}

/// The reading end of one direction of a link.
#[derive(Debug)]
pub struct Frames {
    /// The frame that the input did not hold whole, head and all.
    held: Vec<u8>,
    /// `held` is whole and was shown: forgotten with the next call.
    is_shown: bool,
    body_bytes_max: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self::new()
    }
}

impl Frames {
    /// Takes bodies of up to [`BODY_BYTES_MAX`].
    #[must_use]
    pub fn new() -> Self {
        Self::bounded(BODY_BYTES_MAX)
    }

    /// Takes bodies of up to `body_bytes_max`.
    #[must_use]
    pub fn bounded(body_bytes_max: usize) -> Self {
        Self { held: Vec::new(), is_shown: false, body_bytes_max: body_bytes_max.min(BODY_BYTES_MAX) }
    }

    /// The next whole body; `input` is moved past what was used. To be called until it gives `None`, when all of `input` was taken:
    ///
    /// ```
    /// # use mayfly_net::peer::frame::{Frames, open};
    /// # let mut bytes = Vec::new();
    /// # let frame = open(&mut bytes);
    /// # bytes.extend_from_slice(b"one");
    /// # frame.finish(&mut bytes).unwrap();
    /// # let mut frames = Frames::new();
    /// let mut input = &bytes[..];
    /// while let Some(body) = frames.next(&mut input)? {
    ///     assert_eq!(body, b"one");
    /// }
    /// # Ok::<(), mayfly_net::peer::frame::TooLong>(())
    /// ```
    ///
    /// # Errors
    /// A frame announces more than the bound; so does every later call.
    pub fn next<'a, 'b: 'a>(&'a mut self, input: &mut &'b [u8]) -> Result<Option<&'a [u8]>, TooLong> {
        if std::mem::take(&mut self.is_shown) {
            self.forget();
        }
        if self.held.is_empty() {
            if let Some(frame_bytes) = self.frame_bytes(input)?
                && let Some((frame, rest)) = input.split_at_checked(frame_bytes)
            {
                *input = rest;
                return Ok(Some(&frame[HEAD_BYTES..]));
            }
            if input.is_empty() {
                return Ok(None);
            }
        }
        self.fill(HEAD_BYTES, input);
        if let Some(frame_bytes) = self.frame_bytes(&self.held)? {
            self.fill(frame_bytes, input);
            self.is_shown = self.held.len() == frame_bytes;
        }
        Ok(self.is_shown.then(|| &self.held[HEAD_BYTES..]))
    }

    /// Bytes of memory that an unfinished frame takes here.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// Bytes of the frame that begins with these; `None` when even its head is not whole.
    fn frame_bytes(&self, bytes: &[u8]) -> Result<Option<usize>, TooLong> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let body_bytes = u32::from_le_bytes(*head) as usize;
        if body_bytes > self.body_bytes_max {
            return Err(TooLong { body_bytes });
        }
        Ok(Some(HEAD_BYTES + body_bytes))
    }

    /// Moves bytes from the input until `held` has `wanted` of them.
    fn fill(&mut self, wanted: usize, input: &mut &[u8]) {
        let count = wanted.saturating_sub(self.held.len()).min(input.len());
        let (taken, rest) = input.split_at(count);
        let needed = self.held.len() + count;
        if needed > self.held.capacity() {
            // Doubled, but never more than the frame needs.
            let capacity = (2 * self.held.capacity()).clamp(needed, wanted.max(needed));
            self.held.reserve_exact(capacity - self.held.len());
        }
        self.held.extend_from_slice(taken);
        *input = rest;
    }

    fn forget(&mut self) {
        if self.held.capacity() > KEPT_BYTES_MAX {
            self.held = Vec::new();
        }
        self.held.clear();
    }
}

/// A frame that is being appended. Nothing is copied: its length is written when it is known.
#[must_use = "a frame without its length breaks the link"]
#[derive(Debug)]
pub struct OpenFrame {
    begins_at: usize,
}

/// Begins a frame at the end of `out`. What is appended until [`OpenFrame::finish`] is its body.
pub fn open(out: &mut Vec<u8>) -> OpenFrame {
    let begins_at = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    OpenFrame { begins_at }
}

impl OpenFrame {
    /// Ends the frame.
    ///
    /// # Errors
    /// The body is too long; the frame was taken out of `out` again.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let body_bytes = out.len() - self.begins_at - HEAD_BYTES;
        if body_bytes > BODY_BYTES_MAX {
            self.take_back(out);
            return Err(TooLong { body_bytes });
        }
        out[self.begins_at..self.begins_at + HEAD_BYTES].copy_from_slice(&(body_bytes as u32).to_le_bytes());
        Ok(())
    }

    /// Removes it with all that was appended since.
    pub fn take_back(self, out: &mut Vec<u8>) {
        out.truncate(self.begins_at);
    }
}
