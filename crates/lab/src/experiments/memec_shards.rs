//! MemEC's worker threads (§6): whether the cost of a request depends on the number of cores. Here a shard is a
//! process.

use super::ycsb::{Extent, Phase, compare, report, value_as_memec};
use crate::servers::Servers;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memec-shards",
    figure: "MemEC §6",
    claim: "(ours) a request costs as much CPU time on 16 shards as on one",
    exact: false,
    run,
};

const SHARDS: [u16; 5] = [1, 2, 4, 8, 16];
const PHASES: [Phase; 3] = [Phase::Load, Phase::A, Phase::C];
/// Requests under way at each shard.
const WINDOW: usize = 64;

fn run(stage: &Stage) -> io::Result<Report> {
    let systems: Vec<Servers> = SHARDS
        .into_iter()
        .map(|shards| {
            let mut servers = Servers::paritas("1+0", shards, 256)?;
            servers.name = format!("{shards} shards");
            Ok(servers)
        })
        .collect::<io::Result<_>>()?;
    let extent = Extent {
        window_each: Some(WINDOW),
        ..Extent::as_memec(stage)
    };
    let cells = compare(stage, &systems, &PHASES, &extent, &value_as_memec)?;
    let mut report = report(&systems, &PHASES, &cells);
    for (at, shards) in SHARDS.into_iter().enumerate().skip(1) {
        for (p, phase) in PHASES.iter().enumerate().filter(|_| stage.is_full()) {
            let text = format!(
                "{}: CPU time of a request on {shards} shards, over that on one",
                phase.name()
            );
            let ours = cells[at][p].cpu_us / cells[0][p].cpu_us;
            report.checks.push(Check::at_most(text, 1.1, ours).own());
        }
    }
    report.remarks.push(format!(
        "CPU time of all processes, us a request, median of {} rounds of {} requests, {WINDOW} under way at each \
         shard: `1+0`, a process each. The growth of requests a second cannot be measured on two cores: the client \
         uses one of them.",
        extent.rounds, extent.requests
    ));
    Ok(report)
}
