//! The line that a node logs once it serves: where, on what, and within which bounds.

use std::net::SocketAddr;

use log::info;

use crate::config::Config;
use crate::config::cores::CpuList;

/// Logs that clients can connect now. `address` is the one that was bound, `incarnation` that of this start's message ids, `epoch` the number
/// of the agreed membership (0: a node alone).
pub fn log_serving(config: &Config, address: SocketAddr, epoch: u64, incarnation: u64) {
    let cores = &config.cores;
    info!(
        address:% = address,
        scheme = if config.tls.is_some() { "https" } else { "http" },
        shards = cores.shard_count,
        cpus:% = CpuList(&cores.cpus),
        pinned = cores.pinned,
        epoch = epoch,
        incarnation:% = format_args!("{incarnation:x}"),
        memory_bound_bytes = config.node_bytes_max,
        max_connections = config.http.connections_max,
        version = env!("CARGO_PKG_VERSION");
        "mayfly serves"
    );
}
