//! The source's side.

use mayfly_shards::{Answer, Opening, Options, Outcome, OwnedRequest, Policy, QUEUE_MODE, Span, Ticket, Undelivered, Unpacked, Verdict};

use crate::cluster::{Heard, Node, hand_over, name, options};

fn got(payload: &str, attempts: u32, delivery: u32) -> (String, u32, u32) {
    (payload.to_owned(), attempts, delivery)
}

#[test]
fn everything_known_of_a_partition_goes_with_it() {
    for (cores, other_cores) in [(1, 1), (1, 3), (3, 2), (4, 4)] {
        let (mut a, mut b) = (Node::new(1, cores, options()), Node::new(2, other_cores, options()));
        for partition in ["Default", "p", "q"] {
            a.push(1, partition, &["1", "2", "3", "4", "5"]);
            a.carry();
            assert_eq!(a.take(partition, "g", 2, false).len(), 2, "1 and 2 are leased to g");
            a.pop(9, Some(partition), "h", 3, None, false);
            a.carry();
            let Some(Heard::Messages(of_h)) = a.hear(9) else { panic!("a pop is answered") };
            a.ack(10, "h", &of_h[1], Verdict::Completed);
            a.ack(11, "h", &of_h[2], Verdict::Nack);
            assert_eq!((a.outcome(10), a.outcome(11)), (Outcome::Acked, Outcome::Redelivered));
            assert_eq!(a.take(partition, "i", 5, true).len(), 5, "i is done with all");
            hand_over(&mut a, &mut b, partition, 1 << 20);
            assert_eq!(b.take(partition, "g", 9, true), [got("1", 2, 2), got("2", 2, 2), got("3", 1, 1), got("4", 1, 1), got("5", 1, 1)]);
            assert_eq!(b.take(partition, "h", 9, true), [got("1", 2, 2), got("3", 2, 2), got("4", 1, 1), got("5", 1, 1)]);
            assert_eq!(b.take(partition, "i", 9, true), []);
        }
        assert_eq!((a.sum(|of| of.handed_over), b.sum(|of| of.adopted)), (15, 15));
        assert_eq!(a.sum(|of| of.dropped.iter().sum()) + b.sum(|of| of.dropped.iter().sum()), 0, "a move is no drop");
        assert_eq!(b.inventory(2).iter().map(|(_, count)| count).sum::<u64>(), 0, "every group has settled everything");
    }
}

#[test]
fn the_move_itself_drops_no_message_whose_attempts_are_used_up() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, options()));
    a.push(1, "p", &["1"]);
    for _ in 0..2 {
        assert_eq!(a.take("p", "g", 1, false).len(), 1);
        a.pass(Span::from_secs(31));
    }
    assert_eq!(a.take("p", "g", 1, false), [got("1", 3, 3)], "the last that retryLimit allows");
    hand_over(&mut a, &mut b, "p", 1 << 20);
    assert_eq!(b.take("p", "g", 1, false), [got("1", 4, 4)]);
    b.pass(Span::from_secs(31));
    assert_eq!(b.take("p", "g", 1, false), []);
}

#[test]
fn the_remaining_ttl_survives() {
    let with_ttl = Options { ttl_seconds: 10, ..options() };
    let (mut a, mut b) = (Node::new(1, 2, with_ttl), Node::new(2, 1, with_ttl));
    a.push(1, "p", &["old"]);
    a.carry();
    a.pass(Span::from_secs(6));
    a.push(2, "p", &["young"]);
    hand_over(&mut a, &mut b, "p", 1);
    b.pass(Span::from_secs(4));
    assert_eq!(b.take("p", QUEUE_MODE, 9, true), [got("young", 1, 1)]);
}

#[test]
fn a_packed_partition_gives_nothing_and_a_restored_one_is_as_it_was() {
    let (mut a, mut b) = (Node::new(1, 3, options()), Node::new(2, 1, options()));
    a.push(1, "p", &["1", "2", "3"]);
    a.carry();
    a.pop(2, Some("p"), "g", 1, None, false);
    a.carry();
    let Some(Heard::Messages(leased)) = a.hear(2) else { panic!("a pop is answered") };
    let parcel = a.pack("p", 1).expect("held");
    a.carry();
    assert_eq!(a.pack("p", 1), Some(parcel), "packing again tells the same");
    a.pop(3, Some("p"), "g", 1, None, true);
    a.push(4, "p", &["4"]);
    a.ack(5, "g", &leased[0], Verdict::Completed);
    a.pop(6, None, "g", 9, None, true);
    a.carry();
    for ticket in [3, 4, 5] {
        let heard = a.hear(ticket);
        assert!(matches!(&heard, Some(Heard::Answer(Answer::Moved(_)))), "{heard:?}");
    }
    assert_eq!(a.hear(6), Some(Heard::Messages(Vec::new())), "a pop of any partition finds nothing there");
    let chunk = a.chunk("p", parcel.cut, 0).expect("the first");
    assert_eq!(b.unpack(chunk), Unpacked::Next(1));
    assert!(a.restore("p") && !a.restore("p"));
    b.discard("p", parcel.cut);
    assert_eq!(b.budget.bytes.used(), 0);
    assert_eq!((a.chunk("p", parcel.cut, 1), a.release("p", parcel.cut)), (None, None), "the cut is void");
    a.ack(7, "g", &leased[0], Verdict::Completed);
    assert_eq!(a.outcome(7), Outcome::Acked, "the lease is what it was");
    assert_eq!(a.take("p", "g", 9, true), [got("2", 1, 1), got("3", 1, 1)]);
    a.check_holdings();
}

#[test]
fn leases_end_when_they_would_have_although_the_hand_over_was_called_off() {
    let mut a = Node::new(1, 1, options());
    a.push(1, "p", &["1"]);
    assert_eq!(a.take("p", "g", 1, false).len(), 1);
    a.pass(Span::from_secs(20));
    assert!(a.pack("p", 1).is_some());
    a.pass(Span::from_secs(5));
    assert!(a.restore("p"));
    assert_eq!(a.take("p", "g", 1, false), []);
    a.pass(Span::from_secs(5));
    assert_eq!(a.take("p", "g", 1, false), [got("1", 2, 2)]);
}

#[test]
fn what_a_command_was_is_handed_back_whole() {
    let mut a = Node::new(1, 1, options());
    a.push(1, "p", &["1"]);
    assert_eq!(a.take("p", "g", 1, true).len(), 1);
    a.pop(2, Some("p"), "g", 5, Some(Span::from_secs(9)), true);
    let (asked_at, until) = (a.now, a.now + Span::from_secs(9));
    a.pass(Span::from_secs(2));
    assert!(a.pack("p", 1).is_some());
    let Some(Heard::Answer(Answer::Moved(moved))) = a.hear(2) else { panic!("it is not left to sleep") };
    let OwnedRequest::Pop { partition, wait_until, batch, auto_ack, .. } = &moved.command.request else { panic!("a pop") };
    assert_eq!((partition.as_deref(), *batch, *auto_ack), (Some("p"), 5, true));
    assert_eq!((moved.since, wait_until.map(|at| at.since(until))), (Some(asked_at), Some(Span(0))));
    a.push(3, "p", &["x", "y"]);
    let Some(Heard::Answer(Answer::Moved(moved))) = a.hear(3) else { panic!("a push is handed back") };
    let OwnedRequest::Push { payloads, .. } = moved.command.request else { panic!("a push") };
    assert_eq!(payloads.iter().map(|payload| &**payload).collect::<Vec<_>>(), [b"x", b"y"]);
}

#[test]
fn an_answer_that_never_left_comes_back_into_the_packed_partition_and_voids_its_cut() {
    for auto_ack in [true, false] {
        let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, options()));
        a.push(1, "p", &["1", "2"]);
        assert_eq!(a.take("p", "g", 1, auto_ack).len(), 1);
        let parcel = a.pack("p", 1 << 20).expect("held");
        let early = a.chunk("p", parcel.cut, 0).expect("a chunk");
        assert_eq!(b.unpack(early.clone()), Unpacked::Whole);
        let (_, receipt) = a.receipts.pop().expect("a receipt");
        a.undeliver(receipt, Undelivered::Unsent);
        assert_eq!(a.release("p", parcel.cut), None, "what it would release is not what was sent");
        hand_over(&mut a, &mut b, "p", 1 << 20);
        assert_eq!(b.unpack(early), Unpacked::Stale);
        assert_eq!(b.take("p", "g", 9, true), [got("1", 1, 2), got("2", 1, 1)], "free of charge");
    }
}

#[test]
fn an_answer_that_comes_back_after_the_release_is_held_here_to_be_moved_later() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, options()));
    a.push(1, "p", &["1", "2", "3"]);
    for auto_ack in [true, false] {
        assert_eq!(a.take("p", "g", 1, auto_ack).len(), 1);
    }
    hand_over(&mut a, &mut b, "p", 1 << 20);
    for (_, receipt) in std::mem::take(&mut a.receipts) {
        a.undeliver(receipt, Undelivered::Unsent);
    }
    assert_eq!(a.inventory(1), [("p".to_owned(), 1)], "the lease went along");
    let late = hand_over(&mut a, &mut b, "p", 1 << 20);
    assert!(b.adopted.last().is_some_and(|(of, adopted)| *of == name("p") && adopted.is_late && adopted.cut == late.cut));
    assert_eq!(b.take("p", "g", 9, true), [got("2", 2, 2), got("3", 1, 1), got("1", 1, 2)]);
}

#[test]
fn reset_and_delete_reach_what_is_packed() {
    for is_reset in [true, false] {
        let (mut a, mut b) = (Node::new(1, 2, options()), Node::new(2, 2, options()));
        a.push(1, "p", &["1", "2"]);
        a.carry();
        let parcel = a.pack("p", 1 << 20).expect("held");
        let chunk = a.chunk("p", parcel.cut, 0).expect("a chunk");
        assert_eq!(b.unpack(chunk), Unpacked::Whole);
        a.wipe(2, is_reset);
        a.carry();
        assert_eq!(a.release("p", parcel.cut), None);
        assert_eq!(a.sum(|of| of.dropped.iter().sum()), 2, "counted where they are held");
        a.check_holdings();
        match a.pack("p", 1 << 20) {
            Some(again) => {
                assert!(is_reset && again.message_count == 0);
                hand_over(&mut a, &mut b, "p", 1 << 20);
                assert_eq!(b.take("p", QUEUE_MODE, 9, true), []);
            }
            None => assert!(!is_reset),
        }
    }
}

#[test]
fn a_reset_of_the_receiver_takes_what_comes_of_before() {
    for is_reset in [true, false] {
        let (mut a, mut b) = (Node::new(1, 2, options()), Node::new(2, 2, options()));
        a.push(1, "p", &["1", "2"]);
        a.carry();
        let parcel = a.pack("p", 1 << 20).expect("held");
        let chunk = a.chunk("p", parcel.cut, 0).expect("a chunk");
        assert_eq!(b.unpack(chunk), Unpacked::Whole);
        b.wipe(2, is_reset);
        b.carry();
        assert_eq!(a.release("p", parcel.cut), Some(2));
        assert!(b.open("p", Opening::Released(parcel.cut)));
        b.carry();
        assert_eq!(b.take("p", QUEUE_MODE, 9, true), []);
        assert_eq!((b.sum(|of| of.adopted), b.sum(|of| of.dropped.iter().sum())), (2, 2));
        b.check_holdings();
    }
}

#[test]
fn a_queue_is_not_collected_while_a_partition_of_it_is_packed() {
    for cores in [1, 3] {
        let mut a = Node::new(1, cores, options());
        a.push(1, "p", &["1"]);
        a.carry();
        assert!(a.pack("p", 1).is_some());
        for _ in 0..90 {
            a.pass(Span::from_secs(5));
            a.carry();
        }
        assert!(a.restore("p"));
        assert_eq!(a.take("p", "g", 9, true), [got("1", 1, 1)]);
    }
}

#[test]
fn room_that_is_packed_is_not_the_queues_and_comes_back_beyond_its_bounds() {
    let mut a = Node::new(1, 1, Options { max_length: 2, policy: Policy::DropOldest, ..options() });
    a.push(1, "p", &["1", "2"]);
    assert!(a.pack("p", 1).is_some());
    a.push(2, "q", &["3", "4"]);
    assert_eq!(a.hear(2), Some(Heard::Answer(Answer::Pushed(2))));
    assert!(a.restore("p"));
    assert_eq!(a.inventory(9), [("p".to_owned(), 2), ("q".to_owned(), 2)]);
    assert_eq!(a.heard.iter().filter(|(ticket, _)| *ticket == Ticket(9)).count(), 0);
}

#[test]
fn groups_of_a_queue_without_partitions_move_with_its_default_one() {
    let (mut a, mut b) = (Node::new(1, 2, options()), Node::new(2, 2, options()));
    a.pop(1, None, "g", 1, None, true);
    a.carry();
    assert_eq!(a.inventory(9), [("Default".to_owned(), 0)]);
    hand_over(&mut a, &mut b, "Default", 1);
    b.push(2, "Default", &["1"]);
    assert_eq!(b.take("Default", "h", 1, true).len(), 1);
    assert_eq!(b.take("Default", "g", 1, true).len(), 1, "g was known, and misses nothing");
}

#[test]
fn a_subscriber_from_before_reads_what_was_packed_and_one_that_came_meanwhile_does_not() {
    let mut a = Node::new(1, 1, options());
    let (before, since) = ("subscriber:0000000000000001:1", "subscriber:0000000000000001:2");
    a.pop(1, None, before, 1, None, true);
    a.push(2, "p", &["1"]);
    a.pack("p", 1).expect("held");
    a.pop(3, None, since, 1, None, true);
    assert!(a.restore("p"));
    assert_eq!((a.take("p", since, 9, true).len(), a.take("p", before, 9, true).len()), (0, 1));
}
