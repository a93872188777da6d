//! `push` and `call`: what is given to a queue, from arguments, files and standard input.
//!
//! Invariant: a payload reaches the node as it was typed, byte for byte; what is no JSON is refused here, with its line, before anything of its
//! batch is sent.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::asking::{EPHEMERAL, Ended, Node, flags, say, shown};

/// Messages of one push at most, as the node takes them.
const BATCH_MAX: u64 = 10_000;
/// Bytes of one push: far below what a node takes, and enough that the way does not count.
const BATCH_BYTES: usize = 1 << 20;
/// How often the progress of a long input is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

const PUSH_LONG_ABOUT: &str = "\
Push messages to a queue: each PAYLOAD, which is JSON, or each line of the files, or of standard input when neither is given. Empty lines are \
passed over. With --text a payload or line is any text, and becomes a JSON string.

  mayfly push jobs '{\"n\":1}' '{\"n\":2}'
  seq 100000 | mayfly push jobs
  mayfly push logs --text --file today.log";

pub(super) fn push_command() -> Command {
    Command::new("push")
        .about("Push messages to a queue")
        .long_about(PUSH_LONG_ABOUT)
        .arg(Arg::new("queue").value_name("QUEUE").required(true))
        .arg(Arg::new("payload").value_name("PAYLOAD").num_args(0..).allow_negative_numbers(true).help("A message's payload: JSON"))
        .arg(Arg::new("partition").long("partition").value_name("NAME").help("The partition [default: Default]"))
        .arg(Arg::new("text").long("text").action(ArgAction::SetTrue).help("Payloads are text, and become JSON strings"))
        .arg(
            Arg::new("file")
                .long("file")
                .value_name("FILE")
                .num_args(1)
                .action(ArgAction::Append)
                .help("Push the lines of a file; - is standard input"),
        )
        .arg(
            Arg::new("batch")
                .long("batch")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=BATCH_MAX))
                .default_value("1000")
                .help("Messages of one push; each is all or nothing"),
        )
        .args(flags())
}

pub(super) fn call_command() -> Command {
    Command::new("call")
        .about("Push a request and print its reply")
        .long_about("Push a request to a queue, wait for the reply and print it. Exit code 3: nobody replied in time, or nobody listens.")
        .arg(Arg::new("queue").value_name("QUEUE").required(true))
        .arg(Arg::new("payload").value_name("PAYLOAD").allow_negative_numbers(true).help("JSON; standard input when it is not given"))
        .arg(Arg::new("partition").long("partition").value_name("NAME").help("The partition [default: Default]"))
        .arg(Arg::new("text").long("text").action(ArgAction::SetTrue).help("The payload is text, and becomes a JSON string"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("MS")
                .value_parser(value_parser!(u64).range(0..=300_000))
                .default_value("30000")
                .help("How long to wait for the reply"),
        )
        .arg(Arg::new("fail-fast").long("fail-fast").action(ArgAction::SetTrue).help("Fail at once when nobody listens"))
        .args(flags())
}

/// Pushes all there is.
pub(super) fn push(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let mut batch = Batch::of(&node, typed);
    let payloads = typed.get_many::<String>("payload").unwrap_or_default();
    let files: Vec<&String> = typed.get_many::<String>("file").unwrap_or_default().collect();
    if payloads.len() == 0 && files.is_empty() {
        batch.read("standard input", io::stdin().lock())?;
    }
    for payload in payloads {
        batch.add("PAYLOAD", payload)?;
    }
    for path in files {
        match path.as_str() {
            "-" => batch.read("standard input", io::stdin().lock())?,
            path => {
                let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
                batch.length_bytes += file.metadata().map(|of| of.len()).unwrap_or(0);
                batch.read(path, BufReader::with_capacity(1 << 20, file))?;
            }
        }
    }
    batch.send()?;
    batch.clear_progress();
    let count = batch.pushed;
    if node.is_json { say(&json!({ "pushed": count }).to_string()) } else { say(&format!("pushed {count}")) }
}

/// Messages on their way to a queue.
struct Batch<'a> {
    node: &'a Node,
    /// The body up to the messages.
    beginning: String,
    body: String,
    count: u64,
    count_max: u64,
    is_text: bool,
    pushed: u64,
    read_bytes: u64,
    length_bytes: u64,
    shown_at: Option<Instant>,
}

impl<'a> Batch<'a> {
    fn of(node: &'a Node, typed: &ArgMatches) -> Self {
        let queue = json!(typed.get_one::<String>("queue"));
        let partition = typed.get_one::<String>("partition").map(|name| format!(",\"partition\":{}", json!(name))).unwrap_or_default();
        let beginning = format!("{{\"queue\":{queue}{partition},\"messages\":[");
        Self {
            node,
            body: beginning.clone(),
            beginning,
            count: 0,
            count_max: typed.get_one::<u64>("batch").copied().unwrap_or(BATCH_MAX),
            is_text: typed.get_flag("text"),
            pushed: 0,
            read_bytes: 0,
            length_bytes: 0,
            shown_at: None,
        }
    }

    fn read(&mut self, name: &str, mut input: impl BufRead) -> Result<(), Ended> {
        let (mut line, mut number) = (String::new(), 0_u64);
        loop {
            line.clear();
            number += 1;
            let count = input.read_line(&mut line).map_err(|error| format!("{name}, line {number}: {error}"))?;
            if count == 0 {
                return Ok(());
            }
            self.read_bytes += count as u64;
            let text = line.strip_suffix('\n').map_or(line.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
            if !text.is_empty() {
                self.add(&format!("{name}, line {number}"), text)?;
            }
        }
    }

    fn add(&mut self, place: &str, payload: &str) -> Result<(), Ended> {
        let payload = spelled(place, payload, self.is_text)?;
        if self.count > 0 {
            self.body.push(',');
        }
        self.body.push_str("{\"payload\":");
        self.body.push_str(&payload);
        self.body.push('}');
        self.count += 1;
        if self.count >= self.count_max || self.body.len() >= BATCH_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), Ended> {
        if self.count == 0 {
            return Ok(());
        }
        self.body.push_str("]}");
        let answer = self.node.post(&format!("{EPHEMERAL}/push"), &self.body, Duration::from_secs(60));
        if let Err(ended) = answer.and_then(super::asking::Answer::expected) {
            self.clear_progress();
            // What was pushed before stays pushed: whoever repeats the command has to know.
            return Err(match (self.pushed, ended) {
                (0, ended) => ended,
                (pushed, Ended::Failed(line)) => Ended::Failed(format!("{line}; {pushed} were pushed before")),
                (pushed, Ended::Unreachable(line)) => Ended::Unreachable(format!("{line}; {pushed} were pushed before")),
                (_, ended) => ended,
            });
        }
        self.pushed += self.count;
        (self.count, self.body) = (0, self.beginning.clone());
        self.show_progress();
        Ok(())
    }

    /// A bar on the terminal while a long input is read.
    fn show_progress(&mut self) {
        let now = Instant::now();
        let is_due = self.shown_at.is_none_or(|at| now.duration_since(at) >= PROGRESS_EVERY);
        if self.read_bytes == 0 || !is_due || !io::stderr().is_terminal() {
            return;
        }
        self.shown_at = Some(now);
        let bar = match self.length_bytes {
            0 => String::new(),
            length => {
                let done = (self.read_bytes * 30 / length).min(30) as usize;
                format!("[{}{}] {:3} %  ", "#".repeat(done), ".".repeat(30 - done), self.read_bytes * 100 / length)
            }
        };
        let _ = write!(io::stderr(), "\r{bar}{} messages, {:.1} MiB ", self.pushed, self.read_bytes as f64 / f64::from(1 << 20));
    }

    fn clear_progress(&self) {
        if self.shown_at.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A payload as JSON text.
fn spelled(place: &str, payload: &str, is_text: bool) -> Result<String, Ended> {
    if is_text {
        return Ok(Value::from(payload).to_string());
    }
    match serde_json::from_str::<&RawValue>(payload) {
        Ok(_) => Ok(payload.to_owned()),
        Err(error) => Err(Ended::Failed(format!("{place} is no JSON: {error}; with --text any text is a payload"))),
    }
}

/// Calls once.
pub(super) fn call(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let payload = match typed.get_one::<String>("payload") {
        Some(payload) => spelled("PAYLOAD", payload, typed.get_flag("text"))?,
        None => {
            let text = io::read_to_string(io::stdin().lock()).map_err(|error| format!("standard input: {error}"))?;
            spelled("standard input", text.strip_suffix('\n').unwrap_or(&text), typed.get_flag("text"))?
        }
    };
    let timeout = typed.get_one::<u64>("timeout").copied().unwrap_or(30_000);
    let queue = json!(typed.get_one::<String>("queue"));
    let partition = typed.get_one::<String>("partition").map(|name| format!(",\"partition\":{}", json!(name))).unwrap_or_default();
    let fail_fast = typed.get_flag("fail-fast");
    let body = format!("{{\"queue\":{queue}{partition},\"timeout\":{timeout},\"failFast\":{fail_fast},\"payload\":{payload}}}");
    let text = node.post(&format!("{EPHEMERAL}/call"), &body, Duration::from_millis(timeout))?.expected()?;
    if node.is_json {
        return say(&text);
    }
    #[derive(serde::Deserialize)]
    struct Replied<'a> {
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    let replied: Replied<'_> = serde_json::from_str(&text).map_err(|error| format!("{} is no answer: {error}", shown(&text)))?;
    say(replied.payload.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_as_it_was_typed_and_text_becomes_a_string() {
        let spell = |payload, is_text| spelled("x", payload, is_text).map_err(|ended| ended.to_string());
        assert_eq!(spell(" {\"a\" : 1e400,\"a\":\"\\ud800\"}", false).as_deref(), Ok(" {\"a\" : 1e400,\"a\":\"\\ud800\"}"));
        assert_eq!(spell("say \"hi\"\t", true).as_deref(), Ok(r#""say \"hi\"\t""#));
        assert!(spell("{", false).is_err_and(|line| line.starts_with("x is no JSON")));
    }
}
