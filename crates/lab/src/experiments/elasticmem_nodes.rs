//! ElasticMem Table 1 and Fig 9 in nodes of Paritas: bytes between the nodes for a change of redundancy, and its time.
//!
//! The paper counts what the client reads and writes. Here the owner of the key does the work, and has parts itself:
//! only what goes to other nodes and comes from them is counted.

use super::elasticmem_transitions::{SETTINGS, Setting, quartiles};
use crate::report::figure;
use crate::servers::{Servers, ask};
use crate::stage::Stage;
use crate::{Check, Experiment, Report, Table};
use paritas_large::Class;
use std::fmt::Write;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "elasticmem-nodes",
    figure: "ElasticMem Table 1 and Fig 9, in nodes",
    claim: "EC-oriented replication saves bytes and time towards erasure coding and back, also where the owner of a \
            key changes its redundancy",
    exact: false,
    run,
};

const NODES: u16 = 6;
const MEGABYTES: u32 = 512;
const SIZES_KB: [usize; 3] = [256, 1024, 4096];
const ROUNDS: u32 = 31;
/// Longer than an owner keeps the body of a value after its last reader.
const BODY_KEPT: Duration = Duration::from_secs(1);

/// The changes, in the order in which a value goes through them. From `ec` to `eor` the data blocks stay only if the
/// value was `eor` before.
const CHANGES: [&str; 5] = ["ec_to_rep", "rep_to_ec", "ec_to_eor first", "eor_to_ec", "ec_to_eor"];

/// Bytes between the nodes, in lengths of the value.
fn expected(setting: Setting) -> [f64; 5] {
    let (k, m, r) = (f64::from(setting.k), f64::from(setting.m), f64::from(setting.r));
    // The owner has one block of k, or the whole copy.
    let read = (k - 1.0) / k;
    [
        read + r - 1.0,
        (k - 1.0 + m) / k,
        read + r - 1.0,
        (m - 1.0) / k,
        // The owner has a parity block, and reads the data blocks.
        1.0 + r - 2.0,
    ]
}

fn command(port: u16, args: &[&str]) -> io::Result<String> {
    let mut question = format!("*{}\r\n", args.len());
    for arg in args {
        let _ = write!(question, "${}\r\n{arg}\r\n", arg.len());
    }
    let answer = ask(port, &question)?;
    match answer.starts_with('-') {
        true => Err(io::Error::other(answer)),
        false => Ok(answer),
    }
}

/// Times of each change, and bytes between the nodes in lengths of the value.
struct Found {
    times: [Vec<Duration>; 5],
    moved: [f64; 5],
}

fn measure(servers: &Servers, setting: Setting, kb: usize, rounds: u32) -> io::Result<Found> {
    let (rep, ec, eor) = setting.classes();
    let to: [Class; 5] = [rep, ec, eor, ec, eor];
    let ports = servers.any_ports();
    let port = *ports.first().ok_or(io::ErrorKind::NotConnected)?;
    let value: String = (0..kb << 10).map(|n| char::from(b'a' + (n / 7 % 26) as u8)).collect();
    let mut found = Found {
        times: Default::default(),
        moved: [0.0; 5],
    };
    let keys: Vec<String> = (0..rounds).map(|round| format!("key {round}")).collect();
    for key in &keys {
        command(port, &["SET", key, &value])?;
        // What is small is the scheme's with fewer blocks.
        command(port, &["PARITAS.REDUNDANCY", key, &ec.to_string()])?;
    }
    for (at, class) in to.into_iter().enumerate() {
        thread::sleep(BODY_KEPT);
        for key in &keys {
            let before = servers.sent()?;
            let began = Instant::now();
            command(port, &["PARITAS.REDUNDANCY", key, &class.to_string()])?;
            found.times[at].push(began.elapsed());
            let moved = (servers.sent()? - before).bytes as f64 / value.len() as f64;
            found.moved[at] += moved / f64::from(rounds);
        }
    }
    for key in &keys {
        if command(port, &["GET", key])? != value {
            return Err(io::Error::other("other bytes than were written"));
        }
        command(port, &["DEL", key])?;
    }
    Ok(found)
}

fn run(stage: &Stage) -> io::Result<Report> {
    let mut report = Report {
        columns: ["KiB".to_owned()]
            .into_iter()
            .chain(
                SETTINGS
                    .iter()
                    .flat_map(|setting| ["forward", "back"].map(|direction| format!("{} {direction}", setting.name()))),
            )
            .collect(),
        logarithmic: (true, false),
        ..Report::default()
    };
    let mut times = Table {
        name: "times",
        columns: [
            "KiB",
            "setting",
            "change",
            "median us",
            "quarter us",
            "three quarters us",
            "bytes between nodes / length",
            "expected",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Vec::new(),
    };
    let sizes = if stage.is_full() {
        &SIZES_KB[..]
    } else {
        &SIZES_KB[1..2]
    };
    let mut rows: Vec<Vec<String>> = sizes.iter().map(|kb| vec![kb.to_string()]).collect();
    for setting in SETTINGS {
        let scheme = format!("{}+{}", setting.k, setting.m);
        let servers = Servers::paritas(&scheme, NODES, MEGABYTES)?;
        let expected = expected(setting);
        for (row, kb) in rows.iter_mut().zip(sizes) {
            (stage.say)(&format!("{}, values of {kb} KiB", setting.name()));
            let found = measure(&servers, setting, *kb, stage.count(ROUNDS, 3))?;
            let mut medians = [0.0; 5];
            for at in 0..CHANGES.len() {
                let quarters = quartiles(found.times[at].clone());
                medians[at] = quarters[0];
                let start = [kb.to_string(), setting.name(), CHANGES[at].to_owned()];
                let ours = [found.moved[at], expected[at]];
                times.rows.push(
                    start
                        .into_iter()
                        .chain(quarters.into_iter().chain(ours).map(figure))
                        .collect(),
                );
                if *kb >= 1024 {
                    let what = format!(
                        "{} {kb} KiB {}: bytes between nodes, in values",
                        setting.name(),
                        CHANGES[at]
                    );
                    report.checks.push(if expected[at] > 0.0 {
                        Check::near(what, expected[at], found.moved[at], 0.05)
                    } else {
                        Check::claim(format!("{what}, below 0.03"), found.moved[at] < 0.03)
                    });
                }
            }
            let (forward, back) = (1.0 - medians[3] / medians[1], 1.0 - medians[4] / medians[0]);
            row.extend([figure(100.0 * forward), figure(100.0 * back)]);
            if stage.is_full() && *kb >= 1024 {
                for (direction, part, paper) in [("forward", forward, 0.08), ("back", back, 0.03)] {
                    let what = format!("{} {kb} KiB {direction}: part of the time saved", setting.name());
                    report.checks.push(Check::at_least(what, paper, part));
                }
            }
        }
    }
    report.rows = rows;
    report.remarks.push(format!(
        "Percent of the time saved by EC-oriented replication; medians of {} rounds on {NODES} nodes of one machine, \
         with scheme k+m. The checks ask for the least saving that the paper has at any length. Bytes are those of the \
         connections between the nodes, both directions, as the system counts them.",
        stage.count(ROUNDS, 3)
    ));
    report.tables.push(times);
    Ok(report)
}
