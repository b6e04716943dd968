//! MemEC's workloads (§7, Table 1) on several stores: the CPU time of their processes for a request.

use crate::load::{Client, Operation};
use crate::report::figure;
use crate::servers::Servers;
use crate::stage::Stage;
use crate::workload::Workload;
use crate::{Report, Table};
use paritas_base::Prng;
use std::io;

/// Bytes of a key, as in the paper.
pub(crate) const KEY_BYTES: usize = 24;
/// Requests under way, over all servers. The paper has four clients with 64 threads each.
pub(crate) const WINDOW: usize = 256;
const CONNECTIONS: usize = 4;

/// The workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// SET of new keys.
    Load,
    /// 50 % GET, 50 % UPDATE.
    A,
    /// 95 % GET, 5 % UPDATE.
    B,
    /// GET only.
    C,
    /// 95 % GET of recent keys, 5 % SET.
    D,
    /// 50 % GET, 50 % GET followed by UPDATE.
    F,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::F => "F",
        }
    }

    /// `count` requests for keys below `keys`, which grows with new keys.
    pub(crate) fn requests(
        self,
        seed: u64,
        keys: &mut u64,
        count: u64,
        value: &dyn Fn(u64) -> usize,
    ) -> Vec<Operation> {
        let (mut popular, mut random) = (Workload::new(seed, (*keys).max(1) as u32, 0), Prng::new(seed));
        let set = |key: u64| Operation::Set(key, value(key));
        let mut all = Vec::new();
        while (all.len() as u64) < count {
            let key = u64::from(popular.next_object());
            let is_write = |percent: u64, random: &mut Prng| random.below(100) < percent;
            match self {
                Self::Load => {
                    all.push(set(*keys));
                    *keys += 1;
                }
                Self::A if is_write(50, &mut random) => all.push(set(key)),
                Self::B if is_write(5, &mut random) => all.push(set(key)),
                Self::D if is_write(5, &mut random) => {
                    all.push(set(*keys));
                    *keys += 1;
                }
                // Newer keys are more popular. Keys that may still be under way are left out.
                Self::D => all.push(Operation::Get(
                    (*keys - 1 - popular.next_rank() % *keys).saturating_sub(1000),
                )),
                Self::F if is_write(50, &mut random) => all.extend([Operation::Get(key), set(key)]),
                Self::A | Self::B | Self::C | Self::F => all.push(Operation::Get(key)),
            }
        }
        all
    }
}

/// Figures of one phase: medians over the rounds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cell {
    /// CPU time of all processes for a request, in µs.
    pub(crate) cpu_us: f64,
    /// Requests a second, by the clock.
    pub(crate) rate: f64,
    /// Messages between nodes of Paritas for a request.
    pub(crate) messages: f64,
    /// Bytes between nodes of Paritas for a request.
    pub(crate) bytes: f64,
}

/// The amount of work.
pub(crate) struct Extent {
    pub(crate) loaded: u64,
    pub(crate) requests: u64,
    pub(crate) rounds: u32,
    /// Requests under way at each server. `None`: [`WINDOW`] over all servers.
    pub(crate) window_each: Option<usize>,
}

impl Extent {
    /// The amount for MemEC's experiments 1 and 2.
    pub(crate) fn as_memec(stage: &Stage) -> Self {
        Self {
            loaded: stage.count(60_000, 3_000).into(),
            requests: stage.count(60_000, 2_000).into(),
            rounds: stage.count(5, 1),
            window_each: None,
        }
    }
}

/// Bytes of MemEC's values (§6.1): two clients write 8 B, two write 32 B.
pub(crate) fn value_as_memec(key: u64) -> usize {
    if key.is_multiple_of(2) { 8 } else { 32 }
}

/// Medians of rounds in which all systems take turns with the same requests: for each system and each phase.
pub(crate) fn compare(
    stage: &Stage,
    systems: &[Servers],
    phases: &[Phase],
    extent: &Extent,
    value: &dyn Fn(u64) -> usize,
) -> io::Result<Vec<Vec<Cell>>> {
    let mut clients: Vec<Client> = systems
        .iter()
        .map(|servers| Client::connect(servers, CONNECTIONS, KEY_BYTES))
        .collect::<io::Result<_>>()?;
    let mut found = vec![vec![Vec::new(); phases.len()]; systems.len()];
    let mut keys = 0;
    for round in 0..extent.rounds {
        for (p, phase) in phases.iter().enumerate() {
            (stage.say)(&format!("round {}, {}", round + 1, phase.name()));
            let count = if *phase == Phase::Load {
                extent.loaded
            } else {
                extent.requests
            };
            let requests = phase.requests(u64::from(round) + 1, &mut keys, count, value);
            for ((system, client), found) in systems.iter().zip(&mut clients).zip(&mut found) {
                let window = extent.window_each.map_or(WINDOW, |each| each * system.ports.len());
                found[p].push(one(system, client, &requests, window)?);
            }
        }
    }
    let median = |cells: &[Cell], field: fn(&Cell) -> f64| {
        let mut values: Vec<f64> = cells.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let cell = |cells: &Vec<Cell>| Cell {
        cpu_us: median(cells, |c| c.cpu_us),
        rate: median(cells, |c| c.rate),
        messages: median(cells, |c| c.messages),
        bytes: median(cells, |c| c.bytes),
    };
    Ok(found.iter().map(|phases| phases.iter().map(cell).collect()).collect())
}

fn one(system: &Servers, client: &mut Client, requests: &[Operation], window: usize) -> io::Result<Cell> {
    let (cpu, sent) = (system.cpu()?, system.sent()?);
    let outcome = client.run(requests.iter().copied(), window)?;
    let (cpu, sent) = (system.cpu()?.saturating_sub(cpu), system.sent()? - sent);
    if outcome.missing > 0 {
        let missing = outcome.missing;
        return Err(io::Error::other(format!("{}: {missing} keys are missing", system.name)));
    }
    let count = outcome.count as f64;
    Ok(Cell {
        cpu_us: cpu.as_secs_f64() * 1e6 / count,
        rate: count / outcome.time.as_secs_f64(),
        messages: sent.messages as f64 / count,
        bytes: sent.bytes as f64 / count,
    })
}

/// A report with CPU time to be plotted, and the rest as a table.
pub(crate) fn report(systems: &[Servers], phases: &[Phase], cells: &[Vec<Cell>]) -> Report {
    let mut columns = vec!["workload".to_owned()];
    columns.extend(systems.iter().map(|system| format!("{}: CPU us", system.name)));
    let mut table = Table {
        name: "rates",
        columns: ["workload", "system", "CPU us", "requests/s", "messages", "bytes"]
            .map(str::to_owned)
            .to_vec(),
        rows: Vec::new(),
    };
    let mut rows = Vec::new();
    for (p, phase) in phases.iter().enumerate() {
        let mut row = vec![phase.name().to_owned()];
        for (system, cells) in systems.iter().zip(cells) {
            let cell = cells[p];
            row.push(figure(cell.cpu_us));
            let mut line = vec![phase.name().to_owned(), system.name.clone()];
            line.extend([cell.cpu_us, cell.rate, cell.messages, cell.bytes].map(figure));
            table.rows.push(line);
        }
        rows.push(row);
    }
    Report {
        columns,
        rows,
        tables: vec![table],
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_its_share_of_writes_and_asks_for_what_is_there() {
        for (phase, writes) in [
            (Phase::Load, 1.0),
            (Phase::A, 0.5),
            (Phase::B, 0.05),
            (Phase::C, 0.0),
            (Phase::D, 0.05),
            (Phase::F, 1.0 / 3.0),
        ] {
            let mut keys = 20_000;
            let requests = phase.requests(1, &mut keys, 20_000, &|_| 8);
            let sets = requests.iter().filter(|r| matches!(r, Operation::Set(..))).count();
            let share = sets as f64 / requests.len() as f64;
            assert!((share - writes).abs() < 0.02, "{phase:?}: {share}");
            let highest = requests.iter().map(|r| match r {
                Operation::Get(key) | Operation::Set(key, _) => *key,
            });
            assert!(highest.max().unwrap() < keys, "{phase:?}");
        }
    }
}
