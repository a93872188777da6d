use super::*;

fn called(body: &str) -> Result<CallRequest<'_>, Fault> {
    call(body.as_bytes())
}

fn replied(body: &str) -> Result<ReplyRequest<'_>, Fault> {
    reply(body.as_bytes(), &Incarnation::new(0xab))
}

fn text(append: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    append(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_call_is_read_whatever_its_spelling() {
    let plain = called(r#"{"queue":"q","payload": { "a" : 1e400 } }"#).unwrap();
    assert_eq!((&*plain.queue, &*plain.partition, plain.payload), ("q", "Default", br#"{ "a" : 1e400 }"#.as_slice()));
    assert_eq!((plain.timeout, plain.fail_fast), (Span::from_secs(30), false));
    let full = called(r#"{"failFast":true,"timeout":1500,"payload":null,"x":1,"x":2,"partition":"p","queue":"q"}"#).unwrap();
    assert_eq!((&*full.partition, full.payload, full.timeout, full.fail_fast), ("p", b"null".as_slice(), Span::from_millis(1_500), true));
    let nulls = called(r#"{"queue":"q","payload":0,"partition":null,"timeout":null,"failFast":null}"#).unwrap();
    assert_eq!((&*nulls.partition, nulls.timeout, nulls.fail_fast), ("Default", Span::from_secs(30), false));
}

#[test]
fn a_calls_timeout_is_an_integer_and_clamped() {
    for (spelled, ms) in [("0", 0), ("-5", 0), ("300000", 300_000), ("300001", 300_000), ("99999999999999999999", 300_000)] {
        let body = format!(r#"{{"queue":"q","payload":0,"timeout":{spelled}}}"#);
        assert_eq!(called(&body).unwrap().timeout, Span::from_millis(ms), "{spelled}");
    }
    let integer = Fault::WrongType { field: "timeout", expected: "an integer" };
    for spelled in ["1.0", "1e3", "true", "\"1\"", "[]", "{}"] {
        assert_eq!(called(&format!(r#"{{"queue":"q","payload":0,"timeout":{spelled}}}"#)), Err(integer.clone()), "{spelled}");
    }
}

#[test]
fn what_is_wrong_with_a_call_is_named() {
    let table = [
        (r#"{"payload":1}"#, Fault::Missing("queue")),
        (r#"{"queue":"q"}"#, Fault::Missing("payload")),
        (r#"{"queue":"","payload":1}"#, Fault::NameEmpty("queue")),
        (r#"{"queue":"q","partition":"","payload":1}"#, Fault::NameEmpty("partition")),
        (r#"{"queue":"reply:00000000000000ab:1","payload":1}"#, Fault::NameReserved("queue")),
        (r#"{"queue":"q","payload":1,"payload":1}"#, Fault::Twice("payload")),
        (r#"{"queue":"q","payload":1,"timeout":1,"timeout":1}"#, Fault::Twice("timeout")),
        (r#"{"queue":"q","payload":1,"failFast":1}"#, Fault::WrongType { field: "failFast", expected: "true or false" }),
        (r#"[]"#, Fault::WrongType { field: "the body", expected: "an object" }),
        (r#"{"queue":"q","payload":1"#, Fault::NotJson { at: 24 }),
        (r#"{"queue":"q","payload":1}x"#, Fault::NotJson { at: 25 }),
        ("", Fault::NotJson { at: 0 }),
    ];
    for (body, fault) in table {
        assert_eq!(called(body), Err(fault), "{body}");
    }
}

#[test]
fn a_reply_names_inboxes_and_queues() {
    let body = concat!(
        r#"{"queue":"q","group":"g","replies":["#,
        r#"{"id":"e:00000000000000ab:Default:43","replyTo":"reply:00000000000000ab:2b","payload":[1, 2]},"#,
        r#"{"id":"x","payload":null,"replyTo":"reply:00000000000000ac:2b"},"#,
        r#"{"replyTo":"inbox","id":"","payload":""}]}"#
    );
    let request = replied(body).unwrap();
    assert_eq!((&*request.queue, &*request.group, &request.next), ("q", "g", &None));
    let seen: Vec<_> =
        request.replies.iter().map(|reply| (reply.ack.id.as_ref().map(|id| id.spelled_seq), &reply.to, reply.payload)).collect();
    let inbox = Target::Queue(Cow::Borrowed("inbox"));
    let expected = [
        (Some(43), &Target::Inbox(43), b"[1, 2]".as_slice()),
        (None, &Target::Elsewhere { incarnation: 172, number: 43 }, b"null"),
        (None, &inbox, b"\"\""),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn next_is_a_pop_of_the_replys_queue_and_group() {
    let next = |next: &str| {
        let body = format!(r#"{{"queue":"q","group":"g","replies":[],"next":{next}}}"#);
        replied(&body).map(|request| request.next.map(PopRequest::into_owned))
    };
    assert_eq!(next("null"), Ok(None));
    let plain = PopRequest { queue: "q".into(), partition: None, group: "g".into(), batch: 1, wait: None, auto_ack: false };
    assert_eq!(next("{}"), Ok(Some(plain.clone())));
    let nulls = r#"{"queue":null,"partition":null,"group":null,"batch":null,"wait":null,"timeout":null,"autoAck":null}"#;
    assert_eq!(next(nulls), Ok(Some(plain.clone())));
    let waiting = |ms| PopRequest { wait: Some(Span::from_millis(ms)), ..plain.clone() };
    assert_eq!(next(r#"{"wait":true}"#), Ok(Some(waiting(30_000))));
    assert_eq!(next(r#"{"wait":true,"timeout":5}"#), Ok(Some(waiting(5))));
    assert_eq!(next(r#"{"wait":true,"timeout":0}"#), Ok(Some(plain.clone())), "a wait of no time is none");
    let other =
        PopRequest { queue: "r".into(), partition: Some("p".into()), group: QUEUE_MODE.into(), batch: 10_000, auto_ack: true, ..plain };
    assert_eq!(next(r#"{"queue":"r","partition":"p","group":"","batch":10001,"commitOnDelivery":true}"#), Ok(Some(other)));
    let wrong = |field, expected| Err(Fault::WrongType { field, expected });
    assert_eq!(next(r#"{"batch":"1"}"#), wrong("next.batch", "an integer"));
    assert_eq!(next(r#"{"wait":"true"}"#), wrong("next.wait", "true or false"));
    assert_eq!(next("[]"), wrong("next", "an object"));
    assert_eq!(next(r#"{"queue":"reply:00000000000000ab:1"}"#), Err(Fault::NameReserved("next.queue")));
    assert_eq!(next(r#"{"wait":true,"wait":true}"#), Err(Fault::Twice("next.wait")));
}

#[test]
fn what_is_wrong_with_a_reply_is_named() {
    let item = |rest: &str| format!(r#"{{"queue":"q","replies":[{{{rest}}}]}}"#);
    let many = format!(r#"{{"queue":"q","replies":[{}]}}"#, vec![r#"{"id":"","replyTo":"r","payload":0}"#; 10_001].join(","));
    let table = [
        (r#"{"replies":[]}"#.to_owned(), Fault::Missing("queue")),
        (r#"{"queue":"q"}"#.to_owned(), Fault::Missing("replies")),
        (r#"{"queue":"q","replies":{}}"#.to_owned(), Fault::WrongType { field: "replies", expected: "an array" }),
        (item(r#""replyTo":"r","payload":0"#), Fault::Missing("replies[].id")),
        (item(r#""id":"","payload":0"#), Fault::Missing("replies[].replyTo")),
        (item(r#""id":"","replyTo":"r""#), Fault::Missing("replies[].payload")),
        (item(r#""id":"","replyTo":"","payload":0"#), Fault::NameEmpty("replies[].replyTo")),
        (item(r#""id":1,"replyTo":"r","payload":0"#), Fault::WrongType { field: "replies[].id", expected: "a string" }),
        (item(r#""id":"","id":"","replyTo":"r","payload":0"#), Fault::Twice("replies[].id")),
        (many, Fault::TooManyItems("replies")),
    ];
    for (body, fault) in table {
        assert_eq!(replied(&body), Err(fault), "{body:.80}");
    }
    assert!(replied(r#"{"queue":"q","group":null,"replies":[]}"#).is_ok_and(|request| request.group == QUEUE_MODE));
}

#[test]
fn answers_are_spelled_so() {
    assert_eq!(text(|out| answered(out, br#"{ "a" : 1 }"#)), r#"{"payload":{ "a" : 1 }}"#);
    let outcomes = [
        ReplyOutcome::Acked(Outcome::Acked),
        ReplyOutcome::Refused(Refusal::QueueFull { can_fit: true }),
        ReplyOutcome::Acked(Outcome::Stale),
    ];
    let spelled = [b"a".as_slice(), br"\u00e9", b""];
    let written = text(|out| results(out, spelled.into_iter().zip(&outcomes)));
    let expected = concat!(
        r#"{"results":[{"id":"a","outcome":"acked"},{"id":"\u00e9","outcome":"refused","code":"queue_full"},"#,
        r#"{"id":"","outcome":"stale"}]"#
    );
    assert_eq!(written, expected);
    let refused = text(|out| {
        results(out, []);
        next_refused(out, &Refusal::NodeBytes.into());
    });
    assert_eq!(refused, r#"{"results":[],"messages":[],"next":{"outcome":"refused","code":"ephemeral_unavailable"}}"#);
}
