//! Seeds that failed once, from `regressions.txt`.

use crate::runs::Run;
use crate::swarm::Shape;

const TEXT: &str = include_str!("../regressions.txt");

/// All runs of the file, in its order.
pub(crate) fn read() -> Result<Vec<Run>, String> {
    parse(TEXT)
}

/// A run as a line of the file.
pub(crate) fn line(run: Run, what: &str) -> String {
    let what: String = what.chars().take(80).collect();
    format!("{}{} # {what}", run.seed, run.arguments())
}

fn parse(text: &str) -> Result<Vec<Run>, String> {
    let mut runs = Vec::new();
    for line in text.lines() {
        let run = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = run.split_whitespace().collect();
        let bad = || format!("regressions.txt: {line:?} is not a seed with arguments");
        let Some((seed, shape)) = words.split_first() else {
            continue;
        };
        let mut run = Run {
            seed: seed.parse().map_err(|_| bad())?,
            shape: Shape::default(),
            fork: None,
            governed: false,
            one_version: false,
        };
        let is_flag = |word: &&&str| ["--governed", "--ungoverned", "--one-version"].contains(*word);
        let (flags, shape): (Vec<&str>, Vec<&str>) = shape.iter().partition(is_flag);
        run.governed = flags.contains(&"--governed");
        run.one_version = flags.contains(&"--one-version");
        for argument in shape.chunks(2) {
            match argument {
                ["--parity", m] => run.shape.parity = Some(m.parse().map_err(|_| bad())?),
                ["--ack-quorum", a] => run.shape.ack_quorum = Some(a.parse().map_err(|_| bad())?),
                ["--stripe-lists", count] => run.shape.stripe_lists = Some(count.parse().map_err(|_| bad())?),
                ["--fork", fork] => run.fork = Some(fork.parse().map_err(|_| bad())?),
                _ => return Err(bad()),
            }
        }
        runs.push(run);
    }
    Ok(runs)
}
