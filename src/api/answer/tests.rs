use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn text(append: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    append(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn answers_are_spelled_so() {
    assert_eq!(text(|out| pushed(out, 10_000)), r#"{"pushed":10000}"#);
    assert_eq!(text(|out| reset(out, "a\"b", 3)), r#"{"queue":"a\"b","dropped":3}"#);
    assert_eq!(text(|out| deleted(out, "q", true, false)), r#"{"queue":"q","deleted":true,"declared":false}"#);
    let at = UNIX_EPOCH + Duration::from_millis(1_796_037_947_071);
    let configured = text(|out| configured(out, "q", br#"{ "maxLength":5}"#, at));
    assert_eq!(configured, r#"{"queue":"q","options":{ "maxLength":5},"updatedAt":"2026-11-30T11:25:47.071Z"}"#);
}

#[test]
fn an_empty_pop_has_an_empty_array() {
    let answer = text(|out| {
        pop_begin(out, "q}");
        pop_end(out);
    });
    assert_eq!(answer, r#"{"queue":"q}","messages":[]}"#);
}

#[test]
fn messages_are_appended_behind_what_is_there() {
    let mut spelling = Spelling::new(Incarnation::new(0xab));
    let answer = text(|out| {
        out.extend_from_slice(b"HEAD}");
        pop_begin(out, "q");
        pop_message(
            out,
            &mut spelling,
            &Delivery { partition: "Default", seq: 42, delivery: 1, attempts: 1, payload: br#"{ "a" : 1 }"#, inbox: None },
        );
        pop_message(
            out,
            &mut spelling,
            &Delivery { partition: "p:\"1\"", seq: 43, delivery: 3, attempts: 2, payload: b"null", inbox: None },
        );
        pop_message(
            out,
            &mut spelling,
            &Delivery { partition: "Default", seq: 44, delivery: 10, attempts: 11, payload: b"1", inbox: None },
        );
        pop_end(out);
    });
    let expected = concat!(
        r#"HEAD}{"queue":"q","messages":[{"id":"e:00000000000000ab:Default:42","partition":"Default","attempts":1,"payload":{ "a" : 1 }},"#,
        r#"{"id":"e:00000000000000ab:p:\"1\":43.3","partition":"p:\"1\"","attempts":2,"#,
        r#""replyTo":"reply:00000000000000ab:2b","payload":null},"#,
        r#"{"id":"e:00000000000000ab:Default:44.10","partition":"Default","attempts":11,"payload":1}]}"#
    );
    assert_eq!(answer, expected);
}

#[test]
fn ack_results_repeat_ids_as_they_were_spelled() {
    assert_eq!(text(|out| acked(out, [])), r#"{"results":[]}"#);
    let results =
        [(&b"a"[..], Outcome::Acked), (br"\ud800", Outcome::Redelivered), (b"", Outcome::Stale), ("é".as_bytes(), Outcome::Unknown)];
    let expected = concat!(
        r#"{"results":[{"id":"a","outcome":"acked"},{"id":"\ud800","outcome":"redelivered"},"#,
        r#"{"id":"","outcome":"stale"},{"id":"é","outcome":"unknown"}]}"#
    );
    assert_eq!(text(|out| acked(out, results)), expected);
}

proptest! {
    #[test]
    fn any_names_make_valid_json(queue: String, partition: String, seq: u64, attempts: u32) {
        let answer = text(|out| {
            pop_begin(out, &queue);
            pop_message(out, &mut Spelling::new(Incarnation::new(1)), &Delivery { partition: &partition, seq, delivery: 1, attempts, payload: b"[1]", inbox: None });
            pop_end(out);
        });
        let id = format!("e:0000000000000001:{partition}:{seq}");
        let mut message = json!({"id": id, "partition": partition, "attempts": attempts, "payload": [1]});
        if seq % 2 == 1 {
            message["replyTo"] = format!("reply:0000000000000001:{seq:x}").into();
        }
        let expected = json!({"queue": queue, "messages": [message]});
        prop_assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), expected);
    }
}
