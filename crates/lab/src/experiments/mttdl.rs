//! LogECMem Table 2 (§3.1): the mean time until a stripe loses data, by a Markov chain over the remaining nodes.

use crate::report::figure;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;
use std::str::FromStr;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mttdl",
    figure: "LogECMem Table 2",
    claim: "the lifetime of a stripe depends on the repair rate of one lost node: at 100 Gb/s it is 94 times that at 1",
    exact: true,
    run,
};

const SECONDS_PER_YEAR: f64 = 365.0 * 24.0 * 3600.0;

/// A code written `k+m`, as in 6+3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// Number of data chunks.
    pub data: u32,
    /// Number of parity chunks.
    pub parity: u32,
}

impl FromStr for Code {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('+').and_then(|(data, parity)| {
            Some(Self {
                data: data.parse().ok()?,
                parity: parity.parse().ok()?,
            })
        });
        parsed
            .filter(|code| (1..=255).contains(&code.data) && code.parity <= 255)
            .ok_or_else(|| format!("{text}: write it as data+parity chunks, as in 6+3"))
    }
}

/// The parameters of the model.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Data chunks of a stripe.
    pub data: u32,
    /// Parity chunks of a stripe: this many losses are survived.
    pub parity: u32,
    /// Mean time until a node fails, in years.
    pub node_years: f64,
    /// Bytes on a node.
    pub node_bytes: f64,
    /// Bandwidth for the repair of a single node, in bits a second.
    pub repair_bits_per_second: f64,
    /// Number of chunks that are read to repair one.
    pub repair_cost: f64,
    /// Seconds until several failures are noticed and repaired (Azure's assumption: the repair itself takes no longer).
    pub detection_seconds: f64,
}

impl Model {
    /// The parameters of the paper, §3.1.
    pub fn of_paper(data: u32, parity: u32, gigabits: f64) -> Self {
        Self {
            data,
            parity,
            node_years: 4.0,
            node_bytes: 16.0 * (1u64 << 40) as f64,
            repair_bits_per_second: gigabits * 1e9,
            repair_cost: f64::from(data),
            detection_seconds: 30.0 * 60.0,
        }
    }

    /// The mean time to data loss in years: from `n` nodes of a stripe to `n - parity - 1`. In each state any remaining
    /// node may fail, and one repair is under way.
    pub fn years(&self) -> f64 {
        let nodes = self.data + self.parity;
        let single = self.repair_bits_per_second / 8.0 / (self.node_bytes * self.repair_cost) * SECONDS_PER_YEAR;
        let several = SECONDS_PER_YEAR / self.detection_seconds;
        let fails = |left: u32| f64::from(left) / self.node_years;
        // The mean time from one state to the next lower one. A repair leads back to the state above first.
        let mut down = 1.0 / fails(nodes);
        let mut years = down;
        for lost in 1..=self.parity {
            let repair = if lost == 1 { single } else { several };
            let rate = fails(nodes - lost);
            down = 1.0 / rate + repair / rate * down;
            years += down;
        }
        years
    }
}

const CODES: [(u32, u32); 4] = [(6, 3), (10, 4), (12, 4), (15, 3)];
const GIGABITS: [f64; 4] = [1.0, 10.0, 40.0, 100.0];
/// The cells of the paper's table.
const TABLE: [[f64; 4]; 4] = [
    [1.03e9, 9.76e9, 3.89e10, 9.71e10],
    [6.41e8, 5.88e9, 2.34e10, 5.83e10],
    [5.44e8, 4.91e9, 1.95e10, 4.86e10],
    [4.47e8, 3.94e9, 1.56e10, 3.89e10],
];

fn run(_: &Stage) -> io::Result<Report> {
    let mut report = Report {
        columns: [
            "Gb/s",
            "(6;3)",
            "(10;4)",
            "(12;4)",
            "(15;3)",
            "(10;4) own chain",
            "(12;4) own chain",
            "(15;3) own chain",
        ]
        .map(str::to_owned)
        .to_vec(),
        logarithmic: (true, true),
        ..Report::default()
    };
    for (at, gigabits) in GIGABITS.into_iter().enumerate() {
        // The paper's cells result only if every code uses the chain of (6,3) with its own repair cost.
        let as_printed = CODES.map(|(data, _)| {
            let cost = f64::from(data);
            Model {
                repair_cost: cost,
                ..Model::of_paper(6, 3, gigabits)
            }
            .years()
        });
        let own = CODES.map(|(data, parity)| Model::of_paper(data, parity, gigabits).years());
        for (row, (data, parity)) in CODES.into_iter().enumerate() {
            let what = format!("({data},{parity}) at {gigabits} Gb/s, years");
            report.checks.push(Check::same(what, TABLE[row][at], as_printed[row]));
        }
        let cells = [gigabits].into_iter().chain(as_printed).chain(own.into_iter().skip(1));
        report.rows.push(cells.map(figure).collect());
    }
    let times = Model::of_paper(6, 3, 100.0).years() / Model::of_paper(6, 3, 1.0).years();
    report
        .checks
        .push(Check::same("(6,3): 100 Gb/s over 1 Gb/s, times", 94.27, times));
    report.remarks.push(
        "The paper's rows beyond (6,3) are those of a chain with nine nodes that survives three losses, whatever the \
         code; the columns \"own chain\" have each code's own nodes and losses."
            .to_owned(),
    );
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The true chains, from an independent solution of the linear equations.
    #[test]
    fn own_chains() {
        for (data, parity, years) in [(10, 4, 5.94e11), (12, 4, 2.38e11), (15, 3, 2.08e7)] {
            let found = Model::of_paper(data, parity, 1.0).years();
            assert!((found / years - 1.0).abs() < 0.005, "({data},{parity}): {found:.3e}");
        }
    }

    #[test]
    fn codes() {
        assert_eq!("6+3".parse(), Ok(Code { data: 6, parity: 3 }));
        for wrong in ["", "6", "6+", "+3", "0+3", "6+3+1", "6+256", "-1+3"] {
            assert!(wrong.parse::<Code>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_parity_a_stripe_lasts_as_long_as_its_first_node() {
        let model = Model {
            parity: 0,
            ..Model::of_paper(4, 0, 1.0)
        };
        assert!((model.years() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn slower_repair_and_sooner_failures_shorten_it() {
        let model = Model::of_paper(6, 3, 10.0);
        let slower = Model {
            repair_bits_per_second: 1e9,
            ..model
        };
        let sooner = Model {
            node_years: 2.0,
            ..model
        };
        assert!(slower.years() < model.years() && sooner.years() < model.years());
    }
}
