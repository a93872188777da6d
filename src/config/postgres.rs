//! Where the rows of declarations and grants are: a PostgreSQL server, as a URL or in the published broker's five variables.
//!
//! The password is in no text that this module gives out: neither what cannot be read nor how a server is shown has it.

use std::fmt;
use std::str::FromStr as _;

use tokio_postgres::config::{Host, SslMode};

/// A PostgreSQL server, its database, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresTarget(tokio_postgres::Config);

pub(super) const EXPECTED: &str =
    "a URL such as postgres://user:password@host:5432/database, with sslmode=disable or prefer (TLS to PostgreSQL is not spoken)";

impl PostgresTarget {
    /// Reads a URL or a list of `key=value`; None: it is neither, names no host, or asks for TLS, which is not spoken.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let config = tokio_postgres::Config::from_str(text).ok()?;
        // `prefer` goes without where TLS is not to be had.
        let is_plain = matches!(config.get_ssl_mode(), SslMode::Disable | SslMode::Prefer);
        (is_plain && !config.get_hosts().is_empty()).then_some(Self(with_user(config)))
    }

    /// Of `PG_HOST` and what else was set beside it, with the published broker's defaults.
    pub(super) fn of_parts(host: &str, port: u16, user: &str, password: Option<&str>, database: &str) -> Self {
        let mut config = tokio_postgres::Config::new();
        config.host(host).port(port).user(user).dbname(database);
        if let Some(password) = password {
            config.password(password);
        }
        Self(config)
    }

    /// For the client.
    #[must_use]
    pub const fn config(&self) -> &tokio_postgres::Config {
        &self.0
    }
}

/// Without one the client would go by the user of the process, which a node in a container has not.
fn with_user(mut config: tokio_postgres::Config) -> tokio_postgres::Config {
    if config.get_user().is_none() {
        config.user("postgres");
    }
    config
}

/// `host:port/database`, nothing else.
impl fmt::Display for PostgresTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.0.get_ports();
        for (index, host) in self.0.get_hosts().iter().enumerate() {
            let port = ports.get(index).or_else(|| ports.first()).unwrap_or(&5432);
            f.write_str(if index > 0 { "," } else { "" })?;
            match host {
                Host::Tcp(name) => write!(f, "{name}:{port}")?,
                Host::Unix(folder) => write!(f, "{}:{port}", folder.display())?,
            }
        }
        write!(f, "/{}", self.0.get_dbname().or_else(|| self.0.get_user()).unwrap_or("postgres"))
    }
}

impl fmt::Debug for PostgresTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresTarget({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_shown_without_user_and_password() {
        let table = [
            ("postgres://u:secret@db.example:5433/queues", "db.example:5433/queues"),
            ("postgresql://u:secret@db", "db:5432/u"),
            ("postgres://u:secret@a:1,b:2/q?sslmode=disable", "a:1,b:2/q"),
            ("host=db user=u password=secret dbname=q", "db:5432/q"),
            ("postgres://%2Frun%2Fpostgresql/q?sslmode=prefer", "/run/postgresql:5432/q"),
        ];
        for (text, shown) in table {
            let target = PostgresTarget::read(text).unwrap_or_else(|| panic!("{text} is readable"));
            assert_eq!(target.to_string(), shown);
            assert!(!format!("{target:?}").contains("secret"));
        }
        assert_eq!(PostgresTarget::read("postgres://h").and_then(|target| target.0.get_user().map(str::to_owned)), Some("postgres".into()));
    }

    #[test]
    fn what_is_no_url_or_wants_tls_is_refused() {
        for text in ["", "db.example", "http://db/q", "postgres://", "postgres://h:port/q", "postgres://h/q?sslmode=require", "user=u"] {
            assert_eq!(PostgresTarget::read(text), None, "{text}");
        }
    }
}
