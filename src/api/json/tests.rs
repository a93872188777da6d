use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

/// A whole document's value, or None: refused.
fn scan(document: &[u8]) -> Option<&[u8]> {
    let mut scanner = Scanner::new(document);
    let value = scanner.value().ok()?;
    scanner.finish().ok()?;
    Some(value)
}

fn oracle(document: &[u8]) -> Option<&[u8]> {
    serde_json::from_slice::<&RawValue>(document).ok().map(|raw| raw.get().as_bytes())
}

fn decode(document: &str) -> Option<String> {
    Scanner::new(document.as_bytes()).string().ok()?.decode().map(Into::into)
}

#[test]
fn values_are_cut_out_as_they_are_spelled() {
    for text in [
        "0",
        "-0",
        "-1.50e+07",
        "1E400",
        "12345678901234567890123",
        "true",
        "false",
        "null",
        "\"\"",
        r#""\ud800""#,
        r#""\u00e9\/\"\\""#,
        "\"é😀\u{2028}\u{7f}\"",
        "[]",
        "{}",
        "[ 1 ,2 ]",
        r#"{ "x" : [ 1 ,{"":{}}] , "x":[[],[{}]] }"#,
        r#"{"a":1,"a":2}"#,
    ] {
        let document = format!(" \t\r\n{text}\n ");
        assert_eq!(scan(document.as_bytes()), Some(text.as_bytes()), "{text}");
        assert_eq!(oracle(document.as_bytes()), Some(text.as_bytes()), "{text}");
    }
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "[",
        "]",
        "{",
        "}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{1:1}",
        "'a'",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u123",
        "\"a\tb\"",
        "\"\u{0}\"",
        "01",
        "-",
        "-a",
        "1.",
        ".5",
        "1e",
        "1e+",
        "+1",
        "0x1",
        "NaN",
        "Infinity",
        "tru",
        "truex",
        "nul",
        "nulll",
        "True",
        "1 2",
        "{}{}",
        "[]]",
        "{]",
        "[}",
        "\u{feff}1",
        "1\u{a0}",
        "\u{0}",
        "[1]x",
        "[[[[[[[[{]]]]]]]]",
        "//",
        "1//c",
    ] {
        assert_eq!(scan(text.as_bytes()), None, "{text:?}");
        assert_eq!(oracle(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn every_prefix_of_a_document_is_refused() {
    let document = r#"{"a":[1.5e3,{"b":"\u00e9x"},true,false,null,"12345678901234567890",[[]],{}],"c":-0.1}"#.as_bytes();
    assert!(scan(document).is_some());
    for end in 0..document.len() {
        assert_eq!(scan(&document[..end]), None, "{end}");
    }
}

#[test]
fn invalid_utf8_is_refused_wherever_it_stands() {
    for document in [
        &b"\"\xff\""[..],
        b"\"12345678\xc3\"",
        b"[\"a\",\"\xed\xa0\x80\"]",
        b"{\"\xc0\x80\":1}",
        b"\xef\xbb\xbf1",
        b"1\xff",
        b"\"\xf4\x90\x80\x80\"",
    ] {
        assert_eq!(scan(document), None, "{document:?}");
    }
}

#[test]
fn a_control_or_special_byte_is_seen_at_every_offset() {
    for length in 0..40 {
        for at in 0..length {
            for special in (0..0x20).chain([b'"', b'\\']) {
                let mut text = vec![b'x'; length];
                text[at] = special;
                let document = [b"\"", text.as_slice(), b"\""].concat();
                assert_eq!(scan(&document), oracle(&document), "{special} at {at} of {length}");
            }
        }
    }
}

#[test]
fn depth_costs_no_stack() {
    let depth = 4 << 20;
    let balanced = ["[".repeat(depth), "]".repeat(depth)].concat();
    assert_eq!(scan(balanced.as_bytes()).map(<[u8]>::len), Some(2 * depth));
    let mixed = ["{\"a\":[".repeat(100_000), "]}".repeat(100_000)].concat();
    assert!(scan(mixed.as_bytes()).is_some());
    assert!(scan(["{\"a\":[".repeat(100_000), "}]".repeat(100_000)].concat().as_bytes()).is_none());
    assert!(scan("[".repeat(64 << 20).as_bytes()).is_none());
}

#[test]
fn nesting_is_right_around_every_multiple_of_its_word() {
    for depth in (60..70).chain(124..132) {
        let open: String = (0..depth).map(|level| if level % 3 == 0 { "{\"k\":" } else { "[" }).collect();
        let close: String = (0..depth).rev().map(|level| if level % 3 == 0 { "}" } else { "]" }).collect();
        assert!(scan(format!("{open}1{close}").as_bytes()).is_some(), "{depth}");
        assert!(scan(format!("{open}1{}", &close[1..]).as_bytes()).is_none(), "{depth}");
        assert!(scan(format!("{open}1{close}]").as_bytes()).is_none(), "{depth}");
    }
}

#[test]
fn escapes_mean_what_they_say_and_half_a_pair_means_nothing() {
    for (spelled, meant) in [
        (r#""""#, Some("")),
        (r#""plain""#, Some("plain")),
        (r#""\"\\\/\b\f\n\r\t""#, Some("\"\\/\u{8}\u{c}\n\r\t")),
        (r#""\u0041\u00e9\u20AC""#, Some("Aé€")),
        (r#""\ud83d\ude00!""#, Some("😀!")),
        (r#""é\u0031""#, Some("é1")),
        (r#""\ud800""#, None),
        (r#""\ude00""#, None),
        (r#""\ud800x""#, None),
        (r#""\ud800\n""#, None),
        (r#""\ud800\ud800\udc00""#, None),
        (r#""\u0000""#, Some("\0")),
    ] {
        assert_eq!(decode(spelled).as_deref(), meant, "{spelled}");
    }
}

/// A document in random spelling: white space, escapes, odd numbers.
fn document() -> impl Strategy<Value = String> {
    let space = "[ \n\t\r]{0,2}";
    let number = "-?(0|[1-9][0-9]{0,12})(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,3})?";
    let string = "\"([ -!#-\\[\\]-~é日😀]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4}){0,24}\"";
    let leaf = prop_oneof![Just("null".to_owned()), Just("true".to_owned()), Just("false".to_owned()), number, string];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        let item = (space, inner, space).prop_map(|(before, value, behind)| format!("{before}{value}{behind}"));
        let field = (space, string, space, item.clone()).prop_map(|(before, key, behind, value)| format!("{before}{key}{behind}:{value}"));
        prop_oneof![
            prop::collection::vec(item, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(field, 0..6).prop_map(|fields| format!("{{{}}}", fields.join(","))),
        ]
    })
}

/// Bytes that documents are made of, and some that they are not.
fn json_like_byte() -> impl Strategy<Value = u8> {
    prop_oneof![prop::sample::select(br#"{}[]",:\ 0123456789-+.eEtrufalsn"#.to_vec()), any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn documents_are_read_as_serde_json_reads_them(document in document()) {
        prop_assert_eq!(scan(document.as_bytes()), oracle(document.as_bytes()));
        prop_assert!(scan(document.as_bytes()).is_some());
    }

    #[test]
    fn damaged_documents_are_judged_as_serde_json_judges_them(
        document in document(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), json_like_byte(), 0..3_u8), 1..4),
    ) {
        let mut document = document.into_bytes();
        for (at, byte, kind) in damage {
            let at = at.index(document.len() + 1);
            match kind {
                0 if at < document.len() => document[at] = byte,
                1 if at < document.len() => _ = document.remove(at),
                _ => document.insert(at, byte),
            }
        }
        prop_assert_eq!(scan(&document), oracle(&document));
    }

    #[test]
    fn noise_is_judged_as_serde_json_judges_it(noise in prop::collection::vec(json_like_byte(), 0..40)) {
        prop_assert_eq!(scan(&noise), oracle(&noise));
    }

    #[test]
    fn strings_are_decoded_as_serde_json_decodes_them(spelled in "\"([ -!#-\\[\\]-~é😀]|\\\\[\"\\\\/bfnrt]|\\\\u(d[89a-f])?[0-9a-fA-F]{2}){0,12}\"") {
        prop_assert_eq!(decode(&spelled), serde_json::from_str::<String>(&spelled).ok());
    }

    #[test]
    fn any_text_comes_back_from_its_escaping(text in any::<String>()) {
        let mut out = Vec::new();
        append_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text.clone());
        prop_assert_eq!(decode(std::str::from_utf8(&out).unwrap()), Some(text));
    }
}
