//! Crate `node`: the composition root. It reads settings, builds the machines, starts their threads, and connects them
//! with queues. It makes no decisions itself.
//!
//! ```text
//!  paritas dev ──pipe──▶ paritas coordinator      one per cluster: control::Coordinator over a store
//!      │  └───────────────▲ Supervise, Exited
//!      └──pipe──▶ paritas node                    one per node:
//!                   main      waits for the shard, reports why it stopped
//!                   verdict   ends the process: at a signal, or if it may not go on; keeps the state file
//!                   shard     io::Shard over frontend::Node: clients, peers, memory
//!                   agent     registration, heartbeats, configurations in, proposals out
//!                   line-*    the two ends of the agent's connection
//! ```

pub mod coordinator;
pub mod dev;
pub mod duty;
pub mod move_slots;
pub mod order;
pub mod password;
pub mod process;
pub mod secret;
pub mod settings;
pub mod snapshot;
pub mod status;

mod admission;
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
mod state_file;

pub use connection::{Connection, Login};
pub use log_settings::{LogLayout, log_settings};
pub use logging::start as start_logging;
pub use process::Supervision;
pub use quantity::{ByteCount, Text};

use std::fmt;
use std::io::{self, Write};

/// Raises the limit on open descriptors as far as the system allows. Every role does this at its start.
pub fn raise_limits() {
    paritas_io::descriptors::raise_limit();
}

/// An error that an operator must read and resolve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Prints a line. A reader that closes the pipe early is not an error.
///
/// # Errors
/// If the line cannot be written, for example to a full disk.
pub fn print(line: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure(format!("standard output: {error}"))),
        _ => Ok(()),
    }
}
