//! Checks names and lines of source files.

use super::{Problem, walls};
use std::path::Path;

const LINE_CHARACTERS_MAX: usize = 120;

/// Texts that a pure crate must not contain, and what to use instead. The `clippy.toml` of each crate bans the calls
/// that a type checker can see. This check also finds imports.
const BANNED: &[(&str, &str)] = &[
    (
        "Instant::now",
        "time arrives as an argument: take `now: Clock` from the caller",
    ),
    (
        "SystemTime::now",
        "time arrives as an argument: take `now: Clock` from the caller",
    ),
    (
        "std::thread",
        "a machine never waits and has one thread: return the work to the caller",
    ),
    ("std::net", "sockets live in `io`: write bytes through `Out`"),
    (
        "collections::HashMap",
        "its order differs from run to run: use `paritas_base::Map`",
    ),
    (
        "collections::HashSet",
        "its order differs from run to run: use `paritas_base::Set`",
    ),
    (
        "RandomState",
        "entropy arrives as an argument: use `paritas_base::Prng` from the caller's seed",
    ),
];

/// Checks that a file's name describes its contents.
pub(super) fn check_name(path: &str) -> Option<Problem> {
    let stem = Path::new(path).file_stem()?.to_str()?;
    let says_nothing = matches!(stem, "util" | "utils" | "helper" | "helpers" | "misc");
    says_nothing.then(|| Problem::new(path, 1, "the name says nothing: name the file after its contents"))
}

/// Checks line lengths in all files; and clock, threads, sockets and hash order in pure crates, tests excepted.
pub(super) fn check_rust(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let characters = line.chars().count();
        if characters > LINE_CHARACTERS_MAX {
            let what = format!("{characters} characters, {LINE_CHARACTERS_MAX} are allowed: break the line");
            problems.push(Problem::new(path, index + 1, what));
        }
    }
    if path.starts_with("crates/control/src/")
        && !path.starts_with("crates/control/src/fence")
        && is_pure_production(path)
    {
        for (number, line) in production_lines(text) {
            if writes_a_holder(line) {
                let what = "only `control/src/fence.rs` gives a position another holder (P10.9): ask it for a \
                            permit with `Fence::remove`";
                problems.push(Problem::new(path, number, what));
            }
        }
    }
    if path.starts_with("crates/protocol/src/") && !path.starts_with("crates/protocol/src/rules") {
        for (number, line) in production_lines(text) {
            if line.contains("Mutant") || line.contains("feature = \"mutants\"") {
                let what =
                    "only `protocol/src/rules` knows of mutants: ask `Rules` whether the rule holds, or for a `Fault`";
                problems.push(Problem::new(path, number, what));
            }
        }
    }
    if is_pure_production(path) {
        for (number, line) in production_lines(text) {
            for (banned, mend) in BANNED {
                if mentions(line, banned) {
                    problems.push(Problem::new(
                        path,
                        number,
                        format!("`{banned}` in a pure crate: {mend}"),
                    ));
                }
            }
        }
    }
    problems
}

/// Whether the line assigns to `positions[…]` or borrows the positions mutably.
fn writes_a_holder(line: &str) -> bool {
    let indexed = line
        .split_once("positions[")
        .and_then(|(_, rest)| rest.split_once("] = "));
    let mutable = ["positions.get_mut(", "positions.iter_mut(", "&mut new.positions"];
    indexed.is_some() || mutable.iter().any(|way| line.contains(way))
}

fn is_pure_production(path: &str) -> bool {
    walls::crate_of(path).is_some_and(|name| walls::PURE.contains(&name))
        && path.contains("/src/")
        && !path.ends_with("/tests.rs")
        && !path.contains("/tests/")
}

/// Whether the line names a banned path. `use std::{collections::HashMap, thread}` counts like the long form.
fn mentions(line: &str, banned: &str) -> bool {
    if line.contains(banned) {
        return true;
    }
    let Some((module, name)) = banned.rsplit_once("::") else {
        return false;
    };
    let Some((_, list)) = line.split_once(&format!("{module}::{{")) else {
        return false;
    };
    list.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .any(|word| word == name)
}

/// Lines of code with their numbers, without comments and without items under `#[cfg(test)]`. This relies on rustfmt:
/// an item that opens a block ends with a closing brace at the same indentation.
fn production_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut skip = Skip::Nothing;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let code = line.split("//").next().unwrap_or_default().trim_end();
        let indent = code.len() - code.trim_start().len();
        match skip {
            Skip::Nothing if code.trim_start().starts_with("#[cfg(test)]") => skip = Skip::NextItem,
            Skip::Nothing => return Some((index + 1, code)),
            Skip::NextItem if code.ends_with('{') => skip = Skip::UntilBrace(indent),
            Skip::NextItem if code.ends_with([';', '}', ',']) => skip = Skip::Nothing,
            Skip::UntilBrace(at) if indent == at && code.trim_start().starts_with('}') => skip = Skip::Nothing,
            Skip::NextItem | Skip::UntilBrace(_) => {}
        }
        None
    })
}

#[derive(Clone, Copy)]
enum Skip {
    Nothing,
    NextItem,
    UntilBrace(usize),
}

/// Checks that a file of tests is run, where a crate has all its tests in few programs (`autotests = false`): it is a
/// module of one of these, or one itself.
pub(super) fn check_is_run(path: &str, read: &impl Fn(&str) -> Option<String>) -> Option<Problem> {
    let (package, name) = path.strip_suffix(".rs")?.split_once("/tests/")?;
    let manifest = read(&format!("{package}/Cargo.toml"))?;
    if name.contains('/') || !manifest.contains("autotests = false") {
        return None;
    }
    let program = read(&format!("{package}/tests/cluster.rs")).unwrap_or_default();
    let is_run = manifest.contains(&format!("name = \"{name}\"")) || program.contains(&format!("mod {name};"));
    let what = format!("its tests are not run: add `mod {name};` to {package}/tests/cluster.rs");
    (!is_run).then(|| Problem::new(path, 1, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check_rust(path, text).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn only_the_fence_writes_holders() {
        let text = "fn f() {\n    next.positions[0] = None;\n    let same = next.positions[0] == None;\n}\n";
        assert_eq!(lines("crates/control/src/rules.rs", text), [2]);
        assert!(lines("crates/control/src/fence.rs", text).is_empty());
    }

    #[test]
    fn only_the_rules_know_of_mutants() {
        let text =
            "fn f() {\n    if cx.breaks(Mutant::GapsAccepted) {\n        #[cfg(feature = \"mutants\")]\n    }\n}\n";
        assert_eq!(lines("crates/protocol/src/parity_member.rs", text), [2, 3]);
        assert!(lines("crates/protocol/src/rules/writes.rs", text).is_empty());
        assert!(lines("crates/control/src/coordinator.rs", text).is_empty());
    }

    #[test]
    fn a_clock_in_a_pure_room_is_named_with_its_line() {
        let text = "fn f() {\n    let t = std::time::Instant::now();\n}\n";
        let found = check_rust("crates/store/src/arena.rs", text);
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .to_string()
                .starts_with("crates/store/src/arena.rs:2: `Instant::now` in a pure crate: ")
        );
        assert!(lines("crates/io/src/turn.rs", text).is_empty());
    }

    #[test]
    fn comments_and_tests_may_name_what_is_banned() {
        let text = "// no std::thread here\n#[cfg(test)]\nmod tests {\n    use std::thread;\n    fn f() {\n    }\n}\n\
                    #[cfg(test)]\nuse std::net;\nuse std::net;\n";
        assert_eq!(lines("crates/base/src/time.rs", text), [10]);
        assert!(lines("crates/base/src/time/tests.rs", "use std::thread;").is_empty());
        assert!(lines("crates/base/tests/model.rs", "use std::thread;").is_empty());
    }

    #[test]
    fn an_import_list_hides_nothing() {
        assert_eq!(lines("crates/wire/src/a.rs", "use std::{io, thread};"), [1]);
        assert_eq!(
            lines("crates/wire/src/a.rs", "use std::collections::{BTreeMap, HashMap};"),
            [1]
        );
        assert!(lines("crates/wire/src/a.rs", "use std::collections::{BTreeMap, VecDeque};").is_empty());
    }

    #[test]
    fn lines_end_at_120_characters() {
        let long = "é".repeat(121);
        assert_eq!(lines("crates/io/src/a.rs", &format!("{}\n{long}\n", &long[2..])), [2]);
    }

    #[test]
    fn a_file_is_named_after_what_it_holds() {
        assert!(check_name("crates/io/src/utils.rs").is_some());
        assert!(check_name("tests/helpers.py").is_some());
        assert!(check_name("crates/io/src/socket.rs").is_none());
    }

    #[test]
    fn a_file_of_tests_that_no_program_has_is_found() {
        let read = |path: &str| match path {
            "crates/a/Cargo.toml" => Some("autotests = false\n[[test]]\nname = \"cluster\"\n".to_owned()),
            "crates/a/tests/cluster.rs" => Some("mod known;\n".to_owned()),
            _ => Some(String::new()),
        };
        let found = |path: &str| check_is_run(path, &read).is_some();
        assert!(found("crates/a/tests/new.rs"));
        assert!(!found("crates/a/tests/known.rs") && !found("crates/a/tests/cluster.rs"));
        assert!(!found("crates/a/tests/support/mod.rs") && !found("crates/b/tests/new.rs"));
    }
}
