use mayfly_shards::{GroupDepth, PartitionDepth, WindowBuffer};
use serde_json::{Value, json};

use super::*;

fn parsed(append: impl FnOnce(&mut Vec<u8>)) -> Value {
    let mut out = Vec::new();
    append(&mut out);
    serde_json::from_slice(&out).unwrap()
}

fn row(queue: &str) -> QueueReport {
    let options = Options {
        max_bytes: 16_777_216,
        max_length: 10_000,
        policy: Policy::Reject,
        ttl_seconds: 0,
        lease_seconds: 30,
        retry_limit: 5,
        window: WindowBuffer::default(),
    };
    QueueReport {
        queue: queue.into(),
        is_home: true,
        declared: false,
        depth: 3,
        bytes: 9,
        partitions: 2,
        groups: 1,
        drops: [4, 5, 6],
        options,
    }
}

#[test]
fn a_listing_has_rows_count_and_footprint() {
    assert_eq!(parsed(|out| queues(out, &[], 77)), json!({"queues": [], "count": 0, "cellBytes": 77}));
    let mut declared = row("b");
    declared.declared = true;
    declared.options.policy = Policy::DropOldest;
    declared.options.window = WindowBuffer { ms: 20, count: 50 };
    let implicit = json!({
        "queue": "a\"\\é", "tier": "implicit", "depth": 3, "bytes": 9, "partitions": 2, "groups": 1, "drops": {"bounds": 4, "ttl": 5, "retry": 6},
        "options": {"maxBytes": 16_777_216, "maxLength": 10_000, "policy": "reject", "ttlSeconds": 0, "leaseSeconds": 30, "retryLimit": 5, "windowBuffer": {"ms": 0, "count": 0}},
    });
    let mut expected = implicit.clone();
    expected["queue"] = json!("b");
    expected["tier"] = json!("declared");
    expected["options"]["policy"] = json!("dropOldest");
    expected["options"]["windowBuffer"] = json!({"ms": 20, "count": 50});
    let rows = [row("a\"\\é"), declared];
    assert_eq!(parsed(|out| queues(out, &rows, u64::MAX)), json!({"queues": [implicit, expected], "count": 2, "cellBytes": u64::MAX}));
}

#[test]
fn a_depth_has_exactly_the_documented_fields() {
    let document = QueueDepth {
        declared: true,
        pending_count: 3,
        pending_partition_count: 1,
        bytes: 12,
        partitions: vec![
            PartitionDepth { partition: "p\"".into(), pending: 3, bytes: 12 },
            PartitionDepth { partition: "q".into(), pending: 0, bytes: 0 },
        ],
        groups: vec![GroupDepth { group: "g".into(), pending: 3, skipped: 2 }],
    };
    let mut expected = json!({
        "queue": "a/b", "group": null, "tier": "declared", "pending": 3, "partitionsPending": 1, "bytes": 12,
        "partitions": [{"partition": "p\"", "pending": 3, "bytes": 12}, {"partition": "q", "pending": 0, "bytes": 0}],
        "groups": [{"group": "g", "pending": 3, "skipped": 2}],
    });
    assert_eq!(parsed(|out| depth(out, "a/b", None, &document)), expected);
    expected["group"] = json!("g");
    assert_eq!(parsed(|out| depth(out, "a/b", Some("g"), &document)), expected);
}
