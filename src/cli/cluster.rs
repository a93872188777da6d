//! `mayfly cluster`: how a cluster stands, and which nodes it is made of, asked of any of its nodes.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use rustls::crypto::aws_lc_rs;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

/// What one question may take: longer than a node waits for its cluster.
const ASK_MAX: Duration = Duration::from_secs(10);
const ROUTE: &str = "/api/v1/system/cluster";

const LONG_ABOUT: &str = "\
Ask a node of a cluster how the cluster stands, or have it take a node in or let one go. Any node can be asked, as an admin.

To add a node, start it with an empty data folder, --join on and the addresses of all nodes in --peers, then `mayfly cluster add ID`: it \
is sent what was agreed on, and votes once it has caught up. To remove one, stop it first (SIGTERM: it hands over what it holds), then \
`mayfly cluster remove ID`.";

/// The command with its three questions.
pub(super) fn command() -> Command {
    let url = Arg::new("url").long("url").value_name("URL").default_value("http://127.0.0.1:6632").help("A node of the cluster");
    let token = Arg::new("token").long("token").value_name("TOKEN").env("MAYFLY_TOKEN").hide_env_values(true).help("An admin's token");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the node's answer instead of a table");
    let common = [url, token, json];
    let id = Arg::new("id").value_name("ID").required(true).value_parser(clap::value_parser!(u64).range(1..)).help("The node's --node-id");
    Command::new("cluster")
        .about("Show a cluster, add a node to it or remove one")
        .long_about(LONG_ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("status").about("Members, votes and how far each is").args(common.clone()))
        .subcommand(Command::new("add").about("Take a node in").arg(id.clone()).args(common.clone()))
        .subcommand(Command::new("remove").about("Let a node go that was stopped").arg(id).args(common))
}

/// Asks, and prints the answer.
///
/// # Errors
/// The line that says why there is none.
pub(super) fn run(typed: &ArgMatches) -> Result<(), String> {
    let (verb, typed) = typed.subcommand().ok_or("no such question; expected one of `mayfly cluster --help`")?;
    let body = typed.try_get_one::<u64>("id").ok().flatten().map(|id| json!({ verb: id }).to_string());
    let answer = ask(typed, body.as_deref())?;
    if typed.get_flag("json") {
        println!("{answer}");
    } else {
        print!("{}", table(&answer)?);
    }
    Ok(())
}

fn ask(typed: &ArgMatches, body: Option<&str>) -> Result<String, String> {
    let base = typed.get_one::<String>("url").map_or("", String::as_str).trim_end_matches('/');
    let url = format!("{base}{ROUTE}");
    let authorization = typed.get_one::<String>("token").map(|token| format!("Bearer {token}"));
    let cannot = |error: ureq::Error| format!("{url} cannot be asked: {error}; see --url");
    let agent = agent();
    let mut response = match body {
        Some(body) => {
            let request = agent.post(&url);
            let request = authorization.iter().fold(request, |request, value| request.header("authorization", value));
            request.send(body).map_err(cannot)?
        }
        None => {
            let request = agent.get(&url);
            let request = authorization.iter().fold(request, |request, value| request.header("authorization", value));
            request.call().map_err(cannot)?
        }
    };
    let text = response.body_mut().read_to_string().map_err(cannot)?;
    if response.status().is_success() { Ok(text) } else { Err(refusal(response.status().as_u16(), &text)) }
}

fn agent() -> Agent {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(aws_lc_rs::default_provider().into())
        .root_certs(RootCerts::PlatformVerifier)
        .build();
    Agent::config_builder().tls_config(tls).timeout_global(Some(ASK_MAX)).http_status_as_error(false).build().into()
}

fn refusal(status: u16, text: &str) -> String {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let error = answer["error"].as_str().unwrap_or("no reason was given");
    format!("refused with {status}: {error}")
}

/// The members, a line each.
fn table(answer: &str) -> Result<String, String> {
    let status: Value = serde_json::from_str(answer).map_err(|error| format!("the answer is no JSON: {error}"))?;
    let shown = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        value => value.to_string(),
    };
    let mut rows = vec![["node", "standing", "votes", "leads", "behind", "heard ms ago", "shards", "peer"].map(str::to_owned)];
    for member in status["members"].as_array().into_iter().flatten() {
        let leads = Value::Bool(member["id"] == status["leader"]);
        let of = |key: &str| shown(&member[key]);
        let [node, standing, votes, behind] = ["id", "standing", "votes", "behind"].map(of);
        let [heard, shards, peer] = ["heardMsAgo", "shards", "peer"].map(of);
        rows.push([node, standing, votes, shown(&leads), behind, heard, shards, peer]);
    }
    let mut out = format!("epoch {}, leader {}, as node {} knows\n", status["epoch"], shown(&status["leader"]), status["node"]);
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            // Into a String: nothing can fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    Ok(out)
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
        assert_eq!(table(&status.to_string()).as_deref(), Ok(wanted));
    }

    #[test]
    fn a_refusal_gives_the_nodes_reason() {
        assert_eq!(refusal(409, r#"{"error":"the node is not down","code":"x"}"#), "refused with 409: the node is not down");
        assert_eq!(refusal(502, "<html>"), "refused with 502: no reason was given");
    }
}
