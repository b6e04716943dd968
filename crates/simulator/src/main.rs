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
mod large_values;
mod linear;
mod marks;
mod moves;
mod network;
mod oracle;
mod regressions;
mod report;
mod schedule;
mod swarm;
mod turns;
mod workload;
mod world;

use clap::Parser;
use digest::Digest;
use forks::{Fork, Instant};
use marks::Marks;
use paritas_base::{Prng, Time};
use report::{Counts, Excuse, say};
use std::io::Write;
use std::process::ExitCode;
use swarm::{Shape, Swarm};
use world::World;

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
    /// Stop at the first violation.
    #[arg(long)]
    stop: bool,
    /// Explore every order of events in small worlds, and do nothing else.
    #[arg(long)]
    exhaustive: bool,
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = if arguments.exhaustive {
        exhaust(&arguments)
    } else if arguments.regressions {
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
                shape: arguments.shape(),
                fork: arguments.fork,
                governed: arguments.governed || (!arguments.ungoverned && seed % 2 == 1),
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

/// One run: its seed and arguments.
#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    shape: Shape,
    /// The fork at which it leaves the run of its seed.
    fork: Option<Fork>,
    /// Whether the production control plane decides.
    governed: bool,
}

impl Run {
    /// All arguments except the seed.
    fn arguments(&self) -> String {
        let Shape {
            parity,
            ack_quorum,
            stripe_lists,
        } = self.shape;
        let parity = parity.map(|m| format!(" --parity {m}"));
        let ack_quorum = ack_quorum.map(|a| format!(" --ack-quorum {a}"));
        let stripe_lists = stripe_lists.map(|count| format!(" --stripe-lists {count}"));
        let fork = self.fork.map(|fork| format!(" --fork {fork}"));
        let governed = if self.governed { " --governed" } else { " --ungoverned" };
        let all = [parity, ack_quorum, stripe_lists, Some(governed.to_owned()), fork];
        all.into_iter().flatten().collect()
    }
}

/// Totals of several runs.
#[derive(Default)]
struct Totals {
    counts: Counts,
    marks: Marks,
    violations: u64,
    forks: u64,
    simulated_ns: u128,
    sent: Digest,
}

impl Totals {
    fn add(&mut self, arguments: &Arguments, run: Run, world: &World) {
        self.simulated_ns += u128::from(world.schedule.now.0);
        self.counts.add(&world.oracle.counts);
        self.marks.add(&world.oracle.marks);
        self.sent.add_run(run.seed, &world.network.sent);
        if let Some(what) = &world.oracle.violation {
            self.violations += 1;
            say(&format!("seed {}: {what}", run.seed));
            say(&format!("  replay: {}", replay(arguments, run)));
            say(&format!(
                "  line for crates/simulator/regressions.txt: {}",
                regressions::line(run, what)
            ));
        } else if world.oracle.excused == Some(Excuse::Lost) {
            // A loss, which the rules allow. It may be worth a look.
            say(&format!(
                "seed {}: excused, a list was lost after a false suspicion",
                run.seed
            ));
        }
    }
}

fn simulate(arguments: &Arguments, count: u64, runs: impl Iterator<Item = Run>) -> Result<u64, String> {
    let mut totals = Totals {
        sent: new_digest(arguments),
        ..Totals::default()
    };
    let mut done = 0;
    for run in runs {
        if done == 0 {
            say(&format!(
                "commit {}, protocol {}, {count} seeds from {}",
                env!("PARITAS_COMMIT"),
                env!("PARITAS_PROTOCOL"),
                run.seed
            ));
        }
        done += 1;
        let (world, instants) = simulate_one(arguments, run, None)?;
        totals.add(arguments, run, &world);
        if arguments.twice && world.oracle.violation.is_none() {
            let (again, _) = simulate_one(arguments, run, None)?;
            if again.schedule.digest() != world.schedule.digest() {
                totals.violations += 1;
                say(&format!("seed {}: two runs differ", run.seed));
            }
        }
        let forks = instants
            .iter()
            .flat_map(|from| from.forks.iter().map(move |fork| (from, fork)));
        for (from, fork) in forks {
            if arguments.stop && totals.violations > 0 {
                break;
            }
            let run = Run {
                fork: Some(*fork),
                ..run
            };
            let (world, _) = simulate_one(arguments, run, Some(from))?;
            totals.add(arguments, run, &world);
            totals.forks += 1;
        }
        if arguments.stop && totals.violations > 0 {
            break;
        }
        if done % 1000 == 0 {
            // Progress is not a result: an error in printing it does not matter.
            let violations = totals.violations;
            let _ = writeln!(std::io::stderr(), "{done} of {count} seeds, {violations} violations");
        }
    }
    if count > 1 && !arguments.stop {
        totals.marks.print();
    }
    if arguments.require_marks {
        for name in totals.marks.missing() {
            totals.violations += 1;
            say(&format!("mark never reached: {name}"));
        }
    }
    say(&totals.counts.line(totals.simulated_ns));
    if arguments.forks > 0 {
        say(&format!("{} forks", totals.forks));
    }
    if let Some(number) = totals.sent.number() {
        say(&format!("digest {number:016x}"));
    }
    say(&format!("{done} seeds, {} violations", totals.violations));
    Ok(totals.violations)
}

/// 15.9. A violation ends the search of its space.
fn exhaust(arguments: &Arguments) -> Result<u64, String> {
    let mut violations = 0;
    break_rule(arguments, &mut Swarm::draw(&mut Prng::new(0), arguments.shape()))?;
    for space in exhaustive::SPACES {
        let broken = |swarm: &mut Swarm| drop(break_rule(arguments, swarm));
        match exhaustive::explore(space, &broken) {
            Ok(found) => say(&format!("{space:?}: {found:?}")),
            Err(what) => {
                violations += 1;
                say(&format!("{space:?}: {what}"));
            }
        }
    }
    say(&format!("{} spaces, {violations} violations", exhaustive::SPACES.len()));
    Ok(violations)
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

fn new_digest(arguments: &Arguments) -> Digest {
    if arguments.digest {
        Digest::enabled()
    } else {
        Digest::default()
    }
}

/// Runs once to the end. With `from`, the state at the fork must equal that instant.
fn simulate_one(arguments: &Arguments, run: Run, from: Option<&Instant>) -> Result<(World, Vec<Instant>), String> {
    let mut random = Prng::new(run.seed);
    let mut swarm = Swarm::draw(&mut random, run.shape);
    let keep_identity = break_rule(arguments, &mut swarm)?;
    if run.governed {
        governed::govern(&mut swarm, run.seed);
    }
    if arguments.verbose {
        say(&format!("{swarm:#?}"));
    }
    let instants = forks::instants(run.seed, arguments.forks, Time(swarm.chaos.0));
    let mut world = World::new(run.seed, swarm, arguments.verbose, keep_identity);
    world.network.sent = new_digest(arguments);
    #[cfg(feature = "mutants")]
    {
        world.oracle.blind_to.clone_from(&arguments.blind_to);
    }
    let seen = match run.fork {
        None => world.run(&instants),
        Some(fork) => {
            world.run_fork(fork, from);
            Vec::new()
        }
    };
    Ok((world, seen))
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
    format!("simulator --seed {}{}{mutant} -v", run.seed, run.arguments())
}
