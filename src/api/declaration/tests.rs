use super::*;

const DEFAULTS: OptionDefaults = OptionDefaults { queue_max_bytes: 16 << 20, queue_max_length: 10_000, lease_seconds: 30, retry_limit: 5 };

fn in_force(options: &str) -> Options {
    DeclaredOptions::read(options.as_bytes()).unwrap().in_force(&DEFAULTS)
}

fn fault(options: &str) -> Option<Fault> {
    configure(format!(r#"{{"queue":"q","options":{options}}}"#).as_bytes()).err()
}

#[test]
fn no_options_are_the_defaults() {
    let expected = Options {
        max_bytes: 16 << 20,
        max_length: 10_000,
        policy: Policy::Reject,
        ttl_seconds: 0,
        lease_seconds: 30,
        retry_limit: 5,
        window: WindowBuffer { ms: 0, count: 0 },
    };
    for options in [
        "{}",
        r#"{"maxBytes":null,"maxLength":null,"ttlSeconds":null,"leaseSeconds":null,"retryLimit":null,"windowBuffer":{"ms":null,"count":null}}"#,
    ] {
        assert_eq!(in_force(options), expected);
    }
    for body in [r#"{"queue":"q"}"#, r#"{"queue":"q","options":null}"#, r#"{"queue":"q","options":{}}"#] {
        let request = configure(body.as_bytes()).unwrap();
        assert_eq!((request.options_text, request.declared), (b"{}".as_slice(), DeclaredOptions::default()), "{body}");
    }
}

#[test]
fn what_is_declared_is_in_force() {
    let options = r#"{"maxBytes":2000,"maxLength":7,"policy":"dropOldest","ttlSeconds":9,"leaseSeconds":4,"retryLimit":2,"windowBuffer":{"ms":20,"count":50}}"#;
    let expected = Options {
        max_bytes: 2000,
        max_length: 7,
        policy: Policy::DropOldest,
        ttl_seconds: 9,
        lease_seconds: 4,
        retry_limit: 2,
        window: WindowBuffer { ms: 20, count: 50 },
    };
    assert_eq!(in_force(options), expected);
}

#[test]
fn values_are_clamped_and_zero_means_what_the_table_says() {
    let zero = in_force(r#"{"maxLength":0,"maxBytes":0,"leaseSeconds":0,"retryLimit":0,"ttlSeconds":0}"#);
    assert_eq!((zero.max_length, zero.max_bytes, zero.lease_seconds, zero.retry_limit, zero.ttl_seconds), (10_000, 16 << 20, 30, 0, 0));
    for huge in ["1000000000", "4294967296", "18446744073709551615", "18446744073709551616", "99999999999999999999999999"] {
        let large = in_force(&format!(
            r#"{{"maxLength":{huge},"maxBytes":{huge},"leaseSeconds":{huge},"retryLimit":{huge},"ttlSeconds":{huge},"windowBuffer":{{"ms":{huge},"count":{huge}}}}}"#
        ));
        assert_eq!((large.max_length, large.max_bytes, large.lease_seconds, large.retry_limit), (10_000, 16 << 20, 86_400, 1000), "{huge}");
        assert_eq!(large.window, WindowBuffer { ms: 60_000, count: 10_000 });
        assert_eq!(large.ttl_seconds, huge.parse().unwrap_or(u64::MAX));
    }
    let low = OptionDefaults { queue_max_length: 3, ..DEFAULTS };
    assert_eq!(DeclaredOptions { max_length: Some(4), ..DeclaredOptions::default() }.in_force(&low).max_length, 3);
}

#[test]
fn options_are_echoed_as_they_are_spelled() {
    let request = configure(br#"{ "options" : { "maxLength" : 99999999 , "m\u0061xBytes":null } , "queue":"a\/b","x":{} }"#).unwrap();
    assert_eq!(request.queue, "a/b");
    assert_eq!(request.options_text, br#"{ "maxLength" : 99999999 , "m\u0061xBytes":null }"#);
    assert_eq!(request.declared, DeclaredOptions { max_length: Some(99_999_999), ..DeclaredOptions::default() });
}

#[test]
fn a_number_is_a_non_negative_integer_token() {
    for field in ["maxBytes", "maxLength", "ttlSeconds", "leaseSeconds", "retryLimit"] {
        for value in ["-1", "-0", "1.5", "1.0", "1e3", "\"1\"", "true", "[3]", "{}", "\"\""] {
            let fault = fault(&format!(r#"{{"{field}":{value}}}"#)).unwrap();
            assert_eq!(fault.to_string(), format!("options.{field} must be a non-negative integer"), "{value}");
        }
    }
    for field in ["ms", "count"] {
        for value in ["-1", "1.5", "\"1\"", "false", "[]"] {
            let fault = fault(&format!(r#"{{"windowBuffer":{{"{field}":{value}}}}}"#)).unwrap();
            assert_eq!(fault.to_string(), format!("options.windowBuffer.{field} must be a non-negative integer"), "{value}");
        }
    }
}

#[test]
fn policy_is_one_of_two_words() {
    for value in ["\"dropNewest\"", "\"REJECT\"", "\"\"", "\"\\ud800\""] {
        assert_eq!(fault(&format!(r#"{{"policy":{value}}}"#)), Some(Fault::UnknownPolicy), "{value}");
    }
    for value in ["null", "1", "[\"reject\"]", "{}"] {
        assert!(matches!(fault(&format!(r#"{{"policy":{value}}}"#)), Some(Fault::WrongType { field: "options.policy", .. })), "{value}");
    }
    assert_eq!(in_force(r#"{"policy":"\u0072eject"}"#).policy, Policy::Reject);
}

#[test]
fn objects_are_objects() {
    for value in ["[]", "5", "\"x\"", "true", "[{}]"] {
        assert_eq!(fault(value), Some(Fault::WrongType { field: "options", expected: "an object" }), "{value}");
        let expected = Fault::WrongType { field: "options.windowBuffer", expected: "an object" };
        assert_eq!(fault(&format!(r#"{{"windowBuffer":{value}}}"#)), Some(expected), "{value}");
    }
    assert_eq!(fault(r#"{"windowBuffer":null}"#), Some(Fault::WrongType { field: "options.windowBuffer", expected: "an object" }));
    assert_eq!(configure(b"[]"), Err(Fault::WrongType { field: "the body", expected: "an object" }));
}

#[test]
fn the_list_of_options_is_closed_and_said() {
    for options in [
        r#"{"bogus":1}"#,
        r#"{"maxLength":5,"ttlSecond":5}"#,
        r#"{"windowBuffer":{"ms":1,"max":2}}"#,
        r#"{"":1}"#,
        r#"{"\ud800":1}"#,
        r#"{"MaxBytes":1}"#,
    ] {
        let prose = fault(options).unwrap().to_string();
        for name in ["maxBytes", "maxLength", "policy", "ttlSeconds", "leaseSeconds", "retryLimit", "windowBuffer"] {
            assert!(prose.contains(name), "{options}: {prose}");
        }
    }
    let prose = fault(&format!(r#"{{"{}":1}}"#, "k".repeat(100_000))).unwrap().to_string();
    assert!(prose.len() < 400);
}

#[test]
fn a_known_key_twice_is_a_fault() {
    for (options, field) in [
        (r#"{"maxBytes":1,"maxBytes":1}"#, "options.maxBytes"),
        (r#"{"maxBytes":null,"m\u0061xBytes":1}"#, "options.maxBytes"),
        (r#"{"policy":"reject","policy":"reject"}"#, "options.policy"),
        (r#"{"windowBuffer":{},"windowBuffer":{}}"#, "options.windowBuffer"),
        (r#"{"windowBuffer":{"ms":1,"ms":1}}"#, "options.windowBuffer.ms"),
    ] {
        assert_eq!(fault(options), Some(Fault::Twice(field)), "{options}");
    }
    assert_eq!(configure(br#"{"queue":"q","options":null,"options":{}}"#), Err(Fault::Twice("options")));
}

#[test]
fn a_bad_body_is_refused() {
    for body in ["", "{", r#"{"queue":"x","options":{"maxLength":}}"#, r#"{"queue":"x","options":{"maxLength":01}}"#, r#"{"queue":"x"} x"#]
    {
        assert!(matches!(configure(body.as_bytes()), Err(Fault::NotJson { .. })), "{body}");
    }
    assert_eq!(configure(br#"{"options":{}}"#), Err(Fault::Missing("queue")));
    assert_eq!(configure(br#"{"queue":null,"options":{}}"#), Err(Fault::WrongType { field: "queue", expected: "a string" }));
    assert_eq!(configure(br#"{"queue":"a\nb"}"#), Err(Fault::NameControl("queue")));
}

#[test]
fn options_are_kept_as_spelled_and_so_are_bounded() {
    let body = |length: usize| format!(r#"{{"queue":"q","options":{{"maxLength":{}}}}}"#, "1".repeat(length - r#"{"maxLength":}"#.len()));
    assert_eq!(configure(body(OPTIONS_BYTES_MAX).as_bytes()).map(|read| read.options_text.len()), Ok(OPTIONS_BYTES_MAX));
    assert_eq!(configure(body(OPTIONS_BYTES_MAX + 1).as_bytes()).err(), Some(Fault::OptionsTooLong));
    assert_eq!(Fault::OptionsTooLong.to_string(), "options may take 4096 bytes");
}
