//! The state up to an entry of the log, in a file: a line that says what it is, a line for each change that makes the state, and a
//! checksum of all that. It is written whole, so it is as it was written or damaged. The same text goes to a peer that is too far behind
//! for entries.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::codec;
use super::electors::Electors;
use super::fault::LogFault;
use super::folder::write_whole;
use super::state::State;

const FORMAT: u32 = 1;

/// Where in the log a snapshot stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The last entry that it holds.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    place: Place,
    /// None: of a node that was always alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    electors: Option<Electors>,
    changes: usize,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Where in the log it stands.
    pub place: Place,
    /// Who voted there; None: a node alone.
    pub electors: Option<Electors>,
    /// What had been agreed on there.
    pub state: State,
}

/// Spells the state at a place of the log.
#[must_use]
pub fn encode(place: Place, electors: Option<&Electors>, state: &State) -> Vec<u8> {
    let changes = state.changes();
    let header = Header { format: FORMAT, place, electors: electors.cloned(), changes: changes.len() };
    let mut text = serde_json::to_vec(&header).unwrap_or_default();
    text.push(b'\n');
    for change in &changes {
        text.extend_from_slice(&codec::encode(change));
        text.push(b'\n');
    }
    let sum = xxh3_64(&text);
    text.extend_from_slice(format!("{sum:016x}\n").as_bytes());
    text
}

/// Writes what [`encode`] spelled.
///
/// # Errors
/// It cannot be written; the one before is still there.
pub fn write(path: &Path, text: &[u8]) -> Result<(), LogFault> {
    write_whole(path, text)
}

/// Reads the file; None: there is none.
///
/// # Errors
/// It cannot be read, or is damaged.
pub fn read(path: &Path) -> Result<Option<Snapshot>, LogFault> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogFault::io(path, error)),
    };
    parse(&text).map(Some).map_err(|cause| LogFault::Damaged { path: path.to_owned(), cause })
}

/// Reads what [`encode`] spelled.
///
/// # Errors
/// Why it cannot be read.
pub fn parse(text: &[u8]) -> Result<Snapshot, String> {
    const SUM_BYTES: usize = 17;
    let (body, sum) = text.split_at_checked(text.len().saturating_sub(SUM_BYTES)).unwrap_or_default();
    if format!("{:016x}\n", xxh3_64(body)).as_bytes() != sum {
        return Err("its checksum does not match".to_owned());
    }
    let mut lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let header: Header = serde_json::from_slice(lines.next().unwrap_or_default()).map_err(|error| error.to_string())?;
    if header.format != FORMAT {
        return Err(format!("format {} is of another version of mayfly", header.format));
    }
    let mut state = State::default();
    let mut count = 0;
    for line in lines {
        state.apply(&codec::decode(line).map_err(|error| error.to_string())?);
        count += 1;
    }
    if count != header.changes {
        return Err(format!("it has {count} of {} changes", header.changes));
    }
    Ok(Snapshot { place: header.place, electors: header.electors, state })
}
