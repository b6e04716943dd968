//! What is printed of runs.

use std::io::{ErrorKind, Write};

/// Prints a line. Ends the process in silence once nobody reads any more (`| head`).
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")) {
        if error.kind() != ErrorKind::BrokenPipe {
            eprintln!("simulator: {error}");
        }
        std::process::exit(2);
    }
}

/// What happened in a run, for the report.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Events handled.
    pub(crate) events: u64,
    /// Replies that clients got.
    pub(crate) replies: u64,
    /// Errors among them.
    pub(crate) refused: u64,
    /// Writes that may or may not have happened.
    pub(crate) uncertain: u64,
    /// Processes killed.
    pub(crate) crashes: u64,
    /// Processes stopped for a while.
    pub(crate) pauses: u64,
    /// Live processes taken for dead.
    pub(crate) suspicions: u64,
    /// Configurations committed.
    pub(crate) commits: u64,
    /// Histories too hard to check.
    pub(crate) unchecked: u64,
    /// Chunks whose sum did not match after decoding.
    pub(crate) bad_sums: u64,
    /// Bits that flipped in memory.
    pub(crate) flips: u64,
    /// Chunks that were checked, and found wrong.
    pub(crate) scrubbed: u64,
    pub(crate) scrubbed_bad: u64,
    /// Governed runs.
    pub(crate) governed: u64,
    /// Runs that ended as a list was lost by a false suspicion and a kill.
    pub(crate) excused: u64,
}

impl Counts {
    /// Adds those of another run.
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
        self.excused += one.excused;
    }

    /// All of them in a line.
    pub(crate) fn line(&self, simulated_ns: u128) -> String {
        format!(
            "{} simulated hours, {} events, {} replies ({} refused, {} uncertain), {} crashes, {} pauses, {} false \
             suspicions, {} configurations, {} histories unchecked, {} sums refused, \
             {} bits flipped, {} chunks scrubbed, {} wrong; {} governed runs, {} of them excused",
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
            self.excused,
        )
    }
}
