//! LogECMem Fig 14(c, d) (§6.3, Experiment 6): reads while two nodes of a stripe are lost, by layout.

use super::disk_accesses::LAYOUTS;
use super::updated_stripes::UPDATE_PERCENTS;
use super::{CODES, code_name};
use crate::baselines::System;
use crate::baselines::in_place::InPlace;
use crate::baselines::log_node::{DiskSettings, Medium};
use crate::baselines::network::Way;
use crate::baselines::run::{load, value};
use crate::report::{GAIN_OFF, figure};
use crate::stage::{HOP, Logs, Nodes, Stage};
use crate::workload::{Request, Workload};
use crate::{Better, Check, Experiment, Report, Table};
use paritas_paritylog::Layout;
use std::io;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "two-losses",
    figure: "LogECMem Fig 14(c, d)",
    claim: "with two chunks lost, reads take up to 35.9 % less time with PLM than with PL, with PLR and PLR-m too",
    exact: false,
    run,
};

const VALUE_BYTES: usize = 4096;
/// Time of an access, as on a disk with three thousand accesses a second, like the paper's volumes of 1 TiB.
const ACCESS: Duration = Duration::from_micros(333);

const WAYS: [&str; 2] = ["one by one", "at once"];

/// Number of times that each object is read.
const TRIES: u32 = 3;

/// Means of one read.
#[derive(Clone, Copy, Default, Debug)]
struct Found {
    disk_reads: f64,
    us: [f64; 2],
}

fn measure(code: (u8, u8), layout: Layout, objects: u32, reads: u32, percent: u64) -> io::Result<Found> {
    let mut logs = Logs::new(code, layout, objects, VALUE_BYTES);
    logs.settings.block_bytes = 4096;
    // As if each chunk's records had been written long before the next ones: 64 chunks wait in memory.
    logs.settings.flush_bytes = 64 * VALUE_BYTES;
    logs.settings.reserve_bytes = 64 * 2 * VALUE_BYTES;
    logs.settings.log_bytes = if layout == Layout::Pl { 1 << 30 } else { 4 << 20 };
    logs.disk = DiskSettings {
        medium: Medium::Direct,
        access: Duration::ZERO,
    };
    let memory = usize::from(code.0) + 1;
    let (_nodes, network) = Nodes::start(memory, VALUE_BYTES, Some(&logs))?;
    let mut system = InPlace::new(network, code.0, code.1, VALUE_BYTES)?;
    load(&mut system, objects, VALUE_BYTES)?;
    let mut workload = Workload::new(percent, objects, percent);
    for round in 1..=objects {
        if let Request::Update(object) = workload.next_request() {
            system.update(object, &value(object, round, VALUE_BYTES))?;
        }
    }
    let before = system.network().settle()?;
    system.network().set_access(ACCESS)?;
    system.network().set_hop(HOP);
    let mut found = Found::default();
    for (us, way) in found.us.iter_mut().zip([Way::OneByOne, Way::AtOnce]) {
        system.network().set_way(way);
        for _ in 0..reads {
            let object = workload.next_object();
            // The best of several tries, because other work on the machine only adds time.
            let mut best = Duration::MAX;
            for _ in 0..TRIES {
                let began = Instant::now();
                system.twice_degraded_read(object)?;
                best = best.min(began.elapsed());
            }
            *us += best.as_secs_f64() * 1e6 / f64::from(reads);
        }
    }
    system.network().set_access(Duration::ZERO)?;
    let after = system.network().settle()?;
    let count: u64 = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after.reads - before.reads)
        .sum();
    found.disk_reads = count as f64 / f64::from(2 * TRIES * reads);
    Ok(found)
}

fn run(stage: &Stage) -> io::Result<Report> {
    let (objects, reads) = (stage.count(3000, 200), stage.count(60, 8));
    let codes = if stage.is_full() { &CODES[..] } else { &CODES[..1] };
    let percents = if stage.is_full() {
        &UPDATE_PERCENTS[..]
    } else {
        &UPDATE_PERCENTS[3..]
    };
    let mut report = Report {
        columns: vec!["updates %".to_owned()],
        rows: percents.iter().map(|percent| vec![percent.to_string()]).collect(),
        ..Report::default()
    };
    let columns = ["code", "r:u", "layout", "disk reads", "us one by one", "us at once"];
    let mut table = Table {
        name: "counts",
        columns: columns.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    // Percent of PL's time that PLM saves, by code and way.
    let mut gains: Vec<[f64; 2]> = Vec::new();
    for code in codes {
        let mut of_code = vec![[Found::default(); 4]; percents.len()];
        for (at, (layout, name)) in LAYOUTS.into_iter().enumerate() {
            (stage.say)(&format!("two losses, {} {name}", code_name(*code)));
            report.columns.push(format!("{} {name}", code_name(*code)));
            for (row, percent) in percents.iter().enumerate() {
                let found = measure(*code, layout, objects, reads, *percent)?;
                of_code[row][at] = found;
                report.rows[row].push(figure(found.us[1]));
                let cells = [found.disk_reads, found.us[0], found.us[1]].map(figure);
                let names = [
                    code_name(*code),
                    format!("{}:{percent}", 100 - percent),
                    name.to_owned(),
                ];
                table.rows.push(names.into_iter().chain(cells).collect());
            }
        }
        for (row, percent) in of_code.iter().zip(percents) {
            let [pl, plr, plr_m, plm] = row.map(|found| found.disk_reads);
            let label = format!("{} {}:{percent}", code_name(*code), 100 - percent);
            let one = [plr, plr_m, plm].iter().all(|reads| (0.9..=1.0).contains(reads));
            report.checks.push(Check::claim(
                format!("{label}: one disk read but with PL, which has {}", figure(pl)),
                one && pl > 1.0,
            ));
        }
        if let Some([pl, .., plm]) = of_code.last() {
            gains.push([0, 1].map(|way| 100.0 * (1.0 - plm.us[way] / pl.us[way])));
        }
    }
    if stage.is_full() {
        for (way, name) in WAYS.into_iter().enumerate() {
            let text = format!("50:50, {name}: PLM less time than PL, at most, %");
            let most = gains.iter().map(|gain| gain[way]).reduce(f64::max);
            report.checks.push(Check::gain(text, 35.9, most.unwrap_or(f64::NAN)));
            // The paper does not say at which ratio of updates the gain falls from k = 6 to 15.
            let (first, last) = (gains[0][way], gains[gains.len() - 1][way]);
            let text = format!(
                "50:50, {name}: the gain at k=15 over that at k=6 ({} and {} %)",
                figure(last),
                figure(first)
            );
            let check = Check::near(text, 11.8 / 20.3, last / first, GAIN_OFF);
            report.checks.push(check.judged(Better::Neither, last < first));
        }
    }
    report.tables.push(table);
    report.remarks.push(format!(
        "{objects} objects of 4 KiB, as many requests, everything settled on disk, then {reads} reads by popularity in \
         each way, the best of {TRIES} tries. Direct I/O where the file system can, and at least {} us an access. \
         Plotted: at once.",
        ACCESS.as_micros()
    ));
    Ok(report)
}
