//! Measures a node of one shard: `broker_load PROGRAM SERVER_CPU LOAD_CPU ROUNDS SECONDS CONTEXT OUTPUT [SHAPE…]`.
//!
//! Runs every shape (or those whose name begins as one of SHAPE…) in ROUNDS rounds, appends a JSON line a run to OUTPUT, and prints the
//! table of medians. CONTEXT is the inside of a JSON object that every line carries.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use mayfly_bench::shapes::{SHAPES, Setup};
use mayfly_generator::report::table;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, server_cpu, load_cpu, rounds, seconds, context, output, chosen @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: broker_load PROGRAM SERVER_CPU LOAD_CPU ROUNDS SECONDS CONTEXT OUTPUT [SHAPE…]"));
    };
    let setup = Setup { program: PathBuf::from(program), server_cpu: number(server_cpu)?, span: Duration::from_secs_f64(number(seconds)?) };
    let mut set = CpuSet::new();
    set.set(number(load_cpu)?).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))?;
    let mut output = OpenOptions::new().create(true).append(true).open(output)?;
    let mut rows = Vec::new();
    for round in 1..=number(rounds)? {
        for (name, run) in SHAPES {
            if !chosen.is_empty() && !chosen.iter().any(|beginning| name.starts_with(beginning)) {
                continue;
            }
            let row = run(&setup).map_err(|error| io::Error::other(format!("{name}: {error}")))?;
            let load = std::fs::read_to_string("/proc/loadavg")?;
            let load = load.split(' ').next().unwrap_or("0");
            writeln!(output, "{}", row.json(&format!("{context},\"round\":{round},\"loadavg\":{load}")))?;
            eprintln!("round {round}: {name}");
            rows.push(row);
        }
    }
    print!("{}", table(&rows));
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| io::Error::other(format!("not a number: {text}")))
}
