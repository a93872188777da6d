//! A pop on any partition is charged as parked when no core has anything for it, and not before.

use mayfly_shards::{
    Answer, Letter, MESSAGE_OVERHEAD_BYTES, Options, Policy, QUEUE_OVERHEAD_BYTES, Refusal, Span, Tenant, WAITER_OVERHEAD_BYTES,
    WindowBuffer,
};

use crate::node::{Heard, Node, options};

const SECOND: Span = Span::from_secs(1);
const MESSAGE: u64 = MESSAGE_OVERHEAD_BYTES + 1;

/// Two messages on the core of `a`, and a byte too few for a parked pop. The group is known.
fn full() -> Node {
    let mut node = Node::with_bytes(options(Policy::Reject, 100), QUEUE_OVERHEAD_BYTES + 2 * MESSAGE + WAITER_OVERHEAD_BYTES - 1);
    node.push("Default", &["0"]);
    node.push("a", &["1"]);
    node.carry();
    let pop = node.pop(Some("Default"), 1, None);
    node.carry();
    assert_eq!(node.heard(pop), Some(&Heard::messages(["0"])));
    node.push("a", &["2"]);
    node
}

fn charged(node: &Node) -> (u64, u64) {
    (node.budget.bytes.used(), node.budget.usage(Tenant::DEFAULT).parked)
}

fn refused() -> Heard {
    Heard::Answer(Answer::Refused(Refusal::NodeBytes))
}

#[test]
fn a_full_node_serves_a_waiting_pop_what_another_core_has() {
    let mut node = full();
    let before = charged(&node);
    let pop = node.pop(None, 1, Some(SECOND));
    assert_eq!((node.heard(pop), charged(&node)), (None, before), "it is not parked");
    node.carry();
    assert_eq!(node.heard(pop), Some(&Heard::messages(["1"])));
    assert_eq!(charged(&node), (before.0 - MESSAGE, 0));
}

#[test]
fn a_full_node_refuses_to_park_a_pop_that_no_core_has_anything_for() {
    let mut node = full();
    node.pop_on_lease("a", 2);
    let before = charged(&node);
    let pop = node.pop(None, 1, Some(SECOND));
    node.carry();
    assert_eq!((node.heard(pop), charged(&node)), (Some(&refused()), before));
    // It is forgotten: what comes next is not for it.
    let passing = node.pop(None, 1, None);
    node.carry();
    assert_eq!(node.heard(passing), Some(&Heard::messages([])));
}

#[test]
fn a_full_node_refuses_to_park_a_pop_behind_others() {
    let mut node = full();
    node.pop_on_lease("a", 2);
    let passing = node.pop(None, 1, None);
    node.carry();
    assert_eq!(node.heard(passing), Some(&Heard::messages([])));
    let asking = node.pop(None, 1, Some(SECOND));
    let behind = node.pop(None, 1, Some(SECOND));
    assert_eq!((node.heard(asking), node.heard(behind)), (None, Some(&refused())));
}

#[test]
fn a_queue_that_holds_nothing_parks_a_pop_at_once() {
    let mut node = full();
    node.drain(&["a"]);
    let (bytes, _) = charged(&node);
    let pop = node.pop(None, 1, Some(SECOND));
    assert_eq!(charged(&node), (bytes + WAITER_OVERHEAD_BYTES, 1));
    node.pass(SECOND);
    assert_eq!((node.heard(pop), charged(&node)), (Some(&Heard::messages([])), (bytes, 0)));
}

#[test]
fn a_pop_is_charged_once_all_cores_have_said_that_they_have_nothing() {
    let mut node = Node::new(options(Policy::Reject, 100));
    for partition in ["Default", "a", "d"] {
        node.push(partition, &["0"]);
        node.carry();
        node.pop_on_lease(partition, 1);
    }
    let (bytes, _) = charged(&node);
    let pop = node.pop(None, 1, Some(SECOND));
    let last = node.hold(|letter| matches!(letter, Letter::Survey(_))).expect("both are asked");
    node.carry();
    assert_eq!(charged(&node), (bytes, 0));
    node.deliver(last);
    node.carry();
    assert_eq!(charged(&node), (bytes + WAITER_OVERHEAD_BYTES, 1));
    node.push("d", &["1"]);
    node.carry();
    assert_eq!((node.heard(pop), charged(&node)), (Some(&Heard::messages(["1"])), (bytes, 0)));
}

#[test]
fn a_pop_that_hangs_up_or_times_out_while_it_asks_was_never_charged() {
    for hangs_up in [false, true] {
        let mut node = full();
        node.pop_on_lease("a", 2);
        let before = charged(&node);
        let pop = node.pop(None, 1, Some(SECOND));
        if hangs_up {
            node.cancel(pop)
        } else {
            node.pass(SECOND)
        }
        node.carry();
        let heard = (!hangs_up).then(|| Heard::messages([]));
        assert_eq!((node.heard(pop).cloned(), charged(&node)), (heard, before));
    }
}

#[test]
fn a_pop_that_loses_what_it_saw_looks_again_before_it_parks() {
    let mut node = full();
    let pop = node.pop(None, 1, Some(SECOND));
    let take = node.carry_until(|letter| matches!(letter, Letter::Take { .. })).expect("it takes what it saw");
    let other = node.pop(Some("a"), 2, None);
    assert_eq!(node.heard(other), Some(&Heard::messages(["1", "2"])));
    node.push("Default", &["3", "4"]);
    node.deliver(take);
    node.carry();
    assert_eq!(node.heard(pop), Some(&Heard::messages(["3"])), "the node has no room to park it");
}

#[test]
fn a_busy_home_does_not_keep_waiting_pops_from_other_cores() {
    let mut node = Node::new(options(Policy::Reject, 100));
    for partition in ["Default", "a", "d", "r"] {
        node.push(partition, &[partition; 4]);
        node.carry();
    }
    let mut next = || {
        node.push("Default", &["Default"]);
        let pop = node.pop(None, 1, Some(SECOND));
        node.carry();
        node.heard(pop).cloned()
    };
    let served = [next(), next(), next(), next(), next()];
    assert_eq!(served, ["Default", "a", "d", "r", "Default"].map(|partition| Some(Heard::messages([partition]))));
}

#[test]
fn a_window_holds_a_pop_whatever_other_cores_have() {
    let window = WindowBuffer { ms: 50, count: 2 };
    let mut node = Node::new(Options { window, ..options(Policy::Reject, 100) });
    node.push("a", &["1"]);
    node.carry();
    let pop = node.pop(None, 4, Some(SECOND));
    node.carry();
    assert_eq!((node.heard(pop), charged(&node).1), (None, 1));
    node.push("a", &["2"]);
    node.carry();
    assert_eq!(node.heard(pop), Some(&Heard::messages(["1", "2"])));
}
