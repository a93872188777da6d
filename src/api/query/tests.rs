use super::*;

fn any_pop(queue: &str) -> PopRequest<'_> {
    PopRequest { queue: queue.into(), partition: None, group: QUEUE_MODE.into(), batch: 1, wait: None, auto_ack: false }
}

#[test]
fn a_pop_has_defaults() {
    for query in
        ["queue=q", "queue=q&partition=&group=&batch=&wait=&timeout=&autoAck=&commitOnDelivery=", "x=1&&queue=q&Queue=z", "queue=z&queue=q"]
    {
        assert_eq!(pop(query.as_bytes()), Ok(any_pop("q")), "{query}");
    }
}

#[test]
fn a_pop_is_read_form_decoded() {
    let request = pop(b"queue=a+b%2Bc&partition=p%2F1&group=g%25&batch=7&wait=true&timeout=250&autoAck=1").unwrap();
    let expected = PopRequest {
        queue: "a b+c".into(),
        partition: Some("p/1".into()),
        group: "g%".into(),
        batch: 7,
        wait: Some(Span::from_millis(250)),
        auto_ack: true,
    };
    assert_eq!(request, expected);
}

#[test]
fn a_batch_that_cannot_be_read_is_one_and_a_large_one_is_clamped() {
    for (value, batch) in [
        ("1", 1),
        ("0", 1),
        ("-1", 1),
        ("-99999999999", 1),
        ("abc", 1),
        ("1.5", 1),
        ("", 1),
        ("%2B5", 1),
        ("+5", 1),
        ("1e3", 1),
        ("%FF", 1),
        ("007", 7),
        ("10000", 10_000),
        ("10001", 10_000),
        ("99999999999999999999999", 10_000),
    ] {
        assert_eq!(pop(format!("queue=q&batch={value}").as_bytes()).unwrap().batch, batch, "{value}");
    }
}

#[test]
fn a_timeout_counts_only_with_wait() {
    for (query, wait_ms) in [
        ("wait=true", Some(30_000)),
        ("wait=1&timeout=1", Some(1)),
        ("wait=yes&timeout=300001", Some(300_000)),
        ("wait=true&timeout=abc", Some(30_000)),
        ("wait=true&timeout=1.5", Some(30_000)),
        ("wait=true&timeout=0", None),
        ("wait=true&timeout=-5", None),
        ("timeout=500", None),
        ("wait=TRUE", None),
        ("wait=no", None),
        ("wait=false", None),
        ("wait=0", None),
        ("wait=", None),
        ("wait", None),
        ("wait=true&wait=x", None),
    ] {
        let query = format!("queue=q&{query}");
        assert_eq!(pop(query.as_bytes()).unwrap().wait, wait_ms.map(Span::from_millis), "{query}");
    }
}

#[test]
fn either_of_two_words_settles_at_delivery() {
    for (query, auto_ack) in [
        ("autoAck=true", true),
        ("autoAck=1", true),
        ("autoAck=yes", true),
        ("autoAck=TRUE", false),
        ("autoAck=", false),
        ("autoAck=false", false),
        ("commitOnDelivery=true", true),
        ("autoAck=false&commitOnDelivery=1", true),
        ("autoAck=1&commitOnDelivery=no", true),
    ] {
        assert_eq!(pop(format!("queue=q&{query}").as_bytes()).unwrap().auto_ack, auto_ack, "{query}");
    }
}

#[test]
fn what_is_wrong_with_a_name_is_named() {
    let long = "q".repeat(513);
    for (query, fault) in [
        (String::new(), Fault::Missing("queue")),
        ("queue=".to_owned(), Fault::NameEmpty("queue")),
        ("queue=q&queue=".to_owned(), Fault::NameEmpty("queue")),
        (format!("queue={long}"), Fault::NameTooLong("queue")),
        ("queue=%FF".to_owned(), Fault::NotUnicode("queue")),
        ("queue=a%00".to_owned(), Fault::NameControl("queue")),
        (format!("queue=q&partition={long}"), Fault::NameTooLong("partition")),
        ("queue=q&group=%0A".to_owned(), Fault::NameControl("group")),
        ("queue=q&group=%7F".to_owned(), Fault::NameControl("group")),
    ] {
        assert_eq!(pop(query.as_bytes()), Err(fault), "{query}");
    }
    assert_eq!(pop(b"queue=%FF&queue=q&group=%FF&group="), Ok(any_pop("q")));
}

#[test]
fn a_listing_is_whole_by_default() {
    let whole = QueuesRequest { prefix: "".into(), after: "".into(), limit: usize::MAX, is_node_only: false };
    assert_eq!(queues(b""), Ok(whole.clone()));
    assert_eq!(queues(b"limit=x&scope=cluster&prefix=&after="), Ok(whole));
    let page = QueuesRequest { prefix: "a/".into(), after: "a/b c".into(), limit: 20, is_node_only: true };
    assert_eq!(queues(b"prefix=a%2F&after=a/b+c&limit=20&scope=node"), Ok(page));
    assert_eq!(queues(b"limit=0").map(|request| request.limit), Ok(1));
    assert_eq!(queues(b"after=%FF"), Err(Fault::NotUnicode("after")));
}

#[test]
fn a_depth_takes_its_queue_from_the_path() {
    let request = depth(b"a%2Fb+%25zz%", b"group=g&scope=node").unwrap();
    assert_eq!(request, DepthRequest { queue: "a/b+%zz%".into(), group: Some("g".into()), is_node_only: true });
    assert_eq!(depth(b"q", b"group=").unwrap().group, None);
    assert_eq!(depth(b"%FF", b""), Err(Fault::NotUnicode("queue")));
    assert_eq!(depth(b"a%0Ab", b""), Err(Fault::NameControl("queue")));
    assert_eq!(depth("q".repeat(513).as_bytes(), b""), Err(Fault::NameTooLong("queue")));
}

#[test]
fn a_delete_takes_its_queue_from_path_or_query() {
    assert_eq!(delete(Some(b"a%2Fb"), b"queue=x").as_deref(), Ok("a/b"));
    assert_eq!(delete(None, b"queue=x&queue=..").as_deref(), Ok(".."));
    assert_eq!(delete(None, b""), Err(Fault::Missing("queue")));
    assert_eq!(delete(None, b"queue="), Err(Fault::NameEmpty("queue")));
}
