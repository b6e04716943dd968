//! MemEC Fig 2 (§3.3): bytes stored for each byte of data, by the formulas of three data models.

use crate::report::figure;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "redundancy",
    figure: "MemEC Fig 2",
    claim: "coding objects whole takes up to 60.0 % less than copies, up to 58.9 % less than coding values alone",
    exact: true,
    run,
};

/// §3.3: bytes of metadata, of a reference, of a chunk and of a chunk's id; and the occupancy of the index.
const METADATA: f64 = 4.0;
const REFERENCE: f64 = 8.0;
const CHUNK: f64 = 4096.0;
const CHUNK_ID: f64 = 8.0;
const OCCUPANCY: f64 = 0.9;

/// Parameters: stripes of `n` chunks of which `k` hold data, and lengths of keys and values in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of chunks of a stripe.
    pub n: f64,
    /// Number of chunks with data.
    pub k: f64,
    /// Bytes of a key.
    pub key: f64,
    /// Bytes of a value.
    pub value: f64,
}

impl Sizes {
    fn object(&self) -> f64 {
        self.key + self.value + METADATA
    }

    /// Redundancy with copies of everything.
    pub fn all_replication(&self) -> f64 {
        (self.n - self.k + 1.0) * (self.object() + REFERENCE) / self.object()
    }

    /// Redundancy with coded values and copies of the rest.
    pub fn hybrid_encoding(&self) -> f64 {
        let copied = (self.n - self.k + 1.0) * (self.key + METADATA + REFERENCE);
        (copied + self.n * self.value / self.k) / self.object()
    }

    /// Redundancy with objects coded whole.
    pub fn all_encoding(&self) -> f64 {
        let per_chunk = self.n * (CHUNK_ID + REFERENCE / OCCUPANCY);
        let coded = self.n * self.object() / self.k;
        (coded + REFERENCE / OCCUPANCY + per_chunk / (self.k * CHUNK / self.object())) / self.object()
    }
}

/// The smallest value length from which the redundancy is below `bound`.
fn below(bound: f64, redundancy: impl Fn(f64) -> f64) -> f64 {
    (1..10_000)
        .map(f64::from)
        .find(|value| redundancy(*value) < bound)
        .unwrap_or(f64::NAN)
}

fn run(_: &Stage) -> io::Result<Report> {
    let mut report = Report {
        columns: [
            "value",
            "AllRep K=8 (10;8)",
            "Hybrid K=8 (10;8)",
            "AllEnc K=8 (10;8)",
            "AllRep K=32 (10;8)",
            "Hybrid K=32 (10;8)",
            "AllEnc K=32 (10;8)",
            "AllRep K=8 (14;10)",
            "Hybrid K=8 (14;10)",
            "AllEnc K=8 (14;10)",
            "AllRep K=32 (14;10)",
            "Hybrid K=32 (14;10)",
            "AllEnc K=32 (14;10)",
        ]
        .map(str::to_owned)
        .to_vec(),
        logarithmic: (true, false),
        ..Report::default()
    };
    let of = |n, k, key, value| Sizes { n, k, key, value };
    for value in [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0] {
        let mut row = vec![figure(value)];
        for (n, k) in [(10.0, 8.0), (14.0, 10.0)] {
            for key in [8.0, 32.0] {
                let sizes = of(n, k, key, value);
                let models = [sizes.all_replication(), sizes.hybrid_encoding(), sizes.all_encoding()];
                row.extend(models.map(figure));
            }
        }
        report.rows.push(row);
    }
    // The paper's "V ≤ 10" begins at 1: only then do all its figures result.
    let (small, large) = (of(10.0, 8.0, 8.0, 1.0), of(10.0, 8.0, 8.0, 10.0));
    // The paper gives two digits.
    let mut near = |what: &str, paper: f64, ours: f64| {
        let off = 0.051 / paper;
        let what = format!("K=8, (10,8), {what}");
        report.checks.push(Check::near(what, paper, ours, off));
    };
    near("copies, values of 1 B", 4.8, small.all_replication());
    near("copies, values of 10 B", 4.1, large.all_replication());
    near("values coded, values of 1 B", 4.7, small.hybrid_encoding());
    near("values coded, values of 10 B", 3.3, large.hybrid_encoding());
    near("objects coded, values of 1 B", 1.9, small.all_encoding());
    near("objects coded, values of 10 B", 1.7, large.all_encoding());
    let saved = |model: fn(&Sizes) -> f64| 100.0 * (1.0 - small.all_encoding() / model(&small));
    let (copies, values) = (saved(Sizes::all_replication), saved(Sizes::hybrid_encoding));
    let within = |what: &str, paper, ours, by| Check::near(what, paper, ours, by);
    report.checks.push(within("less than copies, %", 60.0, copies, 0.002));
    report
        .checks
        .push(within("less than values coded, %", 58.9, values, 0.002));
    let coded = below(1.3, |value| of(10.0, 8.0, 8.0, value).all_encoding());
    let hybrid = below(1.3, |value| of(10.0, 8.0, 8.0, value).hybrid_encoding());
    report.checks.push(within(
        "objects coded: length of values in bytes from which it is below 1.3",
        180.0,
        coded,
        0.05,
    ));
    report.checks.push(within(
        "values coded: length of values in bytes from which it is below 1.3",
        890.0,
        hybrid,
        0.005,
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exact values of the formulas, computed separately.
    #[test]
    fn the_formulas() {
        let at = |value| Sizes {
            n: 10.0,
            k: 8.0,
            key: 8.0,
            value,
        };
        for (value, copies, hybrid, coded) in [(2.0, 4.71, 4.46, 1.89), (10.0, 4.09, 3.30, 1.66)] {
            let sizes = at(value);
            let found = [sizes.all_replication(), sizes.hybrid_encoding(), sizes.all_encoding()];
            for (ours, expected) in found.into_iter().zip([copies, hybrid, coded]) {
                assert!((ours - expected).abs() < 0.006, "{value}: {ours} {expected}");
            }
        }
        assert_eq!(below(1.3, |value| at(value).all_encoding()), 187.0);
        assert_eq!(below(1.3, |value| at(value).hybrid_encoding()), 889.0);
    }
}
