//! A letter of an old generation is a no-op: what it speaks of is gone.

use mayfly_shards::{Letter, Policy, Span};

use crate::node::{Heard, Node, options};

const SECOND: Span = Span::from_secs(1);

/// The queue on its home and on the core of `a`, which holds nothing; every part knows the group.
fn two_parts() -> Node {
    let mut node = Node::new(options(Policy::Reject, 100));
    node.push("Default", &["1"]);
    node.push("a", &["2"]);
    node.carry();
    let pop = node.pop(None, 10, None);
    node.carry();
    assert_eq!(node.heard(pop), Some(&Heard::messages(["1", "2"])));
    node
}

#[test]
fn a_hint_from_before_a_reset_asks_nobody() {
    let mut node = two_parts();
    node.pop(None, 1, Some(SECOND));
    node.carry();
    node.push("a", &["3"]);
    let hint = node.hold(|letter| matches!(letter, Letter::Hint { .. })).expect("the home bids");
    node.reset();
    node.hold(|letter| matches!(letter, Letter::Order { .. })).expect("the home tells its member");
    assert!(node.letters().is_empty());
    node.deliver(hint);
    assert!(node.letters().is_empty(), "what it speaks of is dropped: {:?}", node.letters());
}

#[test]
fn a_bid_from_before_a_reset_is_told_nothing() {
    let mut node = two_parts();
    let pop = node.pop(None, 1, Some(SECOND));
    let bid = node.hold(|letter| matches!(letter, Letter::Bid { .. })).expect("the home bids");
    node.push("a", &["3"]);
    node.reset();
    node.carry();
    node.push("a", &["4"]);
    assert!(node.letters().is_empty(), "nobody told this part of a bid");
    node.deliver(bid);
    assert!(node.letters().is_empty(), "the bid is of another generation: {:?}", node.letters());
    assert_eq!(node.heard(pop), None);
}

/// The letter of a claim, sent to the member of `a` before a reset, comes after it, when the member holds something again.
fn delayed_behind_a_reset(is_meant: impl Fn(&Letter) -> bool) -> Node {
    let mut node = two_parts();
    node.push("a", &["3"]);
    node.pop(None, 1, None);
    let claim = node.carry_until(is_meant).expect("the pop asks the member");
    node.reset();
    node.carry();
    node.push("a", &["4"]);
    node.deliver(claim);
    node
}

#[test]
fn a_survey_from_before_a_reset_finds_nothing() {
    let node = delayed_behind_a_reset(|letter| matches!(letter, Letter::Survey(_)));
    let found = node.letters().iter().any(|letter| matches!(letter, Letter::Surveyed { found, .. } if found.is_empty()));
    assert!(found, "it is answered, with nothing: {:?}", node.letters());
}

#[test]
fn a_take_from_before_a_reset_takes_nothing() {
    let mut node = delayed_behind_a_reset(|letter| matches!(letter, Letter::Take { .. }));
    let taken = node.letters().iter().any(|letter| matches!(letter, Letter::Taken { runs, receipt: None, .. } if runs.is_empty()));
    assert!(taken, "it is answered, with nothing: {:?}", node.letters());
    node.hold(|letter| matches!(letter, Letter::Taken { .. }));
    assert_eq!(node.drain(&["a"]), [["4"]]);
}

#[test]
fn an_answer_from_before_a_reset_brings_nothing_back() {
    let mut node = two_parts();
    node.receipts.clear();
    node.push("a", &["3"]);
    node.pop(None, 1, None);
    node.carry();
    let receipt = node.receipts.pop().expect("the answer had a message");
    node.reset();
    node.carry();
    node.give_back(receipt);
    assert!(node.letters().iter().any(|letter| matches!(letter, Letter::GiveBack(_))), "it is of another core");
    node.carry();
    assert_eq!(node.drain(&["a"]), [[""; 0]]);
}
