//! What answers look like on the wire.

use std::time::{Duration, UNIX_EPOCH};

use super::super::{Answer, Connection, ContentType, DateText, Decoded, Delivery, Limits, Reader, Status};

const KEPT: Delivery = Delivery { connection: Connection::Kept, is_head_only: false };

fn date() -> DateText {
    DateText::new(UNIX_EPOCH + Duration::from_secs(784_111_777))
}

fn appended(answer: &Answer, delivery: Delivery, body: &[u8]) -> String {
    let mut out = b"before".to_vec();
    answer.append(&mut out, delivery, &date(), body);
    String::from_utf8(out).expect("text").strip_prefix("before").expect("what was there stays").to_owned()
}

fn finished(answer: &Answer, delivery: Delivery, body: &[u8]) -> String {
    let mut out = b"before".to_vec();
    let open = answer.open(&mut out, delivery, &date());
    out.extend_from_slice(body);
    open.finish(&mut out);
    String::from_utf8(out).expect("text").strip_prefix("before").expect("what was there stays").to_owned()
}

/// Status, sorted header lines, body, as a client reads them.
fn parsed(answer: &str) -> (u16, Vec<(String, String)>, String) {
    let mut lines = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut lines);
    let Ok(httparse::Status::Complete(head_bytes)) = response.parse(answer.as_bytes()) else { panic!("{answer:?}") };
    let line = |header: &httparse::Header<'_>| (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned());
    let mut headers: Vec<_> = response.headers.iter().map(line).collect();
    headers.sort();
    (response.code.expect("a code"), headers, answer[head_bytes..].to_owned())
}

#[test]
fn an_ordinary_answer_has_exactly_three_header_lines() {
    let text = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 12\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{\"pushed\":1}";
    assert_eq!(appended(&Answer::json(Status::Created), KEPT, b"{\"pushed\":1}"), text);
}

#[test]
fn an_answer_written_in_place_reads_as_one_appended_whole() {
    for body_bytes in [0, 1, 9, 10, 99_999, 1 << 20] {
        let body = vec![b'a'; body_bytes];
        for is_head_only in [false, true] {
            let delivery = Delivery { is_head_only, ..KEPT };
            let whole = parsed(&appended(&Answer::json(Status::Ok), delivery, &body));
            assert_eq!(parsed(&finished(&Answer::json(Status::Ok), delivery, &body)), whole);
            assert_eq!(whole.2.len(), if is_head_only { 0 } else { body_bytes });
            assert!(whole.1.contains(&("content-length".to_owned(), body_bytes.to_string())), "also for HEAD");
        }
    }
}

#[test]
fn answers_say_what_becomes_of_the_connection() {
    let table = [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", None),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", Some("close")),
        ("GET / HTTP/1.0\r\n\r\n", Some("close")),
        ("HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("keep-alive")),
    ];
    for (request, wanted) in table {
        let mut reader = Reader::default();
        let Decoded::Request(request) = reader.decode(&mut request.as_bytes(), &Limits::default()) else { panic!("{request}") };
        let delivery = Delivery::of(&request.head);
        let connection = |delivery| {
            let (_, headers, _) = parsed(&appended(&Answer::json(Status::Ok), delivery, b"{}"));
            headers.into_iter().find(|(name, _)| name == "connection").map(|(_, value)| value)
        };
        assert_eq!(connection(delivery).as_deref(), wanted);
        assert_eq!(connection(delivery.closing()).as_deref(), Some("close"));
        assert_eq!(delivery.closing().is_head_only, delivery.is_head_only);
    }
}

#[test]
fn allow_retry_after_and_other_types_are_there_when_asked_for() {
    let answer = Answer { allow: Some("GET, HEAD"), ..Answer::json(Status::MethodNotAllowed) };
    let (code, headers, _) = parsed(&appended(&answer, Delivery::REFUSAL, b"{}"));
    assert_eq!(code, 405);
    assert!(headers.contains(&("allow".to_owned(), "GET, HEAD".to_owned())));
    assert!(headers.contains(&("connection".to_owned(), "close".to_owned())));
    let answer = Answer { retry_after_s: Some(4_294_967_295), ..Answer::json(Status::TooManyRequests) };
    let (_, headers, _) = parsed(&finished(&answer, KEPT, b"{}"));
    assert!(headers.contains(&("retry-after".to_owned(), "4294967295".to_owned())));
    let answer = Answer { content_type: ContentType::Html, ..Answer::json(Status::Ok) };
    let (_, headers, _) = parsed(&appended(&answer, KEPT, b"<p>"));
    assert!(headers.contains(&("content-type".to_owned(), "text/html; charset=utf-8".to_owned())));
    assert_eq!(headers.len(), 3);
}

#[test]
fn every_status_is_rendered_with_its_own_code() {
    for status in Status::ALL {
        for content_type in [ContentType::Json, ContentType::Metrics] {
            let answer = Answer { content_type, ..Answer::json(*status) };
            assert_eq!(parsed(&appended(&answer, KEPT, b"{}")).0, status.code());
        }
    }
    assert!(Status::ALL.is_sorted_by_key(|status| status.code()));
}
