//! Citations of the protocol's rules and hazards, and the table of rules, functions and tests.

use super::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// The documents that define ids: the four pages of the protocol its rules and invariants, the last one the hazards.
pub(super) const DEFINING: [&str; 5] = [
    "docs/protocol.md",
    "docs/protocol-memory.md",
    "docs/protocol-control.md",
    "docs/protocol-large.md",
    "docs/hazards.md",
];
/// The document that lists the functions and tests of each rule.
pub(super) const TRACE: &str = "docs/protocol-trace.md";

/// The ids that can be cited: `P3.7`, `H17`, `I9`. Each has the path and the line of its definition.
#[derive(Debug, Default)]
pub(super) struct Ids(BTreeMap<String, (String, usize)>);

impl Ids {
    /// Reads the definitions in documents, each a path and a text. An id that is defined twice is a problem.
    pub(super) fn read<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Self, Vec<Problem>) {
        let (mut ids, mut problems) = (BTreeMap::new(), Vec::new());
        for (path, text) in documents {
            for (index, line) in text.lines().enumerate() {
                for id in definitions(line) {
                    let here = (path.to_owned(), index + 1);
                    if let Some((path, line)) = ids.insert(id.clone(), here.clone()) {
                        let what = format!("`{id}` is defined in {path}:{line} too: define it once");
                        problems.push(Problem::new(&here.0, here.1, what));
                    }
                }
            }
        }
        (Self(ids), problems)
    }

    fn has(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    fn rules(&self) -> impl Iterator<Item = &String> {
        self.0.keys().filter(|id| id.starts_with('P'))
    }
}

/// The ids that a line defines. A definition is a bold id at the beginning of a line or of a list item, or a heading.
/// Two invariants may share a line.
fn definitions(line: &str) -> impl Iterator<Item = String> {
    let line = line.trim_start_matches("- ");
    let first = line.strip_prefix("**").or_else(|| line.strip_prefix("### "));
    let others = line.split(" **").skip(1).filter_map(first_id);
    let first = first.and_then(first_id).into_iter();
    first.chain(others.filter(|id| is_invariant(id)))
}

/// Checks the citations of rules and hazards in one file.
pub(super) fn check_citations(path: &str, text: &str, ids: &Ids) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let cited = words(line).filter(|id| id.starts_with('H') || id.starts_with('P') && id.contains('.'));
        for id in cited.filter(|id| !ids.has(id)) {
            let what = format!("no page defines `{id}`: cite an id of docs/protocol*.md or docs/hazards.md");
            problems.push(Problem::new(path, index + 1, what));
        }
    }
    problems
}

/// Checks the table of rules. Each rule has a row. The functions of a row are declared in the file named before them.
/// Its tests exist. `read` returns the text of a path as documents write it; `sources` are the texts of all files that
/// may contain tests.
pub(super) fn check_trace(
    trace: &str,
    ids: &Ids,
    read: &dyn Fn(&str) -> Option<String>,
    sources: &[String],
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut traced = BTreeSet::new();
    let anywhere = |what: &str| sources.iter().any(|text| text.contains(what));
    for (index, line) in trace.lines().enumerate().filter(|(_, line)| line.starts_with("| P")) {
        let mut problem = |what: String| problems.push(Problem::new(TRACE, index + 1, what));
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let [rules, functions, shown] = cells[..] else {
            problem("a row needs three cells: rules, functions, tests".into());
            continue;
        };
        for rule in words(rules) {
            if !ids.has(rule) {
                problem(format!("no page of the protocol defines `{rule}`"));
            }
            traced.insert(rule.to_owned());
        }
        let (mut file, mut named) = (None, false);
        for name in quoted(functions, '`') {
            if name.ends_with(".rs") {
                file = Some((name, read(name).unwrap_or_default()));
            } else if let Some((path, text)) = &file {
                named = true;
                if !declares(text, name) {
                    problem(format!("`{path}` does not declare `{name}`"));
                }
            }
        }
        if !named {
            problem("the row names no function: write `path.rs` `function`".into());
        }
        let tests: Vec<&str> = quoted(shown, '`').filter(|name| name.contains(['_', '/'])).collect();
        let functions = tests.iter().filter(|name| !name.contains('/'));
        for name in functions.filter(|name| !anywhere(&format!("fn {name}(")) && !anywhere(&format!("def {name}("))) {
            problem(format!("there is no test `{name}`"));
        }
        let mutants: Vec<&str> = quoted(shown, '*').collect();
        for name in mutants.iter().filter(|name| !anywhere(&format!("\"{name}\""))) {
            problem(format!("there is no mutant `{name}`"));
        }
        let marks: Vec<&str> = quoted(shown, '"').collect();
        for name in marks.iter().filter(|name| !anywhere(name)) {
            problem(format!("there is no mark \"{name}\""));
        }
        let invariants: Vec<&str> = words(shown).filter(|id| is_invariant(id)).collect();
        for id in invariants.iter().filter(|id| !ids.has(id)) {
            problem(format!("no page of the protocol defines `{id}`"));
        }
        let is_shown = [&tests, &mutants, &marks, &invariants]
            .iter()
            .any(|names| !names.is_empty());
        if !is_shown && !shown.contains("argued: ") {
            problem("the row names no test: name one, or write `argued: ` and the reason".into());
        }
    }
    for rule in ids.rules().filter(|rule| !traced.contains(*rule)) {
        let what = format!("`{rule}` has no row: name its functions and tests");
        problems.push(Problem::new(TRACE, 1, what));
    }
    problems
}

/// The texts between pairs of `mark`.
fn quoted(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

/// Whether a text declares a function or a type of this name.
fn declares(text: &str, name: &str) -> bool {
    let declared = |rest: &str| {
        rest.strip_prefix(name)
            .is_some_and(|rest| !rest.starts_with(is_of_word))
    };
    ["fn ", "struct ", "enum ", "trait "]
        .iter()
        .any(|kind| text.split(kind).skip(1).any(declared))
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_invariant(id: &str) -> bool {
    id.starts_with(['I', 'B', 'F', 'L', 'D'])
}

/// The id at the beginning of a definition.
fn first_id(text: &str) -> Option<String> {
    let id = words(text).next()?;
    text.starts_with(id).then(|| id.to_owned())
}

/// All words that have the form of an id: a capital letter, a number, for rules perhaps a second number after a point,
/// and perhaps a small letter at the end.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !(is_of_word(c) || c == '.'));
    parts.map(|part| part.trim_matches('.')).filter(|part| {
        let Some(rest) = part.strip_prefix(['P', 'H', 'I', 'B', 'F', 'L', 'D']) else {
            return false;
        };
        let rest = rest.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(rest);
        let mut numbers = rest.split('.');
        let is_number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
        numbers.next().is_some_and(is_number)
            && numbers.next().is_none_or(|n| part.starts_with('P') && is_number(n))
            && numbers.next().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "**P3.7 Acked.** See P3.8.\n\n**P3.8** Stable.\n\n### P5a Phases\n\n- **I9** One. **L2** Two.\n";

    fn ids() -> Ids {
        let (ids, problems) = Ids::read([
            ("docs/protocol.md", PAGE),
            ("docs/hazards.md", "- **H17** A parity is replaced. [P3.7]\n"),
        ]);
        assert_eq!(problems, []);
        ids
    }

    fn cited(text: &str) -> Vec<String> {
        let problems = check_citations("crates/a/src/a.rs", text, &ids());
        problems.iter().map(ToString::to_string).collect()
    }

    fn traced(rows: &str) -> Vec<String> {
        let read = |path: &str| (path == "a/b.rs").then(|| "struct Log; fn advance(x: u8) {}".to_owned());
        let sources = ["fn it_moves() {} (\"no-fence\", 1) \"3.7 a rare cut\"".to_owned()];
        let problems = check_trace(rows, &ids(), &read, &sources);
        problems.iter().map(|p| p.what.clone()).collect()
    }

    #[test]
    fn an_id_that_two_pages_define_is_named() {
        let (_, problems) = Ids::read([
            ("docs/protocol.md", PAGE),
            (
                "docs/protocol-large.md",
                "Beside P3.8.\n\n**P3.8 Stable.** Again.\n- **L2** Again.\n",
            ),
        ]);
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "docs/protocol-large.md:3: `P3.8` is defined in docs/protocol.md:3 too: define it once",
                "docs/protocol-large.md:4: `L2` is defined in docs/protocol.md:7 too: define it once",
            ]
        );
    }

    #[test]
    fn a_citation_without_a_rule_is_named_with_its_line() {
        assert_eq!(
            cited("// P3.7, P3.8; H17\n// (P3.9)"),
            ["crates/a/src/a.rs:2: no page defines `P3.9`: cite an id of docs/protocol*.md or docs/hazards.md"]
        );
        assert_eq!(
            cited("//! H18."),
            ["crates/a/src/a.rs:1: no page defines `H18`: cite an id of docs/protocol*.md or docs/hazards.md"]
        );
        assert!(cited("P1 is a name, as is MP3.9, and XH18; P3.7–P3.8").is_empty());
    }

    const GOOD: &str = "| P3.7 | `a/b.rs` `advance`, `Log` | `it_moves`; *no-fence*; mark \"a rare cut\"; I9 |\n";
    const REST: &str = "| P3.8, P5a | `a/b.rs` `Log` | argued: it cannot differ |\n";

    #[test]
    fn a_whole_table_is_right() {
        assert_eq!(traced(&format!("| rule | f | t |\n{GOOD}{REST}")), [""; 0]);
    }

    #[test]
    fn a_missing_row_is_named() {
        assert_eq!(traced(REST), ["`P3.7` has no row: name its functions and tests"]);
    }

    #[test]
    fn what_a_row_names_must_be_there() {
        let bad = "| P3.7, P3.9 | `a/b.rs` `gone` | `it_stays`; *no-lease*; mark \"never\"; I7 |\n";
        assert_eq!(
            traced(&format!("{bad}{REST}")),
            [
                "no page of the protocol defines `P3.9`",
                "`a/b.rs` does not declare `gone`",
                "there is no test `it_stays`",
                "there is no mutant `no-lease`",
                "there is no mark \"never\"",
                "no page of the protocol defines `I7`",
            ]
        );
        let bare = "| P3.7 | `a/b.rs` | every run |\n";
        assert_eq!(
            traced(&format!("{bare}{REST}")),
            [
                "the row names no function: write `path.rs` `function`",
                "the row names no test: name one, or write `argued: ` and the reason",
            ]
        );
    }
}
