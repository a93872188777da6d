//! The comparison, from the raw runs: medians, ratios within a round, and the goals.
//!
//! A ratio is the median over rounds of one peer's figure over another's in the same round, so that what slows the machine for a while
//! slows both.
//!
//! Goals compare like with like: what has a connection a caller (`mayfly-call` and `mayfly`) with peers that have one a caller, and what
//! puts all callers on one connection (`mayfly-shared`) with `nats-shared`, in goals of its own. Bounds were set before anything was
//! measured; whom a goal is against in this was settled after. A connection a caller costs every server most of its rate, so the tables
//! have all of them side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use mayfly_generator::report::number;

/// A run's figures by name.
type Figures = BTreeMap<String, f64>;

/// All runs of one setting, pinned or not.
#[derive(Debug, Default)]
pub struct Runs {
    /// By shape and peer, then by round (numbered over all files).
    runs: BTreeMap<(String, String), BTreeMap<(String, u64), Figures>>,
    /// Shapes in the order in which they first came.
    pub shapes: Vec<String>,
    peers: Vec<String>,
    versions: Vec<String>,
    machine: String,
}

impl Runs {
    /// Reads lines of JSON, those that are pinned or those that are not. A line that is not of a run is passed over.
    #[must_use]
    pub fn read(lines: &str, is_pinned: bool) -> Self {
        let mut runs = Self::default();
        for line in lines.lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            if value["pinned"].as_bool() == Some(is_pinned) {
                runs.add(&value);
            }
        }
        runs
    }

    fn add(&mut self, value: &Value) {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let (shape, peer, version) = (text("shape"), text("parameters"), text("version"));
        let round = (text("date"), value["round"].as_u64().unwrap_or(0));
        let figures = value.as_object().into_iter().flatten();
        let figures = figures.filter_map(|(key, value)| value.as_f64().map(|value| (key.clone(), value))).collect();
        for (list, item) in [(&mut self.shapes, &shape), (&mut self.peers, &peer), (&mut self.versions, &version)] {
            if !item.is_empty() && !list.contains(item) {
                list.push(item.clone());
            }
        }
        self.machine = text("machine");
        self.runs.entry((shape, peer)).or_default().insert(round, figures);
    }

    /// Peers with runs of a shape, ours first.
    pub fn peers_of<'a>(&'a self, shape: &'a str) -> impl Iterator<Item = &'a str> {
        let has = move |peer: &&String| self.runs.contains_key(&(shape.to_owned(), (*peer).clone()));
        self.peers.iter().filter(has).map(String::as_str)
    }

    fn of(&self, shape: &str, peer: &str) -> Option<&BTreeMap<(String, u64), Figures>> {
        self.runs.get(&(shape.to_owned(), peer.to_owned()))
    }

    /// The median of a figure.
    #[must_use]
    pub fn median(&self, shape: &str, peer: &str, figure: &str) -> Option<f64> {
        median(self.of(shape, peer)?.values().filter_map(|figures| figures.get(figure).copied()).collect())
    }

    /// The median over rounds of `ours` over `theirs` in the same round.
    #[must_use]
    pub fn ratio(&self, shape: &str, ours: (&str, &str), theirs: (&str, &str)) -> Option<f64> {
        let others = self.of(shape, theirs.0)?;
        let ratio = |(round, figures): (&(String, u64), &Figures)| {
            let (mine, other) = (figures.get(ours.1)?, others.get(round)?.get(theirs.1)?);
            (*other > 0.0).then(|| mine / other)
        };
        median(self.of(shape, ours.0)?.iter().filter_map(ratio).collect())
    }

    fn round_count(&self) -> usize {
        self.runs.values().map(BTreeMap::len).max().unwrap_or(0)
    }

    /// The tables of all shapes as Markdown; None: there are no runs.
    #[must_use]
    pub fn tables(&self) -> Option<String> {
        if self.runs.is_empty() {
            return None;
        }
        let mut text = format!("{}; {}.\nMedians of up to {} rounds.\n", self.machine, self.versions.join("; "), self.round_count());
        for shape in &self.shapes {
            let has = |figure| self.peers_of(shape).any(|peer| self.median(shape, peer, figure).is_some());
            let columns: Vec<_> = COLUMNS.iter().filter(|(figure, _)| has(figure)).collect();
            let _ = write!(text, "\n### {shape}\n\n| |");
            columns.iter().for_each(|(_, title)| text.push_str(&format!(" {title} |")));
            let _ = write!(text, " mayfly / it |\n|---|{}---|\n", "---|".repeat(columns.len()));
            // What is compared in the last column.
            let key = columns.first().map_or("", |(figure, _)| *figure);
            for peer in self.peers_of(shape) {
                let _ = write!(text, "| {peer} |");
                for (figure, _) in &columns {
                    text.push_str(&format!(" {} |", self.median(shape, peer, figure).map_or_else(String::new, number)));
                }
                let ratio = self.ratio(shape, (self.reference(shape), key), (peer, key));
                let _ = writeln!(text, " {} |", ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")));
            }
        }
        Some(text)
    }

    /// What the last column compares with: plain Mayfly.
    fn reference(&self, shape: &str) -> &'static str {
        if self.of(shape, "mayfly").is_some() { "mayfly" } else { "mayfly-call" }
    }

    /// The goals as a table of Markdown.
    #[must_use]
    pub fn goals(&self) -> String {
        let mut text = String::from("| goal | measured | bound | |\n|---|---|---|---|\n");
        for goal in GOALS {
            let Goal { text: what, bound, .. } = goal;
            let sign = if goal.is_at_least { "≥" } else { "≤" };
            let (measured, verdict) = match self.reach(goal) {
                Some((value, against)) => {
                    let is_met = if goal.is_at_least { value >= *bound } else { value <= *bound };
                    (format!("{value:.2}{against}"), if is_met { "met" } else { "missed" })
                }
                None => (String::new(), "not measured"),
            };
            let _ = writeln!(text, "| {what} | {measured} | {sign} {bound} | {verdict} |");
        }
        text
    }

    /// What a goal measures, and against whom.
    fn reach(&self, goal: &Goal) -> Option<(f64, String)> {
        let (shape, ours) = (goal.shape, (goal.peer, goal.figure));
        match goal.against {
            Against::Itself => Some((self.median(shape, goal.peer, goal.figure)?, String::new())),
            Against::Own(figure) => Some((self.ratio(shape, ours, (goal.peer, figure))?, String::new())),
            Against::Peer(peer) => Some((self.ratio(shape, ours, (peer, goal.figure))?, String::new())),
            Against::Best(rivals) => {
                let others = self.peers_of(shape).filter(|peer| rivals.contains(peer));
                let ratios = others.filter_map(|peer| Some((self.ratio(shape, ours, (peer, goal.figure))?, format!(" ({peer})"))));
                // The best peer is the one that leaves us worst.
                ratios.reduce(|one, other| if (other.0 < one.0) == goal.is_at_least { other } else { one })
            }
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], upper) } else { upper })
}

/// Columns of a table where a shape has them: the figure's name and its title. The first one that is there is compared.
const COLUMNS: [(&str, &str); 14] = [
    ("parked_bytes", "RSS per parked connection, bytes"),
    ("connected_bytes", "connected only"),
    ("idle_cpu_percent", "idle CPU %"),
    ("rate_per_s", "operations/s"),
    ("p50_us", "p50 µs"),
    ("p99_us", "p99 µs"),
    ("p999_us", "p99.9 µs"),
    ("server_cpu_us", "server CPU µs/op"),
    ("server_waited_percent", "server waited for its CPU, %"),
    ("load_cpu_percent", "load CPU %"),
    ("refused", "refused"),
    ("late_count", "late"),
    ("rss_with_mib", "RSS with them, MiB"),
    ("rss_growth_mib", "RSS left, MiB"),
];

/// NATS with a connection a caller, as Mayfly's `call` has it. [`SHARED_NATS`] is for what shares one connection, too.
const NATS: Against = Against::Peer("nats");
/// NATS with one connection for all callers.
const SHARED_NATS: Against = Against::Peer("nats-shared");
/// Whom "the best peer" is chosen from: all that have a connection a caller.
const RIVALS: &[&str] = &["nats", "redis", "redis-streams", "valkey", "valkey-streams", "beanstalkd", "queenmq"];

#[derive(Debug)]
enum Against {
    /// The figure as it is.
    Itself,
    /// Another figure of the same runs.
    Own(&'static str),
    /// The same figure of one peer.
    Peer(&'static str),
    /// The same figure of the one of these that does best.
    Best(&'static [&'static str]),
}

#[derive(Debug)]
struct Goal {
    text: &'static str,
    shape: &'static str,
    peer: &'static str,
    figure: &'static str,
    against: Against,
    bound: f64,
    is_at_least: bool,
}

const fn at_least(text: &'static str, shape: &'static str, peer: &'static str, against: Against, bound: f64) -> Goal {
    Goal { text, shape, peer, figure: "rate_per_s", against, bound, is_at_least: true }
}

const fn at_most(
    text: &'static str,
    shape: &'static str,
    (peer, figure): (&'static str, &'static str),
    against: Against,
    bound: f64,
) -> Goal {
    Goal { text, shape, peer, figure, against, bound, is_at_least: false }
}

const RPC: &str = "rpc 32x4";
const B100: &str = "oneway b100 64";
const LEASED: &str = "leased b100 64";
const INBOXES: &str = "inboxes 100000";

const GOALS: &[Goal] = &[
    at_least("RPC 32×4, call/reply, autoAck, against NATS, a connection a caller", RPC, "mayfly-call", NATS, 1.3),
    at_least("RPC 32×4, call/reply, lease + ack, against NATS, a connection a caller", RPC, "mayfly-call-leased", NATS, 1.3),
    at_least("RPC 32×4, plain push/pop, against the published broker", RPC, "mayfly", Against::Peer("queenmq"), 2.0),
    at_most("RPC 1×1 p50, call/reply, against the best peer", "rpc 1x1", ("mayfly-call", "p50_us"), Against::Best(RIVALS), 0.65),
    at_most("RPC 1×1 p50, plain, against the best peer", "rpc 1x1", ("mayfly", "p50_us"), Against::Best(RIVALS), 0.8),
    at_least(
        "RPC 256×4, call/reply, against the best peer with a connection a caller",
        "rpc 256x4",
        "mayfly-call",
        Against::Best(RIVALS),
        1.3,
    ),
    at_least("RPC 32×4, all callers on one connection, against NATS on one", RPC, "mayfly-shared", SHARED_NATS, 1.3),
    at_least("RPC 256×4, all callers on one connection, against NATS on one", "rpc 256x4", "mayfly-shared", SHARED_NATS, 1.3),
    at_most("wake-up of a parked pop, idle, p50, against Redis", "wake idle", ("mayfly", "p50_us"), Against::Peer("redis"), 1.0),
    at_least("one-way batch 100, 64 B, autoAck, against Redis lists", B100, "mayfly", Against::Peer("redis"), 1.0),
    at_least("the same, against the published broker", B100, "mayfly", Against::Peer("queenmq"), 2.5),
    at_least("one-way batch 100, lease + ack, against Redis streams", LEASED, "mayfly", Against::Peer("redis-streams"), 2.5),
    at_least("the same, against the published broker", LEASED, "mayfly", Against::Peer("queenmq"), 2.0),
    at_least("fan-out ×8, batch 100, against NATS", "fanout x8 b100", "mayfly", NATS, 1.0),
    at_least("100k inboxes used once, rate against NATS", INBOXES, "mayfly", NATS, 1.0),
    at_most("the same, RSS left, MiB", INBOXES, ("mayfly", "rss_growth_mib"), Against::Itself, 2.0),
    at_most("RSS per parked connection, 10k, bytes", "parked 10000", ("mayfly", "parked_bytes"), Against::Itself, 1536.0),
    at_most("p99.9 of RPC 32×4 against its p50, call/reply", RPC, ("mayfly-call", "p999_us"), Against::Own("p50_us"), 3.0),
    at_most("the same, plain", RPC, ("mayfly", "p999_us"), Against::Own("p50_us"), 3.0),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn line(shape: &str, peer: &str, round: u64, rate: f64, p50: f64) -> String {
        format!(
            "{{\"date\":\"d\",\"machine\":\"m\",\"version\":\"v\",\"pinned\":true,\"round\":{round},\
             \"shape\":\"{shape}\",\"parameters\":\"{peer}\",\"rate_per_s\":{rate},\"p50_us\":{p50},\"p999_us\":100.0}}\n"
        )
    }

    #[test]
    fn ratios_are_within_rounds_and_the_best_peer_is_the_hardest() {
        let mut lines = String::from("not a run\n");
        for (round, factor) in [(1, 1.0), (2, 0.1), (3, 2.0)] {
            lines += &line("rpc 1x1", "mayfly", round, 300.0 * factor, 50.0 / factor);
            lines += &line("rpc 1x1", "nats", round, 200.0 * factor, 100.0 / factor);
            lines += &line("rpc 1x1", "redis", round, 100.0 * factor, 60.0 / factor);
            let rates = [("mayfly-call", 130.0), ("mayfly-shared", 240.0), ("nats", 100.0), ("nats-shared", 200.0), ("redis", 65.0)];
            for (peer, rate) in rates {
                lines += &line("rpc 32x4", peer, round, rate * factor, 50.0);
                lines += &line("rpc 256x4", peer, round, rate * factor, 50.0);
            }
            lines += &line("rpc 1x1", "echo", round, 900.0 * factor, 1.0 / factor);
        }
        let runs = Runs::read(&lines, true);
        assert_eq!(runs.ratio("rpc 1x1", ("mayfly", "rate_per_s"), ("nats", "rate_per_s")), Some(1.5));
        assert_eq!(runs.median("rpc 1x1", "mayfly", "rate_per_s"), Some(300.0));
        let goals = runs.goals();
        assert!(goals.contains("| RPC 1×1 p50, plain, against the best peer | 0.83 (redis) | ≤ 0.8 | missed |"), "{goals}");
        assert!(goals.contains("| RPC 1×1 p50, call/reply, against the best peer |  | ≤ 0.65 | not measured |"), "{goals}");
        // Of NATS' two ways the one counts that is also ours.
        assert!(goals.contains("call/reply, autoAck, against NATS, a connection a caller | 1.30 | ≥ 1.3 | met |"), "{goals}");
        assert!(goals.contains("against the best peer with a connection a caller | 1.30 (nats) | ≥ 1.3 | met |"), "{goals}");
        assert_eq!(goals.matches("all callers on one connection, against NATS on one | 1.20 | ≥ 1.3 | missed |").count(), 2, "{goals}");
        assert!(Runs::read(&lines, false).tables().is_none());
        let tables = runs.tables().expect("runs");
        assert!(tables.contains("| redis | 100 | 60.0 | 100 | 3.00 |"), "{tables}");
    }
}
