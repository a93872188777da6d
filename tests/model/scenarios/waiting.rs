//! Parked pops and windows.

use mayfly_shards::Verdict;

use super::{PARTITION, Talk, settings};

#[test]
fn one_message_wakes_the_pop_parked_longest() {
    let mut talk = Talk::new(settings());
    let first = talk.park("a", 1, 60_000);
    let second = talk.park("a", 1, 50_000);
    let other_group = talk.park("b", 1, 60_000);
    assert_eq!(talk.push(PARTITION, 1), [(first, vec![(0, 1, 1)]), (other_group, vec![(0, 1, 1)])]);
    assert_eq!(talk.push(PARTITION, 1), [(second, vec![(1, 1, 1)])]);
}

#[test]
fn one_push_feeds_as_many_pops_as_it_can() {
    let mut talk = Talk::new(settings());
    let waiters = [talk.park("a", 2, 60_000), talk.park("a", 1, 60_000), talk.park("a", 5, 60_000)];
    let woken = talk.push(PARTITION, 4);
    assert_eq!(woken.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), waiters);
    assert_eq!(woken.iter().map(|(_, m)| m.len()).collect::<Vec<_>>(), [2, 1, 1]);
}

#[test]
fn a_pop_parked_on_one_partition_sleeps_through_another() {
    let mut talk = Talk::new(settings());
    let (named, facts) = talk.pop_with("a", Some("here"), 1, Some(1_000), false);
    assert_eq!(facts, []);
    let any = talk.park("a", 1, 60_000);
    assert_eq!(talk.push("there", 1), [(any, vec![(0, 1, 1)])]);
    assert_eq!(talk.pass_millis(999), []);
    assert_eq!(talk.pass_millis(1), [(named, vec![])]);
}

#[test]
fn a_hung_up_pop_swallows_nothing() {
    let mut talk = Talk::new(settings());
    let (gone, _) = talk.pop_with("a", None, 1, Some(60_000), true);
    let next = talk.park("a", 1, 60_000);
    assert_eq!(talk.rig.cancel(gone), Ok(vec![]));
    assert_eq!(talk.push(PARTITION, 1), [(next, vec![(0, 1, 1)])]);
}

#[test]
fn nack_and_lease_end_wake() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    talk.pop("a", 1);
    let first = talk.park("a", 1, 60_000);
    let second = talk.park("a", 1, 60_000);
    let (_, woken) = talk.ack("a", 0, 1, Verdict::Nack);
    assert_eq!(woken, [(first, vec![(0, 2, 2)])]);
    assert_eq!(talk.pass_millis(9_999), []);
    assert_eq!(talk.pass_millis(1), [(second, vec![(0, 3, 3)])]);
}

#[test]
fn a_message_that_comes_back_at_the_timeout_is_given() {
    let mut talk = Talk::new(settings());
    talk.push(PARTITION, 1);
    talk.pop("a", 1);
    let waiter = talk.park("a", 1, 10_000);
    assert_eq!(talk.pass_millis(10_000), [(waiter, vec![(0, 2, 2)])]);
}

#[test]
fn what_comes_back_together_is_given_together() {
    let mut talk = Talk::new(settings());
    talk.push("x", 1);
    talk.push("y", 1);
    talk.pop("a", 9);
    let waiters = [talk.park("a", 9, 60_000), talk.park("a", 9, 60_000)];
    assert_eq!(talk.pass_millis(10_000), [(waiters[0], vec![(0, 2, 2), (1, 2, 2)])]);
}

#[test]
fn a_window_closes_by_time() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (500, 3));
    let waiter = talk.park("a", 9, 60_000);
    talk.pass_millis(5_000);
    assert_eq!(talk.push(PARTITION, 1), [], "the window opens at the first message, not at the poll");
    assert_eq!(talk.pass_millis(400), []);
    assert_eq!(talk.push(PARTITION, 1), []);
    assert_eq!(talk.pass_millis(99), []);
    assert_eq!(talk.pass_millis(1), [(waiter, vec![(0, 1, 1), (1, 1, 1)])]);
}

#[test]
fn a_window_closes_by_count_or_a_full_batch() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (0, 3));
    let by_count = talk.park("a", 9, 60_000);
    assert_eq!(talk.push(PARTITION, 2), []);
    assert_eq!(talk.pass_millis(50_000), []);
    assert_eq!(talk.push(PARTITION, 1), [(by_count, vec![(0, 1, 1), (1, 1, 1), (2, 1, 1)])]);
    let by_batch = talk.park("a", 2, 60_000);
    assert_eq!(talk.push(PARTITION, 2), [(by_batch, vec![(3, 1, 1), (4, 1, 1)])]);
}

#[test]
fn a_window_ends_at_the_timeout_with_what_is_there() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (0, 3));
    let waiter = talk.park("a", 9, 1_000);
    talk.push(PARTITION, 1);
    assert_eq!(talk.pass_millis(1_000), [(waiter, vec![(0, 1, 1)])]);
}

#[test]
fn the_pop_parked_longest_holds_the_window_and_later_ones_wait_behind_it() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (500, 0));
    let holder = talk.park("a", 2, 60_000);
    let behind = talk.park("a", 9, 60_000);
    assert_eq!(talk.push(PARTITION, 1), []);
    talk.pass_millis(400);
    assert_eq!(talk.push(PARTITION, 2), [(holder, vec![(0, 1, 1), (1, 1, 1)])], "a full batch");
    assert_eq!(talk.pass_millis(499), [], "the next window opened when the first closed");
    assert_eq!(talk.pass_millis(1), [(behind, vec![(2, 1, 1)])]);
}

#[test]
fn a_window_takes_nothing_before_it_answers_and_delays_no_plain_pop() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (500, 2));
    let holder = talk.park("a", 9, 60_000);
    talk.push(PARTITION, 1);
    assert_eq!(talk.pop("a", 1), [(0, 1, 1)]);
    talk.pass_millis(500);
    assert_eq!(talk.rig.parked(), [holder], "with nothing there it stays parked");
}

#[test]
fn a_poll_that_finds_its_count_ready_answers_at_once() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (500, 2));
    talk.push(PARTITION, 2);
    let (_, facts) = talk.pop_with("a", None, 9, Some(60_000), false);
    assert_eq!(super::got(&facts)[0].1.len(), 2);
    talk.push(PARTITION, 1);
    let waiter = talk.park("a", 9, 60_000);
    assert_eq!(talk.pass_millis(500), [(waiter, vec![(2, 1, 1)])], "it saw one when it came");
}

#[test]
fn a_pop_behind_a_window_times_out_with_nothing() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (0, 3));
    let holder = talk.park("a", 9, 60_000);
    let behind = talk.park("a", 9, 1_000);
    talk.push(PARTITION, 1);
    assert_eq!(talk.pass_millis(1_000), [(behind, vec![])]);
    assert_eq!(talk.push(PARTITION, 2), [(holder, vec![(0, 1, 1), (1, 1, 1), (2, 1, 1)])]);
}

#[test]
fn a_window_on_one_partition_holds_back_no_other() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (500, 2));
    let (holder, _) = talk.pop_with("a", Some("x"), 9, Some(60_000), false);
    let any = talk.park("a", 9, 60_000);
    assert_eq!(talk.push("x", 1), []);
    assert_eq!(talk.push("y", 2), [(any, vec![(1, 1, 1), (2, 1, 1)])]);
    assert_eq!(talk.pass_millis(500), [(holder, vec![(0, 1, 1)])]);
}

#[test]
fn a_window_on_one_partition_delays_no_plain_pop_of_any() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (500, 2));
    talk.pop_with("a", Some("x"), 9, Some(60_000), false);
    talk.push("x", 1);
    talk.pass_millis(100);
    assert_eq!(talk.pop("a", 9), [(0, 1, 1)]);
}

#[test]
fn what_a_window_leaves_behind_wakes_whom_it_held_back() {
    let mut talk = Talk::with(|o| (o.window.ms, o.window.count) = (500, 0));
    let any = talk.park("a", 2, 60_000);
    talk.push("x", 1);
    let (named, _) = talk.pop_with("a", Some("x"), 1, Some(60_000), false);
    assert_eq!(talk.push(PARTITION, 2), [(any, vec![(1, 1, 1), (2, 1, 1)]), (named, vec![(0, 1, 1)])]);
}
