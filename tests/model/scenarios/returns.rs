//! Answers that did not reach their client.

use mayfly_shards::Outcome;

use super::{PARTITION, Talk, got, settings};
use crate::facts::{Ask, Broken};

/// A pop of the group; its ticket.
fn take(talk: &mut Talk, group: &str, batch: u32, auto_ack: bool) -> u64 {
    let (ticket, facts) = talk.pop_with(group, None, batch, None, auto_ack);
    assert!(!got(&facts)[0].1.is_empty());
    ticket
}

#[test]
fn an_answer_of_which_nothing_was_sent_returns_free_of_charge() {
    for auto_ack in [false, true] {
        let mut talk = Talk::new(settings());
        talk.push(PARTITION, 3);
        let ticket = take(&mut talk, "a", 2, auto_ack);
        assert_eq!(talk.undeliver(ticket, Broken::Unsent), []);
        assert_eq!(talk.row().map(|r| r.depth), Some(3));
        assert_eq!(talk.pop("a", 9), [(0, 1, 2), (1, 1, 2), (2, 1, 1)], "in their place; n counts deliveries, charged or not");
    }
}

#[test]
fn an_unsent_answer_is_free_of_charge_after_its_lease_too() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    let ticket = take(&mut talk, "a", 1, false);
    talk.pass_millis(10_000);
    talk.undeliver(ticket, Broken::Unsent);
    assert_eq!(talk.pop("a", 1), [(0, 1, 2)]);
}

#[test]
fn a_message_returns_to_no_other_group_when_its_partition_was_given_up() {
    let mut settings = settings();
    settings.implicit_idle = mayfly_shards::Span::from_secs(5);
    let mut talk = Talk::new(settings);
    talk.push("kept", 1);
    talk.pop_with("b", Some("p"), 1, None, true);
    talk.push("p", 1);
    let (ticket, _) = talk.pop_with("a", Some("p"), 1, None, true);
    talk.pop_with("b", Some("p"), 1, None, true);
    talk.pass_millis(60_000);
    talk.undeliver(ticket, Broken::Unsent);
    let (_, facts) = talk.pop_with("b", Some("p"), 9, None, true);
    assert_eq!(got(&facts)[0].1, []);
}

#[test]
fn an_answer_broken_in_the_middle_is_charged_or_spent() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 2);
    let leased = take(&mut talk, "a", 1, false);
    let spent = take(&mut talk, "a", 1, true);
    talk.undeliver(leased, Broken::Partly);
    talk.undeliver(spent, Broken::Partly);
    assert_eq!(talk.pop("a", 9), [(0, 2, 2)]);
}

#[test]
fn an_answer_broken_in_the_middle_can_use_attempts_up() {
    let mut talk = Talk::with(|o| o.retry_limit = 1);
    talk.push(PARTITION, 1);
    let ticket = take(&mut talk, "a", 1, false);
    talk.undeliver(ticket, Broken::Partly);
    assert_eq!((talk.pop("a", 9), talk.drops()), (vec![], [0, 0, 1]));
}

#[test]
fn a_returned_answer_wakes_the_next_waiter() {
    for auto_ack in [false, true] {
        let mut talk = Talk::new(settings());
        talk.push(PARTITION, 1);
        let ticket = take(&mut talk, "a", 1, auto_ack);
        let waiter = talk.park("a", 1, 60_000);
        assert_eq!(talk.undeliver(ticket, Broken::Unsent), [(waiter, vec![(0, 1, 2)])]);
    }
}

#[test]
fn a_returned_answer_may_pass_the_bounds() {
    let mut talk = Talk::with(|o| o.max_length = 1);
    talk.push(PARTITION, 1);
    let ticket = take(&mut talk, "a", 1, true);
    talk.push(PARTITION, 1);
    talk.undeliver(ticket, Broken::Unsent);
    assert_eq!(talk.pop("a", 9), [(0, 1, 2), (1, 1, 1)]);
}

#[test]
fn a_returned_answer_comes_back_for_its_own_group_only() {
    let mut talk = Talk::new(settings());
    talk.pop("a", 1);
    talk.pop("b", 1);
    talk.push(PARTITION, 1);
    take(&mut talk, "b", 1, true);
    let ticket = take(&mut talk, "a", 1, true);
    assert_eq!(talk.row().map(|r| r.depth), Some(0), "both are done with it");
    talk.undeliver(ticket, Broken::Unsent);
    assert_eq!(talk.pop("b", 9), []);
    assert_eq!(talk.pop("a", 9), [(0, 1, 2)]);
    assert_eq!(talk.complete("a", 0, 2), Outcome::Acked);
    assert_eq!(talk.row().map(|r| r.depth), Some(0));
}

#[test]
fn answers_of_two_groups_return_one_after_the_other() {
    let mut talk = Talk::new(settings());
    talk.pop("a", 1);
    talk.pop("b", 1);
    talk.push(PARTITION, 1);
    let tickets = [take(&mut talk, "a", 1, true), take(&mut talk, "b", 1, true)];
    for ticket in tickets {
        talk.undeliver(ticket, Broken::Unsent);
    }
    assert_eq!((talk.pop("a", 9), talk.pop("b", 9)), (vec![(0, 1, 2)], vec![(0, 1, 2)]));
}

#[test]
fn nothing_returns_over_a_reset_or_a_delete() {
    for auto_ack in [false, true] {
        for is_reset in [false, true] {
            let mut talk = Talk::new(settings());
            talk.push(PARTITION, 1);
            let ticket = take(&mut talk, "a", 1, auto_ack);
            let queue = super::name("q");
            talk.ask(&if is_reset { Ask::Reset { queue } } else { Ask::Delete { queue, is_overtaken: false } });
            talk.push(PARTITION, 1);
            talk.pop("a", 1);
            talk.undeliver(ticket, Broken::Unsent);
            assert_eq!(talk.pop("a", 9), []);
        }
    }
}

#[test]
fn what_was_settled_or_delivered_again_meanwhile_does_not_return() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 2);
    let first = take(&mut talk, "a", 1, false);
    talk.complete("a", 0, 1);
    assert_eq!(talk.undeliver(first, Broken::Unsent), []);
    let second = take(&mut talk, "a", 1, false);
    talk.pass_millis(10_000);
    take(&mut talk, "a", 1, false);
    talk.undeliver(second, Broken::Partly);
    assert_eq!(talk.pop("a", 9), [], "somebody else's lease is not touched");
}

#[test]
fn a_returned_message_is_the_oldest_head_again() {
    let mut talk = Talk::with(|o| (o.max_length, o.policy) = (2, mayfly_shards::Policy::DropOldest));
    talk.push("x", 1);
    let ticket = take(&mut talk, "a", 1, true);
    talk.push("x", 1);
    talk.push("y", 1);
    talk.push("z", 1);
    assert_eq!(talk.drops(), [1, 0, 0], "1 went, the oldest head");
    talk.undeliver(ticket, Broken::Unsent);
    talk.push("w", 1);
    assert_eq!(talk.drops(), [3, 0, 0]);
    assert_eq!(talk.pop("a", 9).iter().map(|m| m.0).collect::<Vec<_>>(), [3, 4], "0 went first, then 2");
}
