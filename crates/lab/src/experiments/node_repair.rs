//! LogECMem Fig 15 (§6.3, Experiment 7): repair of a node of memory, with and without the log nodes' help.

use super::{CODES, code_name};
use crate::baselines::System;
use crate::baselines::in_place::InPlace;
use crate::baselines::network::Way;
use crate::baselines::run::{load, value};
use crate::report::figure;
use crate::stage::{HOP, Logs, Nodes, Stage};
use crate::workload::{Request, Workload};
use crate::{Check, Experiment, Report, Table, Verdict};
use paritas_paritylog::Layout;
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "node-repair",
    figure: "LogECMem Fig 15",
    claim: "with the log nodes' help a node is made again up to 18.2 % faster; both get slower with k",
    exact: false,
    run,
};

const VALUE_BYTES: usize = 4096;
const RUNS: u32 = 3;

/// Waits for each chunk, and MiB a second.
#[derive(Clone, Copy, Default, Debug)]
struct Found {
    waits: f64,
    rate: f64,
}

fn measure(code: (u8, u8), objects: u32, runs: u32, way: Way) -> io::Result<[Found; 2]> {
    let logs = Logs::new(code, Layout::Plm, objects, VALUE_BYTES);
    let (_nodes, network) = Nodes::start(usize::from(code.0) + 1, VALUE_BYTES, Some(&logs))?;
    let mut system = InPlace::new(network, code.0, code.1, VALUE_BYTES)?;
    load(&mut system, objects, VALUE_BYTES)?;
    let mut workload = Workload::new(5, objects, 5);
    for round in 1..=objects {
        if let Request::Update(object) = workload.next_request() {
            system.update(object, &value(object, round, VALUE_BYTES))?;
        }
    }
    system.network().settle()?;
    system.network().set_way(way);
    system.network().set_hop(HOP);
    let mut found = [Found::default(); 2];
    for run in 0..runs {
        for (found, log_assist) in found.iter_mut().zip([false, true]) {
            let before = system.network().counts();
            system.network().take_waits();
            let node = run as usize % usize::from(code.0);
            let repaired = system.repair_node(node, log_assist)?;
            let rate = repaired.bytes as f64 / f64::from(1 << 20) / system.network().take_waits().as_secs_f64();
            let counts = system.network().counts().since(before);
            found.waits = counts.one_by_one as f64 / repaired.chunks.max(1) as f64;
            found.rate = found.rate.max(rate);
        }
    }
    Ok(found)
}

fn run(stage: &Stage) -> io::Result<Report> {
    let objects = stage.count(3000, 120);
    let codes = if stage.is_full() { &CODES[..] } else { &CODES[..1] };
    let columns = ["k", "without", "log-assist", "without; at once", "log-assist; at once"];
    let mut report = Report {
        columns: columns.map(str::to_owned).to_vec(),
        ..Report::default()
    };
    let mut table = Table {
        name: "counts",
        columns: ["code", "waits without", "waits with log-assist"]
            .map(str::to_owned)
            .to_vec(),
        rows: Vec::new(),
    };
    let mut rates = Vec::new();
    for code in codes {
        (stage.say)(&format!("node repair, {}", code_name(*code)));
        let runs = stage.count(RUNS, 1);
        let [without, with] = measure(*code, objects, runs, Way::OneByOne)?;
        let at_once = measure(*code, objects, runs, Way::AtOnce)?;
        let cells = [without, with, at_once[0], at_once[1]].map(|found| figure(found.rate));
        report
            .rows
            .push([code.0.to_string()].into_iter().chain(cells).collect());
        let waits = [without, with].map(|found| figure(found.waits));
        table.rows.push([code_name(*code)].into_iter().chain(waits).collect());
        let text = format!("{}: waits for a chunk, without over with", code_name(*code));
        let k = f64::from(code.0);
        report
            .checks
            .push(Check::near(text, k / (k - 1.0), without.waits / with.waits, 0.03).own());
        rates.push([[without.rate, with.rate], [at_once[0].rate, at_once[1].rate]]);
    }
    if stage.is_full() {
        for (way, name) in ["one by one", "at once"].into_iter().enumerate() {
            let faster = |of: &[[f64; 2]; 2]| 100.0 * (of[way][1] / of[way][0] - 1.0);
            let (first, last) = (&rates[0], &rates[rates.len() - 1]);
            let text = format!("(6;3), {name}: log-assist, faster by %");
            let gain = Check::gain(text, 18.2, faster(first));
            let is_told = gain.verdict() != Verdict::NotReproduced;
            report.checks.push(gain);
            let text = format!(
                "{name}: its gain is the most at k=6, and falls to k=15 ({} and {} %)",
                figure(faster(first)),
                figure(faster(last))
            );
            let falls = is_told && faster(first) > faster(last);
            report.checks.push(Check::claim(text, falls));
            let text = format!("{name}: the rate at k=15 over that at k=6: it falls");
            report
                .checks
                .push(Check::at_most(text, 1.0, last[way][1] / first[way][1]));
        }
    }
    report.tables.push(table);
    report.remarks.push(format!(
        "{objects} objects of 4 KiB; MiB of the lost node made again a second, the best of {RUNS} runs, waits \
         above three times the median counted as that, messages one by \
         one and all of a step at once. At once there is one wait with or without help: then it saves the nodes of \
         memory one of k chunks to send, and no time as long as no one else needs them."
    ));
    Ok(report)
}
