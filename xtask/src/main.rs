//! Project tasks: `cargo xtask verify | tidy | fix | pages`.

mod commands;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <task>
  verify   fmt --check, tidy, clippy and rustdoc with warnings denied; changes nothing
  tidy     the walls between crates, licences, names, documents, tables of docs/lab, verdicts on the papers' pages and
           citations of the protocol; changes nothing
  fix      let rustfmt and clippy repair what they can
  pages    write the verdicts of the tables in docs/lab into the papers' pages";

fn main() -> ExitCode {
    let tasks: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match tasks.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify"] => commands::verify(),
        ["tidy"] => tidy::run(),
        ["fix"] => commands::fix(),
        ["pages"] => tidy::write_pages(),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
