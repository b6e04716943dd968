//! A log node: one parity chunk of every stripe, with deltas, in a [`ParityLog`] over two files (LogECMem §4.3).

use super::network::{Ask, Peer};
use paritas_base::{ListId, Map, Position, Stripe, Version, map};
use paritas_code::Code;
use paritas_paritylog::{Bad, Content, Counters, Extents, Io, Key, ParityLog, Settings, Space, Work};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Direct I/O needs buffers, addresses and lengths that are multiples of this number of bytes.
const BLOCK_BYTES: usize = 4096;

/// The kind of disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Memory: accesses are counted, and nothing is stored on a disk.
    Memory,
    /// Files, through the page cache.
    Cached,
    /// Files with direct I/O, if the file system supports it.
    Direct,
}

/// Settings of the disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskSettings {
    /// The kind of disk.
    pub medium: Medium,
    /// Shortest time of each read and write, to simulate a disk with a given number of accesses a second.
    pub access: Duration,
}

#[derive(Debug)]
struct Disk {
    slots: Area,
    log: Area,
    settings: DiskSettings,
}

#[derive(Debug)]
enum Area {
    Memory(Vec<u8>),
    File(File),
}

impl Disk {
    /// Opens the files. They have no name, so they are removed when they are closed.
    fn create(directory: &Path, settings: Settings, disk: DiskSettings) -> io::Result<Self> {
        let create = |name: &str, length: u64| {
            let length = length.next_multiple_of(BLOCK_BYTES as u64) + BLOCK_BYTES as u64;
            if disk.medium == Medium::Memory {
                return Ok(Area::Memory(vec![0; length as usize]));
            }
            let path = directory.join(name);
            let open = |flags| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(true);
                options.custom_flags(flags).open(&path)
            };
            let file = match disk.medium {
                Medium::Direct => open(libc::O_DIRECT).or_else(|_| open(0))?,
                _ => open(0)?,
            };
            std::fs::remove_file(&path)?;
            file.set_len(length)?;
            io::Result::Ok(Area::File(file))
        };
        Ok(Self {
            slots: create("slots", u64::from(settings.slots_max) * settings.slot_bytes() as u64)?,
            log: create("log", settings.log_bytes)?,
            settings: disk,
        })
    }

    fn run(&mut self, io: &Io) -> io::Result<Vec<u8>> {
        if !self.settings.access.is_zero() {
            std::thread::sleep(self.settings.access);
        }
        let area = match io.space {
            Space::Slots => &mut self.slots,
            Space::Log => &mut self.log,
        };
        match area {
            Area::Memory(bytes) => {
                let length = match &io.work {
                    Work::Read(length) => *length,
                    Work::Write(bytes) => bytes.len(),
                };
                let from = io.at as usize;
                let part = bytes.get_mut(from..from + length).ok_or(io::ErrorKind::InvalidInput)?;
                match &io.work {
                    Work::Read(_) => return Ok(part.to_vec()),
                    Work::Write(bytes) => part.copy_from_slice(bytes),
                }
                Ok(Vec::new())
            }
            Area::File(file) if self.settings.medium == Medium::Direct => in_blocks(file, io),
            Area::File(file) => match &io.work {
                Work::Read(length) => {
                    let mut bytes = vec![0; *length];
                    file.read_exact_at(&mut bytes, io.at)?;
                    Ok(bytes)
                }
                Work::Write(bytes) => file.write_all_at(bytes, io.at).map(|()| Vec::new()),
            },
        }
    }
}

/// Does a read or a write as direct I/O needs it. Writes are whole blocks already; for a read the surrounding blocks
/// are read.
fn in_blocks(file: &File, io: &Io) -> io::Result<Vec<u8>> {
    match &io.work {
        Work::Read(length) => {
            let before = (io.at % BLOCK_BYTES as u64) as usize;
            let whole = (before + length).next_multiple_of(BLOCK_BYTES);
            let mut bytes = vec![0; whole + BLOCK_BYTES];
            let from = to_block(&bytes);
            file.read_exact_at(&mut bytes[from..from + whole], io.at - before as u64)?;
            Ok(bytes[from + before..from + before + length].to_vec())
        }
        Work::Write(bytes) => {
            let mut copy = vec![0; bytes.len() + BLOCK_BYTES];
            let from = to_block(&copy);
            copy[from..from + bytes.len()].copy_from_slice(bytes);
            file.write_all_at(&copy[from..from + bytes.len()], io.at)?;
            Ok(Vec::new())
        }
    }
}

/// Number of bytes from the beginning of a buffer to its first aligned block.
fn to_block(bytes: &[u8]) -> usize {
    bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES)
}

/// A log node.
#[derive(Debug)]
pub struct LogNode {
    log: ParityLog,
    disk: Disk,
    /// Coefficients by data chunk.
    coefficients: Vec<u8>,
    position: Position,
    /// Whether appended records go to slots in the end.
    drains: bool,
    /// Each delta gives its chunk a new version, so that deltas are not taken for one record where there is no folding.
    version: u64,
    next_read: u64,
    answers: Map<u64, Option<Vec<u8>>>,
}

impl LogNode {
    /// A log node for the parity chunk with this index in a stripe.
    pub fn create(
        directory: &Path,
        code: &Code,
        parity: u8,
        settings: Settings,
        disk: DiskSettings,
    ) -> io::Result<Self> {
        let data = code.scheme().data();
        Ok(Self {
            log: ParityLog::new(settings, 1),
            disk: Disk::create(directory, settings, disk)?,
            coefficients: (0..data).map(|index| code.coefficient(index, parity)).collect(),
            position: Position(data + parity),
            drains: settings.layout.has_slots(),
            version: 0,
            next_read: 0,
            answers: map(),
        })
    }

    fn key(stripe: u32) -> Key {
        let stripe = Stripe(stripe);
        Key {
            list: ListId(0),
            stripe,
        }
    }

    fn next_content(&mut self) -> Content {
        self.version += 1;
        Content {
            versions: Box::new([Version(self.version)]),
            sums: Box::new([0]),
        }
    }

    /// Stores the data of a message in memory. [`LogNode::turn`] writes what is due.
    pub(super) fn keep(&mut self, ask: &Ask) -> io::Result<()> {
        match ask {
            Ask::PutParity(stripe, chunk) => {
                let content = self.next_content();
                self.log.put(Self::key(*stripe), self.position, content, chunk.clone());
                Ok(())
            }
            Ask::Delta {
                stripe,
                index,
                offset,
                xor,
            } => {
                // The delta is the same for all log nodes; each multiplies it by its own coefficient (Property 1).
                let mut product = vec![0; xor.len()];
                let coefficient = self.coefficients.get(usize::from(*index)).copied();
                paritas_code::mul_add(coefficient.unwrap_or_default(), xor, &mut product);
                let mut extents = Extents::default();
                extents.fold(*offset as usize, &product);
                let content = self.next_content();
                let is_here = self.log.fold(Self::key(*stripe), content, extents);
                is_here
                    .then_some(())
                    .ok_or_else(|| super::missing("a logged parity chunk"))
            }
            _ => Err(io::Error::other("a log node stores parity only")),
        }
    }

    /// Counts of its log so far.
    pub fn counters(&self) -> Counters {
        self.log.counters()
    }

    /// Its chunk of a stripe, including the waiting deltas.
    pub(super) fn read(&mut self, stripe: u32) -> io::Result<Option<Vec<u8>>> {
        let number = self.next_read;
        self.next_read += 1;
        let mut out = Vec::new();
        self.log.read(Self::key(stripe), number, &mut out);
        self.run(out)?;
        self.take_answers();
        Ok(self.answers.remove(&number).flatten())
    }

    /// Does the disk work that is due.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        self.log.turn(&mut out);
        self.run(out)
    }

    fn run(&mut self, mut out: Vec<Io>) -> io::Result<()> {
        while !out.is_empty() {
            for io in core::mem::take(&mut out) {
                let outcome = self.disk.run(&io);
                self.log
                    .done(io.id, outcome.as_ref().map(Clone::clone).map_err(|_| Bad), &mut out);
                outcome?;
            }
            if out.is_empty() {
                self.log.turn(&mut out);
            }
        }
        Ok(())
    }

    fn take_answers(&mut self) {
        for (number, found) in self.log.take_answers() {
            self.answers.insert(number, found.map(|(_, bytes)| bytes));
        }
    }

    /// Brings all data to its final place.
    pub(super) fn settle_all(&mut self) -> io::Result<Counters> {
        // The amount to drain is bounded, so each turn of this loop leaves less.
        loop {
            let before = self.log.counters();
            let mut out = Vec::new();
            self.log.flush(&mut out);
            self.run(core::mem::take(&mut out))?;
            if self.drains {
                self.log.drain(&mut out);
                self.run(out)?;
            }
            if self.log.counters() == before {
                return Ok(before);
            }
        }
    }
}

impl Peer for LogNode {
    fn send(&mut self, ask: &Ask) -> io::Result<()> {
        match ask {
            Ask::GetParity(_) => Ok(()),
            _ => {
                self.keep(ask)?;
                self.turn()
            }
        }
    }

    fn receive(&mut self, ask: &Ask) -> io::Result<Option<Vec<u8>>> {
        match ask {
            Ask::GetParity(stripe) => self.read(*stripe),
            _ => Ok(None),
        }
    }

    fn settle(&mut self) -> io::Result<Counters> {
        self.settle_all()
    }

    fn set_access(&mut self, access: Duration) -> io::Result<()> {
        self.disk.settings.access = access;
        Ok(())
    }
}
