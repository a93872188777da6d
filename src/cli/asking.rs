//! Asking a node: where it is, who asks, and what comes back, for every command but `serve` and `bench`.
//!
//! Invariants: what a node refuses is one line with its code; a closed output ends a command quietly; no token is ever printed.

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};
use rustls::crypto::aws_lc_rs;
use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Where a node is unless it is said.
pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:6632";
/// What an answer may take that waits for nothing.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A listing of very many queues, or a pop of ten thousand messages.
const BODY_MAX_BYTES: u64 = 1 << 30;
const TENANT_HEADER: &str = "x-queen-tenant";

/// What the routes below begin with.
pub(super) const EPHEMERAL: &str = "/api/v1/ephemeral";

/// Why a command did not do what was asked, each with its exit code.
#[derive(Debug)]
pub(super) enum Ended {
    /// The node said no, or something else went wrong.
    Failed(String),
    /// There is nothing: no message, no queue, no reply.
    Nothing(String),
    /// The node cannot be reached.
    Unreachable(String),
    /// Whoever reads the output has gone.
    Unheard,
}

impl Ended {
    /// The exit code.
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Unheard => 0,
            Self::Failed(_) => 1,
            Self::Nothing(_) => 3,
            Self::Unreachable(_) => 4,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(line) | Self::Nothing(line) | Self::Unreachable(line) => f.write_str(line),
            Self::Unheard => Ok(()),
        }
    }
}

impl From<String> for Ended {
    fn from(line: String) -> Self {
        Self::Failed(line)
    }
}

/// Of what is written to standard output.
impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Unheard,
            _ => Self::Failed(format!("the output cannot be written: {error}")),
        }
    }
}

/// The flags that say whom to ask and as whom.
pub(super) fn flags() -> [Arg; 6] {
    let text = |name: &'static str, value: &'static str, help: &'static str| Arg::new(name).long(name).value_name(value).help(help);
    [
        text("url", "URL", "A node [default: http://127.0.0.1:6632]").env("MAYFLY_URL"),
        text("token", "TOKEN", "A token. Every user of the host can see flags: prefer the variable, or --token-file")
            .env("MAYFLY_TOKEN")
            .hide_env_values(true),
        text("token-file", "FILE", "File that holds the token"),
        text("tenant", "UUID", "The tenant, of a node that takes it from a header").env("MAYFLY_TENANT"),
        text("ca", "FILE", "PEM file of the authority that the node's certificate is of [default: those of the host]").env("MAYFLY_CA"),
        Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print what the node says, for machines"),
    ]
}

/// A node, as its user sees it.
pub(super) struct Node {
    agent: Agent,
    base: String,
    authorization: Option<String>,
    tenant: Option<String>,
    /// Print JSON.
    pub(super) is_json: bool,
}

/// What a node said.
pub(super) struct Answer {
    /// Of HTTP.
    pub(super) status: u16,
    /// Its body.
    pub(super) text: String,
}

impl Node {
    /// The node that the flags name.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn of(typed: &ArgMatches) -> Result<Self, Ended> {
        let text = |name: &str| typed.try_get_one::<String>(name).ok().flatten().cloned();
        let token = match text("token-file") {
            Some(path) => {
                let read = std::fs::read_to_string(&path).map_err(|error| format!("--token-file {path}: {error}"))?;
                Some(read.trim().to_owned())
            }
            None => text("token"),
        };
        Ok(Self {
            agent: agent(text("ca").as_deref())?,
            base: text("url").unwrap_or_else(|| DEFAULT_URL.to_owned()).trim_end_matches('/').to_owned(),
            authorization: token.map(|token| format!("Bearer {token}")),
            tenant: text("tenant"),
            is_json: typed.get_flag("json"),
        })
    }

    /// A GET that waits for at most `wait` beside the usual.
    pub(super) fn get(&self, path: &str, wait: Duration) -> Result<Answer, Ended> {
        self.read(self.send("GET", path, None, Some(wait))?)
    }

    /// A POST of JSON.
    pub(super) fn post(&self, path: &str, body: &str, wait: Duration) -> Result<Answer, Ended> {
        self.read(self.send("POST", path, Some(body), Some(wait))?)
    }

    /// A DELETE.
    pub(super) fn delete(&self, path: &str) -> Result<Answer, Ended> {
        self.read(self.send("DELETE", path, None, Some(Duration::ZERO))?)
    }

    /// A GET whose answer is read as it comes, for as long as it lasts.
    pub(super) fn stream(&self, path: &str) -> Result<ureq::BodyReader<'static>, Ended> {
        let response = self.send("GET", path, None, None)?;
        if response.status().is_success() {
            return Ok(response.into_body().into_reader());
        }
        let answer = self.read(response)?;
        Err(answer.refused())
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        wait: Option<Duration>,
    ) -> Result<ureq::http::Response<ureq::Body>, Ended> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        if let Some(tenant) = &self.tenant {
            request = request.header(TENANT_HEADER, tenant);
        }
        let cannot = |error: ureq::Error| self.unreachable(&error);
        let request = request.body(body.unwrap_or_default().to_owned()).map_err(|error| format!("--url {}: {error}", self.base))?;
        let agent = &self.agent;
        let request = agent.configure_request(request).timeout_global(wait.map(|wait| ANSWER_MAX + wait)).build();
        agent.run(request).map_err(cannot)
    }

    fn read(&self, response: ureq::http::Response<ureq::Body>) -> Result<Answer, Ended> {
        let status = response.status().as_u16();
        let text = response.into_body().into_with_config().limit(BODY_MAX_BYTES).read_to_string();
        Ok(Answer { status, text: text.map_err(|error| self.unreachable(&error))? })
    }

    fn unreachable(&self, error: &ureq::Error) -> Ended {
        Ended::Unreachable(format!("{} cannot be asked: {error}; see --url", self.base))
    }
}

impl Answer {
    /// The answer, if the node did as it was asked.
    ///
    /// # Errors
    /// What it refused, with its code.
    pub(super) fn expected(self) -> Result<String, Ended> {
        if (200..300).contains(&self.status) { Ok(self.text) } else { Err(self.refused()) }
    }

    /// The line of a refusal. Of what is not there, and of a call that nobody answers, there is nothing.
    pub(super) fn refused(&self) -> Ended {
        let answer: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let (error, code) = (answer["error"].as_str(), answer["code"].as_str());
        let line = match (error, code) {
            (Some(error), Some(code)) => format!("{error} ({code})"),
            _ => format!("what answers there is not a node: status {}", self.status),
        };
        match code {
            Some("ephemeral_queue_not_found" | "no_reply" | "no_consumers") => Ended::Nothing(line),
            _ => Ended::Failed(line),
        }
    }
}

fn agent(authorities: Option<&str>) -> Result<Agent, Ended> {
    let roots = match authorities {
        Some(path) => RootCerts::new_with_certs(&certificates(Path::new(path))?),
        None => RootCerts::PlatformVerifier,
    };
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
        .root_certs(roots)
        .build();
    Ok(Agent::config_builder().tls_config(tls).allow_non_standard_methods(true).http_status_as_error(false).build().into())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, Ended> {
    let cannot = |error: &dyn fmt::Display| format!("--ca {}: {error}", path.display());
    let pem = std::fs::read(path).map_err(|error| cannot(&error))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| cannot(&error))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() { Err(cannot(&"no certificate in it").into()) } else { Ok(certificates) }
}

/// A name as it stands in a path or a query.
pub(super) fn encoded(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A line of output. An answer has no line end of its own.
pub(super) fn say(line: &str) -> Result<(), Ended> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// The columns of a table, as wide as they have to be.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A name as a terminal may show it: what would move its cursor is escaped.
pub(super) fn shown(name: &str) -> String {
    name.chars().flat_map(|c| if c.is_control() { c.escape_unicode().collect::<Vec<_>>() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_line_with_its_code_and_what_is_not_there_is_nothing() {
        let answer = |status, text: &str| Answer { status, text: text.to_owned() };
        let full = answer(429, r#"{"error":"the queue is full","code":"queue_full"}"#).refused();
        assert_eq!((full.to_string().as_str(), full.code()), ("the queue is full (queue_full)", 1));
        assert_eq!(answer(504, r#"{"error":"nobody answered","code":"no_reply"}"#).refused().code(), 3);
        assert_eq!(answer(502, "<html>").refused().to_string(), "what answers there is not a node: status 502");
    }

    #[test]
    fn every_byte_that_means_something_in_a_path_is_encoded() {
        assert_eq!(encoded("a/b?c=d&e%f g+h#ü~"), "a%2Fb%3Fc%3Dd%26e%25f%20g%2Bh%23%C3%BC~");
        assert_eq!(encoded(".."), "..");
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let rows = [["a", "b"], ["long", "c"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "a     b\nlong  c\n");
        assert_eq!(shown("a\u{9b}31mb"), "a\\u{9b}31mb");
    }
}
