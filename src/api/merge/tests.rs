use std::collections::BTreeMap;

use mayfly_shards::{Options, Policy, WindowBuffer};
use proptest::prelude::*;

use super::*;

fn report(queue: &str, is_home: bool, depth: u64) -> QueueReport {
    let options = Options {
        max_bytes: 1,
        max_length: if is_home { 7 } else { 1 },
        policy: Policy::Reject,
        ttl_seconds: 0,
        lease_seconds: 30,
        retry_limit: 5,
        window: WindowBuffer::default(),
    };
    let groups = if is_home { 2 } else { 0 };
    QueueReport {
        queue: queue.into(),
        is_home,
        declared: is_home,
        depth,
        bytes: 10 * depth,
        partitions: 1,
        groups,
        drops: [depth, 0, 1],
        options,
    }
}

fn part(is_home: bool, partitions: &[(&str, u64, u64)], groups: &[(&str, u64, u64)]) -> Option<DepthReport> {
    let partitions = partitions.iter().map(|&(name, pending, bytes)| PartitionDepth { partition: name.into(), pending, bytes }).collect();
    let groups = groups.iter().map(|&(name, pending, skipped)| GroupDepth { group: name.into(), pending, skipped }).collect();
    Some(DepthReport { is_home, declared: is_home, partitions, groups })
}

#[test]
fn parts_of_a_queue_are_added_up_whichever_comes_first() {
    for parts in
        [vec![vec![report("q", true, 1)], vec![report("q", false, 2)]], vec![vec![report("q", false, 2)], vec![report("q", true, 1)]]]
    {
        let rows = queue_rows(parts, 10);
        let expected = QueueReport { depth: 3, bytes: 30, partitions: 2, drops: [3, 0, 2], ..report("q", true, 0) };
        assert_eq!(rows, [expected]);
    }
}

#[test]
fn of_several_nodes_homes_the_first_says_what_is_declared() {
    let behind = Options { max_length: 99, ..report("q", true, 0).options };
    let late = QueueReport { options: behind, ..report("q", true, 2) };
    let parts = |last: &QueueReport| vec![vec![report("q", false, 1)], vec![report("q", true, 0)], vec![last.clone()]];
    let rows = queue_rows(parts(&late), 10);
    assert_eq!((rows.len(), rows[0].depth, rows[0].options), (1, 3, report("q", true, 0).options));
}

#[test]
fn a_queue_without_its_home_does_not_exist() {
    assert_eq!(
        queue_rows(vec![vec![report("a", false, 1), report("b", true, 1)], vec![report("a", false, 1)]], 10),
        [report("b", true, 1)]
    );
    assert_eq!(queue_rows(vec![], 10), []);
    assert_eq!(depth([part(false, &[("p", 1, 1)], &[]), None]), None);
    assert_eq!(depth([None, None]), None);
}

#[test]
fn a_depth_is_sorted_and_added_up() {
    let whole = depth([
        part(false, &[("z", 2, 20), ("a", 0, 5)], &[("g2", 2, 1), ("g1", 0, 0)]),
        None,
        part(true, &[("m", 1, 10)], &[("g1", 1, 0), ("g2", 1, 1)]),
    ])
    .unwrap();
    assert_eq!((whole.declared, whole.pending_count, whole.pending_partition_count, whole.bytes), (true, 3, 2, 35));
    let partitions: Vec<_> = whole.partitions.iter().map(|partition| (&*partition.partition, partition.pending)).collect();
    assert_eq!(partitions, [("a", 0), ("m", 1), ("z", 2)]);
    let groups: Vec<_> = whole.groups.iter().map(|group| (&*group.group, group.pending, group.skipped)).collect();
    assert_eq!(groups, [("g1", 1, 0), ("g2", 3, 2)]);
}

/// What one shard answers when it is asked for `limit` rows.
fn answer(shard: &BTreeMap<String, QueueReport>, limit: usize) -> Vec<QueueReport> {
    shard.values().take(limit).cloned().collect()
}

proptest! {
    /// Asking every shard for as many rows as are wanted gives the first names of the whole listing, with whole sums.
    #[test]
    fn a_page_is_the_beginning_of_the_whole_listing(
        queues in prop::collection::btree_map("[a-f]{1,3}", (0_usize..4, prop::collection::vec(0_usize..4, 0..4)), 0..40),
        limit in 1_usize..12,
    ) {
        let mut shards = vec![BTreeMap::new(); 4];
        for (name, (home, others)) in &queues {
            for &other in others {
                shards[other].insert(name.clone(), report(name, false, 1));
            }
            shards[*home].insert(name.clone(), report(name, true, 1));
        }
        let mut whole = queue_rows(shards.iter().map(|shard| answer(shard, usize::MAX)).collect(), usize::MAX);
        prop_assert!(whole.iter().map(|row| &*row.queue).eq(queues.keys().map(String::as_str)));
        let page = queue_rows(shards.iter().map(|shard| answer(shard, limit)).collect(), limit);
        whole.truncate(limit);
        prop_assert_eq!(page, whole);
    }
}
