//! ElasticMem Table 1 and Fig 9 in nodes of Paritas: bytes between the nodes for a change of redundancy, and its time.
//!
//! The paper counts what the client reads and writes. Here the owner of the key does the work, and has parts itself:
//! only what goes to other nodes and comes from them is counted.

use super::elasticmem_transitions::{BACK, FORWARD, LEVELS, SETTINGS, Setting, check_saved, quartiles, saved};
use crate::report::figure;
use crate::servers::{Servers, ask};
use crate::stage::Stage;
use crate::{Check, Experiment, Report, Table};
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
pub(crate) const BODY_KEPT: Duration = Duration::from_secs(1);
const NEVER_EOR: &str = "block 0 of ec is at the owner, where eor wants its whole copy: no block can stay, so as many \
                         bytes move as to rep";

/// The changes, in the order in which they are made. Each value of a pair makes three of them, in turn with the other:
/// one by way of `rep`, one by way of `eor`. The first time the second one has never been `eor`, so its data blocks
/// cannot stay: block 0 of `ec` is at the owner, and `eor` wants its whole copy there. The last time they can.
const CHANGES: [&str; 6] = [
    "ec_to_rep",
    "ec_to_eor first",
    "rep_to_ec",
    "eor_to_ec",
    "ec_to_rep again",
    "ec_to_eor again",
];
/// What is compared: a name, and the numbers of the change and of the naive one.
const COMPARED: [(&str, usize, usize); 3] = [
    ("forward", 3, 2),
    ("back: never eor before", 1, 0),
    ("back: eor before", 5, 4),
];

/// Bytes between the nodes, in lengths of the value.
fn expected(setting: Setting) -> [f64; 6] {
    let (k, m, r) = (f64::from(setting.k), f64::from(setting.m), f64::from(setting.r));
    // The owner has one block of k, or the whole copy.
    let read = (k - 1.0) / k;
    [
        read + r - 1.0,
        read + r - 1.0,
        (k - 1.0 + m) / k,
        (m - 1.0) / k,
        read + r - 1.0,
        // The owner has a parity block, and reads the data blocks.
        1.0 + r - 2.0,
    ]
}

/// Gives a command at a port. Returns its reply.
pub(crate) fn command(port: u16, args: &[&str]) -> io::Result<String> {
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
    times: [Vec<Duration>; 6],
    moved: [f64; 6],
}

fn measure(servers: &Servers, setting: Setting, kb: usize, rounds: u32) -> io::Result<Found> {
    let (rep, ec, eor) = setting.classes();
    let ports = servers.any_ports();
    let port = *ports.first().ok_or(io::ErrorKind::NotConnected)?;
    let value: String = (0..kb << 10).map(|n| char::from(b'a' + (n / 7 % 26) as u8)).collect();
    let mut found = Found {
        times: Default::default(),
        moved: [0.0; 6],
    };
    // Both values of a pair have one owner.
    let keys = |round: u32| ["rep", "eor"].map(|way| format!("{{key {round}}} by way of {way}"));
    for key in (0..rounds).flat_map(keys) {
        command(port, &["SET", &key, &value])?;
        // What is small is the scheme's with fewer blocks.
        command(port, &["PARITAS.REDUNDANCY", &key, &ec.to_string()])?;
    }
    for (phase, classes) in [[rep, eor], [ec, ec], [rep, eor]].into_iter().enumerate() {
        thread::sleep(BODY_KEPT);
        for round in 0..rounds {
            let (keys, turns) = (keys(round), if round % 2 == 0 { [0, 1] } else { [1, 0] });
            for way in turns {
                let before = servers.sent()?;
                let began = Instant::now();
                command(port, &["PARITAS.REDUNDANCY", &keys[way], &classes[way].to_string()])?;
                let at = 2 * phase + way;
                found.times[at].push(began.elapsed());
                let moved = (servers.sent()? - before).bytes as f64 / value.len() as f64;
                found.moved[at] += moved / f64::from(rounds);
            }
        }
    }
    for key in (0..rounds).flat_map(keys) {
        if command(port, &["GET", &key])? != value {
            return Err(io::Error::other("other bytes than were written"));
        }
        command(port, &["DEL", &key])?;
    }
    Ok(found)
}

fn run(stage: &Stage) -> io::Result<Report> {
    let directions = |setting: &Setting| {
        let name = setting.name();
        COMPARED.map(|(what, ..)| format!("{name} {what}"))
    };
    let mut report = Report {
        columns: ["KiB".to_owned()]
            .into_iter()
            .chain(SETTINGS.iter().flat_map(directions))
            .collect(),
        logarithmic: (true, false),
        y: "percent of the time saved, medians and quarters",
        levels: LEVELS.to_vec(),
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
    let mut spread = Table {
        name: "saved",
        columns: [
            "KiB",
            "setting",
            "direction",
            "median %",
            "quarter %",
            "three quarters %",
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
    report.spread = vec![Vec::new(); sizes.len()];
    for setting in SETTINGS {
        let scheme = format!("{}+{}", setting.k, setting.m);
        let servers = Servers::paritas(&scheme, NODES, MEGABYTES)?;
        for (at, kb) in sizes.iter().enumerate() {
            (stage.say)(&format!("{}, values of {kb} KiB", setting.name()));
            let found = measure(&servers, setting, *kb, stage.count(ROUNDS, 3))?;
            let start = |what: &str| [kb.to_string(), setting.name(), what.to_owned()].into_iter();
            for (n, change) in CHANGES.into_iter().enumerate() {
                let (moved, expected) = (found.moved[n], expected(setting)[n]);
                let cells = quartiles(found.times[n].clone()).map(figure).into_iter();
                let bytes = [moved, expected].map(|lengths| format!("{lengths:.4}"));
                times.rows.push(start(change).chain(cells).chain(bytes).collect());
                // In shorter values the nodes' other messages are seen, and in few rounds on a busy machine.
                if *kb >= 1024 {
                    let what = format!("{} {kb} KiB {change}: bytes between nodes; in values", setting.name());
                    let check = if expected > 0.0 {
                        Check::near(what, expected, moved, if stage.is_full() { 0.02 } else { 0.1 })
                    } else {
                        Check::claim(format!("{what}: below 0.02 ({})", figure(moved)), moved < 0.02)
                    };
                    // What the places of the parts give: the paper counts what a client reads and writes.
                    report.checks.push(check.own());
                }
            }
            for (direction, ours, theirs) in COMPARED {
                let part = saved(&found.times[ours], &found.times[theirs]);
                spread.rows.push(start(direction).chain(part.map(figure)).collect());
                rows[at].push(figure(part[0]));
                report.spread[at].push([part[1], part[2]]);
                if stage.is_full() {
                    let range = if ours == 3 { FORWARD } else { BACK };
                    let what = format!("{} {kb} KiB {direction}: percent of the time saved", setting.name());
                    let check = check_saved(what, range, &found.times[ours], &found.times[theirs]);
                    report.checks.push(if ours == 1 {
                        // Two thirds of the pairs may save by chance; the bytes say why none is to be expected.
                        check.because(NEVER_EOR)
                    } else {
                        check
                    });
                }
            }
        }
    }
    report.rows = rows;
    report.remarks.push(format!(
        "Percent of the time saved by EC-oriented replication: medians of the {} ratios of changes that took turns, of \
         values with one owner, on {NODES} nodes of one machine, with scheme k+m. Bytes are those of the connections \
         between the nodes, both directions, as the system counts them.",
        stage.count(ROUNDS, 3)
    ));
    report.tables.extend([times, spread]);
    Ok(report)
}
