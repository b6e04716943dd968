//! ElasticMem Fig 8 (§6.2, Experiment 1): reads and writes of an object with three kinds of redundancy. The paper has
//! no degraded reads; here two of the six servers end at last, and objects that lay there are read.

use super::elasticmem_transitions::{SERVERS, Setting, quartiles, ratios, start, value};
use crate::baselines::elasticmem::{ElasticMem, first_node};
use crate::report::figure;
use crate::stage::Stage;
use crate::{Better, Check, Experiment, Report, Table};
use paritas_large::Class;
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
const ROUNDS: u32 = 61;
const SIZES_KB: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];
const NAMES: [&str; 3] = ["Rep", "EC", "EOR"];
const ACCESSES: [&str; 3] = ["read", "write", "read without two nodes"];
/// Places in `NAMES`.
const REP: usize = 0;
const EC: usize = 1;
const EOR: usize = 2;
/// Places in `ACCESSES`.
const READ: usize = 0;
const WRITE: usize = 1;
const DEGRADED: usize = 2;
/// The servers that end.
const LOST: [usize; 2] = [0, 1];
/// Where the objects of each class begin, so that the two servers have what a read asks for first: two of three copies,
/// two of four data blocks, and the whole copy with a data block.
const FIRSTS: [u8; 3] = [0, 0, 3];

/// Times in each round, by class and access.
type Times = [[Vec<Duration>; 3]; 3];

fn measure(kb: usize, classes: [Class; 3], rounds: u32) -> io::Result<(Times, [u64; 3])> {
    let (mut nodes, mut store) = start(kb << 10)?;
    let value = value(kb << 10);
    let mut those_at = FIRSTS.map(|first| (0..).filter(move |object| first_node(*object, SERVERS) == first));
    let next = |_| those_at.each_mut().map(|objects| objects.next().unwrap_or_default());
    let rounds: Vec<[u32; 3]> = (0..rounds).map(next).collect();
    let mut times = Times::default();
    let mut written = [0; 3];
    let read = |store: &mut ElasticMem, object: u32, lost: &[usize]| {
        let began = Instant::now();
        let read = store.get(object, lost)?;
        let took = began.elapsed();
        match read == value {
            true => Ok(took),
            false => Err(io::Error::other("other bytes than were written")),
        }
    };
    // The classes take turns, so that a slow second of this machine meets them all.
    for objects in &rounds {
        for n in [REP, EC, EOR] {
            let before = store.network().counts();
            let began = Instant::now();
            store.set(objects[n], classes[n], &value)?;
            times[n][WRITE].push(began.elapsed());
            written[n] = store.network().counts().since(before).bytes;
        }
    }
    for objects in &rounds {
        for n in [REP, EC, EOR] {
            times[n][READ].push(read(&mut store, objects[n], &[])?);
        }
    }
    for node in LOST {
        nodes.end(node)?;
    }
    for objects in &rounds {
        for n in [REP, EC, EOR] {
            times[n][DEGRADED].push(read(&mut store, objects[n], &LOST)?);
        }
    }
    Ok((times, written))
}

fn run(stage: &Stage) -> io::Result<Report> {
    let columns = NAMES
        .iter()
        .flat_map(|name| [format!("{name} read"), format!("{name} write")]);
    let mut report = Report {
        columns: ["KiB".to_owned()].into_iter().chain(columns).collect(),
        logarithmic: (true, true),
        y: "microseconds, medians and quarters",
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
    let mut all = Vec::new();
    for kb in sizes {
        (stage.say)(&format!("values of {kb} KiB"));
        let (times, written) = measure(*kb, [rep, ec, eor], stage.count(ROUNDS, 3))?;
        let bytes = (*kb as u64) << 10;
        let [k, m, r] = [SETTING.k, SETTING.m, SETTING.r].map(u64::from);
        for (n, expected) in [(REP, r * bytes), (EC, (k + m) * bytes / k), (EOR, r * bytes)] {
            let what = format!("{kb} KiB: bytes that a write of {} sends", NAMES[n]);
            report.checks.push(Check::equal(what, expected, written[n]));
        }
        let (mut row, mut quarters) = (vec![kb.to_string()], Vec::new());
        for (name, of_class) in NAMES.into_iter().zip(&times) {
            for (at, access) in ACCESSES.into_iter().enumerate() {
                let found = quartiles(of_class[at].clone());
                spread.rows.push(
                    [kb.to_string(), name.to_owned(), access.to_owned()]
                        .into_iter()
                        .chain(found.map(figure))
                        .collect(),
                );
                if at != DEGRADED {
                    row.push(figure(found[0]));
                    quarters.push([found[1], found[2]]);
                }
            }
        }
        all.push(times);
        report.rows.push(row);
        report.spread.push(quarters);
    }
    if stage.is_full() {
        judge(&mut report, &all);
    }
    let rounds = stage.count(ROUNDS, 3);
    report.remarks.push(format!(
        "Microseconds, medians of {rounds} rounds, with (k;m;r) = {}, over {SERVERS} memcached servers. Ratios are \
         medians of the ratios of each round. A message takes 0.1 ms each way, and all bytes pass one link of \
         10 Gbit/s; both are waited for in the client. Reads without two nodes: servers {LOST:?} have ended, and had \
         two of three copies, two of four data blocks of EC, or the whole copy and a data block of EOR.",
        SETTING.name()
    ));
    report.tables.push(spread);
    Ok(report)
}

fn judge(report: &mut Report, all: &[Times]) {
    let ratio = |at: usize, class: usize, access: usize| ratios(&all[at][class][access], &all[at][REP][access])[0];
    let sizes = || SIZES_KB.iter().enumerate();
    let mut checks = Vec::new();
    for (at, kb) in sizes() {
        let what = format!("{kb} KiB: read of EOR over that of Rep: almost the same; taken as a tenth more at most");
        checks.push(Check::at_most(what, 1.1, ratio(at, EOR, READ)));
    }
    for (at, kb) in sizes() {
        let ours = ratio(at, EOR, WRITE);
        checks.push(match *kb {
            ..64 => Check::claim(
                format!(
                    "{kb} KiB: EOR writes more slowly than Rep ({} of its time)",
                    figure(ours)
                ),
                ours > 1.0,
            ),
            // The paper says what is below and above.
            64 => continue,
            _ => Check::near(format!("{kb} KiB: write of EOR over that of Rep"), 1.0, ours, 0.1)
                .judged(Better::Neither, false),
        });
    }
    let of_write = |at| ratio(at, EC, WRITE);
    for (at, kb) in sizes().filter(|(_, kb)| **kb >= 64) {
        let ours = of_write(at);
        let what = format!("{kb} KiB: EC writes faster than Rep ({} of its time)", figure(ours));
        checks.push(Check::claim(what, ours < 1.0));
    }
    let (first, last) = (0, SIZES_KB.len() - 1);
    let what = "4 MiB: write of EC over that of Rep: notably better; taken as three quarters at most";
    checks.push(Check::at_most(what, 0.75, of_write(last)).judged(Better::Neither, of_write(last) < of_write(first)));
    let of_read = |at| ratio(at, EC, READ);
    let what = "4 MiB: read of EC over that of Rep: it outperforms Rep as the size grows";
    let why = "the client's own link is the limit here and takes as many bytes; the paper's client gains by decoding \
               while it reads";
    checks.push(
        Check {
            band: (0.0, 0.95),
            ..Check::near(what, 1.0, of_read(last), 0.0)
        }
        .judged(Better::Neither, of_read(last) < of_read(first))
        .because(why),
    );
    report.checks.append(&mut checks);
}
