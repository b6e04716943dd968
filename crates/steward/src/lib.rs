//! Crate `steward`: `paritas files steward`, the process around the machine of crate `files`. It makes no decisions
//! about the cache.
//!
//! ```text
//!   clients ──RESP──▶ main     one epoll loop: clients, and for each mount its lease and its machine
//!                      │ ▲
//!                      ▼ │ bounded queue, waker
//!                     work-NS  one for each mount: records and parity keys in the cache store, in order
//!                     lease-NS one for each mount: asks every second whose the lease is
//!                     poll-NS  if the mount names a NameNode: asks DataNodes for their counters, over HTTP
//!                     metrics  if there is one: HTTP; asks main for the figures, at most once a second
//! ```

mod clients;
mod gate;
mod jmx;
mod link;
mod metrics;
mod mount;
mod poll;
mod process;
mod replies;
mod settings;
mod status;

pub use process::run;
pub use settings::{DEFAULT_PORT, MountSettings, StewardSettings};
pub use status::print_status;
