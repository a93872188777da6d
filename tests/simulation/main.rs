//! A deterministic simulation of several shards and the mesh between them: clients that do anything, letters that take any time.
//!
//! One seed is one run: `scripts/sim SEED` replays it. Invariants of every shard are checked after each of its steps; what clients were
//! told is checked by `oracle`; at rest, nobody sleeps on a message, nothing is lost and nothing is left.

mod clients;
mod debts;
mod habits;
mod hearing;
mod oracle;
mod random;
mod rest;
mod world;

use clients::Clients;

/// Things that clients do in one run.
const ACTIONS: usize = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64, actions: usize) {
    let outcome = std::panic::catch_unwind(|| Clients::new(seed).run(actions));
    if let Err(panic) = outcome {
        eprintln!("seed {seed} fails; replay it with: scripts/sim {seed}");
        std::panic::resume_unwind(panic);
    }
}

/// `MAYFLY_SIM_SEED` runs that seed alone, `MAYFLY_SIM_SEEDS` so many from 0, `MAYFLY_SIM_ACTIONS` longer ones.
#[test]
fn every_seed_keeps_the_rules() {
    let actions = number("MAYFLY_SIM_ACTIONS").map_or(ACTIONS, |actions| actions as usize);
    if let Some(seed) = number("MAYFLY_SIM_SEED") {
        return run(seed, actions);
    }
    let seeds = number("MAYFLY_SIM_SEEDS").unwrap_or(10_000);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || (thread..seeds).step_by(threads as usize).for_each(|seed| run(seed, actions)));
        }
    });
}
