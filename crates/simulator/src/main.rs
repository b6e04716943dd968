//! The simulator: the production machines under a seeded network, crashes, pauses and clocks (docs/reliability.md).
//!
//! `simulator --seeds N [--start S]` runs N seeds. `simulator --seed S -v` replays one and prints its events.
//! `simulator --regressions` runs seeds that failed once.

mod checks;
mod client;
mod committed;
mod coordinator;
mod digest;
mod disks;
mod driver;
mod events;
mod exhaustive;
mod faults;
mod fleet;
mod flips;
mod forks;
mod gauges;
mod ghost;
mod governed;
mod guests;
mod large_values;
mod liar;
mod linear;
mod marks;
mod moves;
mod network;
mod oracle;
mod regressions;
mod report;
mod runs;
mod schedule;
mod swarm;
mod turns;
mod workload;
mod world;

use clap::Parser;
use core::num::NonZero;
use forks::Fork;
use runs::{Progress, Run, exhaust, simulate};
use std::process::ExitCode;
use swarm::{Shape, Swarm};

/// Runs the protocol's machines under seeded faults and checks the invariants of P13.
#[derive(Parser, Debug)]
#[command(name = "simulator", version)]
struct Arguments {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of these seeds.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Run on this many threads. Runs do not depend on one another.
    #[arg(long, default_value = "1")]
    threads: NonZero<usize>,
    /// Print every event of the run.
    #[arg(short, long)]
    verbose: bool,
    /// Fix the number of parity positions. The default is drawn from the seed.
    #[arg(long)]
    parity: Option<u8>,
    /// Fix the number of members that acknowledge a write. The default is drawn from the seed.
    #[arg(long)]
    ack_quorum: Option<u8>,
    /// Fix the number of stripe lists. The default is drawn from the seed.
    #[arg(long)]
    stripe_lists: Option<u16>,
    /// At this many instants of every run, also kill each set of processes that may be lost, and continue from there.
    #[arg(long, default_value_t = 0)]
    forks: u64,
    /// With --seed: the fork after this many events in which these processes die, as EVENTS:PROCESS,PROCESS.
    #[arg(long, requires = "seed")]
    fork: Option<Fork>,
    /// Run every seed twice, and compare the two runs.
    #[arg(long)]
    twice: bool,
    /// Break this rule of the protocol on purpose, and stop at the first seed that detects it.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutant: Option<String>,
    /// Ignore violations whose name begins so (I7), to see how soon another check detects the mutant.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    blind_to: Option<String>,
    /// Use the production coordinator, agents and supervisors in all runs. The default is to use them for odd seeds.
    #[arg(long)]
    governed: bool,
    /// Use the simulator's coordinator in all runs. It treats nodes worse than the production one.
    #[arg(long, conflicts_with = "governed")]
    ungoverned: bool,
    /// Let no process speak another version of formats than this build's. The default is to mix two in half of the
    /// governed runs.
    #[arg(long)]
    one_version: bool,
    /// Stop at the first violation.
    #[arg(long)]
    stop: bool,
    /// Explore every order of events in small worlds, and do nothing else: in the first SPACES of them, or in all.
    #[arg(long, value_name = "SPACES")]
    exhaustive: Option<Option<usize>>,
    /// Run the seeds that failed once, and no others.
    #[arg(long)]
    regressions: bool,
    /// Count a coverage mark that no seed has reached as a violation.
    #[arg(long)]
    require_marks: bool,
    /// At the end, print a CRC of every frame and every reply of all seeds: equal for two builds that behave the same.
    #[arg(long)]
    digest: bool,
}

impl Arguments {
    fn shape(&self) -> Shape {
        Shape {
            parity: self.parity,
            ack_quorum: self.ack_quorum,
            stripe_lists: self.stripe_lists,
        }
    }

    /// The mutant, as in the command that replays a run.
    #[cfg(feature = "mutants")]
    fn mutant_words(&self) -> String {
        self.mutant
            .as_ref()
            .map_or_else(String::new, |m| format!(" --mutant {m}"))
    }

    #[cfg(not(feature = "mutants"))]
    fn mutant_words(&self) -> String {
        String::new()
    }
}

static PROGRESS: Progress = Progress::new();

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    runs::report_panics(&PROGRESS, arguments.mutant_words());
    let result = if let Some(spaces) = arguments.exhaustive {
        exhaust(&arguments, spaces, &PROGRESS)
    } else if arguments.regressions {
        regressions::read().and_then(|runs| simulate(&arguments, &PROGRESS, runs.len() as u64, runs.into_iter()))
    } else {
        let (start, count) = match arguments.seed {
            Some(seed) => (seed, 1),
            None => (arguments.start, arguments.seeds),
        };
        let seeds = start..start.saturating_add(count);
        simulate(
            &arguments,
            &PROGRESS,
            count,
            seeds.map(|seed| Run {
                seed,
                shape: arguments.shape(),
                fork: arguments.fork,
                governed: arguments.governed || (!arguments.ungoverned && seed % 2 == 1),
                one_version: arguments.one_version,
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

/// Sets the mutant that was asked for. Returns true for the mutant in which a process keeps its identity.
#[cfg(feature = "mutants")]
fn break_rule(arguments: &Arguments, swarm: &mut Swarm) -> Result<bool, String> {
    use paritas_protocol::Rules;
    let Some(name) = &arguments.mutant else {
        return Ok(false);
    };
    if name == "restart-keeps-identity" {
        return Ok(true);
    }
    let of_control = paritas_control::Mutant::ALL;
    let found = Rules::broken(name);
    let in_control = of_control.iter().find(|(n, _)| n == name);
    // A rule that nodes and coordinators both obey has one name.
    swarm.parameters.rules = found.unwrap_or_default();
    swarm.control_mutant = in_control.map(|(_, mutant)| *mutant);
    match (found, in_control) {
        (None, None) => {
            let of_control = of_control.iter().map(|(n, _)| *n);
            let names: Vec<&str> = Rules::names().chain(of_control).collect();
            Err(format!(
                "unknown mutant {name}; known are restart-keeps-identity, {}",
                names.join(", ")
            ))
        }
        _ => Ok(false),
    }
}

/// Without the feature `mutants` no rule can be broken.
#[cfg(not(feature = "mutants"))]
fn break_rule(_: &Arguments, _: &mut Swarm) -> Result<bool, String> {
    Ok(false)
}
