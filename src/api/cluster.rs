//! The route of the cluster: what an operator asks, and how the cluster stands.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::declaration::read_number;
use super::fault::Fault;
use super::json::Scanner;
use super::request::{object, set_once, skip};
use crate::control::{Consensus, Heartbeat, Members, NodeId, Standing, State};

/// What an operator asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterAsk {
    /// How it stands.
    Status,
    /// A node is sent the log, and votes once it has caught up.
    Add(NodeId),
    /// A node is not of the cluster any more.
    Remove(NodeId),
}

/// Reads `{"add":4}` or `{"remove":4}`.
///
/// # Errors
/// The first thing that is wrong with the body.
pub fn read(body: &[u8]) -> Result<ClusterAsk, Fault> {
    let mut scanner = Scanner::new(body);
    let (mut add, mut remove) = (None, None);
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"add" => set_once(&mut add, "add", || read_number(scanner, "add")),
        b"remove" => set_once(&mut remove, "remove", || read_number(scanner, "remove")),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    let node = |number: u64, field| match number {
        0 => Err(Fault::WrongType { field, expected: "the id of a node, 1 or more" }),
        number => Ok(NodeId(number)),
    };
    match (add.flatten(), remove.flatten()) {
        (Some(number), None) => Ok(ClusterAsk::Add(node(number, "add")?)),
        (None, Some(number)) => Ok(ClusterAsk::Remove(node(number, "remove")?)),
        (None, None) => Err(Fault::Missing("add or remove")),
        (Some(_), Some(_)) => Err(Fault::Twice("the node to add or remove")),
    }
}

const fn standing_word(standing: Standing) -> &'static str {
    match standing {
        Standing::Joining => "joining",
        Standing::Live => "live",
        Standing::Leaving => "leaving",
        Standing::Down => "down",
    }
}

/// The cluster as this node knows it. `words`: what each node said last, and how long ago. `behind`: entries of the log that a node had
/// not carried out when it said so and this node has.
#[must_use]
pub fn status<'a>(consensus: &Consensus, state: &State, words: impl Iterator<Item = (&'a Heartbeat, Duration)>) -> Vec<u8> {
    let electors = consensus.electors();
    let words: Vec<_> = words.collect();
    let ids = |nodes: &mut dyn Iterator<Item = NodeId>| nodes.map(|node| node.0).collect::<Vec<u64>>();
    let mut nodes: Vec<NodeId> = electors.all().into_iter().chain(state.members().rows().iter().map(|row| row.id)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let node = |node: &NodeId| -> Value {
        let row = state.members().find(*node);
        let word = words.iter().find(|(beat, _)| beat.node == node.0);
        json!({
            "id": node.0,
            "peer": row.map(|row| &*row.peer),
            "standing": row.map(|row| standing_word(row.standing)),
            "incarnation": row.map(|row| format!("{:x}", row.incarnation)),
            "shards": row.map(|row| row.shard_count),
            "votes": electors.counts(*node),
            "behind": word.map(|(beat, _)| consensus.applied().saturating_sub(beat.applied)),
            "heardMsAgo": word.map(|(_, span)| span.as_millis() as u64),
        })
    };
    let document = json!({
        "node": consensus.node().0,
        "epoch": state.members().epoch(),
        "leader": consensus.leader().map(|leader| leader.0),
        "term": consensus.term(),
        "applied": consensus.applied(),
        "voters": ids(&mut electors.voters()),
        "learners": ids(&mut electors.learners()),
        "members": nodes.iter().map(node).collect::<Vec<_>>(),
    });
    document.to_string().into_bytes()
}

/// The table of members in one line: `1 live, 2 down`.
#[must_use]
pub fn members_line(members: &Members) -> String {
    let mut line = String::new();
    for row in members.rows() {
        let comma = if line.is_empty() { "" } else { ", " };
        // Into a String: nothing can fail.
        let _ = write!(line, "{comma}{} {}", row.id.0, standing_word(row.standing));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_is_added_or_removed() {
        assert_eq!(read(br#"{"add":4,"more":[]}"#), Ok(ClusterAsk::Add(NodeId(4))));
        assert_eq!(read(br#"{"remove":1,"add":null}"#), Ok(ClusterAsk::Remove(NodeId(1))));
        for body in
            [r#"{}"#, r#"{"add":0}"#, r#"{"add":-1}"#, r#"{"add":"4"}"#, r#"{"add":1,"remove":2}"#, r#"{"add":1,"add":2}"#, "[]", ""]
        {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
    }
}
