//! Percent-decoding, once, without copying what needs none. A `%` that two hex digits do not follow stays as it is.

use std::borrow::Cow;

/// Decoded bytes that are no UTF-8, and so no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUtf8;

/// What `+` stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Plus {
    /// Itself: in a path.
    Literal,
    /// A space: in a form-encoded query.
    Space,
}

/// `raw` decoded; borrowed when nothing in it is encoded.
pub(super) fn decode(raw: &[u8], plus: Plus) -> Cow<'_, [u8]> {
    let is_special = |byte: &u8| *byte == b'%' || (*byte == b'+' && plus == Plus::Space);
    let Some(first) = raw.iter().position(is_special) else {
        return Cow::Borrowed(raw);
    };
    let mut decoded = Vec::with_capacity(raw.len());
    decoded.extend_from_slice(&raw[..first]);
    let mut rest = &raw[first..];
    while let [byte, after @ ..] = rest {
        rest = after;
        decoded.push(match (byte, after) {
            (b'%', [high, low, further @ ..]) => match (hex_value(*high), hex_value(*low)) {
                (Some(high), Some(low)) => {
                    rest = further;
                    high << 4 | low
                }
                _ => b'%',
            },
            (b'+', _) if plus == Plus::Space => b' ',
            _ => *byte,
        });
    }
    Cow::Owned(decoded)
}

/// `bytes` as text.
pub(super) fn text(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>, NotUtf8> {
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| NotUtf8),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| NotUtf8),
    }
}

/// The value of one hex digit of either case.
pub(super) fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
