//! A log node: one parity chunk of every stripe, and deltas to them, in a [`ParityLog`] over two files (LogECMem §4.3).

use super::network::{Ask, Peer};
use paritas_base::{ListId, Map, Position, Stripe, map};
use paritas_code::Code;
use paritas_paritylog::{Bad, Content, Counters, Extents, Io, Key, ParityLog, Settings, Space, Work};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What direct I/O wants buffers, addresses and lengths to be multiples of.
const BLOCK_BYTES: usize = 4096;

/// What its disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Memory, where accesses are counted and nothing else.
    Memory,
    /// Files.
    Cached,
    /// Files, past the page cache if the file system can.
    Direct,
}

/// How its disk is used.
#[derive(Clone, Copy, Debug)]
pub struct DiskSettings {
    /// What it is.
    pub medium: Medium,
    /// So long each read and write takes at least, as on a disk of so many a second.
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
    /// Its files have no name: they go when it goes.
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

/// As direct I/O wants it. Writes are whole blocks already; of reads, those around what is wanted.
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

/// Bytes from the beginning of a buffer to its first whole block.
fn to_block(bytes: &[u8]) -> usize {
    bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES)
}

/// The node itself.
#[derive(Debug)]
pub struct LogNode {
    log: ParityLog,
    disk: Disk,
    /// By data chunk.
    coefficients: Vec<u8>,
    position: Position,
    /// What is appended goes to slots in the end.
    drains: bool,
    next_read: u64,
    answers: Map<u64, Option<Vec<u8>>>,
}

impl LogNode {
    /// That has the parity chunk of so many before it in a stripe.
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

    /// Keeps what a message brings. It is in memory then; [`LogNode::turn`] writes what is due.
    fn keep(&mut self, ask: &Ask) -> io::Result<()> {
        match ask {
            Ask::PutParity(stripe, chunk) => {
                let content = Content::default();
                self.log.put(Self::key(*stripe), self.position, content, chunk.clone());
                Ok(())
            }
            Ask::Delta {
                stripe,
                index,
                offset,
                xor,
            } => {
                // Its own coefficient times the delta that all get (Property 1).
                let mut product = vec![0; xor.len()];
                let coefficient = self.coefficients.get(usize::from(*index)).copied();
                paritas_code::mul_add(coefficient.unwrap_or_default(), xor, &mut product);
                let mut extents = Extents::default();
                extents.fold(*offset as usize, &product);
                let is_here = self.log.fold(Self::key(*stripe), Content::default(), extents);
                is_here
                    .then_some(())
                    .ok_or_else(|| super::missing("a logged parity chunk"))
            }
            _ => Err(io::Error::other("a log node keeps parity alone")),
        }
    }

    /// Its chunk as it is now.
    fn read(&mut self, stripe: u32) -> io::Result<Option<Vec<u8>>> {
        let number = self.next_read;
        self.next_read += 1;
        let mut out = Vec::new();
        self.log.read(Self::key(stripe), number, &mut out);
        self.run(out)?;
        self.take_answers();
        Ok(self.answers.remove(&number).flatten())
    }

    /// Does what is due on the disk.
    fn turn(&mut self) -> io::Result<()> {
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

    /// All it has comes to its place.
    fn settle_all(&mut self) -> io::Result<Counters> {
        // What is drained is bounded, so that each turn of this loop leaves less.
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

/// What goes over the socket to a log node's thread: kind, data chunk, stripe, offset, length.
const HEAD_BYTES: usize = 14;
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
const PUT: u8 = 0;
const DELTA: u8 = 1;
const GET: u8 = 2;
const SETTLE: u8 = 3;
const ACCESS: u8 = 4;

/// A log node on a thread of its own, at the other end of a socket. A message is answered when it is in memory; what
/// is due on the disk is done afterwards (§3.3.2).
#[derive(Debug)]
pub struct LogThread {
    socket: UnixStream,
}

impl LogThread {
    /// Begins it; it ends when this is dropped.
    pub fn start(node: LogNode) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        std::thread::spawn(move || {
            // An error closes the socket: whoever waits is told.
            let _ = serve(node, theirs);
        });
        Ok(Self { socket: ours })
    }

    fn write_message(&mut self, (kind, index): (u8, u8), stripe: u32, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let mut message = Vec::with_capacity(HEAD_BYTES + bytes.len());
        message.extend_from_slice(&[kind, index]);
        message.extend_from_slice(&stripe.to_le_bytes());
        message.extend_from_slice(&offset.to_le_bytes());
        message.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        message.extend_from_slice(bytes);
        self.socket.write_all(&message)
    }

    fn read_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        read_payload(&mut self.socket).map(|bytes| Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

fn serve(mut node: LogNode, mut socket: UnixStream) -> io::Result<()> {
    loop {
        let mut head = [0; HEAD_BYTES - 4];
        socket.read_exact(&mut head)?;
        let bytes = read_payload(&mut socket)?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (stripe, offset, index) = (number(2), number(6), head[1]);
        let answer = match head[0] {
            PUT => node.keep(&Ask::PutParity(stripe, bytes)).map(|()| Vec::new())?,
            DELTA => {
                let xor = bytes;
                let delta = Ask::Delta {
                    stripe,
                    index,
                    offset,
                    xor,
                };
                node.keep(&delta).map(|()| Vec::new())?
            }
            GET => node.read(stripe)?.unwrap_or_default(),
            ACCESS => {
                node.set_access(Duration::from_micros(u64::from(offset)))?;
                Vec::new()
            }
            _ => words(node.settle_all()?),
        };
        socket.write_all(&(answer.len() as u32).to_le_bytes())?;
        socket.write_all(&answer)?;
        node.turn()?;
    }
}

fn read_payload(socket: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > PAYLOAD_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn words(c: Counters) -> Vec<u8> {
    let all = [c.writes, c.write_bytes, c.reads, c.read_bytes, c.folded, c.compacted];
    all.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn counters(bytes: &[u8]) -> Option<Counters> {
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_le_bytes).ok());
    let mut next = || words.next().flatten();
    Some(Counters {
        writes: next()?,
        write_bytes: next()?,
        reads: next()?,
        read_bytes: next()?,
        folded: next()?,
        compacted: next()?,
    })
}

impl Peer for LogThread {
    fn send(&mut self, ask: &Ask) -> io::Result<()> {
        match ask {
            Ask::PutParity(stripe, chunk) => self.write_message((PUT, 0), *stripe, 0, chunk),
            Ask::Delta {
                stripe,
                index,
                offset,
                xor,
            } => self.write_message((DELTA, *index), *stripe, *offset, xor),
            Ask::GetParity(stripe) => self.write_message((GET, 0), *stripe, 0, &[]),
            _ => Err(io::Error::other("a log node keeps parity alone")),
        }
    }

    fn receive(&mut self, _: &Ask) -> io::Result<Option<Vec<u8>>> {
        self.read_message()
    }

    fn settle(&mut self) -> io::Result<Counters> {
        self.write_message((SETTLE, 0), 0, 0, &[])?;
        let answer = self.read_message()?.unwrap_or_default();
        counters(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn set_access(&mut self, access: Duration) -> io::Result<()> {
        self.write_message((ACCESS, 0), 0, access.as_micros() as u32, &[])?;
        self.read_message().map(drop)
    }
}
