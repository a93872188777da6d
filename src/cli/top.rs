//! `top`: a live table of the queues that hold most, with the node's rates.
//!
//! On a terminal it takes a screen of its own and gives it back, also when it is interrupted; otherwise it prints one table after the other.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::asking::{EPHEMERAL, Ended, Node, flags, say, shown, table};

/// How often the end is looked for between two tables.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const PAGE: usize = 1_000;
/// Another screen, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const CLEAR: &str = "\x1b[H\x1b[J";

pub(super) fn command() -> Command {
    Command::new("top")
        .about("Show the busiest queues, live")
        .long_about("Show the queues that hold most, and how fast the node pushes, delivers and acks, again and again until Ctrl-C.")
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("SECONDS")
                .value_parser(value_parser!(u64).range(1..=3_600))
                .default_value("1")
                .help("How often"),
        )
        .arg(
            Arg::new("rows")
                .long("rows")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=1_000))
                .default_value("20")
                .help("Queues shown"),
        )
        .arg(Arg::new("count").long("count").value_name("N").value_parser(value_parser!(u64).range(1..)).help("End after so many tables"))
        .args(flags())
}

/// Shows tables until it is interrupted.
pub(super) fn run(typed: &ArgMatches) -> Result<(), Ended> {
    let node = Node::of(typed)?;
    let number = |name: &str| typed.get_one::<u64>(name).copied();
    let (interval, rows) = (Duration::from_secs(number("interval").unwrap_or(1)), number("rows").unwrap_or(20) as usize);
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_over)).map_err(|error| format!("signals: {error}"))?;
    }
    let is_screen = io::stdout().is_terminal() && !node.is_json;
    let _screen = is_screen.then(Screen::enter);
    let mut before = Seen::of(&node)?;
    let mut left = number("count");
    loop {
        if wait(interval, &is_over) {
            return Ok(());
        }
        let now = Seen::of(&node)?;
        if node.is_json {
            say(&now.json(&before, rows).to_string())?;
        } else {
            let text = now.text(&before, rows);
            say(&format!("{}{}", if is_screen { CLEAR } else { "" }, text.trim_end()))?;
        }
        before = now;
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(());
        }
    }
}

/// Whether it is over.
fn wait(span: Duration, is_over: &AtomicBool) -> bool {
    let until = Instant::now() + span;
    while !is_over.load(Relaxed) && Instant::now() < until {
        sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
    }
    is_over.load(Relaxed)
}

/// The terminal's other screen; what was there is there again when this goes.
struct Screen;

impl Screen {
    fn enter() -> Self {
        let _ = io::stdout().write_all(ENTER.as_bytes());
        Self
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = io::stdout().write_all(LEAVE.as_bytes()).and_then(|()| io::stdout().flush());
    }
}

/// What a node holds and has done at one moment.
struct Seen {
    at: Instant,
    /// Pushed, delivered, acked.
    messages: [u64; 3],
    queues: Vec<Value>,
}

impl Seen {
    fn of(node: &Node) -> Result<Self, Ended> {
        let metrics = node.get("/metrics", Duration::ZERO)?.expected()?;
        let count = |verb: &str| {
            let name = format!("queen_ephemeral_messages_total{{verb=\"{verb}\"}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&name)).and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        let messages = ["pushed", "popped", "acked"].map(count);
        let (mut queues, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("{EPHEMERAL}/queues?limit={PAGE}&after={}", super::asking::encoded(&after));
            let page: Value = serde_json::from_str(&node.get(&path, Duration::ZERO)?.expected()?).unwrap_or_default();
            let more = page["queues"].as_array().cloned().unwrap_or_default();
            let is_last = more.len() < PAGE;
            queues.extend(more);
            match queues.last().and_then(|queue| queue["queue"].as_str()) {
                Some(last) if !is_last => after = last.to_owned(),
                _ => return Ok(Self { at: Instant::now(), messages, queues }),
            }
        }
    }

    /// The fullest queues, and by how many messages a second each has grown.
    fn fullest(&self, before: &Self, rows: usize) -> Vec<(&Value, f64)> {
        let name = |queue: &Value| queue["queue"].as_str().unwrap_or_default().to_owned();
        let depth = |queue: &Value| queue["depth"].as_u64().unwrap_or(0);
        let earlier: HashMap<String, u64> = before.queues.iter().map(|queue| (name(queue), depth(queue))).collect();
        let span = self.span(before);
        let growth = |queue: &Value| (depth(queue) as f64 - earlier.get(&name(queue)).copied().unwrap_or(0) as f64) / span;
        let mut fullest: Vec<(&Value, f64)> = self.queues.iter().map(|queue| (queue, growth(queue))).collect();
        fullest.sort_by_key(|(queue, growth)| std::cmp::Reverse((depth(queue), growth.abs() as u64)));
        fullest.truncate(rows);
        fullest
    }

    fn span(&self, before: &Self) -> f64 {
        self.at.duration_since(before.at).as_secs_f64().max(0.001)
    }

    /// Pushed, delivered and acked a second.
    fn rates(&self, before: &Self) -> [f64; 3] {
        let span = self.span(before);
        std::array::from_fn(|index| self.messages[index].saturating_sub(before.messages[index]) as f64 / span)
    }

    fn text(&self, before: &Self, rows: usize) -> String {
        let [pushed, delivered, acked] = self.rates(before);
        let head = format!("{} queues   {pushed:.0} pushed/s   {delivered:.0} delivered/s   {acked:.0} acked/s\n\n", self.queues.len());
        let columns = ["queue", "depth", "growth/s", "bytes", "partitions", "groups"].map(str::to_owned).to_vec();
        let row = |(queue, growth): (&Value, f64)| {
            let number = |key: &str| queue[key].to_string();
            let name = shown(queue["queue"].as_str().unwrap_or("?"));
            vec![name, number("depth"), format!("{growth:+.0}"), number("bytes"), number("partitions"), number("groups")]
        };
        let lines = self.fullest(before, rows).into_iter().map(row);
        head + &table(&std::iter::once(columns).chain(lines).collect::<Vec<_>>())
    }

    fn json(&self, before: &Self, rows: usize) -> Value {
        let [pushed, delivered, acked] = self.rates(before);
        let queues: Vec<Value> = self
            .fullest(before, rows)
            .into_iter()
            .map(|(queue, growth)| json!({ "queue": queue["queue"], "depth": queue["depth"], "bytes": queue["bytes"], "growthPerSecond": growth }))
            .collect();
        json!({ "queues": queues, "count": self.queues.len(), "pushedPerSecond": pushed, "deliveredPerSecond": delivered, "ackedPerSecond": acked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_come_first_with_their_growth() {
        let at = Instant::now();
        let queue = |name: &str, depth: u64| json!({ "queue": name, "depth": depth, "bytes": 8, "partitions": 1, "groups": 0 });
        let before = Seen { at, messages: [10, 5, 0], queues: vec![queue("a", 4), queue("b", 9)] };
        let after =
            Seen { at: at + Duration::from_secs(2), messages: [30, 5, 1], queues: vec![queue("a", 8), queue("b", 3), queue("c", 1)] };
        let fullest: Vec<_> =
            after.fullest(&before, 2).into_iter().map(|(queue, growth)| (queue["queue"].as_str().unwrap_or("?"), growth)).collect();
        assert_eq!(fullest, [("a", 2.0), ("b", -3.0)]);
        assert_eq!(after.rates(&before), [10.0, 0.0, 0.5]);
        assert!(after.text(&before, 2).starts_with("3 queues   10 pushed/s"));
    }
}
