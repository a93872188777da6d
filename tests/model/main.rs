//! The state core against a naive model of the rules.
//!
//! [`rules`] is SPEC.md written down as lists and scans; [`subject`] is the core; [`drive`] asks both the same and compares every
//! answer, every status read and every deadline. [`strategy`] generates runs, [`run`] carries them out, and [`scenarios`] holds the
//! sentences of SPEC.md that deserve a run of their own.
//!
//! `MAYFLY_MODEL_CASES` sets how many runs each property makes, `MAYFLY_MODEL_SEED` which (a number; `random` for new ones each time;
//! the same each time by default, so that a change is judged by what it changed). A failure prints the whole run and where the two part; its seed goes
//! to `regressions.txt` beside this file and is tried first from then on.

mod drive;
mod facts;
mod rules;
mod run;
mod scenarios;
mod strategy;
mod subject;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

/// Runs of each property: ten to fifteen seconds of a dev build.
const CASES: u32 = 4_000;

fn config() -> ProptestConfig {
    let cases = std::env::var("MAYFLY_MODEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    let seeds = Box::new(FileFailurePersistence::Direct(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/regressions.txt")));
    let rng_seed = match std::env::var("MAYFLY_MODEL_SEED").as_deref() {
        Ok("random") => RngSeed::Random,
        Ok(text) => RngSeed::Fixed(text.parse().expect("MAYFLY_MODEL_SEED is a number or `random`")),
        Err(_) => RngSeed::Fixed(1),
    };
    ProptestConfig { cases, rng_seed, max_shrink_iters: 20_000, failure_persistence: Some(seeds), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Every deadline is met to the nanosecond.
    #[test]
    fn the_core_follows_the_rules(run in strategy::run()) {
        run::carry_out(&run, true).map_err(TestCaseError::fail)?;
    }

    /// Everything moves to other nodes now and then, or was to move.
    #[test]
    fn a_move_cannot_be_seen(run in strategy::moving_run()) {
        run::carry_out(&run, true).map_err(TestCaseError::fail)?;
    }

    /// Deadlines are noticed only when something is asked, or late: what is due happens then, in the order of the rules.
    #[test]
    fn the_core_follows_the_rules_when_its_turns_come_late(run in strategy::late_run()) {
        run::carry_out(&run, false).map_err(TestCaseError::fail)?;
    }
}
