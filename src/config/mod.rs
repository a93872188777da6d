//! What a node runs with, in two stages: what was typed ([`settings`]: flags, then environment, then defaults) and what it means on this
//! host ([`Config::resolve`]: cores from affinity and quota, connections from the descriptor limit).
//!
//! Both stages are pure: the environment comes as a function and the host as [`HostFacts`]. A setting that cannot be read or met stops
//! the start with one line that names it.

pub mod cores;
pub mod peers;
pub mod postgres;
pub mod settings;
mod value;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mayfly_net::tls::Files;
use mayfly_shards::{Allowance, Options, Policy, Span, WindowBuffer};

use crate::control::NodeId;
use crate::identity;
use crate::logging::{Format, Level};
pub use cores::{CoreSettings, Cores, CoresRefused};
pub use peers::{PeersConfig, PeersRefused};
pub use postgres::PostgresTarget;
pub use settings::{Settings, Unreadable};

/// Descriptors kept back for the process itself: log, rings, eventfds, listeners and a margin for each shard.
const DESCRIPTORS_KEPT: u64 = 64;
/// Descriptors one shard uses beside its connections: executor rings, own ring, eventfd, listener.
const DESCRIPTORS_PER_SHARD: u64 = 16;
/// Most connections of a node when nothing was typed, whatever the descriptor limit.
const CONNECTIONS_DEFAULT_MAX: u64 = 1 << 20;

/// What this host allows, as probed at start.
#[derive(Clone, Debug, PartialEq)]
pub struct HostFacts {
    /// CPUs this process may use (`sched_getaffinity`), sorted, not empty.
    pub affinity: Vec<usize>,
    /// CPUs that the cgroup's quota grants (`cpu.max`), when there is one.
    pub quota_cpus: Option<f64>,
    /// Most open descriptors, after the soft limit was raised to the hard one.
    pub descriptors_max: u64,
}

/// A tenant's push rate: a bucket of `burst_messages` that fills at `messages_per_second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Messages a second, at least 1.
    pub messages_per_second: u64,
    /// Messages that may come at once, at least 1.
    pub burst_messages: u64,
}

/// Everything a node runs with.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where clients connect; port 0 lets the system choose one.
    pub listen: SocketAddr,
    /// Where the log of declarations lies.
    pub data_dir: PathBuf,
    /// Shards and their CPUs.
    pub cores: Cores,
    /// How long a core polls before it sleeps; zero when polling cannot pay (shards not pinned one a CPU).
    pub spin: Duration,
    /// Connection limits and deadlines.
    pub http: HttpConfig,
    /// The certificate and its key; `None`: plain HTTP.
    pub tls: Option<Files>,
    /// Options in force of a queue that nobody declared; `max_bytes` and `max_length` are also the most a declaration can ask for.
    pub queue_defaults: Options,
    /// Most bytes this node holds: payloads plus the fixed overheads of `mayfly_shards::limits`.
    pub node_bytes_max: u64,
    /// Idle time after which an empty implicit queue is collected; `None`: never.
    pub implicit_idle: Option<Span>,
    /// Idle time after which an implicit queue is collected with what it holds; `None`: never.
    pub abandoned: Option<Span>,
    /// Idle time after which a group may be forgotten to make room; `None`: never.
    pub group_idle: Option<Span>,
    /// The rate of each tenant's pushes; `None`: unlimited.
    pub rate: Option<Rate>,
    /// Whether a tenant without a grant is refused.
    pub requires_grant: bool,
    /// What a request's tenant is taken from.
    pub identity: identity::Source,
    /// Where declarations and grants are rows; `None`: in the node's own log alone.
    pub postgres: Option<PostgresTarget>,
    /// Which node this is.
    pub node: NodeId,
    /// Its cluster; `None`: a node alone.
    pub peers: Option<PeersConfig>,
    /// How long a node of the cluster may be silent.
    pub member_ttl: Duration,
    /// The least level that is logged.
    pub log_level: Level,
    /// The shape of a log line.
    pub log_format: Format,
}

/// Limits and deadlines of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Most bytes of one request body.
    pub body_bytes_max: u64,
    /// Most connections of the node, over all shards.
    pub connections_max: u64,
    /// How long a connection may stay without a request; `None`: for ever. A parked pop is a request.
    pub idle_timeout: Option<Duration>,
    /// How long a request's head, and each further step of its body, may take.
    pub header_timeout: Duration,
}

/// Why well-typed settings cannot be met on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// Cores: see [`CoresRefused`].
    Cores(CoresRefused),
    /// Tokens cannot be checked as the settings ask for.
    Identity(identity::Contradiction),
    /// One of `--tls-cert` and `--tls-key` was given, this one not.
    TlsHalf(&'static str),
    /// The settings of a cluster do not go together.
    Peers(PeersRefused),
    /// `--max-connections`, or the least that makes sense, needs more descriptors than the process may open.
    Descriptors {
        /// Descriptors needed.
        needed: u64,
        /// Descriptors allowed.
        allowed: u64,
    },
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores(refused) => refused.fmt(f),
            Self::Identity(contradiction) => contradiction.fmt(f),
            Self::Peers(refused) => refused.fmt(f),
            Self::TlsHalf(missing) => {
                write!(f, "{missing} is missing: TLS needs --tls-cert and --tls-key; give both, or neither for plain HTTP")
            }
            Self::Descriptors { needed, allowed } => {
                write!(
                    f,
                    "{needed} open files are needed and {allowed} are allowed; raise the limit (`ulimit -n {needed}`) or lower --max-connections"
                )
            }
        }
    }
}

impl Config {
    /// What the settings mean on this host.
    ///
    /// # Errors
    /// [`Unmet`] when the host cannot give what was asked for.
    pub fn resolve(settings: &Settings, host: &HostFacts) -> Result<Self, Unmet> {
        let cores = cores::plan(&settings.cores, &host.affinity, host.quota_cpus).map_err(Unmet::Cores)?;
        let connections_max = connections_max(settings.connections_max, cores.shard_count as u64, host.descriptors_max)?;
        let spin = if cores.may_spin() { settings.spin } else { Duration::ZERO };
        Ok(Self {
            listen: settings.listen_address(),
            data_dir: settings.data_dir.clone(),
            cores,
            spin,
            http: HttpConfig {
                body_bytes_max: settings.body_bytes_max,
                connections_max,
                idle_timeout: some_unless_zero(settings.idle_timeout),
                header_timeout: settings.header_timeout,
            },
            tls: tls_files(settings)?,
            queue_defaults: Options {
                max_bytes: settings.queue_bytes_max,
                max_length: settings.queue_length_max,
                policy: Policy::Reject,
                ttl_seconds: 0,
                lease_seconds: settings.lease_seconds,
                retry_limit: settings.retry_limit,
                window: WindowBuffer::default(),
            },
            node_bytes_max: settings.node_bytes_max,
            implicit_idle: span_unless_zero(settings.implicit_idle),
            abandoned: span_unless_zero(settings.abandoned),
            group_idle: span_unless_zero(settings.group_idle),
            rate: settings.rate(),
            requires_grant: settings.require_grant.unwrap_or(settings.tenancy_header),
            identity: source(settings)?,
            postgres: settings.postgres.clone(),
            node: settings.node_id.map_or(peers::NODE_DEFAULT, NodeId),
            peers: peers::resolve(settings).map_err(Unmet::Peers)?,
            member_ttl: settings.member_ttl,
            log_level: settings.log_level,
            log_format: settings.log_format,
        })
    }
}

/// Where identities come from: a token wins over the header.
fn source(settings: &Settings) -> Result<identity::Source, Unmet> {
    if settings.jwt.is_enabled {
        settings.jwt.accepted().map_err(Unmet::Identity)?;
        return Ok(identity::Source::Token(Box::new(settings.jwt.clone())));
    }
    Ok(if settings.tenancy_header { identity::Source::Header } else { identity::Source::Default })
}

fn tls_files(settings: &Settings) -> Result<Option<Files>, Unmet> {
    match (&settings.tls_cert, &settings.tls_key) {
        (Some(cert), Some(key)) => Ok(Some(Files { cert: cert.clone(), key: key.clone() })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Unmet::TlsHalf("--tls-key")),
        (None, Some(_)) => Err(Unmet::TlsHalf("--tls-cert")),
    }
}

impl Config {
    /// What a tenant without a grant may use.
    #[must_use]
    pub fn allowance(&self) -> Allowance {
        let (messages_per_second, burst_messages) = self.rate.map_or((0, 0), |rate| (rate.messages_per_second, rate.burst_messages));
        Allowance { is_enabled: !self.requires_grant, messages_per_second, burst_messages, ..Allowance::UNBOUNDED }
    }

    /// Whether several tenants may share this node.
    #[must_use]
    pub fn has_tenants(&self) -> bool {
        self.identity != identity::Source::Default
    }
}

/// Connections that fit the descriptor limit beside what the process itself opens.
fn connections_max(typed: Option<u64>, shard_count: u64, descriptors_max: u64) -> Result<u64, Unmet> {
    let kept = DESCRIPTORS_KEPT + shard_count * DESCRIPTORS_PER_SHARD;
    let needed = kept + typed.unwrap_or(1);
    if needed > descriptors_max {
        return Err(Unmet::Descriptors { needed, allowed: descriptors_max });
    }
    Ok(typed.unwrap_or_else(|| (descriptors_max - kept).min(CONNECTIONS_DEFAULT_MAX)))
}

fn some_unless_zero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

fn span_unless_zero(duration: Duration) -> Option<Span> {
    // Settings are at most a hundred years: the nanoseconds fit.
    some_unless_zero(duration).map(|duration| Span(duration.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostFacts {
        HostFacts { affinity: vec![0, 1], quota_cpus: None, descriptors_max: 1024 }
    }

    #[test]
    fn zero_means_never() {
        let zero = Settings {
            implicit_idle: Duration::ZERO,
            abandoned: Duration::ZERO,
            group_idle: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            ..Settings::default()
        };
        let never = Config::resolve(&zero, &host()).expect("meets");
        assert_eq!((never.implicit_idle, never.abandoned, never.group_idle, never.http.idle_timeout), (None, None, None, None));
        let default = Config::resolve(&Settings::default(), &host()).expect("meets");
        assert_eq!(default.implicit_idle, Some(Span::from_secs(300)));
    }

    #[test]
    fn connections_fit_the_descriptor_limit() {
        let resolved = Config::resolve(&Settings::default(), &host()).expect("meets");
        assert_eq!(resolved.http.connections_max, 1024 - 64 - 2 * 16);
        assert_eq!(connections_max(None, 1, u64::MAX), Ok(CONNECTIONS_DEFAULT_MAX));
        assert_eq!(connections_max(Some(10), 1, 1024), Ok(10));
        assert_eq!(connections_max(Some(1000), 1, 1024), Err(Unmet::Descriptors { needed: 1080, allowed: 1024 }));
        assert_eq!(connections_max(None, 1, 80), Err(Unmet::Descriptors { needed: 81, allowed: 80 }));
    }

    #[test]
    fn tls_needs_both_files() {
        let with = |cert: Option<&str>, key: Option<&str>| {
            let settings = Settings { tls_cert: cert.map(Into::into), tls_key: key.map(Into::into), ..Settings::default() };
            Config::resolve(&settings, &host()).map(|config| config.tls)
        };
        assert_eq!(with(None, None), Ok(None));
        assert_eq!(with(Some("c"), Some("k")), Ok(Some(Files { cert: "c".into(), key: "k".into() })));
        assert_eq!(with(Some("c"), None), Err(Unmet::TlsHalf("--tls-key")));
        assert_eq!(with(None, Some("k")), Err(Unmet::TlsHalf("--tls-cert")));
    }

    #[test]
    fn only_pinned_shards_spin() {
        let crowded = Settings { cores: CoreSettings { shard_count: Some(4), ..CoreSettings::default() }, ..Settings::default() };
        assert_eq!(Config::resolve(&crowded, &host()).map(|config| config.spin), Ok(Duration::ZERO));
        assert_eq!(Config::resolve(&Settings::default(), &host()).map(|config| config.spin), Ok(Settings::default().spin));
    }
}
