//! Room `node`: the composition root. It reads settings, builds the machines, starts their threads and joins them
//! with queues; it decides nothing itself.
//!
//! ```text
//!  paritas dev ──pipe──▶ paritas coordinator      one per cluster: control::Coordinator over a store
//!      │  └───────────────▲ Supervise, Exited
//!      └──pipe──▶ paritas node                    one per node:
//!                   main      waits for the shard, says why it stopped
//!                   shard     io::Shard over frontend::Node: clients, peers, memory
//!                   agent     registration, heartbeats, configurations in, proposals out
//!                   line-*    the two ends of the agent's connection
//! ```

pub mod coordinator;
pub mod dev;
pub mod duty;
pub mod order;
pub mod process;
pub mod settings;
pub mod slots;
pub mod snapshot;
pub mod status;

mod agent;
mod connection;
mod lifeline;
mod line;
mod log_settings;
mod logging;
mod parity_disk;
mod quantity;
mod resolver;
mod rewrite;

pub use log_settings::{LogLayout, log_settings};
pub use process::Supervision;
pub use quantity::{ByteCount, Text};

use std::fmt;
use std::io::{self, Write};

/// Lets this process have as many descriptors as the system allows it: for each role, before it begins.
pub fn raise_limits() {
    paritas_io::descriptors::raise_limit();
}

/// Something that a person must read and mend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Prints a line. Whoever reads no further has seen what they wanted.
///
/// # Errors
/// If it cannot be written, as to a disk that is full.
pub fn print(line: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure(format!("standard output: {error}"))),
        _ => Ok(()),
    }
}
