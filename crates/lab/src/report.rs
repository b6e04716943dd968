//! The result of an experiment: rows for a plot, and comparisons with the paper.

use std::fmt::Write;

/// A figure of the paper, the measured figure, and the band within which they agree.
#[derive(Clone, Debug)]
pub struct Check {
    /// What the figure is about.
    pub what: String,
    /// The paper's figure.
    pub paper: f64,
    /// The measured figure.
    pub ours: f64,
    /// Lowest and highest factor of the paper's figure that count as reproduced.
    pub band: (f64, f64),
    /// The known reason for a miss, if any. Such a miss is reported and is not a failure.
    pub miss: Option<&'static str>,
}

impl Check {
    /// The figure must equal the paper's to three digits.
    pub fn same(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self {
            what: what.into(),
            paper,
            ours,
            band: (0.995, 1.005),
            miss: None,
        }
    }

    /// The figure must be within a part `off` of the paper's; 0.1 means a tenth.
    pub fn near(what: impl Into<String>, paper: f64, ours: f64, off: f64) -> Self {
        Self {
            band: (1.0 - off, 1.0 + off),
            ..Self::same(what, paper, ours)
        }
    }

    /// The figure must be at least the paper's.
    pub fn at_least(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self {
            band: (1.0, f64::INFINITY),
            ..Self::same(what, paper, ours)
        }
    }

    /// The paper's claim holds (1) or does not hold (0).
    pub fn claim(what: impl Into<String>, holds: bool) -> Self {
        Self::same(what, 1.0, f64::from(u8::from(holds)))
    }

    /// Sets the reason for a possible miss.
    #[must_use]
    pub fn missed_because(self, why: &'static str) -> Self {
        let miss = Some(why);
        Self { miss, ..self }
    }

    /// Whether the figure is reproduced.
    pub fn holds(&self) -> bool {
        (self.band.0..=self.band.1).contains(&(self.ours / self.paper))
    }

    /// Whether the figure is neither reproduced nor explained.
    pub fn fails(&self) -> bool {
        !self.holds() && self.miss.is_none()
    }
}

/// Rows that belong to the plotted ones, in a separate file.
#[derive(Clone, Debug)]
pub struct Table {
    /// Appended to the experiment's name.
    pub name: &'static str,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The table as CSV. No cell may contain a comma.
    pub fn csv(&self) -> String {
        csv(&self.columns, &self.rows)
    }
}

fn csv(columns: &[String], rows: &[Vec<String>]) -> String {
    let lines = [columns].into_iter().chain(rows.iter().map(Vec::as_slice));
    lines.map(|line| line.join(",") + "\n").collect()
}

fn aligned(columns: &[String], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..columns.len())
        .map(|n| {
            let cells = rows.iter().filter_map(|row| row.get(n)).map(String::len);
            cells.chain([columns[n].len()]).max().unwrap_or(0)
        })
        .collect();
    let lines = [columns].into_iter().chain(rows.iter().map(Vec::as_slice));
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        cells.join("  ") + "\n"
    };
    lines.map(line).collect()
}

/// The result of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Names of the columns. The first is the x axis of the plot; each further one is a line.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// Whether the x axis and the y axis of the plot are logarithmic.
    pub logarithmic: (bool, bool),
    /// Further tables.
    pub tables: Vec<Table>,
    /// Comparisons with the paper.
    pub checks: Vec<Check>,
    /// Remarks to be printed.
    pub remarks: Vec<String>,
}

impl Report {
    /// The rows as CSV. No cell may contain a comma.
    pub fn csv(&self) -> String {
        csv(&self.columns, &self.rows)
    }

    /// The report for a terminal: the rows, and the checks with their verdicts.
    pub fn text(&self) -> String {
        let mut text = aligned(&self.columns, &self.rows) + "\n";
        for table in &self.tables {
            text += &(table.name.to_owned() + "\n" + &aligned(&table.columns, &table.rows) + "\n");
        }
        for check in &self.checks {
            let verdict = match check.miss {
                _ if check.holds() => "reproduced".to_owned(),
                Some(why) => format!("missed: {why}"),
                None => "NOT reproduced".to_owned(),
            };
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

/// A number with three digits.
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
            columns: vec!["x".into(), "y".into()],
            rows: vec![vec!["1".into(), "2".into()]],
            ..Report::default()
        };
        assert_eq!(report.csv(), "x,y\n1,2\n");
    }
}
