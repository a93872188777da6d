//! Calls and replies.

use mayfly_shards::{Allowance, Answer, DropCause, Refusal, Verdict};

use super::*;

const NOBODY: Answer = Answer::Refused(Refusal::NoConsumers);

/// A call that waits: its ticket, its request's number, and who was given it.
fn call(talk: &mut Talk, wait_ms: u64) -> (u64, u64, Vec<(u64, Vec<Got>)>) {
    let (ticket, request, facts) = call_with(talk, wait_ms, false);
    assert!(facts.iter().all(|fact| fact.ticket != ticket), "it waits: {facts:?}");
    (ticket, request, got(&facts))
}

fn call_with(talk: &mut Talk, wait_ms: u64, fail_fast: bool) -> (u64, u64, Vec<Fact>) {
    let request = talk.rig.number(&[10])[0];
    let until = talk.rig.now + Span::from_millis(wait_ms);
    let (ticket, facts) = talk.ask(&Ask::Call { queue: name("q"), partition: PARTITION.to_owned(), request, until, fail_fast });
    (ticket, request.id, facts)
}

/// The caller that hears an answer to a request, if any.
fn reply(talk: &mut Talk, request: u64) -> Option<u64> {
    let answer = talk.rig.number(&[10])[0];
    let items = vec![ReplyTo { request: Some(request), answer, late_count: 0 }];
    let (_, facts) = talk.ask(&Ask::Reply { tenant: Tenant::DEFAULT, items });
    facts.iter().find(|fact| fact.said == Said::Reply(answer.id)).map(|fact| fact.ticket)
}

fn no_reply(facts: &[Fact]) -> Vec<u64> {
    facts.iter().filter(|fact| fact.said == Said::Answer(Answer::NoReply)).map(|fact| fact.ticket).collect()
}

fn pass(talk: &mut Talk, ms: u64) -> Vec<Fact> {
    talk.rig.pass(Span::from_millis(ms)).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_call_hears_the_first_answer_and_nothing_after() {
    let mut talk = Talk::new(settings());
    let (caller, request, _) = call(&mut talk, 5_000);
    assert_eq!(talk.pop("g", 1), [(request, 1, 1)]);
    assert_eq!(reply(&mut talk, request), Some(caller));
    assert_eq!(reply(&mut talk, request), None);
    assert_eq!(talk.rig.dropped(DropCause::LateReply), 1);
    assert_eq!(no_reply(&pass(&mut talk, 10_000)), []);
}

#[test]
fn what_nobody_took_goes_with_its_call() {
    let mut talk = Talk::new(settings());
    let (caller, ..) = call(&mut talk, 500);
    assert_eq!(no_reply(&pass(&mut talk, 500)), [caller]);
    assert_eq!(talk.pop("g", 1), []);
    let (caller, ..) = call(&mut talk, 5_000);
    talk.rig.cancel(caller).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(talk.pop("g", 1), []);
    assert_eq!(talk.rig.dropped(DropCause::Withdrawn), 2);
}

#[test]
fn what_was_taken_stays_with_its_lease() {
    let mut talk = Talk::new(settings());
    let (caller, request, _) = call(&mut talk, 500);
    assert_eq!(talk.pop("g", 1), [(request, 1, 1)]);
    assert_eq!(no_reply(&pass(&mut talk, 500)), [caller]);
    assert_eq!(talk.nack("g", request, 1), Outcome::Redelivered);
    assert_eq!(talk.pop("g", 1), [(request, 2, 2)], "to be worked on or not, as its consumer decides");
    assert_eq!(talk.ack("g", request, 2, Verdict::Completed).0, Outcome::Acked);
    assert_eq!(reply(&mut talk, request), None);
}

#[test]
fn what_one_group_took_stays_for_the_others() {
    let mut talk = Talk::new(settings());
    assert_eq!((talk.pop("g", 1), talk.pop("h", 1)), (vec![], vec![]));
    let (caller, request, _) = call(&mut talk, 500);
    assert_eq!(got(&talk.pop_with("g", None, 1, None, true).1)[0].1, [(request, 1, 1)]);
    assert_eq!(no_reply(&pass(&mut talk, 500)), [caller]);
    assert_eq!(talk.pop("h", 1), [(request, 1, 1)]);
}

#[test]
fn one_that_comes_back_unread_after_its_call_goes() {
    let mut talk = Talk::new(settings());
    for auto_ack in [false, true] {
        let (caller, request, _) = call(&mut talk, 500);
        let (popper, facts) = talk.pop_with("g", None, 1, None, auto_ack);
        assert_eq!(got(&facts)[0].1, [(request, 1, 1)]);
        assert_eq!(no_reply(&pass(&mut talk, 500)), [caller]);
        talk.undeliver(popper, Broken::Unsent);
        assert_eq!(talk.pop("g", 1), []);
    }
    let (_, request, _) = call(&mut talk, 500);
    let (popper, _) = talk.pop_with("g", None, 1, None, false);
    talk.undeliver(popper, Broken::Unsent);
    assert_eq!(talk.pop("g", 1), [(request, 1, 2)], "while its caller waits it stays");
    assert_eq!(talk.rig.dropped(DropCause::Withdrawn), 2);
}

#[test]
fn a_parked_pop_is_given_a_call() {
    let mut talk = Talk::new(settings());
    let popper = talk.park("g", 1, 5_000);
    let (caller, request, woken) = call(&mut talk, 5_000);
    assert_eq!(woken, [(popper, vec![(request, 1, 1)])]);
    assert_eq!(reply(&mut talk, request), Some(caller));
}

#[test]
fn fail_fast_needs_a_pop_parked_or_answered_lately_or_a_lease() {
    let mut talk = Talk::new(settings());
    let refused = |talk: &mut Talk| {
        let (ticket, _, facts) = call_with(talk, 0, true);
        facts.iter().any(|fact| fact.ticket == ticket && fact.said == Said::Answer(NOBODY))
    };
    assert!(refused(&mut talk));
    assert_eq!(talk.row(), None, "nothing was made");
    talk.park("g", 1, 20_000);
    pass(&mut talk, 6_000);
    assert!(!refused(&mut talk), "a pop is parked, and takes it");
    pass(&mut talk, 5_000);
    assert!(!refused(&mut talk), "a lease is live");
    let request = talk.rig.delivered[0].seen.id;
    assert_eq!(talk.complete("g", request, 1), Outcome::Acked);
    assert!(refused(&mut talk), "5 s after its answer the consumer is not listening any more");
    talk.pop("g", 1);
    pass(&mut talk, 4_999);
    assert!(!refused(&mut talk));
    pass(&mut talk, 1);
    assert!(refused(&mut talk));
}

#[test]
fn a_reply_spends_the_rate_and_no_room() {
    let mut settings = settings();
    settings.allowance = Allowance { messages_per_second: 1, burst_messages: 2, ..Allowance::UNBOUNDED };
    settings.defaults.max_length = 1;
    let mut talk = Talk::new(settings);
    let (caller, request, _) = call(&mut talk, 60_000);
    let (_, _, facts) = call_with(&mut talk, 0, false);
    assert!(matches!(facts[0].said, Said::Answer(Answer::Refused(Refusal::QueueFull { can_fit: true }))), "{facts:?}");
    talk.pop("g", 1);
    assert_eq!(reply(&mut talk, request), None, "the rate is spent");
    pass(&mut talk, 1_000);
    assert_eq!(reply(&mut talk, request), Some(caller));
}
