//! The receiver's side.

use mayfly_shards::{Command, Opening, Options, QUEUE_MODE, Refusal, Span, Ticket, Unpacked};

use crate::cluster::{Heard, Node, QUEUE, TENANT, hand_over, name, options};

#[test]
fn chunks_may_be_lost_doubled_and_out_of_order() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 3, options()));
    a.push(1, "p", &["1", "2", "3"]);
    let parcel = a.pack("p", 1).expect("held");
    assert_eq!(parcel.chunk_count, 3);
    let chunks: Vec<_> = (0..3).map(|index| a.chunk("p", parcel.cut, index).expect("a chunk")).collect();
    let text = serde_json::to_string(&chunks).expect("they can be spelled");
    assert_eq!(serde_json::from_str::<Vec<mayfly_shards::Chunk>>(&text).expect("and read"), chunks);
    for (index, wanted) in
        [(1, Unpacked::Next(0)), (0, Unpacked::Next(1)), (2, Unpacked::Next(1)), (0, Unpacked::Next(1)), (1, Unpacked::Next(2))]
    {
        assert_eq!(b.unpack(chunks[index].clone()), wanted);
    }
    assert!(!b.open("p", Opening::Released(parcel.cut)), "not all is here");
    assert_eq!(b.unpack(chunks[2].clone()), Unpacked::Whole);
    assert_eq!(b.unpack(chunks[0].clone()), Unpacked::Whole);
    assert_eq!(b.take("p", QUEUE_MODE, 9, true), [], "a copy is not given out before it is opened");
    assert_eq!(a.release("p", parcel.cut), Some(3));
    assert!(b.open("p", Opening::Released(parcel.cut)) && b.open("p", Opening::Released(parcel.cut)), "once or twice");
    b.carry();
    assert_eq!(b.unpack(chunks[0].clone()), Unpacked::Stale, "it comes too late");
    assert_eq!(b.take("p", QUEUE_MODE, 9, true).len(), 3);
    assert!(b.open("p", Opening::Released(parcel.cut)));
    assert_eq!(b.take("p", QUEUE_MODE, 9, true), []);
}

#[test]
fn a_newer_cut_replaces_what_came_of_an_older_one() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, options()));
    a.push(1, "p", &["1", "2"]);
    let first = a.pack("p", 1).expect("held");
    let old: Vec<_> = (0..2).map(|index| a.chunk("p", first.cut, index).expect("a chunk")).collect();
    assert_eq!(b.unpack(old[0].clone()), Unpacked::Next(1));
    assert!(a.restore("p"));
    a.push(2, "p", &["3"]);
    let second = a.pack("p", 1).expect("held");
    let new = a.chunk("p", second.cut, 0).expect("a chunk");
    assert_eq!(b.unpack(new), Unpacked::Next(1));
    assert_eq!(b.unpack(old[1].clone()), Unpacked::Stale);
    assert!(!b.open("p", Opening::Released(first.cut)) || b.take("p", QUEUE_MODE, 9, true).is_empty());
    hand_over(&mut a, &mut b, "p", 1);
    assert_eq!(b.take("p", QUEUE_MODE, 9, true).len(), 3);
}

#[test]
fn of_a_source_that_is_gone_what_came_is_all_there_is() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 2, options()));
    a.push(1, "p", &["1", "2", "3"]);
    let parcel = a.pack("p", 1).expect("held");
    b.expect("p", Span::from_secs(9));
    for index in 0..2 {
        let chunk = a.chunk("p", parcel.cut, index).expect("a chunk");
        b.unpack(chunk);
    }
    b.push(1, "p", &["4"]);
    assert!(b.hear(1).is_none(), "it waits behind what comes");
    assert!(b.open("p", Opening::SourceGone { incarnation: a.incarnation }));
    b.carry();
    assert!(b.hear(1).is_some());
    assert!(b.adopted.iter().any(|(of, adopted)| *of == name("p") && !adopted.is_whole && adopted.message_count == 2));
    let got: Vec<_> = b.take("p", QUEUE_MODE, 9, true).into_iter().map(|(payload, ..)| payload).collect();
    assert_eq!(got, ["1", "2", "4"]);
    b.check_holdings();
}

#[test]
fn a_node_that_is_full_refuses_the_whole() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::with_bytes(2, 1, options(), 1_000));
    a.push_padded(1, "p", &["1", "2"], 500);
    let parcel = a.pack("p", 1).expect("held");
    let chunk = a.chunk("p", parcel.cut, 0).expect("a chunk");
    assert_eq!(b.unpack(chunk), Unpacked::Refused(Refusal::NodeBytes));
    assert_eq!(b.budget.bytes.used(), 0);
    assert!(a.restore("p"));
    assert_eq!(a.take("p", QUEUE_MODE, 9, true).len(), 2);
}

#[test]
fn bounds_of_the_queue_do_not_keep_a_partition_out() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, Options { max_length: 1, ..options() }));
    a.push(1, "p", &["1", "2", "3"]);
    b.push(1, "q", &["4"]);
    hand_over(&mut a, &mut b, "p", 1);
    assert_eq!(b.inventory(1), [("p".to_owned(), 3), ("q".to_owned(), 1)], "and nothing is evicted for it");
}

#[test]
fn groups_that_the_source_does_not_know_begin_at_its_oldest_and_its_own_are_registered() {
    for cores in [1, 4] {
        let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, cores, options()));
        // For this group both are kept.
        assert_eq!(a.take("p", "slow", 1, true), []);
        a.push(1, "p", &["1", "2"]);
        assert_eq!(a.take("p", "g", 1, true).len(), 1);
        assert_eq!(b.take("q", "h", 1, true), []);
        hand_over(&mut a, &mut b, "p", 1);
        assert_eq!(b.take("p", "h", 9, true).len(), 2);
        b.push(2, "q", &["3"]);
        assert_eq!(b.take("q", "h", 9, true).len(), 1);
        assert_eq!(b.take("q", "g", 9, true).len(), 1, "g is known to the whole queue");
        assert_eq!(b.take("p", "g", 9, true).len(), 1);
        assert_eq!(b.take("p", "slow", 9, true).len() + b.take("q", "slow", 9, true).len(), 3);
        assert_eq!(b.inventory(9).iter().map(|(_, count)| count).sum::<u64>(), 0, "both have settled everything");
        b.check_holdings();
    }
}

#[test]
fn what_is_declared_the_log_alone_says() {
    for cores in [1, 4] {
        let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, cores, options()));
        let declared = Options { retry_limit: 1, ttl_seconds: 10, ..options() };
        a.ask(None, Ticket(1), Command::Configure { tenant: TENANT, queue: QUEUE, options: declared, at: 1 });
        a.push(2, "p", &["1"]);
        hand_over(&mut a, &mut b, "p", 1);
        b.ask(None, Ticket(4), Command::List { tenant: TENANT, prefix: "", after: "", limit: 9 });
        let Some(Heard::Answer(mayfly_shards::Answer::Listed(rows))) = b.hear(4) else { panic!("a listing is answered") };
        assert_eq!(rows.iter().map(|row| row.declared).collect::<Vec<_>>(), [false], "its log has not come so far");
        b.ask(None, Ticket(2), Command::Configure { tenant: TENANT, queue: QUEUE, options: declared, at: 1 });
        b.pass(Span::from_secs(9));
        assert_eq!(b.take("p", QUEUE_MODE, 9, false).len(), 1);
        b.pass(Span::from_secs(1));
        assert_eq!(b.sum(|of| of.dropped[mayfly_shards::DropCause::Ttl as usize]), 1, "its ttl holds here too");
        b.ask(None, Ticket(3), Command::List { tenant: TENANT, prefix: "", after: "", limit: 9 });
        let Some(Heard::Answer(mayfly_shards::Answer::Listed(rows))) = b.hear(3) else { panic!("a listing is answered") };
        assert_eq!(rows.iter().map(|row| (row.declared, row.options)).collect::<Vec<_>>(), [(true, declared)]);
    }
}

#[test]
fn a_late_hand_over_is_appended_and_its_oldest_expire_first_all_the_same() {
    let with_ttl = Options { ttl_seconds: 10, ..options() };
    let (mut a, mut b) = (Node::new(1, 1, with_ttl), Node::new(2, 1, with_ttl));
    // For this group both are kept.
    assert_eq!(a.take("p", "slow", 1, true), []);
    a.push(1, "p", &["1", "2"]);
    assert_eq!(a.take("p", "g", 1, true).len(), 1);
    a.pass(Span::from_secs(7));
    b.push(1, "p", &["3", "4"]);
    assert_eq!(b.take("p", "g", 1, false).len(), 1);
    assert_eq!(b.take("p", "h", 1, false).len(), 1);
    hand_over(&mut a, &mut b, "p", 1);
    assert!(b.adopted.last().is_some_and(|(_, adopted)| adopted.is_late));
    let payloads = |got: Vec<(String, u32, u32)>| got.into_iter().map(|(payload, ..)| payload).collect::<Vec<_>>();
    assert_eq!(payloads(b.take("p", "h", 9, false)), ["4", "1", "2"]);
    assert_eq!(payloads(b.take("p", "g", 9, false)), ["4", "2"], "what g had passed there it has passed here");
    b.pass(Span::from_secs(3));
    assert_eq!(b.inventory(9), [("p".to_owned(), 2)], "1 and 2 are too old, 3 and 4 are not");
    b.pass(Span::from_secs(7));
    assert_eq!(b.inventory(9), [("p".to_owned(), 0)]);
    b.check_holdings();
}

#[test]
fn a_private_group_of_the_receiver_is_given_nothing_from_before() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, options()));
    a.push(1, "p", &["1"]);
    b.pop(1, None, "subscriber:0000000000000002:1", 1, Some(Span::from_secs(9)), true);
    hand_over(&mut a, &mut b, "p", 1);
    assert!(b.hear(1).is_none(), "it reads from its subscription on");
    assert_eq!(b.take("p", "g", 9, true).len(), 1, "and frees nothing for that");
    b.push(2, "p", &["2"]);
    assert!(b.hear(1).is_some());
}
