//! MemEC Fig 5 (§7.1, Experiment 1): Paritas without coding, compared with memcached and with Valkey or Redis.

use super::ycsb::{Extent, Phase, compare, nothing_is_missing, report, value_as_memec};
use crate::servers::Servers;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
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

const WHY_MEMCACHED: &str = "the paper's memcached has twelve threads that wait for each other, this one has one";
const WHY_LOAD: &str = "the paper's servers load with twelve threads against one of Redis; CPU time of a thread is not \
                        saved by there being more of them";
const WHY_CPU: &str = "the paper's throughput has its proxies and network in it, this is the servers' CPU time alone";

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
            let check = Check::at_least(text, 2.7, over(2));
            report.checks.push(check.missed_because(WHY_MEMCACHED));
            let (paper, why) = match phase {
                Phase::Load => (4.2, WHY_LOAD),
                Phase::A => (1.084, WHY_CPU),
                _ => (0.967, WHY_CPU),
            };
            let text = format!(
                "{}: requests for a CPU second, over those of {}",
                phase.name(),
                systems[1].name
            );
            report
                .checks
                .push(Check::at_least(text, paper, over(1)).missed_because(why));
        }
    }
    report.checks.push(nothing_is_missing());
    report.remarks.push(format!(
        "{NODES} servers of each system, keys of 24 B, values of 8 and 32 B, {} requests under way; {} rounds in turn, \
         median, of {} requests each.",
        super::ycsb::WINDOW,
        extent.rounds,
        extent.requests
    ));
    Ok(report)
}
