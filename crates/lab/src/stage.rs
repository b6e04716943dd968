//! Where experiments with processes take place: a directory of their own, nodes, and how much of it all.

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

/// How much an experiment does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// As much as its figures want.
    Full,
    /// Seconds: whether everything goes its way. Times mean nothing then, and are held against nothing.
    Quick,
}

/// What experiments are given.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// How much.
    pub extent: Extent,
    /// Says what is being done, for whoever waits.
    pub say: fn(&str),
}

impl Stage {
    /// `full`, or `quick` where little is to be done.
    pub fn count(&self, full: u32, quick: u32) -> u32 {
        match self.extent {
            Extent::Full => full,
            Extent::Quick => quick,
        }
    }

    /// Whether times are to be held against the paper's.
    pub fn is_full(&self) -> bool {
        self.extent == Extent::Full
    }
}

/// A message takes so long from one node to another, as in a data centre.
pub const HOP: Duration = Duration::from_micros(100);

/// A directory that is there as long as this is.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("paritas-lab-{}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left behind is found by its name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Nodes that are processes, and log nodes on threads; all end with this.
#[derive(Debug)]
pub struct Nodes {
    _memcached: Memcached,
    directory: Directory,
}

impl Nodes {
    /// So many nodes of memory for values of such a length, and the log nodes of a code, if any.
    pub fn start(memory: usize, value_bytes: usize, logs: Option<&Logs>) -> io::Result<(Self, Network)> {
        let directory = Directory::new()?;
        // A page of every class of sizes, and then room for a few hundred MiB: it is only taken if it is used.
        let megabytes = 512 + value_bytes / 64;
        let mut memcached = Memcached::start(directory.path(), memory, megabytes)?;
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
        let nodes = Self {
            _memcached: memcached,
            directory,
        };
        Ok((nodes, network))
    }

    /// Their directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// Log nodes: one for each parity chunk but the XOR.
#[derive(Clone, Debug)]
pub struct Logs {
    /// Data and parity chunks.
    pub code: (u8, u8),
    /// Of each.
    pub settings: Settings,
    /// Of each.
    pub disk: DiskSettings,
}

impl Logs {
    /// For so many objects, each a chunk of such a length. What the paper leaves open is decided here: 1 MiB waits in
    /// memory before it is written, there is room for sixteen deltas behind a chunk, and the log area has 256 MiB;
    /// that of PL has room for everything, since in the paper it never makes room.
    pub fn new(code: (u8, u8), layout: Layout, objects: u32, value_bytes: usize) -> Self {
        let stripes = objects / u32::from(code.0);
        let all = u64::from(objects) * value_bytes as u64;
        let settings = Settings {
            layout,
            chunk_bytes: value_bytes,
            data_max: 1,
            block_bytes: 1,
            reserve_bytes: 16 * value_bytes,
            // Those that are closed before they are full come on top, and those that are being written anew.
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

    /// The nodes, not on threads.
    pub fn create(&self, directory: &Path) -> io::Result<Vec<LogNode>> {
        let scheme = Scheme::new(self.code.0, self.code.1).map_err(io::Error::other)?;
        let code = Code::new(scheme);
        (1..self.code.1)
            .map(|parity| LogNode::create(directory, &code, parity, self.settings, self.disk))
            .collect()
    }
}

/// Nodes that keep nothing, for counting.
pub fn blank_network(memory: usize, logs: usize) -> Network {
    let peers = (0..memory + logs).map(|_| Box::new(Blank) as Box<dyn Peer>).collect();
    Network::new(peers, memory, Way::AtOnce)
}
