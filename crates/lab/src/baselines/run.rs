//! Runs a workload on a system, counted or timed.

use super::System;
use super::fsmem::FsMem;
use super::in_place::InPlace;
use super::network::{BLANK_BYTES, Counts, Way};
use super::replication::Replication;
use crate::stage::{HOP, Logs, Nodes, blank_network};
use crate::workload::{Request, Workload};
use std::io;
use std::time::Duration;

/// The systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One copy.
    Vanilla,
    /// r+1 copies.
    Replication,
    /// Updates in place, with all parity in memory.
    IpMem,
    /// Full-stripe updates.
    FsMem,
    /// Updates in place, with all parity logged except the XOR parity.
    LogEcMem,
}

/// The systems that survive r losses.
pub const REDUNDANT: [Kind; 4] = [Kind::Replication, Kind::IpMem, Kind::FsMem, Kind::LogEcMem];

impl Kind {
    /// Its name in the paper.
    pub fn name(self, r: u8) -> String {
        match self {
            Self::Vanilla => "Vanilla".to_owned(),
            Self::Replication => format!("{}-way", r + 1),
            Self::IpMem => "IPMem".to_owned(),
            Self::FsMem => "FSMem".to_owned(),
            Self::LogEcMem => "LogECMem".to_owned(),
        }
    }

    /// Numbers of nodes of memory and of log nodes (§6.2).
    fn nodes(self, (k, r): (u8, u8)) -> (usize, usize) {
        let (k, r) = (usize::from(k), usize::from(r));
        match self {
            Self::LogEcMem => (k + 1, r - 1),
            _ => (k + r, 0),
        }
    }

    fn over(self, network: super::network::Network, (k, r): (u8, u8), bytes: usize) -> io::Result<Box<dyn System>> {
        Ok(match self {
            Self::Vanilla => Box::new(Replication::new(network, 1)),
            Self::Replication => Box::new(Replication::new(network, usize::from(r) + 1)),
            Self::IpMem | Self::LogEcMem => Box::new(InPlace::new(network, k, r, bytes)?),
            Self::FsMem => Box::new(FsMem::new(network, k, r, bytes)?),
        })
    }

    /// The system over nodes that store nothing.
    pub fn blank(self, code: (u8, u8)) -> io::Result<Box<dyn System>> {
        let (memory, logs) = self.nodes(code);
        self.over(blank_network(memory, logs), code, BLANK_BYTES)
    }

    /// The system over processes. They end when the first returned value is dropped.
    pub fn real(self, code: (u8, u8), bytes: usize, logs: &Logs) -> io::Result<(Nodes, Box<dyn System>)> {
        let (memory, log_nodes) = self.nodes(code);
        let (nodes, network) = Nodes::start(memory, bytes, (log_nodes > 0).then_some(logs))?;
        Ok((nodes, self.over(network, code, bytes)?))
    }
}

/// A value that depends on the object and the round.
pub fn value(object: u32, round: u32, bytes: usize) -> Vec<u8> {
    let mut value = vec![(object ^ round.wrapping_mul(31)) as u8; bytes];
    let word = (u64::from(round) << 32 | u64::from(object)).to_le_bytes();
    let length = word.len().min(bytes);
    value[..length].copy_from_slice(&word[..length]);
    value
}

/// Writes all objects.
pub fn load(system: &mut dyn System, objects: u32, bytes: usize) -> io::Result<()> {
    for object in 0..objects {
        system.write(object, &value(object, 0, bytes))?;
    }
    system.finish_loading()
}

/// Costs of the updates of a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Updates {
    /// Number of updates.
    pub count: u64,
    /// Costs of the updates, including the garbage that they left.
    pub cost: Counts,
    /// Costs of garbage collection alone.
    pub garbage: Counts,
    /// Time waited for, if messages take time. Coding takes about a hundredth of that.
    pub time: Duration,
}

impl Updates {
    /// Mean of a total over the updates.
    pub fn mean(&self, total: u64) -> f64 {
        total as f64 / self.count.max(1) as f64
    }

    /// Mean time of an update in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.count.max(1) as f64
    }
}

/// Runs the updates among this many requests; then garbage is collected. Reads are left out, because they change
/// nothing and only the costs of updates are wanted.
pub fn updates(
    system: &mut dyn System,
    objects: u32,
    requests: u32,
    percent: u64,
    bytes: usize,
) -> io::Result<Updates> {
    let mut workload = Workload::new(percent, objects, percent);
    let before = system.network().counts();
    system.network().take_waits();
    let mut count = 0;
    for round in 1..=requests {
        if let Request::Update(object) = workload.next_request() {
            system.update(object, &value(object, round, bytes))?;
            count += 1;
        }
    }
    let updated = system.network().counts();
    system.collect_garbage()?;
    let all = system.network().counts();
    Ok(Updates {
        count,
        cost: all.since(before),
        garbage: all.since(updated),
        time: system.network().take_waits(),
    })
}

/// From now on messages take time, as in a data centre.
pub fn as_in_a_data_centre(system: &mut dyn System, way: Way) {
    system.network().set_way(way);
    system.network().set_hop(HOP);
}
