//! What an experiment found: rows for a plot, and what of the paper's it is held against.

use std::fmt::Write;

/// A figure of the paper's, ours, and how far they may lie apart.
#[derive(Clone, Debug)]
pub struct Check {
    /// Of what.
    pub what: String,
    /// The paper's figure.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// From and to which of the paper's ours counts as the same.
    pub band: (f64, f64),
}

impl Check {
    /// Ours must be the paper's to three digits.
    pub fn same(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self {
            what: what.into(),
            paper,
            ours,
            band: (0.995, 1.005),
        }
    }

    /// Whether it is reproduced.
    pub fn holds(&self) -> bool {
        (self.band.0..=self.band.1).contains(&(self.ours / self.paper))
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the columns are: the first is the x of a plot, or its label; each further one is a line.
    pub columns: Vec<&'static str>,
    /// Them.
    pub rows: Vec<Vec<String>>,
    /// Whether the plot's axes are logarithmic: x, y.
    pub logarithmic: (bool, bool),
    /// Against the paper.
    pub checks: Vec<Check>,
    /// What is to be said beside it.
    pub remarks: Vec<String>,
}

impl Report {
    /// The rows as CSV. No cell has a comma.
    pub fn csv(&self) -> String {
        let mut text = self.columns.join(",") + "\n";
        for row in &self.rows {
            text += &(row.join(",") + "\n");
        }
        text
    }

    /// For a terminal: the rows, and the checks with their verdicts.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|n| {
                let cells = self.rows.iter().filter_map(|row| row.get(n)).map(String::len);
                cells.chain([self.columns[n].len()]).max().unwrap_or(0)
            })
            .collect();
        let head: Vec<String> = self.columns.iter().map(|c| (*c).to_owned()).collect();
        for row in [&head].into_iter().chain(&self.rows) {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:>width$}"))
                .collect();
            text += &(cells.join("  ") + "\n");
        }
        text += "\n";
        for check in &self.checks {
            let verdict = if check.holds() { "reproduced" } else { "NOT reproduced" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{}: paper {}, ours {}: {verdict}",
                check.what,
                figure(check.paper),
                figure(check.ours)
            );
        }
        for remark in &self.remarks {
            text += &(remark.clone() + "\n");
        }
        text
    }
}

/// Three digits.
pub(crate) fn figure(value: f64) -> String {
    if !(0.001..100_000.0).contains(&value.abs()) && value != 0.0 {
        return format!("{value:.2e}");
    }
    let digits = 2 - (value.abs().max(0.001).log10().floor() as i32).clamp(-3, 2);
    format!("{value:.*}", digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (1.03e9, "1.03e9"),
            (4.712, "4.71"),
            (0.0123, "0.0123"),
            (150.4, "150"),
            (0.0, "0.00000"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn csv_has_a_line_for_the_columns_and_each_row() {
        let report = Report {
            columns: vec!["x", "y"],
            rows: vec![vec!["1".into(), "2".into()]],
            ..Report::default()
        };
        assert_eq!(report.csv(), "x,y\n1,2\n");
    }
}
