//! The control core's side of a reading: marks what is known, plans by what the rows say, remembers which rows were complained of.
//!
//! Pure: time comes in, and what is to be proposed, asked and said comes out.

use std::collections::BTreeSet;
use std::time::Duration;

use super::reconcile::{Known, reconcile};
use super::row::{Misfit, Rows};
use super::{About, Ask};
use crate::control::change::Change;
use crate::control::state::State;

/// How long a deletion is remembered beyond the reading that no longer saw its row: proposals on their way are far younger.
const SETTLE_AFTER: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Default)]
pub struct Keeper {
    /// What was known when the reading of this number began.
    marked: Option<(u64, Known)>,
    /// When a deletion of this version was known and no reading was under way.
    unsettled: Option<(Duration, u64)>,
    complained_of: BTreeSet<Misfit>,
}

/// What follows from rows.
#[derive(Debug)]
pub struct Reading {
    /// To be in the log before the store is asked.
    pub changes: Vec<Change>,
    /// What the store is to be asked then.
    pub then: Ask,
    /// Rows that say nothing, and were not complained of.
    pub misfits: Vec<Misfit>,
}

impl Keeper {
    /// Rows are about to be read: what the store is to be told.
    pub fn mark(&mut self, round: u64, state: &State, now: Duration) -> Ask {
        self.marked = Some((round, Known::of(state)));
        if self.unsettled.is_none() {
            self.unsettled = state.deletion_max().map(|version| (now, version));
        }
        let is_blank = state.declarations().next().is_none() && state.grants().next().is_none();
        Ask::Known { round, about: About { cluster: state.cluster(), is_blank, version_max: state.version_max() } }
    }

    /// Rows were read. None: not those of the last mark.
    pub fn rows(&mut self, round: u64, cluster: u128, is_first: bool, rows: &Rows, state: &State, now: Duration) -> Option<Reading> {
        let (_, known) = self.marked.take_if(|(marked, _)| *marked == round)?;
        let plan = reconcile(&known, state, rows, is_first);
        let is_new = state.cluster() != Some(cluster);
        let changes = is_new.then_some(Change::Cluster { id: cluster }).into_iter().chain(plan.changes).chain(self.settled(now)).collect();
        Some(Reading { changes, then: Ask::Fill { round, writes: plan.writes }, misfits: self.complaints(rows) })
    }

    fn settled(&mut self, now: Duration) -> Option<Change> {
        let (_, version) = self.unsettled.take_if(|(at, _)| now.saturating_sub(*at) >= SETTLE_AFTER)?;
        Some(Change::Settle { version })
    }

    /// Each once, until it is edited or gone.
    fn complaints(&mut self, rows: &Rows) -> Vec<Misfit> {
        let now: BTreeSet<Misfit> = rows.misfits.iter().cloned().collect();
        let new = now.difference(&self.complained_of).cloned().collect();
        self.complained_of = now;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::change::Declaration;
    use mayfly_shards::{QueueName, Tenant};

    fn queue(name: &str) -> QueueName {
        QueueName { tenant: Tenant::DEFAULT, name: name.into() }
    }

    fn changes(keeper: &mut Keeper, state: &State, secs: u64) -> Vec<Change> {
        let now = Duration::from_secs(secs);
        let _ = keeper.mark(secs, state, now);
        keeper.rows(secs, 7, false, &Rows::default(), state, now).expect("of this mark").changes
    }

    #[test]
    fn a_deletion_is_settled_by_a_reading_that_began_long_after_it() {
        let mut state = State::default();
        for change in [Change::Cluster { id: 7 }, Change::Delete { queue: queue("a"), version: Some(5) }] {
            state.apply(&change);
        }
        let mut keeper = Keeper::default();
        assert_eq!(changes(&mut keeper, &state, 0), []);
        state.apply(&Change::Delete { queue: queue("b"), version: Some(9) });
        assert_eq!(changes(&mut keeper, &state, 29), []);
        assert_eq!(changes(&mut keeper, &state, 30), [Change::Settle { version: 5 }]);
        state.apply(&Change::Settle { version: 5 });
        assert_eq!(changes(&mut keeper, &state, 60), []);
        assert_eq!(changes(&mut keeper, &state, 90), [Change::Settle { version: 9 }]);
    }

    #[test]
    fn rows_of_another_reading_are_nothing() {
        let (mut keeper, state) = (Keeper::default(), State::default());
        let _ = keeper.mark(1, &state, Duration::ZERO);
        let _ = keeper.mark(2, &state, Duration::ZERO);
        assert!(keeper.rows(1, 7, false, &Rows::default(), &state, Duration::ZERO).is_none());
        let reading = keeper.rows(2, 7, true, &Rows::default(), &state, Duration::ZERO).expect("the last");
        assert_eq!(reading.changes, [Change::Cluster { id: 7 }]);
        assert!(keeper.rows(2, 7, false, &Rows::default(), &state, Duration::ZERO).is_none());
    }

    #[test]
    fn a_bad_row_is_complained_of_once_until_it_is_edited() {
        let (mut keeper, state) = (Keeper::default(), State::default());
        let mut complaints = |version: Option<u64>| {
            let misfits = version.map(|version| Misfit { row: "r".into(), version, reason: "x".into() }).into_iter().collect();
            let _ = keeper.mark(0, &state, Duration::ZERO);
            let rows = Rows { misfits, ..Rows::default() };
            keeper.rows(0, 7, false, &rows, &state, Duration::ZERO).expect("of this mark").misfits.len()
        };
        assert_eq!([Some(1), Some(1), Some(2), None, Some(2)].map(&mut complaints), [1, 0, 1, 0, 1]);
    }

    #[test]
    fn what_the_store_is_told_before_it_reads() {
        let (mut keeper, mut state) = (Keeper::default(), State::default());
        let about = |ask| if let Ask::Known { about, .. } = ask { about } else { panic!("{ask:?}") };
        assert_eq!(about(keeper.mark(1, &state, Duration::ZERO)), About { cluster: None, is_blank: true, version_max: 0 });
        let declaration = Declaration { options_text: (*b"{}").into(), updated_at_ms: 1, version: Some(4) };
        for change in [Change::Cluster { id: 7 }, Change::Declare { queue: queue("a"), declaration }] {
            state.apply(&change);
        }
        assert_eq!(about(keeper.mark(2, &state, Duration::ZERO)), About { cluster: Some(7), is_blank: false, version_max: 4 });
    }
}
