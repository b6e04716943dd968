//! LogECMem Fig 14(a, b) (§6.3, Experiment 5): the cost of updates on the log nodes' disks, by layout.

use super::updated_stripes::UPDATE_PERCENTS;
use super::{CODES, code_name};
use crate::baselines::log_node::Medium;
use crate::baselines::network::{Ask, Peer};
use crate::report::figure;
use crate::stage::{Directory, Logs, Stage};
use crate::workload::{Request, Workload};
use crate::{Check, Experiment, Report, Table};
use paritas_paritylog::{Counters, Layout};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "disk-accesses",
    figure: "LogECMem Fig 14(a, b)",
    claim: "PLM takes up to 23.7 % fewer disk accesses than PLR, up to 8.2 % fewer than PLR-m; PL takes the fewest",
    exact: false,
    run,
};

pub(crate) const LAYOUTS: [(Layout, &str); 4] = [
    (Layout::Pl, "PL"),
    (Layout::Plr, "PLR"),
    (Layout::PlrM, "PLR-m"),
    (Layout::Plm, "PLM"),
];
const VALUE_BYTES: usize = 4096;

/// Counts of one log node's disk for the updates among this many requests, until all data is in its final place.
/// Loading is not counted.
pub(crate) fn counted(logs: &Logs, objects: u32, percent: u64) -> io::Result<Counters> {
    let directory = Directory::new()?;
    let mut nodes = logs.create(directory.path())?;
    // All log nodes get the same messages.
    let node = nodes.first_mut().ok_or_else(|| io::Error::other("no log node"))?;
    let k = u32::from(logs.code.0);
    for stripe in 0..objects / k {
        node.send(&Ask::PutParity(stripe, vec![0; logs.settings.chunk_bytes]))?;
    }
    let loaded = node.settle()?;
    let mut workload = Workload::new(percent, objects / k * k, percent);
    for request in 0..objects {
        if let Request::Update(object) = workload.next_request() {
            node.send(&Ask::Delta {
                stripe: object / k,
                index: (object % k) as u8,
                offset: 0,
                xor: vec![request as u8; logs.settings.chunk_bytes],
            })?;
        }
    }
    Ok(node.settle()? - loaded)
}

fn run(stage: &Stage) -> io::Result<Report> {
    let objects = stage.count(100_000, 3_000);
    let mut report = Report {
        columns: vec!["updates %".to_owned()],
        rows: UPDATE_PERCENTS
            .iter()
            .map(|percent| vec![percent.to_string()])
            .collect(),
        logarithmic: (false, true),
        ..Report::default()
    };
    let columns = [
        "code",
        "r:u",
        "layout",
        "writes",
        "MiB written",
        "reads",
        "MiB read",
        "folded",
        "rewritten",
    ];
    let mut table = Table {
        name: "counts",
        columns: columns.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    for code in CODES {
        (stage.say)(&format!("disk accesses, {}", code_name(code)));
        let nodes = u64::from(code.1) - 1;
        let mut accesses = [[0.0; 4]; 4];
        for (at, (layout, name)) in LAYOUTS.into_iter().enumerate() {
            report.columns.push(format!("{} {name}", code_name(code)));
            for (row, percent) in UPDATE_PERCENTS.into_iter().enumerate() {
                let mut logs = Logs::new(code, layout, objects, VALUE_BYTES);
                logs.disk.medium = Medium::Memory;
                let found = counted(&logs, objects, percent)?;
                accesses[at][row] = ((found.writes + found.reads) * nodes) as f64;
                report.rows[row].push(figure(accesses[at][row]));
                let mib = |bytes: u64| figure((bytes * nodes) as f64 / f64::from(1 << 20));
                table.rows.push(vec![
                    code_name(code),
                    format!("{}:{percent}", 100 - percent),
                    name.to_owned(),
                    (found.writes * nodes).to_string(),
                    mib(found.write_bytes),
                    (found.reads * nodes).to_string(),
                    mib(found.read_bytes),
                    (found.folded * nodes).to_string(),
                    (found.compacted * nodes).to_string(),
                ]);
            }
        }
        let [pl, plr, plr_m, plm] = accesses;
        let what = format!("{}: PL takes the fewest", code_name(code));
        let fewest = (0..4).all(|n| pl[n] < plr[n].min(plr_m[n]).min(plm[n]));
        report.checks.push(Check::claim(what, fewest));
        let what = format!("{}: more updates take more", code_name(code));
        let grows = accesses
            .iter()
            .all(|by_percent| by_percent.windows(2).all(|pair| pair[0] < pair[1]));
        report.checks.push(Check::claim(what, grows));
        if code == (15, 3) && stage.is_full() {
            let fewer = |than: f64| 100.0 * (1.0 - plm[0] / than);
            let what = "(15;3) 95:5: PLM less than PLR, %";
            report.checks.push(Check::gain(what, 23.7, fewer(plr[0])));
            let what = "(15;3) 95:5: PLM less than PLR-m, %";
            report.checks.push(Check::gain(what, 8.2, fewer(plr_m[0])));
        }
    }
    report.tables.push(table);
    report.remarks.push(format!(
        "{objects} objects of 4 KiB, as many requests; all log nodes of a code together; from the end of loading until \
         every delta is in its place. An access is one read or write of any length. Flushed at 1 MiB, log area \
         256 MiB, space for 16 deltas after a chunk."
    ));
    Ok(report)
}
