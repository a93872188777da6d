//! The comparison from raw runs: `peers_report PREFIX TITLE JSONL…` writes PREFIX.md and PREFIX.svg, and prints the goals.

use std::io;

use mayfly_bench::plot::svg;
use mayfly_bench::verdict::Runs;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [prefix, title, files @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: peers_report PREFIX TITLE JSONL…"));
    };
    let lines = files.iter().map(std::fs::read_to_string).collect::<io::Result<String>>()?;
    let (pinned, unpinned) = (Runs::read(&lines, true), Runs::read(&lines, false));
    let raw: Vec<&str> = files.iter().map(|file| file.rsplit('/').next().unwrap_or(file)).collect();
    let mut text = format!("# {title}\n\nRaw runs: {}. {ABOUT}\n", raw.join(", "));
    if let Some(tables) = pinned.tables() {
        let goals = pinned.goals();
        print!("{goals}");
        text.push_str(&format!("\n## Goals, pinned\n\n{goals}\n## Pinned: server on CPU 0, load on CPU 1\n\n{tables}"));
    }
    if let Some(tables) = unpinned.tables() {
        text.push_str(&format!("\n## Unpinned: server and load share the CPUs\n\n{tables}"));
    }
    std::fs::write(format!("{prefix}.md"), text)?;
    match svg(&pinned, title) {
        Some(plot) => std::fs::write(format!("{prefix}.svg"), plot),
        None => Ok(()),
    }
}

const ABOUT: &str = "Every payload has 64 bytes (1024 where a shape says so) beside what its protocol needs to address it.\n\
    mayfly is plain push and pop with both in one write; mayfly-call is `call` and `reply` with `next`, autoAck; mayfly-call-leased the\n\
    same with a lease that the reply acks: each has a connection a caller, as nats has. mayfly-shared and nats-shared have one for all\n\
    callers, as the tasks of one process have it; mayfly-shared is plain push and pop, requests of a turn in one push, replies by the\n\
    batch. Goals compare what has a connection a caller with peers that have one, the best peer of RPC 256×4 too, and mayfly-shared with\n\
    nats-shared; bounds were set before anything was measured, these pairs after: the tables show mayfly-call beside nats-shared, too.\n\
    relay and echo are raw limits, no brokers. An operation is a call, or a message delivered (and acked, where leased); in a\n\
    fan-out each of the 8 deliveries counts. A ratio is the median over rounds of two figures of the same round. Where the load CPU is\n\
    near 100 %, the load is what limits; where a server of one thread waited for its CPU, other work disturbed it.";
