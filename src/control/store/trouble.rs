//! Why the store is out of reach: facts, each with the line that the log has for it.

use std::error::Error as _;
use std::fmt;

use tokio_postgres::error::{Severity, SqlState};

use crate::config::PostgresTarget;

/// See the module.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The control core is gone: the thread ends.
    Ended,
    /// The server did not answer in time.
    Hung(&'static str),
    /// The server ended the connection.
    Lost,
    /// The server, or the way to it, refused.
    Refused(tokio_postgres::Error),
    /// The statement was late: by the server's clock its time had passed.
    Late,
    /// The database cannot hold every name.
    Encoding(String),
    /// The rows are another cluster's.
    Foreign { theirs: u128, ours: Option<u128> },
    /// Another node is making the rows its own at this moment: a later attempt sees whose they are.
    Overtaken,
    /// The control core did not answer a reading in time.
    Unheard,
}

impl Trouble {
    /// Whether the session can go on: the server is there and refused this one write alone, for its rows, their constraints and triggers, its
    /// rights, its time, or because it takes none. Not when the schema is not what it was: a new session makes it.
    pub(super) fn is_of_one_write(&self) -> bool {
        let Self::Refused(error) = self else { return false };
        let Some(of_server) = error.as_db_error().filter(|_| !error.is_closed()) else { return false };
        let lacks_schema = [
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_COLUMN,
            SqlState::UNDEFINED_FUNCTION,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::INVALID_COLUMN_REFERENCE,
        ];
        of_server.parsed_severity() == Some(Severity::Error) && !lacks_schema.contains(of_server.code())
    }

    pub(super) const fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign { .. })
    }

    /// The line, with where.
    pub(super) fn line(&self, target: &PostgresTarget) -> String {
        format!("PostgreSQL at {target}: {self}")
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the node ends"),
            Self::Hung(what) => write!(f, "no answer in time ({what})"),
            Self::Lost => f.write_str("the server ended the connection"),
            Self::Late => f.write_str("a write came to the server too late"),
            Self::Encoding(encoding) => write!(f, "the database is encoded in {encoding}; it has to be UTF8"),
            Self::Foreign { theirs, ours } => {
                let (theirs, ours) = (super::row::uuid_text(*theirs), ours.map_or("of none yet".to_owned(), super::row::uuid_text));
                write!(f, "its schema mayfly belongs to cluster {theirs}, and this node with its declarations is {ours}; ")?;
                f.write_str("give this node a database of its own, or its data folder to the other cluster's node, or, to make the rows ")?;
                f.write_str("this node's, delete the row of mayfly.cluster")
            }
            Self::Overtaken => f.write_str("another node makes the schema at this moment"),
            Self::Unheard => f.write_str("the control core was too busy for its rows"),
            Self::Refused(error) => match error.as_db_error() {
                Some(of_server) => write!(f, "{} (SQLSTATE {})", of_server.message(), of_server.code().code()),
                None => match error.source() {
                    Some(source) => write!(f, "{error}: {source}"),
                    None => error.fmt(f),
                },
            },
        }
    }
}
