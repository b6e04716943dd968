//! Fuzzing: for each input of the system there is a target that takes any bytes. A failure is a panic.
//!
//! `make fuzz` searches with libFuzzer under AddressSanitizer. `cargo test -p paritas-fuzz` replays the inputs kept in
//! `fuzz/corpus`, with any toolchain. If the system under test is a machine, a target reads its bytes as a script of
//! events, in an order that the machine's environment could produce. Each run must also end, and must not allocate more
//! than twice the limit that the target declares.

mod client;
mod control;
mod corpus;
mod dumps;
mod frames;
mod greetings;
mod lines;
mod memory;
mod peers;
mod resp;
mod script;
mod scripts;
mod settings;
mod snapshots;

pub use corpus::{Corpus, CorpusError};
pub use memory::Use;

/// A target.
#[derive(Debug)]
pub struct Target {
    /// Its name, which is also that of its corpus.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Longest input in bytes that is worth searching.
    pub input_bytes_max: usize,
    /// The largest single allocation in bytes that the target declares for an input of the given length. More than
    /// twice that is a failure.
    limit_bytes: fn(usize) -> usize,
    run: fn(&[u8]),
    seeds: fn() -> Vec<Vec<u8>>,
}

impl Target {
    /// Runs the target with one input.
    ///
    /// If the input reveals a bug.
    /// If the input shows a bug.
    pub fn run(&self, bytes: &[u8]) -> Use {
        let seen = memory::count(|| (self.run)(bytes));
        let limit_bytes = (self.limit_bytes)(bytes.len());
        assert!(
            seen.largest_bytes <= 2 * limit_bytes,
            "{}: one allocation of {} bytes, but only {limit_bytes} are declared",
            self.name,
            seen.largest_bytes
        );
        seen
    }

    /// The inputs with which a search begins.
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
        // The longest command that the target's limits allow.
        limit_bytes: |_| 16 << 10,
        run: resp::requests,
        seeds: resp::request_seeds,
    },
    Target {
        name: "replies",
        about: "bytes of servers, as read by the project's own clients",
        input_bytes_max: 8 << 10,
        limit_bytes: |input_bytes| 32 * input_bytes.max(1 << 10),
        run: resp::replies,
        seeds: resp::reply_seeds,
    },
    Target {
        name: "greetings",
        about: "what a stranger says at the port of peers or the coordinator's, before it has proven who it is",
        input_bytes_max: 4 << 10,
        limit_bytes: |_| 64 << 10,
        run: greetings::strangers,
        seeds: greetings::seeds,
    },
    Target {
        name: "frames",
        about: "bytes of peers: splitting into frames, and decoding",
        input_bytes_max: 8 << 10,
        limit_bytes: |_| 64 << 10,
        run: frames::frames,
        seeds: frames::seeds,
    },
    Target {
        name: "peers",
        about: "a cluster of machines that gets well-formed but false frames from one node or a stranger",
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
        name: "lines",
        about: "bytes of clients of memcached into a cluster of machines, whole and in pieces",
        input_bytes_max: 4 << 10,
        limit_bytes: |_| lines::NODE_BYTES as usize,
        run: lines::lines,
        seeds: lines::seeds,
    },
    Target {
        name: "dumps",
        about: "payloads of RESTORE and FUNCTION RESTORE, with a right sum or not",
        input_bytes_max: 4 << 10,
        limit_bytes: |_| dumps::NODE_BYTES as usize,
        run: dumps::payloads,
        seeds: dumps::seeds,
    },
    Target {
        name: "scripts",
        about: "scripts of clients: any text, and text made of the words of Lua and its libraries",
        input_bytes_max: 2 << 10,
        limit_bytes: |_| scripts::SCRIPT_BYTES,
        run: scripts::scripts,
        seeds: scripts::seeds,
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
        about: "files of keys, in Paritas's format and those of Redis and Valkey",
        input_bytes_max: 4 << 10,
        // The longest value, and an error that quotes the longest key.
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

/// The target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
