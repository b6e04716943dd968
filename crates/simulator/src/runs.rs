//! Many runs, on as many threads as are wished, and their totals.

use crate::digest::Digest;
use crate::forks::{self, Fork, Instant};
use crate::marks::Marks;
use crate::report::{Counts, Excuse, say};
use crate::swarm::{Shape, Swarm};
use crate::world::World;
use crate::{Arguments, break_rule, exhaustive, governed, regressions};
use core::cell::Cell;
use core::num::NonZero;
use core::sync::atomic::{AtomicU64, Ordering};
use paritas_base::{Prng, Time};
use std::io::Write;
use std::sync::Mutex;

/// One run: its seed and arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    /// The fork at which it leaves the run of its seed.
    pub(crate) fork: Option<Fork>,
    /// Whether the production control plane decides.
    pub(crate) governed: bool,
    /// Whether all processes speak the version of this build alone.
    pub(crate) one_version: bool,
}

impl Run {
    /// All arguments except the seed.
    pub(crate) fn arguments(&self) -> String {
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
        let one_version = self.one_version.then(|| " --one-version".to_owned());
        let governed = Some(governed.to_owned());
        let all = [parity, ack_quorum, stripe_lists, governed, one_version, fork];
        all.into_iter().flatten().collect()
    }
}

/// Counts of all threads. Static, because a panic reports them too.
pub(crate) struct Progress {
    begun: AtomicU64,
    violations: AtomicU64,
}

impl Progress {
    pub(crate) const fn new() -> Self {
        Self {
            begun: AtomicU64::new(0),
            violations: AtomicU64::new(0),
        }
    }

    /// Counts one more seed. Returns how many have been begun.
    fn begin(&self) -> u64 {
        1 + self.begun.fetch_add(1, Ordering::Relaxed)
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    fn violated(&self, what: &str) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        say(what);
    }

    fn violated_by(&self, run: Run, what: &str, mutant: &str) {
        let (seed, arguments, line) = (run.seed, run.arguments(), regressions::line(run, what));
        self.violated(&format!(
            "seed {seed}: {what}\n  replay: simulator --seed {seed}{arguments}{mutant} -v\n  \
             line for crates/simulator/regressions.txt: {line}"
        ));
    }

    /// The last line of a search.
    fn say_seeds(&self) {
        say(&format!("{} seeds, {} violations", self.begun(), self.violations()));
    }
}

thread_local! {
    /// The run of this thread.
    static RUN: Cell<Option<Run>> = const { Cell::new(None) };
}

/// Makes a panic of a machine a violation, which ends the program. `mutant`: as in a command.
pub(crate) fn report_panics(progress: &'static Progress, mutant: String) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        if let Some(run) = RUN.get() {
            progress.violated_by(run, &info.to_string().replace('\n', " "), &mutant);
            progress.say_seeds();
        }
        std::process::exit(1);
    }));
}

/// Totals of several runs.
#[derive(Default)]
struct Totals {
    counts: Counts,
    marks: Marks,
    forks: u64,
    simulated_ns: u128,
    /// The digest of each run, with its seed; a seed's forks are in their order.
    sent: Vec<(u64, Digest)>,
}

impl Totals {
    fn add(&mut self, arguments: &Arguments, progress: &Progress, run: Run, world: &mut World) {
        self.simulated_ns += u128::from(world.schedule.now.0);
        self.counts.add(&world.oracle.counts);
        self.marks.add(&world.oracle.marks);
        if arguments.digest {
            self.sent.push((run.seed, core::mem::take(&mut world.network.sent)));
        }
        if let Some(what) = &world.oracle.violation {
            progress.violated_by(run, what, &arguments.mutant_words());
        } else if world.oracle.excused == Some(Excuse::Lost) {
            // A loss, which the rules allow. It may be worth a look.
            say(&format!(
                "seed {}: excused, a list was lost after a false suspicion",
                run.seed
            ));
        }
    }

    fn unite(&mut self, other: Self) {
        self.counts.add(&other.counts);
        self.marks.add(&other.marks);
        self.forks += other.forks;
        self.simulated_ns += other.simulated_ns;
        self.sent.extend(other.sent);
    }

    /// The same for any number of threads.
    fn digest(&mut self) -> Option<u64> {
        self.sent.sort_by_key(|(seed, _)| *seed);
        let mut all = Digest::enabled();
        self.sent.iter().for_each(|(seed, sent)| all.add_run(*seed, sent));
        all.number()
    }
}

/// Gives the items to threads, each of which does its `work` until there are none left.
fn spread<T: Send, R: Send>(
    threads: NonZero<usize>,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(&mut dyn Iterator<Item = T>) -> R + Sync,
) -> Vec<R> {
    let items = Mutex::new(items);
    // A thread that panics ends the program.
    let next = || items.lock().expect("no thread has panicked").next();
    std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| work(&mut core::iter::from_fn(next)));
        let threads: Vec<_> = (0..threads.get()).map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it has not panicked"))
            .collect()
    })
}

pub(crate) fn simulate(
    arguments: &Arguments,
    progress: &Progress,
    count: u64,
    runs: impl Iterator<Item = Run> + Send,
) -> Result<u64, String> {
    let mut runs = runs.peekable();
    if let Some(first) = runs.peek() {
        say(&format!(
            "commit {}, protocol {}, {count} seeds from {}",
            env!("PARITAS_COMMIT"),
            env!("PARITAS_PROTOCOL"),
            first.seed
        ));
    }
    let mut totals = search(arguments, progress, count, runs)?;
    if count > 1 && !arguments.stop {
        totals.marks.print();
    }
    if arguments.require_marks {
        for name in totals.marks.missing() {
            progress.violated(&format!("mark never reached: {name}"));
        }
    }
    say(&totals.counts.line(totals.simulated_ns));
    if arguments.forks > 0 {
        say(&format!("{} forks", totals.forks));
    }
    if arguments.digest
        && let Some(number) = totals.digest()
    {
        say(&format!("digest {number:016x}"));
    }
    progress.say_seeds();
    Ok(progress.violations())
}

fn search(
    arguments: &Arguments,
    progress: &Progress,
    count: u64,
    runs: impl Iterator<Item = Run> + Send,
) -> Result<Totals, String> {
    let mut totals = Totals::default();
    for of_thread in spread(arguments.threads, runs, |runs| {
        search_on_one_thread(arguments, progress, count, runs)
    }) {
        totals.unite(of_thread?);
    }
    Ok(totals)
}

fn search_on_one_thread(
    arguments: &Arguments,
    progress: &Progress,
    count: u64,
    runs: &mut dyn Iterator<Item = Run>,
) -> Result<Totals, String> {
    let mut totals = Totals::default();
    let is_over = || arguments.stop && progress.violations() > 0;
    for run in runs {
        let begun = progress.begin();
        let (mut world, instants) = simulate_one(arguments, run, None)?;
        totals.add(arguments, progress, run, &mut world);
        if arguments.twice && world.oracle.violation.is_none() {
            let (again, _) = simulate_one(arguments, run, None)?;
            if again.schedule.digest() != world.schedule.digest() {
                progress.violated(&format!("seed {}: two runs differ", run.seed));
            }
        }
        let forks = instants
            .iter()
            .flat_map(|from| from.forks.iter().map(move |fork| (from, fork)));
        for (from, fork) in forks {
            if is_over() {
                break;
            }
            let run = Run {
                fork: Some(*fork),
                ..run
            };
            let (mut world, _) = simulate_one(arguments, run, Some(from))?;
            totals.add(arguments, progress, run, &mut world);
            totals.forks += 1;
        }
        if is_over() {
            break;
        }
        if begun.is_multiple_of(1000) {
            // Progress is not a result: an error in printing it does not matter.
            let violations = progress.violations();
            let _ = writeln!(std::io::stderr(), "{begun} of {count} seeds, {violations} violations");
        }
    }
    RUN.set(None);
    Ok(totals)
}

/// Every order of events in small worlds. A violation ends the search of its space.
pub(crate) fn exhaust(arguments: &Arguments, spaces: Option<usize>, progress: &Progress) -> Result<u64, String> {
    break_rule(arguments, &mut Swarm::draw(&mut Prng::new(0), arguments.shape()))?;
    let explore = |space| {
        let broken = |swarm: &mut Swarm| drop(break_rule(arguments, swarm));
        match exhaustive::explore(space, &broken) {
            Ok(found) if found.states < exhaustive::STATES_MIN => {
                progress.violated(&format!("{space:?} is hardly explored: {found:?}"));
            }
            Ok(found) => say(&format!("{space:?}: {found:?}")),
            Err(what) => progress.violated(&format!("{space:?}: {what}")),
        }
    };
    let count = exhaustive::SPACES.len().min(spaces.unwrap_or(usize::MAX));
    spread(
        arguments.threads,
        exhaustive::SPACES.into_iter().take(count),
        |spaces| spaces.for_each(explore),
    );
    let violations = progress.violations();
    say(&format!("{count} spaces, {violations} violations"));
    Ok(violations)
}

fn new_digest(arguments: &Arguments) -> Digest {
    if arguments.digest {
        Digest::enabled()
    } else {
        Digest::default()
    }
}

/// Runs once to the end. With `from`, the state at the fork must equal that instant.
pub(crate) fn simulate_one(
    arguments: &Arguments,
    run: Run,
    from: Option<&Instant>,
) -> Result<(World, Vec<Instant>), String> {
    RUN.set(Some(run));
    let mut random = Prng::new(run.seed);
    let mut swarm = Swarm::draw(&mut random, run.shape);
    let keep_identity = break_rule(arguments, &mut swarm)?;
    if run.governed {
        governed::govern(&mut swarm, run.seed);
        swarm.one_version = run.one_version;
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
