//! The properties, fed with random bytes, with random sequences of what HTTP is made of, and with valid streams that were
//! damaged in one place.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::Limits;
use super::properties::{self, Seen};

/// What streams of requests are made of, the dubious included.
const FRAGMENTS: &[&str] = &[
    "GET ",
    "POST ",
    "HEAD ",
    "OPTIONS ",
    "/",
    "/a?b=c",
    "http://x/",
    "*",
    "#",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    " HTTP/2.0\r\n",
    "\r\n",
    "\r\n\r\n",
    "\r",
    "\n",
    " ",
    "\t",
    ":",
    ",",
    "Host: x\r\n",
    "Host:",
    "Content-Length: 5\r\n",
    "Content-Length: 99999999999\r\n",
    "Content-Length: ",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Expect: 100-continue\r\n",
    "A: b\r\n",
    "A : b\r\n",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\n",
    "3;a=b\r\n",
    "FFFFFFFFFFFFFFFF",
    "hello",
    "0",
    "5",
    "%2F",
    "%",
    "+",
    "=",
    "&",
    "\0",
    "\u{fc}",
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\n",
    "POST /p HTTP/1.1\r\nHost: x\r\n",
];

fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        9 => proptest::sample::select(FRAGMENTS).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..3),
    ];
    vec(fragment, 0..16).prop_map(|parts| parts.concat())
}

/// One well-formed request and what must be read out of it.
#[derive(Clone, Debug)]
struct Sample {
    text: Vec<u8>,
    body: Vec<u8>,
}

fn sample() -> impl Strategy<Value = Sample> {
    let framing = prop_oneof![Just(None), (1_usize..40).prop_map(Some)];
    (
        0_usize..3,
        "/[a-z/%]{0,9}(\\?[a-z=&+]{0,9})?",
        vec("[A-Za-z][A-Za-z-]{20,24}: [ -~]{0,9}\r\n", 0..3),
        vec(any::<u8>(), 0..100),
        framing,
    )
        .prop_map(|(blank_lines, target, lines, body, chunk_bytes)| {
            let mut text = "\r\n".repeat(blank_lines).into_bytes();
            text.extend_from_slice(format!("POST {target} HTTP/1.1\r\nHost: x\r\n{}", lines.concat()).as_bytes());
            match chunk_bytes {
                None => {
                    text.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
                    text.extend_from_slice(&body);
                }
                Some(chunk_bytes) => {
                    text.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    for chunk in body.chunks(chunk_bytes) {
                        text.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                        text.extend_from_slice(chunk);
                        text.extend_from_slice(b"\r\n");
                    }
                    text.extend_from_slice(b"0\r\n\r\n");
                }
            }
            Sample { text, body }
        })
}

/// Valid requests in a row with one byte replaced, added or taken out.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    (vec(sample(), 1..3), any::<prop::sample::Index>(), proptest::sample::select(&b"\r\n\0 :;,0aF\x80"[..]), 0_u8..3).prop_map(
        |(samples, place, byte, kind)| {
            let mut stream: Vec<u8> = samples.into_iter().flat_map(|sample| sample.text).collect();
            let at = place.index(stream.len());
            match kind {
                0 => stream[at] = byte,
                1 => stream.insert(at, byte),
                _ => drop(stream.remove(at)),
            }
            stream
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_means_the_same_however_it_is_split(
        stream in prop_oneof![3 => fragments(), 3 => damaged(), 1 => vec(any::<u8>(), 0..200)], choice in any::<u8>(), cut in any::<u8>()
    ) {
        properties::requests(&[&[choice, cut], &stream[..]].concat());
    }

    #[test]
    fn any_chunked_body_means_the_same_however_it_is_split(
        body in prop_oneof![fragments(), vec(any::<u8>(), 0..300)], choice in any::<u8>(), cut in any::<u8>()
    ) {
        properties::chunks(&[&[choice, cut], &body[..]].concat());
    }

    #[test]
    fn valid_requests_come_out_as_they_went_in(samples in vec(sample(), 1..5), piece_bytes in 1_usize..300) {
        let stream: Vec<u8> = samples.iter().flat_map(|sample| sample.text.clone()).collect();
        let pieces: Vec<_> = stream.chunks(piece_bytes).collect();
        let (seen, _) = properties::decode_pieces(&pieces, &Limits::default());
        let bodies: Vec<_> = seen.into_iter().map(|seen| match seen {
            Seen::Request { body, .. } => body,
            Seen::Refused(why) => panic!("{why}"),
        }).collect();
        prop_assert_eq!(bodies, samples.into_iter().map(|sample| sample.body).collect::<Vec<_>>());
    }

    #[test]
    fn any_query_decodes_as_the_rules_say(query in prop_oneof![vec(any::<u8>(), 0..60), "[a-c=&+%0-9A-F]{0,40}".prop_map(String::into_bytes)]) {
        properties::queries(&query);
    }

    #[test]
    fn any_path_decodes_as_the_rules_say(path in prop_oneof![vec(any::<u8>(), 0..60), "/[a-c/+%0-9A-F]{0,40}".prop_map(String::into_bytes)]) {
        properties::paths(&path);
    }
}
