//! Who waits while a partition is on its way.

use mayfly_shards::{Answer, Opening, OwnedCommand, QUEUE_MODE, Refusal, Span, Ticket, Time};

use crate::cluster::{Heard, Node, hand_over, options};

fn moved(node: &mut Node, ticket: u64) -> (OwnedCommand, Option<Time>) {
    match node.hear(ticket) {
        Some(Heard::Answer(Answer::Moved(moved))) => (moved.command, moved.since),
        heard => panic!("{ticket} was to be handed back, but heard {heard:?}"),
    }
}

#[test]
fn parked_pops_follow_and_keep_their_place() {
    for cores in [1, 4] {
        let (mut a, mut b) = (Node::new(1, cores, options()), Node::new(2, 1, options()));
        for (ticket, partition) in [(1, Some("p")), (2, None), (3, Some("p"))] {
            a.pop(ticket, partition, "g", 1, Some(Span::from_secs(60)), true);
            a.carry();
            a.pass(Span::from_millis(10));
        }
        let parcel = a.pack("p", 1).expect("a partition that pops wait for");
        a.carry();
        b.expect("p", Span::from_secs(5));
        // The youngest comes to the new owner first, and one that never waited elsewhere is before it.
        b.pass(Span::from_millis(500));
        b.pop(9, None, "g", 1, Some(Span::from_secs(60)), true);
        for ticket in [3, 2, 1] {
            let (command, since) = moved(&mut a, ticket);
            let waited = a.now.since(since.expect("it waited"));
            let since = b.now - waited;
            let partition = if ticket == 2 { None } else { Some("p") };
            command.lend(|command| b.ask_since(partition, Ticket(ticket), command, since));
        }
        let chunk = a.chunk("p", parcel.cut, 0).expect("a chunk");
        b.unpack(chunk);
        a.release("p", parcel.cut);
        assert!(b.open("p", Opening::Released(parcel.cut)));
        for (number, ticket) in [1, 2, 3, 9].into_iter().enumerate() {
            b.push(20, "p", &[&number.to_string()]);
            assert!(b.hear(ticket).is_some(), "{ticket} is the oldest");
        }
        assert_eq!(a.budget.usage(crate::cluster::TENANT).parked, 0);
    }
}

#[test]
fn what_comes_before_the_partition_waits_in_order_and_is_behind_it() {
    for cores in [1, 3] {
        let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, cores, options()));
        a.push(1, "p", &["1"]);
        let parcel = a.pack("p", 1).expect("held");
        b.expect("p", Span::from_secs(5));
        b.push(1, "p", &["2"]);
        b.pop(2, Some("p"), QUEUE_MODE, 1, Some(Span::from_secs(1)), true);
        b.push(3, "p", &["3"]);
        b.pop(4, Some("p"), QUEUE_MODE, 9, None, true);
        b.pop(5, Some("p"), QUEUE_MODE, 9, Some(Span::from_millis(100)), true);
        b.carry();
        assert!((1..=5).all(|ticket| b.hear(ticket).is_none()), "they wait");
        b.pass(Span::from_millis(100));
        assert_eq!(b.hear(5), Some(Heard::Messages(Vec::new())), "not beyond its own timeout");
        let chunk = a.chunk("p", parcel.cut, 0).expect("a chunk");
        b.unpack(chunk);
        a.release("p", parcel.cut);
        assert!(b.open("p", Opening::Released(parcel.cut)));
        b.carry();
        let mut payloads = |ticket| match b.hear(ticket) {
            Some(Heard::Messages(got)) => got.into_iter().map(|got| got.payload).collect::<Vec<_>>(),
            heard => panic!("a pop is answered, not {heard:?}"),
        };
        assert_eq!((payloads(2), payloads(4)), (vec!["1".to_owned()], vec!["2".to_owned(), "3".to_owned()]));
        b.check_holdings();
    }
}

#[test]
fn what_waits_too_long_or_too_much_is_refused() {
    let mut b = Node::new(2, 1, options());
    b.expect("p", Span::from_secs(5));
    b.push_padded(1, "p", &["1"], 15 << 20);
    b.push_padded(2, "p", &["2"], 2 << 20);
    let refused = Some(Heard::Answer(Answer::Refused(Refusal::NotHereYet)));
    assert_eq!((b.hear(1), b.hear(2)), (None, refused.clone()));
    b.pop(3, Some("p"), "g", 1, Some(Span::from_secs(60)), true);
    b.pass(Span::from_secs(5));
    assert_eq!((b.hear(1), b.hear(3)), (refused.clone(), refused.clone()));
    b.push(4, "p", &["4"]);
    assert_eq!((b.hear(4), b.budget.bytes.used()), (refused, 0));
    assert!(b.open("p", Opening::Nothing));
    b.push(5, "p", &["5"]);
    assert_eq!(b.hear(5), Some(Heard::Answer(Answer::Pushed(1))));
}

#[test]
fn a_client_that_hangs_up_while_its_partition_is_on_its_way_is_forgotten() {
    let mut b = Node::new(2, 1, options());
    b.expect("p", Span::from_secs(5));
    b.pop(1, Some("p"), "g", 1, Some(Span::from_secs(60)), true);
    b.push(2, "p", &["1"]);
    b.cancel("p", 1);
    assert!(b.open("p", Opening::Nothing));
    assert_eq!((b.hear(1), b.hear(2)), (None, Some(Heard::Answer(Answer::Pushed(1)))));
    assert_eq!(b.take("p", "g", 1, true).len(), 1, "it swallowed nothing");
}

#[test]
fn a_partition_that_goes_elsewhere_hands_back_what_waited() {
    let (mut a, mut b, mut c) = (Node::new(1, 1, options()), Node::new(2, 1, options()), Node::new(3, 2, options()));
    a.push(1, "p", &["1"]);
    let parcel = a.pack("p", 1).expect("held");
    b.expect("p", Span::from_secs(5));
    let chunk = a.chunk("p", parcel.cut, 0).expect("a chunk");
    b.unpack(chunk);
    b.push(2, "p", &["2"]);
    b.dismiss("p");
    assert_eq!(b.budget.bytes.used(), 0);
    let (command, _) = moved(&mut b, 2);
    c.expect("p", Span::from_secs(5));
    command.lend(|command| c.ask(Some("p"), Ticket(2), command));
    hand_over(&mut a, &mut c, "p", 1);
    let got: Vec<_> = c.take("p", QUEUE_MODE, 9, true).into_iter().map(|(payload, ..)| payload).collect();
    assert_eq!(got, ["1", "2"]);
}
