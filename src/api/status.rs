//! Answers of the two status reads, appended as JSON.

use mayfly_shards::{Options, Policy, QueueReport};

use super::answer::append_number;
use super::json::append_string;
use super::merge::QueueDepth;

/// A listing's answer: the merged rows, and the node's whole footprint in bytes.
pub fn queues(out: &mut Vec<u8>, rows: &[QueueReport], node_bytes: u64) {
    out.extend_from_slice(b"{\"queues\":");
    append_list(out, rows, append_row);
    append_field(out, b",\"count\":", rows.len() as u64);
    append_field(out, b",\"cellBytes\":", node_bytes);
    out.push(b'}');
}

/// Adds to an answer of [`queues`] or [`depth`] the nodes that did not answer, if there are any.
pub fn missing(out: &mut Vec<u8>, nodes: impl IntoIterator<Item = u64>) {
    let mut nodes = nodes.into_iter();
    let Some(first) = nodes.next() else { return };
    // The object is opened again.
    out.pop();
    append_field(out, b",\"missing\":[", first);
    nodes.for_each(|node| append_field(out, b",", node));
    out.extend_from_slice(b"]}");
}

fn append_row(out: &mut Vec<u8>, row: &QueueReport) {
    out.extend_from_slice(b"{\"queue\":");
    append_string(out, &row.queue);
    append_tier(out, row.declared);
    append_field(out, b",\"depth\":", row.depth);
    append_field(out, b",\"bytes\":", row.bytes);
    append_field(out, b",\"partitions\":", row.partitions);
    append_field(out, b",\"groups\":", row.groups);
    let [bounds, ttl, retry] = row.drops;
    append_field(out, b",\"drops\":{\"bounds\":", bounds);
    append_field(out, b",\"ttl\":", ttl);
    append_field(out, b",\"retry\":", retry);
    out.extend_from_slice(b"},\"options\":");
    append_options(out, &row.options);
    out.push(b'}');
}

/// The options in force, all seven.
fn append_options(out: &mut Vec<u8>, options: &Options) {
    append_field(out, b"{\"maxBytes\":", options.max_bytes);
    append_field(out, b",\"maxLength\":", u64::from(options.max_length));
    out.extend_from_slice(match options.policy {
        Policy::Reject => b",\"policy\":\"reject\"".as_slice(),
        Policy::DropOldest => b",\"policy\":\"dropOldest\"",
    });
    append_field(out, b",\"ttlSeconds\":", options.ttl_seconds);
    append_field(out, b",\"leaseSeconds\":", u64::from(options.lease_seconds));
    append_field(out, b",\"retryLimit\":", u64::from(options.retry_limit));
    append_field(out, b",\"windowBuffer\":{\"ms\":", u64::from(options.window.ms));
    append_field(out, b",\"count\":", u64::from(options.window.count));
    out.extend_from_slice(b"}}");
}

/// A depth's answer; `group` is the one that was asked for.
pub fn depth(out: &mut Vec<u8>, queue: &str, group: Option<&str>, depth: &QueueDepth) {
    out.extend_from_slice(b"{\"queue\":");
    append_string(out, queue);
    out.extend_from_slice(b",\"group\":");
    match group {
        Some(group) => append_string(out, group),
        None => out.extend_from_slice(b"null"),
    }
    append_tier(out, depth.declared);
    append_field(out, b",\"pending\":", depth.pending_count);
    append_field(out, b",\"partitionsPending\":", depth.pending_partition_count);
    append_field(out, b",\"bytes\":", depth.bytes);
    out.extend_from_slice(b",\"partitions\":");
    append_list(out, &depth.partitions, |out, partition| {
        out.extend_from_slice(b"{\"partition\":");
        append_string(out, &partition.partition);
        append_field(out, b",\"pending\":", partition.pending);
        append_field(out, b",\"bytes\":", partition.bytes);
        out.push(b'}');
    });
    out.extend_from_slice(b",\"groups\":");
    append_list(out, &depth.groups, |out, group| {
        out.extend_from_slice(b"{\"group\":");
        append_string(out, &group.group);
        append_field(out, b",\"pending\":", group.pending);
        append_field(out, b",\"skipped\":", group.skipped);
        out.push(b'}');
    });
    out.push(b'}');
}

fn append_tier(out: &mut Vec<u8>, declared: bool) {
    out.extend_from_slice(if declared { b",\"tier\":\"declared\"" } else { b",\"tier\":\"implicit\"" });
}

fn append_field(out: &mut Vec<u8>, label: &[u8], number: u64) {
    out.extend_from_slice(label);
    append_number(out, number);
}

fn append_list<T>(out: &mut Vec<u8>, items: &[T], append: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        append(out, item);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests;
