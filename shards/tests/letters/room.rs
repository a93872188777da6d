//! Room that a push with dropOldest needs on other cores: the oldest go, and no more than it needs.

use mayfly_shards::{Answer, Policy, Tenant};

use crate::node::{Heard, Node, options};

fn pushed(count: usize) -> Heard {
    Heard::Answer(Answer::Pushed(count))
}

/// What a full queue holds, oldest first: each core has two in a row, and one more; `r` has none.
const HELD: [(&str, &str); 9] =
    [("a", "a1"), ("a", "a2"), ("d", "d1"), ("d", "d2"), ("Default", "h1"), ("Default", "h2"), ("a", "a3"), ("d", "d3"), ("Default", "h3")];
const PARTITIONS: [&str; 4] = ["Default", "a", "d", "r"];
const NEW: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

fn full() -> Node {
    let mut node = Node::new(options(Policy::DropOldest, 9));
    for (partition, payload) in HELD {
        node.push(partition, &[payload]);
        node.carry();
    }
    node
}

/// Pushes to a full queue: what it holds then, when one went for each that came.
fn held_after(partition: &str, payloads: &[&str]) -> Vec<Vec<String>> {
    let mut node = full();
    let push = node.push(partition, payloads);
    node.carry();
    assert_eq!(node.heard(push), Some(&pushed(payloads.len())));
    assert_eq!(node.evicted(), payloads.len() as u64, "one goes for one that comes");
    let held = node.drain(&PARTITIONS);
    assert_eq!(node.budget.usage(Tenant::DEFAULT).bytes, 0, "nothing is charged for what is gone");
    held
}

#[test]
fn the_oldest_of_all_cores_go_and_no_more_than_a_push_needs() {
    for count in 1..=9 {
        let of = |partition| HELD.iter().skip(count).filter(move |(of, _)| *of == partition).map(|(_, payload)| (*payload).to_owned());
        let mut expected = PARTITIONS.map(|partition| of(partition).collect::<Vec<_>>());
        expected[3] = NEW[..count].iter().map(|payload| (*payload).to_owned()).collect();
        assert_eq!(held_after("r", &NEW[..count]), expected, "after {count} pushed");
    }
}

#[test]
fn a_push_drops_of_its_own_partition_first() {
    assert_eq!(held_after("d", &NEW[..2]), [&["h1", "h2", "h3"][..], &["a1", "a2", "a3"], &["d3", "1", "2"], &[]]);
    assert_eq!(held_after("d", &NEW[..4]), [&["h1", "h2", "h3"][..], &["a2", "a3"], &["1", "2", "3", "4"], &[]]);
    assert_eq!(held_after("Default", &NEW[..4]), [&["1", "2", "3", "4"][..], &["a2", "a3"], &["d1", "d2", "d3"], &[]]);
}

#[test]
fn bytes_are_made_like_messages_and_no_more() {
    let mut node = Node::new(mayfly_shards::Options { max_bytes: 20, ..options(Policy::DropOldest, 100) });
    for (partition, payload) in [("a", "123456"), ("d", "123456"), ("Default", "123456")] {
        node.push(partition, &[payload]);
        node.carry();
    }
    let push = node.push("r", &["12345678"]);
    node.carry();
    assert_eq!((node.heard(push), node.evicted()), (Some(&pushed(1)), 1));
    assert_eq!(node.drain(&["a"]), [[""; 0]]);
}

#[test]
fn pushes_that_need_room_at_once_drop_one_each() {
    let mut node = full();
    let pushes = ["r", "r", "Default"].map(|partition| node.push(partition, &["1"]));
    node.carry();
    assert!(pushes.iter().all(|push| node.heard(*push) == Some(&pushed(1))));
    assert_eq!(node.evicted(), 3);
}

/// Two pushes that have dropped all there was, each of its own partition, and fit neither without the other's room.
fn two_that_hold_all_room() -> (Node, [mayfly_shards::Ticket; 2]) {
    let mut node = Node::new(options(Policy::DropOldest, 4));
    for (partition, payload) in [("a", "a1"), ("d", "d1"), ("a", "a2"), ("d", "d2")] {
        node.push(partition, &[payload]);
        node.carry();
    }
    let pushes = [node.push("a", &["1", "2", "3"]), node.push("d", &["4", "5", "6"])];
    assert_eq!(node.evicted(), 4, "nothing is left to drop");
    (node, pushes)
}

#[test]
fn pushes_that_together_hold_all_of_a_queue_are_admitted_one_after_the_other() {
    let (mut node, pushes) = two_that_hold_all_room();
    node.carry();
    assert_eq!(pushes.map(|push| node.heard(push).cloned()), [Some(pushed(3)), Some(pushed(3))]);
    assert_eq!(node.drain(&["a", "d"]), [&["3"][..], &["4", "5", "6"]], "the second drops two of the first's");
    // What they had dropped is charged no more.
    let push = node.push("a", &["1", "2", "3", "4"]);
    node.carry();
    assert_eq!((node.heard(push), node.evicted()), (Some(&pushed(4)), 6));
}

#[test]
fn pushes_that_wait_for_room_outlast_a_reset_and_a_delete() {
    for is_delete in [false, true] {
        let (mut node, pushes) = two_that_hold_all_room();
        if is_delete {
            node.delete()
        } else {
            node.reset()
        };
        node.carry();
        assert_eq!(pushes.map(|push| node.heard(push).cloned()), [Some(pushed(3)), Some(pushed(3))]);
        let held: usize = node.drain(&["a", "d"]).iter().map(Vec::len).sum();
        assert_eq!(held, 4, "the second drops as much as it must");
    }
}

#[test]
fn the_room_of_a_push_that_needs_it_no_more_is_given_back() {
    let (mut node, pushes) = two_that_hold_all_room();
    // The queue becomes larger before the first word of theirs reaches its home.
    node.configure(options(Policy::Reject, 10));
    node.carry();
    assert_eq!(pushes.map(|push| node.heard(push).cloned()), [Some(pushed(3)), Some(pushed(3))]);
    let push = node.push("Default", &["1", "2", "3", "4"]);
    let too_much = node.push("Default", &["5"]);
    node.carry();
    let full = Heard::Answer(Answer::Refused(mayfly_shards::Refusal::QueueFull { can_fit: true }));
    assert_eq!((node.heard(push), node.heard(too_much)), (Some(&pushed(4)), Some(&full)));
    assert_eq!(node.evicted(), 4);
}
