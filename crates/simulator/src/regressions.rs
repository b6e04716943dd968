//! Seeds that once failed, from `regressions.txt`.

use crate::Run;

const TEXT: &str = include_str!("../regressions.txt");

/// All of them, in the order of the file.
pub(crate) fn read() -> Result<Vec<Run>, String> {
    parse(TEXT)
}

/// A run as a line of the file.
pub(crate) fn line(run: Run, what: &str) -> String {
    let what: String = what.chars().take(80).collect();
    format!("{}{} # {what}", run.seed, run.shape())
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
            parity: None,
            ack_quorum: None,
            fork: None,
        };
        for argument in shape.chunks(2) {
            match argument {
                ["--parity", m] => run.parity = Some(m.parse().map_err(|_| bad())?),
                ["--ack-quorum", a] => run.ack_quorum = Some(a.parse().map_err(|_| bad())?),
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
        for (parity, ack_quorum, fork) in [(None, None, None), (Some(3), None, fork), (Some(3), Some(2), None)] {
            let run = Run {
                seed: 4711,
                parity,
                ack_quorum,
                fork,
            };
            let read = parse(&line(run, "I9: lost")).expect("it parses");
            assert_eq!(
                read.iter()
                    .map(|r| (r.seed, r.parity, r.ack_quorum, r.fork))
                    .collect::<Vec<_>>(),
                [(4711, parity, ack_quorum, fork)]
            );
        }
        assert!(parse("4711 --speed 3").is_err());
    }
}
