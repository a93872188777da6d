//! Where a value ends: pure functions from a document and an offset to the offset behind, checking the grammar on the way.
//!
//! Offsets go by value and nothing is written, so that the hot loop stays in registers.

use super::scanner::Malformed;

const ONES: u64 = u64::MAX / 255;

/// The high bit of every byte that ends a run of ordinary string characters (quote, backslash, control); above the lowest such byte
/// there may be false ones.
#[inline(always)]
fn special_bytes(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let below = word.wrapping_sub(ONES * 0x20) & !word;
    let equal = (quote.wrapping_sub(ONES) & !quote) | (backslash.wrapping_sub(ONES) & !backslash);
    (below | equal) & (ONES << 7)
}

/// The byte at an offset; 0, which no token begins with, behind the end.
#[inline(always)]
pub(super) fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or(0)
}

/// Behind the white space at an offset.
#[inline(always)]
pub(super) fn space(text: &[u8], at: usize) -> usize {
    if byte(text, at) > b' ' { at } else { long_space(text, at) }
}

fn long_space(text: &[u8], mut at: usize) -> usize {
    while matches!(byte(text, at), b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}

/// Behind a string whose opening quote is behind us, and whether it has escapes.
#[inline(always)]
pub(super) fn string(text: &[u8], mut at: usize) -> Result<(usize, bool), Malformed> {
    let mut is_escaped = false;
    loop {
        at = ordinary(text, at);
        match byte(text, at) {
            b'"' => return Ok((at + 1, is_escaped)),
            b'\\' => {
                is_escaped = true;
                at = escape(text, at + 1)?;
            }
            _ => return Err(Malformed { at }),
        }
    }
}

/// Behind the ordinary characters of a string.
#[inline(always)]
fn ordinary(text: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = text.get(at..at.wrapping_add(8)).and_then(|bytes| bytes.first_chunk::<8>()) {
        let special = special_bytes(u64::from_le_bytes(*chunk));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while !matches!(byte(text, at), 0..0x20 | b'"' | b'\\') {
        at += 1;
    }
    at
}

/// Behind an escape whose backslash is behind us.
fn escape(text: &[u8], at: usize) -> Result<usize, Malformed> {
    match byte(text, at) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 1),
        b'u' if text.get(at + 1..at + 5).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) => Ok(at + 5),
        _ => Err(Malformed { at }),
    }
}

/// Behind a key and its colon.
#[inline(always)]
fn key(text: &[u8], at: usize) -> Result<usize, Malformed> {
    let at = space(text, at);
    if byte(text, at) != b'"' {
        return Err(Malformed { at });
    }
    let at = space(text, string(text, at + 1)?.0);
    if byte(text, at) == b':' { Ok(at + 1) } else { Err(Malformed { at }) }
}

/// Behind a value that begins at an offset.
#[inline(always)]
pub(super) fn value(text: &[u8], at: usize) -> Result<usize, Malformed> {
    match byte(text, at) {
        b'"' => Ok(string(text, at + 1)?.0),
        b'{' | b'[' => container(text, at),
        _ => scalar(text, at),
    }
}

/// Behind an object or array with all that is in it, without recursion.
fn container(text: &[u8], mut at: usize) -> Result<usize, Malformed> {
    // Which containers we are in, one bit each, an object's set, the innermost lowest; full words of those further out are set aside.
    let (mut levels, mut level_count) = (0_u64, 0_u32);
    let mut outer: Vec<u64> = Vec::new();
    loop {
        at = space(text, at);
        match byte(text, at) {
            b'"' => at = string(text, at + 1)?.0,
            open @ (b'{' | b'[') => {
                if level_count == u64::BITS {
                    outer.push(levels);
                    level_count = 0;
                }
                levels = (levels << 1) | u64::from(open == b'{');
                level_count += 1;
                at = space(text, at + 1);
                // '{' and '[' are each two below their closing byte.
                if byte(text, at) != open + 2 {
                    if open == b'{' {
                        at = key(text, at)?;
                    }
                    continue;
                }
            }
            _ => at = scalar(text, at)?,
        }
        // Behind an item: the ends of containers, then a comma.
        loop {
            at = space(text, at);
            let is_object = levels & 1 == 1;
            match byte(text, at) {
                b',' => {
                    at += 1;
                    if is_object {
                        at = key(text, at)?;
                    }
                    break;
                }
                close if close == if is_object { b'}' } else { b']' } => {
                    at += 1;
                    levels >>= 1;
                    level_count -= 1;
                    if level_count == 0 {
                        let Some(word) = outer.pop() else { return Ok(at) };
                        (levels, level_count) = (word, u64::BITS);
                    }
                }
                _ => return Err(Malformed { at }),
            }
        }
    }
}

/// Behind a number or a literal.
#[inline(always)]
fn scalar(text: &[u8], at: usize) -> Result<usize, Malformed> {
    match byte(text, at) {
        b'-' | b'0'..=b'9' => number(text, at),
        b't' => literal(text, at, b"true"),
        b'f' => literal(text, at, b"false"),
        b'n' => literal(text, at, b"null"),
        _ => Err(Malformed { at }),
    }
}

#[inline(always)]
fn literal<const LENGTH: usize>(text: &[u8], at: usize, word: &[u8; LENGTH]) -> Result<usize, Malformed> {
    if text.get(at..at + LENGTH) == Some(word) { Ok(at + LENGTH) } else { Err(Malformed { at }) }
}

#[inline(always)]
fn number(text: &[u8], mut at: usize) -> Result<usize, Malformed> {
    if byte(text, at) == b'-' {
        at += 1;
    }
    at = if byte(text, at) == b'0' { at + 1 } else { digits(text, at)? };
    if matches!(byte(text, at), b'.' | b'e' | b'E') { fraction_and_exponent(text, at) } else { Ok(at) }
}

fn fraction_and_exponent(text: &[u8], mut at: usize) -> Result<usize, Malformed> {
    if byte(text, at) == b'.' {
        at = digits(text, at + 1)?;
    }
    if matches!(byte(text, at), b'e' | b'E') {
        at += 1;
        if matches!(byte(text, at), b'+' | b'-') {
            at += 1;
        }
        at = digits(text, at)?;
    }
    Ok(at)
}

/// Behind one digit or more.
#[inline(always)]
fn digits(text: &[u8], start: usize) -> Result<usize, Malformed> {
    let mut at = start;
    while byte(text, at).is_ascii_digit() {
        at += 1;
    }
    if at == start { Err(Malformed { at }) } else { Ok(at) }
}
