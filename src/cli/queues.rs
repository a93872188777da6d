//! `queues`, `depth`, `configure`, `reset`, `delete`: the queues themselves.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value, json};

use super::asking::{EPHEMERAL, Ended, Node, encoded, flags, say, shown, table};

/// Rows of one page of a listing.
const PAGE: usize = 1_000;

fn queue() -> Arg {
    Arg::new("queue").value_name("QUEUE").required(true)
}

pub(super) fn queues_command() -> Command {
    Command::new("queues")
        .about("List queues")
        .long_about("List queues by name: how many messages and bytes each holds, its partitions and groups, and what it dropped. With --json a line each.")
        .arg(Arg::new("prefix").value_name("PREFIX").help("Queues whose names begin so"))
        .arg(Arg::new("limit").long("limit").value_name("N").value_parser(value_parser!(u64).range(1..)).help("At most so many"))
        .args(flags())
}

pub(super) fn depth_command() -> Command {
    Command::new("depth")
        .about("Show what is pending in a queue")
        .long_about("Show what is pending in a queue, by partition and group. Exit code 3: there is no such queue.")
        .arg(queue())
        .arg(Arg::new("group").long("group").value_name("NAME").help("For that group alone"))
        .args(flags())
}

pub(super) fn configure_command() -> Command {
    let number = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).value_parser(value_parser!(u64)).help(help)
    };
    Command::new("configure")
        .about("Declare a queue: it survives restarts, empty")
        .long_about("Declare a queue with these options, in place of any earlier declaration. What is not said is the node's default.")
        .arg(queue())
        .arg(number("max-length", "N", "Most messages"))
        .arg(number("max-bytes", "BYTES", "Most payload bytes"))
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("POLICY")
                .value_parser(["reject", "dropOldest"])
                .help("What a push to a full queue does"),
        )
        .arg(number("ttl-seconds", "N", "Older messages are dropped; 0 is never"))
        .arg(number("lease-seconds", "N", "How long a consumer has for its ack"))
        .arg(number("retry-limit", "N", "Deliveries before a failing message is dropped"))
        .arg(number("window-ms", "MS", "A waiting pop is answered so long after it saw the first message"))
        .arg(number("window-count", "N", "… or when so many are there"))
        .arg(Arg::new("options").long("options").value_name("JSON").help("All options as the wire spells them, instead of the flags above"))
        .args(flags())
}

pub(super) fn reset_command() -> Command {
    Command::new("reset").about("Drop a queue's messages").arg(queue()).arg(yes()).args(flags())
}

pub(super) fn delete_command() -> Command {
    Command::new("delete").about("Forget a queue: messages, groups and declaration").arg(queue()).arg(yes()).args(flags())
}

fn yes() -> Arg {
    Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Do not ask. Without a terminal nobody is asked")
}

/// Lists, page by page.
pub(super) fn queues(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let prefix = typed.get_one::<String>("prefix").map_or("", String::as_str);
    let mut left = typed.get_one::<u64>("limit").map_or(usize::MAX, |limit| usize::try_from(*limit).unwrap_or(usize::MAX));
    let mut rows = vec![["queue", "tier", "depth", "bytes", "partitions", "groups", "dropped"].map(str::to_owned).to_vec()];
    let mut after = String::new();
    let mut missing = Vec::new();
    while left > 0 {
        let limit = left.min(PAGE);
        let path = format!("{EPHEMERAL}/queues?prefix={}&after={}&limit={limit}", encoded(prefix), encoded(&after));
        let page: Value = parsed(&node.get(&path, Duration::ZERO)?.expected()?)?;
        let queues = page["queues"].as_array().cloned().unwrap_or_default();
        missing.extend(page["missing"].as_array().cloned().unwrap_or_default());
        for queue in &queues {
            if node.is_json {
                say(&queue.to_string())?;
            } else {
                rows.push(row_of(queue));
            }
        }
        left -= queues.len().min(left);
        match queues.last().and_then(|queue| queue["queue"].as_str()) {
            Some(last) if queues.len() == limit => after = last.to_owned(),
            _ => break,
        }
    }
    if !node.is_json {
        say(table(&rows).trim_end())?;
    }
    missing.dedup();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Ended::Failed(format!("without the queues of nodes that do not answer: {}", Value::from(missing))))
    }
}

fn row_of(queue: &Value) -> Vec<String> {
    let dropped: u64 = queue["drops"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    let number = |key: &str| queue[key].to_string();
    let text = |key: &str| shown(queue[key].as_str().unwrap_or("?"));
    vec![text("queue"), text("tier"), number("depth"), number("bytes"), number("partitions"), number("groups"), dropped.to_string()]
}

/// Shows one queue.
pub(super) fn depth(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let queue = typed.get_one::<String>("queue").map_or("", String::as_str);
    let group = typed.get_one::<String>("group").map(|group| format!("?group={}", encoded(group))).unwrap_or_default();
    let text = node.get(&format!("{EPHEMERAL}/queues/{}/depth{group}", encoded(queue)), Duration::ZERO)?.expected()?;
    if node.is_json {
        return say(&text);
    }
    let depth = parsed(&text)?;
    say(&format!("{}: {}, {} pending, {} bytes", shown(queue), depth["tier"].as_str().unwrap_or("?"), depth["pending"], depth["bytes"]))?;
    let rows = |kind: &str, keys: &[&str]| {
        let head = keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let cell = |value: &Value| value.as_str().map_or_else(|| value.to_string(), shown);
        let of = |entry: &Value| keys.iter().map(|key| cell(&entry[*key])).collect::<Vec<_>>();
        let entries = depth[kind].as_array().cloned().unwrap_or_default();
        if entries.is_empty() {
            String::new()
        } else {
            format!("\n{}", table(&std::iter::once(head).chain(entries.iter().map(of)).collect::<Vec<_>>()))
        }
    };
    let text = rows("partitions", &["partition", "pending", "bytes"]) + &rows("groups", &["group", "pending", "skipped"]);
    if text.is_empty() { Ok(()) } else { say(text.trim_end()) }
}

/// Declares.
pub(super) fn configure(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let queue = json!(typed.get_one::<String>("queue"));
    let options = match typed.get_one::<String>("options") {
        Some(text) => {
            serde_json::from_str::<&serde_json::value::RawValue>(text).map_err(|error| format!("--options is no JSON: {error}"))?;
            text.clone()
        }
        None => Value::from(options_of(typed)).to_string(),
    };
    let text = node
        .post(&format!("{EPHEMERAL}/configure"), &format!("{{\"queue\":{queue},\"options\":{options}}}"), Duration::ZERO)?
        .expected()?;
    if node.is_json {
        return say(&text);
    }
    let declared = parsed(&text)?;
    say(&format!(
        "declared {} with {} at {}",
        shown(declared["queue"].as_str().unwrap_or("?")),
        declared["options"],
        declared["updatedAt"].as_str().unwrap_or("?")
    ))
}

fn options_of(typed: &ArgMatches) -> Map<String, Value> {
    let numbers = [
        ("max-length", "maxLength"),
        ("max-bytes", "maxBytes"),
        ("ttl-seconds", "ttlSeconds"),
        ("lease-seconds", "leaseSeconds"),
        ("retry-limit", "retryLimit"),
    ];
    let number = |flag: &str| typed.get_one::<u64>(flag).copied();
    let mut options: Map<String, Value> =
        numbers.into_iter().filter_map(|(flag, key)| Some((key.to_owned(), number(flag)?.into()))).collect();
    if let Some(policy) = typed.get_one::<String>("policy") {
        options.insert("policy".to_owned(), policy.as_str().into());
    }
    if number("window-ms").is_some() || number("window-count").is_some() {
        let window = json!({ "ms": number("window-ms").unwrap_or(0), "count": number("window-count").unwrap_or(0) });
        options.insert("windowBuffer".to_owned(), window);
    }
    options
}

/// Drops what a queue holds.
pub(super) fn reset(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let queue = typed.get_one::<String>("queue").map_or("", String::as_str);
    confirm(typed, &format!("Drop every message of {}?", shown(queue)))?;
    let text = node.post(&format!("{EPHEMERAL}/reset"), &json!({ "queue": queue }).to_string(), Duration::ZERO)?.expected()?;
    if node.is_json { say(&text) } else { say(&format!("dropped {}", parsed(&text)?["dropped"])) }
}

/// Forgets a queue.
pub(super) fn delete(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let queue = typed.get_one::<String>("queue").map_or("", String::as_str);
    confirm(typed, &format!("Delete {} with all it holds?", shown(queue)))?;
    // By the query: a client or proxy on the way may make another path of names such as `..`.
    let text = node.delete(&format!("{EPHEMERAL}/queue?queue={}", encoded(queue)))?.expected()?;
    if node.is_json {
        return say(&text);
    }
    let deleted = parsed(&text)?;
    match (deleted["deleted"].as_bool(), deleted["declared"].as_bool()) {
        (Some(true), Some(true)) => say("deleted, and it is not declared any more"),
        (Some(true), _) => say("deleted"),
        _ => say("there was nothing to delete"),
    }
}

/// Asks on a terminal whether that is meant.
fn confirm(typed: &ArgMatches, question: &str) -> Result<(), Ended> {
    if typed.get_flag("yes") || !io::stdin().is_terminal() {
        return Ok(());
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let _ = io::stderr().flush();
    let mut word = String::new();
    io::stdin().read_line(&mut word).map_err(|error| format!("standard input: {error}"))?;
    if matches!(word.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Ended::Failed("nothing was done".to_owned())) }
}

fn parsed(text: &str) -> Result<Value, Ended> {
    serde_json::from_str(text).map_err(|error| Ended::Failed(format!("{} is no answer: {error}", shown(text))))
}
