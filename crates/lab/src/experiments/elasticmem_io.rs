//! ElasticMem Table 1 (§6.1): bytes read and written by a change of redundancy.

use super::elasticmem_transitions::{SETTINGS, Setting};
use crate::report::figure;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use paritas_large::{Class, Layout, Placement, Transition};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "elasticmem-io",
    figure: "ElasticMem Table 1",
    claim: "EC-oriented replication saves k / (2k + m) of the bytes towards erasure coding, 1 / (r + 1) of those back",
    exact: true,
    run,
};

/// A length that all numbers of data blocks up to eight divide into multiples of 64 B.
const VALUE_BYTES: u64 = 840 * 64;
const NODES: u8 = 32;

/// Bytes read and written.
fn io_of(from: Class, to: Class) -> io::Result<u64> {
    let placement = Placement::new(from, 0, NODES, 0).map_err(io::Error::other)?;
    let layout = |class: Class| Layout::of_body(VALUE_BYTES, class.data(), 64).ok_or(io::ErrorKind::InvalidInput);
    let (old, new) = (layout(from)?, layout(to)?);
    let x = placement.x_of(to);
    let change = Transition::new(placement, to, x, (NODES, 0), (&old, &new), false).map_err(io::Error::other)?;
    Ok(change.io_bytes())
}

fn run(_: &Stage) -> io::Result<Report> {
    let columns = [
        "n",
        "rep_to_ec",
        "eor_to_ec",
        "ec_to_rep",
        "ec_to_eor",
        "saved forward",
        "saved back",
    ];
    let mut report = Report {
        columns: columns.map(str::to_owned).to_vec(),
        y: "lengths of the value; part saved",
        ..Report::default()
    };
    for (n, setting) in SETTINGS.iter().enumerate() {
        let Setting { k, m, r } = *setting;
        let (rep, ec, eor) = setting.classes();
        let [k, m, r] = [k, m, r].map(u64::from);
        let counted = [io_of(rep, ec)?, io_of(eor, ec)?, io_of(ec, rep)?, io_of(ec, eor)?];
        let paper = [
            (2 * k + m) * VALUE_BYTES / k,
            (k + m) * VALUE_BYTES / k,
            (r + 1) * VALUE_BYTES,
            r * VALUE_BYTES,
        ];
        for (name, (paper, ours)) in columns[1..].iter().zip(paper.into_iter().zip(counted)) {
            let what = format!("{}: {name}, bytes", setting.name());
            report.checks.push(Check::equal(what, paper, ours));
        }
        let (k, m, r) = (k as f64, m as f64, r as f64);
        let counted = counted.map(|bytes| bytes as f64 / VALUE_BYTES as f64);
        let saved = [1.0 - counted[1] / counted[0], 1.0 - counted[3] / counted[2]];
        report.checks.push(Check::same(
            format!("{}: saved forward", setting.name()),
            k / (2.0 * k + m),
            saved[0],
        ));
        report.checks.push(Check::same(
            format!("{}: saved back", setting.name()),
            1.0 / (r + 1.0),
            saved[1],
        ));
        let cells = counted.into_iter().chain(saved).map(figure);
        report
            .rows
            .push([(n + 1).to_string()].into_iter().chain(cells).collect());
    }
    report.remarks.push(format!(
        "Bytes in lengths of the value, from the transitions of the crate `large`. Rows: {}.",
        SETTINGS.map(|setting| setting.name()).join(", ")
    ));
    Ok(report)
}
