//! `mayfly serve`: what was typed → what it means → what the host allows → log → the node.
//!
//! Every step that cannot be done ends the start with one line: what, cause, remedy. Nothing is opened before the settings are known
//! to be good.

use std::ffi::OsString;
use std::fmt::Display;

use clap::ArgMatches;
use mayfly_net::host::Host;

use crate::config::{Config, HostFacts, Settings};
use crate::{logging, runtime};

/// Runs a node until it is stopped.
///
/// # Errors
/// The line that says why it could not start or had to stop.
pub(super) fn run(typed: &ArgMatches) -> Result<(), String> {
    let settings = Settings::read(|flag| typed.get_one::<OsString>(flag).cloned(), |name| std::env::var_os(name)).map_err(line)?;
    let host = Host::probe().map_err(line)?;
    let config = Config::resolve(&settings, &facts(host)).map_err(line)?;
    logging::start(config.log_level, config.log_format);
    runtime::serve(config).map_err(line)
}

fn line(cause: impl Display) -> String {
    cause.to_string()
}

/// What the host was found to allow, as the configuration asks for it.
fn facts(host: Host) -> HostFacts {
    HostFacts { affinity: host.cpus, quota_cpus: host.cpu_quota, descriptors_max: host.descriptors_max }
}
