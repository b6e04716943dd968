//! The tables of `docs/lab` are what a program wrote that measured, and their verdicts fit their figures.
//!
//! `SHA256SUMS` has the sum of each table, in the form of `sha256sum --check`. The program that writes a table writes
//! its line too (`crates/lab/src/archive.rs`, `scripts/files_lab/report.py`), and nothing here does. So a table that
//! was changed by hand differs from its line. Who changes both is not stopped: a reviewer sees both changes.

use super::Problem;
use super::pages::{TABLES, fields};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

pub(super) const SUMS: &str = "docs/lab/SHA256SUMS";

/// With what the reason of a figure begins that is in the band and yet not reproduced. The lab writes it.
const NOISE: &str = "not told from noise";

/// Checks each table against its line, and that each line has its table.
pub(super) fn check_sums(sums: &str, tables: &[(&str, &[u8])]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut lines = BTreeMap::new();
    for (index, line) in sums.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let Some((sum, name)) = line.split_once("  ") else {
            problems.push(Problem::new(SUMS, index + 1, "say `SUM  NAME.csv`, as sha256sum does"));
            continue;
        };
        if lines.insert(name, (sum, index + 1)).is_some() {
            problems.push(Problem::new(SUMS, index + 1, format!("{name} has two sums")));
        }
    }
    for (path, bytes) in tables {
        let name = path.strip_prefix(TABLES).unwrap_or(path);
        let problem = match lines.remove(name) {
            None => format!("{SUMS} has no sum of it: it is written by the program that measures"),
            Some((sum, _)) if sum != hex(&Sha256::digest(bytes)) => {
                format!("it is not the table that the program wrote ({SUMS}): restore it, or measure again")
            }
            Some(_) => continue,
        };
        problems.push(Problem::new(path, 1, problem));
    }
    problems.extend(
        lines
            .iter()
            .map(|(name, (_, line))| Problem::new(SUMS, *line, format!("there is no table {name}"))),
    );
    problems
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that a verdict is one that its figure and its band can have. Only a table of the lab has bands.
pub(super) fn check_bands(path: &str, csv: &str) -> Vec<Problem> {
    let mut lines = csv.lines();
    let head = fields(lines.next().unwrap_or_default());
    let at = |name: &str| head.iter().position(|column| column == name);
    let (Some(ours), Some(band), Some(verdict), Some(reason)) = (at("ours"), at("band"), at("verdict"), at("reason"))
    else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for (index, line) in lines.enumerate() {
        let row = fields(line);
        let wrong = if row.len() != head.len() {
            Some(format!("{} cells, and {} columns", row.len(), head.len()))
        } else {
            unfitting(&row[ours], &row[band], &row[verdict], &row[reason])
        };
        problems.extend(wrong.map(|what| Problem::new(path, index + 2, what)));
    }
    problems
}

/// What a figure is to its band. Both are written with three digits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Inside,
    /// The digits that are written do not tell.
    AtAnEnd,
    Outside,
}

/// Why a verdict cannot be, if it cannot.
fn unfitting(ours: &str, band: &str, verdict: &str, reason: &str) -> Option<String> {
    let Some(place) = place(ours, band) else {
        return Some(format!("`{ours}` in `{band}` is no figure and its band"));
    };
    let fits = match (verdict, place) {
        // An explanation of ours is judged by nobody; at an end both may be.
        ("our explanation", _) | (_, Place::AtAnEnd) => true,
        ("reproduced" | "met", _) => place == Place::Inside,
        ("beaten" | "not met", _) => place == Place::Outside,
        // In the band it is the trend only if our setting is easier, which the reason says.
        ("trend only", _) => place == Place::Outside || !reason.is_empty(),
        ("not reproduced", _) => place == Place::Outside || reason.starts_with(NOISE),
        // What is no verdict is a problem of the page.
        _ => true,
    };
    (!fits).then(|| format!("`{ours}` in `{band}` is not `{verdict}`"))
}

fn place(ours: &str, band: &str) -> Option<Place> {
    const SAID: [&str; 2] = ["holds", "does not hold"];
    if SAID.contains(&band) {
        let place = if ours == band { Place::Inside } else { Place::Outside };
        return SAID.contains(&ours).then_some(place);
    }
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let figure = number(ours)?;
    if let Some(exact) = number(band) {
        // A count, with all its digits.
        return Some(if figure == exact { Place::Inside } else { Place::Outside });
    }
    let (least, most) = if let Some(most) = band.strip_prefix("at most ") {
        (None, Some(number(most)?))
    } else if let Some(least) = band.strip_prefix("at least ") {
        (Some(number(least)?), None)
    } else {
        let (least, most) = band.split_once(" to ")?;
        (Some(number(least)?), Some(number(most)?))
    };
    let is_inside = least.is_none_or(|least| least <= figure) && most.is_none_or(|most| figure <= most);
    Some(match [least, most].contains(&Some(figure)) {
        true => Place::AtAnEnd,
        false if is_inside => Place::Inside,
        false => Place::Outside,
    })
}

#[cfg(test)]
mod tests;
