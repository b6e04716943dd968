//! The cost of a log's sizes, which §6.3 leaves open. Also the number of updates that a disk with a given number of
//! accesses a second sustains, by the size of the log area. Not an experiment of the paper.

use crate::baselines::log_node::{LogNode, Medium};
use crate::baselines::network::{Ask, Peer};
use crate::report::figure;
use crate::stage::{Directory, Logs, Stage};
use crate::workload::Workload;
use crate::{Check, Experiment, Report, Table};
use paritas_base::Prng;
use paritas_paritylog::{Counters, Layout, Settings};
use std::io;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "log-sizes",
    figure: "none: sizes that LogECMem §5 and §6.3 leave open",
    claim: "(ours) a larger log area saves accesses; the sustained rate of updates follows from the counted accesses",
    exact: false,
    run,
};

const CHUNK_BYTES: usize = 16 << 10;
const DELTA_BYTES: usize = 1 << 10;
/// Parts of the disk that the log area takes. The first is left out of the plot's claim, because such an area holds
/// little more than one write.
const AREA_PARTS: [u64; 5] = [64, 32, 16, 8, 4];
const RESERVES: [usize; 3] = [CHUNK_BYTES, 2 * CHUNK_BYTES, 4 * CHUNK_BYTES];
const FLUSHES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Time of an access, as on a disk with a thousand accesses a second.
const ACCESS: Duration = Duration::from_millis(1);
const CODE: (u8, u8) = (6, 3);

#[derive(Clone, Copy)]
struct Sizes {
    stripes: u32,
    area_part: u64,
    reserve_bytes: usize,
    flush_bytes: usize,
}

impl Sizes {
    fn logs(self) -> Logs {
        let mut logs = Logs::new(CODE, Layout::Plm, self.stripes * u32::from(CODE.0), CHUNK_BYTES);
        logs.disk.medium = Medium::Memory;
        let settings = Settings {
            reserve_bytes: self.reserve_bytes,
            flush_bytes: self.flush_bytes,
            ..logs.settings
        };
        let slots = u64::from(settings.slots_max) * settings.slot_bytes() as u64;
        // The area is its part of slots and area together.
        let log_bytes = (slots / (self.area_part - 1)).max(8 * self.flush_bytes as u64);
        logs.settings = Settings { log_bytes, ..settings };
        logs
    }

    fn node(self, directory: &Directory) -> io::Result<LogNode> {
        let mut nodes = self.logs().create(directory.path())?;
        let mut node = nodes.pop().ok_or_else(|| io::Error::other("no log node"))?;
        for stripe in 0..self.stripes {
            node.send(&Ask::PutParity(stripe, vec![0; CHUNK_BYTES]))?;
        }
        node.settle()?;
        Ok(node)
    }
}

/// Draws the stripes and offsets of updates.
struct Updates {
    random: Prng,
    popular: Option<Workload>,
    stripes: u32,
}

impl Updates {
    fn new(stripes: u32, zipf: bool) -> Self {
        Self {
            random: Prng::new(11),
            popular: zipf.then(|| Workload::new(11, stripes * 16, 100)),
            stripes,
        }
    }

    fn next_update(&mut self) -> Ask {
        let stripe = match &mut self.popular {
            Some(workload) => workload.next_object() / 16,
            None => self.random.below(u64::from(self.stripes)) as u32,
        };
        let place = self.random.below((CHUNK_BYTES / DELTA_BYTES) as u64) as u32;
        Ask::Delta {
            stripe,
            index: self.random.below(u64::from(CODE.0)) as u8,
            offset: place * DELTA_BYTES as u32,
            xor: vec![place as u8 + 1; DELTA_BYTES],
        }
    }
}

/// Counts of the second half of this many updates. The first half brings the log to a steady state.
fn counted(sizes: Sizes, zipf: bool, updates: u32) -> io::Result<Counters> {
    let directory = Directory::new()?;
    let mut node = sizes.node(&directory)?;
    let mut source = Updates::new(sizes.stripes, zipf);
    for _ in 0..updates / 2 {
        node.send(&source.next_update())?;
    }
    let before = node.counters();
    for _ in 0..updates / 2 {
        node.send(&source.next_update())?;
    }
    Ok(node.counters() - before)
}

/// Updates a second, uniformly drawn, that a log node with a disk this slow sustains for `seconds`.
fn sustained(sizes: Sizes, updates_before: u32, seconds: f64) -> io::Result<f64> {
    let directory = Directory::new()?;
    let mut node = sizes.node(&directory)?;
    let mut source = Updates::new(sizes.stripes, false);
    for _ in 0..updates_before {
        node.send(&source.next_update())?;
    }
    node.set_access(ACCESS)?;
    let (began, mut updates) = (Instant::now(), 0);
    while began.elapsed().as_secs_f64() < seconds {
        // The sender waits while the disk is behind: this is the back-pressure.
        node.send(&source.next_update())?;
        updates += 1;
    }
    Ok(f64::from(updates) / began.elapsed().as_secs_f64())
}

fn run(stage: &Stage) -> io::Result<Report> {
    let usual = Sizes {
        stripes: stage.count(2_000, 100),
        area_part: 8,
        reserve_bytes: CHUNK_BYTES,
        flush_bytes: 64 << 10,
    };
    let updates = stage.count(200_000, 4_000);
    let seconds = f64::from(stage.count(20, 1));
    let mut report = Report {
        columns: [
            "log area %",
            "accesses for 1000 uniform",
            "for 1000 Zipfian",
            "updates a second",
        ]
        .map(str::to_owned)
        .to_vec(),
        logarithmic: (true, true),
        ..Report::default()
    };
    let columns = [
        "setting",
        "size",
        "updates",
        "accesses for 1000",
        "written",
        "read",
        "folded %",
        "rewritten for 1000",
    ];
    let mut table = Table {
        name: "counts",
        columns: columns.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    let half = f64::from(updates / 2);
    let accesses = |found: &Counters| 1000.0 * (found.writes + found.reads) as f64 / half;
    let mut look = |setting: &str, size: String, sizes: Sizes, zipf: bool| -> io::Result<f64> {
        let found = counted(sizes, zipf, updates)?;
        let times = |bytes: u64| figure(bytes as f64 / half / DELTA_BYTES as f64);
        table.rows.push(vec![
            setting.to_owned(),
            size,
            if zipf { "Zipfian" } else { "uniform" }.to_owned(),
            figure(accesses(&found)),
            times(found.write_bytes),
            times(found.read_bytes),
            figure(100.0 * found.folded as f64 / half),
            figure(1000.0 * found.compacted as f64 / half),
        ]);
        Ok(accesses(&found))
    };
    let mut uniform = Vec::new();
    for area_part in AREA_PARTS {
        (stage.say)(&format!("a log area of one part in {area_part} of the disk"));
        let sizes = Sizes { area_part, ..usual };
        let name = format!("1/{area_part}");
        let (even, zipf) = (
            look("area", name.clone(), sizes, false)?,
            look("area", name, sizes, true)?,
        );
        let rate = sustained(sizes, updates / 2, seconds)?;
        if stage.is_full() {
            let what = format!("area 1/{area_part}: updates a second that 1,000 accesses allow");
            let allowed = 1e6 / even;
            let check = Check::near(what, allowed, rate, 0.25);
            report.checks.push(check.own());
        }
        uniform.push(even);
        let percent = figure(100.0 / area_part as f64);
        report
            .rows
            .push(vec![percent, figure(even), figure(zipf), figure(rate)]);
    }
    for reserve_bytes in RESERVES {
        let name = format!("{} chunks", reserve_bytes / CHUNK_BYTES);
        for zipf in [false, true] {
            look("reserve", name.clone(), Sizes { reserve_bytes, ..usual }, zipf)?;
        }
    }
    for flush_bytes in FLUSHES {
        let name = format!("{} KiB", flush_bytes >> 10);
        for zipf in [false, true] {
            look("flush", name.clone(), Sizes { flush_bytes, ..usual }, zipf)?;
        }
    }
    let falls = uniform.windows(2).all(|pair| pair[1] <= pair[0] * 1.02);
    let what = "a larger log area saves accesses";
    report.checks.push(Check::claim(what, falls).own());
    report.tables.push(table);
    report.remarks.push(format!(
        "PLM, {} parity chunks of 16 KiB, deltas of 1 KiB; the second half of {updates} updates. Unless said: area \
         1/8 of the disk, space for deltas one chunk, 64 KiB written at once. Written and read: bytes for each byte of \
         deltas. Updates a second: {seconds} s on a disk on which each access takes {} ms, one after the other.",
        usual.stripes,
        ACCESS.as_millis()
    ));
    Ok(report)
}
