//! Raw deltas of one stream, kept in order (P1.5, P1.6, P3.8). The ring is the replicated log.

use paritas_base::{Span, Term, Time, Version};
use std::collections::VecDeque;

/// One raw delta.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The term of the owner that issued it. The delta keeps it when a later owner sends it again.
    pub term: Term,
    /// Its number in the stream.
    pub seq: u64,
    /// Its extents, encoded.
    pub extents: &'a [u8],
}

impl Record<'_> {
    /// The version it leaves on chunks.
    pub fn version(&self) -> Version {
        Version::new(self.term, self.seq)
    }
}

#[derive(Debug)]
struct Entry {
    term: Term,
    at: Time,
    /// Where its extents lie in `bytes`.
    from: usize,
    to: usize,
}

/// An empty ring keeps no larger buffers than this: a node has a ring for every stream of its lists.
const KEEP_BYTES: usize = 1 << 10;

/// Consecutive deltas, oldest first: one queue of bytes, and where each delta lies in it.
#[derive(Default, Debug)]
pub struct Ring {
    entries: VecDeque<Entry>,
    /// The seq of the first entry.
    first: u64,
    /// Extents of all entries, one after the other; before them, those of deltas dropped since the last move.
    bytes: Vec<u8>,
    /// Bytes of the deltas above `stable`: counted here so that admission and trimming need not visit each delta.
    unstable_bytes: u64,
    stable: u64,
}

impl Ring {
    /// Bytes of all deltas.
    pub fn bytes(&self) -> u64 {
        (self.bytes.len() - self.head()) as u64
    }

    /// Its memory, in bytes.
    pub fn held_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()) as u64
    }

    /// Bytes of the deltas above what was marked stable.
    pub(crate) fn unstable_bytes(&self) -> u64 {
        self.unstable_bytes
    }

    /// Every member has every delta up to `stable`.
    pub(crate) fn mark_stable(&mut self, stable: u64) {
        let passed: usize = self
            .after(self.stable)
            .take_while(|r| r.seq <= stable)
            .map(|r| r.extents.len())
            .sum();
        self.unstable_bytes -= passed as u64;
        self.stable = self.stable.max(stable);
    }

    /// The oldest delta's seq.
    pub fn first(&self) -> Option<u64> {
        (!self.entries.is_empty()).then_some(self.first)
    }

    /// The newest delta's seq, if there is one; else 0 or that of a delta dropped before.
    pub(crate) fn newest(&self) -> u64 {
        (self.first + self.entries.len() as u64).saturating_sub(1)
    }

    /// The delta with this seq.
    pub fn get(&self, seq: u64) -> Option<Record<'_>> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        self.entries.get(index).map(|entry| self.record(index, entry))
    }

    /// All deltas, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Record<'_>> {
        self.after(0)
    }

    /// The deltas after `seq`, oldest first.
    pub fn after(&self, seq: u64) -> impl DoubleEndedIterator<Item = Record<'_>> {
        let skip = usize::try_from((seq + 1).saturating_sub(self.first)).unwrap_or(usize::MAX);
        let skip = skip.min(self.entries.len());
        let rest = self.entries.range(skip..).enumerate();
        rest.map(move |(i, entry)| self.record(skip + i, entry))
    }

    fn record(&self, index: usize, entry: &Entry) -> Record<'_> {
        Record {
            term: entry.term,
            seq: self.first + index as u64,
            extents: &self.bytes[entry.from..entry.to],
        }
    }

    /// Appends the next delta. It must follow the last one, unless the ring is empty.
    pub fn push(&mut self, now: Time, term: Term, seq: u64, extents: &[u8]) {
        if self.entries.is_empty() {
            self.first = seq;
        }
        debug_assert_eq!(self.first + self.entries.len() as u64, seq);
        if seq > self.stable {
            self.unstable_bytes += extents.len() as u64;
        }
        // The space of dropped deltas is used again when it is half of the buffer: on average each byte moves once at
        // most.
        let head = self.head();
        if head > 0 && head >= self.bytes.len() / 2 && self.bytes.len() + extents.len() > self.bytes.capacity() {
            self.bytes.drain(..head);
            for entry in &mut self.entries {
                entry.from -= head;
                entry.to -= head;
            }
        }
        let from = self.bytes.len();
        self.bytes.extend_from_slice(extents);
        let to = self.bytes.len();
        self.entries.push_back(Entry {
            term,
            at: now,
            from,
            to,
        });
    }

    /// Removes the newest delta, and returns its version and its extents.
    pub fn pop_newest(&mut self) -> Option<(Version, Vec<u8>)> {
        let entry = self.entries.pop_back()?;
        let record = self.record(self.entries.len(), &entry);
        let (version, extents) = (record.version(), record.extents.to_vec());
        if record.seq > self.stable {
            self.unstable_bytes -= extents.len() as u64;
        }
        self.bytes.truncate(entry.from);
        self.settle();
        Some((version, extents))
    }

    /// Drops deltas up to `stable`.
    pub fn trim(&mut self, stable: u64) {
        self.trim_history(stable, 0, Time(0), Span(0));
    }

    /// Drops deltas up to `stable`, but keeps the newest of them that are younger than `age`, up to `history_bytes`.
    pub fn trim_history(&mut self, stable: u64, history_bytes: u64, now: Time, age: Span) {
        self.mark_stable(stable);
        let mut history = self.bytes() - self.unstable_bytes;
        while let Some(oldest) = self.entries.front() {
            if self.first > stable || (history_bytes > 0 && history <= history_bytes && now - oldest.at < age) {
                break;
            }
            history = history.saturating_sub((oldest.to - oldest.from) as u64);
            self.entries.pop_front();
            self.first += 1;
        }
        self.settle();
    }

    /// Drops all deltas.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.unstable_bytes = 0;
        self.settle();
    }

    /// Frees the buffers of an empty ring: the stream is idle.
    pub(crate) fn give_back(&mut self) {
        if self.entries.is_empty() {
            self.bytes = Vec::new();
            self.entries = VecDeque::new();
        }
    }

    /// Where the bytes of the first delta begin.
    fn head(&self) -> usize {
        self.entries.front().map_or(self.bytes.len(), |entry| entry.from)
    }

    /// Shrinks the buffers of an empty ring to the size that it keeps.
    fn settle(&mut self) {
        if self.entries.is_empty() {
            self.bytes.clear();
            if self.held_bytes() > 2 * KEEP_BYTES as u64 {
                self.bytes.shrink_to(KEEP_BYTES);
                self.entries.shrink_to(KEEP_BYTES / size_of::<Entry>());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(ring: &mut Ring, seqs: core::ops::RangeInclusive<u64>) {
        for seq in seqs {
            let extents = vec![seq as u8; 1 + seq as usize % 300];
            ring.push(Time(seq), 1, seq, &extents);
        }
    }

    fn holds(ring: &Ring, seqs: core::ops::RangeInclusive<u64>) {
        let expected: Vec<u64> = seqs.collect();
        assert_eq!(ring.iter().map(|r| r.seq).collect::<Vec<_>>(), expected);
        for record in ring.iter() {
            assert_eq!(record.extents, vec![record.seq as u8; 1 + record.seq as usize % 300]);
        }
        let bytes: usize = expected.iter().map(|seq| 1 + *seq as usize % 300).sum();
        assert_eq!(ring.bytes(), bytes as u64);
    }

    #[test]
    fn deltas_keep_their_bytes_while_the_queue_moves() {
        let mut ring = Ring::default();
        let mut newest = 0;
        for stable in (0..3_000).step_by(7) {
            pushed(&mut ring, newest + 1..=stable + 40);
            newest = stable + 40;
            ring.trim(stable);
            holds(&ring, stable + 1..=newest);
            assert_eq!(ring.after(stable + 30).map(|r| r.seq).next(), Some(stable + 31));
            assert_eq!(ring.get(newest).map(|r| r.seq), Some(newest));
        }
        // Forty-odd deltas of up to 300 bytes, whatever has gone through.
        assert!(
            ring.held_bytes() < 48 << 10,
            "new deltas use the memory of dropped ones"
        );
    }

    #[test]
    fn an_empty_ring_holds_next_to_nothing() {
        let mut ring = Ring::default();
        pushed(&mut ring, 1..=5_000);
        ring.trim(5_000);
        ring.give_back();
        assert_eq!(ring.held_bytes(), 0);
        pushed(&mut ring, 5_001..=6_000);
        ring.give_back();
        holds(&ring, 5_001..=6_000);
        ring.trim(6_000);
        assert_eq!((ring.bytes(), ring.unstable_bytes(), ring.first()), (0, 0, None));
        assert!(ring.held_bytes() <= 2 * KEEP_BYTES as u64);
        pushed(&mut ring, 6_001..=6_002);
        holds(&ring, 6_001..=6_002);
    }

    #[test]
    fn the_newest_comes_off_first() {
        let mut ring = Ring::default();
        pushed(&mut ring, 1..=10);
        ring.mark_stable(8);
        for seq in [10, 9, 8] {
            let newest = ring.pop_newest().map(|(version, extents)| (version, extents.len()));
            assert_eq!(newest, Some((Version::new(1, seq), seq as usize + 1)));
        }
        assert_eq!(ring.unstable_bytes(), 0);
        holds(&ring, 1..=7);
    }
}
