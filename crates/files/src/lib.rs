//! Crate `files`: a cache of parity in front of a file store (POCache), as pure functions and machines.
//!
//! A reader asks the store for k data units and the cache for one parity unit at once, and decodes from the first k.
//! Readers, writers and coding are in the Java client. This crate decides which files have parity in the cache.
//!
//! - [`Steward`]: the machine that clients ask; [`request`] has what they ask, [`record`] what it keeps.
//! - [`Csac`]: the cache algorithm of the paper (Algorithm 1): admission, eviction, prefetch.
//! - [`Rates`]: service rates of the store's nodes, and by three rules which nodes are stragglers.
//! - [`geometry`]: which parity a file has.
//! - [`lease`]: which of several stewards leads.
//! - [`probability`]: the paper's formulas for the probability that a read meets a straggler (§2.2).

mod choice;
mod csac;
mod eviction;
pub mod geometry;
mod history;
pub mod lease;
pub mod probability;
mod rates;
pub mod record;
pub mod request;
pub mod steward;

pub use csac::{Admission, Csac, CsacSettings, Decision, Decline, Prediction, Update};
pub use eviction::Eviction;
pub use rates::{Counters, Estimator, NODES_MIN_THREE_SIGMA, Rate, Rates, Sample, Source, stragglers};
pub use steward::Steward;

/// A file's id: with HDFS the inode's.
pub type File = u64;
/// A node of the store, numbered by the caller.
pub type Node = u32;
