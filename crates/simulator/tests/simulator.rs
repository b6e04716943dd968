//! What the simulator prints, and what a run that it names does when it is replayed.

use std::process::{Command, Output};

// Its tests need no simulator.
#[allow(dead_code)]
#[path = "../src/linear.rs"]
mod linear;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulator"));
    command.args(arguments).output().expect("the simulator runs")
}

fn said(arguments: &[&str]) -> String {
    String::from_utf8(run(arguments).stdout).expect("text")
}

fn digest(arguments: &[&str]) -> String {
    let said = said(&[&["--digest"], arguments].concat());
    let line = said.lines().find(|line| line.starts_with("digest "));
    line.unwrap_or_else(|| panic!("no digest in {said}")).to_owned()
}

#[test]
fn threads_change_no_result() {
    let one = said(&["--digest", "--seeds", "12"]);
    assert!(one.ends_with("12 seeds, 0 violations\n"), "{one}");
    assert_eq!(said(&["--digest", "--seeds", "12", "--threads", "5"]), one);
}

#[test]
fn the_same_seeds_give_the_same_digest_and_other_seeds_another() {
    let first = digest(&["--seeds", "4"]);
    assert_eq!(digest(&["--seeds", "4"]), first);
    assert_ne!(digest(&["--seeds", "4", "--start", "2"]), first);
}

#[test]
fn a_fork_that_cannot_be_read_is_refused() {
    for text in ["", "12", "12:", "12:x", "12:32", "x:1"] {
        let output = run(&["--seed", "1", "--fork", text]);
        assert!(!output.status.success(), "{text}");
        let why = String::from_utf8(output.stderr).expect("text");
        assert!(why.contains("is not EVENTS:PROCESS,PROCESS"), "{text}: {why}");
    }
}

#[test]
fn a_mark_that_was_never_met_counts_as_a_violation() {
    let output = run(&["--seeds", "1", "--require-marks"]);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(
        !output.status.success() && said.contains("mark never reached: "),
        "{said}"
    );
}

/// Both lines that a violation prints are the run that met it: one to replay it, and one for the file of regressions.
#[cfg(feature = "mutants")]
#[test]
fn a_violation_is_met_again_by_the_run_that_it_names() {
    for arguments in [
        &["--mutant", "restart-keeps-identity", "--ungoverned", "--parity", "2"][..],
        &[
            "--mutant",
            "chunk-dropped-after-asking-live",
            "--ungoverned",
            "--forks",
            "2",
        ],
        &["--mutant", "gone-before-the-shard-stopped", "--governed"],
    ] {
        let found = said(&[arguments, &["--stop", "--seeds", "500"]].concat());
        let line_behind = |start: &str| {
            let line = found.lines().find_map(|line| line.trim_start().strip_prefix(start));
            line.unwrap_or_else(|| panic!("{arguments:?} found nothing: {found}"))
        };
        let (seed, what) = line_behind("seed ").split_once(": ").expect("a seed and what it met");
        let replay: Vec<&str> = line_behind("replay: simulator ").split_whitespace().collect();
        // With `-v` all is checked after each event, and another check may see the same harm before.
        let quiet: Vec<&str> = replay.iter().copied().filter(|word| *word != "-v").collect();
        let replayed = said(&quiet);
        assert!(replayed.contains(what), "{replay:?} does not end with {what}");
        let regression = line_behind("line for crates/simulator/regressions.txt: ");
        let (run, comment) = regression.split_once(" # ").expect("a run and a comment");
        assert!(what.starts_with(comment), "{regression}");
        let words: Vec<&str> = run.split_whitespace().collect();
        let of_replay: Vec<&str> = replay.iter().copied().filter(|word| *word != "--seed").collect();
        assert!(
            words[0] == seed && of_replay.starts_with(&words),
            "{regression} and {replay:?}"
        );
    }
}
