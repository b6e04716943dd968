//! MemEC Fig 5 (§7.1, Experiment 1): Paritas without coding, compared with memcached and with Valkey or Redis.

use super::ycsb::{Extent, Phase, compare, report, value_as_memec};
use crate::report::GAIN_OFF;
use crate::servers::Servers;
use crate::stage::Stage;
use crate::{Better, Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memec-systems",
    figure: "MemEC Fig 5",
    claim: "without coding it does what memcached and Redis do: 2.7 times memcached's throughput, that of Redis \
            but for loading, which is 4.2 times as fast",
    exact: false,
    run,
};

const NODES: u16 = 10;
const PHASES: [Phase; 6] = [Phase::Load, Phase::A, Phase::B, Phase::C, Phase::D, Phase::F];

/// The paper gives throughput, and CPU time stands for it here: it has no proxy, no network, and no gain by threads.
const WHY: &str = "CPU time of the servers stands for throughput";
/// "Close" to Redis means within a tenth.
const CLOSE: f64 = 0.1;

fn run(stage: &Stage) -> io::Result<Report> {
    let systems = [
        Servers::paritas("10+0", NODES, 256)?,
        Servers::redis(NODES, 0)?,
        Servers::memcached(NODES)?,
    ];
    let extent = Extent::as_memec(stage);
    let cells = compare(stage, &systems, &PHASES, &extent, &value_as_memec)?;
    let mut report = report(&systems, &PHASES, &cells);
    if stage.is_full() {
        for (p, phase) in PHASES.iter().enumerate() {
            let over = |other: usize| cells[other][p].cpu_us / cells[0][p].cpu_us;
            let text = format!("{}: requests for a CPU second, over memcached's", phase.name());
            let check = Check::within(text, (2.7, 3.1), over(2)).judged(Better::Neither, over(2) > 1.0);
            report.checks.push(check.because(WHY));
            let (paper, off) = match phase {
                Phase::Load => (4.2, GAIN_OFF),
                Phase::A => (1.084, CLOSE),
                _ => (0.978, CLOSE),
            };
            let text = format!(
                "{}: requests for a CPU second, over those of {}",
                phase.name(),
                systems[1].name
            );
            let check = Check::near(text, paper, over(1), off).judged(Better::Neither, paper > 1.0 && over(1) > 1.0);
            report.checks.push(check.because(WHY));
        }
    }
    report.remarks.push(format!(
        "{NODES} servers of each system, keys of 24 B, values of 8 and 32 B, {} requests under way; {} rounds in turn, \
         median, of {} requests each. Every key that was written is found, or the run ends. Not measured: p95.",
        super::ycsb::WINDOW,
        extent.rounds,
        extent.requests
    ));
    Ok(report)
}
