//! Connections go to the core that their requests are for, and their clients see nothing of it.

mod process;

use std::thread::sleep;
use std::time::{Duration, Instant};

use process::client::{Client, pop, push};
use process::{Node, serve};
use serde_json::Value;

/// How long a connection may take to be where it is wanted, on a busy test machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn hops(node: &Node) -> u64 {
    node.metric(&mut Client::connect(node.address), "mayfly_hops_total")
}

#[test]
fn a_connection_comes_to_the_core_of_its_queue_and_hops_no_more() {
    let node = Node::start(serve(2, &[]));
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(node.address)).collect();
    let mut hops_of = |requests: usize| {
        let before = hops(&node);
        for client in &mut clients {
            for _ in 0..requests {
                assert_eq!(client.ask(pop("work", "&autoAck=true")).messages(), [Value::Null; 0]);
                // A core that works most of its time is passed nothing.
                sleep(Duration::from_micros(500));
            }
        }
        hops(&node) - before
    };
    assert!(hops_of(10) > 0, "the cores have a connection each at least");
    let since = Instant::now();
    while hops_of(100) > 0 {
        assert!(since.elapsed() < PATIENCE, "connections are still asking over");
    }
}

#[test]
fn what_a_client_asks_is_done_once_and_in_order_wherever_its_connection_goes() {
    let node = Node::start(serve(2, &[]));
    let before = hops(&node);
    let go_about = |number: usize| {
        let mut client = Client::connect(node.address);
        let (mut pushed, mut popped) = (0, 0);
        for queue in ["a", "b", "c", "d"].map(|queue| format!("{queue}{number}")) {
            for round in 0..150 {
                // So many requests in one write, and one that comes in two pieces.
                let many = 1 + round % 4;
                let pushes: Vec<_> = (0..many).map(|nth| push(&queue, "Default", [pushed + nth])).collect();
                let bytes = pushes.concat();
                let (first, second) = bytes.split_at(bytes.len() * (round % 7) / 7);
                client.send(first);
                client.send(second);
                pushed += many;
                (0..many).for_each(|_| assert_eq!(client.answer().status, 201));
            }
            while popped < pushed {
                let messages = client.ask(pop(&queue, "&autoAck=true&batch=50")).messages();
                assert!(!messages.is_empty(), "{popped} of {pushed}");
                for message in messages {
                    assert_eq!(message["payload"], popped, "in order");
                    popped += 1;
                }
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|number| drop(scope.spawn(move || go_about(number)))));
    assert!(hops(&node) > before, "some queues were on another core");
}
