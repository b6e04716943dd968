//! FSMem: full-stripe updates (§2.2). A new version becomes a new chunk of a new stripe. The old one stays, marked as
//! stale, until garbage is collected. Then the valid chunks of such stripes are read and encoded again with others.

use super::network::{Ask, Name, Network};
use super::stripes::{Encoded, Stripes, Unit};
use super::{System, missing};
use crate::workload::jump_hash;
use std::io;

/// The latest version of an object.
#[derive(Clone, Copy, Debug)]
struct Newest {
    unit: Unit,
    /// Its stripe and its place there, once it is in a stripe.
    at: Option<(u32, u8)>,
}

/// The store.
#[derive(Debug)]
pub struct FsMem {
    network: Network,
    stripes: Stripes,
    newest: Vec<Option<Newest>>,
    /// For each stripe, the number of stale chunks. `None`: the stripe was collected.
    stale: Vec<Option<usize>>,
    r: u8,
    turn: usize,
}

impl FsMem {
    /// A store with stripes of `k` data chunks and `r` parity chunks.
    pub fn new(network: Network, k: u8, r: u8, value_bytes: usize) -> io::Result<Self> {
        let stripes = Stripes::new(k, r, usize::from(r), network.memory_nodes(), value_bytes)?;
        Ok(Self {
            network,
            stripes,
            newest: Vec::new(),
            stale: Vec::new(),
            r,
            turn: 0,
        })
    }

    fn newest(&self, object: u32) -> io::Result<Newest> {
        let found = self.newest.get(object as usize).copied().flatten();
        found.ok_or_else(|| missing("an object"))
    }

    fn put(&mut self, unit: Unit, value: &[u8]) -> io::Result<()> {
        self.network
            .ask(&[(unit.node, Ask::Set(unit.name(), value.to_vec()))])?;
        let at = unit.object as usize;
        if self.newest.len() <= at {
            self.newest.resize(at + 1, None);
        }
        self.newest[at] = Some(Newest { unit, at: None });
        self.join(unit, value)
    }

    fn join(&mut self, unit: Unit, value: &[u8]) -> io::Result<()> {
        match self.stripes.add(unit, value) {
            Some(encoded) => self.distribute(encoded),
            None => Ok(()),
        }
    }

    fn distribute(&mut self, encoded: Encoded) -> io::Result<()> {
        let Encoded { stripe, parity } = encoded;
        let formed = &self.stripes.all()[stripe as usize];
        let mut stale = 0;
        for (index, unit) in (0u8..).zip(&formed.units) {
            match &mut self.newest[unit.object as usize] {
                Some(newest) if newest.unit == *unit => newest.at = Some((stripe, index)),
                // The object was overwritten while it waited.
                _ => stale += 1,
            }
        }
        self.stale.push(Some(stale));
        let chunks = (0u8..).zip(parity).zip(&formed.parity_nodes);
        let asks: Vec<(usize, Ask)> = chunks
            .map(|((index, chunk), node)| (*node, Ask::Set(Name::Parity(stripe, index), chunk)))
            .collect();
        self.network.ask(&asks).map(drop)
    }

    /// Number of stripes with stale chunks.
    pub fn stale_stripes(&self) -> usize {
        self.stale
            .iter()
            .filter(|stale| stale.is_some_and(|count| count > 0))
            .count()
    }
}

impl System for FsMem {
    fn write(&mut self, object: u32, value: &[u8]) -> io::Result<()> {
        let node = jump_hash(u64::from(object), self.network.memory_nodes());
        let version = 0;
        self.put(Unit { object, version, node }, value)
    }

    fn finish_loading(&mut self) -> io::Result<()> {
        while let Some(encoded) = self.stripes.close_one() {
            self.distribute(encoded)?;
        }
        Ok(())
    }

    fn read(&mut self, object: u32) -> io::Result<Vec<u8>> {
        let unit = self.newest(object)?.unit;
        let found = self.network.ask_for_all(&[(unit.node, Ask::Get(unit.name()))])?.pop();
        found.ok_or_else(|| missing("an object"))
    }

    fn degraded_read(&mut self, object: u32) -> io::Result<Vec<u8>> {
        let Newest { unit, at } = self.newest(object)?;
        let Some((stripe, index)) = at else {
            let waiting = self.stripes.queued(object, unit.node);
            return waiting.map(<[u8]>::to_vec).ok_or_else(|| missing("an object"));
        };
        let (wanted, formed) = (usize::from(index), &self.stripes.all()[stripe as usize]);
        let mut asks = formed.asks_but(&[wanted]);
        let data_places: Vec<usize> = (0..formed.units.len()).filter(|n| *n != wanted).collect();
        asks.push((formed.parity_nodes[0], Ask::Get(Name::Parity(stripe, 0))));
        let mut chunks = self.network.ask_for_all(&asks)?;
        let parity = chunks.pop().ok_or_else(|| missing("a parity chunk"))?;
        let data: Vec<(usize, &[u8])> = data_places.into_iter().zip(chunks.iter().map(Vec::as_slice)).collect();
        self.stripes.decode(stripe, wanted, &data, &[(0, &parity)])
    }

    /// Takes one message, and `r` more once `k` new chunks are there. Versions go to the nodes in turn, so that a
    /// popular object does not make the queue of its node wait for the others. The index knows where each version is.
    fn update(&mut self, object: u32, value: &[u8]) -> io::Result<()> {
        let Newest { unit, at } = self.newest(object)?;
        if let Some(stale) = at.and_then(|(stripe, _)| self.stale[stripe as usize].as_mut()) {
            *stale += 1;
        }
        self.turn = (self.turn + 1) % self.network.memory_nodes();
        let (node, version) = (self.turn, unit.version + 1);
        self.put(Unit { object, version, node }, value)
    }

    /// Dissolves every stripe with a stale chunk. Its valid chunks stay where they are and join new stripes, for which
    /// they are read. Then stale chunks and the old parity are deleted.
    fn collect_garbage(&mut self) -> io::Result<()> {
        let mut deletes = Vec::new();
        for stripe in 0..self.stale.len() {
            if self.stale[stripe].is_none_or(|stale| stale == 0) {
                continue;
            }
            self.stale[stripe] = None;
            let old = self.stripes.all()[stripe].clone();
            let (mut kept, mut asks) = (Vec::new(), Vec::new());
            for unit in &old.units {
                let ask = |ask: fn(Name) -> Ask| (unit.node, ask(unit.name()));
                if self.newest(unit.object)?.unit == *unit {
                    kept.push(*unit);
                    asks.push(ask(Ask::Get));
                } else {
                    deletes.push(ask(Ask::Delete));
                }
            }
            for (index, node) in (0..self.r).zip(&old.parity_nodes) {
                deletes.push((*node, Ask::Delete(Name::Parity(stripe as u32, index))));
            }
            for (unit, value) in kept.into_iter().zip(self.network.ask_for_all(&asks)?) {
                if let Some(newest) = &mut self.newest[unit.object as usize] {
                    newest.at = None;
                }
                self.join(unit, &value)?;
            }
        }
        self.finish_loading()?;
        self.network.ask(&deletes).map(drop)
    }

    fn network(&mut self) -> &mut Network {
        &mut self.network
    }
}
