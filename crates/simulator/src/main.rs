//! The simulator: the machines that ship, under a seeded network, crashes, pauses and clocks (PROTOCOL §15).
//!
//! `simulator --seeds N [--start S]` runs N seeds; `simulator --seed S -v` replays one and prints what happens.

mod checks;
mod client;
mod coordinator;
mod driver;
mod events;
mod faults;
mod ghost;
mod linear;
mod network;
mod report;
mod swarm;
mod turns;
mod workload;
mod world;

use clap::Parser;
use paritas_base::Prng;
use report::{Counts, say};
use std::io::Write;
use std::process::ExitCode;
use swarm::Swarm;
use world::World;

/// Runs the protocol's machines under seeded faults and checks the invariants of PROTOCOL §13.
#[derive(Parser, Debug)]
#[command(name = "simulator", version)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Print every event of the run.
    #[arg(short, long)]
    verbose: bool,
    /// Fix the number of parity positions; drawn from the seed otherwise.
    #[arg(long)]
    parity: Option<u8>,
    /// Run every seed twice and compare what happened.
    #[arg(long)]
    twice: bool,
    /// Break this rule of the protocol on purpose, and stop at the first seed that shows it.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutant: Option<String>,
    /// Stop at the first violation.
    #[arg(long)]
    stop: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match simulate(&arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("simulator: {error}");
            ExitCode::from(2)
        }
    }
}

fn simulate(arguments: &Arguments) -> Result<u64, String> {
    let (start, count) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.start, arguments.seeds),
    };
    say(&format!(
        "commit {}, seeds {start}..{}",
        env!("PARITAS_COMMIT"),
        start.saturating_add(count)
    ));
    let mut total = Counts::default();
    let (mut violations, mut simulated_ns) = (0, 0u128);
    let mut stopped = count;
    for (done, seed) in (start..start.saturating_add(count)).enumerate() {
        let (violation, world) = run(arguments, seed)?;
        simulated_ns += u128::from(world.now.0);
        total.add(&world.counts);
        if let Some(what) = violation {
            violations += 1;
            say(&format!("seed {seed}: {what}"));
            say(&format!("  replay: {}", replay(arguments, seed)));
            if arguments.stop {
                stopped = done as u64 + 1;
                break;
            }
        } else if arguments.twice {
            let (_, again) = run(arguments, seed)?;
            if again.digest() != world.digest() {
                violations += 1;
                say(&format!("seed {seed}: two runs differ"));
            }
        }
        if done % 1000 == 999 {
            // Progress is no result: whether anybody reads it does not matter.
            let _ = writeln!(
                std::io::stderr(),
                "{} of {count} seeds, {violations} violations",
                done + 1
            );
        }
    }
    say(&total.line(simulated_ns));
    say(&format!("{stopped} seeds, {violations} violations"));
    Ok(violations)
}

fn run(arguments: &Arguments, seed: u64) -> Result<(Option<String>, World), String> {
    let mut random = Prng::new(seed);
    #[allow(unused_mut)] // Changed only where mutants are built in.
    let mut swarm = Swarm::draw(&mut random, arguments.parity);
    #[allow(unused_mut)]
    let mut keep_identity = false;
    #[cfg(feature = "mutants")]
    if let Some(name) = &arguments.mutant {
        let all = paritas_protocol::Mutant::ALL;
        match all.iter().find(|(n, _)| n == name) {
            Some((_, mutant)) => swarm.parameters.mutant = Some(*mutant),
            None if name == "restart-keeps-identity" => keep_identity = true,
            None => {
                let names: Vec<&str> = all.iter().map(|(n, _)| *n).collect();
                return Err(format!(
                    "no mutant {name}; there are restart-keeps-identity, {}",
                    names.join(", ")
                ));
            }
        }
    }
    if arguments.verbose {
        say(&format!("{swarm:#?}"));
    }
    let mut world = World::new(seed, swarm, arguments.verbose, keep_identity);
    let violation = world.run();
    Ok((violation, world))
}

fn replay(arguments: &Arguments, seed: u64) -> String {
    let parity = arguments.parity.map_or_else(String::new, |m| format!(" --parity {m}"));
    #[cfg(feature = "mutants")]
    let mutant = arguments
        .mutant
        .as_ref()
        .map_or_else(String::new, |m| format!(" --mutant {m}"));
    #[cfg(not(feature = "mutants"))]
    let mutant = "";
    format!("simulator --seed {seed}{parity}{mutant} -v")
}
