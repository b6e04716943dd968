//! Repair of lost chunks: LogECMem §5.2 and §5.3.

use super::in_place::InPlace;
use super::network::{Ask, Name, Peer};
use super::stripes::ChunkLocation;
use super::{System, missing};
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Most parity chunks that are fetched ahead of use.
const AHEAD_MAX: usize = 32;

/// The amount that was repaired.
#[derive(Clone, Copy, Default, Debug)]
pub struct Repaired {
    /// Number of chunks.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl InPlace {
    /// Decodes a data chunk of a stripe from `k` others: all other data chunks that are not lost, and as many parity
    /// chunks as needed.
    pub(super) fn rebuild(
        &mut self,
        stripe: u32,
        wanted: usize,
        lost: &[usize],
        parity: &[usize],
    ) -> io::Result<Vec<u8>> {
        let left_out: Vec<usize> = lost.iter().copied().chain([wanted]).collect();
        let mut asks = self.stripes.all()[stripe as usize].asks_but(&left_out);
        let data_count = asks.len();
        asks.extend(parity.iter().map(|index| self.ask_parity(stripe, *index)));
        let chunks = self.network.ask_for_all(&asks)?;
        let (data, parity_chunks) = chunks.split_at(data_count);
        let parity: Vec<(usize, &[u8])> = parity
            .iter()
            .copied()
            .zip(parity_chunks.iter().map(Vec::as_slice))
            .collect();
        self.decode(stripe, wanted, &left_out, data, &parity)
    }

    fn decode(
        &self,
        stripe: u32,
        wanted: usize,
        left_out: &[usize],
        data: &[Vec<u8>],
        parity: &[(usize, &[u8])],
    ) -> io::Result<Vec<u8>> {
        let there = self.stripes.all()[stripe as usize].units.len();
        let kept = (0..there).filter(|n| !left_out.contains(n));
        let data: Vec<(usize, &[u8])> = kept.zip(data.iter().map(Vec::as_slice)).collect();
        let parity: Vec<(u8, &[u8])> = parity.iter().map(|(j, bytes)| (*j as u8, *bytes)).collect();
        self.stripes.decode(stripe, wanted, &data, &parity)
    }

    /// Reads an object while its node and another node of its stripe are lost, from k-2 data chunks, the XOR parity,
    /// and one parity chunk of a log node (§5.2).
    pub fn twice_degraded_read(&mut self, object: u32) -> io::Result<Vec<u8>> {
        let ChunkLocation::In(stripe, index) = self.stripes.place(object) else {
            return self.degraded_read(object);
        };
        let (wanted, there) = (usize::from(index), self.stripes.all()[stripe as usize].units.len());
        if there < 2 {
            return self.rebuild(stripe, wanted, &[], &[0]);
        }
        self.rebuild(stripe, wanted, &[(wanted + 1) % there], &[0, self.in_memory])
    }

    /// Repairs all chunks of a node of memory, on the same node (§5.3). Each is computed from `k` chunks in memory or,
    /// with the help of log nodes, from `k - 1` of them and one parity chunk, which log nodes send ahead.
    pub fn repair_node(&mut self, node: usize, log_assist: bool) -> io::Result<Repaired> {
        let mut wanted = Vec::new();
        for (stripe, found) in self.stripes.all().iter().enumerate() {
            let data = found.units.iter().position(|unit| unit.node == node);
            let parity = found.parity_nodes.iter().position(|at| *at == node);
            if let Some(index) = data.or_else(|| parity.map(|j| self.stripes.k() + j)) {
                wanted.push((stripe as u32, index));
            }
        }
        let logs: Vec<usize> = (0..self.network.log_nodes()).filter(|_| log_assist).collect();
        let repaired = self.repair_all(&wanted, &logs, |system, (stripe, index), ahead| {
            system.repair_chunk(node, stripe, index, ahead)
        })?;
        // Waits for an answer, so that all quiet writes before it are done.
        self.network.ask(&[(node, Ask::Get(Name::Object(u32::MAX, 0)))])?;
        Ok(repaired)
    }

    /// Repairs all chunks of a log node (§5.3). Each is computed from `k` data chunks, or from `k - 1` of them and one
    /// parity chunk of another log node, sent ahead.
    pub fn repair_log_node(&mut self, lost: usize, log_assist: bool) -> io::Result<Repaired> {
        let index = self.stripes.k() + self.in_memory + lost;
        let wanted: Vec<_> = (0..self.stripes.all().len() as u32)
            .map(|stripe| (stripe, index))
            .collect();
        let logs: Vec<usize> = (0..self.network.log_nodes())
            .filter(|log| log_assist && *log != lost)
            .collect();
        self.repair_all(&wanted, &logs, |system, (stripe, index), ahead| {
            system.repair_logged(lost, stripe, index, ahead)
        })
    }

    /// Repairs chunks, each given by its stripe and its place there, with parity that log nodes send ahead.
    fn repair_all(
        &mut self,
        wanted: &[(u32, usize)],
        logs: &[usize],
        mut repair: impl FnMut(&mut Self, (u32, usize), Option<&mut Ahead>) -> io::Result<u64>,
    ) -> io::Result<Repaired> {
        let stripes: Vec<u32> = wanted.iter().map(|(stripe, _)| *stripe).collect();
        let mut ahead = Ahead::begin(self, &stripes, logs);
        let mut repaired = Repaired::default();
        let mut outcome = Ok(());
        for one in wanted {
            match repair(self, *one, ahead.as_mut()) {
                Ok(bytes) => {
                    repaired.chunks += 1;
                    repaired.bytes += bytes;
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if let Some(ahead) = ahead {
            ahead.end(self);
        }
        outcome.map(|()| repaired)
    }

    fn repair_logged(&mut self, lost: usize, stripe: u32, index: usize, ahead: Option<&mut Ahead>) -> io::Result<u64> {
        let found = &self.stripes.all()[stripe as usize];
        let left_out: Vec<usize> = ahead.iter().map(|_| found.units.len() - 1).collect();
        let asks = found.asks_but(&left_out);
        let data = self.network.ask_for_all(&asks)?;
        let sent = ahead.map(Ahead::next).transpose()?;
        let parity: Vec<(usize, &[u8])> = sent
            .iter()
            .map(|(log, bytes)| (self.in_memory + log, bytes.as_slice()))
            .collect();
        let chunk = self.decode(stripe, index, &left_out, &data, &parity)?;
        let bytes = chunk.len() as u64;
        let put = (self.network.log_node(lost), Ask::PutParity(stripe, chunk));
        self.network.ask(&[put])?;
        Ok(bytes)
    }

    fn repair_chunk(&mut self, node: usize, stripe: u32, index: usize, ahead: Option<&mut Ahead>) -> io::Result<u64> {
        let k = self.stripes.k();
        let found = &self.stripes.all()[stripe as usize];
        let (is_parity, there) = (index >= k, found.units.len());
        let name = match found.units.get(index) {
            Some(unit) => unit.name(),
            None => Name::Parity(stripe, (index - k) as u8),
        };
        let chunk = match ahead {
            // The XOR parity is the sum of its data chunks. It is computed from `k` of them, or from `k - 1` and
            // another parity.
            None if is_parity => {
                let asks = found.asks_but(&[]);
                sum(&self.network.ask_for_all(&asks)?)
            }
            None => self.rebuild(stripe, index, &[], &[0])?,
            Some(ahead) => {
                let left_out = if is_parity { there - 1 } else { index };
                let asks = found.asks_but(&[left_out]);
                let data = self.network.ask_for_all(&asks)?;
                let began = Instant::now();
                let (log, bytes) = ahead.next()?;
                self.network.add_wait(began.elapsed());
                let missing_data =
                    self.decode(stripe, left_out, &[left_out], &data, &[(self.in_memory + log, &bytes)])?;
                if is_parity {
                    let mut all = data;
                    all.push(missing_data);
                    sum(&all)
                } else {
                    missing_data
                }
            }
        };
        let bytes = chunk.len() as u64;
        self.network.ask(&[(node, Ask::SetQuietly(name, chunk))])?;
        Ok(bytes)
    }
}

fn sum(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut total = chunks.first().cloned().unwrap_or_default();
    for chunk in chunks.iter().skip(1) {
        paritas_code::xor(chunk, &mut total);
    }
    total
}

/// The chunks of one log node, and the thread that returns the connection at its end.
type Lane = (Receiver<io::Result<Vec<u8>>>, JoinHandle<Box<dyn Peer>>);

/// Log nodes that send one parity chunk for each stripe ahead of use. They take turns, each on its own thread.
struct Ahead {
    lanes: Vec<Lane>,
    logs: Vec<usize>,
    turn: usize,
}

impl Ahead {
    /// Starts the threads; `None` without log nodes.
    fn begin(system: &mut InPlace, stripes: &[u32], logs: &[usize]) -> Option<Self> {
        let mut lanes = Vec::new();
        for (lane, log) in logs.iter().enumerate() {
            let mut peer = system.network.take(system.network.log_node(*log));
            let mine: Vec<u32> = stripes.iter().skip(lane).step_by(logs.len()).copied().collect();
            let (sender, receiver) = sync_channel(AHEAD_MAX);
            let thread = std::thread::spawn(move || {
                for stripe in mine {
                    let ask = Ask::GetParity(stripe);
                    let found = peer.send(&ask).and_then(|()| peer.receive(&ask));
                    let found = found.and_then(|chunk| chunk.ok_or_else(|| missing("a logged parity chunk")));
                    if sender.send(found).is_err() {
                        break;
                    }
                }
                peer
            });
            lanes.push((receiver, thread));
        }
        let logs = logs.to_vec();
        (!logs.is_empty()).then_some(Self { lanes, logs, turn: 0 })
    }

    /// The next chunk, and the log node that sent it.
    fn next(&mut self) -> io::Result<(usize, Vec<u8>)> {
        let lane = self.turn % self.lanes.len();
        self.turn += 1;
        let chunk = self.lanes[lane].0.recv().map_err(io::Error::other)??;
        Ok((self.logs[lane], chunk))
    }

    fn end(self, system: &mut InPlace) {
        for ((receiver, thread), log) in self.lanes.into_iter().zip(self.logs) {
            drop(receiver);
            if let Ok(peer) = thread.join() {
                system.network.put_back(system.network.log_node(log), peer);
            }
        }
    }
}
