//! POCache Fig 14, experiment 11 (§5.3): how often reads meet a straggler without cached parity, by cache size.
//!
//! One of the nodes is slow all the time. CSAC knows which; LRU, ARC and LFU do not. The cache is filled by the write
//! path first, which evicts nothing (§4.2).

use super::pocache::{FILES, READS, Ratios, SEEDS, SIZES, World, cache, read};
use crate::stage::Stage;
use crate::{Better, Check, Experiment, Report};
use paritas_files::Eviction;
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pocache-hit-ratio",
    figure: "POCache Fig 14 (E11)",
    claim: "with a cache of 40 blocks CSAC's straggler hit ratio is below 2.5 %, that of LRU, ARC and LFU about 10 %",
    exact: true,
    run,
};

const SYSTEMS: [&str; 6] = ["LRU", "ARC", "LFU", "CSAC+LRU", "CSAC+ARC", "CSAC+LFU"];
const EVICTIONS: [Eviction; 3] = [Eviction::Lru, Eviction::Arc, Eviction::Lfu];

/// The straggler hit ratio in percent.
fn ratio(system: usize, size: u64, seed: u64, is_filled: bool) -> f64 {
    let mut world = World::new(seed);
    let straggler = world.next_node();
    let mut cache = cache(size, EVICTIONS[system % 3]);
    if is_filled {
        for file in 0..FILES {
            cache.reserve(file, 1);
        }
    }
    if system >= 3 {
        cache.set_stragglers([straggler]);
    }
    let mut hits = 0;
    for _ in 0..READS {
        let file = world.next_file();
        let nodes = world.nodes(file).to_vec();
        let is_cached = read(&mut cache, file, &nodes, 1);
        hits += u32::from(!is_cached && nodes.contains(&straggler));
    }
    f64::from(hits) * 100.0 / f64::from(READS)
}

fn run(_: &Stage) -> io::Result<Report> {
    let filled = Ratios::of(&SYSTEMS, |system, size, seed| ratio(system, size, seed, true));
    let empty = Ratios::of(&SYSTEMS, |system, size, seed| ratio(system, size, seed, false));
    let median = |system: usize, size: u64| filled.at(system, size).median();
    let aware_is_better = |size: u64| (0..3).all(|plain| median(plain + 3, size) < median(plain, size));
    let mut claims = Vec::new();
    for (system, name) in SYSTEMS.iter().enumerate() {
        claims.push(match system {
            0..3 => {
                let ours = median(system, 40);
                Check::near(format!("{name}; cache 40; percent"), 10.0, ours, 0.2)
                    .judged(Better::Neither, ours > 2.0 * median(system + 3, 40))
            }
            _ => {
                let ours = filled.at(system, 40).mean();
                Check::at_most(format!("{name}; cache 40; percent: below 2.5"), 2.5, ours)
                    .judged(Better::Less, aware_is_better(40))
            }
        });
    }
    let lru_is_worst = median(3, 10) > median(4, 10) && median(3, 10) > median(5, 10);
    for (system, paper) in [(3, 19.5), (4, 11.5), (5, 10.8)] {
        let what = format!("{}; cache 10; percent", SYSTEMS[system]);
        claims.push(Check::near(what, paper, median(system, 10), 0.15).judged(Better::Neither, lru_is_worst));
    }
    let ours = median(3, 10) / median(5, 10);
    claims.push(
        Check::near("CSAC+LRU over CSAC+LFU; cache 10", 19.5 / 10.8, ours, 0.15).judged(Better::Neither, lru_is_worst),
    );
    claims.push(Check::claim(
        "each of CSAC is below its plain cache from 10 to 60",
        SIZES
            .iter()
            .filter(|size| (10..=60).contains(*size))
            .all(|size| aware_is_better(*size)),
    ));
    claims.push(Check::claim(
        "the three of CSAC differ by less than 0.5 percent points above 60",
        SIZES.iter().filter(|size| **size > 60).all(|size| {
            let three = [3, 4, 5].map(|system| median(system, *size));
            let (low, high) = (
                three.iter().copied().fold(f64::MAX, f64::min),
                three.iter().copied().fold(0.0, f64::max),
            );
            high - low < 0.5
        }),
    ));
    claims.push(Check::claim(
        "all are 0 with a cache of 100",
        (0..SYSTEMS.len()).all(|system| median(system, 100) == 0.0),
    ));
    let mut report = filled.report();
    report.checks = claims;
    report.tables = vec![filled.table("spread"), empty.table("empty-at-first")];
    report.remarks.push(format!(
        "Simulated with the real CSAC; straggler hit ratio in percent, medians of {SEEDS} seeds. 12 nodes, one is \
         slow. The cache is filled by the write path; `empty-at-first` is without that, and then the first read of \
         each file misses: a cache of 100 is not at 0."
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cache_the_ratio_is_the_part_of_affected_reads() {
        let all: Vec<f64> = (0..SEEDS).map(|seed| ratio(3, 0, seed, true)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        // Four of twelve nodes.
        assert!((25.0..42.0).contains(&mean), "{mean}");
        assert_eq!(ratio(0, 0, 1, true), ratio(5, 0, 1, true));
    }
}
