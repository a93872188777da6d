//! Settings of a node that has peers.

use std::time::Duration;

use super::super::{peers, value};
use super::{Setting, put};

/// See the module.
pub const CLUSTER_SETTINGS: &[Setting] = &[
    Setting {
        flag: "node-id",
        published: None,
        value_name: "N",
        default: "1 for a node alone",
        help: "Which node of its cluster this is; its data folder is this node's alone",
        expected: "a whole number from 1 on",
        set: |settings, text| put(&mut settings.node_id, value::whole(text, 1..=u64::MAX).map(Some)),
    },
    Setting {
        flag: "peers",
        published: None,
        value_name: "ID=HOST:PORT,...",
        default: "none: a node alone",
        help: "Nodes of the cluster with their peer ports, this one too, the same list on each. Those of the first start begin the cluster together",
        expected: "ids and addresses such as 1=a.example:6633,2=b.example:6633,3=c.example:6633",
        set: |settings, text| put(&mut settings.peers, peers::read(text)),
    },
    Setting {
        flag: "peer-listen",
        published: None,
        value_name: "ADDR",
        default: "--listen's address, the port of --peers",
        help: "Address and port for the other nodes of the cluster",
        expected: "an IP address and a port such as 10.0.0.1:6633 or [::]:6633",
        set: |settings, text| put(&mut settings.peer_listen, value::socket_address(text).map(Some)),
    },
    Setting {
        flag: "join",
        published: None,
        value_name: "on|off",
        default: "off",
        help: "A node with a new data folder waits until `mayfly cluster add` takes it into the cluster of --peers",
        expected: "on or off",
        set: |settings, text| put(&mut settings.join, value::switch(text)),
    },
    Setting {
        flag: "cluster-secret-file",
        published: None,
        value_name: "FILE",
        default: "none: a node alone",
        help: "File with the secret of the cluster, 16 bytes or more, the same on each node and readable by this user alone",
        expected: "the path of a file",
        set: |settings, text| put(&mut settings.cluster_secret_file, value::path(text).map(Some)),
    },
    Setting {
        flag: "member-ttl-ms",
        published: None,
        value_name: "MS",
        default: "4000",
        help: "A node that was silent for so long is down: others take over what it owned, empty",
        expected: "whole milliseconds from 500 to 600000",
        set: |settings, text| put(&mut settings.member_ttl, value::whole(text, 500..=600_000).map(Duration::from_millis)),
    },
];
