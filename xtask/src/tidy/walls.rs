//! Checks which crate imports which (STYLE.md, "Walls"), from `cargo metadata`.

use super::Problem;
use serde_json::Value;

/// The crates, lowest first, and the crates that each may import in a normal or build dependency. A dev-dependency may
/// name any crate above it in this table, because tests do not ship.
const CRATES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("code", &["base"]),
    ("wire", &["base"]),
    ("script", &["base", "wire"]),
    ("store", &["base"]),
    ("paritylog", &["base", "code"]),
    ("large", &["base", "code"]),
    ("client", &["base", "code", "large", "wire"]),
    ("protocol", &["base", "code", "wire", "store", "paritylog", "large"]),
    ("frontend", &["base", "wire", "script", "store", "protocol"]),
    ("testbed", &["base", "wire", "protocol", "frontend"]),
    ("control", &["base", "code", "protocol"]),
    ("files", &["base", "code", "protocol"]),
    (
        "simulator",
        &[
            "base",
            "code",
            "wire",
            "store",
            "paritylog",
            "protocol",
            "frontend",
            "client",
            "control",
            "files",
        ],
    ),
    ("io", &["base", "wire", "paritylog", "protocol", "frontend"]),
    ("client-io", &["base", "client"]),
    ("client-c", &["client-io"]),
    ("adapters", &["base", "protocol", "control", "files"]),
    (
        "node",
        &[
            "base",
            "code",
            "wire",
            "store",
            "paritylog",
            "protocol",
            "frontend",
            "control",
            "files",
            "io",
            "adapters",
        ],
    ),
    ("steward", &["base", "wire", "files", "io", "node"]),
    ("lab", &["base", "code", "wire", "paritylog", "large", "files", "node"]),
    ("paritas", &["base", "wire", "node", "steward", "lab"]),
    (
        "fuzz",
        &[
            "base", "wire", "store", "protocol", "frontend", "testbed", "control", "node",
        ],
    ),
    ("xtask", &[]),
];

/// Exceptions: the tests of the first crate may use the second one, which is above it and drives the tested machine.
const TESTS_FROM_ABOVE: &[(&str, &str)] = &[
    ("client", "protocol"),
    ("client", "testbed"),
    ("protocol", "testbed"),
    ("frontend", "testbed"),
];

/// Crates without clock, entropy, threads and sockets, so that the simulator can replay them.
pub(super) const PURE: &[&str] = &[
    "base",
    "code",
    "wire",
    "script",
    "store",
    "paritylog",
    "large",
    "client",
    "protocol",
    "frontend",
    "control",
    "files",
];

/// Crates that provide a clock, entropy, threads or sockets.
const IMPURE: &[&str] = &[
    "async-std",
    "chrono",
    "crossbeam",
    "fastrand",
    "futures",
    "getrandom",
    "mio",
    "rand",
    "rayon",
    "smol",
    "socket2",
    "time",
    "tokio",
];

/// Crates for async code, which is allowed only on the adapters' own threads.
const ASYNC: &[&str] = &["async-std", "futures", "smol", "tokio", "tonic"];

/// The crate of a path: `crates/store/…` is `store`, `crates/adapters/etcd/…` is `adapters`.
pub(super) fn crate_of(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    match parts.next()? {
        "crates" => parts.next(),
        "xtask" => Some("xtask"),
        "fuzz" => Some("fuzz"),
        _ => None,
    }
}

/// Checks every dependency between workspace members, and the external dependencies of the pure crates.
pub(super) fn check(metadata: &Value, read: &dyn Fn(&str) -> Option<String>) -> Vec<Problem> {
    let root = format!("{}/", text(&metadata["workspace_root"]));
    let relative = |path: &Value| text(path).strip_prefix(&root).unwrap_or_else(|| text(path)).to_owned();
    let mut problems = Vec::new();
    for package in list(&metadata["packages"]) {
        let manifest = relative(&package["manifest_path"]);
        let Some((rank, allowed)) = crate_of(&manifest).and_then(find) else {
            problems.push(Problem::new(
                &manifest,
                1,
                "this crate has no row in the table of walls: give it one in CRATES (xtask/src/tidy/walls.rs) and \
                 in STYLE.md, with the reason in docs/decisions",
            ));
            continue;
        };
        let importer = CRATES[rank].0;
        let manifest_text = read(&manifest).unwrap_or_default();
        for dependency in list(&package["dependencies"]) {
            let name = text(&dependency["name"]);
            let dev = dependency["kind"] == "dev";
            let wrong = if dependency["path"].is_string() {
                wrong_edge(importer, rank, allowed, crate_of(&relative(&dependency["path"])), dev)
            } else {
                (!dev).then(|| wrong_outside(importer, name)).flatten()
            };
            if let Some(what) = wrong {
                problems.push(Problem::new(
                    &manifest,
                    line_of(&manifest_text, name),
                    format!("{name}: {what}"),
                ));
            }
        }
    }
    problems
}

/// The nearest `clippy.toml` replaces the one of the root. So each pure crate has its own copy, and all copies must be
/// equal.
pub(super) fn check_clippy_files(read: &dyn Fn(&str) -> Option<String>) -> Vec<Problem> {
    let first = read("crates/base/clippy.toml").unwrap_or_default();
    let crates = PURE
        .iter()
        .filter(|name| read(&format!("crates/{name}/Cargo.toml")).is_some());
    crates
        .map(|name| format!("crates/{name}/clippy.toml"))
        .filter(|path| first.is_empty() || read(path).as_ref() != Some(&first))
        .map(|path| {
            Problem::new(
                &path,
                1,
                "a pure crate needs the same bans as crates/base/clippy.toml: copy it",
            )
        })
        .collect()
}

fn find(name: &str) -> Option<(usize, &'static [&'static str])> {
    let rank = CRATES.iter().position(|(row, _)| *row == name)?;
    Some((rank, CRATES[rank].1))
}

fn wrong_edge(importer: &str, rank: usize, allowed: &[&str], target: Option<&str>, dev: bool) -> Option<String> {
    let target = target?;
    if dev {
        let below = find(target).is_some_and(|(target_rank, _)| target_rank < rank)
            || TESTS_FROM_ABOVE.contains(&(importer, target));
        return (!below).then(|| {
            format!("tests of `{importer}` may use only crates below it, which `{target}` is not: move the test up")
        });
    }
    (!allowed.contains(&target)).then(|| {
        let may = if allowed.is_empty() {
            "no crate of ours".to_owned()
        } else {
            allowed.join(", ")
        };
        format!("crate `{importer}` must not import `{target}` (it may import {may}): move the code, not the wall")
    })
}

fn wrong_outside(importer: &str, name: &str) -> Option<String> {
    if (PURE.contains(&importer) || importer == "simulator") && IMPURE.contains(&name) {
        return Some(format!(
            "crate `{importer}` has no clock, entropy, threads or sockets: take them as arguments"
        ));
    }
    (importer != "adapters" && ASYNC.contains(&name))
        .then(|| "async code lives only in adapters, behind a bounded queue".to_owned())
}

fn line_of(manifest: &str, dependency: &str) -> usize {
    let names = |line: &str| {
        let rest = line.trim_start().strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with([' ', '=', '.']))
    };
    manifest.lines().position(names).map_or(1, |index| index + 1)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
