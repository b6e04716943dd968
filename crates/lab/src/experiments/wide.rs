//! LogECMem Fig 13 (§6.3, Experiment 4): updates and memory of wide stripes, k = 16 to 128.

use super::update_latency::{Value, less_than, sweep};
use super::{code_name, memory};
use crate::baselines::run::Kind;
use crate::report::figure;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "wide",
    figure: "LogECMem Fig 13",
    claim: "LogECMem's updates cost the same from k = 16 to 128, and at 70:30 up to 36.4 % less than FSMem's",
    exact: false,
    run,
};

pub(crate) const CODES: [(u8, u8); 4] = [(16, 4), (32, 4), (64, 4), (128, 4)];

const WHY_FSMEM: &str = "FSMem's garbage is collected once, after the run, and cannot cost more than reading every \
                         object once; the paper does not say when its FSMem does";
const WHY_ACCOUNTING: &str = "the paper's own accounting gives ours";

fn run(stage: &Stage) -> io::Result<Report> {
    let mut report = Report::default();
    let codes = if stage.is_full() { &CODES[..] } else { &CODES[..1] };
    let sizes = (stage.count(1_000_000, 20_000), stage.count(800, 60));
    let cells = sweep(stage, codes, sizes, &mut report)?;
    let waits: Value = |cell| cell.waits[0];
    for (of_code, (code, paper)) in cells.iter().zip(CODES.into_iter().zip([1.9, 19.0, 36.4, 29.4])) {
        for (row, label) in [(0, "95:5"), (1, "80:20")] {
            let text = format!("{} {label}: waits, LogECMem wins against FSMem", code_name(code));
            let less = less_than(of_code, Kind::FsMem, row, waits);
            report.checks.push(Check::claim(text, less > 0.0));
        }
        let text = format!("{} 70:30: waits, less than FSMem, %", code_name(code));
        let less = less_than(of_code, Kind::FsMem, 2, waits);
        report
            .checks
            .push(Check::at_least(text, paper, less).missed_because(WHY_FSMEM));
        let text = format!("{} 70:30: waits, less than IPMem, %", code_name(code));
        report
            .checks
            .push(Check::same(text, 50.0, less_than(of_code, Kind::IpMem, 2, waits)));
    }
    if stage.is_full() {
        let us = |n: usize| cells[n][3][2].us[0];
        report.checks.push(Check::near(
            "LogECMem's update at k=128 over k=16, time",
            1.0,
            us(3) / us(0),
            0.25,
        ));
    }
    for (kind, code, paper) in [
        (Kind::Replication, (128, 4), 79.8),
        (Kind::IpMem, (16, 4), 17.2),
        (Kind::FsMem, (16, 4), 46.0),
    ] {
        let text = format!("{} 50:50: memory, less than {}, %", code_name(code), kind.name(4));
        let check = Check::same(text, paper, memory::less_than(kind, code, 50));
        report.checks.push(check.missed_because(WHY_ACCOUNTING));
    }
    let memory: Vec<String> = CODES
        .iter()
        .map(|code| {
            let of = |kind| figure(memory::accounted(kind, *code, 50));
            let (ip, fs, log) = (of(Kind::IpMem), of(Kind::FsMem), of(Kind::LogEcMem));
            format!("{}: {ip}, {fs}, {log}", code_name(*code))
        })
        .collect();
    let memory = memory.join("; ");
    report
        .remarks
        .push(format!("Memory at 50:50 of IPMem, FSMem, LogECMem, in M: {memory}."));
    Ok(report)
}
