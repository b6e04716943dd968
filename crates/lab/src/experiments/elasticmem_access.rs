//! ElasticMem Fig 8 (§6.2, Experiment 1): reads and writes of an object with three kinds of redundancy.

use super::elasticmem_transitions::{Setting, quartiles, start, value};
use crate::report::figure;
use crate::stage::Stage;
use crate::{Check, Experiment, Report, Table};
use std::io;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "elasticmem-access",
    figure: "ElasticMem Fig 8",
    claim: "EC-oriented replication reads as fast as replication and writes as fast from 64 KiB on; erasure coding \
            writes long values much faster and reads them at least as fast",
    exact: false,
    run,
};

const SETTING: Setting = Setting { k: 4, m: 2, r: 3 };
const ROUNDS: u32 = 31;
const SIZES_KB: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];
const NAMES: [&str; 3] = ["Rep", "EC", "EOR"];

fn run(stage: &Stage) -> io::Result<Report> {
    let columns = NAMES
        .iter()
        .flat_map(|name| [format!("{name} read"), format!("{name} write")]);
    let mut report = Report {
        columns: ["KiB".to_owned()].into_iter().chain(columns).collect(),
        logarithmic: (true, true),
        ..Report::default()
    };
    let mut spread = Table {
        name: "times",
        columns: [
            "KiB",
            "redundancy",
            "access",
            "median us",
            "quarter us",
            "three quarters us",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Vec::new(),
    };
    let sizes = if stage.is_full() {
        &SIZES_KB[..]
    } else {
        &SIZES_KB[3..4]
    };
    let (rep, ec, eor) = SETTING.classes();
    let mut medians = Vec::new();
    for kb in sizes {
        (stage.say)(&format!("values of {kb} KiB"));
        let (_nodes, mut store) = start(kb << 10)?;
        let value = value(kb << 10);
        let (mut row, mut found) = (vec![kb.to_string()], Vec::new());
        // Of each class, the times of reads, writes and degraded reads, and the bytes of one write.
        let mut all: [[Vec<Duration>; 3]; 3] = Default::default();
        let mut written = [0; 3];
        // The classes take turns, so that a slow second of this machine meets them all.
        for object in 0..stage.count(ROUNDS, 3) {
            for (n, class) in [rep, ec, eor].into_iter().enumerate() {
                let [reads, writes, degraded] = &mut all[n];
                let before = store.network().counts();
                let began = Instant::now();
                store.set(object, class, &value)?;
                writes.push(began.elapsed());
                written[n] = store.network().counts().since(before).bytes;
                let began = Instant::now();
                let read = store.get(object, &[])?;
                reads.push(began.elapsed());
                // Any two nodes may be lost.
                let began = Instant::now();
                let without = store.get(object, &[0, 1])?;
                degraded.push(began.elapsed());
                if read != value || without != value {
                    return Err(io::Error::other(format!("{class} gives other bytes")));
                }
            }
        }
        if *kb == 64 {
            let of_rep = |n: usize| written[n] as f64 / written[0] as f64;
            let (k, m, r) = (f64::from(SETTING.k), f64::from(SETTING.m), f64::from(SETTING.r));
            report.checks.push(Check::same(
                "64 KiB: bytes written by EC over those by Rep".to_owned(),
                (k + m) / k / r,
                of_rep(1),
            ));
            report.checks.push(Check::same(
                "64 KiB: bytes written by EOR over those by Rep".to_owned(),
                1.0,
                of_rep(2),
            ));
        }
        for (name, [reads, writes, degraded]) in NAMES.into_iter().zip(all) {
            for (access, times) in [("read", reads), ("write", writes), ("read without two nodes", degraded)] {
                let times = quartiles(times);
                spread.rows.push(
                    [kb.to_string(), name.to_owned(), access.to_owned()]
                        .into_iter()
                        .chain(times.map(figure))
                        .collect(),
                );
                if access != "read without two nodes" {
                    row.push(figure(times[0]));
                    found.push(times[0]);
                }
            }
        }
        medians.push(found);
        report.rows.push(row);
    }
    if stage.is_full() {
        // Read and write of Rep, EC, EOR.
        let at = |kb: usize| &medians[SIZES_KB.iter().position(|size| *size == kb).unwrap_or_default()];
        for kb in [1, 64, 1024] {
            let ratio = at(kb)[4] / at(kb)[0];
            report.checks.push(Check::near(
                format!("{kb} KiB: read of EOR over that of Rep"),
                1.0,
                ratio,
                0.1,
            ));
        }
        for kb in [256, 1024, 4096] {
            let ratio = at(kb)[5] / at(kb)[1];
            report.checks.push(Check::claim(
                format!(
                    "{kb} KiB: EOR writes in at most 1.15 times Rep's time ({})",
                    figure(ratio)
                ),
                ratio <= 1.15,
            ));
        }
        let slower = at(4)[5] > at(4)[1];
        report.checks.push(Check::claim(
            "4 KiB: EOR writes more slowly than Rep".to_owned(),
            slower,
        ));
        for kb in [1024, 4096] {
            let ratio = at(kb)[3] / at(kb)[1];
            report.checks.push(Check::claim(
                format!(
                    "{kb} KiB: EC writes in at most three quarters of Rep's time ({})",
                    figure(ratio)
                ),
                ratio <= 0.75,
            ));
        }
        report.checks.push(
            Check::claim("4 MiB: EC reads faster than Rep".to_owned(), at(4096)[2] < at(4096)[0]).missed_because(
                "the client's own link is the limit here, and it takes as many bytes; the paper's client gains by \
                 reading and decoding at once",
            ),
        );
    }
    let rounds = stage.count(ROUNDS, 3);
    report.remarks.push(format!(
        "Microseconds, medians of {rounds} rounds, with (k;m;r) = {}, over six memcached servers. A message takes \
         0.1 ms each way, and all bytes pass one link of 10 Gbit/s; both are waited for in the client. Reads without \
         two nodes: the table of times.",
        SETTING.name()
    ));
    report.tables.push(spread);
    Ok(report)
}
