//! MemEC Fig 7 (§7.1, Experiment 3): values of 8 B to 16 KiB with code (10,8).

use super::ycsb::{Extent, Phase, compare};
use crate::report::{GAIN_OFF, figure};
use crate::servers::Servers;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memec-sizes",
    figure: "MemEC Fig 7",
    claim: "below 1 KiB the cost of a request is the limit; from there on bytes a second stay the same",
    exact: false,
    run,
};

const PHASES: [Phase; 3] = [Phase::Load, Phase::A, Phase::C];
const SIZES: [usize; 7] = [8, 32, 128, 512, 1024, 4096, 16_384];

fn run(stage: &Stage) -> io::Result<Report> {
    let sizes = if stage.is_full() { &SIZES[..] } else { &SIZES[5..] };
    let columns = ["B", "load", "A", "C", "load: CPU us", "A: CPU us", "C: CPU us"];
    let mut report = Report {
        columns: columns.map(str::to_owned).to_vec(),
        logarithmic: (true, true),
        ..Report::default()
    };
    let extent = Extent {
        loaded: stage.count(20_000, 500).into(),
        requests: stage.count(20_000, 500).into(),
        rounds: stage.count(3, 1),
        window_each: None,
    };
    let mut all = Vec::new();
    for bytes in sizes {
        (stage.say)(&format!("values of {bytes} B"));
        let systems = [Servers::paritas("8+2", 10, 512)?];
        let cells = compare(stage, &systems, &PHASES, &extent, &|_| *bytes)?.remove(0);
        let mb = |p: usize| *bytes as f64 / cells[p].cpu_us;
        let mut row = vec![bytes.to_string()];
        row.extend([mb(0), mb(1), mb(2)].map(figure));
        row.extend([0, 1, 2].map(|p| figure(cells[p].cpu_us)));
        report.rows.push(row);
        all.push(cells);
    }
    if stage.is_full() {
        let at = |bytes: usize| sizes.iter().position(|size| *size == bytes).unwrap_or_default();
        for (p, phase) in PHASES.iter().enumerate() {
            let cost = |bytes: usize| all[at(bytes)][p].cpu_us;
            let rate = |bytes: usize| bytes as f64 / cost(bytes);
            // The paper says what is the limit, and gives no figures below 1 KiB.
            let text = format!("{}: CPU time of a request, 512 B over 8 B", phase.name());
            report
                .checks
                .push(Check::near(text, 1.0, cost(512) / cost(8), GAIN_OFF));
            let text = format!("{}: bytes for a CPU second, 16 KiB over 1 KiB", phase.name());
            let check = Check::near(text, 1.0, rate(16_384) / rate(1024), GAIN_OFF);
            report
                .checks
                .push(check.because("CPU time of the servers stands for throughput"));
        }
    }
    report.remarks.push(format!(
        "MB of values for a CPU second of all processes of `8+2` on ten nodes, {} rounds of {} requests, median. The \
         paper's 36.5, 181 and 89 MB/s are those of its network and machines.",
        extent.rounds, extent.requests
    ));
    Ok(report)
}
