//! The systems that LogECMem is compared with (SC'21, §6.1), and LogECMem itself as in the paper. Each is a small,
//! faithful version: a proxy over memcached processes. They share requests, network, stripes and code, so that they
//! differ only in how they update.

pub mod elasticmem;
pub mod fsmem;
pub mod in_place;
pub mod log_node;
pub mod log_thread;
pub mod memcached;
pub mod network;
pub mod paritas;
pub mod repair;
pub mod replication;
pub mod run;
pub mod stripes;
#[cfg(test)]
mod tests;

use network::Network;
use std::io;

/// A store behind a proxy. Objects have numbers. All values have the same length; each is one chunk, as in the paper's
/// experiments.
pub trait System {
    /// Writes a new object.
    fn write(&mut self, object: u32, value: &[u8]) -> io::Result<()>;
    /// Ends loading: forms stripes of all objects that still wait for others.
    fn finish_loading(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Reads an object's value.
    fn read(&mut self, object: u32) -> io::Result<Vec<u8>>;
    /// Reads an object's value without its node.
    fn degraded_read(&mut self, object: u32) -> io::Result<Vec<u8>>;
    /// Replaces a value by another of the same length.
    fn update(&mut self, object: u32, value: &[u8]) -> io::Result<()>;
    /// Does the work that updates have deferred.
    fn collect_garbage(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// The network that the system runs on.
    fn network(&mut self) -> &mut Network;
}

/// The error for a value that a node should have and has not.
pub(crate) fn missing(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("{what} is missing at the place given by the index"),
    )
}
