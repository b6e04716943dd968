//! POCache Fig 18, experiment 15 (§5.3): what prefetch brings when a node becomes slow, and what becomes of the files
//! that are made ahead.
//!
//! The reads before fill the cache. Then a node becomes slow, the estimate sees it at once, and a worker that takes no
//! time makes what PREFETCH names: the best case for prefetch. The paper has one point, a cache of 20 blocks with LFU.

use super::pocache::{READS, Ratios, SEEDS, World, read};
use crate::stage::Stage;
use crate::{Check, Experiment, Report, Table};
use paritas_base::{Set, set};
use paritas_files::{Csac, CsacSettings, Eviction, File, Prediction};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pocache-ahead",
    figure: "POCache Fig 18 (E15)",
    claim: "with a cache of 20 blocks and LFU prefetch lowers the 95th percentile: fewer reads meet the straggler",
    exact: true,
    run,
};

const SYSTEMS: [&str; 7] = [
    "LFU",
    "LFU+prefetch",
    "LRU",
    "LRU+prefetch",
    "ARC",
    "ARC+prefetch",
    "LFU+prefetch by frequency",
];
/// The systems that prefetch.
const PREFETCHING: [usize; 4] = [1, 3, 5, 6];
const READS_BEFORE: u32 = 200;
/// The paper's θ, in percent.
const THETA: u8 = 40;
const PAPER_SIZE: u64 = 20;
/// Beyond that ratio the 95th percentile is the time of a read that waits for the straggler.
const TAIL_PERCENT: f64 = 5.0;

/// What a run gives.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Straggler hits of the reads after the node has become slow, in percent.
    hits_percent: f64,
    /// Files whose parity was made ahead.
    made: u32,
    /// Of these: read while their parity was cached.
    of_use: u32,
}

fn one(system: usize, size: u64, seed: u64) -> Run {
    let mut world = World::new(seed);
    let straggler = world.next_node();
    let (eviction, prefetches) = match system {
        0 => (Eviction::Lfu, None),
        1 => (Eviction::Lfu, Some(Prediction::Recency)),
        2 => (Eviction::Lru, None),
        3 => (Eviction::Lru, Some(Prediction::Recency)),
        4 => (Eviction::Arc, None),
        5 => (Eviction::Arc, Some(Prediction::Recency)),
        _ => (Eviction::Lfu, Some(Prediction::Frequency)),
    };
    let mut cache = Csac::new(CsacSettings {
        prediction: prefetches.unwrap_or(Prediction::Recency),
        ..CsacSettings::new(size, eviction)
    });
    for _ in 0..READS_BEFORE {
        let file = world.next_file();
        let nodes = world.nodes(file).to_vec();
        read(&mut cache, file, &nodes, 1);
    }
    cache.set_stragglers([straggler]);
    let mut run = Run::default();
    let mut ahead: Set<File> = set();
    if prefetches.is_some() {
        for file in cache.prefetch(THETA) {
            cache.update_prefetched(file, 1);
            ahead.insert(file);
        }
    }
    run.made = ahead.len() as u32;
    let mut hits = 0;
    for _ in 0..READS {
        let file = world.next_file();
        let nodes = world.nodes(file).to_vec();
        ahead.retain(|file| cache.contains(*file));
        run.of_use += u32::from(ahead.remove(&file));
        let is_cached = read(&mut cache, file, &nodes, 1);
        hits += u32::from(!is_cached && nodes.contains(&straggler));
    }
    run.hits_percent = f64::from(hits) * 100.0 / f64::from(READS);
    run
}

/// Means over the seeds with the paper's cache: files made ahead, and those of use.
fn fate(system: usize) -> (f64, f64) {
    let runs: Vec<Run> = (0..SEEDS).map(|seed| one(system, PAPER_SIZE, seed)).collect();
    let mean = |of: fn(&Run) -> u32| runs.iter().map(of).sum::<u32>() as f64 / SEEDS as f64;
    (mean(|run| run.made), mean(|run| run.of_use))
}

fn run(_: &Stage) -> io::Result<Report> {
    let ratios = Ratios::of(&SYSTEMS, |system, size, seed| one(system, size, seed).hits_percent);
    let median = |system: usize| ratios.at(system, PAPER_SIZE).median();
    let fates: Vec<(f64, f64)> = PREFETCHING.map(fate).to_vec();
    let mut report = ratios.report();
    report.checks = vec![
        Check::claim(
            "LFU; cache 20: prefetch lowers the straggler hit ratio by a tenth or more",
            median(1) <= 0.9 * median(0),
        )
        .because("files that are made ahead were read rarely: LFU evicts them first"),
        Check::explanation(
            "LFU; cache 20: more than 5 % of the reads meet the straggler with prefetch and without",
            median(0) > TAIL_PERCENT && median(1) > TAIL_PERCENT,
        ),
        Check::explanation(
            "LFU; cache 20: most files that are made ahead are evicted before anybody reads them",
            fates[0].1 < 0.5 * fates[0].0,
        ),
        Check::explanation(
            "LRU; cache 20: at least twice as many of them are of use as with LFU",
            fates[1].1 >= 2.0 * fates[0].1,
        ),
        Check::explanation(
            "LFU; cache 20: prefetch by frequency lowers the straggler hit ratio by a tenth or more",
            median(6) <= 0.9 * median(0),
        )
        .because("what was read most often is cached already: LFU keeps it"),
    ];
    let rows = PREFETCHING.iter().zip(&fates).map(|(system, (made, of_use))| {
        let evicted = made - of_use;
        vec![
            SYSTEMS[*system].to_owned(),
            format!("{made:.2}"),
            format!("{of_use:.2}"),
            format!("{evicted:.2}"),
        ]
    });
    let fate = Table {
        name: "fate",
        columns: ["system", "made ahead", "read while cached", "evicted before"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
    };
    report.tables = vec![fate, ratios.table("spread")];
    report.remarks.push(format!(
        "Simulated with the real CSAC; straggler hit ratio in percent of the {READS} reads after a node has become \
         slow, medians of {SEEDS} seeds; {READS_BEFORE} reads before. 12 nodes, theta {THETA} %. The estimate does not \
         lag and the worker takes no time. `fate`: files of a run with a cache of {PAPER_SIZE} blocks, means."
    ));
    Ok(report)
}
