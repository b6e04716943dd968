//! The simulator: the machines that ship, under a seeded network, crashes, pauses and clocks (PROTOCOL §15).
//!
//! `simulator --seeds N [--start S]` runs N seeds; `simulator --seed S -v` replays one and prints what happens;
//! `simulator --regressions` runs those that once failed.

mod checks;
mod client;
mod coordinator;
mod driver;
mod events;
mod faults;
mod flips;
mod ghost;
mod linear;
mod marks;
mod network;
mod regressions;
mod report;
mod swarm;
mod turns;
mod workload;
mod world;

use clap::Parser;
use marks::Marks;
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
    /// Fix how many of them acknowledge a write; drawn from the seed otherwise.
    #[arg(long)]
    ack_quorum: Option<u8>,
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
    /// Run the seeds that once failed, and no others.
    #[arg(long)]
    regressions: bool,
    /// A coverage mark that no seed has met counts as a violation.
    #[arg(long)]
    require_marks: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = if arguments.regressions {
        regressions::read().and_then(|runs| simulate(&arguments, runs.len() as u64, runs.into_iter()))
    } else {
        let (start, count) = match arguments.seed {
            Some(seed) => (seed, 1),
            None => (arguments.start, arguments.seeds),
        };
        let seeds = start..start.saturating_add(count);
        simulate(
            &arguments,
            count,
            seeds.map(|seed| Run {
                seed,
                parity: arguments.parity,
                ack_quorum: arguments.ack_quorum,
            }),
        )
    };
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("simulator: {error}");
            ExitCode::from(2)
        }
    }
}

/// One run: what makes it what it is.
#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    /// The number of parity positions, if it is not drawn from the seed.
    parity: Option<u8>,
    /// The ack quorum, likewise.
    ack_quorum: Option<u8>,
}

impl Run {
    /// What is fixed of its shape, as arguments.
    fn shape(&self) -> String {
        let parity = self.parity.map_or_else(String::new, |m| format!(" --parity {m}"));
        let ack_quorum = self
            .ack_quorum
            .map_or_else(String::new, |a| format!(" --ack-quorum {a}"));
        parity + &ack_quorum
    }
}

fn simulate(arguments: &Arguments, count: u64, runs: impl Iterator<Item = Run>) -> Result<u64, String> {
    let mut total = Counts::default();
    let mut marks = Marks::default();
    let (mut violations, mut done, mut simulated_ns) = (0, 0, 0u128);
    for run in runs {
        if done == 0 {
            say(&format!(
                "commit {}, {count} seeds from {}",
                env!("PARITAS_COMMIT"),
                run.seed
            ));
        }
        done += 1;
        let (violation, world) = simulate_one(arguments, run)?;
        simulated_ns += u128::from(world.now.0);
        total.add(&world.counts);
        marks.add(&world.marks);
        if let Some(what) = violation {
            violations += 1;
            say(&format!("seed {}: {what}", run.seed));
            say(&format!("  replay: {}", replay(arguments, run)));
            say(&format!(
                "  to crates/simulator/regressions.txt: {}",
                regressions::line(run, &what)
            ));
            if arguments.stop {
                break;
            }
        } else if arguments.twice {
            let (_, again) = simulate_one(arguments, run)?;
            if again.digest() != world.digest() {
                violations += 1;
                say(&format!("seed {}: two runs differ", run.seed));
            }
        }
        if done % 1000 == 0 {
            // Progress is no result: whether anybody reads it does not matter.
            let _ = writeln!(std::io::stderr(), "{done} of {count} seeds, {violations} violations");
        }
    }
    if count > 1 && !arguments.stop {
        marks.print();
    }
    if arguments.require_marks {
        for name in marks.missing() {
            violations += 1;
            say(&format!("never met: {name}"));
        }
    }
    say(&total.line(simulated_ns));
    say(&format!("{done} seeds, {violations} violations"));
    Ok(violations)
}

fn simulate_one(arguments: &Arguments, run: Run) -> Result<(Option<String>, World), String> {
    let mut random = Prng::new(run.seed);
    #[allow(unused_mut)] // Changed only where mutants are built in.
    let mut swarm = Swarm::draw(&mut random, run.parity, run.ack_quorum);
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
    let mut world = World::new(run.seed, swarm, arguments.verbose, keep_identity);
    let violation = world.run();
    Ok((violation, world))
}

fn replay(arguments: &Arguments, run: Run) -> String {
    #[cfg(feature = "mutants")]
    let mutant = arguments
        .mutant
        .as_ref()
        .map_or_else(String::new, |m| format!(" --mutant {m}"));
    #[cfg(not(feature = "mutants"))]
    let mutant = {
        let _ = arguments;
        ""
    };
    format!("simulator --seed {}{}{mutant} -v", run.seed, run.shape())
}
