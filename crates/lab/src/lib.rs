//! Crate `lab`: reproduces the papers' figures and tables. Each experiment is a file that names the figure, the paper's
//! claim, and the band within which a result counts as reproduced.

pub mod archive;
pub mod baselines;
pub mod experiments;
pub mod load;
pub mod processes;
mod relay;
mod report;
pub mod servers;
pub mod stage;
pub mod workload;

pub use report::{Better, Check, Form, Report, Source, Table, Verdict};
use stage::Stage;

/// An experiment: one figure or table.
#[derive(Debug)]
pub struct Experiment {
    /// Its name in `paritas lab run`.
    pub name: &'static str,
    /// The paper, and the figure or table.
    pub figure: &'static str,
    /// The paper's claim, in the project's own words.
    pub claim: &'static str,
    /// Whether the experiment is arithmetic, so that every run gives the same result.
    pub exact: bool,
    /// Runs the experiment.
    pub run: fn(&Stage) -> std::io::Result<Report>,
}

/// A script for python3 with matplotlib that plots a report's rows. Arguments: title, file, whether x and y are
/// logarithmic, what y has, and levels as NAME=FIGURE. Input: [`Report::plotted`].
pub const PLOT: &str = include_str!("plot.py");

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    experiments::mttdl::EXPERIMENT,
    experiments::redundancy::EXPERIMENT,
    experiments::update_schemes::EXPERIMENT,
    experiments::updated_stripes::EXPERIMENT,
    experiments::basic::EXPERIMENT,
    experiments::update_latency::EXPERIMENT,
    experiments::paritas_updates::EXPERIMENT,
    experiments::memory::EXPERIMENT,
    experiments::wide::EXPERIMENT,
    experiments::paritas_wide::EXPERIMENT,
    experiments::disk_accesses::EXPERIMENT,
    experiments::log_sizes::EXPERIMENT,
    experiments::two_losses::EXPERIMENT,
    experiments::node_repair::EXPERIMENT,
    experiments::tradeoff::EXPERIMENT,
    experiments::memec_lists::EXPERIMENT,
    experiments::memec_memory::EXPERIMENT,
    experiments::memec_systems::EXPERIMENT,
    experiments::memec_coding::EXPERIMENT,
    experiments::memec_sizes::EXPERIMENT,
    experiments::memec_shards::EXPERIMENT,
    experiments::memec_degraded::EXPERIMENT,
    experiments::memec_moves::EXPERIMENT,
    experiments::elasticmem_io::EXPERIMENT,
    experiments::elasticmem_access::EXPERIMENT,
    experiments::elasticmem_transitions::EXPERIMENT,
    experiments::elasticmem_concurrent::EXPERIMENT,
    experiments::elasticmem_nodes::EXPERIMENT,
    experiments::elasticmem_cold::EXPERIMENT,
    experiments::pocache_probability::EXPERIMENT,
    experiments::pocache_hit_ratio::EXPERIMENT,
    experiments::pocache_ahead::EXPERIMENT,
    experiments::pocache_strategies::EXPERIMENT,
];

/// The experiment with this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Extent;

    /// The verdicts that the pages are made of.
    fn archived(name: &str) -> Option<String> {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab");
        std::fs::read_to_string(directory.join(format!("{name}-verdicts.csv"))).ok()
    }

    #[test]
    fn each_experiment_has_its_archived_verdicts() {
        let lacking: Vec<&str> = EXPERIMENTS
            .iter()
            .map(|experiment| experiment.name)
            .filter(|name| archived(name).is_none_or(|csv| csv.lines().count() < 2))
            .collect();
        assert!(lacking.is_empty(), "run them with `--out docs/lab`: {lacking:?}");
    }

    #[test]
    fn what_is_arithmetic_gives_the_archived_verdicts() {
        for experiment in EXPERIMENTS.iter().filter(|experiment| experiment.exact) {
            let stage = Stage {
                extent: Extent::Quick,
                say: |_| {},
            };
            let report = (experiment.run)(&stage).unwrap();
            assert!(!report.rows.is_empty(), "{}", experiment.name);
            let csv = report.verdicts("").map(|table| table.csv());
            assert_eq!(csv, archived(experiment.name), "{}", experiment.name);
        }
    }

    #[test]
    fn names_are_found_and_differ() {
        for (n, experiment) in EXPERIMENTS.iter().enumerate() {
            assert_eq!(find(experiment.name).map(|found| found.figure), Some(experiment.figure));
            assert!(EXPERIMENTS[..n].iter().all(|other| other.name != experiment.name));
        }
        assert!(find("nothing").is_none());
    }
}
