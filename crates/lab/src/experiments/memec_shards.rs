//! MemEC's worker threads (§6): whether the cost of a request depends on the number of cores. Here a shard is a
//! process.

use super::ycsb::{Extent, Phase, compare, nothing_is_missing, report, value_as_memec};
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

const WHY_CORES: &str = "16 processes take turns on two cores, and find their caches cold";

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
            let text = format!("{}: CPU time on one shard, over that on {shards}", phase.name());
            let check = Check::at_least(text, 0.9, cells[0][p].cpu_us / cells[at][p].cpu_us);
            report.checks.push(check.missed_because(WHY_CORES));
        }
    }
    report.checks.push(nothing_is_missing());
    report.remarks.push(format!(
        "CPU time of all processes, us a request, median of {} rounds of {} requests, {WINDOW} under way at each \
         shard: `1+0`, a process each. The growth of requests a second cannot be measured on two cores, one of which is \
         the client's.",
        extent.rounds, extent.requests
    ));
    Ok(report)
}
