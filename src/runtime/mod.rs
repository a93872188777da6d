//! A running node: one executor a core, each with its listener, its connections and its shard, and mail between them.
//!
//! `serve` sets everything up, says that the node serves, and waits for the signal to stop. A core that dies takes the node with it: what
//! it held is gone, and a node that answers for half of its queues would hide that.

mod attachment;
mod calls;
mod cluster;
mod control;
mod core;
mod departure;
mod desk;
mod drain;
mod frame;
mod gate;
mod gather;
mod intake;
mod linking;
mod moving;
mod nearing;
mod peer;
mod peering;
mod place;
mod proposing;
mod quota;
mod replying;
mod session;
mod subscribing;
mod transit;

use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use futures_lite::FutureExt as _;
use glommio::{CpuSet, LocalExecutorBuilder, Placement};
use mayfly_net::clock::Clock;
use mayfly_net::listener;
use mayfly_net::mesh::{Mesh, Waker};
use mayfly_net::ring::{Driver, DriverConfig, Share};
use mayfly_net::tls::{Acceptor, Files};
use mayfly_shards::{NodeBudget, Shard, ShardConfig, ShardIndex, Span};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::attachment::{Attachment, Boot};
use self::cluster::{Cluster, Stage};
use self::control::{ControlCore, Parts};
use self::core::Core;
use self::departure::Departure;
use self::desk::Desk;
use self::frame::Frame;
use self::gate::Gate;
use self::peering::Home;
use crate::api::declaration::OptionDefaults;
use crate::api::id::Incarnation;
use crate::api::veil::Veil;
use crate::banner;
use crate::config::{Config, Cores};
use crate::control::grants::Grants;
use crate::control::handover::Handover;
use crate::control::{Consensus, State};
use crate::identity::{Authority, Identities};
use crate::metrics::Gauges;
use crate::start_error::StartError;

/// Mail a lane between two cores holds before it waits with its sender.
const LANE_CAPACITY: usize = 1_024;
/// Ring entries of an executor: it only sleeps, and moves no bytes.
const EXECUTOR_RING_DEPTH: usize = 128;

/// The executor's preemption timer, out of the way: one task runs here, and a completion of that timer at the wrong moment makes
/// glommio-ng 0.12 park although a task was woken.
const PREEMPT_SPAN: Duration = Duration::from_secs(3_600);

/// What every core of a node shares.
#[derive(Clone)]
struct Node {
    config: Arc<Config>,
    authority: Authority,
    tls: Option<Arc<Acceptor>>,
    clock: Clock,
    budget: Arc<NodeBudget>,
    grants: Arc<Grants>,
    gauges: Arc<Gauges>,
    incarnation: Incarnation,
    hash_seed: u64,
    is_stopping: Arc<AtomicBool>,
    draining_count: Arc<AtomicUsize>,
    departure: Arc<Departure>,
    gate: Gate,
    /// As of the start.
    state: Arc<State>,
    /// The entry of the log at which it stands.
    applied: u64,
}

/// Runs a node until it was told to stop and has drained.
///
/// # Errors
/// What kept it from starting, or which core failed.
pub fn serve(config: Config) -> Result<(), StartError> {
    let core_count = config.cores.shard_count;
    let authority = Authority::open(&config.identity).map_err(StartError::Identity)?;
    let gauges = Arc::new(Gauges::new(core_count));
    let incarnation = random();
    let credentials = config.peers.as_ref().map(|peers| peering::credentials(&config, peers, incarnation)).transpose()?;
    let Home { folder, origin, mark } = peering::open_home(&config)?;
    let (consensus, state) = Consensus::open(folder, origin, random(), gauges.control()).map_err(StartError::Log)?;
    let state = Arc::new(state);
    let applied = consensus.applied();
    let node = Node::new(config, incarnation, authority, gauges, (Arc::clone(&state), applied))?;
    // The control core's end is the last.
    let mut ends = Mesh::of_cores(core_count + 1, LANE_CAPACITY).map_err(|error| core_error(0, &error))?;
    let control_end = ends.pop();
    let wakers: Vec<Arc<Waker>> = ends.iter().map(Mesh::waker).collect();
    let mut shares = Share::of_cores(&wakers).into_iter();
    let (report, reports) = mpsc::channel();
    let mut threads = Vec::new();
    let mut hand_over = Vec::new();
    for (index, mesh) in ends.into_iter().enumerate() {
        let (give, take) = mpsc::channel();
        hand_over.push(give);
        threads.push(start_core(node.clone(), index, mesh, shares.next(), take, report.clone()));
    }
    drop(report);
    // Cores are warm, and what was declared is, before the port is open: the first sleep of an executor takes milliseconds.
    expect_all(&reports, core_count)?;
    let stage = Stage { serves: Arc::default(), is_stopping: Arc::clone(&node.is_stopping) };
    let begun = node.config.peers.as_ref().zip(credentials).zip(control_end.as_ref().map(Mesh::waker));
    let begun = begun
        .map(|((peers, credentials), waker)| peering::begin(&node.config, peers, &credentials, incarnation, mark, stage.clone(), waker));
    // The door is open as long as this function runs.
    let (_peering, cluster) = begun.transpose()?.unzip();
    let control = control_end.map(|mesh| start_control(&node, mesh, consensus, State::clone(&state), cluster)).transpose()?;
    let (control, boot) = control.unzip();
    if let Some(boot) = boot.flatten() {
        boot.wait().map_err(|cause| StartError::Store { cause })?;
    }
    let listeners = listen(&node.config)?;
    let address = listener::local_address(&listeners[0]).unwrap_or(node.config.listen);
    follow_signals(&node, wakers)?;
    for (give, listener) in hand_over.into_iter().zip(listeners) {
        // A core that is gone says so below.
        let _ = give.send(listener);
    }
    expect_all(&reports, core_count)?;
    stage.serves.store(true, Relaxed);
    let (departure, has_peers) = (Arc::clone(&node.departure), node.config.peers.is_some());
    banner::log_serving(&node.config, address, 0, node.incarnation.number);
    for (index, thread) in threads.into_iter().enumerate() {
        let ended = thread.join().unwrap_or_else(|_| Err("it panicked".to_owned()));
        ended.map_err(|cause| StartError::Core { shard_index: index, cause })?;
    }
    if has_peers {
        departure.log();
    }
    if let Some(control) = control {
        control.end();
    }
    log::info!("mayfly stopped");
    Ok(())
}

impl Node {
    fn new(
        config: Config,
        incarnation: u64,
        authority: Authority,
        gauges: Arc<Gauges>,
        (state, applied): (Arc<State>, u64),
    ) -> Result<Self, StartError> {
        let tls = config.tls.as_ref().map(Acceptor::load).transpose().map_err(StartError::Tls)?;
        let key = u128::from(random()) << 64 | u128::from(random());
        let veil = if config.has_tenants() { Veil::new(key) } else { Veil::default() };
        let budget = Arc::new(NodeBudget::new(config.node_bytes_max, config.allowance()));
        Ok(Self {
            tls: tls.map(Arc::new),
            grants: Arc::new(Grants::new(Arc::clone(&budget), config.allowance())),
            budget,
            gauges,
            state,
            applied,
            clock: Clock::start(),
            incarnation: Incarnation::new(incarnation).veiled(veil),
            hash_seed: random(),
            is_stopping: Arc::new(AtomicBool::new(false)),
            draining_count: Arc::new(AtomicUsize::new(config.cores.shard_count)),
            departure: Arc::default(),
            gate: Gate::default(),
            config: Arc::new(config),
            authority,
        })
    }

    fn shard(&self, index: ShardIndex) -> Shard {
        let config = &self.config;
        let or_never = |span: Option<Span>| span.unwrap_or(Span(0));
        Shard::new(ShardConfig {
            index,
            shard_count: config.cores.shard_count as u16,
            default_options: config.queue_defaults,
            implicit_idle: or_never(config.implicit_idle),
            abandoned: or_never(config.abandoned),
            group_idle: or_never(config.group_idle),
            budget: Arc::clone(&self.budget),
            hash_seed: self.hash_seed,
        })
    }

    fn core(&self, index: usize, mesh: Mesh<Frame>) -> Core {
        let shard_index = ShardIndex(index as u16);
        let desk = Desk::new(shard_index, mesh, self.incarnation.clone());
        let config = &self.config;
        Core::new(
            self.shard(shard_index),
            desk,
            place::Placement::new(config.cores.shard_count as u16, config.peers.as_ref().map(|_| (config.node, self.incarnation.number))),
            Identities::new(&self.authority),
            Arc::clone(&self.grants),
            Arc::clone(&self.budget),
            self.gate.clone(),
            Arc::clone(&self.gauges),
            self.clock,
            config.http,
            self.tls.is_some(),
            Arc::clone(&self.is_stopping),
            Arc::clone(&self.draining_count),
            config.peers.as_ref().map(|_| Box::new(self.handover(shard_index))),
            Arc::clone(&self.departure),
        )
    }

    fn handover(&self, core: ShardIndex) -> Handover {
        Handover::new(self.config.node, self.incarnation.number, core, self.config.cores.shard_count as u16)
    }

    fn option_defaults(&self) -> OptionDefaults {
        let defaults = &self.config.queue_defaults;
        OptionDefaults {
            queue_max_bytes: defaults.max_bytes,
            queue_max_length: defaults.max_length,
            lease_seconds: defaults.lease_seconds,
            retry_limit: defaults.retry_limit,
        }
    }

    fn driver_config(&self, waker: Arc<Waker>, share: Option<Share>) -> DriverConfig {
        let config = &self.config;
        let connections_max = config.http.connections_max.div_ceil(config.cores.shard_count as u64);
        DriverConfig {
            spin: config.spin,
            // A core alone has nobody to share with.
            share: share.filter(|_| config.cores.shard_count > 1),
            connections_max: usize::try_from(connections_max).unwrap_or(usize::MAX),
            tls: self.tls.clone(),
            ..DriverConfig::new(self.clock, waker)
        }
    }
}

/// A random number of the operating system.
fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|error| {
        // Without randomness ids could repeat over restarts.
        unreachable!("the kernel refuses random numbers: {error}")
    })
}

fn listen(config: &Config) -> Result<Vec<OwnedFd>, StartError> {
    listener::listen(config.listen, config.cores.shard_count).map_err(|error| StartError::Listen { address: config.listen, error })
}

fn core_error(shard_index: usize, cause: &dyn std::fmt::Display) -> StartError {
    StartError::Core { shard_index, cause: cause.to_string() }
}

/// What a core says on its way up: Ok when it is warm, and again when it accepts.
type Report = Result<(), (usize, String)>;

fn expect_all(reports: &mpsc::Receiver<Report>, core_count: usize) -> Result<(), StartError> {
    for _ in 0..core_count {
        match reports.recv() {
            Ok(Ok(())) => {}
            Ok(Err((index, cause))) => return Err(core_error(index, &cause)),
            Err(_) => return Err(core_error(0, &"its thread ended before it served")),
        }
    }
    Ok(())
}

/// Where a core runs: on its own CPU when it is pinned, else anywhere among the node's.
fn placement(cores: &Cores, index: usize) -> Placement {
    if let Some(cpu) = cores.pinned_cpu(index) {
        return Placement::Fixed(cpu);
    }
    match CpuSet::online() {
        Ok(online) => Placement::Fenced(online.filter(|location| cores.cpus.contains(&location.cpu))),
        Err(error) => {
            log::warn!(core = index, error:% = error; "the CPUs of this host cannot be read; the core may run on any");
            Placement::Unbound
        }
    }
}

/// The control core's thread.
struct ControlThread {
    thread: thread::JoinHandle<()>,
    is_over: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl ControlThread {
    /// Ends it, when no core needs it any more.
    fn end(self) {
        self.is_over.store(true, Relaxed);
        self.waker.wake();
        let _ = self.thread.join();
    }
}

fn start_control(
    node: &Node,
    mesh: Mesh<Frame>,
    consensus: Consensus,
    state: State,
    cluster: Option<Cluster>,
) -> Result<(ControlThread, Option<Boot>), StartError> {
    let waker = mesh.waker();
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let attachment = node.config.postgres.clone().map(|target| Attachment::start(target, Arc::clone(&waker))).transpose();
    let (attachment, boot) = attachment.map_err(|error| StartError::Store { cause: error.to_string() })?.unzip();
    let control = ControlCore::new(Parts {
        mesh,
        shard_count: node.config.cores.shard_count as u16,
        defaults: node.option_defaults(),
        grants: Arc::clone(&node.grants),
        consensus,
        state,
        attachment,
        cluster,
    });
    let thread = thread::spawn(move || {
        match std::panic::catch_unwind(AssertUnwindSafe(|| control.run(&told))) {
            Ok(Ok(())) => return,
            // One that went on would answer by what it knew before, and tell nobody.
            Ok(Err(fault)) => log::error!(cause:% = fault; "the node stops, since it cannot follow what is agreed on"),
            Err(_) => log::error!("the control core failed; the node stops, since nothing could be declared any more"),
        }
        std::process::exit(1)
    });
    Ok((ControlThread { thread, is_over, waker }, boot))
}

/// Starts the thread of one core.
fn start_core(
    node: Node,
    index: usize,
    mesh: Mesh<Frame>,
    share: Option<Share>,
    listener: mpsc::Receiver<OwnedFd>,
    report: mpsc::Sender<Report>,
) -> thread::JoinHandle<Result<(), String>> {
    thread::spawn(move || {
        let builder = LocalExecutorBuilder::new(placement(&node.config.cores, index))
            .name(&format!("mayfly-{index}"))
            .io_memory(0)
            .ring_depth(EXECUTOR_RING_DEPTH)
            .preempt_timer(PREEMPT_SPAN);
        let executor = match builder.make() {
            Ok(executor) => executor,
            Err(error) => {
                let _ = report.send(Err((index, error.to_string())));
                return Err(error.to_string());
            }
        };
        executor.run(async move {
            let core = AssertUnwindSafe(run_core(&node, index, mesh, share, &listener, &report));
            match core.catch_unwind().await {
                Ok(ended) => ended,
                Err(_) => {
                    log::error!(core = index; "a core failed; the node stops, since what the core held is gone");
                    std::process::exit(1)
                }
            }
        })
    })
}

async fn run_core(
    node: &Node,
    index: usize,
    mesh: Mesh<Frame>,
    share: Option<Share>,
    listener: &mpsc::Receiver<OwnedFd>,
    report: &mpsc::Sender<Report>,
) -> Result<(), String> {
    glommio::timer::sleep(Duration::from_millis(1)).await;
    let waker = mesh.waker();
    let mut core = node.core(index, mesh);
    core.declare_all(&node.state, node.applied, &node.option_defaults());
    let _ = report.send(Ok(()));
    // Nothing else runs on this executor yet, so waiting for the listener may block it.
    let Ok(listener) = listener.recv() else { return Ok(()) };
    let driver = Driver::new(vec![listener], node.driver_config(waker, share)).map_err(|error| error.to_string());
    let driver = match driver {
        Ok(driver) => driver,
        Err(cause) => {
            let _ = report.send(Err((index, cause.clone())));
            return Err(cause);
        }
    };
    let _ = report.send(Ok(()));
    core.run(driver).await;
    Ok(())
}

/// SIGTERM and SIGINT begin the drain; a second one ends the process at once. SIGHUP has a node with TLS read its certificate again,
/// and means nothing to another.
fn follow_signals(node: &Node, wakers: Vec<Arc<Waker>>) -> Result<(), StartError> {
    let certificate = node.tls.clone().zip(node.config.tls.clone());
    let followed = [SIGTERM, SIGINT, SIGHUP];
    let mut signals = signal_hook::iterator::Signals::new(followed).map_err(|error| core_error(0, &error))?;
    let is_stopping = Arc::clone(&node.is_stopping);
    thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                if certificate.is_none() {
                    log::info!("told to read the certificate again: there is none");
                }
                certificate.iter().for_each(|(acceptor, files)| reload(acceptor, files));
                continue;
            }
            if is_stopping.swap(true, Relaxed) {
                log::warn!("told to stop again: stopping at once");
                std::process::exit(0);
            }
            log::info!("told to stop: draining");
            for waker in &wakers {
                waker.wake();
            }
        }
    });
    Ok(())
}

/// Connections that are there go on with what they began with.
fn reload(acceptor: &Acceptor, files: &Files) {
    match acceptor.reload(files) {
        Ok(()) => log::info!(cert:% = files.cert.display(); "the certificate was read again"),
        Err(refused) => log::error!("the certificate in use stays, the new one cannot be used: {refused}"),
    }
}
