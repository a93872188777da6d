//! One pass over a JSON document. The caller asks for what it expects next (an object's key, a string, any value) and gets slices of
//! the document; what it does not want is skipped, checked all the same.

use super::skip;
use super::text::Text;

/// The document is not JSON from this byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) struct Malformed {
    /// Offset in bytes, from 0.
    pub(in crate::api) at: usize,
}

/// A place in a document.
pub(in crate::api) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The beginning of a document.
    pub(in crate::api) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The first byte of the next token, not taken; 0 at the end.
    #[inline(always)]
    pub(in crate::api) fn token(&mut self) -> u8 {
        self.at = skip::space(self.text, self.at);
        skip::byte(self.text, self.at)
    }

    /// Takes the next token if it is this byte.
    #[inline(always)]
    pub(in crate::api) fn take(&mut self, wanted: u8) -> bool {
        let is_next = self.token() == wanted;
        // Not `+= usize::from(is_next)`: inlined at opt-level 2 and above, rustc 1.95.0 (LLVM 22.1.2) loses that addition here, and
        // every document is refused.
        if is_next {
            self.at += 1;
        }
        is_next
    }

    #[inline(always)]
    fn expect(&mut self, wanted: u8) -> Result<(), Malformed> {
        if self.take(wanted) { Ok(()) } else { Err(Malformed { at: self.at }) }
    }

    /// Inside an object whose `{` was taken: the next key, with its colon; None: the object's end, taken.
    #[inline(always)]
    pub(in crate::api) fn key(&mut self, is_first: &mut bool) -> Result<Option<Text<'a>>, Malformed> {
        if !self.item(b'}', is_first)? {
            return Ok(None);
        }
        let key = self.string()?;
        self.expect(b':')?;
        Ok(Some(key))
    }

    /// Inside an array whose `[` was taken: whether an element follows (its comma taken) or the array's end (taken).
    #[inline(always)]
    pub(in crate::api) fn element(&mut self, is_first: &mut bool) -> Result<bool, Malformed> {
        self.item(b']', is_first)
    }

    /// What must follow a comma is a key or an element: a closing bracket there is refused by whoever reads it.
    #[inline(always)]
    fn item(&mut self, close: u8, is_first: &mut bool) -> Result<bool, Malformed> {
        if self.take(close) {
            return Ok(false);
        }
        if !std::mem::take(is_first) {
            self.expect(b',')?;
        }
        Ok(true)
    }

    /// A string, as it is spelled.
    #[inline(always)]
    pub(in crate::api) fn string(&mut self) -> Result<Text<'a>, Malformed> {
        self.expect(b'"')?;
        let start = self.at;
        let (end, is_escaped) = skip::string(self.text, start)?;
        self.at = end;
        Ok(Text::new(&self.text[start..end - 1], is_escaped))
    }

    /// Any value, as it is spelled.
    #[inline(always)]
    pub(in crate::api) fn value(&mut self) -> Result<&'a [u8], Malformed> {
        self.token();
        let start = self.at;
        self.at = skip::value(self.text, start)?;
        Ok(&self.text[start..self.at])
    }

    /// The document's end: nothing may follow, and all of it must be UTF-8.
    #[inline]
    pub(in crate::api) fn finish(mut self) -> Result<(), Malformed> {
        self.token();
        if self.at < self.text.len() {
            return Err(Malformed { at: self.at });
        }
        // Bytes outside ASCII passed inside strings alone.
        match std::str::from_utf8(self.text) {
            Ok(_) => Ok(()),
            Err(error) => Err(Malformed { at: error.valid_up_to() }),
        }
    }
}
