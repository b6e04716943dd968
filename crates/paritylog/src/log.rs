//! Data that waits in memory, data being written, and the places of each chunk's records.

mod chain;
mod disk_slots;
mod drain;
mod flush;
mod gather;
mod waiting;

pub(crate) use chain::{Chain, InSlot, Logged};
pub use waiting::Change;

use crate::record::{Content, Key};
use crate::{Settings, Space};
use chain::{Entry, To, Written};
use core::ops::Sub;
use gather::{Gathering, Why};
use paritas_base::{ListId, Map, Position, Set, map, set};
use std::collections::{BTreeMap, VecDeque};

/// Identifies a read or a write under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IoId(pub u64);

/// A read or a write for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Io {
    /// To be returned with the outcome.
    pub id: IoId,
    /// The address space.
    pub space: Space,
    /// The first address.
    pub at: u64,
    /// What to do.
    pub work: Work,
}

/// A read or a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Reads this many bytes. Bytes that were never written may have any value.
    Read(usize),
    /// Writes these bytes.
    Write(Vec<u8>),
}

/// The result: the bytes read, nothing for a write, or an error of the disk.
pub type Outcome = Result<Vec<u8>, Bad>;

/// The disk reported an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bad;

/// Counts since the start, for operators and for the experiments of LogECMem §6.3.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Deltas that were folded into another one before they were written after their chunk.
    pub folded: u64,
    /// Chunks rewritten because their reserved space was full.
    pub compacted: u64,
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            write_bytes: self.write_bytes - before.write_bytes,
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            folded: self.folded - before.folded,
            compacted: self.compacted - before.compacted,
        }
    }
}

#[derive(Debug)]
enum Task {
    /// One of the writes of a flush.
    Flush,
    /// One of the reads of a gathering.
    Gather(u64, usize),
    /// A read of the oldest part of the log area.
    Drain(u64),
    /// A write of a record that replaces all records of its chunk in the log area up to a number.
    Settle {
        written: Written,
        drains: bool,
        compacts: bool,
    },
}

/// The parity chunks of one log node.
#[derive(Debug)]
pub struct ParityLog {
    settings: Settings,
    /// A random number drawn when the log was made.
    log: u32,
    chains: Map<Key, Chain>,
    /// Entries that wait, in the order of arrival. If entries are folded, there is one for each key.
    waiting: Vec<Entry>,
    waiting_bytes: usize,
    newest: Map<Key, usize>,
    /// Entries being written. There is one flush at a time, so that a chunk's records are written in order.
    flushing: Vec<Written>,
    flushing_bytes: usize,
    flush_left: usize,
    gatherings: Map<u64, Gathering>,
    /// For each chunk, the number of gatherings that answer a request.
    asked: Map<Key, usize>,
    /// Chunks whose slots are full. Each is rewritten once nothing of it is under way.
    full: VecDeque<Key>,
    compacting: usize,
    /// Number of chunks being read in order to be appended whole.
    rewriting: usize,
    draining: bool,
    drain_left: usize,
    /// Records in the log area that are still needed, by address. Addresses only grow.
    logged: BTreeMap<u64, Key>,
    tail: u64,
    free_slots: Vec<u32>,
    next_slot: u32,
    /// Number of writes under way in each slot. A slot that was given up becomes free once they are done.
    writing: Map<u32, usize>,
    given_up: Set<u32>,
    /// An entry found no slot: draining waits until one is free.
    no_slot: bool,
    next_number: u64,
    next_id: u64,
    tasks: Map<IoId, Task>,
    answers: Vec<Answer>,
    bad: Vec<Key>,
    failed: bool,
    counters: Counters,
}

/// An answer to a request with a number, given once: the chunk and what it stands for, or `None` if it cannot be read.
pub type Answer = (u64, Option<(Content, Vec<u8>)>);

/// Number of record numbers skipped at a restart: more than can be under way at once, or are in a slot.
const NUMBERS_SKIPPED: u64 = 1 << 32;
/// Number of processes with different numbers. At this value, the numbers of a log last for half a million restarts on
/// average.
const LIVES_TOLD_APART: u16 = 1 << 12;
/// Fill of the log area, in quarters, at which draining begins.
const DRAIN_FROM: u64 = 2;
/// Most bytes that are read back at once.
const DRAIN_BYTES_MAX: u64 = 8 << 20;

impl ParityLog {
    /// An empty log. `log` must be a number that no earlier log on this disk had.
    pub fn new(settings: Settings, log: u32) -> Self {
        Self {
            settings,
            log,
            chains: map(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            newest: map(),
            flushing: Vec::new(),
            flushing_bytes: 0,
            flush_left: 0,
            gatherings: map(),
            asked: map(),
            full: VecDeque::new(),
            compacting: 0,
            rewriting: 0,
            draining: false,
            drain_left: 0,
            logged: BTreeMap::new(),
            tail: 0,
            free_slots: Vec::new(),
            next_slot: 0,
            writing: map(),
            given_up: set(),
            no_slot: false,
            next_number: 1,
            next_id: 0,
            tasks: map(),
            answers: Vec::new(),
            bad: Vec::new(),
            failed: false,
            counters: Counters::default(),
        }
    }

    /// A log with the chunks that an earlier process left. Numbers, addresses of the log area and slots continue after
    /// those found.
    pub(crate) fn resumed(
        settings: Settings,
        log: u32,
        chains: Map<Key, Chain>,
        (newest, tail, slots_end): (u64, u64, u32),
        incarnation: u16,
    ) -> Self {
        let in_use: Set<u32> = chains.values().filter_map(|chain| Some(chain.slot?.slot)).collect();
        let pieces = chains
            .iter()
            .flat_map(|(key, chain)| chain.logged.iter().map(|piece| (piece.at, *key)));
        let mut resumed = Self {
            logged: pieces.collect(),
            free_slots: (0..slots_end).filter(|slot| !in_use.contains(slot)).collect(),
            next_slot: slots_end,
            tail,
            // After a lost record there may be others that were not found, some of them of a process of which nothing
            // was found. The skip makes it improbable that two processes use the same numbers.
            next_number: newest + NUMBERS_SKIPPED * (1 + u64::from(incarnation % LIVES_TOLD_APART)),
            ..Self::new(settings, log)
        };
        resumed.chains = chains;
        // Each chain gets its own number, so that records of an earlier chain with the same key are not mistaken for
        // its own.
        let mut keys: Vec<Key> = resumed.chains.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            if let Some(chain) = resumed.chains.get_mut(&key) {
                chain.born = resumed.next_number;
                resumed.next_number += 1;
            }
        }
        resumed
    }

    /// The counts since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes that wait or are being written.
    pub fn buffered_bytes(&self) -> usize {
        self.waiting_bytes + self.flushing_bytes
    }

    /// Bytes that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Most bytes that may wait or be written.
    pub fn buffer_max_bytes(&self) -> usize {
        self.settings.buffer_max_bytes
    }

    /// The lists that have chunks here, in no order.
    pub fn lists(&self) -> Vec<ListId> {
        let lists: Set<ListId> = self.chains.keys().map(|key| key.list).collect();
        lists.into_iter().collect()
    }

    /// Whether no more should be given to the log for now.
    pub fn is_full(&self) -> bool {
        self.buffered_bytes() >= self.settings.buffer_max_bytes
    }

    /// Whether the disk has failed: nothing more is written or read.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Whether there are more chunks than slots; those without a slot wait.
    pub fn is_out_of_slots(&self) -> bool {
        self.no_slot
    }

    /// Whether nothing waits or is under way.
    pub fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && self.waiting.is_empty() && self.full.is_empty()
    }

    /// Number of chunks here.
    pub fn chunks(&self) -> usize {
        self.chains.len()
    }

    /// Most chunks that fit.
    pub fn chunks_max(&self) -> u32 {
        self.settings.chunks_max()
    }

    /// Whether the log area is so full that it is being drained. Then only records that free space are written.
    pub(crate) fn is_short(&self) -> bool {
        self.in_use() * 4 > self.settings.log_bytes * DRAIN_FROM
    }

    /// Number of records in the log area that are still needed.
    pub(crate) fn records(&self) -> usize {
        self.logged.len()
    }

    /// Bytes of the tables of chunks on the disk.
    pub fn table_bytes(&self) -> u64 {
        let chain = size_of::<(Key, Chain)>() + self.settings.data_max * 12;
        let piece = size_of::<(u64, Key)>() + size_of::<Logged>();
        (self.chains.len() * chain + self.records() * piece) as u64
    }

    /// All chunks, in no order.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.chains.keys().copied()
    }

    /// The chunks of a list, in order.
    pub fn keys_of(&self, list: ListId) -> Vec<Key> {
        let mut keys: Vec<Key> = self.chains.keys().filter(|key| key.list == list).copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The parity position of a chunk.
    pub fn position(&self, key: Key) -> Option<Position> {
        self.chains.get(&key).map(|chain| chain.position)
    }

    /// The versions and sums that a chunk stands for.
    pub fn content(&self, key: Key) -> Option<&Content> {
        self.chains.get(&key).map(|chain| &chain.content)
    }

    /// Takes the answers that are ready.
    pub fn take_answers(&mut self) -> Vec<Answer> {
        core::mem::take(&mut self.answers)
    }

    /// Takes the chunks whose records were found damaged. They are no longer here.
    pub fn take_bad(&mut self) -> Vec<Key> {
        core::mem::take(&mut self.bad)
    }

    /// Removes a chunk. Its waiting entries are dropped when the others are written.
    pub fn remove(&mut self, key: Key) {
        let Some(chain) = self.chains.remove(&key) else { return };
        if let Some(InSlot { slot, .. }) = chain.slot {
            self.give_up_slot(slot);
        }
        for piece in &chain.logged {
            self.logged.remove(&piece.at);
        }
    }

    /// Requests a chunk. The answer comes under `number`, and is the chunk as of that moment.
    pub fn read(&mut self, key: Key, number: u64, out: &mut Vec<Io>) {
        if self.failed || !self.chains.contains_key(&key) {
            self.answers.push((number, None));
            return;
        }
        let above = self.above(key);
        *self.asked.entry(key).or_insert(0) += 1;
        self.gather(key, Why::Asked(number), above, out);
    }

    /// The present chunk, computed at once, for tests. `read` returns bytes of the disk.
    pub fn chunk_now(&self, key: Key, read: impl Fn(Space, u64, usize) -> Vec<u8>) -> Option<(Content, Vec<u8>)> {
        let chain = self.chains.get(&key)?;
        let above = self.above(key);
        let why = Why::Asked(0);
        let mut parts = self.parts(chain, why, above.as_ref());
        for part in &mut parts {
            part.bytes = Some(read(part.space, self.on_disk(part.space, part.at), part.length));
        }
        let found = Gathering {
            key,
            why,
            chain: chain.clone(),
            parts,
            above,
        };
        found.chunk(self.log, self.settings.chunk_bytes, self.settings.block_bytes)
    }

    /// Starts work that is due.
    pub fn turn(&mut self, out: &mut Vec<Io>) {
        if self.waiting_bytes >= self.settings.flush_bytes {
            self.flush(out);
        }
        let is_crowded = self.records() * 4 > self.settings.records_max() * 3;
        if is_crowded || self.is_short() {
            self.drain(out);
        }
        self.compact(out);
    }

    /// Takes the outcome of a read or a write.
    pub fn done(&mut self, id: IoId, outcome: Outcome, out: &mut Vec<Io>) {
        let Some(task) = self.tasks.remove(&id) else { return };
        let Ok(bytes) = outcome else {
            self.fail();
            return;
        };
        match task {
            Task::Flush => {
                self.flush_left -= 1;
                if self.flush_left == 0 {
                    self.on_flushed();
                    self.compact(out);
                }
            }
            Task::Settle {
                written,
                drains,
                compacts,
            } => {
                if let To::Slot { slot, .. } = written.to {
                    self.slot_written(slot);
                }
                self.on_settled(written, drains, compacts);
            }
            Task::Gather(gathering, n) => {
                let Some(found) = self.gatherings.get_mut(&gathering) else {
                    return;
                };
                if let Some(part) = found.parts.get_mut(n) {
                    part.bytes = Some(bytes);
                }
                if found.parts.iter().all(|part| part.bytes.is_some()) {
                    self.on_gathered(gathering, out);
                }
            }
            Task::Drain(first) => self.on_drained(first, &bytes, out),
        }
    }

    fn fail(&mut self) {
        self.failed = true;
        self.tasks.clear();
        self.asked.clear();
        for (_, gathering) in self.gatherings.drain() {
            if let Why::Asked(number) = gathering.why {
                self.answers.push((number, None));
            }
        }
        self.answers.sort_by_key(|(number, _)| *number);
    }

    fn write(&mut self, task: Task, space: Space, at: u64, bytes: Vec<u8>, out: &mut Vec<Io>) {
        self.counters.writes += 1;
        self.counters.write_bytes += bytes.len() as u64;
        self.begin(task, space, at, Work::Write(bytes), out);
    }

    fn begin_read(&mut self, task: Task, space: Space, at: u64, length: usize, out: &mut Vec<Io>) {
        // Direct I/O reads whole blocks. Excess bytes are ignored, because records state their length.
        self.counters.reads += 1;
        self.counters.read_bytes += length as u64;
        self.begin(task, space, at, Work::Read(length), out);
    }

    fn begin(&mut self, task: Task, space: Space, at: u64, work: Work, out: &mut Vec<Io>) {
        let id = IoId(self.next_id);
        self.next_id += 1;
        self.tasks.insert(id, task);
        out.push(Io { id, space, at, work });
    }
}
