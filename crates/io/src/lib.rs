//! Crate `io`: sockets, disks, clocks and other calls of the operating system. One [`Shard`] is one thread with an
//! epoll loop. It turns sockets and timers into events of a machine, and writes the machine's output with one `write`
//! for each connection and turn.
//!
//! ```text
//!   other threads ──Mailbox──▶ ┌────────────── Shard::run ──────────────┐ ──Proposal──▶ agent thread
//!                              │ poll → read → Machine::on → deadlines │
//!   clients, peers ◀──sockets─▶│                              → write  │
//!                              └────────────────────────────────────────┘
//! ```

pub mod clock;
pub mod descriptors;
pub mod door;
pub mod entropy;
pub mod file_system;
pub mod metrics;
pub mod signals;
pub mod silence;

mod backlog;
mod byte_queue;
mod client;
mod disk;
mod driver;
mod greet;
mod id_table;
mod intake;
mod link;
mod listeners;
mod mailbox;
mod reserved_port;
mod shard;
mod stall;
mod usage;

pub use disk::{Difference, Disk, DiskFigures, DiskWork, LogDirectory, LogDirectoryError, LogDirectoryProblem, Owner};
pub use listeners::Listeners;
pub use mailbox::{Gauges, Mail, Mailbox, MailboxFull, Progress, Proposals};
pub use reserved_port::ReservedPort;
pub use shard::{Limits, Machine, Shard, Stop};
