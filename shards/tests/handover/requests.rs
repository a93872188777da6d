//! Requests of calls: they move, their inboxes do not.

use mayfly_shards::{Answer, Command, DropCause, Inbox, ReplyItem, Span, Ticket, inbox_of};

use crate::cluster::{Heard, Node, TENANT, hand_over, options};

fn reply(node: &mut Node, number: u64, text: &str) {
    let item = ReplyItem { index: 0, inbox: number, payload: text.as_bytes(), late_count: 0 };
    let core = mayfly_shards::inbox_shard(number, node.shard_count()).expect("an inbox");
    assert_eq!(core, node.owner(Some("p")));
    node.ask(Some("p"), Ticket(77), Command::Reply { tenant: TENANT, items: &[item] });
}

fn withdrawn(node: &Node) -> u64 {
    node.sum(|of| of.dropped[DropCause::Withdrawn as usize])
}

#[test]
fn a_request_that_moved_is_answered_through_its_own_inbox() {
    let (mut a, mut b, mut c) = (Node::new(1, 3, options()), Node::new(2, 1, options()), Node::new(3, 2, options()));
    a.call(1, "p", "request", Span::from_secs(9));
    a.carry();
    hand_over(&mut a, &mut b, "p", 1);
    hand_over(&mut b, &mut c, "p", 1);
    c.pop(2, Some("p"), "g", 1, None, false);
    c.carry();
    let Some(Heard::Messages(got)) = c.hear(2) else { panic!("a pop is answered") };
    let inbox = got[0].inbox.expect("it is a request");
    assert_eq!((inbox.incarnation, inbox_of(got[0].seq)), (a.incarnation, None), "it is no inbox of this node");
    reply(&mut a, inbox.number, "answer");
    assert_eq!(a.hear(1), Some(Heard::Reply("answer".to_owned())));
}

#[test]
fn a_request_that_nobody_took_goes_when_its_call_times_out() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 2, options()));
    a.call(1, "p", "request", Span::from_secs(9));
    a.pass(Span::from_secs(5));
    hand_over(&mut a, &mut b, "p", 1);
    let held = |b: &Node| b.inventory(9).iter().map(|(_, count)| count).sum::<u64>();
    b.pass(Span::from_secs(3));
    assert_eq!((withdrawn(&b), held(&b)), (0, 1));
    b.pass(Span::from_secs(1));
    assert_eq!((withdrawn(&b), held(&b)), (1, 0));
    a.pass(Span::from_secs(4));
    assert_eq!((a.hear(1), withdrawn(&a)), (Some(Heard::Answer(Answer::NoReply)), 0));
}

#[test]
fn a_request_whose_caller_hung_up_goes_at_once_if_its_new_place_is_told() {
    for is_opened in [true, false] {
        let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, options()));
        a.call(1, "p", "request", Span::from_secs(9));
        let parcel = a.pack("p", 1).expect("held");
        let chunk = a.chunk("p", parcel.cut, 0).expect("a chunk");
        let inbox: Inbox = chunk.messages[0].request.expect("a request").inbox;
        if is_opened {
            hand_over(&mut a, &mut b, "p", 1);
        } else {
            b.unpack(chunk);
        }
        a.cancel("p", 1);
        b.end_moved_call("p", inbox);
        if !is_opened {
            hand_over(&mut a, &mut b, "p", 1);
        }
        assert_eq!((withdrawn(&b), b.inventory(9)), (1, vec![("p".to_owned(), 0)]));
    }
}

#[test]
fn a_call_that_ends_while_its_request_is_packed_takes_it_back_when_that_is_over() {
    for is_called_off in [true, false] {
        let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, options()));
        a.call(1, "p", "request", Span::from_secs(9));
        assert!(a.pack("p", 1).is_some());
        a.pass(Span::from_secs(9));
        if is_called_off {
            assert!(a.restore("p"));
        } else {
            hand_over(&mut a, &mut b, "p", 1);
        }
        assert_eq!(withdrawn(&a) + withdrawn(&b), 1);
    }
}

#[test]
fn a_request_that_somebody_took_stays_and_keeps_its_inbox() {
    let (mut a, mut b) = (Node::new(1, 1, options()), Node::new(2, 1, options()));
    a.call(1, "p", "request", Span::from_secs(9));
    assert_eq!(a.take("p", "g", 1, false).len(), 1);
    hand_over(&mut a, &mut b, "p", 1);
    b.pass(Span::from_secs(10));
    b.pop(2, Some("p"), "g", 1, None, true);
    let Some(Heard::Messages(got)) = b.hear(2) else { panic!("a pop is answered") };
    assert_eq!((got[0].attempts, got[0].inbox.map(|inbox| inbox.incarnation)), (2, Some(a.incarnation)));
    let (_, receipt) = b.receipts.pop().expect("a receipt");
    b.undeliver(receipt, mayfly_shards::Undelivered::Unsent);
    b.pop(3, Some("p"), "g", 1, None, true);
    let Some(Heard::Messages(again)) = b.hear(3) else { panic!("a pop is answered") };
    assert_eq!((again[0].attempts, again[0].inbox), (2, got[0].inbox), "also when it came back");
}
