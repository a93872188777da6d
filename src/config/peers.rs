//! The cluster of a node, as it was typed: which node this is, where the others are, and what proves that they belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::settings::Settings;
use crate::control::NodeId;

/// The id of a node that nobody named.
pub const NODE_DEFAULT: NodeId = NodeId(1);

/// Most bytes of a request body that can be asked of another node: with what is said about it, it is one frame of a link.
const FORWARDED_BODY_BYTES_MAX: u64 = 64 << 20;

/// What a node of a cluster runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// Where the other nodes connect.
    pub listen: SocketAddr,
    /// Every node that was named, this one too, with `host:port` of its peer port.
    pub addresses: BTreeMap<NodeId, Box<str>>,
    /// The file of the cluster's secret.
    pub secret_file: PathBuf,
    /// Whether a node with a new folder waits until a cluster takes it in; else those that were named begin one together.
    pub joins: bool,
}

/// Why the settings of a cluster do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeersRefused {
    /// `--peers` without `--node-id`.
    NoNodeId,
    /// `--peers` without `--cluster-secret-file`.
    NoSecret,
    /// `--peers` does not name this node.
    NotNamed(NodeId),
    /// `--peers` names a node twice.
    NamedTwice(NodeId),
    /// `--peers` names an address twice.
    AddressTwice(Box<str>),
    /// `--join` and nobody to join.
    NobodyToJoin,
    /// `--max-body-bytes` is more than a link carries.
    BodyTooLong(u64),
}

impl fmt::Display for PeersRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodeId => f.write_str("--node-id is missing: with --peers each node says which of them it is"),
            Self::NoSecret => f.write_str(
                "--cluster-secret-file is missing: nodes of --peers prove to each other that they have the same secret of 16 bytes or more",
            ),
            Self::NotNamed(node) => {
                write!(f, "--peers does not name node {0}, which is this one (--node-id); add {0}=HOST:PORT to it", node.0)
            }
            Self::NamedTwice(node) => write!(f, "--peers names node {} twice; each node has an id of its own", node.0),
            Self::AddressTwice(address) => write!(f, "--peers names {address:?} for two nodes; each node has an address of its own"),
            Self::BodyTooLong(bytes) => write!(
                f,
                "--max-body-bytes {bytes} is more than goes from node to node; with --peers it can be at most {FORWARDED_BODY_BYTES_MAX} (64 MiB)"
            ),
            Self::NobodyToJoin => f.write_str("--join needs the addresses of the cluster's nodes; name them in --peers"),
        }
    }
}

/// The cluster that the settings name, if they do.
pub(super) fn resolve(settings: &Settings) -> Result<Option<PeersConfig>, PeersRefused> {
    if settings.peers.is_empty() {
        return if settings.join { Err(PeersRefused::NobodyToJoin) } else { Ok(None) };
    }
    let own = NodeId(settings.node_id.ok_or(PeersRefused::NoNodeId)?);
    let mut addresses = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (id, address) in &settings.peers {
        if addresses.insert(NodeId(*id), address.clone()).is_some() {
            return Err(PeersRefused::NamedTwice(NodeId(*id)));
        }
        if !seen.insert(address) {
            return Err(PeersRefused::AddressTwice(address.clone()));
        }
    }
    let own_address = addresses.get(&own).ok_or(PeersRefused::NotNamed(own))?;
    let port = own_address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default();
    let listen = settings.peer_listen.unwrap_or_else(|| SocketAddr::new(settings.listen_address().ip(), port));
    let secret_file = settings.cluster_secret_file.clone().ok_or(PeersRefused::NoSecret)?;
    if settings.body_bytes_max > FORWARDED_BODY_BYTES_MAX {
        return Err(PeersRefused::BodyTooLong(settings.body_bytes_max));
    }
    if settings.join && addresses.len() == 1 {
        return Err(PeersRefused::NobodyToJoin);
    }
    Ok(Some(PeersConfig { listen, addresses, secret_file, joins: settings.join }))
}

/// `1=host:6633,2=10.0.0.2:6633,3=[::1]:6633`.
pub(super) fn read(text: &str) -> Option<Vec<(u64, Box<str>)>> {
    text.split(',').map(|entry| read_one(entry.trim())).collect()
}

fn read_one(entry: &str) -> Option<(u64, Box<str>)> {
    let (id, address) = entry.split_once('=')?;
    let id: u64 = id.parse().ok().filter(|id| *id > 0)?;
    let (host, port) = address.rsplit_once(':')?;
    let is_bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let is_host = !host.is_empty() && is_bare && !host.contains(char::is_whitespace);
    (is_host && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| (id, address.into()))
}

/// The default of [`PeersConfig`]'s member-ttl: how long a node may be silent.
pub const MEMBER_TTL_DEFAULT: Duration = Duration::from_millis(4_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(peers: &str) -> Settings {
        let peers = read(peers).expect("readable");
        Settings { node_id: Some(2), peers, cluster_secret_file: Some("secret".into()), ..Settings::default() }
    }

    #[test]
    fn peers_are_ids_and_addresses() {
        let two = read("1=a.example:6633, 2=[::1]:7").expect("readable");
        assert_eq!(two, [(1, "a.example:6633".into()), (2, "[::1]:7".into())]);
        for text in ["", "1", "1=", "1=a", "0=a:1", "x=a:1", "1=a:0", "1=a:70000", "1=:5", "1=::1:5", "1=a:1,", "1=a b:1", "-1=a:1"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_cluster_is_whole_or_refused() {
        let refused = |settings: Settings| resolve(&settings).expect_err("refused");
        assert_eq!(resolve(&Settings::default()), Ok(None));
        assert_eq!(refused(Settings { node_id: None, ..settings("1=a:1,2=b:1") }), PeersRefused::NoNodeId);
        assert_eq!(refused(Settings { cluster_secret_file: None, ..settings("1=a:1,2=b:1") }), PeersRefused::NoSecret);
        assert_eq!(refused(settings("1=a:1,3=b:1")), PeersRefused::NotNamed(NodeId(2)));
        assert_eq!(refused(settings("1=a:1,2=b:1,1=c:1")), PeersRefused::NamedTwice(NodeId(1)));
        assert_eq!(refused(settings("1=a:1,2=a:1")), PeersRefused::AddressTwice("a:1".into()));
        assert_eq!(refused(Settings { join: true, ..settings("2=a:1") }), PeersRefused::NobodyToJoin);
        assert_eq!(refused(Settings { join: true, ..Settings::default() }), PeersRefused::NobodyToJoin);
        assert!(resolve(&Settings { body_bytes_max: 64 << 20, ..settings("1=a:1,2=b:1") }).is_ok());
        let too_long = (64 << 20) + 1;
        assert_eq!(refused(Settings { body_bytes_max: too_long, ..settings("1=a:1,2=b:1") }), PeersRefused::BodyTooLong(too_long));
        assert!(resolve(&Settings { body_bytes_max: too_long, ..Settings::default() }).is_ok(), "a node alone has no links");
    }

    #[test]
    fn the_peer_port_is_the_one_that_the_others_know() {
        let config = resolve(&settings("1=a:6633,2=b:6644")).expect("whole").expect("a cluster");
        assert_eq!(config.listen, "0.0.0.0:6644".parse().expect("an address"));
        let elsewhere = Settings { peer_listen: Some("127.0.0.1:9".parse().expect("an address")), ..settings("1=a:6633,2=b:6644") };
        assert_eq!(resolve(&elsewhere).expect("whole").expect("a cluster").listen.port(), 9);
    }
}
