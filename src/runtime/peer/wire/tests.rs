//! What is spelled is read back as it was.

use mayfly_shards::{Outcome, Refusal};

use super::*;

const NOW: Time = Time(1_000_000);

fn crossed(command: &Command<'_>) -> String {
    let mut text = Vec::new();
    let way = Way { number: 7, epoch: 3, is_second: true, shard: 2, since: Some(Time(NOW.0 - 9)) };
    Packet::Ask(Ask::new(way, NOW, command)).append(&mut text);
    let Ok(Packet::Ask(ask)) = Packet::read(&text) else { panic!("{text:?} is an ask") };
    assert_eq!((ask.number, ask.epoch, ask.is_second, ask.shard, ask.since(Time(100))), (7, 3, true, 2, Some(Time(91))));
    // The other node's clock shows something else.
    ask.lend(Time(NOW.0 + 500), |seq| seq, |command| format!("{command:?}"))
}

#[test]
fn commands_cross_with_their_spans_and_not_their_times() {
    let (tenant, queue, partition) = (Tenant(u128::MAX), "q/\u{e9}", "p:1");
    let payloads = &mut vec![Payload::from(&b"{\"a\": 1e400}"[..]), Payload::from(&b"\"\xed\xa0\x80\""[..])];
    let wanted = format!("{:?}", Command::Push { tenant, queue, partition, payloads });
    assert_eq!(crossed(&Command::Push { tenant, queue, partition, payloads }), wanted);

    let pop = |wait_until| Command::Pop { tenant, queue, partition: None, group: "g", batch: 9, wait_until, auto_ack: true };
    assert_eq!(crossed(&pop(Some(Time(NOW.0 + 30)))), format!("{:?}", pop(Some(Time(NOW.0 + 530)))));
    assert_eq!(crossed(&pop(None)), format!("{:?}", pop(None)));

    let items = [AckItem { index: 4, partition, seq: u64::MAX, delivery: 2, verdict: Verdict::Nack }];
    let ack = Command::Ack { tenant, queue, group: "g", items: &items };
    assert_eq!(crossed(&ack), format!("{ack:?}"));
    let items = [ReplyItem { index: 1, inbox: 77, payload: b"null", late_count: 3 }];
    let reply = Command::Reply { tenant, items: &items };
    assert_eq!(crossed(&reply), format!("{reply:?}"));
    let depth = Command::Depth { tenant, queue, group: Some("g") };
    assert_eq!(crossed(&depth), format!("{depth:?}"));
}

#[test]
fn answers_cross_whole() {
    let answers = [
        Answer::Pushed(3),
        Answer::Acked(vec![(0, Outcome::Stale), (9, Outcome::Acked)]),
        Answer::Refused(Refusal::RateLimited { retry_after: Span(5) }),
        Answer::Depth(None),
    ];
    for answer in answers {
        let mut text = Vec::new();
        Packet::Answer { number: u64::MAX, answer: answer.clone() }.append(&mut text);
        assert!(matches!(Packet::read(&text), Ok(Packet::Answer { number: u64::MAX, answer: read }) if read == answer));
    }
}

#[test]
fn what_is_no_packet_is_an_error() {
    for text in [&b""[..], &[200, 1, 2], &[0, 1], &[255; 64]] {
        assert!(Packet::read(text).is_err(), "{text:?}");
    }
}
