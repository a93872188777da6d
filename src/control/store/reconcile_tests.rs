//! Rows and log against each other: a table of single cases, and a property over any order of events.

use proptest::prelude::*;

use super::*;

fn queue(name: &str) -> QueueName {
    QueueName { tenant: Tenant::DEFAULT, name: name.into() }
}

fn options(ttl: u64) -> DeclaredOptions {
    DeclaredOptions { ttl_seconds: Some(ttl), ..DeclaredOptions::default() }
}

fn declaration(ttl: u64, version: Option<u64>, at: u64) -> Declaration {
    Declaration { options_text: format!("{{ \"ttlSeconds\": {ttl} }}").into_bytes().into(), updated_at_ms: at, version }
}

fn declared(ttl: u64, version: Option<u64>, at: u64) -> State {
    let mut state = State::default();
    state.apply(&Change::Declare { queue: queue("q"), declaration: declaration(ttl, version, at) });
    state
}

fn row(ttl: Option<u64>, version: u64, at: u64) -> Rows {
    let row = Row { version, updated_at_ms: at, value: ttl.map(options) };
    Rows { declarations: [(queue("q"), row)].into(), ..Rows::default() }
}

fn plan(state: &State, rows: &Rows, is_first: bool) -> Plan {
    reconcile(&Known::of(state), state, rows, is_first)
}

fn declares(plan: &Plan, ttl: u64, version: u64) -> bool {
    plan.writes.is_empty()
        && matches!(&plan.changes[..], [Change::Declare { declaration, .. }]
            if declaration.version == Some(version) && DeclaredOptions::read(&declaration.options_text) == Ok(options(ttl)))
}

#[test]
fn a_newer_row_wins_and_an_equal_one_is_left() {
    assert!(declares(&plan(&declared(1, Some(3), 10), &row(Some(2), 4, 10), false), 2, 4));
    assert_eq!(plan(&declared(1, Some(3), 10), &row(Some(1), 3, 10), false), Plan::default());
    assert!(declares(&plan(&State::default(), &row(Some(2), 4, 10), false), 2, 4));
}

#[test]
fn a_row_that_means_the_same_keeps_the_clients_spelling() {
    let plan = plan(&declared(1, Some(3), 10), &row(Some(1), 4, 11), false);
    let [Change::Declare { declaration, .. }] = &plan.changes[..] else { panic!("{plan:?}") };
    assert_eq!(&*declaration.options_text, b"{ \"ttlSeconds\": 1 }");
}

#[test]
fn a_vanished_row_undeclares_at_the_version_that_was_known() {
    let state = declared(1, Some(3), 10);
    let undeclare = Change::Undeclare { queue: queue("q"), version: Some(3) };
    assert_eq!(plan(&state, &Rows::default(), false), Plan { changes: vec![undeclare], ..Plan::default() });
}

#[test]
fn what_came_while_rows_were_read_is_left_alone() {
    let known = Known::of(&State::default());
    assert_eq!(reconcile(&known, &declared(1, Some(3), 10), &Rows::default(), false), Plan::default());
    let known = Known::of(&declared(1, Some(3), 10));
    assert_eq!(reconcile(&known, &declared(2, Some(5), 20), &row(Some(1), 3, 10), false), Plan::default());
    let mut deleted = declared(1, Some(3), 10);
    deleted.apply(&Change::Delete { queue: queue("q"), version: Some(6) });
    assert_eq!(reconcile(&known, &deleted, &row(Some(1), 3, 10), false), Plan::default());
}

#[test]
fn rows_of_no_cluster_are_filled_from_the_log() {
    for version in [None, Some(3)] {
        let filled = plan(&declared(1, version, 10), &Rows::default(), true);
        assert_eq!(filled.writes.declarations, [(queue("q"), options(1), None)]);
        assert!(filled.changes.is_empty());
    }
    // Declared while no PostgreSQL was set: it was never a row.
    assert_eq!(plan(&declared(1, None, 10), &Rows::default(), false).writes.declarations, [(queue("q"), options(1), None)]);
}

#[test]
fn without_a_version_the_later_time_wins() {
    assert!(declares(&plan(&declared(1, None, 10), &row(Some(2), 4, 10), false), 2, 4));
    assert_eq!(plan(&declared(1, None, 11), &row(Some(2), 4, 10), false).writes.declarations, [(queue("q"), options(1), Some(4))]);
}

#[test]
fn a_row_out_of_an_older_copy_is_mended_or_renewed_by_its_time() {
    let state = declared(1, Some(9), 10);
    assert_eq!(plan(&state, &row(Some(2), 4, 9), false).writes.declarations, [(queue("q"), options(1), Some(4))]);
    assert_eq!(plan(&state, &row(Some(2), 4, 10), false).writes.renewed_declarations, [(queue("q"), 4)]);
    // Written around the trigger.
    assert_eq!(plan(&state, &row(Some(2), 9, 10), false).writes.renewed_declarations, [(queue("q"), 9)]);
}

#[test]
fn a_row_that_says_nothing_leaves_what_is_declared() {
    for is_first in [false, true] {
        assert_eq!(plan(&declared(1, Some(3), 10), &row(None, 9, 20), is_first), Plan::default());
        assert_eq!(plan(&declared(1, None, 10), &row(None, 9, 20), is_first), Plan::default());
        assert_eq!(plan(&State::default(), &row(None, 9, 20), is_first), Plan::default());
    }
}

#[test]
fn grants_go_by_the_same_rule() {
    let grant =
        |bytes| Grant { is_enabled: true, bytes_max: Some(bytes), queues_max: None, messages_per_second_max: None, parked_max: None };
    let granted = |version| {
        let mut state = State::default();
        state.apply(&Change::Grant { tenant: Tenant(4), grant: Some(grant(1)), version });
        state
    };
    let row = |bytes, version| {
        let row = Row { version, updated_at_ms: 5, value: Some(grant(bytes)) };
        Rows { grants: [(Tenant(4), row)].into(), ..Rows::default() }
    };
    let wins = |bytes, version| vec![Change::Grant { tenant: Tenant(4), grant: Some(grant(bytes)), version: Some(version) }];
    assert_eq!(plan(&State::default(), &row(2, 7), false).changes, wins(2, 7));
    assert_eq!(plan(&granted(Some(3)), &row(2, 7), false).changes, wins(2, 7));
    assert_eq!(plan(&granted(Some(7)), &row(1, 7), false), Plan::default());
    assert_eq!(plan(&granted(Some(9)), &row(2, 7), false).writes.renewed_grants, [(Tenant(4), 7)]);
    let revoked = Change::Grant { tenant: Tenant(4), grant: None, version: Some(3) };
    assert_eq!(plan(&granted(Some(3)), &Rows::default(), false).changes, [revoked]);
    assert_eq!(plan(&granted(None), &Rows::default(), false).writes.grants, [(Tenant(4), grant(1), None)]);
}

/// A store and a log in one thread: what is under way is a list, and anything may come between.
#[derive(Default)]
struct World {
    state: State,
    rows: BTreeMap<QueueName, Row<DeclaredOptions>>,
    sequence: u64,
    /// Written as rows, on the way to the log, oldest first.
    proposed: Vec<Change>,
    /// Known before the reading under way, and what it saw, once it has.
    reading: Option<(Known, Option<Rows>)>,
    is_claimed: bool,
    /// What the last write or edit of a row left: None: no row.
    last: BTreeMap<QueueName, Option<DeclaredOptions>>,
}

#[derive(Clone, Debug)]
enum Step {
    Configure(u8, u64),
    Delete(u8),
    Edit(u8, Option<u64>),
    Insert(u8, u64),
    Vanish(u8),
    Log,
    Mark,
    Read,
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3u8, 0..4u64).prop_map(|(name, ttl)| Step::Configure(name, ttl)),
        (0..3u8).prop_map(Step::Delete),
        (0..3u8, proptest::option::of(0..4u64)).prop_map(|(name, ttl)| Step::Edit(name, ttl)),
        (0..3u8, 0..4u64).prop_map(|(name, ttl)| Step::Insert(name, ttl)),
        (0..3u8).prop_map(Step::Vanish),
        Just(Step::Log),
        Just(Step::Log),
        Just(Step::Mark),
        Just(Step::Read),
        Just(Step::Take),
    ]
}

impl World {
    fn stamp(&mut self, name: &QueueName, value: Option<DeclaredOptions>) -> u64 {
        self.sequence += 1;
        let row = Row { version: self.sequence, updated_at_ms: self.sequence, value };
        self.rows.insert(name.clone(), row);
        self.sequence
    }

    fn go(&mut self, step: Step) {
        let named = |name: u8| queue(&name.to_string());
        match step {
            Step::Configure(name, ttl) => {
                let version = self.stamp(&named(name), Some(options(ttl)));
                let declaration = declaration(ttl, Some(version), version);
                self.proposed.push(Change::Declare { queue: named(name), declaration });
                self.last.insert(named(name), Some(options(ttl)));
            }
            Step::Delete(name) => {
                self.rows.remove(&named(name));
                self.sequence += 1;
                self.proposed.push(Change::Delete { queue: named(name), version: Some(self.sequence) });
                self.last.insert(named(name), None);
            }
            Step::Edit(name, ttl) if self.rows.contains_key(&named(name)) => {
                self.stamp(&named(name), ttl.map(options));
                self.last.insert(named(name), ttl.map(options));
            }
            Step::Insert(name, ttl) if !self.rows.contains_key(&named(name)) => {
                self.stamp(&named(name), Some(options(ttl)));
                self.last.insert(named(name), Some(options(ttl)));
            }
            Step::Edit(..) | Step::Insert(..) => {}
            Step::Vanish(name) => {
                self.rows.remove(&named(name));
                self.last.insert(named(name), None);
            }
            Step::Log if !self.proposed.is_empty() => {
                let change = self.proposed.remove(0);
                self.state.apply(&change);
            }
            Step::Log => {}
            Step::Mark => self.reading = Some((Known::of(&self.state), None)),
            Step::Read => {
                if let Some((_, seen @ None)) = &mut self.reading {
                    *seen = Some(Rows { declarations: self.rows.clone(), ..Rows::default() });
                }
            }
            Step::Take => self.take(),
        }
    }

    /// The control core has the rows: its changes join what is under way, the rows get what they lack.
    fn take(&mut self) {
        let Some((known, Some(rows))) = self.reading.take() else { return };
        let plan = reconcile(&known, &self.state, &rows, !self.is_claimed);
        self.is_claimed = true;
        self.proposed.extend(plan.changes);
        for (name, value, seen) in plan.writes.declarations {
            if self.rows.get(&name).map(|row| row.version) == seen {
                self.stamp(&name, Some(value));
            }
        }
        for (name, seen) in plan.writes.renewed_declarations {
            if let Some(row) = self.rows.get(&name).copied().filter(|row| row.version == seen) {
                self.stamp(&name, row.value);
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..3 {
            for step in [Step::Mark, Step::Read, Step::Take] {
                self.go(step);
            }
            while !self.proposed.is_empty() {
                self.go(Step::Log);
            }
        }
    }

    fn read_again(&mut self) -> Plan {
        let rows = Rows { declarations: self.rows.clone(), ..Rows::default() };
        reconcile(&Known::of(&self.state), &self.state, &rows, false)
    }
}

fn meaning(state: &State) -> BTreeMap<QueueName, DeclaredOptions> {
    let read = |(queue, of): (&QueueName, &Declaration)| (queue.clone(), DeclaredOptions::read(&of.options_text).expect("readable"));
    state.declarations().map(read).collect()
}

proptest! {
    /// Whatever came in whatever order: once it is quiet, log and rows say the same, and that is what was written last.
    #[test]
    fn log_and_rows_agree_when_it_is_quiet(steps in proptest::collection::vec(step(), 0..60)) {
        let mut world = World { is_claimed: true, ..World::default() };
        for step in steps {
            world.go(step);
        }
        while !world.proposed.is_empty() {
            world.go(Step::Log);
        }
        world.settle();
        let held = meaning(&world.state);
        for (name, row) in &world.rows {
            if let Some(value) = row.value {
                prop_assert_eq!(held.get(name), Some(&value), "{:?}", name);
            }
        }
        for name in held.keys() {
            prop_assert!(world.rows.contains_key(name), "{:?} has no row", name);
        }
        for (name, last) in &world.last {
            prop_assert_eq!(world.rows.get(name).and_then(|row| row.value), *last, "{:?}", name);
        }
        prop_assert_eq!(world.read_again(), Plan::default());
    }

    /// No reading undoes a configure or delete that is in the log, unless the row itself was changed since.
    #[test]
    fn a_reading_undoes_nothing_that_only_clients_changed(steps in proptest::collection::vec(step(), 0..60)) {
        let mut world = World { is_claimed: true, ..World::default() };
        let by_clients = |step: &Step| !matches!(step, Step::Edit(..) | Step::Insert(..) | Step::Vanish(_));
        for step in steps.into_iter().filter(by_clients) {
            let before = meaning(&world.state);
            let is_change = matches!(world.proposed.first(), Some(Change::Declare { .. } | Change::Delete { .. }));
            let is_log = matches!(step, Step::Log);
            world.go(step);
            if !is_log || !is_change {
                prop_assert_eq!(meaning(&world.state), before);
            }
        }
        while !world.proposed.is_empty() {
            world.go(Step::Log);
        }
        let held = meaning(&world.state);
        for (name, last) in &world.last {
            prop_assert_eq!(held.get(name), last.as_ref(), "{:?}", name);
        }
    }

    /// Rows that are nobody's take all that the log has, whatever its versions, and lose nothing of their own.
    #[test]
    fn a_first_attachment_loses_nothing(
        log in proptest::collection::btree_map(0..6u8, (0..4u64, proptest::option::of(1..9u64)), 0..6),
        found in proptest::collection::btree_map(0..6u8, 0..4u64, 0..6),
    ) {
        let mut world = World { sequence: 10, ..World::default() };
        for (name, (ttl, version)) in &log {
            world.state.apply(&Change::Declare { queue: queue(&name.to_string()), declaration: declaration(*ttl, *version, 0) });
        }
        for (name, ttl) in &found {
            world.go(Step::Insert(*name, *ttl));
        }
        world.settle();
        let expected: BTreeMap<_, _> = log.iter().map(|(name, (ttl, _))| (name, ttl)).chain(&found)
            .map(|(name, ttl)| (queue(&name.to_string()), options(*ttl))).collect();
        prop_assert_eq!(meaning(&world.state), expected);
        prop_assert_eq!(world.read_again(), Plan::default());
    }
}
