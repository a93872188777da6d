//! Pops on any partition whose messages others take while they ask.

use mayfly_shards::{Letter, Options, Policy, Span, WindowBuffer};

use crate::node::{Heard, Node, options};

const SECOND: Span = Span::from_secs(1);

/// The queue on four cores, which hold nothing; every part knows the group.
fn four_parts() -> Node {
    let mut node = Node::new(options(Policy::Reject, 100));
    for partition in ["Default", "a", "d", "r"] {
        node.push(partition, &["0"]);
        node.carry();
    }
    node.drain(&["Default", "a", "d", "r"]);
    node
}

fn is_take(letter: &Letter) -> bool {
    matches!(letter, Letter::Take { .. })
}

#[test]
fn a_passing_pop_looks_again_when_others_took_what_it_saw() {
    let mut node = four_parts();
    node.push("a", &["1"]);
    node.push("d", &["2"]);
    let pop = node.pop(None, 1, None);
    let take = node.carry_until(is_take).expect("it takes what it saw first");
    let other = node.pop(Some("a"), 1, None);
    assert_eq!(node.heard(other), Some(&Heard::messages(["1"])));
    node.deliver(take);
    node.carry();
    assert_eq!(node.heard(pop), Some(&Heard::messages(["2"])), "there was another");
}

#[test]
fn a_passing_pop_that_always_comes_late_is_answered_at_last() {
    let mut node = four_parts();
    let pop = node.pop(None, 1, None);
    let mut rounds = 0;
    loop {
        node.push("a", &["1"]);
        let Some(take) = node.carry_until(is_take) else { break };
        node.pop(Some("a"), 100, None);
        node.deliver(take);
        rounds += 1;
        assert!(rounds < 10, "it never ends");
    }
    assert!(rounds > 1);
    assert_eq!(node.heard(pop), Some(&Heard::messages([])));
}

/// A parked pop was hinted to, and what it was to have is gone.
fn late_waiter() -> (Node, mayfly_shards::Ticket) {
    let mut node = four_parts();
    let pop = node.pop(None, 1, Some(SECOND));
    node.carry();
    node.push("a", &["1"]);
    let take = node.carry_until(is_take).expect("it is hinted to");
    let other = node.pop(Some("a"), 1, None);
    assert_eq!(node.heard(other), Some(&Heard::messages(["1"])));
    node.deliver(take);
    node.carry();
    assert_eq!(node.heard(pop), None);
    (node, pop)
}

#[test]
fn a_waiting_pop_that_came_late_hears_of_the_next_message_on_any_core() {
    for partition in ["Default", "a", "d", "r"] {
        let (mut node, pop) = late_waiter();
        node.push(partition, &["2"]);
        node.carry();
        assert_eq!(node.heard(pop), Some(&Heard::messages(["2"])), "of {partition}");
    }
}

#[test]
fn a_waiting_pop_that_came_late_is_answered_at_its_timeout() {
    let (mut node, pop) = late_waiter();
    node.pass(Span(SECOND.0 - 1_000_000));
    assert_eq!(node.heard(pop), None);
    node.pass(Span(1_000_000));
    assert_eq!(node.heard(pop), Some(&Heard::messages([])));
}

#[test]
fn a_waiting_pop_whose_time_ends_while_it_asks_is_answered_when_it_knows() {
    let mut node = four_parts();
    let pop = node.pop(None, 1, Some(SECOND));
    node.carry();
    node.push("a", &["1"]);
    let take = node.carry_until(is_take).expect("it is hinted to");
    node.pop(Some("a"), 1, None);
    node.pass(SECOND);
    assert_eq!(node.heard(pop), None, "the message may be on its way");
    node.deliver(take);
    node.carry();
    assert_eq!(node.heard(pop), Some(&Heard::messages([])));
}

#[test]
fn a_waiting_pop_that_came_late_after_its_window_is_answered_at_its_timeout() {
    let window = WindowBuffer { ms: 50, count: 0 };
    let mut node = Node::new(Options { window, ..options(Policy::Reject, 100) });
    node.push("a", &["0"]);
    node.carry();
    let pop = node.pop(None, 2, Some(SECOND));
    node.carry();
    assert_eq!(node.heard(pop), None, "its window is on");
    node.pass(Span::from_millis(50));
    let take = node.carry_until(is_take).expect("its window is over");
    node.pop(Some("a"), 1, None);
    node.deliver(take);
    node.carry();
    assert_eq!(node.heard(pop), None);
    node.pass(Span::from_millis(950));
    node.carry();
    assert_eq!(node.heard(pop), Some(&Heard::messages([])));
}

#[test]
fn a_core_that_joins_serves_nobody_before_an_older_pop_parked_at_the_home() {
    let mut node = Node::new(options(Policy::Reject, 100));
    node.push("Default", &["0"]);
    let first = node.pop(None, 1, None);
    assert_eq!(node.heard(first), Some(&Heard::messages(["0"])));
    let older = node.pop(None, 1, Some(SECOND));
    // These two wait on their core until it has joined.
    node.push("a", &["1"]);
    let younger = node.pop(Some("a"), 1, Some(SECOND));
    node.carry();
    assert_eq!((node.heard(older), node.heard(younger)), (Some(&Heard::messages(["1"])), None));
}
