//! Queries as forms write them: `key=value` joined by `&`, `+` a space, `%XX` a byte, a malformed `%` itself.
//!
//! Nothing is refused here. A key that nobody knows is the caller's to skip, and only a value that is used needs to be text.

use std::borrow::Cow;

use super::percent::{self, NotUtf8, Plus};

/// One `key=value`, still encoded. A pair without `=` has an empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    raw_key: &'a [u8],
    raw_value: &'a [u8],
}

impl<'a> Pair<'a> {
    /// The key, decoded: bytes, for comparing with known ones. Borrowed when nothing in it is encoded.
    #[must_use]
    pub fn key(&self) -> Cow<'a, [u8]> {
        percent::decode(self.raw_key, Plus::Space)
    }

    /// The value, decoded. Borrowed when nothing in it is encoded.
    ///
    /// # Errors
    /// [`NotUtf8`] when the decoded bytes are no UTF-8.
    pub fn value(&self) -> Result<Cow<'a, str>, NotUtf8> {
        percent::text(percent::decode(self.raw_value, Plus::Space))
    }
}

/// The pairs of a query, in order; `query` is what follows the `?`. Empty pairs (`a&&b`) are none.
/// Of a key given twice the last counts: a caller that assigns as it goes has that rule.
pub fn pairs(query: &[u8]) -> impl Iterator<Item = Pair<'_>> + Clone {
    query.split(|byte| *byte == b'&').filter(|part| !part.is_empty()).map(|part| match part.iter().position(|byte| *byte == b'=') {
        Some(at) => Pair { raw_key: &part[..at], raw_value: &part[at + 1..] },
        None => Pair { raw_key: part, raw_value: &[] },
    })
}

/// The value of the last pair with this key, or `None` without one.
///
/// # Errors
/// [`NotUtf8`] when that value is no UTF-8; earlier pairs of the key are not looked at.
pub fn last<'a>(query: &'a [u8], key: &str) -> Result<Option<Cow<'a, str>>, NotUtf8> {
    pairs(query).filter(|pair| *pair.key() == *key.as_bytes()).last().map(|pair| pair.value()).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(query: &str) -> Vec<(String, Result<String, NotUtf8>)> {
        let text = |key: Cow<'_, [u8]>| String::from_utf8_lossy(&key).into_owned();
        pairs(query.as_bytes()).map(|pair| (text(pair.key()), pair.value().map(Cow::into_owned))).collect()
    }

    #[test]
    fn pairs_are_form_decoded() {
        let table: [(&str, &[(&str, &str)]); 10] = [
            ("", &[]),
            ("&&", &[]),
            ("a=b", &[("a", "b")]),
            ("a", &[("a", "")]),
            ("=b", &[("", "b")]),
            ("a=b=c", &[("a", "b=c")]),
            ("a+b=c+d%2B", &[("a b", "c d+")]),
            ("%61=%C3%BC&x=1", &[("a", "ü"), ("x", "1")]),
            ("a=100%&b=%zz&c=%4", &[("a", "100%"), ("b", "%zz"), ("c", "%4")]),
            ("a=%2526", &[("a", "%26")]),
        ];
        for (query, wanted) in table {
            let wanted: Vec<_> = wanted.iter().map(|(key, value)| ((*key).to_owned(), Ok((*value).to_owned()))).collect();
            assert_eq!(decoded(query), wanted, "{query}");
        }
    }

    #[test]
    fn of_a_key_given_twice_the_last_counts() {
        assert_eq!(last(b"q=1&x=2&q=3", "q"), Ok(Some(Cow::Borrowed("3"))));
        assert_eq!(last(b"q=%FF&q=", "q"), Ok(Some(Cow::Borrowed(""))));
        assert_eq!(last(b"%71=1", "q"), Ok(Some(Cow::Borrowed("1"))));
        assert_eq!(last(b"x=2", "q"), Ok(None));
    }

    #[test]
    fn a_value_that_is_no_utf8_is_told_from_an_absent_one() {
        assert_eq!(last(b"q=%FF", "q"), Err(NotUtf8));
        assert_eq!(last(b"%FF=1&q=2", "q"), Ok(Some(Cow::Borrowed("2"))));
    }

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(last(b"queue=orders", "queue"), Ok(Some(Cow::Borrowed("orders")))));
    }
}
