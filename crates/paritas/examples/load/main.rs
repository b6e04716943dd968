//! The client of `make bench`. It loads given keys fast, and measures commands that usual benchmark programs cannot
//! send (memcached's protocol, SET followed by WAIT). It speaks RESP or memcached's meta commands. Unlike memcached's
//! old commands, these answer a pipeline in one write.
//!
//! ```text
//! cargo run --release -p paritas --example load -- fill --port 7379 --cluster --to 1000000 --value 32
//! cargo run --release -p paritas --example load -- run --port 6379 --op set --wait each --pipeline 16
//! ```
//!
//! Keys are `key:%020d`, 24 bytes. Every connection sends a batch, waits for all its replies, and sends the next batch.

mod drive;
mod keys;
mod owners;

use clap::{Args, Parser, Subcommand, ValueEnum};
use drive::drive;
use keys::{Commands, Random, Zipf, noise};
use owners::by_owner;
use std::io;
use std::time::Instant;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Sets each of the keys from..to once, or overwrites them at random.
    Fill(Fill),
    /// GET or SET of random keys below `keys`; prints operations per second and the time of a batch.
    Run(Run),
}

#[derive(Args)]
struct Fill {
    #[arg(long)]
    port: u16,
    /// Asks CLUSTER NODES and sends each key to its owner.
    #[arg(long)]
    cluster: bool,
    #[arg(long)]
    memcached: bool,
    #[arg(long, default_value_t = 0)]
    from: u64,
    #[arg(long)]
    to: u64,
    /// Bytes of a value; 0 means sizes from 1 to 4096 in turn.
    #[arg(long, default_value_t = 32)]
    value: usize,
    /// Number of SETs for each key, of random keys with 50 to 150 % of `value`; 0: one SET of each key in order.
    #[arg(long, default_value_t = 0)]
    overwrite: u64,
}

#[derive(Args)]
struct Run {
    #[arg(long)]
    port: u16,
    /// Asks CLUSTER NODES and sends each key to its owner.
    #[arg(long)]
    cluster: bool,
    #[arg(long)]
    memcached: bool,
    #[arg(long, value_enum)]
    op: Op,
    #[arg(long, value_enum, default_value_t = Wait::No)]
    wait: Wait,
    #[arg(long, default_value_t = 50)]
    connections: usize,
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    #[arg(long, default_value_t = 32)]
    value: usize,
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// Operations per second of all connections [default: as fast as possible]. The time of a batch is then measured
    /// from the moment at which it is due.
    #[arg(long)]
    rate: Option<f64>,
    /// Chooses keys by Zipf's law with this exponent below 1 (YCSB's is 0.99), separately for each node; 0: uniformly.
    #[arg(long, default_value_t = 0.0)]
    zipf: f64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Op {
    Get,
    Set,
}

/// Whether WAIT 2 follows no SET, each SET, or each batch.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Wait {
    No,
    Each,
    Batch,
}

fn fill(task: &Fill) -> io::Result<()> {
    const CONNECTIONS_PER_NODE: usize = 2;
    const BATCH_BYTES: usize = 16 << 10;
    let mut random = Random(task.to);
    let count = task.to.saturating_sub(task.from);
    let ids = (0..count * task.overwrite.max(1)).map(|i| {
        // Without overwriting, the last key is sent first.
        task.from
            + if task.overwrite > 0 {
                random.below(count)
            } else {
                count - 1 - i
            }
    });
    let (ports, mut queues) = by_owner(task.cluster, task.port, ids)?;
    let mut random = Random(task.to + 1);
    let ports = ports.repeat(CONNECTIONS_PER_NODE);
    let commands = Commands {
        memcached: task.memcached,
        noise: noise(),
    };
    let start = Instant::now();
    let outcome = drive(&ports, task.memcached, None, &mut |node, out| {
        let mut commands_sent = 0;
        while out.len() < BATCH_BYTES {
            let Some(id) = queues[node].pop() else { break };
            let bytes = match (task.value as u64, task.overwrite) {
                (0, _) => 1 + id % 4096,
                (value, 0) => value,
                (value, _) => value / 2 + random.below(value + 1),
            };
            let from = if task.overwrite > 0 { random.below(8192) } else { id };
            commands.set(out, id, from, bytes as usize)?;
            commands_sent += 1;
        }
        Ok(commands_sent)
    })?;
    println!(
        "replies={} seconds={:.3}",
        outcome.replies,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn run(task: &Run) -> io::Result<()> {
    let commands = Commands {
        memcached: task.memcached,
        noise: noise(),
    };
    let mut random = Random(1);
    let mut left = task.operations;
    const WAIT: &[u8] = b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n";
    let (ports, owned) = by_owner(task.cluster, task.port, 0..task.keys)?;
    // With fewer connections than nodes, only the first nodes get one.
    let connections: Vec<u16> = ports.iter().copied().cycle().take(task.connections).collect();
    let draws: Vec<Zipf> = owned.iter().map(|ids| Zipf::new(ids.len() as u64, task.zipf)).collect();
    let start = Instant::now();
    let per_second = task.rate.map(|rate| rate / task.pipeline as f64);
    let mut outcome = drive(&connections, task.memcached, per_second, &mut |node, out| {
        let count = left.min(task.pipeline as u64);
        left -= count;
        let mut replies = 0;
        for _ in 0..count {
            let id = owned[node][draws[node].draw(&mut random) as usize];
            match task.op {
                Op::Get => commands.get(out, id),
                Op::Set => commands.set(out, id, random.below(8192), task.value)?,
            }
            replies += 1;
            if task.wait == Wait::Each {
                out.extend_from_slice(WAIT);
                replies += 1;
            }
        }
        if task.wait == Wait::Batch && count > 0 {
            out.extend_from_slice(WAIT);
            replies += 1;
        }
        Ok(replies)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    outcome.batches_us.sort_unstable();
    let at = |part: f64| outcome.batches_us[((outcome.batches_us.len() - 1) as f64 * part) as usize];
    println!(
        "operations={} per_second={:.0} missing={} p50_us={} p95_us={} p99_us={}",
        task.operations,
        task.operations as f64 / seconds,
        outcome.missing,
        at(0.5),
        at(0.95),
        at(0.99)
    );
    Ok(())
}

fn main() -> io::Result<()> {
    match Cli::parse().task {
        Task::Fill(task) => fill(&task),
        Task::Run(task) => run(&task),
    }
}
