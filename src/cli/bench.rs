//! `mayfly bench`: the loops of the load generator against a node that runs.
//!
//! Results go to standard output, progress and what was left out to standard error, so that either can be kept alone.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::net::ToSocketAddrs as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use mayfly_generator::http::Style;
use mayfly_generator::loops::Loop;
use mayfly_generator::node::{LOOPS, measure, probe};
use mayfly_generator::report::{Row, table};
use mayfly_generator::request;
use mayfly_generator::wire::Target;

const LONG_ABOUT: &str = "\
Measure a node that runs: rates and latencies as its clients see them. One thread drives all connections; `taskset -c N mayfly bench …` \
pins it, to another CPU than the node's. Every run has queues of its own and deletes them afterwards.

A loop is named by how it begins (`mayfly bench rpc`, `mayfly bench \"rpc 32x4\" oneway`); without a name all of them run:
  rpc 1x1, rpc 32x4, rpc 256x4    calls: so many callers, each with one under way, and responders; over plain push and pop, over `call`
                                  and `reply`, and over these with leases; what the node does not have is left out
  wake idle, wake busy            one message to a parked pop: after a pause of 2 ms, or at once
  oneway b1 64, oneway b100 64    messages of 64 bytes one by one and in batches of 100, each batch sent when the one before was taken
  leased b1 64, leased b100 64    the same, leased and acked
  fanout x8 b1, fanout x8 b100    the same to 8 groups, each of which gets everything

A latency is of a whole operation: a call, a message, a batch. When load_cpu_percent is near 100, this program is what limits (at a \
--rate it always is, as it polls so as to keep time).";

const EXIT_CODES: &str = "\
Exit codes:
  0  measured
  1  the node could not be reached, or a run failed: one line says why
  2  the command line was not understood";

/// The command and its flags.
pub(super) fn command() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).value_parser(OsStringValueParser::new()).allow_negative_numbers(true).help(help)
    };
    Command::new("bench")
        .about("Measure a node that runs")
        .long_about(LONG_ABOUT)
        .after_help(EXIT_CODES)
        .arg(Arg::new("shape").value_name("SHAPE").num_args(0..).help("Loops to run, each named by how it begins [default: all]"))
        .arg(text("url", "URL", "Where the node serves [default: http://127.0.0.1:6632]"))
        .arg(text(
            "token-file",
            "FILE",
            "File that holds a token (JWT), sent with every request [default: what MAYFLY_TOKEN holds, if anything]",
        ))
        .arg(text("ca", "FILE", "PEM file of the authority that an https node's certificate is of"))
        .arg(text("seconds", "SECONDS", "How long each loop is measured, after a quarter of it to warm up [default: 1]"))
        .arg(text("rounds", "N", "How often all of it is done; the table shows medians [default: 1]"))
        .arg(text("rate", "N", "Calls due a second, whatever became of those before (open loop): latency counts from when a call was due"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("One JSON object a run instead of the table"))
}

/// What was asked for.
struct Plan {
    url: String,
    target: Target,
    loops: Vec<(&'static str, Loop)>,
    span: Duration,
    round_count: u32,
    rate_per_s: Option<u32>,
    is_json: bool,
}

/// Measures what was typed.
///
/// # Errors
/// The line that says what could not be read, reached or measured.
pub(super) fn run(typed: &ArgMatches) -> Result<(), String> {
    let plan = Plan::read(typed)?;
    if let Some(token) = token(typed)? {
        request::authorize(&token);
    }
    let Plan { url, target, .. } = &plan;
    let remedy = "start one with `mayfly serve`, or name another with --url";
    probe(target).map_err(|error| format!("cannot reach a node at {url}: {error}; {remedy}"))?;
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for round in 1..=plan.round_count {
        for (name, what) in &plan.loops {
            for style in Style::ALL {
                if missing.contains(&(*name, style.name())) {
                    continue;
                }
                match plan.measure(name, *what, style)? {
                    Outcome::Measured(row) => rows.push(plan.tell(round, row)?),
                    Outcome::Missing => missing.push((*name, style.name())),
                    Outcome::Meaningless => {}
                }
            }
        }
    }
    if plan.is_json { Ok(()) } else { print(&table(&rows)) }
}

enum Outcome {
    Measured(Row),
    /// The node does not have it.
    Missing,
    /// There is no such loop in the style.
    Meaningless,
}

impl Plan {
    fn read(typed: &ArgMatches) -> Result<Self, String> {
        let url = typed.get_one::<OsString>("url").map_or("http://127.0.0.1:6632".into(), |url| url.to_string_lossy());
        let url = url.trim_end_matches('/').to_owned();
        let seconds = number(typed, "seconds", 0.01..=300.0)?.unwrap_or(1.0);
        let rate_per_s = number(typed, "rate", 1..=200_000)?;
        Ok(Self {
            target: target(&url, typed.get_one::<OsString>("ca"))?,
            url,
            loops: chosen(typed, rate_per_s)?,
            span: Duration::from_secs_f64(seconds),
            round_count: number(typed, "rounds", 1..=1000)?.unwrap_or(1),
            rate_per_s,
            is_json: typed.get_flag("json"),
        })
    }

    fn measure(&self, name: &'static str, what: Loop, style: Style) -> Result<Outcome, String> {
        let rate = self.rate_per_s.map_or_else(String::new, |rate| format!(" {rate}/s"));
        let parameters = format!("{}{rate}", style.name());
        match measure(&self.target, what, style, self.span) {
            Ok(Some(figures)) => Ok(Outcome::Measured(Row { shape: name, parameters, figures })),
            Ok(None) => Ok(Outcome::Meaningless),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("left out: {name} {parameters}: the node does not have it");
                Ok(Outcome::Missing)
            }
            Err(error) => Err(format!("{name} {parameters}: {}", one_line(&error))),
        }
    }

    /// Says that a run is done, and prints it where there will be no table.
    fn tell(&self, round: u32, row: Row) -> Result<Row, String> {
        eprintln!("round {round}: {} {}", row.shape, row.parameters);
        if self.is_json {
            let (date, url, seconds) = (humantime::format_rfc3339_seconds(SystemTime::now()), &self.url, self.span.as_secs_f64());
            let context = format!("\"date\":\"{date}\",\"url\":\"{url}\",\"seconds\":{seconds},\"round\":{round}");
            print(&format!("{}\n", row.json(&context)))?;
        }
        Ok(row)
    }
}

/// The loops that are meant, with calls in an open loop at a rate.
fn chosen(typed: &ArgMatches, rate_per_s: Option<u32>) -> Result<Vec<(&'static str, Loop)>, String> {
    let names: Vec<&String> = typed.get_many("shape").into_iter().flatten().collect();
    if let Some(name) = names.iter().find(|name| !LOOPS.iter().any(|(loop_name, _)| loop_name.starts_with(name.as_str()))) {
        return Err(format!("no shape begins with {name:?}; `mayfly bench --help` names them"));
    }
    let is_meant = |(name, _): &(&str, Loop)| names.is_empty() || names.iter().any(|beginning| name.starts_with(beginning.as_str()));
    let meant = LOOPS.into_iter().filter(is_meant);
    let Some(rate) = rate_per_s else { return Ok(meant.collect()) };
    let at_a_rate = meant.filter_map(|(name, what)| match what {
        Loop::Rpc(caller_count, responder_count) => Some((name, Loop::OpenRpc(caller_count, responder_count, rate))),
        _ => None,
    });
    let loops: Vec<_> = at_a_rate.collect();
    if loops.is_empty() { Err("--rate: only the shapes of rpc have one; choose of them or leave it out".into()) } else { Ok(loops) }
}

/// The token that requests carry: of the file, else of the environment.
fn token(typed: &ArgMatches) -> Result<Option<String>, String> {
    let text = match typed.get_one::<OsString>("token-file") {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("--token-file: cannot read {}: {error}", path.display()))?,
        None => std::env::var("MAYFLY_TOKEN").unwrap_or_default(),
    };
    let token = text.trim();
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("--token-file, MAYFLY_TOKEN: it holds no token; expected one line of visible ASCII".to_owned());
    }
    Ok((!token.is_empty()).then(|| token.to_owned()))
}

/// Where the node of `http://HOST[:PORT]` or `https://HOST[:PORT]` is: the first of its addresses.
fn target(url: &str, authorities: Option<&OsString>) -> Result<Target, String> {
    let unreadable = || format!("--url: cannot read {url:?}; expected http://HOST:PORT or https://HOST:PORT");
    let (has_tls, host) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(host), _) => (false, host),
        (_, Some(host)) => (true, host),
        _ => return Err(unreadable()),
    };
    let is_plain = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    if !is_plain {
        return Err(unreadable());
    }
    let port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let name = port.map_or(host, |(name, _)| name);
    let with_port = if port.is_some() { host.to_owned() } else { format!("{host}:{}", if has_tls { 443 } else { 80 }) };
    let mut addresses = with_port.to_socket_addrs().map_err(|error| format!("--url: no address for {url}: {error}"))?;
    let address = addresses.next().ok_or_else(|| format!("--url: no address for {url}"))?;
    match (has_tls, authorities) {
        (false, None) => Ok(address.into()),
        (false, Some(_)) => Err("--ca: only an https:// node has a certificate".into()),
        (true, None) => Err(format!("--ca: missing; {url} has a certificate, name the PEM file of its authority")),
        (true, Some(file)) => {
            let name = name.trim_start_matches('[').trim_end_matches(']');
            Target::tls(address, name, Path::new(file)).map_err(|error| format!("--ca: cannot use {file:?}: {}", one_line(&error)))
        }
    }
}

/// The number of a flag; None: it was not given.
fn number<T: FromStr + PartialOrd + std::fmt::Display>(
    typed: &ArgMatches,
    flag: &str,
    range: RangeInclusive<T>,
) -> Result<Option<T>, String> {
    let Some(text) = typed.get_one::<OsString>(flag) else { return Ok(None) };
    let text = text.to_string_lossy();
    let number = text.parse().ok().filter(|number| range.contains(number));
    let (least, most) = (range.start(), range.end());
    number.map(Some).ok_or_else(|| format!("--{flag}: cannot read {text:?}; expected a number from {least} to {most}"))
}

/// What a node said may have lines, and be long.
fn one_line(error: &io::Error) -> String {
    error.to_string().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(500).collect()
}

fn print(text: &str) -> Result<(), String> {
    io::stdout().lock().write_all(text.as_bytes()).map_err(|error| format!("cannot write the results: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Plan, String> {
        let matches = command().try_get_matches_from([&["bench"], arguments].concat()).expect("flags that exist");
        Plan::read(&matches)
    }

    fn refusal(arguments: &[&str]) -> String {
        read(arguments).err().unwrap_or_else(|| panic!("{arguments:?} was taken"))
    }

    #[test]
    fn the_help_names_every_loop() {
        let help = command().render_long_help().to_string();
        for (name, _) in LOOPS {
            assert!(help.contains(name), "{name}");
        }
    }

    #[test]
    fn loops_are_named_by_how_they_begin_and_those_of_rpc_take_a_rate() {
        let names = |arguments: &[&str]| read(arguments).expect("a plan").loops.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&[]).len(), LOOPS.len());
        assert_eq!(names(&["wake", "rpc 1"]), ["rpc 1x1", "wake idle", "wake busy"]);
        assert_eq!(names(&["--rate", "10"]), ["rpc 1x1", "rpc 32x4", "rpc 256x4"]);
        let plan = read(&["rpc 32", "--rate", "10"]).expect("a plan");
        assert!(matches!(plan.loops[..], [("rpc 32x4", Loop::OpenRpc(32, 4, 10))]));
        assert!(refusal(&["wake", "--rate", "10"]).starts_with("--rate: "));
        assert!(refusal(&["rcp"]).contains("\"rcp\""));
    }

    #[test]
    fn a_url_is_a_host_and_a_port() {
        for url in ["http://127.0.0.1:6632", "http://127.0.0.1:6632/", "http://[::1]:6632"] {
            assert_eq!(read(&["--url", url]).expect("a plan").target.address.port(), 6632, "{url}");
        }
        assert_eq!(read(&["--url", "http://127.0.0.1"]).expect("a plan").target.address.port(), 80);
        assert_eq!(read(&["--url", "http://[::1]"]).expect("a plan").target.address.port(), 80);
        for url in ["127.0.0.1:6632", "ftp://127.0.0.1:6632", "http://", "https://", "http://a/b", "http://a\":1", "http://a?b"] {
            assert!(refusal(&["--url", url]).contains("expected http://HOST:PORT"), "{url}");
        }
        assert!(refusal(&["--url", "https://127.0.0.1:6632"]).starts_with("--ca: missing"));
        assert!(refusal(&["--url", "http://127.0.0.1:6632", "--ca", "x"]).starts_with("--ca: only"));
        assert!(refusal(&["--url", "https://127.0.0.1:6632", "--ca", "/nowhere"]).starts_with("--ca: cannot use \"/nowhere\""));
    }

    #[test]
    fn a_number_that_cannot_be_read_is_named() {
        for (flag, text) in [("seconds", "0"), ("seconds", "NaN"), ("seconds", "soon"), ("rounds", "0"), ("rounds", "1.5"), ("rate", "-1")]
        {
            assert!(refusal(&[&format!("--{flag}"), text]).starts_with(&format!("--{flag}: cannot read \"{text}\"; expected ")), "{text}");
        }
    }
}
