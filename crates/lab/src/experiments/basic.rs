//! LogECMem Fig 10 (§6.3, Experiment 1): reads, writes, degraded reads and throughput of one client.

use crate::baselines::System;
use crate::baselines::network::Way;
use crate::baselines::run::{Kind, as_in_a_data_centre, load, value};
use crate::report::figure;
use crate::stage::{Logs, Stage};
use crate::workload::{Request, Workload};
use crate::{Check, Experiment, Report, Table};
use paritas_paritylog::Layout;
use std::io;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "basic",
    figure: "LogECMem Fig 10",
    claim: "coded systems read as fast as uncoded ones and write faster than five copies; degraded reads take as long",
    exact: false,
    run,
};

const CODE: (u8, u8) = (10, 4);
const KINDS: [Kind; 5] = [
    Kind::Vanilla,
    Kind::Replication,
    Kind::IpMem,
    Kind::FsMem,
    Kind::LogEcMem,
];
const KIBIBYTES: [usize; 3] = [1, 4, 16];
const WRITE_PERCENTS: [u64; 2] = [5, 50];

#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    count: u32,
    time: Duration,
    waits: u64,
    messages: u64,
}

impl Sum {
    fn us(self) -> f64 {
        self.time.as_secs_f64() * 1e6 / f64::from(self.count.max(1))
    }

    fn mean(self, total: u64) -> f64 {
        total as f64 / f64::from(self.count.max(1))
    }

    fn add(&mut self, system: &mut dyn System, what: impl FnOnce(&mut dyn System) -> io::Result<()>) -> io::Result<()> {
        let before = system.network().counts();
        what(system)?;
        let counts = system.network().counts().since(before);
        self.count += 1;
        self.waits += counts.one_by_one;
        self.messages += counts.messages;
        Ok(())
    }
}

/// Totals of reads, writes and degraded reads.
type Sums = [Sum; 3];

/// Writes create new objects; reads are of loaded objects. The kinds run one after the other, so that each has its own
/// median wait. Then a tenth of the objects is read in degraded mode.
fn measure(kind: Kind, kibibytes: usize, percent: u64, objects: u32) -> io::Result<Sums> {
    let bytes = kibibytes << 10;
    let logs = Logs::new(CODE, Layout::Plm, objects * 2, bytes);
    let (_nodes, mut system) = kind.real(CODE, bytes, &logs)?;
    load(&mut *system, objects, bytes)?;
    as_in_a_data_centre(&mut *system, Way::OneByOne);
    let [mut reads, mut writes, mut degraded] = [Sum::default(); 3];
    let mut workload = Workload::new(1, objects, percent);
    let requests: Vec<Request> = (0..objects).map(|_| workload.next_request()).collect();
    for request in &requests {
        if let Request::Read(object) = request {
            reads.add(&mut *system, |system| system.read(*object).map(drop))?;
        }
    }
    reads.time = system.network().take_waits();
    let new = requests.iter().filter(|request| matches!(request, Request::Update(_)));
    for (object, _) in (objects..).zip(new) {
        writes.add(&mut *system, |system| system.write(object, &value(object, 0, bytes)))?;
    }
    writes.time = system.network().take_waits();
    if kind != Kind::Vanilla {
        for _ in 0..objects / 10 {
            let object = workload.next_object();
            degraded.add(&mut *system, |system| system.degraded_read(object).map(drop))?;
        }
    }
    degraded.time = system.network().take_waits();
    Ok([reads, writes, degraded])
}

fn run(stage: &Stage) -> io::Result<Report> {
    let objects = stage.count(600, 60);
    let (sizes, percents) = match stage.is_full() {
        true => (&KIBIBYTES[..], &WRITE_PERCENTS[..]),
        false => (&KIBIBYTES[1..2], &WRITE_PERCENTS[1..]),
    };
    let mut report = Report {
        columns: vec!["KiB".to_owned()],
        rows: sizes.iter().map(|size| vec![size.to_string()]).collect(),
        ..Report::default()
    };
    let columns = [
        "KiB",
        "r:w",
        "system",
        "operation",
        "messages",
        "waits",
        "us",
        "operations/s",
    ];
    let mut table = Table {
        name: "counts",
        columns: columns.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    let mut all = Vec::new();
    for percent in percents {
        for kind in KINDS {
            (stage.say)(&format!("basic, {} {}:{percent}", kind.name(CODE.1), 100 - percent));
            report
                .columns
                .push(format!("write {} {}:{percent}", kind.name(CODE.1), 100 - percent));
            for (row, kibibytes) in sizes.iter().enumerate() {
                let sums = measure(kind, *kibibytes, *percent, objects)?;
                report.rows[row].push(figure(sums[1].us()));
                let done = f64::from(sums[0].count + sums[1].count);
                let rate = done / (sums[0].time + sums[1].time).as_secs_f64();
                for (sum, name) in sums.into_iter().zip(["read", "write", "degraded read"]) {
                    table.rows.push(vec![
                        kibibytes.to_string(),
                        format!("{}:{percent}", 100 - percent),
                        kind.name(CODE.1),
                        name.to_owned(),
                        figure(sum.mean(sum.messages)),
                        figure(sum.mean(sum.waits)),
                        figure(sum.us()),
                        figure(rate),
                    ]);
                }
                all.push((*percent, *kibibytes, kind, sums));
            }
        }
    }
    report.tables.push(table);
    for percent in percents {
        for kibibytes in sizes {
            let of = |kind: Kind| {
                let found = all
                    .iter()
                    .find(|found| (found.0, found.1, found.2) == (*percent, *kibibytes, kind));
                found.map(|found| found.3).unwrap_or_default()
            };
            let waits = |kind, operation: usize| of(kind)[operation].mean(of(kind)[operation].waits);
            let label = format!("{kibibytes} KiB {}:{percent}", 100 - percent);
            let reads = KINDS.map(|kind| waits(kind, 0));
            report.checks.push(Check::claim(
                format!("{label}: all read alike, one wait"),
                reads == [1.0; 5],
            ));
            let coded = [Kind::IpMem, Kind::FsMem, Kind::LogEcMem].map(|kind| waits(kind, 1));
            let five = waits(Kind::Replication, 1);
            let between = coded.iter().all(|waits| (1.0..five).contains(waits));
            let text = format!("{label}: coded writes between Vanilla's and five copies'");
            report.checks.push(Check::claim(text, between));
            let degraded = [Kind::IpMem, Kind::FsMem, Kind::LogEcMem].map(|kind| waits(kind, 2));
            let fewest = degraded.iter().all(|coded| waits(Kind::Replication, 2) < *coded);
            let text = format!("{label}: degraded reads of five copies wait the least often");
            report.checks.push(Check::claim(text, fewest));
            let alike = degraded.iter().all(|waits| (waits / degraded[0] - 1.0).abs() < 0.1);
            report
                .checks
                .push(Check::claim(format!("{label}: coded degraded reads alike"), alike));
            if stage.is_full() {
                let us = |kind: Kind, operation: usize| of(kind)[operation].us();
                for (operation, name) in [(0, "read"), (1, "write"), (2, "degraded read")] {
                    let ratio = us(Kind::LogEcMem, operation) / us(Kind::IpMem, operation);
                    let text = format!("{label}: time of a {name}, LogECMem over IPMem");
                    report.checks.push(Check::near(text, 1.0, ratio, 0.25));
                }
                let ratio = us(Kind::Replication, 1) / us(Kind::LogEcMem, 1);
                let text = format!("{label}: time of a write, five copies over LogECMem");
                report.checks.push(Check::at_least(text, 1.0, ratio));
                let rate = |kind: Kind| {
                    let [reads, writes, _] = of(kind);
                    f64::from(reads.count + writes.count) / (reads.time + writes.time).as_secs_f64()
                };
                let text =
                    format!("{label}: throughput of LogECMem over Vanilla's: little less, taken as a fifth at most");
                let ratio = rate(Kind::LogEcMem) / rate(Kind::Vanilla);
                report.checks.push(Check::at_least(text, 0.8, ratio));
            }
        }
    }
    report.remarks.push(format!(
        "(10;4), {objects} objects, as many requests of one client, messages one by one. Plotted: us of a write."
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write waits for its node, and for parity once in k writes. A degraded read waits for k nodes.
    #[test]
    fn waits_of_basic_requests() {
        for (kind, write) in [(Kind::IpMem, 1.4), (Kind::FsMem, 1.4), (Kind::LogEcMem, 1.2)] {
            let mut system = kind.blank(CODE).unwrap();
            load(&mut *system, 20_000, 1).unwrap();
            let before = system.network().counts();
            let waits = before.one_by_one as f64 / 20_000.0;
            assert!((waits - write).abs() < 0.01, "{kind:?}: {waits}");
            system.degraded_read(77).unwrap();
            let counts = system.network().counts().since(before);
            assert_eq!(
                (counts.messages, counts.one_by_one, counts.at_once),
                (10, 10, 1),
                "{kind:?}"
            );
        }
    }
}
