use proptest::prelude::*;

use super::*;

fn text(incarnation: u64, partition: &str, seq: u64, delivery: u32) -> String {
    let mut out = Vec::new();
    append_beginning(&mut out, &Incarnation::new(incarnation), partition);
    append_numbers(&mut out, seq, delivery);
    String::from_utf8(out).unwrap()
}

fn id(incarnation: u64, partition: &str, seq: u64, delivery: u32) -> MessageId<'_> {
    MessageId { incarnation, partition: Cow::Borrowed(partition), spelled_seq: seq, delivery }
}

#[test]
fn ids_are_spelled_so() {
    assert_eq!(text(1, "Default", 1, 1), "e:0000000000000001:Default:1");
    assert_eq!(text(0xfedc_ba98_7654_3210, "p:1", 0, 2), "e:fedcba9876543210:p:1:0.2");
    assert_eq!(text(u64::MAX, "a\"\\", u64::MAX, u32::MAX), r#"e:ffffffffffffffff:a\"\\:18446744073709551615.4294967295"#);
}

#[test]
fn the_partition_is_pointed_at_as_escaped() {
    let mut out = b"before".to_vec();
    let range = append_beginning(&mut out, &Incarnation::new(7), "a\"b");
    assert_eq!(&out[range], br#"a\"b"#);
}

#[test]
fn ids_are_read_from_both_ends() {
    let table = [
        ("e:0000000000000001:Default:1", id(1, "Default", 1, 1)),
        ("e:00000000000000ff:p:1:2:3", id(255, "p:1:2", 3, 1)),
        ("e:0000000000000001:a.5:0.17", id(1, "a.5", 0, 17)),
        ("e:0000000000000001:::9", id(1, ":", 9, 1)),
        ("e:0000000000000001:e:0000000000000002:x:1:4.2", id(1, "e:0000000000000002:x:1", 4, 2)),
    ];
    for (text, id) in table {
        assert_eq!(parse(text), Some(id), "{text}");
    }
}

#[test]
fn another_spelling_is_unreadable() {
    for text in [
        "",
        "x",
        "e",
        "e:",
        ":::",
        "e:zz:Default:1",
        "E:0000000000000001:Default:1",
        "e:1:Default:1",
        "e:000000000000000A:Default:1",
        "e:+000000000000001:Default:1",
        "e:ffffffffffffffffffff:Default:0",
        "e:0000000000000001:Default",
        "e:0000000000000001:Default:",
        "e:0000000000000001::1",
        "e:0000000000000001:1",
        "e:0000000000000001:p:01",
        "e:0000000000000001:p:+1",
        "e:0000000000000001:p:-1",
        "e:0000000000000001:p:1.",
        "e:0000000000000001:p:1.0",
        "e:0000000000000001:p:1.1",
        "e:0000000000000001:p:1.02",
        "e:0000000000000001:p:1.2.3",
        "e:0000000000000001:p:.2",
        "e:0000000000000001:p:18446744073709551616",
        "e:0000000000000001:p:1.4294967296",
        "e:0000000000000001:p:1 ",
        " e:0000000000000001:p:1",
        "e:0000000000000001:p\n:1",
        "e:0000000000000001:p:１",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
    assert_eq!(parse(&format!("e:0000000000000001:{}:1", "p".repeat(513))), None);
    assert_eq!(parse(&"a".repeat(5000)), None);
}

proptest! {
    #[test]
    fn an_id_comes_back(incarnation: u64, partition in "[^\\x00-\\x1f\\x7f]{1,60}", seq: u64, delivery in 1_u32..) {
        let spelled = text(incarnation, &partition, seq, delivery);
        let decoded: String = serde_json::from_str(&format!("\"{spelled}\"")).unwrap();
        prop_assert_eq!(parse(&decoded), Some(id(incarnation, &partition, seq, delivery)));
    }

    #[test]
    fn what_is_read_is_spelled_the_same(candidate in "e:[0-9a-f]{15,17}:[a:.0]{0,4}:[0-9]{0,3}(\\.[0-9]{0,3})?") {
        if let Some(read) = parse(&candidate) {
            prop_assert_eq!(text(read.incarnation, &read.partition, read.spelled_seq, read.delivery), candidate);
        }
    }

    #[test]
    fn noise_never_panics(noise: String) {
        let _ = parse(&noise);
        let _ = parse(&format!("e:0000000000000001:{noise}"));
    }
}
