//! Raw deltas of one stream, kept in order (PROTOCOL 1.5, 1.6, 3.8). The ring is the replicated log.

use paritas_base::{Span, Term, Time, Version};
use std::collections::VecDeque;

/// One raw delta.
#[derive(Debug)]
pub struct Record {
    /// The term it was issued in: it stays with the delta when a later owner pushes it again.
    pub term: Term,
    /// Its place in the stream.
    pub seq: u64,
    /// Its extents, encoded.
    pub extents: Vec<u8>,
    at: Time,
}

impl Record {
    /// The version it leaves on chunks.
    pub fn version(&self) -> Version {
        Version::new(self.term, self.seq)
    }
}

/// Spare buffers kept for the next deltas, at most.
const SPARE_MAX: usize = 16;
/// A spare buffer larger than this is given back.
const SPARE_BYTES_MAX: usize = 16 << 10;

/// Consecutive deltas, oldest first.
#[derive(Default, Debug)]
pub struct Ring {
    records: VecDeque<Record>,
    bytes: u64,
    /// Bytes of the deltas above `stable`, so that admission and trimming need not walk.
    unstable_bytes: u64,
    stable: u64,
    spare: Vec<Vec<u8>>,
}

impl Ring {
    /// Bytes of all deltas in it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the deltas above what was marked stable.
    pub(crate) fn unstable_bytes(&self) -> u64 {
        self.unstable_bytes
    }

    /// Everything up to `stable` is with every member.
    pub(crate) fn mark_stable(&mut self, stable: u64) {
        let passed: u64 = self
            .after(self.stable)
            .take_while(|r| r.seq <= stable)
            .map(|r| r.extents.len() as u64)
            .sum();
        self.unstable_bytes -= passed;
        self.stable = self.stable.max(stable);
    }

    /// The oldest delta's seq.
    pub fn first(&self) -> Option<u64> {
        self.records.front().map(|r| r.seq)
    }

    /// The delta with this seq.
    pub fn get(&self, seq: u64) -> Option<&Record> {
        let first = self.first()?;
        self.records.get(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    /// All deltas, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records.iter()
    }

    /// The deltas after `seq`, oldest first.
    pub fn after(&self, seq: u64) -> impl DoubleEndedIterator<Item = &Record> {
        let skip = self.first().map_or(0, |first| (seq + 1).saturating_sub(first));
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(self.records.len());
        self.records.range(skip..)
    }

    /// An empty buffer to build a delta in.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Appends the next delta. It must follow the last one, unless the ring is empty.
    pub fn push(&mut self, now: Time, term: Term, seq: u64, extents: Vec<u8>) {
        debug_assert!(self.records.back().is_none_or(|r| r.seq + 1 == seq));
        self.bytes += extents.len() as u64;
        if seq > self.stable {
            self.unstable_bytes += extents.len() as u64;
        }
        self.records.push_back(Record {
            term,
            seq,
            extents,
            at: now,
        });
    }

    /// Takes the newest delta off.
    pub fn pop_newest(&mut self) -> Option<Record> {
        let record = self.records.pop_back()?;
        let bytes = record.extents.len() as u64;
        self.bytes -= bytes;
        if record.seq > self.stable {
            self.unstable_bytes -= bytes;
        }
        Some(record)
    }

    /// Drops deltas up to `stable`.
    pub fn trim(&mut self, stable: u64) {
        self.trim_history(stable, 0, Time(0), Span(0));
    }

    /// Drops deltas up to `stable`, but keeps those of them that are younger than `age`, up to `history_bytes`.
    pub fn trim_history(&mut self, stable: u64, history_bytes: u64, now: Time, age: Span) {
        self.mark_stable(stable);
        let mut history = self.bytes - self.unstable_bytes;
        while let Some(oldest) = self.records.front() {
            if oldest.seq > stable || (history_bytes > 0 && history <= history_bytes && now - oldest.at < age) {
                break;
            }
            let length = oldest.extents.len() as u64;
            history = history.saturating_sub(length);
            self.bytes -= length;
            if let Some(mut record) = self.records.pop_front()
                && self.spare.len() < SPARE_MAX
                && record.extents.capacity() <= SPARE_BYTES_MAX
            {
                record.extents.clear();
                self.spare.push(record.extents);
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.records.clear();
        (self.bytes, self.unstable_bytes) = (0, 0);
    }
}
