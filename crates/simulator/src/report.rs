//! Printed reports of runs.

use std::io::{ErrorKind, Write};

/// Prints a line. Ends the process silently once its output is closed (`| head`).
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")) {
        if error.kind() != ErrorKind::BrokenPipe {
            eprintln!("simulator: {error}");
        }
        std::process::exit(2);
    }
}

/// Why the checks of a governed run end early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Excuse {
    /// A false suspicion and an end together lost a list.
    Lost,
    /// An old store of a history that was given up is in use.
    OtherHistory,
    /// Nothing is left from which a store could be made.
    NothingLeft,
}

impl Excuse {
    const COUNT: usize = 3;
}

/// Counts of one run, for the report.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Events handled.
    pub(crate) events: u64,
    /// Replies that clients received.
    pub(crate) replies: u64,
    /// Error replies among them.
    pub(crate) refused: u64,
    /// Writes with an uncertain outcome.
    pub(crate) uncertain: u64,
    /// Processes killed.
    pub(crate) crashes: u64,
    /// Pauses of processes.
    pub(crate) pauses: u64,
    /// Running processes replaced as if they were dead.
    pub(crate) suspicions: u64,
    /// Configurations committed.
    pub(crate) commits: u64,
    /// Histories that were too expensive to check.
    pub(crate) unchecked: u64,
    /// Chunks whose sum did not match after decoding.
    pub(crate) bad_sums: u64,
    /// Bits that flipped in memory.
    pub(crate) flips: u64,
    /// Chunks that the scrub checked; `scrubbed_bad` are those that it found wrong.
    pub(crate) scrubbed: u64,
    pub(crate) scrubbed_bad: u64,
    /// Governed runs.
    pub(crate) governed: u64,
    /// Runs whose checks ended early, by [`Excuse`].
    pub(crate) excused: [u64; Excuse::COUNT],
    /// Runs in which a position can never have the memory that it needs.
    pub(crate) outgrown: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, one: &Self) {
        self.events += one.events;
        self.replies += one.replies;
        self.refused += one.refused;
        self.uncertain += one.uncertain;
        self.crashes += one.crashes;
        self.pauses += one.pauses;
        self.suspicions += one.suspicions;
        self.commits += one.commits;
        self.unchecked += one.unchecked;
        self.bad_sums += one.bad_sums;
        self.flips += one.flips;
        self.scrubbed += one.scrubbed;
        self.scrubbed_bad += one.scrubbed_bad;
        self.governed += one.governed;
        self.excused
            .iter_mut()
            .zip(one.excused)
            .for_each(|(all, one)| *all += one);
        self.outgrown += one.outgrown;
    }

    /// All counts in one line.
    pub(crate) fn line(&self, simulated_ns: u128) -> String {
        let [lost, other, nothing] = self.excused;
        format!(
            "{} simulated hours, {} events, {} replies ({} refused, {} uncertain), {} crashes, {} pauses, {} false \
             suspicions, {} configurations, {} histories unchecked, {} sums refused, \
             {} bits flipped, {} chunks scrubbed, {} wrong; {} governed runs, {} of them excused ({lost} lost after a \
             false suspicion, {other} with another history, {nothing} with nothing left); {} runs outgrown",
            simulated_ns / 3_600_000_000_000,
            self.events,
            self.replies,
            self.refused,
            self.uncertain,
            self.crashes,
            self.pauses,
            self.suspicions,
            self.commits,
            self.unchecked,
            self.bad_sums,
            self.flips,
            self.scrubbed,
            self.scrubbed_bad,
            self.governed,
            self.excused.iter().sum::<u64>(),
            self.outgrown,
        )
    }
}
