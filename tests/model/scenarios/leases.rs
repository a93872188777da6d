//! Attempts, late acks, retryLimit, groups beside one another.

use mayfly_shards::{Answer, Outcome, QUEUE_MODE, Refusal, Verdict};

use super::{PARTITION, Talk, name, settings};
use crate::facts::Ask;

#[test]
fn a_late_completion_settles_what_nobody_else_got() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    assert_eq!(talk.pop("a", 1), [(0, 1, 1)]);
    talk.pass_millis(10_000);
    assert_eq!(talk.complete("a", 0, 1), Outcome::Acked);
    assert_eq!(talk.pop("a", 9), []);
    assert_eq!(talk.complete("a", 0, 1), Outcome::Unknown, "settled already");
}

#[test]
fn a_late_nack_is_charged_once() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    talk.pop("a", 1);
    talk.pass_millis(10_000);
    assert_eq!(talk.nack("a", 0, 1), Outcome::Redelivered);
    assert_eq!(talk.pop("a", 1), [(0, 2, 2)]);
}

#[test]
fn a_delivery_is_answered_once() {
    for waited_ms in [0, 10_000] {
        let mut talk = Talk::new(settings());
        talk.push(PARTITION, 1);
        talk.pop("a", 1);
        talk.pass_millis(waited_ms);
        assert_eq!(talk.nack("a", 0, 1), Outcome::Redelivered);
        assert_eq!(talk.nack("a", 0, 1), Outcome::Unknown);
        assert_eq!(talk.complete("a", 0, 1), Outcome::Unknown);
        assert_eq!(talk.pop("a", 1), [(0, 2, 2)]);
    }
}

#[test]
fn a_late_ack_never_touches_somebody_elses_lease() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    talk.pop("a", 1);
    talk.pass_millis(10_000);
    assert_eq!(talk.pop("a", 1), [(0, 2, 2)]);
    assert_eq!(talk.complete("a", 0, 1), Outcome::Stale);
    assert_eq!(talk.nack("a", 0, 1), Outcome::Stale);
    assert_eq!(talk.pop("a", 1), [], "still leased");
    talk.pass_millis(10_000);
    assert_eq!(talk.complete("a", 0, 1), Outcome::Stale, "an earlier delivery, while the later one awaits redelivery");
    assert_eq!(talk.complete("a", 0, 2), Outcome::Acked);
}

#[test]
fn a_lease_holds_up_to_its_end() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    talk.pop("a", 1);
    talk.pass_millis(9_999);
    assert_eq!(talk.pop("a", 1), []);
    talk.pass_millis(1);
    assert_eq!(talk.pop("a", 1), [(0, 2, 2)]);
}

#[test]
fn lease_ends_use_attempts_up() {
    let mut talk = Talk::with(|o| o.retry_limit = 2);
    talk.push(PARTITION, 1);
    assert_eq!(talk.pop("a", 1), [(0, 1, 1)]);
    talk.pass_millis(10_000);
    assert_eq!(talk.pop("a", 1), [(0, 2, 2)]);
    talk.pass_millis(10_000);
    assert_eq!(talk.pop("a", 1), []);
    assert_eq!(talk.drops(), [0, 0, 1]);
    assert_eq!(talk.complete("a", 0, 2), Outcome::Unknown);
}

#[test]
fn the_last_nack_is_acked_and_counted() {
    for retry_limit in [0, 1] {
        let mut talk = Talk::with(|o| o.retry_limit = retry_limit);
        talk.push(PARTITION, 1);
        talk.pop("a", 1);
        assert_eq!(talk.nack("a", 0, 1), Outcome::Acked, "retryLimit {retry_limit}");
        assert_eq!((talk.drops(), talk.pop("a", 1)), ([0, 0, 1], vec![]));
    }
}

#[test]
fn attempts_used_up_in_one_group_are_nothing_to_another() {
    let mut talk = Talk::with(|o| o.retry_limit = 1);
    talk.push(PARTITION, 1);
    talk.pop("a", 1);
    talk.pop("b", 1);
    assert_eq!(talk.nack("a", 0, 1), Outcome::Acked);
    assert_eq!(talk.row().map(|r| r.depth), Some(1), "b still has it");
    assert_eq!(talk.complete("b", 0, 1), Outcome::Acked);
    assert_eq!(talk.row().map(|r| r.depth), Some(0));
}

#[test]
fn redeliveries_come_first_and_in_order() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 5);
    assert_eq!(talk.pop("a", 3).len(), 3);
    talk.nack("a", 2, 1);
    talk.nack("a", 0, 1);
    assert_eq!(talk.pop("a", 9), [(0, 2, 2), (2, 2, 2), (3, 1, 1), (4, 1, 1)]);
}

#[test]
fn a_new_group_starts_at_the_oldest_message_held() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 3);
    talk.pop("a", 2);
    talk.complete("a", 0, 1);
    assert_eq!(talk.pop("b", 9).iter().map(|m| m.0).collect::<Vec<_>>(), [1, 2], "what every group had settled is gone");
    talk.push("later", 1);
    assert_eq!(talk.pop("b", 9), [(3, 1, 1)], "a group is seeded into partitions made after it");
}

#[test]
fn an_ack_settles_for_its_group_and_partition_only() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    talk.pop("a", 1);
    talk.pop("b", 1);
    assert_eq!(talk.complete("c", 0, 1), Outcome::Unknown);
    assert_eq!(talk.complete(QUEUE_MODE, 0, 1), Outcome::Unknown);
    assert_eq!(talk.complete("a", 0, 2), Outcome::Unknown, "a delivery that never was");
    let mut item = crate::drive::Rig::item(&talk.rig.delivered[0], Verdict::Completed);
    item.partition = "elsewhere".to_owned();
    let ask = Ask::Ack { queue: name("q"), group: "a".to_owned(), items: vec![item] };
    assert_eq!(talk.answer(&ask), Answer::Acked(vec![(0, Outcome::Unknown)]));
    assert_eq!(talk.complete("a", 0, 1), Outcome::Acked);
    assert_eq!(talk.complete("b", 0, 1), Outcome::Acked);
    assert!(talk.depth(None).is_some_and(|d| d.groups.len() == 2), "an ack registers nothing");
}

#[test]
fn an_answer_holds_about_a_mebibyte_and_at_least_one_message() {
    let mut talk = Talk::new(settings());
    let two_mib = 2 << 20;
    talk.push_sized(PARTITION, &[two_mib, 400_000, 400_000, 400_000, 10]);
    let sizes: Vec<usize> = (0..3).map(|_| talk.pop("a", 10_000).len()).collect();
    assert_eq!(sizes, [1, 2, 2]);
}

#[test]
fn a_busy_partition_starves_nobody() {
    let mut talk = Talk::new(settings());
    for partition in ["x", "y", "z"] {
        talk.push(partition, 2);
    }
    let order: Vec<u64> = (0..6).map(|_| talk.pop("a", 1)[0].0).collect();
    assert_eq!(order, [0, 2, 4, 1, 3, 5]);
    assert_eq!(talk.pop("b", 4).iter().map(|m| m.0).collect::<Vec<_>>(), [0, 1, 2, 3], "each group goes its own round");
}

#[test]
fn a_queue_knows_1024_groups() {
    let mut talk = Talk::new(settings());
    for n in 0..mayfly_shards::GROUPS_MAX {
        assert_eq!(talk.pop(&format!("g{n}"), 1), []);
    }
    let pop = |group: &str, partition: &str| Ask::Pop {
        queue: name("q"),
        partition: Some(partition.to_owned()),
        group: group.to_owned(),
        batch: 1,
        wait_until: None,
        auto_ack: false,
    };
    assert_eq!(talk.answer(&pop("one more", "new")), Answer::Refused(Refusal::TooManyGroups));
    assert_eq!(talk.pop("g7", 1), [], "one it knows is served");
}
