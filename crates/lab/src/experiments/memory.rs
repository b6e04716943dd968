//! LogECMem Fig 12 (§6.3, Experiment 3): memory of data and parity, by accounting and measured on memcached.

use super::updated_stripes::UPDATE_PERCENTS;
use super::{CODES, code_name};
use crate::baselines::System;
use crate::baselines::run::{Kind, REDUNDANT, load, value};
use crate::report::figure;
use crate::stage::{Logs, Stage};
use crate::workload::{Request, Workload};
use crate::{Better, Check, Experiment, Report, Table};
use paritas_paritylog::Layout;
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memory",
    figure: "LogECMem Fig 12",
    claim: "LogECMem takes 22.2 % less memory than IPMem, up to 49.0 % less than FSMem, up to 79.3 % less than copies",
    exact: false,
    run,
};

const VALUE_BYTES: usize = 4096;

/// Chunks in memory for each object (§6.3). Replication: copies. IPMem: data and all parity. FSMem: the same for every
/// version. LogECMem: data and one parity.
pub(crate) fn accounted(kind: Kind, (k, r): (u8, u8), percent: u64) -> f64 {
    let (k, r) = (f64::from(k), f64::from(r));
    match kind {
        Kind::Vanilla => 1.0,
        Kind::Replication => r + 1.0,
        Kind::IpMem => (k + r) / k,
        Kind::FsMem => (1.0 + percent as f64 / 100.0) * (k + r) / k,
        Kind::LogEcMem => (k + 1.0) / k,
    }
}

/// By how many percent LogECMem takes less memory.
pub(crate) fn less_than(kind: Kind, code: (u8, u8), percent: u64) -> f64 {
    100.0 * (1.0 - accounted(Kind::LogEcMem, code, percent) / accounted(kind, code, percent))
}

/// Bytes that memcached reports, over the bytes of the values, after as many requests as there are objects.
pub(crate) fn measured(kind: Kind, code: (u8, u8), objects: u32, percent: u64) -> io::Result<f64> {
    let logs = Logs::new(code, Layout::Plm, objects, VALUE_BYTES);
    let (_nodes, mut system) = kind.real(code, VALUE_BYTES, &logs)?;
    load(&mut *system, objects, VALUE_BYTES)?;
    update_all(&mut *system, objects, percent)?;
    Ok(system.network().stored_bytes()? as f64 / (f64::from(objects) * VALUE_BYTES as f64))
}

fn update_all(system: &mut dyn System, objects: u32, percent: u64) -> io::Result<()> {
    let mut workload = Workload::new(percent, objects, percent);
    for round in 1..=objects {
        if let Request::Update(object) = workload.next_request() {
            system.update(object, &value(object, round, VALUE_BYTES))?;
        }
    }
    Ok(())
}

/// Adds the plotted rows and the measured values beside accounting. Checks that both agree.
pub(crate) fn sweep(stage: &Stage, codes: &[(u8, u8)], objects: u32, report: &mut Report) -> io::Result<()> {
    report.columns.push("updates %".to_owned());
    report.rows = UPDATE_PERCENTS
        .iter()
        .map(|percent| vec![percent.to_string()])
        .collect();
    let columns = ["code", "r:u", "system", "accounted", "measured"];
    let mut table = Table {
        name: "accounting",
        columns: columns.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    for code in codes {
        for kind in REDUNDANT {
            (stage.say)(&format!("memory, {} {}", code_name(*code), kind.name(code.1)));
            report
                .columns
                .push(format!("{} {}", code_name(*code), kind.name(code.1)));
            let mut off: f64 = 0.0;
            let mut in_place = None;
            for (row, percent) in UPDATE_PERCENTS.into_iter().enumerate() {
                let accounted = accounted(kind, *code, percent);
                // With updates in place, the number of updates changes nothing.
                let found = match in_place {
                    Some(found) if kind != Kind::FsMem => found,
                    _ => measured(kind, *code, objects, percent)?,
                };
                in_place = Some(found);
                off = off.max((found / accounted - 1.0).abs());
                report.rows[row].push(figure(found));
                let cells = [figure(accounted), figure(found)];
                let names = [
                    code_name(*code),
                    format!("{}:{percent}", 100 - percent),
                    kind.name(code.1),
                ];
                table.rows.push(names.into_iter().chain(cells).collect());
            }
            // The difference: keys and headers of items, and stripes that are not full.
            let what = format!("{} {}: measured over accounted", code_name(*code), kind.name(code.1));
            if stage.is_full() {
                report.checks.push(Check::near(what, 1.0, 1.0 + off, 0.06).own());
            }
        }
    }
    report.tables.push(table);
    report.remarks.push(format!(
        "In bytes of the values. Measured: what {objects} objects of 4 KiB take by memcached's own count, with \
         heads and keys, after as many requests; FSMem before it collects garbage."
    ));
    Ok(())
}

const WHY_ACCOUNTING: &str = "the paper's own accounting gives ours: 1 - (k+1)/(k (r+1)), and 1 - (k+1)/((1+p)(k+r))";

fn run(stage: &Stage) -> io::Result<Report> {
    let mut report = Report::default();
    let codes = if stage.is_full() { &CODES[..] } else { &CODES[..1] };
    sweep(stage, codes, stage.count(3000, 200), &mut report)?;
    let ipmem = less_than(Kind::IpMem, (6, 3), 50);
    report
        .checks
        .push(Check::same("(6;3): less than IPMem, %", 22.2, ipmem));
    for (what, paper, ours) in [
        (
            "(6;3) 50:50: less than FSMem, %",
            49.0,
            less_than(Kind::FsMem, (6, 3), 50),
        ),
        (
            "(12;4): less than 5-way, %",
            79.3,
            less_than(Kind::Replication, (12, 4), 50),
        ),
    ] {
        report.checks.push(
            Check::same(what, paper, ours)
                .judged(Better::Neither, ours > 0.0)
                .because(WHY_ACCOUNTING),
        );
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accounting_gives_these() {
        for (kind, code, expected) in [
            (Kind::IpMem, (6, 3), 22.22),
            (Kind::FsMem, (6, 3), 48.15),
            (Kind::Replication, (12, 4), 78.33),
            (Kind::IpMem, (16, 4), 15.0),
            (Kind::FsMem, (16, 4), 43.33),
            (Kind::Replication, (128, 4), 79.84),
        ] {
            let less = less_than(kind, code, 50);
            assert!((less - expected).abs() < 0.01, "{kind:?} {code:?}: {less}");
        }
    }
}
