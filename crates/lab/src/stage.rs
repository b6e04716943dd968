//! The setting of experiments with processes: a directory, nodes, and the amount of work.

use crate::baselines::log_node::{DiskSettings, LogNode, Medium};
use crate::baselines::log_thread::LogThread;
use crate::baselines::memcached::Memcached;
use crate::baselines::network::{Blank, Network, Peer, Way};
use paritas_code::{Code, Scheme};
use paritas_paritylog::{Layout, Settings};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The amount of work of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// As much as the figures need.
    Full,
    /// A few seconds, to see whether everything works. Times are then meaningless and are not compared.
    Quick,
}

/// What an experiment is given.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// The amount of work.
    pub extent: Extent,
    /// Reports the present step to the user.
    pub say: fn(&str),
}

impl Stage {
    /// `full`, or `quick` for a short run.
    pub fn count(&self, full: u32, quick: u32) -> u32 {
        match self.extent {
            Extent::Full => full,
            Extent::Quick => quick,
        }
    }

    /// Whether times are to be compared with the paper's.
    pub fn is_full(&self) -> bool {
        self.extent == Extent::Full
    }
}

/// Time that a message takes from one node to another, as in a data centre.
pub const HOP: Duration = Duration::from_micros(100);

/// A temporary directory. It is removed when this is dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates a directory.
    pub fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("paritas-lab-{}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that remains can be recognised by its name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Nodes as processes, and log nodes on threads. All end when this is dropped.
#[derive(Debug)]
pub struct Nodes {
    memcached: Memcached,
    directory: Directory,
}

impl Nodes {
    /// Starts `memory` nodes of memory for values of this length, and the log nodes of a code, if any.
    pub fn start(memory: usize, value_bytes: usize, logs: Option<&Logs>) -> io::Result<(Self, Network)> {
        let directory = Directory::new()?;
        // A page for every size class, and some hundred MiB more. memcached takes the memory only when it uses it.
        let megabytes = 512 + value_bytes / 64;
        let mut memcached = Memcached::start(directory.path(), memory, megabytes, value_bytes)?;
        let connections = memcached.connect()?;
        let mut peers: Vec<Box<dyn Peer>> = connections.into_iter().map(|c| Box::new(c) as Box<dyn Peer>).collect();
        for node in logs
            .map(|logs| logs.create(directory.path()))
            .transpose()?
            .unwrap_or_default()
        {
            peers.push(Box::new(LogThread::start(node)?));
        }
        let network = Network::new(peers, memory, Way::OneByOne);
        let nodes = Self { memcached, directory };
        Ok((nodes, network))
    }

    /// Their directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends the process of a node of memory. What it has is lost.
    pub fn end(&mut self, node: usize) -> io::Result<()> {
        self.memcached.end(node)
    }
}

/// Log nodes: one for each parity chunk except the XOR parity.
#[derive(Clone, Debug)]
pub struct Logs {
    /// Numbers of data and parity chunks.
    pub code: (u8, u8),
    /// Settings of each log.
    pub settings: Settings,
    /// Settings of each disk.
    pub disk: DiskSettings,
}

impl Logs {
    /// Log nodes for this many objects, each a chunk of this length. Decisions that the paper leaves open: a write
    /// begins when 1 MiB waits in memory; there is space for sixteen deltas after a chunk; the log area has 256 MiB.
    /// With PL the log area has space for everything, because in the paper PL never frees space.
    pub fn new(code: (u8, u8), layout: Layout, objects: u32, value_bytes: usize) -> Self {
        let stripes = objects / u32::from(code.0);
        let all = u64::from(objects) * value_bytes as u64;
        let settings = Settings {
            layout,
            chunk_bytes: value_bytes,
            data_max: 1,
            block_bytes: 1,
            reserve_bytes: 16 * value_bytes,
            // In addition: stripes that are closed before they are full, and chunks that are being rewritten.
            slots_max: stripes + stripes / 4 + 64,
            log_bytes: if layout == Layout::Pl {
                (64 << 20) + all * 4
            } else {
                256 << 20
            },
            flush_bytes: 1 << 20,
            buffer_max_bytes: 8 << 20,
        };
        let disk = DiskSettings {
            medium: Medium::Cached,
            access: Duration::ZERO,
        };
        Self { code, settings, disk }
    }

    /// The log nodes themselves, without threads.
    pub fn create(&self, directory: &Path) -> io::Result<Vec<LogNode>> {
        let scheme = Scheme::new(self.code.0, self.code.1).map_err(io::Error::other)?;
        let code = Code::new(scheme);
        (1..self.code.1)
            .map(|parity| LogNode::create(directory, &code, parity, self.settings, self.disk))
            .collect()
    }
}

/// A network of nodes that keep nothing, for counting.
pub fn blank_network(memory: usize, logs: usize) -> Network {
    let peers = (0..memory + logs).map(|_| Box::new(Blank) as Box<dyn Peer>).collect();
    Network::new(peers, memory, Way::AtOnce)
}
