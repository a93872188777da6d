//! Measures peers side by side: `peers_load PROGRAMS SCRATCH ROUNDS SECONDS OUTPUT PINNED ONLY [SHAPE…]`.
//!
//! In each of ROUNDS rounds, every shape (or those whose name begins as one of SHAPE…) runs against every peer in turn whose name begins as
//! one of ONLY (comma-separated; `all`) and whose program is in the folder PROGRAMS; a JSON line a run is appended to OUTPUT. PINNED: `yes`
//! puts servers on CPU 0 and the load on CPU 1. What cannot be measured is said in one line each, and not tried again.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use mayfly_bench::field::{SHAPES, Setup, Shape};
use mayfly_bench::peer::{PEERS, Peer};
use mayfly_generator::report::Row;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [programs, scratch, rounds, seconds, output, pinned, only, chosen @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: peers_load PROGRAMS SCRATCH ROUNDS SECONDS OUTPUT PINNED ONLY [SHAPE…]"));
    };
    let is_pinned = pinned == "yes";
    let setup = Setup {
        programs: PathBuf::from(programs).canonicalize()?,
        scratch: PathBuf::from(scratch).canonicalize()?,
        server_cpu: is_pinned.then_some(0),
        span: Duration::from_secs_f64(number(seconds)?),
    };
    if is_pinned {
        let mut set = CpuSet::new();
        set.set(1).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))?;
    }
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|beginning| name.starts_with(beginning.as_str()));
    let is_meant = |peer: &&Peer| only == "all" || only.split(',').any(|beginning| peer.name.starts_with(beginning));
    let (there, missing): (Vec<&Peer>, Vec<&Peer>) = PEERS.iter().filter(is_meant).partition(|peer| peer.is_installed(&setup.programs));
    for peer in missing {
        eprintln!("skipped: {peer:?}: no program {} in {programs}", peer.program);
    }
    let mut output = OpenOptions::new().create(true).append(true).open(output)?;
    let mut skipped: HashSet<(&str, &str)> = HashSet::new();
    for round in 1..=number(rounds)? {
        for (name, shape) in SHAPES.into_iter().filter(|(name, _)| is_chosen(name)) {
            for peer in &there {
                if skipped.contains(&(name, peer.name)) {
                    continue;
                }
                let Some(row) = measure(&setup, name, shape, peer)? else {
                    skipped.insert((name, peer.name));
                    continue;
                };
                let context = context(round, is_pinned, setup.span, peer)?;
                writeln!(output, "{}", row.json(&context))?;
            }
            eprintln!("round {round}: {name}");
        }
    }
    Ok(())
}

/// None: not to be had from this peer. A run that failed is said, and the others go on.
fn measure(setup: &Setup, name: &'static str, shape: Shape, peer: &Peer) -> io::Result<Option<Row>> {
    match shape.measure(setup, peer) {
        Ok(Some(figures)) => return Ok(Some(Row { shape: name, parameters: peer.name.into(), figures })),
        Ok(None) => eprintln!("skipped: {name}: {} has nothing of the kind", peer.name),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => eprintln!("skipped: {name}: {}: {error}", peer.name),
        Err(error) => eprintln!("FAILED: {name}: {}: {error}", peer.name),
    }
    Ok(None)
}

/// The inside of a line's JSON object. MACHINE and DATE come from the environment, as the script knows them.
fn context(round: u32, is_pinned: bool, span: Duration, peer: &Peer) -> io::Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or("0");
    let variable = |name: &str| std::env::var(name).unwrap_or_default().replace(['"', '\\'], "");
    let version = variable(&format!("VERSION_{}", peer.program.replace('-', "_").to_uppercase()));
    let (date, machine, seconds) = (variable("DATE"), variable("MACHINE"), span.as_secs_f64());
    Ok(format!(
        "\"date\":\"{date}\",\"machine\":\"{machine}\",\"version\":\"{version}\",\"pinned\":{is_pinned},\
         \"seconds\":{seconds},\"round\":{round},\"loadavg\":{load}"
    ))
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| io::Error::other(format!("not a number: {text}")))
}
