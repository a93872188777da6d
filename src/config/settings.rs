//! What was typed: one table of settings, each with its flag, its environment names, its default and what is expected of it.
//!
//! A setting is taken from its flag, else from `MAYFLY_<FLAG>`, else from the name the published broker gives it, else its default.
//! An empty environment variable counts as unset; an empty flag does not. The last setting in the table to write a field would win, so
//! no two of them write the same one.

mod cluster;
mod jwt;

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::{CoreSettings, PostgresTarget, Rate, peers, postgres, value};
use crate::identity::TokenSettings;
use crate::logging::{Format, Level};
pub use cluster::CLUSTER_SETTINGS;
pub use jwt::JWT_SETTINGS;
use mayfly_shards::SHARDS_MAX;

/// Every setting, read but not yet measured against the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `--listen` / `MAYFLY_LISTEN`.
    pub listen: Option<SocketAddr>,
    /// `QUEEN_BIND_ADDR`; used when `listen` is not given.
    pub bind_address: IpAddr,
    /// `PORT`; used when `listen` is not given.
    pub port: u16,
    /// `--data-dir`.
    pub data_dir: PathBuf,
    /// `--shards`, `--cpus`, `--pin`.
    pub cores: CoreSettings,
    /// `--spin-us`.
    pub spin: Duration,
    /// `--max-body-bytes`.
    pub body_bytes_max: u64,
    /// `--max-connections`; without it as many as the descriptor limit allows.
    pub connections_max: Option<u64>,
    /// `--idle-timeout`; zero: never.
    pub idle_timeout: Duration,
    /// `--header-timeout`.
    pub header_timeout: Duration,
    /// `--max-bytes`.
    pub node_bytes_max: u64,
    /// `--queue-max-bytes`.
    pub queue_bytes_max: u64,
    /// `--queue-max-length`.
    pub queue_length_max: u32,
    /// `--lease-s`.
    pub lease_seconds: u32,
    /// `--retry-limit`.
    pub retry_limit: u32,
    /// `--implicit-idle-s`; zero: never.
    pub implicit_idle: Duration,
    /// `--abandoned-s`; zero: never.
    pub abandoned: Duration,
    /// `--group-idle-s`; zero: never.
    pub group_idle: Duration,
    /// `--rate`: messages a second of one tenant; zero: unlimited.
    pub rate_messages_per_second: u64,
    /// `--burst`; without it twice the rate.
    pub burst_messages: Option<u64>,
    /// `--tenancy-header`.
    pub tenancy_header: bool,
    /// `--jwt-…`.
    pub jwt: TokenSettings,
    /// `--tls-cert`; with `tls_key`, or neither.
    pub tls_cert: Option<PathBuf>,
    /// `--tls-key`.
    pub tls_key: Option<PathBuf>,
    /// `--postgres`, or `PG_HOST` and what belongs to it.
    pub postgres: Option<PostgresTarget>,
    /// `--require-grant`; without it as the tenancy header.
    pub require_grant: Option<bool>,
    /// `--node-id`.
    pub node_id: Option<u64>,
    /// `--peer-listen`; without it the port of this node in `peers`.
    pub peer_listen: Option<SocketAddr>,
    /// `--peers`: ids and addresses, this node's too; empty: a node alone.
    pub peers: Vec<(u64, Box<str>)>,
    /// `--join`.
    pub join: bool,
    /// `--cluster-secret-file`.
    pub cluster_secret_file: Option<PathBuf>,
    /// `--member-ttl-ms`.
    pub member_ttl: Duration,
    /// `--log`.
    pub log_level: Level,
    /// `--log-format`.
    pub log_format: Format,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: None,
            bind_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 6632,
            data_dir: PathBuf::from("./mayfly-data"),
            cores: CoreSettings::default(),
            spin: Duration::from_micros(50),
            body_bytes_max: 64 << 20,
            connections_max: None,
            idle_timeout: Duration::from_secs(75),
            header_timeout: Duration::from_secs(10),
            node_bytes_max: 256 << 20,
            queue_bytes_max: 16 << 20,
            queue_length_max: 10_000,
            lease_seconds: 30,
            retry_limit: 5,
            implicit_idle: Duration::from_secs(300),
            abandoned: Duration::from_secs(3600),
            group_idle: Duration::from_secs(3600),
            rate_messages_per_second: 0,
            burst_messages: None,
            tenancy_header: false,
            jwt: TokenSettings::default(),
            tls_cert: None,
            tls_key: None,
            postgres: None,
            require_grant: None,
            node_id: None,
            peer_listen: None,
            peers: Vec::new(),
            join: false,
            cluster_secret_file: None,
            member_ttl: peers::MEMBER_TTL_DEFAULT,
            log_level: Level::Info,
            log_format: Format::Text,
        }
    }
}

impl Settings {
    /// The address to listen on.
    #[must_use]
    pub fn listen_address(&self) -> SocketAddr {
        self.listen.unwrap_or_else(|| SocketAddr::new(self.bind_address, self.port))
    }

    /// The push rate of each tenant; none when the rate is zero, whatever the burst.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        let messages_per_second = self.rate_messages_per_second;
        let burst_messages = self.burst_messages.unwrap_or(messages_per_second.saturating_mul(2));
        (messages_per_second > 0).then_some(Rate { messages_per_second, burst_messages })
    }

    /// Reads every setting of [`settings`]: `typed` gives the text of a flag on the command line, `environment` that of a variable.
    ///
    /// # Errors
    /// The first setting that cannot be read.
    pub fn read(typed: impl Fn(&str) -> Option<OsString>, environment: impl Fn(&str) -> Option<OsString>) -> Result<Self, Unreadable> {
        let mut settings = Self::default();
        for setting in self::settings() {
            if let Some((name, text)) = setting.text(&typed, &environment) {
                let readable = text.to_str().and_then(|text| (setting.set)(&mut settings, text));
                readable.ok_or_else(|| setting.unreadable(name, &text))?;
            }
        }
        if settings.listen.is_none() {
            settings.read_published_listen(&environment)?;
        }
        if settings.postgres.is_none() {
            settings.read_published_postgres(&environment)?;
        }
        Ok(settings)
    }

    /// `PORT` and `QUEEN_BIND_ADDR`, the published broker's two halves of `--listen`.
    fn read_published_listen(&mut self, environment: impl Fn(&str) -> Option<OsString>) -> Result<(), Unreadable> {
        if let Some(text) = environment("PORT").filter(|text| !text.is_empty()) {
            self.port = text.to_str().and_then(value::port).ok_or_else(|| unreadable("PORT", &text, "a TCP port, 0 to 65535"))?;
        }
        if let Some(text) = environment("QUEEN_BIND_ADDR").filter(|text| !text.is_empty()) {
            let expected = "an IP address such as 127.0.0.1 or ::";
            self.bind_address = text.to_str().and_then(value::ip_address).ok_or_else(|| unreadable("QUEEN_BIND_ADDR", &text, expected))?;
        }
        Ok(())
    }

    /// `PG_HOST`, and with it `PG_PORT`, `PG_USER`, `PG_PASSWORD` and `PG_DATABASE`: the published broker's parts of `--postgres`.
    fn read_published_postgres(&mut self, environment: impl Fn(&str) -> Option<OsString>) -> Result<(), Unreadable> {
        let part = |name: &str, expected| {
            let text = environment(name).filter(|text| !text.is_empty());
            text.map(|text| text.into_string().map_err(|text| unreadable(name, &text, expected))).transpose()
        };
        let Some(host) = part("PG_HOST", "a host's name or address")? else { return Ok(()) };
        let port = part("PG_PORT", "a TCP port, 1 to 65535")?.unwrap_or_else(|| "5432".to_owned());
        let number = value::port(&port).filter(|number| *number > 0);
        let number = number.ok_or_else(|| unreadable("PG_PORT", &port.into(), "a TCP port, 1 to 65535"))?;
        let user = part("PG_USER", "a user's name")?.unwrap_or_else(|| "postgres".to_owned());
        let database = part("PG_DATABASE", "a database's name")?.unwrap_or_else(|| "postgres".to_owned());
        let password = environment("PG_PASSWORD").filter(|text| !text.is_empty()).map(OsString::into_string).transpose();
        let password = password.map_err(|_| unreadable("PG_PASSWORD", &HIDDEN.into(), "a password in UTF-8"))?;
        self.postgres = Some(PostgresTarget::of_parts(&host, number, &user, password.as_deref(), &database));
        Ok(())
    }
}

fn unreadable(name: &str, text: &OsString, expected: &'static str) -> Unreadable {
    Unreadable { name: name.to_owned(), text: text.to_string_lossy().into_owned(), expected }
}

/// A setting whose text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Where it was typed: the flag or the environment variable.
    pub name: String,
    /// What was typed.
    pub text: String,
    /// What can be read there.
    pub expected: &'static str,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug form: quotes and escapes, so that the line stays one line; a long text is cut.
        let shown: String = self.text.chars().take(80).collect();
        write!(f, "{}: cannot read {shown:?}; expected {}", self.name, self.expected)
    }
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The flag's name without its dashes.
    pub flag: &'static str,
    /// The published broker's environment name, read after `MAYFLY_<FLAG>`.
    pub published: Option<&'static str>,
    /// Stands for the value in the help.
    pub value_name: &'static str,
    /// The default as the help shows it.
    pub default: &'static str,
    /// One or two sentences of help.
    pub help: &'static str,
    /// Completes "expected …".
    pub expected: &'static str,
    /// Writes the field, or `None` when the text cannot be read.
    set: fn(&mut Settings, &str) -> Option<()>,
}

impl Setting {
    /// The environment name that every flag has: `--spin-us` is `MAYFLY_SPIN_US`.
    #[must_use]
    pub fn environment_name(&self) -> String {
        format!("MAYFLY_{}", self.flag.to_ascii_uppercase().replace('-', "_"))
    }

    fn unreadable(&self, name: String, text: &OsString) -> Unreadable {
        let text = if SECRETS.contains(&self.flag) { HIDDEN.into() } else { text.to_string_lossy().into_owned() };
        Unreadable { name, text, expected: self.expected }
    }

    /// Where the setting was typed and what, if anywhere.
    fn text(&self, typed: impl Fn(&str) -> Option<OsString>, environment: impl Fn(&str) -> Option<OsString>) -> Option<(String, OsString)> {
        if let Some(text) = typed(self.flag) {
            return Some((format!("--{}", self.flag), text));
        }
        let names = [Some(self.environment_name()), self.published.map(str::to_owned)];
        names.into_iter().flatten().find_map(|name| environment(&name).filter(|text| !text.is_empty()).map(|text| (name, text)))
    }
}

/// Writes a read value into its field.
fn put<T>(field: &mut T, read: Option<T>) -> Option<()> {
    read.map(|value| *field = value)
}

/// What stands for a text that may hold a secret.
const HIDDEN: &str = "(not shown)";
/// Flags of such texts.
const SECRETS: &[&str] = &["postgres", "jwt-secret"];
const SECONDS: &str = "seconds, a fraction allowed (300, 1.5), 0 for never";
const BYTES: &str = "bytes from 1 on, as a number or with a unit (1000000, 64MiB)";

/// Every setting with a flag, in the order of the help.
pub fn settings() -> impl Iterator<Item = &'static Setting> + Clone {
    SETTINGS.iter().chain(CLUSTER_SETTINGS).chain(JWT_SETTINGS)
}

/// Those that are not of a table of their own.
const SETTINGS: &[Setting] = &[
    Setting {
        flag: "listen",
        published: None,
        value_name: "ADDR",
        default: "0.0.0.0:6632",
        help: "Address and port to serve HTTP on; port 0 takes a free one. Without it, QUEEN_BIND_ADDR and PORT are read",
        expected: "an IP address and a port such as 127.0.0.1:6632 or [::]:6632",
        set: |settings, text| put(&mut settings.listen, value::socket_address(text).map(Some)),
    },
    Setting {
        flag: "data-dir",
        published: None,
        value_name: "DIR",
        default: "./mayfly-data",
        help: "Folder for what was declared, made if absent; one node's alone",
        expected: "a path",
        set: |settings, text| put(&mut settings.data_dir, value::path(text)),
    },
    Setting {
        flag: "shards",
        published: None,
        value_name: "N",
        default: "one a CPU, the control core's left out",
        help: "Shards to run, one core each. The default counts the CPUs this process may use (affinity, cgroup quota), less one when there are three or more",
        expected: "a whole number from 1 to 256",
        set: |settings, text| {
            put(&mut settings.cores.shard_count, value::whole(text, 1..=SHARDS_MAX as u64).map(|count| Some(count as usize)))
        },
    },
    Setting {
        flag: "cpus",
        published: None,
        value_name: "LIST",
        default: "all this process may use",
        help: "CPUs the shards run on, one shard each unless --shards says otherwise",
        expected: "CPU numbers and ranges such as 0-3,5",
        set: |settings, text| put(&mut settings.cores.cpus, value::cpu_list(text).map(Some)),
    },
    Setting {
        flag: "pin",
        published: None,
        value_name: "on|off",
        default: "on, off when CPUs are short",
        help: "Bind each shard to a CPU of its own. Off by default when there are more shards than CPUs or a cgroup quota grants fewer CPUs than it shows",
        expected: "on or off",
        set: |settings, text| put(&mut settings.cores.pin, value::switch(text).map(Some)),
    },
    Setting {
        flag: "spin-us",
        published: None,
        value_name: "N",
        default: "50",
        help: "Microseconds a pinned core polls before it sleeps; 0 never polls",
        expected: "whole microseconds from 0 to 1000000",
        set: |settings, text| put(&mut settings.spin, value::whole(text, 0..=1_000_000).map(Duration::from_micros)),
    },
    Setting {
        flag: "max-body-bytes",
        published: Some("QUEEN_MAX_BODY_BYTES"),
        value_name: "BYTES",
        default: "64MiB",
        help: "Most bytes of one request body; a larger one is 413",
        expected: "bytes from 1 to 1GiB, as a number or with a unit (1000000, 64MiB)",
        set: |settings, text| put(&mut settings.body_bytes_max, value::bytes(text, 1..=1 << 30)),
    },
    Setting {
        flag: "max-connections",
        published: Some("QUEEN_MAX_CONNECTIONS"),
        value_name: "N",
        default: "from the open-files limit",
        help: "Most client connections of the node, an equal part for each shard",
        expected: "a whole number from 1 on",
        set: |settings, text| put(&mut settings.connections_max, value::whole(text, 1..=u64::from(u32::MAX)).map(Some)),
    },
    Setting {
        flag: "idle-timeout",
        published: Some("QUEEN_IDLE_TIMEOUT"),
        value_name: "SECONDS",
        default: "75",
        help: "A connection without a request for so long is closed (a parked pop is a request); 0 never",
        expected: SECONDS,
        set: |settings, text| put(&mut settings.idle_timeout, value::seconds(text)),
    },
    Setting {
        flag: "header-timeout",
        published: Some("QUEEN_HEADER_TIMEOUT"),
        value_name: "SECONDS",
        default: "10",
        help: "A request whose head, or whose body's next part, takes longer is cut off",
        expected: "seconds above 0, a fraction allowed (10, 0.5)",
        set: |settings, text| put(&mut settings.header_timeout, value::seconds(text).filter(|span| !span.is_zero())),
    },
    Setting {
        flag: "max-bytes",
        published: Some("QUEEN_EPHEMERAL_MAX_BYTES"),
        value_name: "BYTES",
        default: "256MiB",
        help: "Most bytes the node holds, overheads included; past it a push is 503",
        expected: BYTES,
        set: |settings, text| put(&mut settings.node_bytes_max, value::bytes(text, 1..=1 << 50)),
    },
    Setting {
        flag: "queue-max-bytes",
        published: Some("QUEEN_EPHEMERAL_QUEUE_MAX_BYTES"),
        value_name: "BYTES",
        default: "16MiB",
        help: "maxBytes of a queue that declares none, and the most one can declare",
        expected: BYTES,
        set: |settings, text| put(&mut settings.queue_bytes_max, value::bytes(text, 1..=1 << 50)),
    },
    Setting {
        flag: "queue-max-length",
        published: Some("QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH"),
        value_name: "N",
        default: "10000",
        help: "maxLength of a queue that declares none, and the most one can declare",
        expected: "a whole number of messages from 1 to 4294967295",
        set: |settings, text| put(&mut settings.queue_length_max, value::whole(text, 1..=u64::from(u32::MAX)).map(|count| count as u32)),
    },
    Setting {
        flag: "lease-s",
        published: Some("QUEEN_EPHEMERAL_LEASE_S"),
        value_name: "SECONDS",
        default: "30",
        help: "leaseSeconds of a queue that declares none",
        expected: "whole seconds from 1 to 86400",
        set: |settings, text| put(&mut settings.lease_seconds, value::whole(text, 1..=86_400).map(|count| count as u32)),
    },
    Setting {
        flag: "retry-limit",
        published: Some("QUEEN_EPHEMERAL_RETRY_LIMIT"),
        value_name: "N",
        default: "5",
        help: "retryLimit of a queue that declares none: deliveries before a failing message is dropped",
        expected: "a whole number from 0 to 1000",
        set: |settings, text| put(&mut settings.retry_limit, value::whole(text, 0..=1000).map(|count| count as u32)),
    },
    Setting {
        flag: "implicit-idle-s",
        published: Some("QUEEN_EPHEMERAL_IMPLICIT_IDLE_S"),
        value_name: "SECONDS",
        default: "300",
        help: "An undeclared queue, empty and unused for so long, is collected; 0 never",
        expected: SECONDS,
        set: |settings, text| put(&mut settings.implicit_idle, value::seconds(text)),
    },
    Setting {
        flag: "abandoned-s",
        published: None,
        value_name: "SECONDS",
        default: "3600",
        help: "An undeclared queue unused for so long is collected with the messages it holds; 0 never",
        expected: SECONDS,
        set: |settings, text| put(&mut settings.abandoned, value::seconds(text)),
    },
    Setting {
        flag: "group-idle-s",
        published: None,
        value_name: "SECONDS",
        default: "3600",
        help: "A consumer group unused for so long is forgotten when a push needs the room it holds; 0 never",
        expected: SECONDS,
        set: |settings, text| put(&mut settings.group_idle, value::seconds(text)),
    },
    Setting {
        flag: "rate",
        published: Some("QUEEN_EPHEMERAL_RATE"),
        value_name: "N",
        default: "0",
        help: "Messages a second that one tenant may push; past it a push is 429 rate_limited; 0 is unlimited",
        expected: "a whole number of messages a second, 0 for unlimited",
        set: |settings, text| put(&mut settings.rate_messages_per_second, value::whole(text, 0..=1 << 40)),
    },
    Setting {
        flag: "burst",
        published: Some("QUEEN_EPHEMERAL_BURST"),
        value_name: "N",
        default: "2 x rate",
        help: "Messages that one tenant may push at once; means nothing without a rate",
        expected: "a whole number of messages from 1 on",
        set: |settings, text| put(&mut settings.burst_messages, value::whole(text, 1..=1 << 40).map(Some)),
    },
    Setting {
        flag: "tenancy-header",
        published: Some("QUEEN_TENANCY_HEADER"),
        value_name: "on|off",
        default: "off",
        help: "Take each request's tenant from its x-queen-tenant header, which must be a UUID; off, all are the default tenant's",
        expected: "on or off",
        set: |settings, text| put(&mut settings.tenancy_header, value::switch(text)),
    },
    Setting {
        flag: "require-grant",
        published: Some("QUEEN_EPHEMERAL_REQUIRE_GRANT"),
        value_name: "on|off",
        default: "as --tenancy-header",
        help: "Refuse tenants that were not granted the use of ephemeral queues: 403 feature_gated",
        expected: "on or off",
        set: |settings, text| put(&mut settings.require_grant, value::switch(text).map(Some)),
    },
    Setting {
        flag: "tls-cert",
        published: None,
        value_name: "FILE",
        default: "plain HTTP",
        help: "Serve TLS only, with this PEM file: the node's certificate, then those that lead to its authority; read again at SIGHUP",
        expected: "the path of a PEM file",
        set: |settings, text| put(&mut settings.tls_cert, value::path(text).map(Some)),
    },
    Setting {
        flag: "tls-key",
        published: None,
        value_name: "FILE",
        default: "plain HTTP",
        help: "The key of --tls-cert, a PEM file that is not encrypted",
        expected: "the path of a PEM file",
        set: |settings, text| put(&mut settings.tls_key, value::path(text).map(Some)),
    },
    Setting {
        flag: "postgres",
        published: None,
        value_name: "URL",
        default: "none: the node's own log",
        help: "PostgreSQL server that keeps declarations and grants as rows. Without it, PG_HOST, PG_PORT, PG_USER, PG_PASSWORD and PG_DATABASE are read",
        expected: postgres::EXPECTED,
        set: |settings, text| put(&mut settings.postgres, PostgresTarget::read(text).map(Some)),
    },
    Setting {
        flag: "log",
        published: None,
        value_name: "LEVEL",
        default: "info",
        help: "Least level that is logged, to standard error",
        expected: "error, warn, info, debug, trace or off",
        set: |settings, text| put(&mut settings.log_level, value::log_level(text)),
    },
    Setting {
        flag: "log-format",
        published: None,
        value_name: "FORMAT",
        default: "text",
        help: "One line of text or one JSON object an entry",
        expected: "text or json",
        set: |settings, text| put(&mut settings.log_format, value::log_format(text)),
    },
];

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
