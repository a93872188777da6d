//! Bounds, refusals that leave no trace, dropOldest, ttl, rate, dead groups.

use mayfly_shards::{
    Allowance, Answer, GroupDepth, MESSAGE_OVERHEAD_BYTES, Outcome, Policy, QUEUE_OVERHEAD_BYTES, Refusal, Span, WAITER_OVERHEAD_BYTES,
};

use super::{PARTITION, Talk, name, settings};
use crate::facts::{Ask, Fact, Said};

const FULL: Answer = Answer::Refused(Refusal::QueueFull { can_fit: true });
const TOO_LARGE: Answer = Answer::Refused(Refusal::QueueFull { can_fit: false });
const NODE: Answer = Answer::Refused(Refusal::NodeBytes);

#[test]
fn a_push_past_a_bound_is_refused_whole() {
    let mut talk = Talk::with(|o| (o.max_length, o.max_bytes) = (3, 100));
    talk.push(PARTITION, 2);
    assert_eq!(talk.push_sized("other", &[10, 10]).0, FULL);
    assert_eq!(talk.push_sized("other", &[81]).0, FULL);
    assert_eq!(talk.push_sized("other", &[80]).0, Answer::Pushed(1), "equal to the bound is allowed");
    assert_eq!(talk.push_sized("other", &[101]).0, TOO_LARGE);
    assert_eq!(talk.row().map(|r| (r.depth, r.bytes)), Some((3, 100)));
}

#[test]
fn a_refused_push_makes_no_queue() {
    let mut talk = Talk::with(|o| o.max_length = 1);
    assert_eq!(talk.push_sized(PARTITION, &[10, 10]).0, TOO_LARGE);
    assert_eq!((talk.row(), talk.depth(None)), (None, None));
}

#[test]
fn drop_oldest_empties_the_target_first_then_the_oldest_head() {
    let mut talk = Talk::with(|o| (o.max_length, o.policy) = (4, Policy::DropOldest));
    talk.push("x", 1);
    talk.push("y", 1);
    talk.push("x", 1);
    talk.push("target", 1);
    talk.push("target", 3);
    assert_eq!(talk.drops(), [3, 0, 0]);
    let mut left: Vec<u64> = talk.pop("a", 9).iter().map(|m| m.0).collect();
    left.sort_unstable();
    assert_eq!(left, [2, 4, 5, 6]);
}

#[test]
fn drop_oldest_takes_leased_ones_too_and_tells_who_missed_what() {
    let mut talk = Talk::with(|o| (o.max_length, o.policy) = (2, Policy::DropOldest));
    talk.pop("slow", 1);
    talk.push(PARTITION, 2);
    talk.pop("fast", 1);
    talk.push(PARTITION, 2);
    assert_eq!(talk.complete("fast", 0, 1), Outcome::Unknown);
    let skipped = |group: &str, skipped| GroupDepth { group: group.into(), pending: 2, skipped };
    assert_eq!(talk.depth(None).map(|d| d.groups), Some(vec![skipped("fast", 1), skipped("slow", 2)]));
}

#[test]
fn drop_oldest_comes_down_to_a_bound_that_shrank() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 5);
    talk.configure(|o| (o.max_length, o.policy) = (2, Policy::DropOldest));
    assert_eq!(talk.row().map(|r| r.depth), Some(5), "declaring a live queue keeps its contents");
    talk.push(PARTITION, 1);
    assert_eq!((talk.drops(), talk.row().map(|r| r.depth)), ([4, 0, 0], Some(2)));
}

#[test]
fn a_push_that_could_never_fit_evicts_nothing() {
    let mut talk = Talk::with(|o| (o.max_length, o.policy) = (2, Policy::DropOldest));
    talk.push(PARTITION, 2);
    assert_eq!(talk.push_sized(PARTITION, &[10; 3]).0, TOO_LARGE);
    assert_eq!((talk.drops(), talk.pop("a", 9).len()), ([0, 0, 0], 2));
}

#[test]
fn the_room_that_drop_oldest_makes_is_the_pushs_own() {
    let mut settings = settings();
    settings.defaults.max_length = 1;
    settings.defaults.policy = Policy::DropOldest;
    settings.node_bytes = QUEUE_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES + 10;
    let mut talk = Talk::new(settings);
    talk.push(PARTITION, 1);
    talk.push(PARTITION, 1);
    assert_eq!(talk.drops(), [1, 0, 0]);
    assert_eq!(talk.push_sized(PARTITION, &[11]).0, NODE);
    assert_eq!((talk.drops(), talk.pop("a", 9)), ([1, 0, 0], vec![(1, 1, 1)]), "a refused push evicts nothing");
}

#[test]
fn the_nodes_bytes_bound_messages_queues_and_parked_pops() {
    let mut settings = settings();
    settings.node_bytes = QUEUE_OVERHEAD_BYTES + WAITER_OVERHEAD_BYTES;
    let mut talk = Talk::new(settings);
    assert_eq!(talk.push_sized(PARTITION, &[200]).0, NODE);
    assert_eq!(talk.row(), None);
    let waiter = talk.park("a", 1, 1_000);
    let wait_until = Some(talk.rig.now + Span::from_secs(1));
    let pop = |queue: &str, wait_until| Ask::Pop {
        queue: name(queue),
        partition: Some("new".to_owned()),
        group: "b".to_owned(),
        batch: 1,
        wait_until,
        auto_ack: false,
    };
    assert_eq!(talk.answer(&pop("q", wait_until)), NODE, "no room to park");
    assert_eq!(talk.depth(None).map(|d| d.groups.len()), Some(1), "and no trace of it");
    assert_eq!(talk.answer(&pop("r", None)), NODE, "no room for a queue");
    assert_eq!(talk.pass_millis(1_000), [(waiter, vec![])]);
    assert_eq!(talk.push_sized(PARTITION, &[128]).0, Answer::Pushed(1), "what a parked pop held is free again");
}

#[test]
fn a_pop_that_finds_no_room_to_wait_leaves_no_trace() {
    let mut settings = settings();
    settings.node_bytes = QUEUE_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES + 10;
    let mut talk = Talk::new(settings);
    talk.push(PARTITION, 1);
    let (ticket, facts) = talk.pop_with("new", Some("empty"), 1, Some(1_000), false);
    assert_eq!(facts, [Fact { ticket, said: Said::Answer(NODE) }]);
    assert_eq!(talk.depth(None).map(|d| d.groups), Some(vec![]));
}

#[test]
fn ttl_drops_leased_or_not_and_is_counted() {
    let mut talk = Talk::with(|o| o.ttl_seconds = 2);
    talk.push(PARTITION, 2);
    talk.pop("a", 1);
    talk.pass_millis(1_999);
    assert_eq!(talk.pop("b", 1).len(), 1);
    talk.pass_millis(1);
    assert_eq!((talk.pop("a", 9), talk.drops()), (vec![], [0, 2, 0]));
    assert_eq!(talk.complete("a", 0, 1), Outcome::Unknown);
}

#[test]
fn a_shorter_ttl_holds_for_what_is_there() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    talk.pass_millis(5_000);
    talk.configure(|o| o.ttl_seconds = 5);
    assert_eq!((talk.pop("a", 9), talk.drops()), (vec![], [0, 1, 0]));
}

#[test]
fn rate_is_spent_by_what_passes_the_rate() {
    let mut settings = settings();
    settings.allowance = Allowance { messages_per_second: 2, burst_messages: 4, ..Allowance::UNBOUNDED };
    settings.defaults.max_length = 5;
    let mut talk = Talk::new(settings);
    let limited = |ms| Answer::Refused(Refusal::RateLimited { retry_after: Span::from_millis(ms) });
    assert_eq!(talk.push_sized(PARTITION, &[10; 6]).0, TOO_LARGE, "it passed the rate, and spent the whole burst");
    assert_eq!(talk.push_sized(PARTITION, &[10; 3]).0, limited(1_500));
    talk.pass_millis(1_499);
    assert_eq!(talk.push_sized(PARTITION, &[10; 3]).0, limited(1), "a refused push spent nothing");
    talk.pass_millis(1);
    assert_eq!(talk.push_sized(PARTITION, &[10; 3]).0, Answer::Pushed(3));
}

#[test]
fn a_dead_group_cannot_block_a_queue() {
    let mut settings = settings();
    settings.group_idle = Span::from_secs(60);
    settings.defaults.max_length = 2;
    let mut talk = Talk::new(settings);
    talk.pop("dead", 1);
    talk.push(PARTITION, 2);
    talk.pass_millis(59_000);
    talk.pop("live", 2);
    talk.complete("live", 0, 1);
    assert_eq!(talk.push_sized(PARTITION, &[10]).0, FULL, "not dead yet");
    talk.pass_millis(1_000);
    assert_eq!(talk.push_sized(PARTITION, &[10; 2]).0, FULL, "the live group holds one of them");
    assert_eq!(talk.depth(None).map(|d| d.groups.len()), Some(2), "a push that is refused all the same forgets nobody");
    talk.push(PARTITION, 1);
    assert_eq!(talk.depth(None).map(|d| d.groups.len()), Some(1));
    talk.pass_millis(120_000);
    assert_eq!(talk.push_sized(PARTITION, &[10]).0, FULL, "the last group is never forgotten");
}

#[test]
fn of_dead_groups_those_go_that_hold_the_room() {
    let mut settings = settings();
    settings.group_idle = Span::from_secs(60);
    settings.defaults.max_length = 2;
    let mut talk = Talk::new(settings);
    talk.pop("read nothing", 1);
    talk.push(PARTITION, 2);
    talk.pop_with("read it all", None, 2, None, true);
    talk.pass_millis(1_000);
    assert_eq!(talk.pop_with("read nothing", Some("elsewhere"), 1, None, true).1.len(), 1);
    talk.pass_millis(60_000);
    talk.push(PARTITION, 1);
    let left = GroupDepth { group: "read it all".into(), pending: 1, skipped: 0 };
    assert_eq!(talk.depth(None).map(|d| d.groups), Some(vec![left]));
}

#[test]
fn a_parked_pop_and_a_lease_keep_a_group_alive() {
    let mut settings = settings();
    settings.group_idle = Span::from_secs(5);
    settings.defaults.max_length = 1;
    let mut talk = Talk::new(settings);
    talk.pop("live", 1);
    let (waiter, _) = talk.pop_with("parked", Some("other"), 1, Some(60_000), false);
    talk.push(PARTITION, 1);
    talk.pass_millis(9_000);
    talk.pop("live", 1);
    talk.complete("live", 0, 1);
    assert_eq!(talk.push_sized(PARTITION, &[10]).0, FULL);
    talk.rig.cancel(waiter).unwrap_or_else(|failure| panic!("{failure}"));
    talk.pass_millis(5_000);
    talk.pop("live", 1);
    talk.push(PARTITION, 1);
}
