//! What fuzzing runs: for each way into the system a target that takes any bytes, and fails by a panic.
//!
//! `make fuzz` searches with libFuzzer under AddressSanitizer; `cargo test -p paritas-fuzz` replays what it has kept in
//! `fuzz/corpus`, on any toolchain. A target reads its bytes as a script where the way in is a machine: steps in an
//! order that the machine's surroundings could bring about. Besides panics, each run must end, and must not allocate
//! more than twice what the target's limit declares.

mod client;
mod control;
mod corpus;
mod frames;
mod memory;
mod peers;
mod resp;
mod script;
mod settings;
mod snapshots;

// The driver of the machines' own tests: one, so that both mean the same by a turn.
#[allow(unreachable_pub)]
#[path = "../../crates/protocol/tests/support/mod.rs"]
mod support;

pub use corpus::{Corpus, CorpusError};
pub use memory::Use;

/// One way in.
#[derive(Debug)]
pub struct Target {
    /// By which it is asked for, and the name of its corpus.
    pub name: &'static str,
    /// What it tries, in a line.
    pub about: &'static str,
    /// The longest input that is worth a search.
    pub input_bytes_max: usize,
    /// What it declares to allocate at most at once, for an input of so many bytes; twice that is a failure.
    limit_bytes: fn(usize) -> usize,
    run: fn(&[u8]),
    seeds: fn() -> Vec<Vec<u8>>,
}

impl Target {
    /// Runs it over one input.
    ///
    /// # Panics
    /// If the input shows a bug.
    pub fn run(&self, bytes: &[u8]) -> Use {
        let seen = memory::count(|| (self.run)(bytes));
        let limit_bytes = (self.limit_bytes)(bytes.len());
        assert!(
            seen.largest_bytes <= 2 * limit_bytes,
            "{}: one allocation of {} bytes, {limit_bytes} are declared",
            self.name,
            seen.largest_bytes
        );
        seen
    }

    /// Inputs to begin with.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)()
    }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "requests",
        about: "bytes of clients: RESP and inline commands, the command table, whole and in pieces",
        input_bytes_max: 8 << 10,
        // The longest command of the limits that the target sets.
        limit_bytes: |_| 16 << 10,
        run: resp::requests,
        seeds: resp::request_seeds,
    },
    Target {
        name: "replies",
        about: "bytes of servers, as our own clients read them",
        input_bytes_max: 8 << 10,
        limit_bytes: |input_bytes| 32 * input_bytes.max(1 << 10),
        run: resp::replies,
        seeds: resp::reply_seeds,
    },
    Target {
        name: "frames",
        about: "bytes of peers: is it a frame, and what does it say",
        input_bytes_max: 8 << 10,
        limit_bytes: |_| 64 << 10,
        run: frames::frames,
        seeds: frames::seeds,
    },
    Target {
        name: "peers",
        about: "a cluster of machines that one node, or a stranger, tells well-formed lies",
        input_bytes_max: 4 << 10,
        limit_bytes: |_| peers::NODE_BYTES as usize,
        run: peers::lies,
        seeds: peers::seeds,
    },
    Target {
        name: "clients",
        about: "any commands with any arguments into a cluster of machines, by both ports",
        input_bytes_max: 4 << 10,
        limit_bytes: |_| client::NODE_BYTES as usize,
        run: client::commands,
        seeds: client::seeds,
    },
    Target {
        name: "settings",
        about: "settings files of nodes and coordinators",
        input_bytes_max: 2 << 10,
        limit_bytes: |_| 1 << 20,
        run: settings::files,
        seeds: settings::seeds,
    },
    Target {
        name: "snapshots",
        about: "files of keys, our own and those of Redis and Valkey",
        input_bytes_max: 4 << 10,
        // The longest value, and an error that names the longest key.
        limit_bytes: |_| 64 << 10,
        run: snapshots::files,
        seeds: snapshots::seeds,
    },
    Target {
        name: "coordinator",
        about: "messages of nodes, supervisors and strangers to a coordinator",
        input_bytes_max: 4 << 10,
        limit_bytes: |_| 1 << 20,
        run: control::to_coordinator,
        seeds: control::coordinator_seeds,
    },
    Target {
        name: "agent",
        about: "messages of a coordinator to an agent, and what it passes on to its node",
        input_bytes_max: 4 << 10,
        limit_bytes: |_| 4 << 20,
        run: control::to_agent,
        seeds: control::agent_seeds,
    },
    Target {
        name: "records",
        about: "a coordinator that opens a store with any bytes in its records",
        input_bytes_max: 4 << 10,
        limit_bytes: |_| 1 << 20,
        run: control::records,
        seeds: control::record_seeds,
    },
];

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
