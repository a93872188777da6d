//! Who is woken: the one parked longest, and from whichever partition there is something.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::process::Node;
use super::process::client::{Client, pop, push};
use super::{LONG, QUIET, WAKE_MAX, alone, await_parked, start};

/// Parks `count` pops, each on a connection of its own, surely one after the other.
fn park_in_order(node: &Node, control: &mut Client, count: u64, request: &str) -> Vec<Client> {
    let park = |index| {
        let mut client = Client::connect(node.address);
        client.send(request);
        await_parked(node, control, index + 1);
        client.stream.set_nonblocking(true).expect("a socket");
        client
    };
    (0..count).map(park).collect()
}

/// Watches parked pops until `count` have answered, and then a while for one too many: which ones, in order of their index.
#[track_caller]
fn woken(parked: &mut [Client], count: usize) -> Vec<usize> {
    let started = Instant::now();
    let mut quiet_since = Instant::now();
    let mut woken = Vec::new();
    while woken.len() < count || quiet_since.elapsed() < QUIET {
        assert!(started.elapsed() < WAKE_MAX, "{} woken of {count}: {woken:?}", woken.len());
        for (index, client) in parked.iter_mut().enumerate() {
            if let Some(answer) = client.arrived() {
                assert_eq!(answer.messages().len(), 1, "{answer:?}");
                woken.push(index);
                quiet_since = Instant::now();
            }
        }
        sleep(Duration::from_millis(1));
    }
    woken.sort_unstable();
    woken
}

fn one_push_wakes_the_pop_parked_longest(shards: usize, partition_of_pop: &str) {
    let _alone = alone();
    let node = start(shards);
    let mut control = Client::connect(node.address);
    let request = pop("crowd", &format!("{LONG}&autoAck=true{partition_of_pop}"));
    let mut parked = park_in_order(&node, &mut control, 1_000, &request);

    assert_eq!(control.ask(push("crowd", "p", [0])).status, 201);
    assert_eq!(woken(&mut parked, 1), [0], "one push wakes one pop, the oldest");
    for (turn, oldest) in parked.iter_mut().enumerate().take(40).skip(1) {
        assert_eq!(control.ask(push("crowd", "p", [turn])).status, 201);
        oldest.stream.set_nonblocking(false).expect("a socket");
        assert_eq!(oldest.answer().messages()[0]["payload"], turn, "in order of age");
        oldest.stream.set_nonblocking(true).expect("a socket");
    }
    assert_eq!(control.ask(push("crowd", "p", 0..100)).status, 201);
    assert_eq!(woken(&mut parked, 100), (40..140).collect::<Vec<_>>(), "a push of 100 wakes the next 100");
    await_parked(&node, &mut control, 860);
}

#[test]
fn one_push_wakes_the_oldest_of_1000_pops_on_one_shard() {
    one_push_wakes_the_pop_parked_longest(1, "&partition=p");
}

#[test]
fn one_push_wakes_the_oldest_of_1000_pops_on_four_shards() {
    one_push_wakes_the_pop_parked_longest(4, "&partition=p");
}

#[test]
fn one_push_wakes_the_oldest_of_1000_pops_of_any_partition_on_one_shard() {
    one_push_wakes_the_pop_parked_longest(1, "");
}

#[test]
fn one_push_wakes_the_oldest_of_1000_pops_of_any_partition_on_four_shards() {
    one_push_wakes_the_pop_parked_longest(4, "");
}

fn a_pop_of_any_partition_finds_all_and_is_not_starved(shards: usize) {
    let _alone = alone();
    let node = start(shards);
    let mut pusher = Client::connect(node.address);
    let mut popper = Client::connect(node.address);
    let partitions = 32;
    for partition in 0..partitions {
        assert_eq!(pusher.ask(push("wide", &format!("p{partition}"), [partition])).status, 201);
    }
    let mut found: Vec<_> =
        (0..partitions).filter_map(|_| popper.ask(pop("wide", "&autoAck=true&wait=true&timeout=2000")).messages().pop()).collect();
    found.sort_unstable_by_key(|message| message["payload"].as_u64());
    assert_eq!(found.len(), partitions, "each pop finds one, on whichever core it is");
    for partition in 0..partitions {
        popper.send(pop("wide", "&autoAck=true&wait=true&timeout=5000"));
        sleep(Duration::from_millis(2));
        assert_eq!(pusher.ask(push("wide", &format!("p{partition}"), [partition])).status, 201);
        assert_eq!(popper.answer().messages().len(), 1, "a parked pop is woken from partition p{partition}");
    }

    for rare in 0..partitions {
        let rare = format!("p{rare}");
        assert_eq!(pusher.ask(push("wide", "busy", 0..10)).status, 201);
        assert_eq!(pusher.ask(push("wide", &rare, ["\"rare\""])).status, 201);
        let served = (1..=20).find(|_| {
            assert_eq!(pusher.ask(push("wide", "busy", 0..3)).status, 201);
            popper.ask(pop("wide", "&autoAck=true&wait=true&timeout=2000")).messages()[0]["payload"] == "rare"
        });
        assert!(served.is_some_and(|pops| pops <= 8), "{rare} beside a busy partition: served by pop {served:?}");
    }
}

#[test]
fn a_pop_of_any_partition_finds_all_and_is_not_starved_on_one_shard() {
    a_pop_of_any_partition_finds_all_and_is_not_starved(1);
}

#[test]
fn a_pop_of_any_partition_finds_all_and_is_not_starved_on_four_shards() {
    a_pop_of_any_partition_finds_all_and_is_not_starved(4);
}
