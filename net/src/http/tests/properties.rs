//! What must hold for any bytes at all. Each function takes raw bytes and panics when a property is broken; the property
//! tests beside this file feed them at every test run, the fuzz targets in `fuzz/` for longer and with coverage.

use std::borrow::Cow;

use crate::http::{Decoded, Head, Limits, NotUtf8, Reader, Refused, Stage, path, query};

/// Small enough that random input meets every bound.
const TIGHT: Limits = Limits { header_lines: 4, head_bytes: 160, target_bytes: 24, body_bytes: 32 };

/// What one connection came to, owned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Request { head: String, body: Vec<u8> },
    Refused(String),
}

/// A stream of requests means the same however it is split, keeps its bounds, and holds no more than it must.
/// The first byte chooses the limits, the second how the stream is cut.
pub(crate) fn requests(data: &[u8]) {
    let [choice, cut, stream @ ..] = data else { return };
    let limits = if choice % 2 == 0 { Limits::default() } else { TIGHT };
    let whole = decode_pieces(&[stream], &limits);
    let bytes: Vec<_> = stream.chunks(1).collect();
    assert_eq!(decode_pieces(&bytes, &limits), whole, "byte by byte");
    let pieces: Vec<_> = stream.chunks(usize::from(*cut).max(2)).collect();
    assert_eq!(decode_pieces(&pieces, &limits), whole, "in pieces of {cut}");
    let (first, second) = stream.split_at(usize::from(*cut).min(stream.len()));
    assert_eq!(decode_pieces(&[first, second], &limits), whole, "cut at {cut}");
}

/// The same, for what follows the head of a chunked request; and data that is chunked in any sizes comes back.
pub(crate) fn chunks(data: &[u8]) {
    let [choice, cut, body @ ..] = data else { return };
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    requests(&[&[*choice, *cut], &head[..], body].concat());

    let mut stream = head.to_vec();
    for (index, chunk) in body.chunks(usize::from(*cut).max(1)).enumerate() {
        let extension = if index % 2 == 0 { "" } else { ";a=\"b\"" };
        stream.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        stream.extend_from_slice(chunk);
        stream.extend_from_slice(b"\r\n");
    }
    stream.extend_from_slice(b"0\r\nX-Trailer: 1\r\n\r\n");
    let pieces: Vec<_> = stream.chunks(usize::from(*choice).max(1)).collect();
    let (seen, stage) = decode_pieces(&pieces, &Limits::default());
    let is_extended_too_far = body.len() > 4096;
    let is_back = matches!(&seen[..], [Seen::Request { body: decoded, .. }] if decoded == body);
    assert!((is_back && stage == Stage::Idle) || is_extended_too_far, "{seen:?}");
}

/// A query decodes as a plain reading of the rules says, text that needs no decoding is not copied, and any pair of
/// byte strings that is encoded comes back.
pub(crate) fn queries(data: &[u8]) {
    for pair in query::pairs(data) {
        let value = pair.value();
        let last = query::last(data, &String::from_utf8_lossy(&pair.key()));
        assert!(value.is_err() || std::str::from_utf8(&pair.key()).is_err() || matches!(last, Ok(Some(_)) | Err(NotUtf8)));
    }
    let plain: Vec<_> = data.split(|byte| *byte == b'&').filter(|part| !part.is_empty()).map(plain_pair).collect();
    let decoded: Vec<_> = query::pairs(data).map(|pair| (pair.key().into_owned(), pair.value().map(Cow::into_owned))).collect();
    assert_eq!(decoded, plain);

    let (key, value) = data.split_at(data.len() / 2);
    let encoded = format!("x=1&{}={}&y", percent_encode(key), percent_encode(value));
    let pair = query::pairs(encoded.as_bytes()).nth(1).expect("three pairs");
    assert_eq!(pair.key(), key);
    assert_eq!(pair.value().as_deref(), std::str::from_utf8(value).map_err(|_| &NotUtf8));
}

/// Segments joined again are the path, they decode as a plain reading of the rules says, and any name that is encoded
/// comes back as one segment.
pub(crate) fn paths(data: &[u8]) {
    let segments: Vec<_> = path::segments(data).collect();
    if let Some(rest) = data.strip_prefix(b"/") {
        assert_eq!(segments.join(&b"/"[..]), rest);
    } else {
        assert!(segments.is_empty());
    }
    for segment in segments {
        let decoded = path::decode(segment);
        assert_eq!(decoded.clone().map(Cow::into_owned), String::from_utf8(plain_decode(segment, b'+')).map_err(|_| NotUtf8));
        assert!(segment.contains(&b'%') || !matches!(decoded, Ok(Cow::Owned(_))), "a copy for nothing");
    }
    let encoded = format!("/queue/{}/depth", percent_encode(data));
    let back: Vec<_> = path::segments(encoded.as_bytes()).map(path::decode).collect();
    assert_eq!(back.len(), 3);
    assert_eq!(back[1].as_deref(), std::str::from_utf8(data).map_err(|_| &NotUtf8));
}

/// What a connection with these pieces comes to, with everything checked on the way that holds at every moment.
pub(crate) fn decode_pieces(pieces: &[&[u8]], limits: &Limits) -> (Vec<Seen>, Stage) {
    let mut reader = Reader::default();
    let mut seen = Vec::new();
    let mut fed_bytes = 0;
    for piece in pieces {
        let mut input = *piece;
        fed_bytes += piece.len();
        // Once it was told of a head, what follows of its body may need no further byte.
        let mut is_opened = false;
        loop {
            let before = input.len();
            let found = match reader.decode(&mut input, limits) {
                Decoded::Incomplete => break,
                Decoded::Opened(head) => {
                    describe(&head, limits);
                    assert!(!std::mem::replace(&mut is_opened, true) && input.len() < before, "told once, with its last byte");
                    continue;
                }
                Decoded::Continue => continue,
                Decoded::Request(request) => {
                    assert!(request.body.len() as u64 <= limits.body_bytes);
                    Seen::Request { head: describe(&request.head, limits), body: request.body.to_vec() }
                }
                Decoded::Refused(refused) => Seen::Refused(describe_refusal(&refused, limits)),
            };
            assert!(input.len() < before || is_opened, "progress");
            is_opened = false;
            seen.push(found);
        }
        assert!(input.is_empty(), "an incomplete request takes all input");
        assert!(reader.buffered_bytes() <= 2 * fed_bytes + (64 << 10), "memory follows what arrived");
        assert!(reader.buffered_bytes() == 0 || matches!(reader.stage(), Stage::Head | Stage::Body), "idle is free");
    }
    (seen, reader.stage())
}

fn describe(head: &Head<'_>, limits: &Limits) -> String {
    assert!(head.target.len() <= limits.target_bytes && head.fields().count() <= limits.header_lines);
    assert!(std::str::from_utf8(head.target).is_ok() && !head.path.is_empty() && !head.path.contains(&b'?'));
    assert!(head.fields().all(|(name, value)| !name.is_empty() && !value.iter().any(|byte| b"\r\n\0".contains(byte))));
    format!("{head:?}")
}

fn describe_refusal(refused: &Refused<'_>, limits: &Limits) -> String {
    match refused {
        Refused::BodyTooLarge(head) => format!("too large: {}", describe(head, limits)),
        other => format!("{other:?}"),
    }
}

fn plain_pair(part: &[u8]) -> (Vec<u8>, Result<String, NotUtf8>) {
    let mut halves = part.splitn(2, |byte| *byte == b'=');
    let mut half = || plain_decode(halves.next().unwrap_or_default(), b' ');
    (half(), String::from_utf8(half()).map_err(|_| NotUtf8))
}

/// Percent-decoding written for clarity alone.
fn plain_decode(raw: &[u8], plus: u8) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < raw.len() {
        let digits = raw.get(at + 1..at + 3).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (raw[at], value) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 3;
                continue;
            }
            (b'+', _) => decoded.push(plus),
            (byte, _) => decoded.push(byte),
        }
        at += 1;
    }
    decoded
}

fn percent_encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if byte.is_ascii_alphanumeric() { char::from(*byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
