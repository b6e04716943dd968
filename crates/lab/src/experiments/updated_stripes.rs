//! LogECMem Fig 3 and Table 1 (§2.3): the number of chunks of a stripe that a run of updates changes, and the memory
//! for their old versions.

use crate::report::figure;
use crate::stage::Stage;
use crate::workload::{Request, Workload};
use crate::{Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "updated-stripes",
    figure: "LogECMem Fig 3 and Table 1",
    claim: "of the stripes that few updates touch most have one new chunk; old versions take 5 to 50 % of memory",
    exact: true,
    run,
};

/// Number of objects, as in the paper.
const OBJECTS: u32 = 1_000_000;
const REQUESTS: u32 = 1_000_000;
pub(crate) const UPDATE_PERCENTS: [u64; 4] = [5, 20, 30, 50];
const DATA_CHUNKS: [u32; 4] = [6, 10, 12, 15];
/// Stripes with fewer new chunks are counted separately; those with this many or more are counted together.
const NEW_CHUNKS_MAX: usize = 8;

/// The objects updated in `requests` requests, and the number of updates.
fn updated(objects: u32, requests: u32, percent: u64) -> (Vec<bool>, u32) {
    let mut workload = Workload::new(percent, objects, percent);
    let (mut touched, mut updates) = (vec![false; objects as usize], 0);
    for _ in 0..requests {
        if let Request::Update(object) = workload.next_request() {
            touched[object as usize] = true;
            updates += 1;
        }
    }
    (touched, updates)
}

/// Number of stripes with one new chunk, with two, and so on. Every k consecutive objects are a stripe.
fn histogram(touched: &[bool], k: u32) -> [u32; NEW_CHUNKS_MAX] {
    let mut counts = [0; NEW_CHUNKS_MAX];
    for stripe in touched.chunks(k as usize) {
        let new = stripe.iter().filter(|touched| **touched).count();
        if new > 0 {
            counts[new.min(NEW_CHUNKS_MAX) - 1] += 1;
        }
    }
    counts
}

fn run(_: &Stage) -> io::Result<Report> {
    let mut report = Report {
        columns: vec!["new chunks".to_owned()],
        rows: (1..=NEW_CHUNKS_MAX).map(|n| vec![n.to_string()]).collect(),
        ..Report::default()
    };
    for percent in UPDATE_PERCENTS {
        let (touched, updates) = updated(OBJECTS, REQUESTS, percent);
        let memory = 1.0 + f64::from(updates) / f64::from(OBJECTS);
        let paper = 1.0 + percent as f64 / 100.0;
        let what = format!(
            "Table 1, {}:{percent}: memory of full-stripe updates, in M",
            100 - percent
        );
        report.checks.push(Check::same(what, paper, memory));
        for k in DATA_CHUNKS {
            let counts = histogram(&touched, k);
            report.columns.push(format!("k={k} {}:{percent}", 100 - percent));
            for (row, count) in report.rows.iter_mut().zip(counts) {
                row.push(figure(f64::from(count)));
            }
            let all: u32 = counts.iter().sum();
            if percent == 5 {
                let what =
                    format!("k={k}, 95:5: part of the updated stripes with one new chunk: most, so above a half");
                report
                    .checks
                    .push(Check::at_least(what, 0.5, f64::from(counts[0]) / f64::from(all)));
            } else if percent == 50 {
                let what = format!("k={k}, 50:50: part with three or more: some, taken as a tenth at least");
                let many: u32 = counts[2..].iter().sum();
                report
                    .checks
                    .push(Check::at_least(what, 0.1, f64::from(many) / f64::from(all)));
            }
        }
    }
    report.remarks.push(format!(
        "{OBJECTS} objects, {REQUESTS} requests, the last row is {NEW_CHUNKS_MAX} chunks and more."
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_updated_object_is_counted_in_its_stripe_once() {
        let mut touched = vec![false; 12];
        for object in [0, 5, 6, 7, 8] {
            touched[object] = true;
        }
        assert_eq!(histogram(&touched, 6), [0, 1, 1, 0, 0, 0, 0, 0]);
        let (touched, updates) = updated(1000, 5000, 50);
        assert!(updates > touched.iter().filter(|touched| **touched).count() as u32);
    }
}
