//! Gauges of a stream, and the credit it asks for.

use super::{ObjectStore, Settings};
use paritas_base::Stripe;

/// Gauges of a stream: what it holds, and the memory that this takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gauges {
    /// Number of data chunks with memory.
    pub data_chunks: u32,
    /// Number of index pages with memory.
    pub index_chunks: u32,
    /// Number of those data chunks in which nothing is live; they are kept for new objects.
    pub free_chunks: u32,
    /// Number of chunks that exist and are not resident.
    pub absent_chunks: u32,
    /// Bytes of live objects: keys, values, headers.
    pub live_bytes: u64,
    /// Bytes in used chunks that are neither live nor free to be written.
    pub dead_bytes: u64,
    /// Bytes in open chunks that are free to be written.
    pub open_bytes: u64,
    /// Bytes of keys and values of live objects. After a takeover the count grows as chunks are reconstructed.
    pub user_bytes: u64,
    /// Number of objects with an expiry. It grows after a takeover like `user_bytes`.
    pub expiring: u64,
    /// Bytes of the tables beside the chunks.
    pub tables_bytes: u64,
    /// Bytes of objects that compaction has moved since the stream's start here.
    pub moved_bytes: u64,
}

impl ObjectStore {
    /// Bytes of live keys and values. After a takeover the count grows as chunks are reconstructed.
    pub fn user_bytes(&self) -> u64 {
        self.space.user_bytes
    }

    /// Its gauges.
    pub fn gauges(&self) -> Gauges {
        let (index_chunks, data_chunks) = self.chunks.held_counts();
        Gauges {
            data_chunks,
            index_chunks,
            free_chunks: self.space.free.len() as u32,
            absent_chunks: self.chunks.absent_count(),
            live_bytes: self.space.live_bytes,
            dead_bytes: self.space.dead_bytes(),
            open_bytes: self.space.open_bytes(),
            user_bytes: self.space.user_bytes,
            expiring: self.space.expiring(),
            tables_bytes: self.tables_bytes(),
            moved_bytes: self.space.moved_bytes,
        }
    }

    /// Number of data chunks in which nothing is live; they are kept for new objects.
    pub fn free_chunks(&self) -> u32 {
        self.space.free.len() as u32
    }

    /// Whether there are fewer free chunks than the waiting writes need.
    pub fn lacks_free_chunks(&self) -> bool {
        self.free_chunks() < self.free_needed()
    }

    /// Number of free chunks below which compaction and eviction run, while memory or credit is short. A small value
    /// takes one chunk and leaves one for compaction.
    pub(super) fn free_needed(&self) -> u32 {
        self.free_wanted.max(2)
    }

    /// Forgets what the last refused write needed. If the write still waits, its next attempt records it again.
    pub fn forget_wanted(&mut self) {
        self.free_wanted = 0;
    }

    /// Bytes of the tables beside the chunks.
    pub fn tables_bytes(&self) -> u64 {
        self.chunks.table_bytes() + self.space.table_bytes() + self.usage.table_bytes()
    }

    /// Sets the credit: stripe numbers below these, of data and of index pages, may be used (P8.2).
    pub fn set_credit(&mut self, data_end: u32, index_end: u32) {
        self.credit = (data_end, index_end);
    }

    /// Sets the most chunks for which credit is asked. Chunks above it that already exist stay, and may be used again.
    pub fn set_share(&mut self, chunks: u32) {
        self.share = chunks;
    }

    /// Whether no more data credit will be asked for, so that only eviction can make space.
    pub fn has_its_share(&self) -> bool {
        self.credit.0 >= self.data_end_max()
    }

    /// The end of the data numbers for which credit is asked. Numbers that were once used stay within it.
    fn data_end_max(&self) -> u32 {
        let index = self.index.pages + self.index.spills;
        let least = self.credit_ahead() + 2;
        let share = self.share.saturating_sub(index).max(least);
        share.max(self.space.end()).min(self.numbers_end())
    }

    /// Number of chunks for which credit is asked ahead of use: enough for any one object.
    pub(super) fn credit_ahead(&self) -> u32 {
        (self.settings.credit_batch.max(1) / 4).max(self.pieces_max as u32)
    }

    /// The credit to ask for, data and index; `None` while the present credit is enough.
    pub fn wants_credit(&self) -> Option<(u32, u32)> {
        let Settings { credit_batch, .. } = self.settings;
        let batch = credit_batch.max(1);
        let enough = |wanted: u32| self.credit_ahead().max(wanted) + 2;
        let (data_enough, index_enough) = (enough(self.wanted.0), enough(self.wanted.1));
        let wants = |used: u32, credit: u32, enough: u32, end: u32| {
            if credit.saturating_sub(used) < enough {
                let next = used.max(credit).saturating_add(batch.max(enough));
                (next - next % batch).min(end).max(credit)
            } else {
                credit
            }
        };
        // Numbers of freed chunks can be used again, so they count as credit.
        let spare = self.space.zeros.iter().filter(|n| **n < self.credit.0).count() as u32;
        let data = if spare >= data_enough {
            self.credit.0
        } else {
            wants(self.space.end(), self.credit.0, data_enough, self.data_end_max())
        };
        let used = super::page_stripe(self.index.pages).number();
        let spill = super::spill_stripe(self.index.spills).number();
        // Spill pages are rare. Credit for one is asked for only if there is one already, if a command of several
        // changes must be sure of one, or if credit is short anyway.
        let used = if self.index.spills > 0 || self.index.spill_wanted {
            used.max(spill)
        } else {
            used
        };
        let index = wants(used, self.credit.1, index_enough, Stripe::NUMBER_MAX + 1);
        ((data, index) != self.credit).then_some((data, index))
    }

    /// The end of the data numbers that a locator and an extent can express.
    pub(super) fn numbers_end(&self) -> u32 {
        let by_locator = 1u64 << (32 - self.offset_bits);
        by_locator.min(u64::from(Stripe::NUMBER_MAX) + 1) as u32
    }
}
