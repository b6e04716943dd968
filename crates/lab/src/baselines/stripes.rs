//! Forms stripes of objects and records the places of their chunks: LogECMem's queues, Object Index and Stripe Index
//! (§3.2, §4.1).

use super::network::{Ask, Name};
use paritas_code::{Code, Scheme};
use std::collections::VecDeque;
use std::io;

/// A data chunk: a version of an object on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// The object.
    pub object: u32,
    /// The version.
    pub version: u32,
    /// The node that has it.
    pub node: usize,
}

impl Unit {
    /// Its key on the node.
    pub fn name(self) -> Name {
        Name::Object(self.object, self.version)
    }
}

/// A stripe.
#[derive(Clone, Debug)]
pub struct Stripe {
    /// Its data chunks in order. There are fewer than `k` if the last ones are zeros, which no node stores.
    pub units: Vec<Unit>,
    /// The nodes of the parity chunks in memory.
    pub parity_nodes: Vec<usize>,
}

impl Stripe {
    /// Messages that ask for all data chunks except some.
    pub fn asks_but(&self, left_out: &[usize]) -> Vec<(usize, Ask)> {
        let kept = self.units.iter().enumerate().filter(|(n, _)| !left_out.contains(n));
        kept.map(|(_, unit)| (unit.node, Ask::Get(unit.name()))).collect()
    }
}

/// A stripe that has just become full, with its contents.
#[derive(Debug)]
pub struct Encoded {
    /// Its number.
    pub stripe: u32,
    /// All its parity chunks.
    pub parity: Vec<Vec<u8>>,
}

/// The place of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkLocation {
    /// The object does not exist.
    None,
    /// On its node, and in that node's queue: it is not yet in a stripe.
    Queued,
    /// The stripe, and the index of the chunk in it.
    In(u32, u8),
}

/// Forms stripes of chunks on different nodes.
#[derive(Debug)]
pub struct Stripes {
    code: Code,
    parity_in_memory: usize,
    value_bytes: usize,
    queues: Vec<VecDeque<(Unit, Vec<u8>)>>,
    waiting_nodes: usize,
    places: Vec<ChunkLocation>,
    stripes: Vec<Stripe>,
}

impl Stripes {
    /// Stripes of `k` data chunks and `r` parity chunks, of which `parity_in_memory` are in memory, on `nodes` nodes.
    pub fn new(k: u8, r: u8, parity_in_memory: usize, nodes: usize, value_bytes: usize) -> io::Result<Self> {
        let scheme = Scheme::new(k, r).map_err(io::Error::other)?;
        if nodes < usize::from(k) + parity_in_memory {
            return Err(io::Error::other(format!("{nodes} nodes are too few for {scheme}")));
        }
        Ok(Self {
            code: Code::new(scheme),
            parity_in_memory,
            value_bytes,
            queues: vec![VecDeque::new(); nodes],
            waiting_nodes: 0,
            places: Vec::new(),
            stripes: Vec::new(),
        })
    }

    /// The code of its stripes.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Number of data chunks of a stripe.
    pub fn k(&self) -> usize {
        usize::from(self.code.scheme().data())
    }

    /// All stripes: the Stripe Index.
    pub fn all(&self) -> &[Stripe] {
        &self.stripes
    }

    /// The place of an object: the Object Index.
    pub fn place(&self, object: u32) -> ChunkLocation {
        self.places.get(object as usize).copied().unwrap_or(ChunkLocation::None)
    }

    /// The value of a chunk that waits for others. If there are several, the latest version.
    pub fn queued(&self, object: u32, node: usize) -> Option<&[u8]> {
        let waiting = self.queues[node].iter().rev();
        let mut found = waiting.filter(|(unit, _)| unit.object == object);
        found.next().map(|(_, value)| value.as_slice())
    }

    /// Replaces the value of a waiting chunk. It is in no stripe, so no parity changes.
    pub fn replace_queued(&mut self, object: u32, node: usize, value: &[u8]) {
        if let Some((_, old)) = self.queues[node].iter_mut().rev().find(|(u, _)| u.object == object) {
            old.clear();
            old.extend_from_slice(value);
        }
    }

    /// Adds a chunk to the queue of its node. Once k nodes have a waiting chunk, a stripe is formed.
    pub fn add(&mut self, unit: Unit, value: &[u8]) -> Option<Encoded> {
        let at = unit.object as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, ChunkLocation::None);
        }
        self.places[at] = ChunkLocation::Queued;
        let queue = &mut self.queues[unit.node];
        self.waiting_nodes += usize::from(queue.is_empty());
        queue.push_back((unit, value.to_vec()));
        (self.waiting_nodes >= self.k()).then(|| self.form())
    }

    /// Forms a stripe of waiting chunks, completed with zeros. `None` if no chunk waits.
    pub fn close_one(&mut self) -> Option<Encoded> {
        (self.waiting_nodes > 0).then(|| self.form())
    }

    /// Takes chunks from the longest queues, so that none grows without limit.
    fn form(&mut self) -> Encoded {
        let (k, nodes) = (self.k(), self.queues.len());
        let stripe = self.stripes.len() as u32;
        // The order of equally long queues rotates, so that parity is spread over the nodes.
        let turn = stripe as usize % nodes;
        let mut order: Vec<usize> = (0..nodes).map(|n| (n + turn) % nodes).collect();
        order.sort_by_key(|node| core::cmp::Reverse(self.queues[*node].len()));
        let (data_nodes, rest) = order.split_at(k);
        let parity_nodes = rest[..self.parity_in_memory].to_vec();
        let (mut units, mut values) = (Vec::with_capacity(k), Vec::with_capacity(k));
        for node in data_nodes {
            let Some((unit, value)) = self.queues[*node].pop_front() else {
                continue;
            };
            self.waiting_nodes -= usize::from(self.queues[*node].is_empty());
            self.places[unit.object as usize] = ChunkLocation::In(stripe, units.len() as u8);
            units.push(unit);
            values.push(value);
        }
        let parity = self.encode(&values);
        self.stripes.push(Stripe { units, parity_nodes });
        Encoded { stripe, parity }
    }

    fn encode(&self, values: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let r = usize::from(self.code.scheme().parity());
        let mut parity = vec![vec![0; self.value_bytes]; r];
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        for (index, value) in (0u8..).zip(values) {
            self.code.encode_from(index, value, &mut targets);
        }
        parity
    }

    /// Decodes a data chunk from the others, except those in `left_out`, and parity chunks in their place.
    pub fn decode(
        &self,
        stripe: u32,
        wanted: usize,
        data: &[(usize, &[u8])],
        parity: &[(u8, &[u8])],
    ) -> io::Result<Vec<u8>> {
        let k = self.k();
        let zeros = vec![0; self.value_bytes];
        let there = self.stripes[stripe as usize].units.len();
        let mut present: Vec<(u8, &[u8])> = data.iter().map(|(n, bytes)| (*n as u8, *bytes)).collect();
        present.extend((there..k).map(|n| (n as u8, zeros.as_slice())));
        present.extend(parity.iter().map(|(j, bytes)| (k as u8 + j, *bytes)));
        let mut out = vec![0; self.value_bytes];
        let decoded = self.code.decode(&present, &[wanted as u8], &mut [&mut out]);
        decoded.map_err(io::Error::other)?;
        Ok(out)
    }
}
