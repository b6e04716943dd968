//! Checks that a document names only files that exist.

use super::Problem;

/// First parts of a path that can only be in this repository.
const TOPS: &[&str] = &["crates", "docs", "fuzz", "scripts", "tests", "xtask", ".cargo", ".ci"];
/// Suffixes that make a bare name in backticks a file of this repository.
const ENDINGS: &[&str] = &["md", "rs", "toml", "py", "sh", "svg"];

/// Checks the link targets and the paths in backticks of one Markdown document.
///
/// A path is looked up from the root, from the document's own directory, and as a short form: `store/arena.rs` stands
/// for `crates/store/src/arena.rs`.
pub(super) fn check(document: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Problem> {
    let directory = document.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let links = links(line).filter_map(link_path).map(|path| (path, false));
        let names = backticked(line).filter_map(repository_path).map(|path| (path, true));
        for (path, anywhere) in links.chain(names) {
            let mut places = vec![join(directory, path)];
            if anywhere {
                places.push(path.to_owned());
                places.extend(in_crate(path));
            }
            if !places.iter().any(|place| exists(place)) {
                let what = format!("`{path}` does not exist: name an existing file, or remove the name");
                problems.push(Problem::new(document, index + 1, what));
            }
        }
    }
    problems
}

/// The path for which the short form `store/arena.rs` stands.
pub(super) fn in_crate(path: &str) -> Option<String> {
    let (name, file) = path.split_once('/')?;
    Some(format!("crates/{name}/src/{file}"))
}

/// The targets in `](…)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The texts between single backticks. The line of a code fence has none.
fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn link_path(target: &str) -> Option<&str> {
    let path = target.split(['#', ' ']).next()?;
    (!path.is_empty() && !path.contains(':')).then_some(path)
}

fn repository_path(name: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if name.is_empty() || !name.chars().all(plain) || name.starts_with('/') {
        return None;
    }
    let top = name.split('/').next()?;
    let ours = name.contains('/') && TOPS.contains(&top);
    let ending = name
        .rsplit_once('.')
        .is_some_and(|(stem, ending)| !stem.is_empty() && ENDINGS.contains(&ending));
    (ours || ending).then_some(name)
}

fn join(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let there = [
            "README.md",
            "docs/papers.md",
            "docs/picture.svg",
            "crates/store/src/arena.rs",
            "scripts/load",
        ];
        let exists = |path: &str| {
            there
                .iter()
                .any(|file| *file == path || file.starts_with(&format!("{}/", path.trim_end_matches('/'))))
        };
        check("docs/papers.md", text, &exists)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_missing_path_is_named_with_its_line() {
        let found = missing("fine\n`crates/store/src/gone.rs` and `scripts/load`\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("docs/papers.md:2: `crates/store/src/gone.rs` does not exist"));
    }

    #[test]
    fn paths_are_found_from_root_from_the_document_and_by_room() {
        assert!(missing("`README.md` `papers.md` `picture.svg` `docs/` `store/arena.rs` `crates/store`").is_empty());
        assert_eq!(missing("`store/gone.rs`").len(), 1);
    }

    #[test]
    fn links_are_relative_to_the_document() {
        assert!(missing("[a](papers.md#top) [b](../README.md) [c](#here) ![d](picture.svg)").is_empty());
        assert!(missing("[e](https://example.org/x.md)").is_empty());
        assert_eq!(missing("[a](README.md)").len(), 1);
    }

    #[test]
    fn what_is_no_path_of_ours_is_left_alone() {
        assert!(missing("`GET/SET` `4+2` `docs/decisions/<date>-<name>.md` `cargo xtask` `a/b` `.md`").is_empty());
    }
}
