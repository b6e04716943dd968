//! What the simulated experiments of POCache have in common (§5.3): files on data nodes of which one is slow, and reads
//! by Zipf's law. The caches are the real machine of crate `files`.

use crate::report::{Report, Table};
use paritas_base::Prng;
use paritas_files::{Csac, CsacSettings, Decision, Eviction, File, Node, Update};

/// As in the paper: 100 files of four blocks, 2000 reads.
pub(super) const FILES: u64 = 100;
pub(super) const DATA_BLOCKS: usize = 4;
pub(super) const READS: u32 = 2000;
const ZIPF: f64 = 0.9;
/// Data nodes. The paper does not say how many of its 28 held the files; with 12, a third of the files is affected.
pub(super) const NODES: u64 = 12;
pub(super) const SEEDS: u64 = 30;
pub(super) const SIZES: [u64; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// Where the files lie, and how popular they are.
#[derive(Clone, Debug)]
pub(super) struct World {
    random: Prng,
    nodes: Vec<Vec<Node>>,
    /// The files, the most popular first.
    by_rank: Vec<File>,
    /// Sums of the probabilities.
    cumulative: Vec<f64>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Prng::new(0x5eed_0000 + seed);
        let nodes = (0..FILES).map(|_| shuffled(&mut random, NODES)).map(|nodes| {
            let chosen = nodes.into_iter().take(DATA_BLOCKS);
            chosen.map(|node| node as Node).collect()
        });
        let nodes = nodes.collect();
        let by_rank = shuffled(&mut random, FILES);
        let weights = (1..=FILES).map(|rank| (rank as f64).powf(-ZIPF));
        let cumulative = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self {
            nodes,
            by_rank,
            cumulative: cumulative.collect(),
            random,
        }
    }

    pub(super) fn next_file(&mut self) -> File {
        let all = self.cumulative.last().copied().unwrap_or(0.0);
        let drawn = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * all;
        let rank = self.cumulative.partition_point(|sum| *sum <= drawn);
        self.by_rank[rank.min(self.by_rank.len() - 1)]
    }

    pub(super) fn next_node(&mut self) -> Node {
        self.random.below(NODES) as Node
    }

    pub(super) fn nodes(&self, file: File) -> &[Node] {
        &self.nodes[file as usize]
    }
}

fn shuffled(random: &mut Prng, count: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..count).collect();
    for at in (1..all.len()).rev() {
        all.swap(at, random.below(at as u64 + 1) as usize);
    }
    all
}

/// A cache with this eviction. Without stragglers in its list, it is the plain cache that knows nothing of them.
pub(super) fn cache(blocks: u64, eviction: Eviction) -> Csac {
    Csac::new(CsacSettings::new(blocks, eviction))
}

/// A read of something that takes `blocks`: QUERY and UPDATE. Returns whether it was cached before.
pub(super) fn read(cache: &mut Csac, item: File, nodes: &[Node], blocks: u64) -> bool {
    let decision = cache.query(item, nodes);
    let update = cache.update(item, nodes, blocks, decision);
    debug_assert!(!matches!(update, Update::Cached { .. }) || decision == Decision::ShouldCache);
    decision == Decision::Cached
}

/// The results of one system at one size, over the seeds.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    sorted: Vec<f64>,
}

impl Spread {
    pub(super) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { sorted: values }
    }

    fn quantile(&self, part: f64) -> f64 {
        let place = part * (self.sorted.len() - 1) as f64;
        let (low, high) = (self.sorted[place.floor() as usize], self.sorted[place.ceil() as usize]);
        low + (high - low) * place.fract()
    }

    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(super) fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }
}

/// Straggler hit ratios in percent: of each system at each size.
#[derive(Clone, Debug)]
pub(super) struct Ratios {
    pub(super) systems: Vec<&'static str>,
    /// By system and size.
    pub(super) spreads: Vec<Vec<Spread>>,
}

impl Ratios {
    /// Runs `run(system, size, seed)` for all.
    pub(super) fn of(systems: &[&'static str], run: impl Fn(usize, u64, u64) -> f64) -> Self {
        let spread = |system, size| Spread::new((0..SEEDS).map(|seed| run(system, size, seed)).collect());
        let spreads = (0..systems.len()).map(|system| SIZES.iter().map(|size| spread(system, *size)).collect());
        Self {
            systems: systems.to_vec(),
            spreads: spreads.collect(),
        }
    }

    pub(super) fn at(&self, system: usize, size: u64) -> &Spread {
        let place = SIZES.iter().position(|other| *other == size).unwrap_or(0);
        &self.spreads[system][place]
    }

    /// The plotted rows: medians.
    pub(super) fn report(&self) -> Report {
        let names = self.systems.iter().map(|name| (*name).to_owned());
        let rows = SIZES.iter().map(|size| {
            let medians = (0..self.systems.len()).map(|system| number(self.at(system, *size).median()));
            [size.to_string()].into_iter().chain(medians).collect()
        });
        Report {
            columns: ["cache size (blocks)".to_owned()].into_iter().chain(names).collect(),
            rows: rows.collect(),
            y: "straggler hit ratio, percent",
            spread: self.quarters(),
            ..Report::default()
        }
    }

    /// Lowest and highest quarter, by size and system.
    fn quarters(&self) -> Vec<Vec<[f64; 2]>> {
        let of = |spread: &Spread| [0.25, 0.75].map(|part| spread.quantile(part));
        let at = |size| {
            (0..self.systems.len())
                .map(|system| of(self.at(system, size)))
                .collect()
        };
        SIZES.iter().map(|size| at(*size)).collect()
    }

    /// Median and spread of every point.
    pub(super) fn table(&self, name: &'static str) -> Table {
        let mut rows = Vec::new();
        for (system, name) in self.systems.iter().enumerate() {
            for size in SIZES {
                let spread = self.at(system, size);
                let figures = [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| number(spread.quantile(part)));
                let mut row = vec![(*name).to_owned(), size.to_string()];
                row.extend(figures);
                row.push(number(spread.mean()));
                rows.push(row);
            }
        }
        let columns = [
            "system",
            "cache size",
            "min",
            "quartile 1",
            "median",
            "quartile 3",
            "max",
            "mean",
        ];
        Table {
            name,
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        }
    }
}

/// Two digits, also for small numbers, so that a plain zero is seen as one.
fn number(percent: f64) -> String {
    format!("{percent:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_follows_zipfs_law() {
        let mut world = World::new(1);
        let mut counts = vec![0u32; FILES as usize];
        for _ in 0..200_000 {
            counts[world.next_file() as usize] += 1;
        }
        let of_rank = |rank: usize| f64::from(counts[world.by_rank[rank - 1] as usize]);
        for (rank, factor) in [(2, 2f64.powf(0.9)), (10, 10f64.powf(0.9))] {
            let ratio = of_rank(1) / of_rank(rank);
            assert!((ratio / factor - 1.0).abs() < 0.06, "{rank}: {ratio} {factor}");
        }
        assert!(counts.iter().all(|count| *count > 0));
    }

    #[test]
    fn a_file_has_its_blocks_on_distinct_nodes() {
        let world = World::new(2);
        for file in 0..FILES {
            let mut nodes = world.nodes(file).to_vec();
            nodes.sort_unstable();
            nodes.dedup();
            assert_eq!(nodes.len(), DATA_BLOCKS);
        }
    }

    #[test]
    fn quantiles_are_between_the_values() {
        let spread = Spread::new(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!(
            (spread.quantile(0.0), spread.median(), spread.quantile(1.0)),
            (1.0, 2.5, 4.0)
        );
        assert_eq!(spread.mean(), 2.5);
    }
}
