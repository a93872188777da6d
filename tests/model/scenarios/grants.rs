//! Grants: bounds of a tenant that change, and what becomes of what it holds.

use mayfly_shards::{Allowance, Answer, Refusal, Span, Tenant, Verdict};

use super::{PARTITION, Talk, got, settings};
use crate::facts::{Ask, Fact, Said};

const BARRED: Allowance = Allowance { is_enabled: false, ..Allowance::UNBOUNDED };

impl Talk {
    /// What the tenant may use from now on; who was told what.
    fn grant(&mut self, allowance: Option<Allowance>) -> Vec<Fact> {
        self.ask(&Ask::Grant { tenant: Tenant::DEFAULT, allowance }).1
    }

    fn answer_to_push(&mut self, sizes: &[usize]) -> Answer {
        self.push_sized(PARTITION, sizes).0
    }
}

fn refused(refusal: Refusal) -> Answer {
    Answer::Refused(refusal)
}

#[test]
fn a_grant_that_shrinks_refuses_more_and_keeps_what_is_held() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 3);
    talk.grant(Some(Allowance { bytes_max: 20, ..Allowance::UNBOUNDED }));
    assert_eq!(talk.answer_to_push(&[8]), refused(Refusal::TenantBytes));
    assert_eq!(got(&talk.pop_with("g", None, 2, None, true).1)[0].1.len(), 2, "all are there");
    assert_eq!(talk.answer_to_push(&[10]), Answer::Pushed(1), "equal is allowed");
    talk.grant(Some(Allowance { parked_max: 0, queues_max: 0, ..Allowance::UNBOUNDED }));
    assert_eq!(talk.answer_to_push(&[10]), Answer::Pushed(1), "the queue is there already");
    let (_, facts) = talk.pop_with("g", Some("nothing"), 1, Some(1_000), true);
    assert_eq!(facts[0].said, Said::Answer(refused(Refusal::TooManyParked)));
}

#[test]
fn without_a_grant_nothing_is_taken_or_made_and_what_is_leased_may_be_settled() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 2);
    talk.pop("g", 1);
    talk.grant(Some(BARRED));
    assert_eq!(talk.answer_to_push(&[10]), refused(Refusal::NotGranted));
    assert_eq!(talk.pop_with("g", None, 1, None, true).1[0].said, Said::Answer(refused(Refusal::NotGranted)));
    assert_eq!(talk.ack("g", 0, 1, Verdict::Completed).0, mayfly_shards::Outcome::Acked, "who splits a request asks for its grant");
    talk.grant(None);
    assert_eq!(talk.pop("g", 9).len(), 1);
}

#[test]
fn a_grant_that_goes_sends_away_who_waits() {
    let mut talk = Talk::new(settings());
    let (first, second) = (talk.park("g", 1, 5_000), talk.park("h", 1, 5_000));
    let told = talk.grant(Some(BARRED));
    let refused = |ticket| Fact { ticket, said: Said::Answer(refused(Refusal::NotGranted)) };
    let mut told: Vec<Fact> = told;
    told.sort_by_key(|fact| fact.ticket);
    assert_eq!(told, [refused(first), refused(second)]);
    talk.grant(None);
    assert_eq!(talk.push(PARTITION, 1), [], "nobody waits any more");
    assert_eq!(talk.rig.pass(Span::from_secs(9)).map(|facts| facts.len()), Ok(0));
}

#[test]
fn another_rate_begins_with_a_full_bucket() {
    let mut settings = settings();
    settings.allowance = Allowance { messages_per_second: 1, burst_messages: 2, ..Allowance::UNBOUNDED };
    let mut talk = Talk::new(settings);
    assert_eq!(talk.answer_to_push(&[10; 2]), Answer::Pushed(2));
    assert_eq!(talk.answer_to_push(&[10]), refused(Refusal::RateLimited { retry_after: Span::from_secs(1) }));
    talk.grant(Some(settings_of_rate(10)));
    assert_eq!(talk.answer_to_push(&[10; 20]), Answer::Pushed(20));
    talk.grant(Some(settings_of_rate(10)));
    assert_eq!(talk.answer_to_push(&[10]), refused(Refusal::RateLimited { retry_after: Span::from_millis(100) }), "the same goes on");
}

fn settings_of_rate(per_second: u64) -> Allowance {
    Allowance { messages_per_second: per_second, burst_messages: 2 * per_second, ..Allowance::UNBOUNDED }
}
