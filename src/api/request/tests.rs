use proptest::prelude::*;

use super::*;

const M: &str = r#""messages":[{"payload":1}]"#;

fn pushed(body: &str) -> Result<(String, String, Vec<String>), Fault> {
    let mut payloads = Vec::new();
    let request = push(body.as_bytes(), |payload| payloads.push(String::from_utf8(payload.to_vec()).unwrap()))?;
    Ok((request.queue.into_owned(), request.partition.into_owned(), payloads))
}

fn ok(queue: &str, partition: &str, payloads: &[&str]) -> Result<(String, String, Vec<String>), Fault> {
    Ok((queue.to_owned(), partition.to_owned(), payloads.iter().map(|&payload| payload.to_owned()).collect()))
}

#[test]
fn a_push_is_read_whatever_its_spelling() {
    let table = [
        (r#"{"queue":"q","messages":[]}"#, ok("q", "Default", &[])),
        (r#"{"messages":[{"payload":1},{"payload":null}],"queue":"q","partition":"p"}"#, ok("q", "p", &["1", "null"])),
        (
            " \r\n\t{ \"queue\" : \"q\" , \"messages\" : [ { \"payload\" :\t{ \"x\" : [ 1 ,2 ] } \n} ] } \n",
            ok("q", "Default", &["{ \"x\" : [ 1 ,2 ] }"]),
        ),
        (r#"{"queue":"q","partition":null,"messages":[{"payload":1}]}"#, ok("q", "Default", &["1"])),
        (r#"{"x":1,"queue":"q","messages":[{"payload":1,"transactionId":"t","y":{"payload":2}}],"z":{}}"#, ok("q", "Default", &["1"])),
        (r#"{"x":1,"x":2,"queue":"q","messages":[{"y":1,"payload":1,"y":2}]}"#, ok("q", "Default", &["1"])),
        (r#"{"\u0071ueue":"a\/b \ud83d\ude00\"","messages":[{"p\u0061yload":"\ud800"}]}"#, ok("a/b 😀\"", "Default", &[r#""\ud800""#])),
        (r#"{"queue":"q","messages":[{"payload":{"a":1,"a":2}}]}"#, ok("q", "Default", &[r#"{"a":1,"a":2}"#])),
        (r#"{"\ud800":1,"queue":"q","messages":[]}"#, ok("q", "Default", &[])),
    ];
    for (body, expected) in table {
        assert_eq!(pushed(body), expected, "{body}");
    }
}

#[test]
fn what_is_wrong_with_a_push_is_named() {
    let wrong = |field, expected| Fault::WrongType { field, expected };
    let long = "é".repeat(257);
    let table = [
        (r#"[]"#.to_owned(), wrong("the body", "an object")),
        (r#"null"#.to_owned(), wrong("the body", "an object")),
        (r#"["q",[{"payload":1}]]"#.to_owned(), wrong("the body", "an object")),
        (r#"{}"#.to_owned(), Fault::Missing("messages")),
        (format!("{{{M}}}"), Fault::Missing("queue")),
        (format!(r#"{{"queue":5,{M}}}"#), wrong("queue", "a string")),
        (format!(r#"{{"queue":null,{M}}}"#), wrong("queue", "a string")),
        (format!(r#"{{"queue":["q"],{M}}}"#), wrong("queue", "a string")),
        (format!(r#"{{"queue":"",{M}}}"#), Fault::NameEmpty("queue")),
        (format!(r#"{{"queue":"{long}",{M}}}"#), Fault::NameTooLong("queue")),
        (format!(r#"{{"queue":"a\u0000b",{M}}}"#), Fault::NameControl("queue")),
        (format!("{{\"queue\":\"a\u{7f}\",{M}}}"), Fault::NameControl("queue")),
        (format!(r#"{{"queue":"\ud800",{M}}}"#), Fault::NotUnicode("queue")),
        (format!(r#"{{"queue":"q","partition":7,{M}}}"#), wrong("partition", "a string")),
        (format!(r#"{{"queue":"q","partition":"",{M}}}"#), Fault::NameEmpty("partition")),
        (format!(r#"{{"queue":"q","partition":"{}",{M}}}"#, "p".repeat(513)), Fault::NameTooLong("partition")),
        (r#"{"queue":"q"}"#.to_owned(), Fault::Missing("messages")),
        (r#"{"queue":"q","messages":null}"#.to_owned(), wrong("messages", "an array")),
        (r#"{"queue":"q","messages":{}}"#.to_owned(), wrong("messages", "an array")),
        (r#"{"queue":"q","messages":[5]}"#.to_owned(), wrong("messages[]", "an object")),
        (r#"{"queue":"q","messages":[[1]]}"#.to_owned(), wrong("messages[]", "an object")),
        (r#"{"queue":"q","messages":[{}]}"#.to_owned(), Fault::Missing("messages[].payload")),
        (r#"{"queue":"q","messages":[{"payload":1},{"data":2}]}"#.to_owned(), Fault::Missing("messages[].payload")),
        (format!(r#"{{"queue":"q","queue":"q",{M}}}"#), Fault::Twice("queue")),
        (format!(r#"{{"queue":"q","partition":null,"partition":"p",{M}}}"#), Fault::Twice("partition")),
        (format!(r#"{{"queue":"q",{M},{M}}}"#), Fault::Twice("messages")),
        (r#"{"queue":"q","messages":[{"payload":1,"payl\u006fad":1}]}"#.to_owned(), Fault::Twice("messages[].payload")),
    ];
    for (body, fault) in table {
        assert_eq!(pushed(&body), Err(fault), "{body}");
    }
}

#[test]
fn what_is_not_json_is_no_push() {
    for body in [
        "",
        "{",
        "{'queue':'q'}",
        r#"{"queue":"q","messages":[{"payload":NaN}]}"#,
        r#"{"queue":"q","messages":[{"payload":01}]}"#,
        r#"{"queue":"q","messages":[{"payload":1},]}"#,
        r#"{"queue":"q","messages":[{"payload":1}],}"#,
        r#"{"queue":"q","messages":[{"payload":1}]} x"#,
        r#"{"queue":"q","messages":[]}{}"#,
        "\u{feff}{\"queue\":\"q\",\"messages\":[]}",
        "{\"queue\":\"q\",\"messages\":[{\"payload\":\"a\tb\"}]}",
        r#"{"queue":"q","messages":[{"payload":}]}"#,
        r#"{"queue":"q","messages":[{"payload" 1}]}"#,
        r#"{"queue":"q" "messages":[]}"#,
    ] {
        assert!(matches!(pushed(body), Err(Fault::NotJson { .. })), "{body}");
    }
    for body in [&b"{\"queue\":\"q\",\"messages\":[{\"payload\":\"\xff\"}]}"[..], b"{\"x\":\"\xff\",\"queue\":\"q\",\"messages\":[]}"] {
        assert!(matches!(push(body, |_| ()), Err(Fault::NotJson { .. })));
    }
    assert_eq!(push(b"{\"queue\":\"q\xc3\",\"messages\":[]}", |_| ()), Err(Fault::NotUnicode("queue")));
}

#[test]
fn a_name_of_512_bytes_is_legal_and_counted_in_bytes() {
    for name in ["q".repeat(512), "é".repeat(256), "/ : % + \u{2028} <x> \u{80}".to_owned()] {
        assert_eq!(pushed(&format!(r#"{{"queue":"{name}",{M}}}"#)), ok(&name, "Default", &["1"]));
    }
}

#[test]
fn the_list_of_messages_ends_at_its_bound() {
    let body = |count: usize| format!(r#"{{"queue":"q","messages":[{}]}}"#, vec![r#"{"payload":0}"#; count].join(","));
    assert_eq!(pushed(&body(CALL_ITEMS_MAX)).map(|(_, _, payloads)| payloads.len()), Ok(CALL_ITEMS_MAX));
    assert_eq!(pushed(&body(CALL_ITEMS_MAX + 1)), Err(Fault::TooManyItems("messages")));
}

#[test]
fn an_ack_is_read_with_its_defaults() {
    let body = br#"{"acks":[{"id":"e:0000000000000001:a:b:7.2","status":"retry","error":"boom"},{"id":"x\u0022","zz":1},{"id":"\ud800","error":null}],"queue":"q","group":"g","yy":2}"#;
    let request = ack(body).unwrap();
    assert_eq!((&*request.queue, &*request.group), ("q", "g"));
    let id = MessageId { incarnation: 1, partition: "a:b".into(), spelled_seq: 7, delivery: 2 };
    assert_eq!(
        request.acks,
        [
            Ack { spelled_id: b"e:0000000000000001:a:b:7.2", id: Some(id.clone()), verdict: Verdict::Nack },
            Ack { spelled_id: br"x\u0022", id: None, verdict: Verdict::Completed },
            Ack { spelled_id: br"\ud800", id: None, verdict: Verdict::Completed },
        ]
    );
    let escaped = ack(br#"{"queue":"q","acks":[{"id":"e:0000000000000001:a\u003ab:7.2"}]}"#).unwrap();
    assert_eq!(escaped.acks[0].id, Some(id));
    assert_eq!(escaped.group, QUEUE_MODE);
}

#[test]
fn no_group_is_queue_mode() {
    for group in ["null", r#""""#] {
        let body = format!(r#"{{"queue":"q","group":{group},"acks":[]}}"#);
        assert_eq!(ack(body.as_bytes()).unwrap(), AckRequest { queue: "q".into(), group: QUEUE_MODE.into(), acks: Vec::new() });
    }
}

#[test]
fn the_words_for_a_completion_are_exact() {
    for (word, verdict) in [
        ("completed", Verdict::Completed),
        ("success", Verdict::Completed),
        ("acked", Verdict::Completed),
        ("ok", Verdict::Completed),
        ("\\u006fk", Verdict::Completed),
        ("retry", Verdict::Nack),
        ("failed", Verdict::Nack),
        ("COMPLETED", Verdict::Nack),
        ("bogus", Verdict::Nack),
        ("", Verdict::Nack),
        ("\\ud800", Verdict::Nack),
    ] {
        let body = format!(r#"{{"queue":"q","acks":[{{"id":"x","status":"{word}"}}]}}"#);
        assert_eq!(ack(body.as_bytes()).unwrap().acks[0].verdict, verdict, "{word}");
    }
}

#[test]
fn what_is_wrong_with_an_ack_is_named() {
    let wrong = |field, expected| Fault::WrongType { field, expected };
    for (body, fault) in [
        ("{}", Fault::Missing("queue")),
        (r#"{"queue":"q"}"#, Fault::Missing("acks")),
        (r#"{"queue":"q","acks":null}"#, wrong("acks", "an array")),
        (r#"{"queue":"q","acks":{}}"#, wrong("acks", "an array")),
        (r#"{"queue":"q","acks":[5]}"#, wrong("acks[]", "an object")),
        (r#"{"queue":"q","acks":["e:1:2:3"]}"#, wrong("acks[]", "an object")),
        (r#"{"queue":"q","acks":[["x"]]}"#, wrong("acks[]", "an object")),
        (r#"{"queue":"q","acks":[{}]}"#, Fault::Missing("acks[].id")),
        (r#"{"queue":"q","acks":[{"id":5}]}"#, wrong("acks[].id", "a string")),
        (r#"{"queue":"q","acks":[{"id":"a","status":5}]}"#, wrong("acks[].status", "a string")),
        (r#"{"queue":"q","acks":[{"id":"a","status":null}]}"#, wrong("acks[].status", "a string")),
        (r#"{"queue":"q","acks":[{"id":"a","id":"a"}]}"#, Fault::Twice("acks[].id")),
        (r#"{"queue":"q","acks":[{"id":"a","status":"ok","status":"ok"}]}"#, Fault::Twice("acks[].status")),
        (r#"{"queue":"q","acks":[{"id":"a","error":1,"error":1}]}"#, Fault::Twice("acks[].error")),
        (r#"{"queue":"q","group":5,"acks":[]}"#, wrong("group", "a string")),
        (r#"{"queue":"q","group":"a\n","acks":[]}"#, Fault::NameControl("group")),
        (r#"{"queue":"q","group":null,"group":"g","acks":[]}"#, Fault::Twice("group")),
        (r#"{"queue":"","acks":[]}"#, Fault::NameEmpty("queue")),
    ] {
        assert_eq!(ack(body.as_bytes()), Err(fault), "{body}");
    }
    let body = format!(r#"{{"queue":"q","acks":[{}]}}"#, vec![r#"{"id":"x"}"#; CALL_ITEMS_MAX + 1].join(","));
    assert_eq!(ack(body.as_bytes()), Err(Fault::TooManyItems("acks")));
    assert!(matches!(ack(b""), Err(Fault::NotJson { .. })));
}

#[test]
fn a_reset_names_its_queue() {
    assert_eq!(reset(br#" {"queue":"a/b","x":[1]} "#).as_deref(), Ok("a/b"));
    assert_eq!(reset(b"{}"), Err(Fault::Missing("queue")));
    assert_eq!(reset(br#"{"queue":5}"#), Err(Fault::WrongType { field: "queue", expected: "a string" }));
    assert_eq!(reset(br#"{"queue":"a\nb"}"#), Err(Fault::NameControl("queue")));
    assert_eq!(reset(br#"{"queue":"q","queue":"q"}"#), Err(Fault::Twice("queue")));
    assert_eq!(reset(br#"["q"]"#), Err(Fault::WrongType { field: "the body", expected: "an object" }));
    assert!(matches!(reset(b"x"), Err(Fault::NotJson { .. })));
}

proptest! {
    #[test]
    fn payloads_come_back_byte_for_byte(
        values in prop::collection::vec(any::<(i64, String, bool)>(), 0..8),
        queue in "[^\\x00-\\x1f\\x7f]{1,40}",
        space in "[ \n\t\r]{0,3}",
    ) {
        let payloads: Vec<String> = values.iter().map(|value| serde_json::to_string(&(value.0, &value.1, value.2)).unwrap()).collect();
        let messages: Vec<String> = payloads.iter().map(|payload| format!("{space}{{{space}\"payload\"{space}:{space}{payload}{space}}}{space}")).collect();
        let body = format!("{space}{{\"queue\":{space}{},\"messages\":[{}{space}]}}{space}", serde_json::to_string(&queue).unwrap(), messages.join(","));
        prop_assert_eq!(pushed(&body), Ok((queue, "Default".to_owned(), payloads)));
    }

    #[test]
    fn a_damaged_body_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut body = br#"{"queue":"q\u00e9","partition":"p","messages":[{"payload":{"a":[1.5e3,"\ud800"]}}],"acks":[{"id":"e:0000000000000001:p:1.2"}]}"#.to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        let (_, _, _) = (push(&body, |_| ()), ack(&body), reset(&body));
    }
}
