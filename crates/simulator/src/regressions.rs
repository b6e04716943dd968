//! Seeds that once failed, from `regressions.txt`.

use crate::Run;

const TEXT: &str = include_str!("../regressions.txt");

/// All of them, in the order of the file.
pub(crate) fn read() -> Result<Vec<Run>, String> {
    parse(TEXT)
}

/// A run as a line of the file.
pub(crate) fn line(run: Run, what: &str) -> String {
    let parity = run.parity.map_or_else(String::new, |m| format!(" --parity {m}"));
    let what: String = what.chars().take(80).collect();
    format!("{}{parity} # {what}", run.seed)
}

fn parse(text: &str) -> Result<Vec<Run>, String> {
    let mut runs = Vec::new();
    for line in text.lines() {
        let run = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = run.split_whitespace().collect();
        let bad = || format!("regressions.txt: {line:?} is not a seed with arguments");
        let (seed, parity) = match words.as_slice() {
            [] => continue,
            [seed] => (seed, None),
            [seed, "--parity", m] => (seed, Some(m.parse().map_err(|_| bad())?)),
            _ => return Err(bad()),
        };
        let seed = seed.parse().map_err(|_| bad())?;
        runs.push(Run { seed, parity });
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
        for parity in [None, Some(3)] {
            let run = Run { seed: 4711, parity };
            let read = parse(&line(run, "I9: lost")).expect("it parses");
            assert_eq!(
                read.iter().map(|r| (r.seed, r.parity)).collect::<Vec<_>>(),
                [(4711, parity)]
            );
        }
        assert!(parse("4711 --speed 3").is_err());
    }
}
