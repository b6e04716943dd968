//! The state file of a node: who gets its lock knows that the process named in it has ended (P10.4).
//!
//! The kernel gives the lock free when a process ends, however it ends, and not before. So the next process of the node
//! on this machine can certify the end of the one before, as a supervisor could that has waited for it.
//!
//! The file has two slots of equal length, each a line of text (`docs/formats/state-file.md`). They are written in
//! turn, so that one can be read whenever a process ends. It names the boot of the machine, and itself: a copy, or the
//! file of another machine, proves nothing.

use crate::Failure;
use paritas_base::{ClusterId, Incarnation, NodeId};
use paritas_control::ENDS_MAX;
use paritas_io::file_system::{NotPrivate, Private, open_private, try_lock};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a slot. A record with [`ENDS_MAX`] ends takes about a third of it.
const SLOT_BYTES: usize = 4096;
/// How long a process that was killed may need to give its lock free.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_EVERY: Duration = Duration::from_millis(10);
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

/// What a slot says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Record {
    /// Counts the writes: of two slots the higher one counts.
    write: u64,
    node: u16,
    /// The boot of the machine.
    boot: String,
    /// The file itself.
    device: u64,
    inode: u64,
    /// The cluster, once the process knows it.
    cluster: Option<u64>,
    /// The process that holds the lock.
    incarnation: u64,
    /// Earlier ones whose end no coordinator has noted yet. The first ones come first.
    ends: Vec<u64>,
}

/// The state file of a node, locked by this process.
#[derive(Debug)]
pub(crate) struct StateFile {
    private: Private,
    path: PathBuf,
    record: Record,
}

impl StateFile {
    /// Locks the file of a node, reads whose ends it proves, and puts the new process in. `None`, with words in the
    /// log: the place is of no use, and the node runs without.
    ///
    /// # Errors
    /// If another process of the node holds the lock.
    pub(crate) fn begin(directory: &Path, node: NodeId, incarnation: Incarnation) -> Result<Option<Self>, Failure> {
        let path = directory.join(format!("node-{}.state", node.0));
        match Self::open(directory, &path, node, incarnation) {
            Ok(state) => Ok(Some(state)),
            Err(Problem::Held) => Err(Failure(format!(
                "state_dir: another process of {node} runs on this machine and holds {}. End it first. If it is a node \
                 of another cluster, give the two different directories",
                path.display()
            ))),
            Err(Problem::Unfit(why)) => {
                tracing::warn!(
                    "state_dir: {}: {why}. The node runs without it: after a crash its positions wait as for a silent \
                     node",
                    path.display()
                );
                Ok(None)
            }
        }
    }

    fn open(directory: &Path, path: &Path, node: NodeId, incarnation: Incarnation) -> Result<Self, Problem> {
        make(directory)?;
        let private = open_private(path)?;
        let deadline = Instant::now() + LOCK_WAIT;
        while !try_lock(&private.file)? {
            if Instant::now() >= deadline {
                return Err(Problem::Held);
            }
            std::thread::sleep(LOCK_EVERY);
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let found = read(&private)?;
        let write = found.as_ref().map_or(0, |found| found.write);
        let is_here = |found: &Record| {
            let here = (node.0, boot.as_str(), private.device, private.inode);
            (found.node, found.boot.as_str(), found.device, found.inode) == here
        };
        let found = found.filter(is_here);
        let cluster = found.as_ref().and_then(|found| found.cluster);
        let mut ends = found.map_or_else(Vec::new, |found| [found.ends, vec![found.incarnation]].concat());
        ends.retain(|end| *end != incarnation.0);
        // The first ones may hold positions. Those after them have hardly been taken in.
        ends.truncate(ENDS_MAX);
        let (device, inode) = (private.device, private.inode);
        let mut state = Self {
            private,
            path: path.to_owned(),
            record: Record {
                write,
                node: node.0,
                boot,
                device,
                inode,
                cluster,
                incarnation: incarnation.0,
                ends,
            },
        };
        state.write()?;
        Ok(state)
    }

    /// Earlier incarnations that have certainly ended.
    pub(crate) fn ends(&self) -> Vec<Incarnation> {
        self.record.ends.iter().copied().map(Incarnation).collect()
    }

    /// The process is of this cluster. What the file says of another cluster proves nothing here.
    pub(crate) fn set_cluster(&mut self, cluster: ClusterId) {
        if self.record.cluster.is_some_and(|known| known != cluster.0) {
            self.record.ends.clear();
        }
        self.record.cluster = Some(cluster.0);
        self.save();
    }

    /// A coordinator has noted an end.
    pub(crate) fn note(&mut self, ended: Incarnation) {
        let before = self.record.ends.len();
        self.record.ends.retain(|end| *end != ended.0);
        if self.record.ends.len() < before {
            self.save();
        }
    }

    /// An end that stays in the file is only said again.
    fn save(&mut self) {
        if let Err(error) = self.write() {
            tracing::warn!("state_dir: {}: {error}", self.path.display());
        }
    }

    /// In place: a process that ends at any moment leaves the other slot.
    fn write(&mut self) -> io::Result<()> {
        self.record.write += 1;
        let text = serde_json::to_string(&self.record)?;
        let mut slot = format!("{:08x} {text}\n", CRC.checksum(text.as_bytes())).into_bytes();
        if slot.len() > SLOT_BYTES {
            return Err(io::Error::other("the record is too long"));
        }
        slot.resize(SLOT_BYTES, b' ');
        let offset = (self.record.write % 2) * SLOT_BYTES as u64;
        self.private.file.write_all_at(&slot, offset)
    }
}

/// Makes the directory, if its parent is there.
fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(_) if directory.is_dir() => Ok(()),
        made => made,
    }
}

/// The newest slot that can be read.
fn read(private: &Private) -> io::Result<Option<Record>> {
    let mut bytes = vec![0; 2 * SLOT_BYTES];
    let mut length = 0;
    while length < bytes.len() {
        match private.file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            count => length += count,
        }
    }
    // A slot that a full disk has cut short proves nothing, even if its text is whole: its process runs without the
    // file.
    let slots = bytes[..length].chunks_exact(SLOT_BYTES).filter_map(parse);
    Ok(slots.max_by_key(|record| record.write))
}

fn parse(slot: &[u8]) -> Option<Record> {
    let line = slot.split(|byte| *byte == b'\n').next()?;
    let (sum, text) = core::str::from_utf8(line).ok()?.split_once(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (CRC.checksum(text.as_bytes()) == sum)
        .then(|| serde_json::from_str(text).ok())
        .flatten()
}

enum Problem {
    /// Another process has the lock.
    Held,
    /// The file cannot be used.
    Unfit(String),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Unfit(error.to_string())
    }
}

impl From<NotPrivate> for Problem {
    fn from(why: NotPrivate) -> Self {
        Self::Unfit(why.to_string())
    }
}

#[cfg(test)]
mod tests;
