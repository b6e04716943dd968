//! ElasticMem Fig 9 (§6.2, Experiment 2): how long a change of redundancy takes, from replication and from EC-oriented
//! replication.

use crate::baselines::elasticmem::ElasticMem;
use crate::baselines::network::Way;
use crate::report::figure;
use crate::stage::{HOP, Nodes, Stage};
use crate::{Check, Experiment, Report, Table};
use paritas_base::Prng;
use paritas_large::Class;
use std::io;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "elasticmem-transitions",
    figure: "ElasticMem Fig 9",
    claim: "EC-oriented replication saves 8 to 35 % of the time towards erasure coding and 3 to 26 % of the time back, \
            more for longer values",
    exact: false,
    run,
};

/// The paper's k, m and r.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) k: u8,
    pub(crate) m: u8,
    pub(crate) r: u8,
}

/// The settings of Fig 9.
pub(crate) const SETTINGS: [Setting; 3] = [
    Setting { k: 4, m: 1, r: 2 },
    Setting { k: 4, m: 2, r: 3 },
    Setting { k: 5, m: 1, r: 2 },
];

impl Setting {
    /// Replication, erasure coding, and EC-oriented replication.
    pub(crate) fn classes(self) -> (Class, Class, Class) {
        let Self { k, m, r } = self;
        (
            Class::Rep { copies: r },
            Class::Ec { data: k, parity: m },
            Class::Eor { copies: r, data: k },
        )
    }

    pub(crate) fn name(self) -> String {
        format!("({};{};{})", self.k, self.m, self.r)
    }
}

/// The paper's six servers.
pub(crate) const SERVERS: usize = 6;
/// The paper's network of 10 Gbit/s, in bytes a second.
pub(crate) const LINK: f64 = 1.25e9;
/// Rounds of each measurement; the median counts.
const ROUNDS: u32 = 31;
const SIZES_KB: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Six memcached servers behind the client's link.
pub(crate) fn start(value_bytes: usize) -> io::Result<(Nodes, ElasticMem)> {
    let (nodes, mut network) = Nodes::start(SERVERS, value_bytes, None)?;
    network.set_way(Way::AtOnce);
    network.set_hop(HOP);
    network.set_rate(LINK);
    Ok((nodes, ElasticMem::new(network)))
}

/// A value of this length whose bytes do not repeat soon.
pub(crate) fn value(bytes: usize) -> Vec<u8> {
    let mut random = Prng::new(bytes as u64);
    (0..bytes).map(|_| random.next_u64() as u8).collect()
}

/// Median, lowest and highest quarter.
pub(crate) fn quartiles(mut times: Vec<Duration>) -> [f64; 3] {
    times.sort_unstable();
    [times.len() / 2, times.len() / 4, times.len() * 3 / 4].map(|at| times[at].as_secs_f64() * 1e6)
}

/// Time and bytes of a change from one class to another.
fn change(store: &mut ElasticMem, object: u32, from: Class, to: Class, value: &[u8]) -> io::Result<(Duration, u64)> {
    store.set(object, from, value)?;
    let before = store.network().counts();
    let began = Instant::now();
    store.change(object, to)?;
    let (took, bytes) = (began.elapsed(), store.network().counts().since(before).bytes);
    if store.get(object, &[])? != value {
        return Err(io::Error::other(format!("{from} to {to} gives other bytes")));
    }
    Ok((took, bytes))
}

fn run(stage: &Stage) -> io::Result<Report> {
    let names = ["forward", "back"];
    let settings = SETTINGS
        .iter()
        .flat_map(|setting| names.map(|name| format!("{} {name}", setting.name())));
    let mut report = Report {
        columns: ["KiB".to_owned()].into_iter().chain(settings).collect(),
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
            "bytes",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Vec::new(),
    };
    let sizes = if stage.is_full() {
        &SIZES_KB[..]
    } else {
        &SIZES_KB[5..6]
    };
    // For each setting and direction, the part of the time that is saved, by length.
    let mut saved: Vec<Vec<f64>> = vec![Vec::new(); 2 * SETTINGS.len()];
    for kb in sizes {
        (stage.say)(&format!("values of {kb} KiB"));
        let (_nodes, mut store) = start(kb << 10)?;
        let value = value(kb << 10);
        let mut row = vec![kb.to_string()];
        for (n, setting) in SETTINGS.iter().enumerate() {
            let (rep, ec, eor) = setting.classes();
            let changes = [
                ("rep_to_ec", rep, ec),
                ("eor_to_ec", eor, ec),
                ("ec_to_rep", ec, rep),
                ("ec_to_eor", ec, eor),
            ];
            // The changes take turns, so that a slow second of this machine meets them all.
            let (mut all, mut moved): ([Vec<Duration>; 4], _) = (Default::default(), [0; 4]);
            for object in 0..stage.count(ROUNDS, 3) {
                for (at, (_, from, to)) in changes.into_iter().enumerate() {
                    let (took, bytes) = change(&mut store, object, from, to, &value)?;
                    all[at].push(took);
                    moved[at] = bytes;
                }
            }
            let mut medians = Vec::new();
            for ((name, _, _), (found, bytes)) in changes.into_iter().zip(all.into_iter().zip(moved)) {
                let found = quartiles(found);
                times.rows.push(
                    [kb.to_string(), setting.name(), name.to_owned()]
                        .into_iter()
                        .chain(found.map(figure))
                        .chain([bytes.to_string()])
                        .collect(),
                );
                medians.push((found[0], bytes));
            }
            for (direction, pair) in medians.chunks(2).enumerate() {
                let part = 1.0 - pair[1].0 / pair[0].0;
                saved[2 * n + direction].push(part);
                row.push(figure(100.0 * part));
            }
            if *kb == 1024 {
                let (k, m, r) = (f64::from(setting.k), f64::from(setting.m), f64::from(setting.r));
                let exact = setting.k == 4;
                let ratio = |at: usize| 1.0 - medians[at + 1].1 as f64 / medians[at].1 as f64;
                if exact {
                    let what = |way| format!("{} 1 MiB {way}: bytes saved, by counter", setting.name());
                    report
                        .checks
                        .push(Check::same(what("forward"), k / (2.0 * k + m), ratio(0)));
                    report.checks.push(Check::same(what("back"), 1.0 / (r + 1.0), ratio(2)));
                }
            }
        }
        report.rows.push(row);
    }
    if stage.is_full() {
        judge(&mut report, &saved);
    }
    let rounds = stage.count(ROUNDS, 3);
    report.remarks.push(format!(
        "Percent of the time saved by EC-oriented replication; medians of {rounds} rounds over {SERVERS} memcached \
         servers. A message takes 0.1 ms each way, and all bytes pass one link of 10 Gbit/s; both are waited for in \
         the client."
    ));
    report.tables.push(times);
    Ok(report)
}

fn judge(report: &mut Report, saved: &[Vec<f64>]) {
    let last = SIZES_KB.len() - 1;
    for (direction, (name, paper)) in [("forward", 35.0), ("back", 26.0)].into_iter().enumerate() {
        let of = |n: usize| &saved[2 * n + direction];
        let most = (0..SETTINGS.len()).map(|n| of(n)[last]).fold(0.0, f64::max);
        report.checks.push(Check::at_least(
            format!("{name}: most time saved, at 4 MiB, in percent"),
            paper,
            100.0 * most,
        ));
        for (n, setting) in SETTINGS.iter().enumerate() {
            let grows = of(n)[last] > of(n)[last - 3] && of(n)[last - 3] > of(n)[0];
            report.checks.push(Check::claim(
                format!(
                    "{name} {}: more is saved at 64 KiB than at 1, at 4 MiB than at 64",
                    setting.name()
                ),
                grows,
            ));
        }
        let less = of(1)[last] < of(0)[last];
        report.checks.push(Check::claim(
            format!("{name}: (4;2;3) saves less than (4;1;2) at 4 MiB"),
            less,
        ));
    }
}
