//! LogECMem Fig 13 (§6.3, Experiment 4): updates and memory of wide stripes, k = 16 to 128.

use super::update_latency::{Value, less_than, sweep};
use super::{code_name, memory};
use crate::baselines::run::Kind;
use crate::report::figure;
use crate::stage::Stage;
use crate::{Better, Check, Experiment, Report};
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
    let [waits, at_once]: [Value; 2] = [|cell| cell.waits[0], |cell| cell.waits[1]];
    for (of_code, (code, paper)) in cells.iter().zip(CODES.into_iter().zip([1.9, 19.0, 36.4, 29.4])) {
        for (row, label) in [(0, "95:5"), (1, "80:20")] {
            let less = less_than(of_code, Kind::FsMem, row, waits);
            let text = format!(
                "{} {label}: waits one by one, LogECMem wins against FSMem ({} % less)",
                code_name(code),
                figure(less)
            );
            report.checks.push(Check::claim(text, less > 0.0));
        }
        let text = format!("{} 70:30: waits one by one, less than FSMem, %", code_name(code));
        let less = less_than(of_code, Kind::FsMem, 2, waits);
        report.checks.push(Check::gain(text, paper, less).because(WHY_FSMEM));
        // "Similar to Experiment 2", which has this gain for four parities.
        for (way, value) in [("one by one", waits), ("at once", at_once)] {
            let text = format!("{} 70:30: waits {way}, less than IPMem, %", code_name(code));
            let less = less_than(of_code, Kind::IpMem, 2, value);
            report.checks.push(Check::gain(text, 37.8, less));
        }
    }
    if stage.is_full() {
        let us = |n: usize| cells[n][3][2].us[0];
        let text = "LogECMem's update at k=128 over k=16, time";
        report.checks.push(Check::near(text, 1.0, us(3) / us(0), 0.25).own());
    }
    for (kind, code, paper) in [
        (Kind::Replication, (128, 4), 79.8),
        (Kind::IpMem, (16, 4), 17.2),
        (Kind::FsMem, (16, 4), 46.0),
    ] {
        let text = format!("{} 50:50: memory, less than {}, %", code_name(code), kind.name(4));
        let less = memory::less_than(kind, code, 50);
        let check = Check::same(text, paper, less).judged(Better::Neither, less > 0.0);
        report.checks.push(check.because(WHY_ACCOUNTING));
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
