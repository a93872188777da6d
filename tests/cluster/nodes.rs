//! Some nodes of one cluster, each with a data folder that it keeps when it is started again.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::client::{Client, get, post};
use crate::process::{Node, mayfly, serve, unused_folder};

const STATUS: &str = "/api/v1/system/cluster";
const CONFIGURE: &str = "/api/v1/ephemeral/configure";
/// How long the test waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(15);

/// See the module. Nodes are called by their ids, from 1 on.
pub(crate) struct Nodes {
    folder: PathBuf,
    ports: Vec<u16>,
    nodes: Vec<Option<Node>>,
    arguments: Vec<String>,
}

impl Nodes {
    /// Nodes that begin a cluster together; `joiners` more are named, and not started.
    pub(crate) fn start(count: u64, joiners: u64, arguments: &[&str]) -> Self {
        let folder = unused_folder();
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("secret"), "a secret of the test\n").expect("a secret");
        let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        let all = count + joiners;
        let mut nodes = Self { folder, ports: free_ports(all), nodes: (0..all).map(|_| None).collect(), arguments };
        (1..=count).for_each(|id| nodes.begin(id, 1..=count, false));
        nodes
    }

    /// Starts a node, or starts it again.
    pub(crate) fn begin(&mut self, id: u64, peers: std::ops::RangeInclusive<u64>, joins: bool) {
        let peers: Vec<String> = peers.map(|peer| format!("{peer}=127.0.0.1:{}", self.ports[peer as usize - 1])).collect();
        let mut command = serve(2, &["--pin", "off", "--node-id", &id.to_string(), "--peers", &peers.join(",")]);
        command.arg("--cluster-secret-file").arg(self.folder.join("secret"));
        command.args(if joins { ["--join", "on"].as_slice() } else { &[] }).args(&self.arguments);
        command.env("MAYFLY_DATA_DIR", self.folder.join(id.to_string()));
        let mut node = Node::start(command);
        node.keep_folder();
        self.nodes[id as usize - 1] = Some(node);
    }

    pub(crate) fn node(&self, id: u64) -> &Node {
        self.nodes[id as usize - 1].as_ref().expect("it runs")
    }

    /// Takes a node out, for its end.
    pub(crate) fn take(&mut self, id: u64) -> Node {
        self.nodes[id as usize - 1].take().expect("it runs")
    }

    pub(crate) fn running(&self) -> Vec<u64> {
        (1..).zip(&self.nodes).filter(|(_, node)| node.is_some()).map(|(id, _)| id).collect()
    }

    pub(crate) fn client(&self, id: u64) -> Client {
        Client::connect(self.node(id).address)
    }

    /// The cluster as a node knows it.
    pub(crate) fn status(&self, id: u64) -> Value {
        let answer = self.client(id).ask(get(STATUS));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Waits until a node says so of the cluster.
    #[track_caller]
    pub(crate) fn wait_for(&self, id: u64, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.status(id);
            if is_so(&status) {
                return status;
            }
            assert!(Instant::now() < until, "{what}: {status:#}\n{}", self.node(id).log());
            sleep(Duration::from_millis(50));
        }
    }

    /// Waits until every node that runs knows these as live; the leader.
    #[track_caller]
    pub(crate) fn wait_for_live(&self, live: &[u64]) -> u64 {
        let is_so = |status: &Value| standing(status, "live") == live && status["leader"].is_u64();
        let statuses: Vec<Value> = self.running().into_iter().map(|id| self.wait_for(id, "live", is_so)).collect();
        statuses[0]["leader"].as_u64().expect("a leader")
    }

    /// Declares a queue at a node, and again as long as that is refused for now.
    #[track_caller]
    pub(crate) fn declare(&self, id: u64, queue: &str, within: Duration) {
        let until = Instant::now() + within;
        loop {
            let answer = self.client(id).ask(declaration(queue));
            match answer.status {
                201 => return,
                503 if Instant::now() < until => sleep(Duration::from_millis(50)),
                _ => panic!("{queue} at {id}: {answer:?}\n{}", self.node(id).log()),
            }
        }
    }

    /// Waits until a node itself knows these queues as declared.
    #[track_caller]
    pub(crate) fn wait_for_declared(&self, id: u64, queues: &[&str]) {
        let until = Instant::now() + PATIENCE;
        loop {
            let listing = self.client(id).ask(get("/api/v1/ephemeral/queues?scope=node")).json();
            let rows = listing["queues"].as_array().expect("queues");
            let declared: Vec<&str> = rows.iter().filter(|row| row["tier"] == "declared").filter_map(|row| row["queue"].as_str()).collect();
            if declared == queues {
                return;
            }
            assert!(Instant::now() < until, "node {id} knows {declared:?} and not {queues:?}\n{}", self.node(id).log());
            sleep(Duration::from_millis(20));
        }
    }

    /// `mayfly cluster …`, asked of a node.
    pub(crate) fn operate(&self, id: u64, arguments: &[&str]) -> Output {
        let url = format!("http://{}", self.node(id).address);
        mayfly().arg("cluster").args(arguments).args(["--url", &url]).output().expect("runs")
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.nodes.clear();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A declaration of a queue.
pub(crate) fn declaration(queue: &str) -> String {
    post(CONFIGURE, &format!(r#"{{"queue":"{queue}","options":{{"maxLength":7}}}}"#))
}

/// The members of a standing.
pub(crate) fn standing(status: &Value, standing: &str) -> Vec<u64> {
    let members = status["members"].as_array().expect("members");
    members.iter().filter(|row| row["standing"] == standing).filter_map(|row| row["id"].as_u64()).collect()
}

/// Ports that nobody listens on; held together, so that they differ.
fn free_ports(count: u64) -> Vec<u16> {
    let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    held.iter().map(|listener| listener.local_addr().expect("its address").port()).collect()
}
