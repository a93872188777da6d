//! How bodies are framed, bounded and held.

use super::super::{Decoded, Limits, Reader, Refused, Stage};
use super::Outcome::*;
use super::{Outcome, outcome, outcome_of_pieces};

const CHUNKED: &str = "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunked_outcome(body: &str, limits: &Limits) -> Outcome {
    outcome(format!("{CHUNKED}{body}").as_bytes(), limits)
}

/// The body of the one request in `sent`, fed in pieces of `piece_bytes`.
fn body_of(sent: &[u8], piece_bytes: usize) -> Option<Vec<u8>> {
    let mut reader = Reader::default();
    for mut piece in sent.chunks(piece_bytes) {
        loop {
            match reader.decode(&mut piece, &Limits::default()) {
                Decoded::Request(request) => return Some(request.body.to_vec()),
                Decoded::Incomplete => break,
                Decoded::Opened(_) | Decoded::Continue => {}
                Decoded::Refused(refused) => panic!("{refused:?}"),
            }
        }
    }
    None
}

/// Asserts that a head is complete at the end of what `input` has of it, and that nothing behind it was taken.
#[track_caller]
fn assert_opened(reader: &mut Reader, input: &mut &[u8]) {
    let before = *input;
    assert!(matches!(reader.decode(input, &Limits::default()), Decoded::Opened(_)));
    assert!(before[..before.len() - input.len()].ends_with(b"\r\n\r\n"));
}

#[test]
fn a_head_is_told_once_before_its_body_unless_both_are_there() {
    let told = |pieces: &[&str]| {
        let (mut reader, mut told) = (Reader::default(), Vec::new());
        for piece in pieces {
            let mut input = piece.as_bytes();
            loop {
                told.push(match reader.decode(&mut input, &Limits::default()) {
                    Decoded::Incomplete => break,
                    Decoded::Opened(head) => format!("opened {}", head.path.escape_ascii()),
                    Decoded::Continue => "continue".to_owned(),
                    Decoded::Request(request) => format!("request {}", request.body.escape_ascii()),
                    Decoded::Refused(refused) => format!("{refused:?}"),
                });
            }
        }
        told
    };
    let (post, expect) = ("POST /p HTTP/1.1\r\nHost: x\r\n", "Expect: 100-continue\r\n");
    let declared = format!("{post}Content-Length: 2\r\n\r\n");
    assert_eq!(told(&[&format!("{declared}ab")]), ["request ab"]);
    assert_eq!(told(&[&declared, "a", "b"]), ["opened /p", "request ab"]);
    assert_eq!(told(&[&format!("{declared}a"), "b"]), ["opened /p", "request ab"]);
    assert_eq!(told(&["POST /p HT", &declared[10..], "ab"]), ["opened /p", "request ab"]);
    assert_eq!(told(&["POST /p HT", &format!("{post}\r\n")[10..]]), ["request "], "it has no body");
    assert_eq!(told(&[&format!("{CHUNKED}0\r\n\r\n")]), ["opened /p", "request "]);
    assert_eq!(told(&[&format!("{post}{expect}Content-Length: 2\r\n\r\n"), "ab"]), ["opened /p", "continue", "request ab"]);
    let twice = format!("{declared}ab{declared}");
    assert_eq!(told(&[&twice, "cd"]), ["request ab", "opened /p", "request cd"]);
    assert_eq!(told(&[&format!("{post}Content-Length: 99999999999\r\n\r\n")])[0], "opened /p", "before its body is too large");
}

#[test]
fn chunks_are_joined_and_extensions_and_trailers_dropped() {
    let table = [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("2\r\nhe\r\n3;a=b\r\nllo\r\n000;x\r\nX-Trailer: 1\r\nY:\r\n\r\n", "hello"),
        ("00000000000000A;q=\"\t\"\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n"),
    ];
    for (sent, wanted) in table {
        let sent = format!("{CHUNKED}{sent}");
        for piece_bytes in 1..=sent.len() {
            assert_eq!(body_of(sent.as_bytes(), piece_bytes).as_deref(), Some(wanted.as_bytes()), "{sent:?} by {piece_bytes}");
        }
    }
}

#[test]
fn malformed_chunks_are_refused() {
    let table = [
        "\r\n",
        ";a\r\n",
        "+5\r\nhello\r\n",
        "-5\r\nhello\r\n",
        "0x5\r\nhello\r\n",
        " 5\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "5 ;a\r\n",
        "5_\r\n",
        "g\r\n",
        "10000000000000000\r\n",
        "00000000000000005\r\nhello",
        "5\nhello\r\n",
        "5\rhello",
        "5\r\nhelloX",
        "5\r\nhello\n",
        "5\r\nhello\rX",
        "5;a\nhello",
        "5;\0\r\n",
        "5;a\rb\r\n",
        "0\n\r\n",
        "0\r\n\n",
    ];
    for sent in table {
        assert_eq!(chunked_outcome(sent, &Limits::default()), Malformed, "{}", sent.escape_debug());
    }
}

#[test]
fn malformed_trailers_are_refused() {
    for sent in [
        "0\r\nNoColon\r\n\r\n",
        "0\r\nA : b\r\n\r\n",
        "0\r\n: b\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\nA: b\r\n folded\r\n",
        "0\r\nA: \0\r\n",
        "0\r\n\rX",
    ] {
        assert_eq!(chunked_outcome(sent, &Limits::default()), Malformed, "{}", sent.escape_debug());
    }
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let limits = Limits { header_lines: 3, head_bytes: 100, ..Limits::default() };
    let extensions = |bytes: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(bytes - 1));
    assert_eq!(chunked_outcome(&extensions(16 << 10), &limits), Accepted);
    assert_eq!(chunked_outcome(&extensions((16 << 10) + 1), &limits), Malformed);
    let spread = "1;aaaaaaa\r\nx\r\n".repeat((16 << 10) / 8);
    assert_eq!(chunked_outcome(&format!("{spread}0\r\n\r\n"), &limits), Accepted);
    assert_eq!(chunked_outcome(&format!("{spread}0;\r\n\r\n"), &limits), Malformed);
    assert_eq!(chunked_outcome("0\r\nA:\r\nB:\r\nC:\r\n\r\n", &limits), Accepted);
    assert_eq!(chunked_outcome("0\r\nA:\r\nB:\r\nC:\r\nD:\r\n\r\n", &limits), Malformed);
    let trailer = |bytes: usize| format!("0\r\nA:{}\r\n\r\n", "a".repeat(bytes - 5));
    assert_eq!(chunked_outcome(&trailer(limits.head_bytes), &limits), Accepted);
    assert_eq!(chunked_outcome(&trailer(limits.head_bytes + 1), &limits), Malformed);
}

#[test]
fn a_body_may_be_exactly_the_limit_and_one_byte_more_is_refused_unread() {
    let limits = Limits { body_bytes: 8, ..Limits::default() };
    let declared = |count: usize, sent: &str| format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {count}\r\n\r\n{sent}");
    assert_eq!(outcome(declared(8, "12345678").as_bytes(), &limits), Accepted);
    assert_eq!(outcome(declared(9, "").as_bytes(), &limits), BodyTooLarge);
    assert_eq!(outcome(declared(9, "123456789").as_bytes(), &limits), BodyTooLarge);
    assert_eq!(chunked_outcome("5\r\nhello\r\n3\r\n123\r\n0\r\n\r\n", &limits), Accepted);
    assert_eq!(chunked_outcome("5\r\nhello\r\n4\r\n", &limits), BodyTooLarge);
    assert_eq!(chunked_outcome("FFFFFFFFFFFFFFFF\r\n", &limits), BodyTooLarge);
}

#[test]
fn a_refused_body_leaves_the_head_for_the_identity_check() {
    let sent = format!("{CHUNKED}5\r\nhello\r\nFFFFFFFF\r\n");
    let declared = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nbody";
    for sent in [sent.as_bytes(), declared] {
        let mut reader = Reader::default();
        let mut input = sent;
        assert_opened(&mut reader, &mut input);
        match reader.decode(&mut input, &Limits::default()) {
            Decoded::Refused(Refused::BodyTooLarge(head)) => assert_eq!((head.path, head.header("HOST")), (&b"/p"[..], Some(&b"x"[..]))),
            other => panic!("{other:?}"),
        }
        assert!(input.is_empty());
        assert_eq!(reader.stage(), Stage::Ended);
        reader.release();
        assert_eq!(reader.buffered_bytes(), 0);
    }
}

#[test]
fn memory_follows_what_arrived_and_not_what_was_declared() {
    let limits = Limits::default();
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n";
    let mut reader = Reader::default();
    assert_opened(&mut reader, &mut &head[..]);
    assert!(reader.buffered_bytes() <= 2 * head.len(), "nothing for a body that may never be wanted");
    assert_eq!(reader.decode(&mut &b""[..], &limits), Decoded::Incomplete);
    assert!(reader.buffered_bytes() <= (64 << 10) + head.len());
    let piece = [b'a'; 10_000];
    for count in 1..=100 {
        assert_eq!(reader.decode(&mut &piece[..], &limits), Decoded::Incomplete);
        assert!(reader.buffered_bytes() <= 2 * (head.len() + count * piece.len() + (64 << 10)), "after {count} pieces");
    }
    assert_eq!(reader.stage(), Stage::Body);
}

#[test]
fn a_small_declared_body_takes_no_more_than_itself() {
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
    let mut reader = Reader::default();
    assert_opened(&mut reader, &mut &head[..]);
    assert_eq!(reader.decode(&mut &b""[..], &Limits::default()), Decoded::Incomplete);
    assert!(reader.buffered_bytes() <= 1000 + head.len());
}

#[test]
fn a_connection_holds_nothing_once_its_request_is_done_with() {
    let sent = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
    let mut reader = Reader::default();
    for _ in 0..2 {
        let (first, mut second) = sent.split_at(20);
        assert_eq!(reader.decode(&mut &first[..], &Limits::default()), Decoded::Incomplete);
        assert_opened(&mut reader, &mut second);
        assert!(matches!(reader.decode(&mut second, &Limits::default()), Decoded::Request(request) if request.body == b"body"));
        assert_eq!(reader.stage(), Stage::Idle);
        reader.release();
        assert_eq!(reader.buffered_bytes(), 0);
    }
    assert_eq!(outcome_of_pieces(&[&sent[..20], &sent[20..]], &Limits::default()), Accepted);
}

#[test]
fn requests_that_lie_whole_in_the_input_are_borrowed_from_it() {
    let sent = *b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET /q HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut reader = Reader::default();
    let mut input = &sent[..];
    for wanted in [&b"body"[..], b""] {
        match reader.decode(&mut input, &Limits::default()) {
            Decoded::Request(request) => {
                assert_eq!(request.body, wanted);
                assert!(sent.as_ptr_range().contains(&request.head.path.as_ptr()), "in place");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(reader.buffered_bytes(), 0);
    }
}
