//! MemEC Fig 2(a), measured (§3.3): the redundancy of small objects with code (10,8) and keys of eight bytes.

use super::redundancy::Sizes;
use crate::load::{Client, Operation};
use crate::report::figure;
use crate::servers::Servers;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memec-memory",
    figure: "MemEC Fig 2(a), measured",
    claim: "all-encoding takes 1.89 to 1.66 times an object's own bytes for values of 2 to 10 bytes",
    exact: false,
    run,
};

const KEY_BYTES: usize = 8;
/// The paper's metadata in bytes: key length and value length. An object has K + V + M bytes.
const METADATA_BYTES: usize = 4;
const VALUES: [usize; 3] = [2, 6, 10];
/// Numbers of keys. The fill of chunks and index pages depends on the number, so several are measured.
const KEYS: [u64; 4] = [2_000_000, 2_500_000, 3_100_000, 3_900_000];
const GAUGES_TIME_MAX: Duration = Duration::from_secs(20);

/// Bytes of one kind of memory in the status.
fn number(status: &str, name: &str) -> Option<u64> {
    let memory = &status[status.rfind("\"memory\":{\"objects\"")?..];
    let (_, rest) = memory.split_once(&format!("\"{name}\":"))?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

/// Bytes of data, index and parity, once the gauges count this many objects.
fn held(servers: &Servers, objects: u64) -> io::Result<u64> {
    let deadline = Instant::now() + GAUGES_TIME_MAX;
    loop {
        let status = servers.status()?;
        if number(&status, "objects").is_some_and(|found| found >= objects) {
            let kinds = ["data", "index", "parity"].map(|kind| number(&status, kind));
            let all: Option<Vec<u64>> = kinds.into_iter().collect();
            return all
                .map(|all| all.iter().sum())
                .ok_or_else(|| io::Error::other("the status has no memory by kind"));
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("the gauges do not count {objects} objects")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn run(stage: &Stage) -> io::Result<Report> {
    let mut report = Report {
        columns: ["V", "ours", "paper"].map(str::to_owned).to_vec(),
        ..Report::default()
    };
    let (values, counts) = match stage.is_full() {
        true => (&VALUES[..], &KEYS[..]),
        false => (&VALUES[1..2], &[20_000][..]),
    };
    for value in values {
        let sizes = Sizes {
            n: 10.0,
            k: 8.0,
            key: KEY_BYTES as f64,
            value: *value as f64,
        };
        let paper = sizes.all_encoding();
        let servers = Servers::paritas("8+2", 10, 256)?;
        let mut client = Client::connect(&servers, 2, KEY_BYTES)?;
        let (mut loaded, mut ratios) = (0, Vec::new());
        for count in counts {
            (stage.say)(&format!("{count} keys with values of {value} B"));
            // The key that was asked for at the cluster's start is a different one.
            client.run((loaded..*count).map(|key| Operation::Set(key, *value)), 2000)?;
            loaded = *count;
            let own = (KEY_BYTES + value + METADATA_BYTES) as f64 * *count as f64;
            ratios.push(held(&servers, *count)? as f64 / own);
        }
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        report.rows.push(vec![value.to_string(), figure(mean), figure(paper)]);
        if stage.is_full() {
            let text = format!("V = {value}: redundancy");
            report.checks.push(Check::at_most(text, paper, mean));
            let each: Vec<String> = ratios.iter().map(|ratio| figure(*ratio)).collect();
            report.remarks.push(format!("V = {value}: {}.", each.join(" ")));
        }
    }
    report.remarks.push(format!(
        "Bytes in data chunks, index pages and parity chunks, as the nodes count them, over those of the objects, each \
         its key, value and {METADATA_BYTES} B of the paper's metadata; mean over {counts:?} keys. An \
         open chunk of 16 KiB for each of the 80 streams matters less the more keys there are."
    ));
    Ok(report)
}
