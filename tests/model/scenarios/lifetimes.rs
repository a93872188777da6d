//! Queues come and go: reset, delete, collection, status reads.

use mayfly_shards::{Answer, GroupDepth, Outcome, QUEUE_MODE, Span};

use super::{PARTITION, Talk, name, settings};
use crate::facts::Ask;

fn reset(talk: &mut Talk) -> Answer {
    talk.answer(&Ask::Reset { queue: name("q") })
}

fn delete(talk: &mut Talk) -> Answer {
    talk.answer(&Ask::Delete { queue: name("q"), is_overtaken: false })
}

#[test]
fn reset_drops_messages_and_leases_and_keeps_the_rest() {
    let mut talk = Talk::new(settings());
    talk.configure(|o| o.retry_limit = 1);
    talk.push(PARTITION, 3);
    talk.pop("a", 2);
    talk.nack("a", 0, 1);
    talk.pop("b", 1);
    assert_eq!(reset(&mut talk), Answer::Reset(2), "each message once, whatever the groups made of it");
    assert_eq!(talk.complete("a", 1, 1), Outcome::Unknown);
    talk.pass_millis(20_000);
    assert_eq!(talk.pop("a", 9), []);
    let row = talk.row().expect("it exists");
    assert_eq!((row.declared, row.groups, row.drops, row.options.retry_limit), (true, 2, [0, 0, 1], 1));
    talk.push(PARTITION, 1);
    assert_eq!((talk.pop("a", 9), talk.pop("c", 9)), (vec![(3, 1, 1)], vec![(3, 1, 1)]));
}

#[test]
fn reset_and_delete_of_nothing_make_nothing() {
    let mut talk = Talk::new(settings());
    assert_eq!(reset(&mut talk), Answer::Reset(0));
    assert_eq!(delete(&mut talk), Answer::Deleted { deleted: false, declared: false });
    assert_eq!(talk.row(), None);
}

#[test]
fn delete_forgets_groups_and_declaration() {
    let mut talk = Talk::new(settings());
    talk.configure(|o| o.max_length = 1);
    talk.pop("a", 1);
    assert_eq!(delete(&mut talk), Answer::Deleted { deleted: true, declared: true });
    assert_eq!(talk.depth(None), None);
    talk.push(PARTITION, 2);
    assert_eq!(talk.row().map(|r| (r.declared, r.groups)), Some((false, 0)));
}

#[test]
fn a_deletion_that_a_later_declaration_overtook_drops_contents_and_leaves_the_declaration() {
    let mut talk = Talk::new(settings());
    talk.configure(|o| o.max_length = 7);
    talk.push(PARTITION, 2);
    talk.pop("a", 1);
    let overtaken = Ask::Delete { queue: name("q"), is_overtaken: true };
    assert_eq!(talk.answer(&overtaken), Answer::Deleted { deleted: true, declared: true });
    assert_eq!(talk.row().map(|r| (r.declared, r.depth, r.options.max_length)), Some((true, 0, 7)));
    assert_eq!((talk.complete("a", 0, 1), talk.pop("a", 9)), (Outcome::Unknown, vec![]));
    // Of what is not declared nothing is left.
    talk.answer(&Ask::Undeclare { queue: name("q") });
    assert_eq!(talk.answer(&overtaken), Answer::Deleted { deleted: true, declared: false });
    assert_eq!(talk.row(), None);
}

#[test]
fn an_id_from_before_a_delete_settles_nothing_after_it() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    talk.pop("a", 1);
    delete(&mut talk);
    talk.push(PARTITION, 1);
    assert_eq!(talk.pop("a", 1), [(1, 1, 1)]);
    assert_eq!(talk.complete("a", 0, 1), Outcome::Unknown);
    assert_eq!(talk.complete("a", 1, 1), Outcome::Acked);
}

#[test]
fn pops_stay_parked_over_a_delete_and_do_not_make_the_queue_exist() {
    let mut talk = Talk::new(settings());
    talk.pop("gone", 1);
    let waiter = talk.park("a", 1, 60_000);
    let (named, _) = talk.pop_with("b", Some("p"), 1, Some(60_000), false);
    assert_eq!(delete(&mut talk), Answer::Deleted { deleted: true, declared: false });
    assert_eq!((talk.row(), talk.depth(None)), (None, None));
    assert_eq!(delete(&mut talk), Answer::Deleted { deleted: false, declared: false });
    assert_eq!(reset(&mut talk), Answer::Reset(0));
    assert_eq!(talk.push(PARTITION, 1), [(waiter, vec![(0, 1, 1)])]);
    assert_eq!(talk.complete("a", 0, 1), Outcome::Acked);
    let held_for_b = GroupDepth { group: "b".into(), pending: 1, skipped: 0 };
    assert_eq!(talk.depth(None).map(|d| d.groups), Some(vec![GroupDepth { group: "a".into(), pending: 0, skipped: 0 }, held_for_b]));
    assert_eq!(talk.push("p", 1), [(named, vec![(1, 1, 1)])]);
}

#[test]
fn the_last_pop_leaving_a_deleted_queue_takes_its_groups_along() {
    let mut talk = Talk::new(settings());
    let waiter = talk.park("a", 1, 1_000);
    delete(&mut talk);
    assert_eq!(talk.pass_millis(1_000), [(waiter, vec![])]);
    talk.push(PARTITION, 1);
    assert_eq!(talk.row().map(|r| r.groups), Some(0));
}

#[test]
fn an_unused_implicit_queue_is_collected_with_all_it_knew() {
    let mut settings = settings();
    settings.implicit_idle = Span::from_secs(300);
    let mut talk = Talk::new(settings);
    talk.pop("a", 1);
    talk.pass_millis(299_999);
    assert!(talk.row().is_some());
    talk.pass_millis(1);
    assert_eq!((talk.row(), talk.depth(None)), (None, None));
    talk.push(PARTITION, 1);
    assert_eq!(talk.row().map(|r| r.groups), Some(0));
}

#[test]
fn messages_parked_pops_and_declarations_keep_a_queue() {
    let mut settings = settings();
    settings.implicit_idle = Span::from_secs(5);
    let mut leased = Talk::new(settings.clone());
    leased.push(PARTITION, 1);
    leased.pop("a", 1);
    leased.pass_millis(60_000);
    assert!(leased.row().is_some());
    let mut parked = Talk::new(settings.clone());
    let waiter = parked.park("a", 1, 60_000);
    parked.pass_millis(59_999);
    assert!(parked.row().is_some());
    assert_eq!(parked.pass_millis(1), [(waiter, vec![])]);
    parked.pass_millis(4_999);
    assert!(parked.row().is_some(), "idle since the pop was answered");
    parked.pass_millis(1);
    assert_eq!(parked.row(), None);
    let mut declared = Talk::new(settings);
    declared.configure(|_| {});
    declared.pass_millis(60_000);
    assert!(declared.row().is_some());
}

#[test]
fn a_queue_idles_from_its_last_message_on() {
    let mut settings = settings();
    settings.implicit_idle = Span::from_secs(300);
    settings.defaults.ttl_seconds = 299;
    let mut talk = Talk::new(settings);
    talk.push(PARTITION, 1);
    talk.pass_millis(299_000 + 299_999);
    assert!(talk.row().is_some());
    talk.pass_millis(1);
    assert_eq!(talk.row(), None);
}

#[test]
fn a_queue_is_abandoned_where_empty_ones_are_never_collected() {
    let mut settings = settings();
    settings.abandoned = Span::from_secs(3_600);
    let mut talk = Talk::new(settings);
    talk.push(PARTITION, 1);
    talk.pass_millis(3_600_000);
    assert_eq!(talk.row(), None);
}

#[test]
fn a_queue_nobody_uses_is_abandoned_with_its_messages() {
    let mut settings = settings();
    settings.implicit_idle = Span::from_secs(300);
    settings.abandoned = Span::from_secs(3_600);
    let mut talk = Talk::new(settings);
    talk.push(PARTITION, 1);
    talk.pass_millis(3_599_999);
    assert!(talk.row().is_some());
    talk.pass_millis(1);
    assert_eq!(talk.row(), None);
}

#[test]
fn pending_is_what_a_group_is_still_to_be_given() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 4);
    let pending = |talk: &mut Talk, group| talk.depth(group).map(|d| d.partitions[0].pending);
    assert_eq!(pending(&mut talk, None), Some(4), "nobody popped yet");
    talk.pop(QUEUE_MODE, 3);
    assert_eq!(pending(&mut talk, None), Some(1), "queue mode, while there is no named group");
    talk.pop("a", 1);
    assert_eq!(pending(&mut talk, None), Some(3), "the worst named group");
    talk.pop("b", 2);
    talk.nack("b", 0, 1);
    assert_eq!(pending(&mut talk, Some("b")), Some(3), "leased ones are not pending, nacked ones are");
    assert_eq!(pending(&mut talk, Some("never seen")), Some(4));
}
