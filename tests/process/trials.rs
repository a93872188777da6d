//! Measurements on a machine that others use too.

/// How often a measurement is taken at most.
const TRIES: usize = 4;

/// Takes a measurement until one holds: a fault of the node is in each of them, what others do with the machine is not. One that does not
/// hold says by how much.
#[track_caller]
pub fn holds_once(mut measure: impl FnMut() -> Result<(), String>) {
    let mut misses = Vec::new();
    while misses.len() < TRIES {
        match measure() {
            Ok(()) => return,
            Err(miss) => {
                println!("not this time: {miss}");
                misses.push(miss);
            }
        }
    }
    panic!("in none of {TRIES} measurements: {misses:#?}");
}
