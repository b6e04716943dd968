//! Where a log node keeps its parity chunks: on its disk, all of them (P11.1). What the protocol asks of a
//! chunk, versions and sums, stays in memory in the parity table; bytes are folded into what waits to be written, and
//! read back for whoever asks.
//!
//! A delta counts as soon as it is here, before it is on the disk (P11.4): the disk spares memory and makes a return
//! cheap, no more.

use crate::interface::Out;
use paritas_base::{Epoch, Incarnation, ListId, Map, NodeId, Position, Span, Stripe, Time, map};
use paritas_paritylog::{Content, Io, IoId, Key, Outcome, ParityLog};
use paritas_store::{Budget, Part, Purpose};

/// The log of a node, and who waits for what is read from it.
#[derive(Debug)]
pub(crate) struct DiskLog {
    pub(crate) log: ParityLog,
    /// For the driver, once the event at hand is done with.
    ios: Vec<Io>,
    /// Chunks that are being read, under which number; and for whom.
    reading: Map<Key, u64>,
    reads: Map<u64, (Key, Vec<Wanted>)>,
    /// All who wait.
    wanted: usize,
    next_read: u64,
    /// Counts chunks and decides who may take one. Valid chunks of all positions count as used.
    budget: Budget,
    /// Some position does not know yet what it has to refill.
    learns: bool,
    /// Lists of positions that were lost, whose chunks are kept until then.
    kept: Vec<(ListId, Time)>,
    flush_at: Time,
    /// Acks are held back.
    was_full: bool,
}

/// Questions for chunks at once at most: each is memory, and peers ask for as many as they like.
const READS_MAX: usize = 1024;
/// Of what is free a list may be granted one chunk in so many ahead of use; and only so many while some position does
/// not know what it will need.
const AHEAD_SHARE: u32 = 16;
const AHEAD_LEARNING_MAX: u32 = 2;

/// Who wants a chunk.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// An owner that brings one of its own back (P5.7a), or a member that fills.
    Parity {
        list: ListId,
        x: Position,
        to: (NodeId, Incarnation),
        epoch: Epoch,
        id: u64,
        stripe: Stripe,
    },
    /// The scrub.
    Check { list: ListId, stripe: Stripe },
}

/// A finished read: who asked for the chunk, and the chunk unless it is unreadable.
pub(crate) type Read = (Vec<Wanted>, Option<(Content, Vec<u8>)>);

impl DiskLog {
    /// A log, with what an earlier incarnation has left in it. What no position wants is dropped at `until`.
    pub(crate) fn new(log: ParityLog, until: Time) -> Self {
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
            learns: false,
            kept: lists.into_iter().map(|list| (list, until)).collect(),
            flush_at: Time(u64::MAX),
            was_full: false,
        }
    }

    /// What it takes of memory, and, with as much waiting as may, what it will.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.log.buffered_bytes() as u64 + self.log.table_bytes()
    }

    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.log.buffer_max_bytes() as u64 + self.log.table_bytes()
    }

    /// Counts chunks and decides who may take one. Chunks kept of lost positions do not count as used.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// [`Budget::set_backlog`]. `learns`: some position does not know its backlog yet.
    pub(crate) fn set_backlog(&mut self, chunks: u32, learns: bool) {
        self.budget.set_backlog(chunks);
        self.learns = learns;
    }

    /// Chunks that a list may be granted ahead of use which has so many set aside. Beside what its lists ask for a disk
    /// may be small: who comes first must not be given what the others cannot do without.
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

    /// [`Budget::take`] for a chunk that becomes valid. Drops chunks kept of lost positions while the log is full.
    pub(crate) fn take(&mut self, from: Part) -> bool {
        if !self.budget.take(from) {
            return false;
        }
        while self.log.chunks() >= self.log.chunks_max() as usize && !self.kept.is_empty() {
            let (list, _) = self.kept.remove(0);
            self.drop_list(list);
        }
        true
    }

    /// [`Budget::give`] for chunks that stop being valid.
    pub(crate) fn give(&mut self, chunks: u32, to: Part) {
        self.budget.give(chunks, to);
    }

    /// A position is lost: its chunks may be of use should it come back (P6.7).
    pub(crate) fn keep(&mut self, list: ListId, until: Time) {
        self.begin(list, false);
        self.kept.push((list, until));
    }

    /// A position of this list is here from now on, and says itself what becomes of chunks that are: of a list that
    /// began empty there can be none.
    pub(crate) fn begin(&mut self, list: ListId, born: bool) {
        self.kept.retain(|(kept, _)| *kept != list);
        if born {
            self.drop_list(list);
        }
    }

    /// Nothing here of this list is to be used.
    pub(crate) fn drop_list(&mut self, list: ListId) {
        self.begin(list, false);
        for key in self.log.keys_of(list) {
            self.log.remove(key);
        }
    }

    /// Reads a chunk, for `wanted`, once for all who want it meanwhile: the log gives it as it is in the end. False,
    /// and nothing done, if as many wait as may.
    pub(crate) fn read(&mut self, key: Key, wanted: Wanted) -> bool {
        if self.wanted >= READS_MAX {
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

    /// The driver has done something.
    pub(crate) fn on_done(&mut self, id: IoId, outcome: Outcome) {
        self.log.done(id, outcome, &mut self.ios);
    }

    /// What was asked for and is there.
    pub(crate) fn take_reads(&mut self) -> Vec<Read> {
        let mut reads = Vec::new();
        for (number, answer) in self.log.take_answers() {
            let Some((key, all)) = self.reads.remove(&number) else {
                continue;
            };
            self.reading.remove(&key);
            self.wanted -= all.len();
            reads.push((all, answer));
        }
        reads
    }

    /// Whether acks must wait, for more waits to be written than may (P11.2).
    pub(crate) fn holds_acks(&mut self) -> bool {
        let is_full = self.log.is_full();
        self.was_full |= is_full;
        is_full
    }

    /// Whether acks that had to wait may leave.
    pub(crate) fn frees_acks(&mut self) -> bool {
        let frees = self.was_full && !self.log.is_full();
        self.was_full &= !frees;
        frees
    }

    /// Begins what is due: much is written when much waits, and all of it when none has come for a while.
    pub(crate) fn on_turn_end(&mut self, now: Time, flush_after: Span) {
        while let Some(at) = self.kept.iter().position(|(_, until)| *until <= now) {
            let (list, _) = self.kept.remove(at);
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
        self.kept.iter().map(|(_, until)| *until).chain([self.flush_at]).min()
    }

    /// Hands the driver what it is to do.
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
        // Nobody knew of these when it was granted.
        assert!((0..max).all(|_| disk.take(Part::Free)), "it may never be used");
        assert!(!disk.take(Part::Free), "there are no more");
        assert!(disk.take(Part::Reserved), "what was granted is not refused");
    }
}
