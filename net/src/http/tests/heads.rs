//! Which heads are accepted, and what is read out of them.

use super::super::{Decoded, HEADER_LINES_MAX, Head, Limits, Method, Reader, Version};
use super::Outcome::*;
use super::{check, outcome};

/// The head of the one request in `sent`, given to `look`.
fn with_head(sent: &str, look: impl FnOnce(&Head<'_>)) {
    let mut input = sent.as_bytes();
    match Reader::default().decode(&mut input, &Limits::default()) {
        Decoded::Request(request) => look(&request.head),
        other => panic!("{sent:?} came to {other:?}"),
    }
}

#[test]
fn request_lines_are_method_target_version_with_one_space_between() {
    check(&[
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", Accepted),
        ("BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n", Accepted),
        ("GET  / HTTP/1.1\r\nHost: x\r\n\r\n", Malformed),
        ("GET /  HTTP/1.1\r\nHost: x\r\n\r\n", Malformed),
        ("GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n", Malformed),
        (" GET / HTTP/1.1\r\nHost: x\r\n\r\n", Malformed),
        ("GET / HTTP/1.1 \r\nHost: x\r\n\r\n", Malformed),
        ("GET /\r\nHost: x\r\n\r\n", Malformed),
        ("GET\r\n\r\n", Malformed),
        ("/ HTTP/1.1\r\nHost: x\r\n\r\n", Malformed),
        ("G(T / HTTP/1.1\r\nHost: x\r\n\r\n", Malformed),
        ("\x16\x03\x01\x02", Malformed),
        ("GET / HT", Waiting),
    ]);
}

#[test]
fn versions_other_than_1_0_and_1_1_are_told_from_garbage() {
    check(&[
        ("GET / HTTP/1.0\r\n\r\n", Accepted),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", VersionUnsupported),
        ("GET / HTTP/1.2\r\nHost: x\r\n\r\n", VersionUnsupported),
        ("GET / HTTP/3.7\r\nHost: x\r\n\r\n", VersionUnsupported),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VersionUnsupported),
        ("GET / http/1.1\r\nHost: x\r\n\r\n", Malformed),
        ("GET / FTP/1.1\r\nHost: x\r\n\r\n", Malformed),
        ("GET / HTTP/1\r\nHost: x\r\n\r\n", Malformed),
        ("GET / HTTP/1.10\r\nHost: x\r\n\r\n", Malformed),
        ("GET / \r\nHost: x\r\n\r\n", Malformed),
    ]);
}

#[test]
fn header_lines_of_doubtful_form_are_refused() {
    check(&[
        ("GET / HTTP/1.1\r\nhOST:x\r\nX-A: \t b \t\r\nX-B:\r\n\r\n", Accepted),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A: \u{fc}\r\n\r\n", Accepted),
        ("GET / HTTP/1.1\r\nHost: x\r\nNoColon\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A : b\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nX A: b\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\n Host: x\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n folded\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n\tfolded\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A: b\0c\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A: b\x7fc\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A: b\x0bc\r\n\r\n", Malformed),
    ]);
}

#[test]
fn a_bare_lf_or_cr_anywhere_in_a_head_is_refused() {
    check(&[
        ("GET / HTTP/1.1\nHost: x\n\n", Malformed),
        ("GET / HTTP/1.1\nHost: x\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\n\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\r\nHost: x\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\n\rA", Malformed),
        ("GET / HTTP/1.1\rHost: x\r\n\r\n", Malformed),
    ]);
}

#[test]
fn host_is_there_once_and_looks_like_one() {
    check(&[
        ("GET / HTTP/1.1\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n", Malformed),
        ("GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n", Malformed),
        ("GET / HTTP/1.0\r\n\r\n", Accepted),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", Accepted),
        ("GET / HTTP/1.1\r\nHost: a_b.example:6632\r\n\r\n", Accepted),
        ("GET / HTTP/1.1\r\nHost: [::1]:6632\r\n\r\n", Accepted),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Malformed),
        ("GET / HTTP/1.1\r\nHost: user@x\r\n\r\n", Malformed),
        ("GET http://x/ HTTP/1.1\r\n\r\n", Malformed),
    ]);
}

#[test]
fn content_length_is_one_number() {
    check(&[
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length:   1   \r\n\r\n1", Accepted),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0001\r\n\r\n1", Accepted),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n1", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n1", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n1", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1\r\n\r\n1", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1.0\r\n\r\n1", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n", BodyTooLarge),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999999\r\n\r\n", BodyTooLarge),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 67108865\r\n\r\n", BodyTooLarge),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n", Waiting),
    ]);
}

#[test]
fn transfer_encoding_is_chunked_and_nothing_else() {
    check(&[
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", Accepted),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", CodingUnsupported),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Malformed),
        ("POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Malformed),
    ]);
}

#[test]
fn targets_of_every_form_are_reduced_to_path_and_query() {
    let table: [(&str, &str, Option<&str>); 9] = [
        ("GET /a/b?c=d?e", "/a/b", Some("c=d?e")),
        ("GET /a?", "/a", Some("")),
        ("GET //a", "//a", None),
        ("GET http://x/a?b", "/a", Some("b")),
        ("GET HTTPS://x:1/a/http://y", "/a/http://y", None),
        ("GET http://x", "/", None),
        ("GET http://x?b", "/", Some("b")),
        ("OPTIONS *", "*", None),
        ("CONNECT x:1", "x:1", None),
    ];
    for (line, path, query) in table {
        with_head(&format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n"), |head| {
            assert_eq!((head.path, head.query), (path.as_bytes(), query.map(str::as_bytes)), "{line}");
            assert_eq!(Some(head.target), line.split(' ').nth(1).map(str::as_bytes));
        });
    }
}

#[test]
fn targets_of_no_form_are_refused() {
    for target in ["a", "*", "x:1", "ftp://x/", "http:///a", "http://u@x/", "http:/x", "/a#b", "?a", "http://x#a"] {
        assert_eq!(outcome(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes(), &Limits::default()), Malformed, "{target}");
    }
    assert_eq!(outcome(b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", &Limits::default()), Malformed);
    assert_eq!(outcome(b"CONNECT /a HTTP/1.1\r\nHost: x\r\n\r\n", &Limits::default()), Malformed);
}

#[test]
fn methods_are_case_sensitive_and_unknown_ones_are_left_to_the_route() {
    let table = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("get", Method::Other),
        ("PATCH", Method::Other),
    ];
    for (name, wanted) in table {
        with_head(&format!("{name} / HTTP/1.1\r\nHost: x\r\n\r\n"), |head| assert_eq!(head.method, wanted));
    }
}

#[test]
fn a_connection_lives_on_by_its_version_and_its_options() {
    let table = [
        ("HTTP/1.1", "", true),
        ("HTTP/1.1", "Connection: close\r\n", false),
        ("HTTP/1.1", "Connection: Keep-Alive, CLOSE\r\n", false),
        ("HTTP/1.1", "Connection: keep-alive\r\nConnection: x, close\r\n", false),
        ("HTTP/1.1", "Connection: closed\r\n", true),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "Connection: keep-alive\r\n", true),
        ("HTTP/1.0", "Connection: keep-alive, close\r\n", false),
    ];
    for (version, lines, wanted) in table {
        with_head(&format!("GET / {version}\r\nHost: x\r\n{lines}\r\n"), |head| {
            assert_eq!(head.keep_alive, wanted, "{version} {lines:?}");
            assert_eq!(head.version, if version == "HTTP/1.0" { Version::Http10 } else { Version::Http11 });
        });
    }
}

#[test]
fn headers_are_found_by_name_in_any_case_and_the_first_counts() {
    with_head("GET / HTTP/1.1\r\nHost: x:1\r\nAUTHORIZATION: \t Bearer a:b \t\r\nx-empty:\r\nAuthorization: c\r\n\r\n", |head| {
        assert_eq!(head.header("authorization"), Some(&b"Bearer a:b"[..]));
        assert_eq!(head.header("host"), Some(&b"x:1"[..]));
        assert_eq!(head.header("x-empty"), Some(&b""[..]));
        assert_eq!(head.header("x-queen-tenant"), None);
        let names: Vec<_> = head.fields().map(|(name, _)| name).collect();
        assert_eq!(names, [&b"Host"[..], b"AUTHORIZATION", b"x-empty", b"Authorization"]);
    });
    with_head("GET / HTTP/1.0\r\n\r\n", |head| assert_eq!(head.fields().count(), 0));
}

#[test]
fn a_head_may_have_a_hundred_lines_and_128_kib() {
    let limits = Limits::default();
    let with_lines = |count: usize| format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A:\r\n".repeat(count - 1));
    assert_eq!(outcome(with_lines(HEADER_LINES_MAX).as_bytes(), &limits), Accepted);
    assert_eq!(outcome(with_lines(HEADER_LINES_MAX + 1).as_bytes(), &limits), HeadersTooLarge);
    let frame = "GET / HTTP/1.1\r\nHost: x\r\nA: \r\n\r\n".len();
    let with_bytes = |count: usize| format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(count - frame));
    assert_eq!(outcome(with_bytes(limits.head_bytes).as_bytes(), &limits), Accepted);
    assert_eq!(outcome(with_bytes(limits.head_bytes + 1).as_bytes(), &limits), HeadersTooLarge);
    let unfinished = with_bytes(2_000_000);
    assert_eq!(outcome(&unfinished.as_bytes()[..limits.head_bytes + 1], &limits), HeadersTooLarge);
}

#[test]
fn a_target_may_have_64_kib() {
    let limits = Limits::default();
    let with_target = |count: usize| format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(count - 1));
    assert_eq!(outcome(with_target(limits.target_bytes).as_bytes(), &limits), Accepted);
    assert_eq!(outcome(with_target(limits.target_bytes + 1).as_bytes(), &limits), TargetTooLong);
    assert_eq!(outcome(with_target(limits.head_bytes * 2).as_bytes(), &limits), TargetTooLong);
    assert_eq!(outcome(&with_target(limits.head_bytes).as_bytes()[..limits.target_bytes + 5], &limits), TargetTooLong);
}
