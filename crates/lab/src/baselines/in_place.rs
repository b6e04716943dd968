//! Updates in place: IPMem, with all parity in memory, and LogECMem (§4), with one XOR parity in memory and the others
//! on log nodes. They differ in the place of the parity, and so in what an update must read.

use super::network::{Ask, Name, Network};
use super::stripes::{ChunkLocation, Encoded, Stripes, Unit};
use super::{System, missing};
use crate::workload::jump_hash;
use paritas_code::{mul_add, xor};
use std::io;

/// IPMem or LogECMem.
#[derive(Debug)]
pub struct InPlace {
    pub(super) network: Network,
    pub(super) stripes: Stripes,
    /// Number of parity chunks in memory; these are the first ones. Each other is on a log node.
    pub(super) in_memory: usize,
}

impl InPlace {
    /// A store on this network. As many of the `r` parity chunks are logged as the network has log nodes: none for
    /// IPMem.
    pub fn new(network: Network, k: u8, r: u8, value_bytes: usize) -> io::Result<Self> {
        let in_memory = usize::from(r).checked_sub(network.log_nodes()).filter(|left| *left > 0);
        let in_memory = in_memory.ok_or_else(|| io::Error::other("there are more log nodes than parity chunks"))?;
        let stripes = Stripes::new(k, r, in_memory, network.memory_nodes(), value_bytes)?;
        Ok(Self {
            network,
            stripes,
            in_memory,
        })
    }

    /// The stripes, with the indexes.
    pub fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    /// The node of memory that has an object.
    pub fn node(&self, object: u32) -> usize {
        jump_hash(u64::from(object), self.network.memory_nodes())
    }

    fn unit(&self, object: u32) -> Unit {
        let node = self.node(object);
        let version = 0;
        Unit { object, version, node }
    }

    /// The message that asks for a parity chunk of a stripe, and its node.
    pub(super) fn ask_parity(&self, stripe: u32, index: usize) -> (usize, Ask) {
        match self.stripes.all()[stripe as usize].parity_nodes.get(index) {
            Some(node) => (*node, Ask::Get(Name::Parity(stripe, index as u8))),
            None => (self.network.log_node(index - self.in_memory), Ask::GetParity(stripe)),
        }
    }

    fn distribute(&mut self, encoded: Encoded) -> io::Result<()> {
        let Encoded { stripe, parity } = encoded;
        let nodes = self.stripes.all()[stripe as usize].parity_nodes.clone();
        let mut asks = Vec::with_capacity(parity.len());
        for (index, chunk) in parity.into_iter().enumerate() {
            asks.push(match nodes.get(index) {
                Some(node) => (*node, Ask::Set(Name::Parity(stripe, index as u8), chunk)),
                None => {
                    let node = self.network.log_node(index - self.in_memory);
                    (node, Ask::PutParity(stripe, chunk))
                }
            });
        }
        self.network.ask(&asks).map(drop)
    }

    /// Deletes an object. Its chunk becomes zeros (§4.1).
    pub fn delete(&mut self, object: u32) -> io::Result<()> {
        let length = self.read(object)?.len();
        self.update(object, &vec![0; length])
    }
}

impl System for InPlace {
    fn write(&mut self, object: u32, value: &[u8]) -> io::Result<()> {
        let unit = self.unit(object);
        self.network
            .ask(&[(unit.node, Ask::Set(unit.name(), value.to_vec()))])?;
        match self.stripes.add(unit, value) {
            Some(encoded) => self.distribute(encoded),
            None => Ok(()),
        }
    }

    fn finish_loading(&mut self) -> io::Result<()> {
        while let Some(encoded) = self.stripes.close_one() {
            self.distribute(encoded)?;
        }
        Ok(())
    }

    fn read(&mut self, object: u32) -> io::Result<Vec<u8>> {
        let unit = self.unit(object);
        let found = self.network.ask_for_all(&[(unit.node, Ask::Get(unit.name()))])?.pop();
        found.ok_or_else(|| missing("an object"))
    }

    /// Decodes from k-1 data chunks and the XOR parity, all of them in memory (§4.1).
    fn degraded_read(&mut self, object: u32) -> io::Result<Vec<u8>> {
        let unit = self.unit(object);
        let ChunkLocation::In(stripe, index) = self.stripes.place(object) else {
            // The object waits in the proxy's queue.
            let waiting = self.stripes.queued(object, unit.node);
            return waiting.map(<[u8]>::to_vec).ok_or_else(|| missing("an object"));
        };
        self.rebuild(stripe, usize::from(index), &[], &[0])
    }

    /// Fig 7. The old data and the parity chunks in memory are read. The new data and parity are written, and the delta
    /// is sent to every log node.
    fn update(&mut self, object: u32, value: &[u8]) -> io::Result<()> {
        let unit = self.unit(object);
        let ChunkLocation::In(stripe, index) = self.stripes.place(object) else {
            // The paper does not say what happens to an object that waits for its stripe. It is not part of any parity
            // yet.
            self.stripes.replace_queued(object, unit.node, value);
            let set = (unit.node, Ask::Set(unit.name(), value.to_vec()));
            return self.network.ask(&[set]).map(drop);
        };
        let mut asks = vec![(unit.node, Ask::Get(unit.name()))];
        asks.extend((0..self.in_memory).map(|parity| self.ask_parity(stripe, parity)));
        let mut chunks = self.network.ask_for_all(&asks)?.into_iter();
        let mut delta = chunks.next().ok_or_else(|| missing("an object"))?;
        xor(value, &mut delta);
        let mut asks = vec![(unit.node, Ask::Set(unit.name(), value.to_vec()))];
        for (parity, mut chunk) in (0u8..).zip(chunks) {
            mul_add(self.stripes.code().coefficient(index, parity), &delta, &mut chunk);
            let node = self.stripes.all()[stripe as usize].parity_nodes[usize::from(parity)];
            asks.push((node, Ask::Set(Name::Parity(stripe, parity), chunk)));
        }
        for log in 0..self.network.log_nodes() {
            let delta = Ask::Delta {
                stripe,
                index,
                offset: 0,
                xor: delta.clone(),
            };
            asks.push((self.network.log_node(log), delta));
        }
        self.network.ask(&asks).map(drop)
    }

    fn network(&mut self) -> &mut Network {
        &mut self.network
    }
}
