//! MemEC Fig 6 (§7.1, Experiment 2): the cost of coding, compared with no coding and with three copies.

use super::ycsb::{Extent, Phase, compare, report, value_as_memec};
use crate::servers::Servers;
use crate::stage::Stage;
use crate::{Better, Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memec-coding",
    figure: "MemEC Fig 6",
    claim: "(10,8): 57 % of the throughput of no coding when loading, 88 % at A, all of it at C; more than Redis with \
            three copies",
    exact: false,
    run,
};

const NODES: u16 = 10;
const PHASES: [Phase; 3] = [Phase::Load, Phase::A, Phase::C];
/// The paper's ratios by workload: RS coding over no coding, and RS coding over Redis with three copies.
const PAPER: [(f64, f64); 3] = [(0.572, 2.64), (0.882, 1.04), (1.0, 1.039)];

/// The paper gives throughput, which has proxies and network in it. No coding needs those as well.
const WHY: &str = "CPU time of the servers stands for throughput";
/// §4.3: a SET sends the object to each parity. When its chunk is sealed, the key is sent once more, with its length.
const PAPER_BYTES: f64 = 2.0 * (4.0 + 24.0 + 20.0) + 2.0 * (24.0 + 1.0);

fn run(stage: &Stage) -> io::Result<Report> {
    let systems = [
        Servers::paritas("8+2", NODES, 256)?,
        Servers::paritas("10+0", NODES, 256)?,
        Servers::redis(NODES, 2)?,
    ];
    let extent = Extent::as_memec(stage);
    let cells = compare(stage, &systems, &PHASES, &extent, &value_as_memec)?;
    let mut report = report(&systems, &PHASES, &cells);
    for (p, phase) in PHASES.iter().enumerate().filter(|_| stage.is_full()) {
        let over = |other: usize| cells[other][p].cpu_us / cells[0][p].cpu_us;
        let (share, copies) = PAPER[p];
        let text = format!("{}: requests for a CPU second, over no coding", phase.name());
        report.checks.push(Check::near(text, share, over(1), 0.1).because(WHY));
        let text = format!(
            "{}: requests for a CPU second, over those of {}",
            phase.name(),
            systems[2].name
        );
        let check = Check::at_least(text, copies, over(2)).judged(Better::Neither, over(2) > 1.0);
        report.checks.push(check.because(WHY));
    }
    let few = Check::at_most("a SET's bytes between nodes", PAPER_BYTES, cells[0][0].bytes);
    report.checks.push(few.because(
        "the paper's are contents alone; ours are all that TCP carries, headers of messages, index entries and \
         acknowledgements too",
    ));
    report.remarks.push(format!(
        "{NODES} servers that clients speak with, keys of 24 B, values of 8 and 32 B, {} requests under way; {} \
         rounds in turn, median, of {} requests each. Bytes between nodes in the paper, without headers: the object \
         to two parities, and its key when the chunk is sealed, {PAPER_BYTES} B. \
         Every key that was written is found, or the run ends. Not measured: p95.",
        super::ycsb::WINDOW,
        extent.rounds,
        extent.requests
    ));
    Ok(report)
}
