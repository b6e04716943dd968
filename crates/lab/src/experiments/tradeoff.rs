//! LogECMem Fig 16 and Table 3 (§6.4): memory against updates, and which system is best where.

use super::code_name;
use super::memory::accounted;
use super::update_latency::counted;
use super::updated_stripes::UPDATE_PERCENTS;
use crate::baselines::run::Kind;
use crate::report::figure;
use crate::stage::Stage;
use crate::{Check, Experiment, Report, Table};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tradeoff",
    figure: "LogECMem Fig 16 and Table 3",
    claim: "LogECMem takes the least memory everywhere; its updates are the fastest with few updates or a large k",
    exact: false,
    run,
};

const CODES: [(u8, u8); 8] = [(6, 3), (10, 4), (12, 4), (15, 3), (16, 4), (32, 4), (64, 4), (128, 4)];
const KINDS: [Kind; 3] = [Kind::IpMem, Kind::FsMem, Kind::LogEcMem];
const OBJECTS: u32 = 1_000_000;

/// Table 3: whether LogECMem's updates are the fastest.
fn best_in_paper(k: u8, percent: u64) -> bool {
    match percent {
        5 => true,
        20 => k >= 12,
        30 => k >= 16,
        _ => false,
    }
}

const WHY: &str =
    "FSMem's cost depends on when it collects garbage, which the paper does not say: here once, after the run";

fn run(stage: &Stage) -> io::Result<Report> {
    let mut report = Report {
        columns: vec!["waits".to_owned()],
        ..Report::default()
    };
    let mut table = Table {
        name: "points",
        columns: ["code", "r:u", "system", "waits", "memory"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    let mut points = Vec::new();
    for code in CODES {
        (stage.say)(&format!("tradeoff, {}", code_name(code)));
        for percent in UPDATE_PERCENTS {
            let mut waits = [0.0; 3];
            for (waits, kind) in waits.iter_mut().zip(KINDS) {
                let found = counted(kind, code, stage.count(OBJECTS, 20_000), percent)?;
                *waits = found.mean(found.cost.one_by_one);
                let memory = accounted(kind, code, percent);
                let names = [
                    code_name(code),
                    format!("{}:{percent}", 100 - percent),
                    kind.name(code.1),
                ];
                table
                    .rows
                    .push(names.into_iter().chain([figure(*waits), figure(memory)]).collect());
                points.push((kind, *waits, memory));
            }
            let [ipmem, fsmem, logecmem] = waits;
            let label = format!("{} {}:{percent}", code_name(code), 100 - percent);
            let best = logecmem < ipmem.min(fsmem);
            let agrees = best == best_in_paper(code.0, percent);
            let said = if best_in_paper(code.0, percent) {
                "wait"
            } else {
                "do not wait"
            };
            let text = format!("{label}: LogECMem's updates {said} the least often");
            report.checks.push(Check::claim(text, agrees).because(WHY));
            let least = accounted(Kind::LogEcMem, code, percent)
                < accounted(Kind::IpMem, code, percent).min(accounted(Kind::FsMem, code, percent));
            report
                .checks
                .push(Check::claim(format!("{label}: LogECMem takes the least memory"), least));
        }
    }
    // A line for each system over waits. Missing points are left empty.
    points.sort_by(|a, b| a.1.total_cmp(&b.1));
    report
        .columns
        .extend(KINDS.map(|kind| format!("memory {}", kind.name(0))));
    for (kind, waits, memory) in points {
        let cell = |of: Kind| if of == kind { figure(memory) } else { "nan".to_owned() };
        report
            .rows
            .push([figure(waits)].into_iter().chain(KINDS.map(cell)).collect());
    }
    report.tables.push(table);
    report.remarks.push(format!(
        "Waits of an update with messages one by one, counted over {OBJECTS} objects and as many requests, garbage \
         included; memory in bytes of the values, by accounting."
    ));
    Ok(report)
}
