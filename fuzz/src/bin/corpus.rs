//! Converts between the kept corpus and the directories in which libFuzzer works. `scripts/fuzz` calls it.
//!
//! ```text
//! corpus list                      names, and longest inputs in bytes
//! corpus unpack TARGET DIRECTORY   seeds and kept inputs, one file each
//! corpus pack TARGET DIRECTORY     the directory's files become the kept inputs
//! corpus run TARGET FILE           runs one input; a panic is the report
//! ```

use paritas_fuzz::{Corpus, TARGETS, target};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("corpus: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let known = |name: &str| target(name).ok_or_else(|| format!("unknown target {name}: see `corpus list`"));
    match words {
        ["list"] => {
            for target in TARGETS {
                println!("{} {}", target.name, target.input_bytes_max);
            }
            Ok(())
        }
        ["unpack", name, directory] => {
            let target = known(name)?;
            let mut corpus = Corpus::load(&Corpus::path(target)).map_err(|e| e.to_string())?;
            corpus.inputs.extend(target.seeds());
            corpus.scatter(Path::new(directory)).map_err(|e| e.to_string())
        }
        ["pack", name, directory] => {
            let corpus = Corpus::gather(Path::new(directory)).map_err(|e| e.to_string())?;
            corpus.save(&Corpus::path(known(name)?)).map_err(|e| e.to_string())
        }
        ["run", name, file] => {
            let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
            let seen = known(name)?.run(&bytes);
            println!("{seen:?}");
            Ok(())
        }
        _ => Err("usage: list, unpack TARGET DIRECTORY, pack TARGET DIRECTORY or run TARGET FILE".into()),
    }
}
