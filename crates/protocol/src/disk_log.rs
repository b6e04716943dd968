//! The parity chunks of a log node, and its units of large values: all of them are on its disk (P11.1, P11.5). The
//! versions and sums of a chunk stay in memory, in the parity table; names and sums of units, in the keepers of parts.
//! Deltas are folded into bytes that wait to be written. Chunks are read back on request.
//!
//! A delta counts when this node has received it, before it is on the disk (P11.4). The disk only saves memory, and
//! saves a refill when the position comes back.

use crate::interface::Out;
use paritas_base::{Epoch, Incarnation, ListId, Map, NodeId, Position, Span, Stripe, Time, map};
use paritas_large::PartId;
use paritas_paritylog::{Content, Extents, Io, IoId, Key, Outcome, ParityLog};
use paritas_store::{Budget, Part, Purpose};

/// The log of a node, its budget, and the reads under way.
#[derive(Debug)]
pub(crate) struct DiskLog {
    pub(crate) log: ParityLog,
    /// I/O that the driver gets at the end of the event.
    ios: Vec<Io>,
    /// The number of the read of each chunk that is being read.
    reading: Map<Key, u64>,
    /// By number: the chunk, and the requests that the read answers.
    reads: Map<u64, (Key, Vec<Wanted>)>,
    /// Requests that wait for a read.
    wanted: usize,
    next_read: u64,
    /// The number of the next unit. Numbers begin again at 0 behind the last one.
    next_unit: u32,
    /// Units of large values.
    units: u32,
    /// Counts chunks and decides who may take one. Valid chunks of all positions count as used, and units.
    budget: Budget,
    /// Some position does not know yet what it has to refill.
    learns: bool,
    /// Lists of lost positions, and until when their chunks are cached.
    cached: Vec<(ListId, Time)>,
    /// When bytes that wait are written although they are few; `Time(u64::MAX)`: none wait.
    flush_at: Time,
    /// Acks are held back.
    was_full: bool,
}

/// The most requests that wait for reads. Each takes memory, and peers choose how many they send.
const READS_MAX: usize = 1024;
/// A list may be granted one in this many of the available chunks ahead of use.
const AHEAD_SHARE: u32 = 16;
/// The most chunks that a list is granted ahead of use while some position does not know its backlog.
const AHEAD_LEARNING_MAX: u32 = 2;

/// A request for a chunk.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// From an owner that reconstructs a chunk of its stream (P5.7a), or from a member that refills.
    Parity {
        list: ListId,
        x: Position,
        to: (NodeId, Incarnation),
        epoch: Epoch,
        id: u64,
        stripe: Stripe,
    },
    /// From the scrub of this node.
    Check { list: ListId, stripe: Stripe },
    /// A unit of a large value, from an owner or a holder; from the scrub of this node, if `to` is `None`.
    Unit {
        id: PartId,
        unit: u32,
        to: Option<(NodeId, Incarnation, u64)>,
    },
}

/// A finished read: the chunk, who asked for it, and its bytes unless they are unreadable.
pub(crate) type Read = (Key, Vec<Wanted>, Option<(Content, Vec<u8>)>);

impl DiskLog {
    /// Of a log, which may have chunks of an earlier incarnation. Those that no position takes up are dropped at
    /// `until`. Its units are dropped at once: they belonged to a tenure that is over (P14.4).
    pub(crate) fn new(mut log: ParityLog, until: Time) -> Self {
        let mut units: Vec<Key> = log.keys().filter(|key| key.is_unit()).collect();
        // Slots are used again in the order in which they become free.
        units.sort_unstable();
        units.into_iter().for_each(|key| log.remove(key));
        let mut lists = log.lists();
        lists.sort_unstable();
        Self {
            budget: Budget::of_disk(log.chunks_max()),
            log,
            ios: Vec::new(),
            reading: map(),
            reads: map(),
            wanted: 0,
            next_read: 0,
            next_unit: 0,
            units: 0,
            learns: false,
            cached: lists.into_iter().map(|list| (list, until)).collect(),
            flush_at: Time(u64::MAX),
            was_full: false,
        }
    }

    /// Memory of buffers and tables, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.log.buffered_bytes() as u64 + self.log.table_bytes()
    }

    /// The same when the buffers are full.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.log.buffer_max_bytes() as u64 + self.log.table_bytes()
    }

    /// Counts chunks and decides who may take one. Cached chunks of lost positions do not count as
    /// used.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// [`Budget::set_backlog`]. `learns`: some position does not know its backlog yet.
    pub(crate) fn set_backlog(&mut self, chunks: u32, learns: bool) {
        self.budget.set_backlog(chunks);
        self.learns = learns;
    }

    /// Chunks that a list with `reserved` chunks may be granted ahead of use. A disk may be small beside what its lists
    /// ask for: the first to ask must not get chunks that the others need.
    pub(crate) fn ahead_max(&self, reserved: u32) -> u32 {
        let share = (self.budget.available(Purpose::Write) + reserved).div_ceil(AHEAD_SHARE);
        if self.learns {
            share.min(AHEAD_LEARNING_MAX)
        } else {
            share
        }
    }

    /// [`Budget::reserve`].
    pub(crate) fn reserve(&mut self, chunks: u32, of_backlog: u32) -> bool {
        self.budget.reserve(chunks, of_backlog)
    }

    /// [`Budget::unreserve`].
    pub(crate) fn unreserve(&mut self, chunks: u32) {
        self.budget.unreserve(chunks);
    }

    /// [`Budget::take`] for a chunk that becomes valid. Drops cached chunks of lost positions while the log is full.
    pub(crate) fn take(&mut self, from: Part) -> bool {
        if !self.budget.take(from) {
            return false;
        }
        while self.log.chunks() >= self.log.chunks_max() as usize && !self.cached.is_empty() {
            let (list, _) = self.cached.remove(0);
            self.drop_list(list);
        }
        true
    }

    /// [`Budget::give`] for chunks that stop being valid.
    pub(crate) fn give(&mut self, chunks: u32, to: Part) {
        self.budget.give(chunks, to);
    }

    /// A position is lost: its chunks are cached in case it comes back (P6.7).
    pub(crate) fn keep(&mut self, list: ListId, until: Time) {
        self.begin(list, false);
        self.cached.push((list, until));
    }

    /// A position of this list begins here, and decides from now on about the chunks that are here. None of them can be
    /// of a list that begins empty (`born`).
    pub(crate) fn begin(&mut self, list: ListId, born: bool) {
        self.cached.retain(|(cached, _)| *cached != list);
        if born {
            self.drop_list(list);
        }
    }

    /// Drops all chunks of this list. Its units are dropped by those who have stored them.
    pub(crate) fn drop_list(&mut self, list: ListId) {
        self.begin(list, false);
        for key in self.chunks_of(list) {
            self.log.remove(key);
        }
    }

    /// The parity chunks of this list, in order.
    pub(crate) fn chunks_of(&self, list: ListId) -> Vec<Key> {
        let keys = self.log.keys_of(list).into_iter();
        keys.filter(|key| !key.is_unit()).collect()
    }

    /// Stores a unit of a large value that a position keeps. `None` if the disk has no space for it.
    pub(crate) fn store_unit(&mut self, list: ListId, position: Position, bytes: &[u8]) -> Option<Key> {
        if self.units == Key::UNIT_BIT - 1 || !self.take(Part::Free) {
            return None;
        }
        self.units += 1;
        Some(self.write_unit(list, position, bytes))
    }

    /// Writes a unit that has its space already.
    pub(crate) fn write_unit(&mut self, list: ListId, position: Position, bytes: &[u8]) -> Key {
        let key = self.free_key(list);
        self.log
            .put_extents(key, position, Content::default(), Extents::whole(bytes.to_vec()));
        key
    }

    /// Units that may be stored for parts that are made. What refills of parity still need is left to them.
    pub(crate) fn room_for_making(&self) -> u32 {
        if self.learns { 0 } else { self.budget.unclaimed() }
    }

    /// A key that no unit has.
    fn free_key(&mut self, list: ListId) -> Key {
        loop {
            let key = Key::of_unit(list, self.next_unit);
            self.next_unit = (self.next_unit + 1) % Key::UNIT_BIT;
            if self.log.position(key).is_none() && !self.reading.contains_key(&key) {
                return key;
            }
        }
    }

    /// Gives the space of a unit back; `None` if the disk has lost it.
    pub(crate) fn free_unit(&mut self, key: Option<Key>) {
        if let Some(key) = key {
            self.log.remove(key);
        }
        self.units -= 1;
        self.give(1, Part::Free);
    }

    /// Reads a chunk for `wanted`. One read answers every request that arrives during it: the log gives the chunk as it
    /// is at the end of the read. False, and nothing is done, if `READS_MAX` requests wait; for a unit, half of that.
    pub(crate) fn read(&mut self, key: Key, wanted: Wanted) -> bool {
        let most = if key.is_unit() { READS_MAX / 2 } else { READS_MAX };
        if self.wanted >= most {
            return false;
        }
        self.wanted += 1;
        if let Some((_, all)) = self.reading.get(&key).and_then(|number| self.reads.get_mut(number)) {
            all.push(wanted);
            return true;
        }
        self.next_read += 1;
        self.reading.insert(key, self.next_read);
        self.reads.insert(self.next_read, (key, vec![wanted]));
        self.log.read(key, self.next_read, &mut self.ios);
        true
    }

    /// The driver has finished an I/O.
    pub(crate) fn on_done(&mut self, id: IoId, outcome: Outcome) {
        self.log.done(id, outcome, &mut self.ios);
    }

    /// Takes the finished reads.
    pub(crate) fn take_reads(&mut self) -> Vec<Read> {
        let mut reads = Vec::new();
        for (number, answer) in self.log.take_answers() {
            let Some((key, all)) = self.reads.remove(&number) else {
                continue;
            };
            self.reading.remove(&key);
            self.wanted -= all.len();
            reads.push((key, all, answer));
        }
        reads
    }

    /// Whether acks must wait because too many bytes wait to be written (P11.2).
    pub(crate) fn holds_acks(&mut self) -> bool {
        let is_full = self.log.is_full();
        self.was_full |= is_full;
        is_full
    }

    /// Whether acks that had to wait may leave: true once, after the log has caught up.
    pub(crate) fn frees_acks(&mut self) -> bool {
        let frees = self.was_full && !self.log.is_full();
        self.was_full &= !frees;
        frees
    }

    /// Begins the writes that are due: when enough bytes wait, and at the latest `flush_after` after bytes began to
    /// wait.
    pub(crate) fn on_turn_end(&mut self, now: Time, flush_after: Span) {
        while let Some(at) = self.cached.iter().position(|(_, until)| *until <= now) {
            let (list, _) = self.cached.remove(at);
            self.drop_list(list);
        }
        if now >= self.flush_at {
            self.flush_at = Time(u64::MAX);
            self.log.flush(&mut self.ios);
        } else if self.log.waiting_bytes() > 0 && self.flush_at == Time(u64::MAX) {
            self.flush_at = now + flush_after;
        }
        self.log.turn(&mut self.ios);
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.cached.iter().map(|(_, until)| *until).chain([self.flush_at]).min()
    }

    /// Gives the driver its I/O.
    pub(crate) fn hand_over(&mut self, out: &mut impl Out) {
        for io in self.ios.drain(..) {
            out.disk(io);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_paritylog::{Layout, Settings};

    #[test]
    fn a_refill_comes_to_its_end_although_all_is_granted_and_no_more_is_granted_meanwhile() {
        let settings = Settings {
            layout: Layout::Plm,
            chunk_bytes: 64,
            data_max: 2,
            block_bytes: 1,
            reserve_bytes: 64,
            slots_max: 400,
            log_bytes: 1 << 16,
            flush_bytes: 64,
            buffer_max_bytes: 1 << 10,
        };
        let mut disk = DiskLog::new(ParityLog::new(settings, 1), Time(0));
        let max = disk.log.chunks_max();
        disk.set_backlog(100, false);
        let granted = disk.budget().available(Purpose::Write);
        assert!(granted < max - 100 && disk.reserve(granted, 0) && !disk.reserve(1, 0));
        assert!(
            disk.reserve(40, 40) && disk.reserve(60, 100) && !disk.reserve(1, 100),
            "of the backlog"
        );
        // These chunks were not known when the others were granted.
        assert!((0..max).all(|_| disk.take(Part::Free)), "it may never be used");
        assert!(!disk.take(Part::Free), "there are no more");
        assert!(disk.take(Part::Reserved), "what was granted is not refused");
    }
}
