//! What waiting costs: next to nothing.

use std::thread::sleep;
use std::time::Duration;

use super::process::client::{Client, pop};
use super::process::raise_open_files;
use super::process::trials::holds_once;
use super::{alone, await_parked, start};

/// CPU time of a process, of ticks of 10 ms.
fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its stat");
    let (_, after_name) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<_> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<u64>().expect("ticks");
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// Resident bytes of a process.
fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("RSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kB") * 1024
}

fn parked_pops_cost_next_to_nothing(shards: usize) {
    let _alone = alone();
    let count = (raise_open_files() - 500).min(10_000);
    let node = start(shards);
    let mut control = Client::connect(node.address);
    let before = resident_bytes(node.pid());
    let park = |index: usize| {
        let mut client = Client::connect(node.address);
        client.send(pop(&format!("inbox{}", index % 100), "&wait=true&timeout=300000"));
        client
    };
    let parked: Vec<_> = (0..count).map(park).collect();
    await_parked(&node, &mut control, count as u64);
    let bytes_each = resident_bytes(node.pid()).saturating_sub(before) / count as u64;
    // The first deadlines of the connections as such pass before the measurement.
    sleep(Duration::from_millis(500));
    // The kernel counts in hundredths of a second: three seconds leave two of them between what is used and what may be.
    let span = Duration::from_secs(6);
    holds_once(|| {
        let cpu = cpu_time(node.pid());
        sleep(span);
        let used = cpu_time(node.pid()) - cpu;
        println!("{count} parked pops, {shards} shards: {used:?} of CPU in {span:?}, {bytes_each} bytes RSS each");
        if used * 100 < span { Ok(()) } else { Err(format!("{used:?} of CPU in {span:?}")) }
    });
    drop(parked);
}

#[test]
fn ten_thousand_parked_pops_cost_next_to_nothing_on_one_shard() {
    parked_pops_cost_next_to_nothing(1);
}

#[test]
fn ten_thousand_parked_pops_cost_next_to_nothing_on_four_shards() {
    parked_pops_cost_next_to_nothing(4);
}
