//! ElasticMem Table 1, `ec_to_eor` in nodes of Paritas, of values that are cold by `redundancy_hotness`: bytes between
//! the nodes. Such a value was never `eor`, and has its data blocks where `eor` wants them.

use super::elasticmem_nodes::{BODY_KEPT, command};
use super::elasticmem_transitions::{SETTINGS, Setting};
use crate::report::figure;
use crate::servers::Servers;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;
use std::thread;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "elasticmem-cold",
    figure: "ElasticMem Table 1, ec_to_eor in nodes",
    claim: "from erasure coding to EC-oriented replication fewer bytes move than to replication",
    exact: false,
    run,
};

const NODES: u16 = 6;
const MEGABYTES: u32 = 512;
const SIZES_KB: [usize; 2] = [1024, 4096];
const ROUNDS: u32 = 9;

/// Bytes between the nodes for `ec_to_rep` of a value without hotness, and for `ec_to_eor` of a cold one, in lengths of
/// the value.
fn expected(setting: Setting) -> [f64; 2] {
    let (k, r) = (f64::from(setting.k), f64::from(setting.r));
    // The owner has a data block of the one, and a parity block of the other.
    [(k - 1.0) / k + r - 1.0, 1.0 + r - 2.0]
}

/// Bytes between the nodes for each of the two changes, in lengths of the value.
fn measure(servers: &Servers, setting: Setting, kb: usize, rounds: u32) -> io::Result<[f64; 2]> {
    let (rep, ec, eor) = setting.classes();
    let ports = servers.any_ports();
    let port = *ports.first().ok_or(io::ErrorKind::NotConnected)?;
    let value: String = (0..kb << 10).map(|n| char::from(b'a' + (n / 7 % 26) as u8)).collect();
    let keys = |round: u32| ["rep", "eor"].map(|way| format!("{{key {round}}} to {way}"));
    // No value is read so often that it becomes hot by itself.
    let hotness = format!("hot {eor} cold {ec} reads 1000000");
    for (way, setting) in ["", &hotness].into_iter().enumerate() {
        for port in &ports {
            command(*port, &["CONFIG", "SET", "redundancy-hotness", setting])?;
        }
        for round in 0..rounds {
            command(port, &["SET", &keys(round)[way], &value])?;
        }
    }
    thread::sleep(BODY_KEPT);
    let mut moved = [0.0; 2];
    for round in 0..rounds {
        for (way, class) in [rep, eor].into_iter().enumerate() {
            let key = &keys(round)[way];
            let before = servers.sent()?;
            command(port, &["PARITAS.REDUNDANCY", key, &class.to_string()])?;
            moved[way] += (servers.sent()? - before).bytes as f64 / value.len() as f64 / f64::from(rounds);
            if command(port, &["GET", key])? != value {
                return Err(io::Error::other("other bytes than were written"));
            }
            command(port, &["DEL", key])?;
        }
    }
    Ok(moved)
}

fn run(stage: &Stage) -> io::Result<Report> {
    let lines = |setting: &Setting| {
        let name = setting.name();
        ["ec_to_rep", "cold ec_to_eor"].map(|change| format!("{name} {change}"))
    };
    let settings = &SETTINGS[..2];
    let mut report = Report {
        columns: ["KiB".to_owned()]
            .into_iter()
            .chain(settings.iter().flat_map(lines))
            .collect(),
        logarithmic: (true, false),
        y: "bytes between nodes / length",
        ..Report::default()
    };
    let sizes = &SIZES_KB[..if stage.is_full() { 2 } else { 1 }];
    report.rows = sizes.iter().map(|kb| vec![kb.to_string()]).collect();
    for setting in settings {
        let servers = Servers::paritas(&format!("{}+{}", setting.k, setting.m), NODES, MEGABYTES)?;
        for (row, kb) in report.rows.iter_mut().zip(sizes) {
            (stage.say)(&format!("{}, values of {kb} KiB", setting.name()));
            let moved = measure(&servers, *setting, *kb, stage.count(ROUNDS, 3))?;
            row.extend(moved.map(figure));
            let off = if stage.is_full() { 0.02 } else { 0.1 };
            for ((change, moved), expected) in ["ec_to_rep", "cold ec_to_eor"]
                .iter()
                .zip(moved)
                .zip(expected(*setting))
            {
                let what = format!("{} {kb} KiB {change}: bytes between nodes; in values", setting.name());
                report.checks.push(Check::near(what, expected, moved, off).own());
            }
            // Table 1: r of r + 1 parts.
            let part = 1.0 / (f64::from(setting.r) + 1.0);
            let what = format!(
                "{} {kb} KiB: part of the bytes of ec_to_rep that ec_to_eor saves",
                setting.name()
            );
            report
                .checks
                .push(Check::at_least(what, part, 1.0 - moved[1] / moved[0]));
        }
    }
    report.remarks.push(format!(
        "Means of {} changes of values on {NODES} nodes of one machine, with scheme k+m. Bytes are those of the \
         connections between the nodes, both directions, as the system counts them.",
        stage.count(ROUNDS, 3)
    ));
    Ok(report)
}
