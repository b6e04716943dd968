//! The systems that LogECMem (SC'21, §6.1) is compared with, and itself as the paper has it, each small and faithful: a
//! proxy over memcached processes. They share requests, network, stripes and code, so that they differ in nothing but
//! how they update.

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

/// A store behind a proxy. Objects have numbers, values one length: each is a chunk, as in the paper's experiments.
pub trait System {
    /// A new object.
    fn write(&mut self, object: u32, value: &[u8]) -> io::Result<()>;
    /// All are written: what waits for others of its stripe waits no longer.
    fn finish_loading(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Its value.
    fn read(&mut self, object: u32) -> io::Result<Vec<u8>>;
    /// Its value without asking the node that has it.
    fn degraded_read(&mut self, object: u32) -> io::Result<Vec<u8>>;
    /// Another value of the same length.
    fn update(&mut self, object: u32, value: &[u8]) -> io::Result<()>;
    /// What updates have left to be done.
    fn collect_garbage(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// What it runs on.
    fn network(&mut self) -> &mut Network;
}

/// A node has nothing where something must be.
pub(crate) fn missing(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("{what} is not where the index says it is"),
    )
}
