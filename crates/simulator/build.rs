//! Puts the commit into the binary, so that a seed can be replayed on the code that it broke.

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
}
