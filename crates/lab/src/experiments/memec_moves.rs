//! MemEC Table 2 (§7.2, Experiment 5): the time to move a node's positions to others, and back.

use super::duty::Cluster;
use crate::load::{Client, Operation, Outcome};
use crate::report::figure;
use crate::servers::Servers;
use crate::stage::Stage;
use crate::workload::Workload;
use crate::{Check, Experiment, Report};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memec-moves",
    figure: "MemEC Table 2",
    claim: "one node's work is elsewhere after 4.77 ms with requests and 1.74 ms without, two nodes' after 9.24 and \
            4.91; back after 629 and 668 ms with requests, 1 ms without; always within a second",
    exact: false,
    run,
};

const NODES: u16 = 10;
const SPARES: u16 = 2;
/// With or without requests, number of nodes, and the paper's times in ms: there and back.
const PAPER: [(bool, u16, f64, f64); 4] = [
    (true, 1, 4.77, 628.5),
    (true, 2, 9.24, 667.5),
    (false, 1, 1.74, 0.91),
    (false, 2, 4.91, 1.10),
];

const WHY_BACK: &str = "the coordinator commits a new holder for each of the node's lists with and without requests";
/// In the paper the node that leaves is slow by 2 ms, and no spare takes its place.
const EASIER: &str = "the node that leaves is not slow here; and spares take its place";

/// Medians of several rounds in ms: slowest takeover there, all there, slowest takeover back, all back.
fn measure(cluster: &Cluster, count: u16, rounds: u32) -> io::Result<[f64; 4]> {
    let mut found: [Vec<f64>; 4] = Default::default();
    for round in 0..rounds as u16 {
        let nodes: Vec<u16> = (0..count).map(|n| 1 + (round + n * 4) % (NODES - 1)).collect();
        let there = cluster.order(&nodes, "shun")?;
        let back = cluster.order(&nodes, "serve")?;
        for (found, ms) in found.iter_mut().zip([there.0, there.1, back.0, back.1]) {
            found.push(ms);
        }
    }
    Ok(found.map(|mut each| {
        each.sort_by(f64::total_cmp);
        each[each.len() / 2]
    }))
}

fn run(stage: &Stage) -> io::Result<Report> {
    let (objects, rounds) = (stage.count(100_000, 2_000), stage.count(9, 1));
    let servers = Servers::paritas_with_spares("8+2", NODES, SPARES, 256)?;
    let ports = servers.any_ports();
    let mut client = Client::connect_any(&servers, &ports[..usize::from(NODES)], 24)?;
    let value = |key: u64| if key.is_multiple_of(2) { 8 } else { 32 };
    client.run((0..objects.into()).map(|key| Operation::Set(key, value(key))), 1000)?;
    // A shunned position is not drained first, so that requests may be refused.
    client.may_be_refused = true;
    let (mut asked, mut refused) = (0, 0);
    let cluster = Cluster { servers, ports };
    let columns = [
        "state",
        "there: slowest takeover",
        "there: all",
        "back: slowest takeover",
        "back: all",
        "paper: there",
        "paper: back",
    ];
    let mut report = Report {
        columns: columns.map(str::to_owned).to_vec(),
        logarithmic: (false, true),
        ..Report::default()
    };
    let stop = AtomicBool::new(false);
    for (requests, count, there, back) in PAPER {
        let name = format!(
            "{count} node{} {}",
            if count > 1 { "s" } else { "" },
            if requests { "busy" } else { "idle" }
        );
        (stage.say)(&name);
        stop.store(!requests, Ordering::Relaxed);
        let found = thread::scope(|scope| {
            let client = &mut client;
            let load = scope.spawn(|| {
                let mut workload = Workload::new(5, objects, 50);
                let mut all = Outcome::default();
                while !stop.load(Ordering::Relaxed) {
                    let some = (0..100).map(|n| {
                        let key = u64::from(workload.next_object());
                        if n % 2 == 0 {
                            Operation::Get(key)
                        } else {
                            Operation::Set(key, value(key))
                        }
                    });
                    let outcome = client.run(some, 10)?;
                    all.count += outcome.count;
                    all.refused += outcome.refused;
                    // About a third of what one core can do, so that mainly the moves are measured.
                    thread::sleep(Duration::from_millis(5));
                }
                io::Result::Ok(all)
            });
            let found = measure(&cluster, count, rounds);
            stop.store(true, Ordering::Relaxed);
            let all = load.join().map_err(|_| io::Error::other("the client has panicked"))??;
            asked += all.count;
            refused += all.refused;
            found
        })?;
        let mut row = vec![name.clone()];
        row.extend(found.map(figure));
        row.extend([there, back].map(figure));
        report.rows.push(row);
        if stage.is_full() {
            for (what, paper, ours) in [
                ("N→D; ms", there, found[0]),
                ("D→N; ms", back, found[3]),
                ("all there; ms: within a second", 1000.0, found[1]),
                ("all back; ms: within a second", 1000.0, found[3]),
            ] {
                let check = Check::at_most(format!("{name}: {what}"), paper, ours).easier_by(EASIER);
                let is_back = what.starts_with("D→N");
                report
                    .checks
                    .push(if is_back { check.because(WHY_BACK) } else { check });
            }
        }
    }
    report.remarks.push(format!(
        "ms, median of {rounds} rounds. `8+2` on {NODES} nodes and {SPARES} spares, {objects} objects of 8 and 32 B. \
         There: the node is shunned; its slowest takeover, from Seal to Serve, as the paper's T_N→D, and all until \
         everything it held is whole elsewhere. Back: the same until it serves all that is its by plan, as the \
         paper's T_D→N. Of {asked} requests of the client, workload A at any node, {refused} were refused, to be asked \
         again."
    ));
    Ok(report)
}
