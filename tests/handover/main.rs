//! A deterministic simulation of nodes that hand partitions over: tables of members that change, come late and are skipped, links that
//! break with what is on them, nodes that leave, die, freeze and come back, while clients push and pop through any node.
//!
//! One seed is one run: `scripts/sim handover SEED` replays it. Invariants of every shard are checked after each of its steps. At rest
//! every core is done with the newest table and waits for nothing, nobody sleeps where nothing will come, and the ledger says of every
//! message that was acknowledged that it was delivered, or that its node died or was taken for dead with it.

mod ledger;
mod node;
#[path = "../simulation/random.rs"]
mod random;
mod world;

use world::World;

/// Things that happen in one run.
const ACTIONS: usize = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64, actions: usize) {
    let outcome = std::panic::catch_unwind(|| World::new(seed).run(actions));
    if let Err(panic) = outcome {
        eprintln!("seed {seed} fails; replay it with: scripts/sim handover {seed}");
        std::panic::resume_unwind(panic);
    }
}

/// `MAYFLY_SIM_SEED` runs that seed alone, `MAYFLY_SIM_SEEDS` so many from 0, `MAYFLY_SIM_ACTIONS` longer ones.
#[test]
fn whatever_happens_to_nodes_and_links_nothing_is_lost_but_with_its_node() {
    let actions = number("MAYFLY_SIM_ACTIONS").map_or(ACTIONS, |actions| actions as usize);
    if let Some(seed) = number("MAYFLY_SIM_SEED") {
        return run(seed, actions);
    }
    let seeds = number("MAYFLY_SIM_SEEDS").unwrap_or(2_000);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || (thread..seeds).step_by(threads as usize).for_each(|seed| run(seed, actions)));
        }
    });
}
