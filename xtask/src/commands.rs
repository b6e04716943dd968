//! Tasks that run other programs in a fixed order.

use crate::tidy;
use std::process::Command;
use std::time::Instant;

const FMT: &[&str] = &["fmt", "--all"];
const FMT_CHECK: &[&str] = &["fmt", "--all", "--", "--check"];
const CLIPPY: &[&str] = &[
    "clippy",
    "--quiet",
    "--workspace",
    "--all-targets",
    "--",
    "-D",
    "warnings",
];
const CLIPPY_FIX: &[&str] = &[
    "clippy",
    "--workspace",
    "--all-targets",
    "--fix",
    "--allow-dirty",
    "--allow-staged",
];
const DOC: &[&str] = &["doc", "--quiet", "--workspace", "--no-deps"];

/// Runs all read-only checks. Every step runs even after a failure, so that one run reports everything.
pub(crate) fn verify() -> Result<(), String> {
    let steps: [(&str, Step); 4] = [
        ("fmt", || cargo(FMT_CHECK)),
        ("tidy", tidy::run),
        ("clippy", || cargo(CLIPPY)),
        ("doc", || cargo(DOC)),
    ];
    let mut failed = Vec::new();
    for (name, step) in steps {
        let start = Instant::now();
        eprintln!("verify: {name}");
        if let Err(message) = step() {
            eprintln!("{message}");
            failed.push(name);
        }
        eprintln!("verify: {name} took {:.1} s", start.elapsed().as_secs_f32());
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "verify: failed: {}; `cargo xtask fix` repairs what tools can repair",
        failed.join(", ")
    ))
}

/// Lets the tools edit the sources. No other task changes files.
pub(crate) fn fix() -> Result<(), String> {
    cargo(CLIPPY_FIX)?;
    cargo(FMT)
}

type Step = fn() -> Result<(), String>;

fn cargo(arguments: &[&str]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Only rustdoc reads the variable. Clippy gets its flags on the command line.
    let status = Command::new(program)
        .args(arguments)
        .env("RUSTDOCFLAGS", "-D warnings")
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {} ended with {status}", arguments.join(" "))),
        Err(error) => Err(format!("cargo {} cannot be started: {error}", arguments.join(" "))),
    }
}
