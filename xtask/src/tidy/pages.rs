//! Verdicts on the papers' pages come from the tables of `docs/lab`, and from nowhere else.
//!
//! A page has marked regions: `<!-- verdicts NAME: TEXT & COLUMN=TEXT -->` begins one and `<!-- end -->` ends it.
//! `cargo xtask pages` writes what is between, from `docs/lab/NAME-verdicts.csv` or from the column `verdict` of
//! `docs/lab/NAME.csv`. Without filters all rows count. A `TEXT` alone is in some cell of a row; with a column it is
//! the whole cell. Several names have commas between them, and `NAME*` is all that begin so.

use super::Problem;
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) const OVERVIEW: &str = "docs/papers.md";
pub(super) const PAGES: &str = "docs/papers/";
pub(super) const TABLES: &str = "docs/lab/";

const BEGIN: &str = "<!-- verdicts ";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- end -->";

/// What a table may say of a claim, in the order in which a page says it.
const WORDS: [&str; 7] = [
    "reproduced",
    "beaten",
    "trend only",
    "not reproduced",
    "no verdict",
    "met",
    "not met",
];
/// What a table says of rows that no paper and no aim of ours speaks of.
const NO_CLAIM: [&str; 3] = ["", "our explanation", "not in the paper"];
/// Words that only a generated region may say. The list that defines them begins its lines with `- *`.
const GENERATED_ONLY: [&str; 3] = ["reproduced", "beaten", "trend only"];
/// What a verdict cell may say by hand, because it claims nothing.
const BY_HAND: &str = "no verdict";

struct Row {
    cells: Vec<(String, String)>,
    verdict: &'static str,
    load: String,
}

/// The rows with a verdict, by the table's name.
#[derive(Default)]
pub(super) struct Lab {
    tables: BTreeMap<String, Vec<Row>>,
}

impl Lab {
    /// Takes the verdicts of one table, if it has any.
    pub(super) fn add(&mut self, path: &str, csv: &str) -> Vec<Problem> {
        let Some(file) = path.strip_prefix(TABLES).and_then(|file| file.strip_suffix(".csv")) else {
            return Vec::new();
        };
        let mut lines = csv.lines();
        let head = fields(lines.next().unwrap_or_default());
        let (mut rows, mut problems) = (Vec::new(), Vec::new());
        if !head.iter().any(|column| column == "verdict") {
            return problems;
        }
        for (index, line) in lines.enumerate() {
            let cells: BTreeMap<&str, String> = head.iter().map(String::as_str).zip(fields(line)).collect();
            let of = |column: &str| cells.get(column).cloned().unwrap_or_default();
            let said = of("verdict");
            let word = said.split(':').next().unwrap_or_default().trim();
            if NO_CLAIM.contains(&word) {
                continue;
            }
            let Some(verdict) = WORDS.into_iter().find(|known| *known == word) else {
                let what = format!("`{said}` is no verdict: say one of {}", WORDS.join(", "));
                problems.push(Problem::new(path, index + 2, what));
                continue;
            };
            let cells = head
                .iter()
                .filter(|column| !["verdict", "reason", "load"].contains(&column.as_str()))
                .map(|column| (column.clone(), of(column)))
                .collect();
            let load = of("load");
            rows.push(Row { cells, verdict, load });
        }
        let name = file.strip_suffix("-verdicts").unwrap_or(file).to_owned();
        self.tables.entry(name).or_default().extend(rows);
        problems
    }

    /// The tables and rows that a selection names. The words say what is wrong with it.
    fn select(&self, selection: &str) -> Result<Vec<(&str, usize)>, String> {
        let (names, filters) = selection.split_once(':').unwrap_or((selection, ""));
        let filters: Vec<&str> = filters.split(" & ").map(str::trim).filter(|f| !f.is_empty()).collect();
        let is_named = |name: &str, table: &str| match name.strip_suffix('*') {
            Some(start) => table.starts_with(start),
            None => table == name,
        };
        let fits = |table: &str| names.split(", ").any(|name| is_named(name, table));
        let chosen = self.tables.iter().filter(|(table, _)| fits(table));
        let found: Vec<(&str, usize)> = chosen
            .flat_map(|(table, rows)| rows.iter().enumerate().map(move |(at, row)| (table.as_str(), at, row)))
            .filter(|(_, _, row)| filters.iter().all(|filter| row.fits(filter)))
            .map(|(table, at, _)| (table, at))
            .collect();
        match found.is_empty() {
            true => Err(format!("`{selection}` chooses no row of a table in {TABLES}")),
            false => Ok(found),
        }
    }

    /// What a region says.
    fn text(&self, selection: &str) -> Result<String, String> {
        let chosen = self.select(selection)?;
        let rows: Vec<&Row> = chosen.iter().map(|(table, at)| &self.tables[*table][*at]).collect();
        let counted: Vec<(usize, &str)> = WORDS
            .into_iter()
            .map(|word| (rows.iter().filter(|row| row.verdict == word).count(), word))
            .filter(|(count, _)| *count > 0)
            .collect();
        let words = match counted[..] {
            [(1, word)] | [(_, word @ "no verdict")] => word.to_owned(),
            [(2, word)] => format!("both {word}"),
            [(all, word)] => format!("all {all} {word}"),
            _ => {
                let parts: Vec<String> = counted.iter().map(|(count, word)| format!("{count} {word}")).collect();
                parts.join(", ")
            }
        };
        let loads: Vec<f64> = rows
            .iter()
            .flat_map(|row| row.load.split(" to ").filter_map(|load| load.parse().ok()))
            .collect();
        if loads.is_empty() || chosen.iter().any(|(table, _)| *table != chosen[0].0) {
            return Ok(words);
        }
        let [least, most] = [f64::min, f64::max].map(|of| loads.iter().copied().reduce(of).unwrap_or_default().round());
        match least == most {
            true => Ok(format!("{words} (load {most})")),
            false => Ok(format!("{words} (load {least} to {most})")),
        }
    }
}

impl Row {
    fn fits(&self, filter: &str) -> bool {
        let whole = filter
            .split_once('=')
            .filter(|(column, _)| self.cells.iter().any(|(name, _)| name == column));
        match whole {
            Some((column, text)) => self.cells.iter().any(|(name, cell)| name == column && cell == text),
            None => self.cells.iter().any(|(_, cell)| cell.contains(filter)),
        }
    }
}

/// The fields of a line of CSV. A field in quotation marks may contain commas.
pub(super) fn fields(line: &str) -> Vec<String> {
    let (mut all, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(std::mem::take(&mut field)),
            _ => field.push(c),
        }
    }
    all.push(field);
    all
}

/// The regions of a text: the selection, the bytes between its marks, and all its bytes.
fn regions(text: &str) -> Vec<(&str, Range<usize>, Range<usize>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(begin) = text[at..].find(BEGIN).map(|place| at + place) {
        let selection = begin + BEGIN.len();
        let Some(inner) = text[selection..].find(BEGIN_END).map(|place| selection + place) else {
            break;
        };
        let body = inner + BEGIN_END.len();
        let Some(end) = text[body..].find(END).map(|place| body + place) else {
            break;
        };
        at = end + END.len();
        found.push((&text[selection..inner], body..end, begin..at));
    }
    found
}

/// The line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The page with its regions as the tables say.
pub(super) fn written(page: &str, text: &str, lab: &Lab) -> Result<String, Problem> {
    let (mut out, mut from) = (String::new(), 0);
    for (selection, body, _) in regions(text) {
        let said = lab
            .text(selection)
            .map_err(|what| Problem::new(page, line_of(text, body.start), what))?;
        out += &text[from..body.start];
        out += &said;
        from = body.end;
    }
    Ok(out + &text[from..])
}

/// Checks that a page says what the tables say, and gives no verdict of its own.
pub(super) fn check(page: &str, text: &str, lab: &Lab) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (selection, body, _) in regions(text) {
        let line = line_of(text, body.start);
        match lab.text(selection) {
            Ok(said) if said == text[body.clone()] => {}
            Ok(said) => {
                let what = format!(
                    "the tables say `{said}` of `{selection}`, the page `{}`: run `cargo xtask pages`",
                    &text[body.clone()]
                );
                problems.push(Problem::new(page, line, what));
            }
            Err(what) => problems.push(Problem::new(page, line, what)),
        }
    }
    let by_hand = without_regions(text);
    for (index, line) in by_hand.lines().enumerate().filter(|(_, line)| !line.starts_with("- *")) {
        for word in GENERATED_ONLY.into_iter().filter(|word| has_word(line, word)) {
            let what = format!("`{word}` is written by hand: take it from a table, `{BEGIN}NAME{BEGIN_END}{END}`");
            problems.push(Problem::new(page, index + 1, what));
        }
    }
    problems.extend(check_cells(page, &by_hand));
    problems
}

/// The text with each region replaced by a mark that no page contains otherwise.
fn without_regions(text: &str) -> String {
    let (mut out, mut from) = (String::new(), 0);
    for (_, _, all) in regions(text) {
        out += &text[from..all.start];
        out.push('\0');
        from = all.end;
    }
    out + &text[from..]
}

fn has_word(line: &str, word: &str) -> bool {
    let line = line.to_lowercase();
    let is_inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word)
        .any(|(at, _)| !is_inside(line[..at].chars().next_back()) && !is_inside(line[at + word.len()..].chars().next()))
}

/// Checks that the cells of a column `verdict` have regions, with labels that end in a colon, or say that there is no
/// verdict; and that the row of a result has such a cell.
fn check_cells(page: &str, by_hand: &str) -> Vec<Problem> {
    let (mut problems, mut column) = (Vec::new(), None);
    let mut is_in_table = false;
    for (index, line) in by_hand.lines().enumerate() {
        let Some(row) = line.strip_prefix('|') else {
            is_in_table = false;
            continue;
        };
        let cells: Vec<&str> = row.trim_end().trim_end_matches('|').split('|').map(str::trim).collect();
        if !is_in_table {
            is_in_table = true;
            column = cells.iter().position(|cell| *cell == "verdict");
            continue;
        }
        if cells
            .iter()
            .all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-'))
        {
            continue;
        }
        let is_result = cells[0]
            .strip_prefix('R')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let wrong = match column.map(|at| cells.get(at).copied().unwrap_or_default()) {
            Some(cell) => cell
                .split('\0')
                .map(|piece| piece.trim_matches([' ', ';', ',', '.']))
                .map(|piece| piece.strip_suffix(BY_HAND).unwrap_or(piece).trim_end())
                .any(|label| !label.is_empty() && !label.ends_with(':')),
            None => is_result && page.starts_with(PAGES),
        };
        if wrong {
            let what = "a verdict cell has regions, with labels that end in a colon, or `no verdict`";
            problems.push(Problem::new(page, index + 1, what));
        }
    }
    problems
}

/// Checks that each verdict of a table is on a page: what was missed cannot be left out.
pub(super) fn check_all_said(pages: &[(String, String)], lab: &Lab) -> Vec<Problem> {
    let said: Vec<(&str, usize)> = pages
        .iter()
        .filter(|(path, _)| path.starts_with(PAGES))
        .flat_map(|(_, text)| regions(text))
        .flat_map(|(selection, _, _)| lab.select(selection).unwrap_or_default())
        .collect();
    let mut problems = Vec::new();
    for (table, rows) in &lab.tables {
        let mut left = (0..rows.len()).filter(|at| !said.contains(&(table.as_str(), *at)));
        if let Some(first) = left.next() {
            let cells: Vec<&str> = rows[first].cells.iter().map(|(_, cell)| cell.as_str()).collect();
            let what = format!(
                "no page of {PAGES} has the verdict of `{}`, nor of {} others",
                cells.join(", "),
                left.count()
            );
            problems.push(Problem::new(&format!("{TABLES}{table}"), first + 1, what));
        }
    }
    problems
}

#[cfg(test)]
mod tests;
