//! `pop`, `ack` and `tail`: what is taken from a queue.
//!
//! Invariant: a payload is printed as it was pushed, byte for byte.

use std::borrow::Cow;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;
use serde_json::value::RawValue;

use super::asking::{EPHEMERAL, Ended, Node, encoded, flags, say, shown, table};

/// One message of a pop, or of a stream.
#[derive(serde::Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    partition: Cow<'a, str>,
    attempts: u32,
    #[serde(borrow)]
    payload: &'a RawValue,
}

fn queue() -> Arg {
    Arg::new("queue").value_name("QUEUE").required(true)
}

fn group() -> Arg {
    Arg::new("group").long("group").value_name("NAME").help("The consumer group [default: one place shared by all]")
}

fn partition() -> Arg {
    Arg::new("partition").long("partition").value_name("NAME").help("That partition alone [default: any]")
}

pub(super) fn pop_command() -> Command {
    Command::new("pop")
        .about("Take messages from a queue")
        .long_about("Take messages from a queue and print them. Without --ack or --auto-ack they are leased: ack them, or they come back. Exit code 3: there was none.")
        .arg(queue())
        .arg(group())
        .arg(partition())
        .arg(
            Arg::new("batch")
                .long("batch")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=10_000))
                .default_value("1")
                .help("At most so many messages"),
        )
        .arg(Arg::new("wait").long("wait").action(ArgAction::SetTrue).help("Wait for a message when there is none"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("MS")
                .value_parser(value_parser!(u64).range(0..=300_000))
                .default_value("30000")
                .help("How long to wait"),
        )
        .arg(Arg::new("ack").long("ack").action(ArgAction::SetTrue).help("Ack the messages once they are printed"))
        .arg(Arg::new("auto-ack").long("auto-ack").action(ArgAction::SetTrue).conflicts_with("ack").help("Settle them as they are given"))
        .arg(Arg::new("payload").long("payload").action(ArgAction::SetTrue).conflicts_with("json").help("Print the payloads alone, a line each"))
        .args(flags())
}

pub(super) fn ack_command() -> Command {
    Command::new("ack")
        .about("Settle messages that were popped")
        .long_about("Settle messages by their ids, and print what came of each. Exit code 1: one of them was stale or unknown.")
        .arg(queue())
        .arg(Arg::new("id").value_name("ID").num_args(1..).required(true))
        .arg(group())
        .arg(
            Arg::new("status")
                .long("status")
                .value_name("STATUS")
                .value_parser(["completed", "retry", "failed"])
                .default_value("completed")
                .help("With retry and failed the message comes back at once"),
        )
        .args(flags())
}

pub(super) fn tail_command() -> Command {
    Command::new("tail")
        .about("Follow a queue: print what is pushed from now on")
        .long_about(
            "Print the payloads of a queue's messages as they are pushed, a line each, until Ctrl-C. Without --group every message is shown and \
             nothing is taken from other groups; with a group this is one of its consumers, and takes what it prints.",
        )
        .arg(queue())
        .arg(group())
        .arg(partition())
        .arg(Arg::new("count").long("count").value_name("N").value_parser(value_parser!(u64).range(1..)).help("End after so many messages"))
        .args(flags())
}

/// Pops once, and acks if that is wanted.
pub(super) fn pop(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let queue = typed.get_one::<String>("queue").map_or("", String::as_str);
    let timeout = typed.get_one::<u64>("timeout").copied().unwrap_or(0);
    let waits = typed.get_flag("wait");
    let mut path = format!("{EPHEMERAL}/pop?queue={}{}", encoded(queue), selection(typed));
    path += &format!("&batch={}", typed.get_one::<u64>("batch").copied().unwrap_or(1));
    if waits {
        path += &format!("&wait=true&timeout={timeout}");
    }
    if typed.get_flag("auto-ack") {
        path += "&autoAck=true";
    }
    let wait = if waits { Duration::from_millis(timeout) } else { Duration::ZERO };
    let text = node.get(&path, wait)?.expected()?;
    #[derive(serde::Deserialize)]
    struct Popped<'a> {
        #[serde(borrow)]
        messages: Vec<Message<'a>>,
    }
    let popped: Popped<'_> = serde_json::from_str(&text).map_err(|error| format!("{} is no answer: {error}", shown(&text)))?;
    if node.is_json {
        say(&text)?;
    } else if typed.get_flag("payload") {
        popped.messages.iter().try_for_each(|message| say(message.payload.get()))?;
    } else if !popped.messages.is_empty() {
        let head = ["id", "partition", "attempts", "payload"].map(str::to_owned).to_vec();
        let row = |message: &Message<'_>| {
            vec![shown(&message.id), shown(&message.partition), message.attempts.to_string(), message.payload.get().to_owned()]
        };
        say(table(&std::iter::once(head).chain(popped.messages.iter().map(row)).collect::<Vec<_>>()).trim_end())?;
    }
    if popped.messages.is_empty() {
        return Err(Ended::Nothing(format!("no message in {}", shown(queue))));
    }
    if typed.get_flag("ack") {
        let ids: Vec<&str> = popped.messages.iter().map(|message| &*message.id).collect();
        settle(&node, typed, &ids, "completed")?;
    }
    Ok(())
}

/// Acks ids.
pub(super) fn ack(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let ids: Vec<&str> = typed.get_many::<String>("id").unwrap_or_default().map(String::as_str).collect();
    let status = typed.get_one::<String>("status").map_or("completed", String::as_str);
    let text = settle(&node, typed, &ids, status)?;
    let results: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let results = results["results"].as_array().cloned().unwrap_or_default();
    let outcome = |result: &serde_json::Value| result["outcome"].as_str().unwrap_or("?").to_owned();
    if node.is_json {
        say(&text)?;
    } else {
        let row = |result: &serde_json::Value| vec![shown(result["id"].as_str().unwrap_or("?")), outcome(result)];
        say(table(&results.iter().map(row).collect::<Vec<_>>()).trim_end())?;
    }
    let count = results.iter().filter(|result| !matches!(outcome(result).as_str(), "acked" | "redelivered")).count();
    if count == 0 { Ok(()) } else { Err(Ended::Failed(format!("{count} of {} were settled before, or are another's", results.len()))) }
}

fn settle(node: &Node, typed: &ArgMatches, ids: &[&str], status: &str) -> Result<String, Ended> {
    let acks: Vec<_> = ids.iter().map(|id| json!({ "id": id, "status": status })).collect();
    let body = json!({ "queue": typed.get_one::<String>("queue"), "group": typed.get_one::<String>("group"), "acks": acks });
    node.post(&format!("{EPHEMERAL}/ack"), &body.to_string(), Duration::ZERO)?.expected()
}

/// Follows a queue.
pub(super) fn tail(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let queue = typed.get_one::<String>("queue").map_or("", String::as_str);
    let stream = node.stream(&format!("{EPHEMERAL}/subscribe?queue={}{}", encoded(queue), selection(typed)))?;
    let mut left = typed.get_one::<u64>("count").copied();
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| Ended::Unreachable(format!("the stream broke off: {error}")))?;
        // The other lines of an event say what its data says too.
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if node.is_json {
            say(data)?;
        } else {
            let message: Message<'_> = serde_json::from_str(data).map_err(|error| format!("{} is no message: {error}", shown(data)))?;
            say(message.payload.get())?;
        }
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(());
        }
    }
    Err(Ended::Unreachable("the node ended the stream".to_owned()))
}

/// The group and partition of a query.
fn selection(typed: &ArgMatches) -> String {
    let part = |name: &str| typed.get_one::<String>(name).map(|value| format!("&{name}={}", encoded(value))).unwrap_or_default();
    part("group") + &part("partition")
}
