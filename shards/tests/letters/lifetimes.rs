//! How long a queue lives whose parts are on several cores.

use mayfly_shards::{Policy, Span, Tenant};

use crate::node::{Heard, Node, options};

fn queues(node: &Node) -> u64 {
    node.budget.usage(Tenant::DEFAULT).queues
}

#[test]
fn a_pop_left_parked_by_a_delete_keeps_the_queue_that_is_made_anew() {
    let mut node = Node::new(options(Policy::Reject, 100));
    node.push("a", &["1"]);
    node.carry();
    node.drain(&["a"]);
    let parked = node.pop(Some("a"), 1, Some(Span::from_secs(400)));
    node.delete();
    node.carry();
    assert_eq!(queues(&node), 0, "a parked pop alone makes no queue");
    let pop = node.pop(None, 1, None);
    node.carry();
    assert_eq!((node.heard(pop), queues(&node)), (Some(&Heard::messages([])), 1));
    let mut is_kept_after = |seconds| {
        node.pass(Span::from_secs(seconds));
        node.carry();
        queues(&node) == 1
    };
    assert!(is_kept_after(301), "a pop is parked");
    assert!(is_kept_after(100) && is_kept_after(298), "none is, but not for 300 s yet");
    assert!(!is_kept_after(3));
    assert_eq!(node.heard(parked), Some(&Heard::messages([])));
}
