//! `mayfly cluster`: how a cluster stands, and which nodes it is made of, asked of any of its nodes.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};

use super::asking::{Ended, Node, flags, say, table};

const ROUTE: &str = "/api/v1/system/cluster";

const LONG_ABOUT: &str = "\
Ask a node of a cluster how the cluster stands, or have it take a node in or let one go. Any node can be asked, as an admin.

To add a node, start it with an empty data folder, --join on and the addresses of all nodes in --peers, then `mayfly cluster add ID`: it \
is sent what was agreed on, and votes once it has caught up. To remove one, stop it first (SIGTERM: it hands over what it holds), then \
`mayfly cluster remove ID`.";

/// The command with its three questions.
pub(super) fn command() -> Command {
    let id = Arg::new("id").value_name("ID").required(true).value_parser(clap::value_parser!(u64).range(1..)).help("The node's --node-id");
    Command::new("cluster")
        .about("Show a cluster, add a node to it or remove one")
        .long_about(LONG_ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("status").about("Members, votes and how far each is").args(flags()))
        .subcommand(Command::new("add").about("Take a node in").arg(id.clone()).args(flags()))
        .subcommand(Command::new("remove").about("Let a node go that was stopped").arg(id).args(flags()))
}

/// Asks, and prints the answer.
pub(super) fn run(typed: &ArgMatches) -> Result<(), Ended> {
    let (verb, typed) = typed.subcommand().ok_or_else(|| "no such question; expected one of `mayfly cluster --help`".to_owned())?;
    let node = Node::of(typed)?;
    let answer = match typed.try_get_one::<u64>("id").ok().flatten() {
        Some(id) => node.post(ROUTE, &json!({ verb: id }).to_string(), Duration::ZERO)?,
        None => node.get(ROUTE, Duration::ZERO)?,
    };
    let answer = answer.expected()?;
    if node.is_json { say(&answer) } else { say(described(&answer)?.trim_end()) }
}

/// The members, a line each.
fn described(answer: &str) -> Result<String, Ended> {
    let status: Value = serde_json::from_str(answer).map_err(|error| format!("the answer is no JSON: {error}"))?;
    let shown = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        value => value.to_string(),
    };
    let mut rows = vec![["node", "standing", "votes", "leads", "behind", "heard ms ago", "shards", "peer"].map(str::to_owned).to_vec()];
    for member in status["members"].as_array().into_iter().flatten() {
        let leads = Value::Bool(member["id"] == status["leader"]);
        let of = |key: &str| shown(&member[key]);
        let [node, standing, votes, behind] = ["id", "standing", "votes", "behind"].map(of);
        let [heard, shards, peer] = ["heardMsAgo", "shards", "peer"].map(of);
        rows.push(vec![node, standing, votes, shown(&leads), behind, heard, shards, peer]);
    }
    Ok(format!("epoch {}, leader {}, as node {} knows\n{}", status["epoch"], shown(&status["leader"]), status["node"], table(&rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_table() {
        let status = json!({"node": 2, "epoch": 7, "leader": 1, "members": [
            {"id": 1, "standing": "live", "votes": true, "behind": 0, "heardMsAgo": 12, "shards": 2, "peer": "a:6633"},
            {"id": 10, "standing": null, "votes": false, "behind": null, "heardMsAgo": null, "shards": null, "peer": null},
        ]});
        let wanted = "\
epoch 7, leader 1, as node 2 knows
node  standing  votes  leads  behind  heard ms ago  shards  peer
1     live      yes    yes    0       12            2       a:6633
10    -         no     no     -       -             -       -
";
        assert_eq!(described(&status.to_string()).ok().as_deref(), Some(wanted));
    }
}
