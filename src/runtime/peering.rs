//! How a node of a cluster begins: whose folder it has, the secret, the door for other nodes, and the links of the control core.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use mayfly_net::mesh::Waker;
use mayfly_net::peer::control::{ControlLinks, Limits, Notice};
use mayfly_net::peer::door::{self, Door};
use mayfly_net::peer::handshake::{Credentials, Purpose};

use super::cluster::{Cluster, Inbox, Links, Setup, Stage};
use super::linking::{Arrivals, Linking};
use super::random;
use crate::config::{Config, PeersConfig};
use crate::control::{ClusterMark, DataFolder, NodeId, Origin};
use crate::start_error::StartError;

/// What every handshake of this version begins with; which cluster it is the words say.
const HANDSHAKE: &str = "mayfly";
/// A file of the secret that others may read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// The data folder, and what the node is in it.
pub(super) struct Home {
    pub(super) folder: DataFolder,
    pub(super) origin: Origin,
    /// Of its cluster, as far as it is known.
    pub(super) mark: Option<ClusterMark>,
}

/// Opens the data folder as what the settings say that the node is.
pub(super) fn open_home(config: &Config) -> Result<Home, StartError> {
    let node = config.node;
    let Some(peers) = &config.peers else {
        let folder = DataFolder::open(&config.data_dir, node.0).map_err(StartError::Log)?;
        return Ok(Home { folder, origin: Origin { node, voters: vec![node] }, mark: None });
    };
    let begins = (!peers.joins).then(|| ClusterMark::of(&list_of(peers)));
    let taken = ClusterMark(random().max(1));
    let (folder, mark) = DataFolder::open_of_cluster(&config.data_dir, node.0, begins, taken).map_err(StartError::Log)?;
    let voters = if peers.joins { Vec::new() } else { peers.addresses.keys().copied().collect() };
    Ok(Home { folder, origin: Origin { node, voters }, mark })
}

/// The nodes as every one of them spells them.
fn list_of(peers: &PeersConfig) -> String {
    peers.addresses.iter().map(|(node, address)| format!("{}={address},", node.0)).collect()
}

/// What proves to other nodes that this one is of their cluster.
pub(super) fn credentials(config: &Config, peers: &PeersConfig, incarnation: u64) -> Result<Arc<Credentials>, StartError> {
    let secret = read_secret(&peers.secret_file).map_err(|cause| StartError::Peers { cause })?;
    let core_count = u16::try_from(config.cores.shard_count).unwrap_or(u16::MAX);
    let credentials = Credentials::new(HANDSHAKE, &secret, config.node.0, incarnation, core_count);
    let refused = |cause| StartError::Peers { cause: format!("--cluster-secret-file {}: {cause}", peers.secret_file.display()) };
    credentials.map(Arc::new).map_err(refused)
}

fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error| format!("--cluster-secret-file {}: {error}; it has to be a file that this user can read", path.display());
    let mode = fs::metadata(path).map_err(cannot)?.permissions().mode();
    if mode & READABLE_BY_OTHERS != 0 {
        log::warn!(file:% = path.display(); "everybody on this host can read the cluster's secret; make its file this user's alone (chmod 600)");
    }
    let secret = fs::read(path).map_err(cannot)?;
    Ok(secret.trim_ascii().to_vec())
}

/// The way in for other nodes; it closes with this.
pub(super) struct Peering {
    _door: Door,
}

/// The control core's links, for its thread.
struct ControlWay(Arc<ControlLinks>);

impl Links for ControlWay {
    fn set_peers(&self, peers: Vec<(u64, String)>) {
        self.0.set_peers(peers);
    }

    fn send(&self, node: NodeId, text: Vec<u8>) {
        // One that is lost is what raft and heartbeats stand; the links count it.
        self.0.send(node.0, text);
    }
}

/// Opens the door and the links of the control core, which `waker` wakes.
pub(super) fn begin(
    config: &Config,
    peers: &PeersConfig,
    credentials: &Arc<Credentials>,
    incarnation: u64,
    mark: Option<ClusterMark>,
    stage: Stage,
    waker: Arc<Waker>,
) -> Result<(Peering, Cluster), StartError> {
    let arrivals = Arrivals::new(Arc::clone(&waker));
    let core_count = config.cores.shard_count as u16;
    let linking = Linking::new(Arc::clone(credentials), core_count, arrivals.clone());
    let inbox = Inbox::new(waker);
    let words = inbox.clone();
    let tell = move |notice| match notice {
        Notice::Received { node, incarnation, body } => words.put(NodeId(node), incarnation, body),
        Notice::Up { node, .. } => log::info!(node; "linked with a node of the cluster"),
        Notice::Down { node } => log::warn!(node; "the link with a node of the cluster is lost"),
    };
    let no_links = |error: std::io::Error| StartError::Peers { cause: format!("links to other nodes cannot be kept: {error}") };
    let links = Arc::new(ControlLinks::start(Arc::clone(credentials), Limits::default(), tell).map_err(no_links)?);
    let inward = Arc::clone(&links);
    let arrived = move |link: mayfly_net::peer::Link| match link.peer.purpose {
        Purpose::Control => inward.adopt(link),
        Purpose::Core(core) => arrivals.came(core, link),
    };
    let taken =
        |error| StartError::Peers { cause: format!("cannot listen for other nodes on {}: {error}; see --peer-listen", peers.listen) };
    let door = Door::open(peers.listen, Arc::clone(credentials), door::Limits::default(), arrived).map_err(taken)?;
    let cluster = Cluster::new(Setup {
        links: Box::new(ControlWay(links)),
        linking,
        inbox,
        stage,
        mark,
        node: config.node,
        incarnation,
        shard_count: core_count,
        named: peers.addresses.clone(),
        member_ttl: config.member_ttl,
    });
    Ok((Peering { _door: door }, cluster))
}
