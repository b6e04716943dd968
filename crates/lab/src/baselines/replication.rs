//! Replication with r+1 copies, and Vanilla, which has one copy.

use super::network::{Ask, Name, Network};
use super::{System, missing};
use crate::workload::jump_hash;
use std::io;

/// Copies on consecutive nodes.
#[derive(Debug)]
pub struct Replication {
    network: Network,
    copies: usize,
}

impl Replication {
    /// A store with `copies` copies of each object, at least one.
    pub fn new(network: Network, copies: usize) -> Self {
        assert!((1..=network.memory_nodes()).contains(&copies));
        Self { network, copies }
    }

    fn node(&self, object: u32, copy: usize) -> usize {
        let nodes = self.network.memory_nodes();
        (jump_hash(u64::from(object), nodes) + copy) % nodes
    }

    fn read_copy(&mut self, object: u32, copy: usize) -> io::Result<Vec<u8>> {
        let ask = (self.node(object, copy), Ask::Get(Name::Object(object, 0)));
        let found = self.network.ask_for_all(&[ask])?.pop();
        found.ok_or_else(|| missing("a copy"))
    }
}

impl System for Replication {
    fn write(&mut self, object: u32, value: &[u8]) -> io::Result<()> {
        let set = |copy| {
            (
                self.node(object, copy),
                Ask::Set(Name::Object(object, 0), value.to_vec()),
            )
        };
        let asks: Vec<(usize, Ask)> = (0..self.copies).map(set).collect();
        self.network.ask(&asks).map(drop)
    }

    fn read(&mut self, object: u32) -> io::Result<Vec<u8>> {
        self.read_copy(object, 0)
    }

    fn degraded_read(&mut self, object: u32) -> io::Result<Vec<u8>> {
        if self.copies == 1 {
            return Err(missing("a second copy"));
        }
        self.read_copy(object, 1)
    }

    fn update(&mut self, object: u32, value: &[u8]) -> io::Result<()> {
        self.write(object, value)
    }

    fn network(&mut self) -> &mut Network {
        &mut self.network
    }
}
