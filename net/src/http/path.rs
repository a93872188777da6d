//! The segments of a path. Split first, decoded after: `%2F` is a slash inside a name, never a separator.

use std::borrow::Cow;

use super::percent::{self, NotUtf8, Plus};

/// The raw segments of `path`: `/a//b` is `a`, an empty one, `b`; `/` is one empty segment.
/// Nothing is normalised: `.` and `..` are names. A path without its leading slash (`*`, an authority) has no segments.
///
/// ```
/// let raw: Vec<_> = mayfly_net::http::path::segments(b"/queue/a%2Fb").collect();
/// assert_eq!(raw, [&b"queue"[..], b"a%2Fb"]);
/// ```
pub fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    path.strip_prefix(b"/").map(|rest| rest.split(|byte| *byte == b'/')).into_iter().flatten()
}

/// One raw segment percent-decoded, once; `+` is itself and a malformed `%` too. Borrowed when nothing in it is encoded.
///
/// # Errors
/// [`NotUtf8`] when the decoded bytes are no UTF-8.
pub fn decode(segment: &[u8]) -> Result<Cow<'_, str>, NotUtf8> {
    percent::text(percent::decode(segment, Plus::Literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_splits_at_every_literal_slash_and_nowhere_else() {
        let table: [(&str, &[&str]); 8] = [
            ("/", &[""]),
            ("/a", &["a"]),
            ("/a/", &["a", ""]),
            ("/a//b", &["a", "", "b"]),
            ("/a%2Fb/c", &["a%2Fb", "c"]),
            ("/../.", &["..", "."]),
            ("*", &[]),
            ("", &[]),
        ];
        for (path, wanted) in table {
            let found: Vec<_> = segments(path.as_bytes()).map(|raw| std::str::from_utf8(raw).expect("ASCII")).collect();
            assert_eq!(found, wanted, "{path}");
        }
    }

    #[test]
    fn a_segment_is_decoded_once_and_must_be_utf8() {
        let table: [(&str, Result<&str, NotUtf8>); 9] = [
            ("plain", Ok("plain")),
            ("a%2Fb", Ok("a/b")),
            ("a%2fb", Ok("a/b")),
            ("%252F", Ok("%2F")),
            ("a+b%20c", Ok("a+b c")),
            ("100%", Ok("100%")),
            ("%4", Ok("%4")),
            ("%zz%C3%BC", Ok("%zzü")),
            ("%C3", Err(NotUtf8)),
        ];
        for (raw, wanted) in table {
            assert_eq!(decode(raw.as_bytes()).as_deref(), wanted.as_deref(), "{raw}");
        }
        assert!(matches!(decode(b"plain"), Ok(Cow::Borrowed(_))));
    }
}
