//! RESP2, Redis' and Valkey's protocol: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use std::io::Write;

/// Appends a command.
pub(crate) fn command(out: &mut Vec<u8>, words: &[&str]) {
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n{word}\r\n", word.len());
    }
}

/// One value, or the head of an array, whose items follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A simple string.
    Simple(&'a str),
    /// An error.
    Error(&'a str),
    /// An integer.
    Integer(i64),
    /// A bulk string; None: null.
    Bulk(Option<&'a str>),
    /// An array of so many values; None: null.
    Array(Option<usize>),
}

/// Reads values off the front of a whole answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    input: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// A reader of one answer and the length of it; None: not all is here.
    pub(crate) fn answer(input: &'a [u8]) -> Option<(Self, usize)> {
        let mut reader = Self { input, position: 0 };
        reader.skip()?;
        let length = reader.position;
        reader.position = 0;
        Some((reader, length))
    }

    /// The next value.
    pub(crate) fn next(&mut self) -> Option<Value<'a>> {
        let rest = self.input.get(self.position..)?;
        let (line, length) = mayfly_generator::session::line(rest)?;
        let (kind, text) = (line.as_bytes().first()?, &line[1..]);
        self.position += length;
        let count = || text.parse::<i64>().ok();
        Some(match kind {
            b'+' => Value::Simple(text),
            b':' => Value::Integer(count()?),
            b'*' => Value::Array(usize::try_from(count()?).ok()),
            b'$' => Value::Bulk(match usize::try_from(count()?) {
                Ok(bytes) => {
                    let body = self.input.get(self.position..self.position + bytes + 2)?;
                    self.position += bytes + 2;
                    Some(std::str::from_utf8(&body[..bytes]).unwrap_or("not text"))
                }
                Err(_) => None,
            }),
            _ => Value::Error(text),
        })
    }

    /// Passes the next value with all that is in it.
    fn skip(&mut self) -> Option<()> {
        let mut due_count = 1;
        while due_count > 0 {
            due_count -= 1;
            if let Value::Array(Some(count)) = self.next()? {
                due_count += count;
            }
        }
        Some(())
    }

    /// The next value, when it is a string.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        match self.next()? {
            Value::Bulk(text) => text,
            Value::Simple(text) => Some(text),
            _ => None,
        }
    }

    /// The next value's length, when it is an array.
    pub(crate) fn array(&mut self) -> Option<usize> {
        match self.next()? {
            Value::Array(count) => count,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let input = b"*3\r\n$3\r\nkey\r\n*2\r\n:-7\r\n$-1\r\n*-1\r\n+OK\r\n";
        let whole = input.len() - 5;
        assert!((0..whole).all(|length| Reader::answer(&input[..length]).is_none()));
        let (mut reader, length) = Reader::answer(input).expect("whole");
        assert_eq!((length, reader.array(), reader.text(), reader.array()), (whole, Some(3), Some("key"), Some(2)));
        assert_eq!(
            (reader.next(), reader.next(), reader.next()),
            (Some(Value::Integer(-7)), Some(Value::Bulk(None)), Some(Value::Array(None)))
        );
        assert_eq!((reader.next(), reader.next()), (Some(Value::Simple("OK")), None));
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, &["LPUSH", "k", ""]);
        assert_eq!(out, b"*3\r\n$5\r\nLPUSH\r\n$1\r\nk\r\n$0\r\n\r\n");
    }
}
