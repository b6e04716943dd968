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
        };
        let is_flag = |word: &&&str| ["--governed", "--ungoverned"].contains(*word);
        let (flags, shape): (Vec<&str>, Vec<&str>) = shape.iter().partition(is_flag);
        run.governed = flags.contains(&"--governed");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_file_is_a_run() {
        assert!(!read().expect("it parses").is_empty());
    }

    #[test]
    fn a_line_is_read_as_it_was_printed() {
        let fork = "1234:0,3".parse().ok();
        let shape = |parity, ack_quorum, stripe_lists| Shape {
            parity,
            ack_quorum,
            stripe_lists,
        };
        for (shape, fork) in [
            (Shape::default(), None),
            (shape(Some(3), None, Some(2)), fork),
            (shape(Some(3), Some(2), None), None),
        ] {
            let run = Run {
                seed: 4711,
                shape,
                fork,
                governed: fork.is_none(),
            };
            let read = parse(&line(run, "I9: lost")).expect("it parses");
            assert_eq!(
                read.iter()
                    .map(|r| (r.seed, r.shape, r.fork, r.governed))
                    .collect::<Vec<_>>(),
                [(4711, shape, fork, fork.is_none())]
            );
        }
        assert!(parse("4711 --speed 3").is_err());
    }
}
