//! A JSON string as it is spelled in a document, its decoding, and the escaping of text on its way out.

use std::borrow::Cow;

/// What stands between a string's quotes: checked for form, not yet decoded, not yet known to be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) struct Text<'a> {
    spelled: &'a [u8],
    is_escaped: bool,
}

impl<'a> Text<'a> {
    pub(super) fn new(spelled: &'a [u8], is_escaped: bool) -> Self {
        Self { spelled, is_escaped }
    }

    /// The bytes between the quotes.
    pub(in crate::api) fn spelled(&self) -> &'a [u8] {
        self.spelled
    }

    /// The text meant, for comparison with words of ASCII: a lone surrogate becomes U+FFFD, invalid UTF-8 stays.
    #[inline]
    pub(in crate::api) fn word(&self) -> Cow<'a, [u8]> {
        if self.is_escaped { Cow::Owned(unescape(self.spelled).0) } else { Cow::Borrowed(self.spelled) }
    }

    /// The text meant; None when it is no Unicode text (a lone surrogate, invalid UTF-8).
    #[inline]
    pub(in crate::api) fn decode(&self) -> Option<Cow<'a, str>> {
        if !self.is_escaped {
            return std::str::from_utf8(self.spelled).ok().map(Cow::Borrowed);
        }
        let (bytes, is_unicode) = unescape(self.spelled);
        if is_unicode { String::from_utf8(bytes).ok().map(Cow::Owned) } else { None }
    }
}

/// The text that an escaped spelling means, and whether it had no lone surrogate.
fn unescape(spelled: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(spelled.len());
    let mut is_unicode = true;
    let mut rest = spelled;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((&kind, tail)) = rest.split_first() else { break };
        rest = tail;
        match kind {
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let character = unescape_unit(&mut rest);
                is_unicode &= character.is_some();
                let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
    (out, is_unicode)
}

/// The character of a `\u` escape whose four digits come next, with its second half if it is a pair. A lone surrogate is None.
fn unescape_unit(rest: &mut &[u8]) -> Option<char> {
    let unit = hex_unit(rest)?;
    *rest = &rest[4..];
    if !(0xd800..0xdc00).contains(&unit) {
        return char::from_u32(unit);
    }
    let low = rest.strip_prefix(b"\\u").and_then(hex_unit).filter(|low| (0xdc00..0xe000).contains(low))?;
    *rest = &rest[6..];
    char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
}

fn hex_unit(digits: &[u8]) -> Option<u32> {
    let digits = digits.first_chunk::<4>()?;
    digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))
}

/// Appends text as a JSON string, quotes included.
pub(in crate::api) fn append_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    append_escaped(out, text);
    out.push(b'"');
}

/// Appends text as the inside of a JSON string.
pub(in crate::api) fn append_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        append_escape(out, rest[at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn append_escape(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}
