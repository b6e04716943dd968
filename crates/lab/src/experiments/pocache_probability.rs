//! POCache Figs 3 and 4 (§2.2): the probability that a read meets a straggler, by the paper's formulas.

use crate::report::figure;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use paritas_files::probability::{Chances, data_only, data_only_racks, parity_only, parity_only_racks};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pocache-probability",
    figure: "POCache Figs 3 and 4",
    claim: "a read meets a straggler with probability 2.48E-4 if four data blocks have one parity block cached",
    exact: true,
    run,
};

const FIG_3: Chances = Chances {
    storage: 0.005,
    cache: 0.005,
    rack: 0.0,
};
const FIG_4: Chances = Chances { rack: 0.001, ..FIG_3 };

fn run(_: &Stage) -> io::Result<Report> {
    let mut report = Report {
        columns: ["k", "nothing cached", "a copy cached", "a parity block cached"]
            .map(str::to_owned)
            .to_vec(),
        logarithmic: (false, true),
        ..Report::default()
    };
    for k in 1..=10 {
        let chances = [data_only(k, 0, FIG_3), data_only(k, 1, FIG_3), parity_only(k, 1, FIG_3)];
        report
            .rows
            .push([k.to_string()].into_iter().chain(chances.map(figure)).collect());
    }
    for (what, paper, ours) in [
        ("Fig 3: k = 4; parity; c = 1", 2.48e-4, parity_only(4, 1, FIG_3)),
        (
            "Fig 4: k = 10; parity; a = 1; c = 1",
            1.91e-3,
            parity_only_racks(10, 1, 1, FIG_4),
        ),
        (
            "Fig 4: k = 10; parity; a = 2; c = 2",
            3.33e-4,
            parity_only_racks(10, 2, 2, FIG_4),
        ),
        (
            "Fig 4: k = 10; copies; a = 2; c = 2",
            4.32e-2,
            data_only_racks(10, 2, 2, FIG_4),
        ),
    ] {
        report.checks.push(Check::same(what, paper, ours));
    }
    Ok(report)
}
