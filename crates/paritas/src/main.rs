//! `paritas`: an erasure-coded key-value store in memory, for any Redis client.

mod cli;
mod files;
mod lab;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("paritas: {failure}");
            ExitCode::FAILURE
        }
    }
}
