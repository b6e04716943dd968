//! Puts the identity of the code into the binary. The commit lets a seed be replayed on the code that failed. A hash of
//! the crates that the protocol consists of lets seeds of different commits be counted together.

use std::path::{Path, PathBuf};

/// The crates under test in the simulator: the machines, and the crates that they import.
const CRATES: [&str; 9] = [
    "base",
    "code",
    "control",
    "frontend",
    "large",
    "paritylog",
    "protocol",
    "store",
    "wire",
];

fn main() {
    let output = std::process::Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    let commit = output
        .ok()
        .filter(|o| o.status.success())
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    println!(
        "cargo::rustc-env=PARITAS_COMMIT={}",
        commit.unwrap_or_else(|| "unknown".into())
    );
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/refs/heads");
    println!(
        "cargo::rustc-env=PARITAS_PROTOCOL={:012x}",
        protocol() & 0xffff_ffff_ffff
    );
}

/// FNV-1a hash of all sources except tests and lines of comment, in the order of their names.
fn protocol() -> u64 {
    let mut files = Vec::new();
    for name in CRATES {
        let sources = Path::new("..").join(name).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        collect(&sources, &mut files);
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        let name = file.to_string_lossy().replace('\\', "/");
        let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
        let code = text.lines().map(str::trim).filter(is_code);
        for part in core::iter::once(name.as_str()).chain(code) {
            for byte in part.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    hash
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_test {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test {
            files.push(path);
        }
    }
}
