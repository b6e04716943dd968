//! The result of an experiment: rows for a plot, and comparisons with the paper.

use std::fmt::{self, Write};

/// What became of a claim of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The figure is within the band.
    Reproduced,
    /// It is outside, on the better side.
    Beaten,
    /// It is outside, and goes the paper's way.
    TrendOnly,
    /// None of these.
    NotReproduced,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::Beaten => "beaten",
            Self::TrendOnly => "trend only",
            Self::NotReproduced => "not reproduced",
        })
    }
}

/// Which figures are better than the paper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// A figure below the paper's is better, as of a time.
    Less,
    /// A figure above the paper's is better, as of a speed.
    More,
    /// Neither is better: it is a baseline's figure, or one that must be the same.
    Neither,
}

/// How figures are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// With three digits.
    Figure,
    /// With all digits of a whole number.
    Count,
    /// 1 and 0 as "holds" and "does not hold".
    Claim,
}

/// Whose claim it is. Only a paper's is reproduced or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The paper's.
    Paper,
    /// This project's: what it wants of itself is met or not met.
    Own,
    /// Nobody's: it is tested because it explains a result.
    Explanation,
}

/// Part of the paper's figure by which a gain may be smaller or larger and is reproduced. The papers give most gains
/// for one point of a plot, without a spread.
pub(crate) const GAIN_OFF: f64 = 0.2;

/// How the reason of a figure begins that is not told from noise. `cargo xtask tidy` knows these words.
const NOISE: &str = "not told from noise";

/// A figure of the paper, the measured figure, and the band within which they agree. A miss may have a reason, which
/// changes no verdict.
#[derive(Clone, Debug)]
pub struct Check {
    /// What the figure is about.
    pub what: String,
    /// Whose claim it is.
    pub source: Source,
    /// The paper's figure, or the one that is wanted.
    pub paper: f64,
    /// The measured figure.
    pub ours: f64,
    /// Lowest and highest factor of the paper's figure that count as reproduced.
    pub band: (f64, f64),
    /// Which side of the band is better than the paper.
    pub better: Better,
    /// Whether the order that the figure stands for is as in the paper. It counts only outside the band.
    pub trend: bool,
    /// Whether the figure is told from noise. If not, the claim is not reproduced, and its reason says so: nothing else
    /// makes a miss of a figure in its band.
    pub is_resolved: bool,
    /// How the figures are written.
    pub form: Form,
    /// The known reason for a miss, if any.
    pub reason: Option<&'static str>,
    /// In what our setting is easier than the paper's, if in anything. Then not more than the trend can be shown.
    pub easier: Option<&'static str>,
}

impl Check {
    /// The figure must equal the paper's to three digits.
    pub fn same(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self {
            what: what.into(),
            source: Source::Paper,
            paper,
            ours,
            band: (0.995, 1.005),
            better: Better::Neither,
            trend: false,
            is_resolved: true,
            form: Form::Figure,
            reason: None,
            easier: None,
        }
    }

    /// The count must equal the paper's.
    pub fn equal(what: impl Into<String>, paper: u64, ours: u64) -> Self {
        Self {
            band: (1.0, 1.0),
            form: Form::Count,
            ..Self::same(what, paper as f64, ours as f64)
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

    /// The figure must be at most the paper's.
    pub fn at_most(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self {
            band: (0.0, 1.0),
            ..Self::same(what, paper, ours)
        }
    }

    /// What a copy of the paper's system gains must be near the paper's gain. More is not better: the copy cannot beat
    /// the system. From a third of it on, it goes the paper's way: less is not told from noise.
    pub fn gain(what: impl Into<String>, paper: f64, ours: f64) -> Self {
        Self::near(what, paper, ours, GAIN_OFF).judged(Better::Neither, 3.0 * ours >= paper)
    }

    /// The figure must be within the paper's range. More is better, and what is above 0 goes the paper's way.
    pub fn within(what: impl Into<String>, (least, most): (f64, f64), ours: f64) -> Self {
        Self {
            band: (1.0, most / least),
            better: Better::More,
            trend: ours > 0.0,
            ..Self::same(what, least, ours)
        }
    }

    /// The paper's claim holds (1) or does not hold (0).
    pub fn claim(what: impl Into<String>, holds: bool) -> Self {
        Self {
            band: (1.0, 1.0),
            form: Form::Claim,
            ..Self::same(what, 1.0, f64::from(u8::from(holds)))
        }
    }

    /// An explanation of a result, which is not the paper's, holds or does not hold.
    pub fn explanation(what: impl Into<String>, holds: bool) -> Self {
        Self {
            source: Source::Explanation,
            ..Self::claim(what, holds)
        }
    }

    /// What this project wants, and no paper claims.
    #[must_use]
    pub fn own(self) -> Self {
        Self {
            source: Source::Own,
            ..self
        }
    }

    /// Says which side of the band is better, and whether the order is as in the paper.
    #[must_use]
    pub fn judged(self, better: Better, trend: bool) -> Self {
        Self { better, trend, ..self }
    }

    /// Sets the reason for a possible miss.
    #[must_use]
    pub fn because(self, why: &'static str) -> Self {
        let reason = Some(why);
        Self { reason, ..self }
    }

    /// Says in what our setting is easier than the paper's.
    #[must_use]
    pub fn easier_by(self, what: &'static str) -> Self {
        let easier = Some(what);
        Self { easier, ..self }
    }

    /// What became of the claim.
    pub fn verdict(&self) -> Verdict {
        let ratio = self.ours / self.paper;
        let is_better = match self.better {
            Better::Less => ratio < self.band.0,
            Better::More => ratio > self.band.1,
            Better::Neither => false,
        };
        let verdict = if !self.is_resolved {
            Verdict::NotReproduced
        } else if (self.band.0..=self.band.1).contains(&ratio) {
            Verdict::Reproduced
        } else if is_better && self.trend {
            Verdict::Beaten
        } else if self.trend {
            Verdict::TrendOnly
        } else {
            Verdict::NotReproduced
        };
        match verdict {
            Verdict::Reproduced | Verdict::Beaten if self.easier.is_some() => Verdict::TrendOnly,
            verdict => verdict,
        }
    }

    /// The known reason, if the claim is missed or cannot be shown.
    fn known_reason(&self) -> Option<String> {
        let why = match self.verdict() {
            Verdict::Reproduced | Verdict::Beaten => None,
            Verdict::TrendOnly => self.easier.or(self.reason),
            Verdict::NotReproduced => self.reason.or(self.easier),
        };
        match why {
            _ if self.is_resolved => why.map(str::to_owned),
            None => Some(NOISE.to_owned()),
            Some(why) => Some(format!("{NOISE}: {why}")),
        }
    }

    /// The verdict as a text. What the paper does not claim is not reproduced either.
    fn verdict_text(&self) -> String {
        match (self.source, self.verdict()) {
            (Source::Explanation, _) => "our explanation".to_owned(),
            (Source::Own, Verdict::Reproduced | Verdict::Beaten) => "met".to_owned(),
            (Source::Own, _) => "not met".to_owned(),
            (Source::Paper, verdict) => verdict.to_string(),
        }
    }

    /// The paper's figure, the measured one and the band, as texts.
    fn figures(&self) -> [String; 3] {
        let said = |holds: f64| if holds == 1.0 { "holds" } else { "does not hold" }.to_owned();
        let as_text = match self.form {
            Form::Figure => figure,
            Form::Count => |count: f64| count.to_string(),
            Form::Claim => said,
        };
        let [least, most] = [self.band.0, self.band.1].map(|factor| self.paper * factor);
        let band = match (least == 0.0, most.is_infinite()) {
            _ if least == most => as_text(least),
            (true, _) => format!("at most {}", as_text(most)),
            (_, true) => format!("at least {}", as_text(least)),
            _ => format!("{} to {}", as_text(least), as_text(most)),
        };
        let paper = match self.source {
            Source::Paper => as_text(self.paper),
            _ => "no claim".to_owned(),
        };
        [paper, as_text(self.ours), band]
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
    /// What the y axis has, with its unit.
    pub y: &'static str,
    /// Lowest and highest quarter of each plotted figure, by row and line. Empty if the figures have no spread.
    pub spread: Vec<Vec<[f64; 2]>>,
    /// Figures of the paper that are drawn as level lines.
    pub levels: Vec<(&'static str, f64)>,
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

    /// What the plot is made of: the rows and, after an empty line, their spread.
    pub fn plotted(&self) -> String {
        let spread = self.spread.iter().map(|row| {
            let ends = row.iter().flatten().map(f64::to_string).collect::<Vec<_>>();
            ends.join(",") + "\n"
        });
        self.csv() + "\n" + &spread.collect::<String>()
    }

    /// The verdicts, to lie beside the rows. None if nothing is compared. `load`: the machine's load during the run.
    pub fn verdicts(&self, load: &str) -> Option<Table> {
        let rows: Vec<Vec<String>> = self.checks.iter().map(|check| verdict_row(check, load)).collect();
        let columns = ["claim", "paper", "ours", "band", "verdict", "reason", "load"];
        (!rows.is_empty()).then(|| Table {
            name: "verdicts",
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        })
    }

    /// The report for a terminal: the rows, and the checks with their verdicts.
    pub fn text(&self) -> String {
        let mut text = aligned(&self.columns, &self.rows) + "\n";
        for table in &self.tables {
            text += &(table.name.to_owned() + "\n" + &aligned(&table.columns, &table.rows) + "\n");
        }
        for check in &self.checks {
            let [paper, ours, band] = check.figures();
            let (what, verdict) = (&check.what, check.verdict_text());
            // Writing to a string cannot fail.
            let _ = write!(text, "{what}: paper {paper}, band {band}, ours {ours}: {verdict}");
            let _ = writeln!(
                text,
                "{}",
                check.known_reason().map_or_else(String::new, |why| format!(": {why}"))
            );
        }
        for remark in &self.remarks {
            text += &(remark.clone() + "\n");
        }
        text
    }
}

/// A row of the table of verdicts. Its texts are read by people, so a comma may become a semicolon.
fn verdict_row(check: &Check, load: &str) -> Vec<String> {
    let [paper, ours, band] = check.figures();
    let reason = check.known_reason().unwrap_or_default();
    let (what, load) = (check.what.clone(), load.to_owned());
    let row = [what, paper, ours, band, check.verdict_text(), reason, load];
    row.map(|cell| cell.replace(',', ";")).to_vec()
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
    fn verdicts_tell_four_outcomes_apart() {
        use Verdict::{Beaten, NotReproduced, Reproduced, TrendOnly};
        let of = |ours, better, trend| Check::near("", 10.0, ours, 0.2).judged(better, trend).verdict();
        for (ours, trend, verdict) in [
            (11.0, false, Reproduced),
            (5.0, true, Beaten),
            (15.0, true, TrendOnly),
            (5.0, false, NotReproduced),
            (15.0, false, NotReproduced),
        ] {
            assert_eq!(of(ours, Better::Less, trend), verdict, "{ours}");
            assert_eq!(of(20.0 - ours, Better::More, trend), verdict, "{ours} below 20");
        }
        assert_eq!(of(5.0, Better::Neither, true), TrendOnly);
        assert_eq!(Check::claim("", true).verdict(), Reproduced);
        assert_eq!(Check::claim("", false).verdict(), NotReproduced);
    }

    #[test]
    fn a_range_of_the_paper_and_a_count_are_judged_at_their_ends() {
        use Verdict::{Beaten, NotReproduced, Reproduced, TrendOnly};
        for (ours, verdict) in [
            (-1.0, NotReproduced),
            (7.9, TrendOnly),
            (8.0, Reproduced),
            (35.0, Reproduced),
            (36.0, Beaten),
        ] {
            assert_eq!(Check::within("", (8.0, 35.0), ours).verdict(), verdict, "{ours}");
        }
        let noise = Check {
            is_resolved: false,
            ..Check::within("", (8.0, 35.0), 20.0)
        };
        assert_eq!(noise.verdict(), NotReproduced);
        assert_eq!(Check::equal("", 16_777_216, 16_777_216).verdict(), Reproduced);
        assert_eq!(Check::equal("", 16_777_216, 16_777_217).verdict(), NotReproduced);
        assert_eq!(Check::at_most("", 5.0, 20.0).verdict(), NotReproduced);
        assert_eq!(Check::at_most("", 5.0, 4.0).verdict(), Reproduced);
    }

    #[test]
    fn verdicts_have_band_and_reason_of_a_miss_and_no_commas() {
        let checks = vec![
            Check::claim("one, two", true).because("unused"),
            Check::within("range", (8.0, 35.0), 5.0).because("slow, old"),
            Check::at_most("wanted", 2.0, 3.0).own().because("slow"),
            Check {
                is_resolved: false,
                ..Check::within("noise", (8.0, 35.0), 20.0).because("few pairs")
            },
        ];
        let report = Report {
            checks,
            ..Report::default()
        };
        let csv = report.verdicts("1 to 2").unwrap().csv();
        let wanted = "claim,paper,ours,band,verdict,reason,load\n\
                      one; two,holds,holds,holds,reproduced,,1 to 2\n\
                      range,8.00,5.00,8.00 to 35.0,trend only,slow; old,1 to 2\n\
                      wanted,no claim,3.00,at most 2.00,not met,slow,1 to 2\n\
                      noise,8.00,20.0,8.00 to 35.0,not reproduced,not told from noise: few pairs,1 to 2\n";
        assert_eq!(csv, wanted);
        assert!(Report::default().verdicts("").is_none());
    }

    #[test]
    fn a_reason_changes_no_verdict_and_an_easier_setting_shows_no_more_than_the_trend() {
        use Verdict::{NotReproduced, Reproduced, TrendOnly};
        let of = |ours| Check::at_most("", 10.0, ours);
        assert_eq!(of(20.0).because("noise").verdict(), NotReproduced);
        assert_eq!(of(5.0).verdict(), Reproduced);
        assert_eq!(of(5.0).easier_by("a spare").verdict(), TrendOnly);
        assert_eq!(of(20.0).easier_by("a spare").verdict(), NotReproduced);
    }

    #[test]
    fn a_copy_of_a_system_does_not_beat_it() {
        use Verdict::{NotReproduced, Reproduced, TrendOnly};
        for (ours, verdict) in [
            (30.0, Reproduced),
            (60.0, TrendOnly),
            (11.0, TrendOnly),
            (10.0, NotReproduced),
            (-5.0, NotReproduced),
        ] {
            assert_eq!(Check::gain("", 32.7, ours).verdict(), verdict, "{ours}");
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
