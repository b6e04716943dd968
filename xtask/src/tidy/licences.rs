//! Checks that every dependency comes from crates.io, under a licence that `deny.toml` allows.
//!
//! `cargo deny` checks this and more, but takes minutes to build. This check takes a second and needs nothing
//! installed.

use super::Problem;
use serde_json::Value;

/// Cargo's name for crates.io, also in `Cargo.lock`.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all packages of a full `cargo metadata` against `allow` in `[licenses]` of `deny.toml`.
pub(super) fn check(metadata: &Value, deny: &str) -> Vec<Problem> {
    let allowed = allowed(deny);
    let mut problems = Vec::new();
    for package in metadata["packages"].as_array().map_or(&[][..], Vec::as_slice) {
        let Some(source) = package["source"].as_str() else {
            continue;
        };
        let name = package["name"].as_str().unwrap_or_default();
        if source != CRATES_IO {
            let what = format!("{name} comes from {source}: take it from crates.io");
            problems.push(Problem::new("Cargo.lock", 1, what));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        if !satisfied(licence, &allowed) {
            let what =
                format!("{name} has the licence \"{licence}\", which deny.toml does not allow: use another crate");
            problems.push(Problem::new("Cargo.lock", 1, what));
        }
    }
    problems
}

/// The strings of the `allow` list in the section `[licenses]`.
fn allowed(deny: &str) -> Vec<&str> {
    let section = deny.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let list = section.split_once("allow = [").map_or("", |(_, rest)| rest);
    let list = list.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).collect()
}

/// Whether the allowed licences satisfy an SPDX expression. `/` is an old form of OR.
fn satisfied(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any(&mut words, allowed);
    met == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// `None` means that the expression cannot be parsed. It then satisfies nothing.
fn any(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    let mut met = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        met |= all(words, allowed)?;
    }
    Some(met)
}

fn all(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    let mut met = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed)?;
    }
    Some(met)
}

fn one(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let met = any(words, allowed)?;
        return words.next_if_eq(&")").map(|_| met);
    }
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next()?;
        return Some(allowed.contains(&format!("{word} WITH {exception}").as_str()));
    }
    Some(allowed.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ALLOWED: &[&str] = &["Apache-2.0", "MIT", "Unicode-3.0"];

    #[test]
    fn expressions_mean_what_spdx_says() {
        for met in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "GPL-3.0 AND MIT OR MIT",
        ] {
            assert!(satisfied(met, ALLOWED), "{met}");
        }
        for unmet in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "(MIT",
            "MIT MIT",
            "MIT OR",
        ] {
            assert!(!satisfied(unmet, ALLOWED), "{unmet}");
        }
    }

    #[test]
    fn the_list_is_the_one_of_deny_toml() {
        let deny = "[bans]\nallow = [\"x\"]\n[licenses]\nallow = [\n  \"MIT\",\n  \"Apache-2.0\",\n]\n";
        assert_eq!(allowed(deny), ["MIT", "Apache-2.0"]);
    }

    #[test]
    fn a_foreign_source_and_a_foreign_licence_are_named() {
        let metadata = json!({ "packages": [
            { "name": "ours", "source": null, "license": null },
            { "name": "good", "source": CRATES_IO, "license": "MIT" },
            { "name": "copyleft", "source": CRATES_IO, "license": "GPL-3.0" },
            { "name": "stray", "source": "git+https://example.org/stray", "license": "MIT" },
        ]});
        let found = check(&metadata, "[licenses]\nallow = [\"MIT\"]");
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("copyleft has the licence \"GPL-3.0\""));
        assert!(found[1].contains("stray comes from git+"));
    }
}
