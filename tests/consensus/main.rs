//! Groups that agree, on a network that loses, delays, doubles and cuts, of nodes that stop and die: one seed is one schedule.
//!
//! Nodes are the product's own, with their logs in folders that forget no fsync. `MAYFLY_SEED=n` runs one schedule alone,
//! `MAYFLY_SEEDS=n` so many.

mod network;
mod oracle;
#[path = "../simulation/random.rs"]
#[allow(dead_code, reason = "shared by tests that each use a part")]
mod random;
mod storage;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use world::{Plan, World};

/// Schedules of each kind.
const SEEDS: u64 = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs the schedules of a plan, some at a time.
fn run(plan: Plan) {
    let (first, end) = match number("MAYFLY_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (0, number("MAYFLY_SEEDS").unwrap_or(SEEDS)),
    };
    let next = AtomicU64::new(first);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < end) {
                    run_one(plan, seed);
                }
            });
        }
    });
}

fn run_one(plan: Plan, seed: u64) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| World::new(plan, seed).run())) {
        eprintln!("{plan:?}: MAYFLY_SEED={seed} repeats it");
        resume_unwind(panic);
    }
}

#[test]
fn a_node_alone_keeps_what_it_acknowledged() {
    run(Plan { voters: 1, joiners: 0 });
}

#[test]
fn three_nodes_agree() {
    run(Plan { voters: 3, joiners: 0 });
}

#[test]
fn five_nodes_agree() {
    run(Plan { voters: 5, joiners: 0 });
}

#[test]
fn a_node_alone_takes_others_in() {
    run(Plan { voters: 1, joiners: 2 });
}

#[test]
fn three_nodes_take_a_fourth_in_and_let_one_go() {
    run(Plan { voters: 3, joiners: 1 });
}

/// The same seed gives the same schedule: what every node was told, and when.
#[test]
fn a_schedule_repeats() {
    for seed in 0..3 {
        let plan = Plan { voters: 3, joiners: 1 };
        assert_eq!(World::new(plan, seed).run(), World::new(plan, seed).run());
    }
}
