//! MemEC Fig 8 (§7.2, Experiment 4): the duration of requests while a node is slow, with and without taking its
//! positions away.

use super::duty::Cluster;
use super::ycsb::{KEY_BYTES, Phase, value_as_memec};
use crate::load::{Client, Operation};
use crate::report::{GAIN_OFF, figure};
use crate::servers::Servers;
use crate::stage::Stage;
use crate::{Better, Check, Experiment, Report};
use std::io;
use std::thread;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memec-degraded",
    figure: "MemEC Fig 8",
    claim: "a node whose messages are 2 ms late makes the p95 of SET 11.6 % worse, of UPDATE 50.9 % and GET 36.9 % if \
            it was so before anything was stored, else at most 180 %, and of GET alone 6 %; 469 % and 326 % if \
            nothing is done about it",
    exact: false,
    run,
};

const NODES: u16 = 10;
const SPARES: u16 = 1;
/// The slow node. All others dial it.
const SLOW: u16 = NODES - 1;
/// Number of clients. Each sends one request at a time, to a node of its own that is not slow.
const CLIENTS: u16 = 4;

/// In the paper other servers that have work of their own do that of the slow one too.
const EASIER: &str = "a spare takes the slow node's place; and brings back what it had";

/// What is done about the slow node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    Normal,
    Relieved,
    LeftAlone,
}

const SETTINGS: [Setting; 3] = [Setting::Normal, Setting::Relieved, Setting::LeftAlone];

/// Number of p95 values in µs for one setting. Before anything is stored: SET, and UPDATE and GET of workload A. After
/// everything is stored: UPDATE and GET of workload A, and GET of workload C.
const MEASURED: usize = 6;
const NAMES: [&str; MEASURED] = [
    "before: SET",
    "before: UPDATE",
    "before: GET",
    "after: UPDATE",
    "after: GET",
    "after: GET alone",
];
/// The paper's values, over those of normal operation.
const PAPER: [f64; MEASURED] = [1.116, 1.509, 1.369, 2.78, 2.80, 1.06];
/// The same if nothing is done about the slow node, as far as the paper gives them: UPDATE and GET before.
const PAPER_LEFT_ALONE: [(usize, f64); 2] = [(1, 5.69), (2, 4.26)];

/// Only a slow node has a relay before it: one that stood there in normal operation too would slow that.
fn start(setting: Setting) -> io::Result<Cluster> {
    let slow = (setting != Setting::Normal).then_some(SLOW);
    let servers = Servers::paritas_with_slow("8+2", NODES, SPARES, 256, slow)?;
    servers.set_slow(slow.is_some());
    let ports = servers.any_ports();
    Ok(Cluster { servers, ports })
}

fn p95(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let at = (times.len() * 95 / 100).min(times.len().saturating_sub(1));
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// Runs all requests, divided over the clients. Returns p95 of writes and of reads in µs.
fn take(cluster: &Cluster, requests: &[Operation]) -> io::Result<(f64, f64)> {
    let shares = requests.chunks(requests.len().div_ceil(usize::from(CLIENTS)));
    let one = |port: u16, share: &[Operation]| -> io::Result<(Vec<Duration>, Vec<Duration>)> {
        let mut client = Client::connect_any(&cluster.servers, &[port], KEY_BYTES)?;
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for request in share {
            let outcome = client.run([*request], 1)?;
            if outcome.missing > 0 {
                return Err(io::Error::other("a key is missing"));
            }
            match request {
                Operation::Get(_) => reads.push(outcome.time),
                Operation::Set(..) => writes.push(outcome.time),
            }
        }
        Ok((writes, reads))
    };
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let running: Vec<_> = shares
            .zip(&cluster.ports)
            .map(|(share, port)| scope.spawn(move || one(*port, share)))
            .collect();
        for thread in running {
            let done = thread.join().map_err(|_| io::Error::other("a client has panicked"))?;
            let (these_writes, these_reads) = done?;
            writes.extend(these_writes);
            reads.extend(these_reads);
        }
        io::Result::Ok(())
    })?;
    Ok((p95(writes), p95(reads)))
}

/// Measures before anything is stored, on a new cluster for each setting.
fn before(setting: Setting, stored: u64, requests: u64, seed: u64) -> io::Result<[f64; 3]> {
    let cluster = start(setting)?;
    if setting == Setting::Relieved {
        cluster.order(&[SLOW], "shun")?;
    }
    let mut keys = 0;
    let load = Phase::Load.requests(seed, &mut keys, stored, &value_as_memec);
    let (set, _) = take(&cluster, &load)?;
    let (update, get) = take(&cluster, &Phase::A.requests(seed, &mut keys, requests, &value_as_memec))?;
    Ok([set, update, get])
}

/// Measures after everything is stored, on a new cluster for each setting. If the node's positions are taken away, the
/// requests begin with the order; what it had is brought back while they run.
fn after(setting: Setting, stored: u64, requests: u64, seed: u64) -> io::Result<[f64; 3]> {
    let cluster = start(setting)?;
    cluster.servers.set_slow(false);
    let mut keys = 0;
    let load = Phase::Load.requests(seed, &mut keys, stored, &value_as_memec);
    Client::connect_any(&cluster.servers, &cluster.ports[..1], KEY_BYTES)?.run(load, 1000)?;
    let mut found = [0.0; 3];
    for phase in [Phase::A, Phase::C] {
        let requests = phase.requests(seed, &mut keys, requests, &value_as_memec);
        cluster.servers.set_slow(setting != Setting::Normal);
        if setting == Setting::Relieved {
            cluster.tell(&[SLOW], "shun")?;
        }
        let (update, get) = take(&cluster, &requests)?;
        if setting == Setting::Relieved {
            cluster.until_done(&[SLOW], "shun")?;
            cluster.servers.set_slow(false);
            cluster.order(&[SLOW], "serve")?;
        }
        match phase {
            Phase::A => (found[0], found[1]) = (update, get),
            _ => found[2] = get,
        }
    }
    Ok(found)
}

fn run(stage: &Stage) -> io::Result<Report> {
    let (stored, requests) = (stage.count(20_000, 400).into(), stage.count(20_000, 400).into());
    let rounds = stage.count(5, 1);
    let mut found = vec![vec![Vec::new(); MEASURED]; SETTINGS.len()];
    for round in 0..rounds {
        (stage.say)(&format!("round {}", round + 1));
        for (setting, found) in SETTINGS.into_iter().zip(&mut found) {
            let before = before(setting, stored, requests, round.into())?;
            let after = after(setting, stored, requests, round.into())?;
            for (found, us) in found.iter_mut().zip(before.into_iter().chain(after)) {
                found.push(us);
            }
        }
    }
    let median = |values: &Vec<f64>| {
        let mut values = values.clone();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let p95: Vec<Vec<f64>> = found.iter().map(|each| each.iter().map(median).collect()).collect();
    let columns = [
        "p95 us",
        "normal",
        "relieved",
        "left alone",
        "paper: relieved over normal",
    ];
    let mut report = Report {
        columns: columns.map(str::to_owned).to_vec(),
        logarithmic: (false, true),
        ..Report::default()
    };
    for (at, name) in NAMES.into_iter().enumerate() {
        let mut row = vec![name.to_owned()];
        row.extend(p95.iter().map(|each| figure(each[at])));
        row.push(figure(PAPER[at]));
        report.rows.push(row);
        if stage.is_full() {
            let text = format!("{name}: p95 with the slow node relieved, over normal");
            let ours = p95[1][at] / p95[0][at];
            report
                .checks
                .push(Check::at_most(text, PAPER[at], ours).easier_by(EASIER));
        }
    }
    for (at, paper) in PAPER_LEFT_ALONE.into_iter().filter(|_| stage.is_full()) {
        let text = format!("{}: p95 with nothing done about the slow node, over normal", NAMES[at]);
        let ours = p95[2][at] / p95[0][at];
        let check = Check::near(text, paper, ours, GAIN_OFF).judged(Better::Neither, p95[2][at] > p95[1][at]);
        report.checks.push(check);
    }
    report.remarks.push(format!(
        "us, median of {rounds} rounds of {requests} requests over {stored} objects of 8 and 32 B, {CLIENTS} clients \
         with one request each. `8+2` on {NODES} nodes and a spare; what one node sends to the others is late by \
         2±1 ms, through a relay that stands there but in normal operation. No request failed, and no key was \
         missing, or the run ends. Relieved: it is shunned, before anything is \
         stored or with the first request after; what it had is brought back while they come. Left alone: it goes on \
         as it is."
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p95_has_five_of_a_hundred_above_it() {
        let times = (1..=100).rev().map(Duration::from_micros).collect();
        assert!((p95(times) - 96.0).abs() < 1e-6);
        assert!(p95(Vec::new()).abs() < 1e-6);
    }
}
