//! Requests that follow one another, interim answers, and where a connection stands.

use super::super::{Decoded, Limits, Reader, Stage};
use super::Outcome::*;
use super::check;

/// Feeds `pieces` and writes down what came of each, in short.
fn story(pieces: &[&str]) -> Vec<String> {
    let mut reader = Reader::default();
    let mut seen = Vec::new();
    for piece in pieces {
        let mut input = piece.as_bytes();
        loop {
            match reader.decode(&mut input, &Limits::default()) {
                Decoded::Incomplete => break,
                Decoded::Opened(_) => {}
                Decoded::Continue => seen.push("continue".to_owned()),
                Decoded::Request(request) => {
                    seen.push(format!("{} {}", request.head.path.escape_ascii(), request.body.escape_ascii()).trim_end().to_owned());
                }
                Decoded::Refused(_) => seen.push("refused".to_owned()),
            }
        }
        seen.push(format!("{:?}", reader.stage()).to_lowercase());
    }
    seen
}

#[test]
fn pipelined_requests_come_out_in_order() {
    let sent = "POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na\
                GET /2 HTTP/1.1\r\nHost: x\r\n\r\n\
                POST /3 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n\
                GET /4 HTTP/1.1\r\nHo";
    assert_eq!(story(&[sent, "st: x\r\n\r\n"]), ["/1 a", "/2", "/3 b", "head", "/4", "idle"]);
}

#[test]
fn after_a_closing_request_or_a_refusal_nothing_is_read() {
    let request = "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n";
    let closing = "GET /1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(story(&[&format!("{closing}{request}"), request]), ["/1", "ended", "ended"]);
    assert_eq!(story(&["GET /1 HTTP/1.0\r\n\r\nG", request]), ["/1", "ended", "ended"]);
    assert_eq!(story(&[&format!("\n{request}"), request]), ["refused", "ended", "ended"]);
    assert_eq!(story(&["GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", request]), ["/1", "idle", "/1", "idle"]);
}

#[test]
fn an_expectant_head_is_told_to_continue_once_and_only_when_it_waits() {
    let head = "POST /1 HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n";
    let chunked = "POST /1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(story(&[head, "a", "b"]), ["continue", "body", "body", "/1 ab", "idle"]);
    assert_eq!(story(&[&head[..30], &head[30..], "ab"]), ["head", "continue", "body", "/1 ab", "idle"]);
    assert_eq!(story(&[chunked, "1\r\na\r\n0\r\n\r\n"]), ["continue", "body", "/1 a", "idle"]);
    assert_eq!(story(&[&format!("{head}a"), "b"]), ["body", "/1 ab", "idle"], "the body is under way");
    assert_eq!(story(&[&head.replace(": 2", ": 0")]), ["/1", "idle"], "there is no body");
    assert_eq!(story(&[&head.replace(": 2", ": 99999999999")]), ["refused", "ended"], "the body is refused");
    assert_eq!(story(&[&head.replace("HTTP/1.1", "HTTP/1.0"), "ab"]), ["body", "/1 ab", "ended"], "HTTP/1.0 knows no 100");
    assert_eq!(story(&[&head.replace("100-Continue", "200-ok"), "ab"]), ["body", "/1 ab", "idle"], "an unknown expectation");
}

#[test]
fn empty_lines_before_a_request_are_skipped_within_bounds() {
    let request = "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(story(&[&format!("\r\n\r\n{request}\r\n{request}\r\n")]), ["/1", "/1", "idle"]);
    assert_eq!(story(&["\r", "\n\r", "\n", request]), ["idle", "idle", "idle", "/1", "idle"]);
    let blank = |count: usize| "\r\n".repeat(count);
    assert_eq!(story(&[&format!("{}{request}", blank(8)), &format!("{}{request}", blank(8))]), ["/1", "idle", "/1", "idle"]);
    assert_eq!(story(&[&blank(9)]), ["refused", "ended"]);
    check(&[("\n", Malformed), ("\r\r", Malformed), ("\rGET", Malformed), ("\r\n\nGET", Malformed), ("\r\n\r", Waiting)]);
}

#[test]
fn a_head_that_is_dribbled_in_is_looked_at_once_a_byte() {
    // 128 KiB byte by byte: a second. Parsed from the start at each byte it would be eight billion steps.
    let sent = format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(130_000));
    let mut reader = Reader::default();
    let mut request_count = 0;
    for mut byte in sent.as_bytes().chunks(1) {
        request_count += u32::from(matches!(reader.decode(&mut byte, &Limits::default()), Decoded::Request(_)));
    }
    assert_eq!((request_count, reader.stage()), (1, Stage::Idle));
}
