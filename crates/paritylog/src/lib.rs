//! Crate `paritylog`: parity chunks that a log node keeps on disk and not in memory (LogECMem §4.3, §5; P11).
//!
//! The code works on bytes, without files. A [`ParityLog`] says what to read and write; the driver does it and reports
//! when it is done. All data here can be made again from the data nodes. A record that is torn, lost or stale is
//! detected by its checksum and its number, and its chunk is then fetched again.

mod extents;
mod log;
mod record;
mod recovery;
#[cfg(test)]
mod tests;

pub use extents::Extents;
pub use log::{Answer, Bad, Change, Counters, Io, IoId, Outcome, ParityLog, Work};
pub use record::{Content, DiskLocation, Key, Record, record_bytes};
pub use recovery::Recovery;

/// The layout of parity and its deltas on the disk (LogECMem §5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Parity logging: everything is appended, and a chunk's deltas are scattered over the log.
    Pl,
    /// Reserved space: each delta is written after its chunk, with one write for each delta.
    Plr,
    /// As `Plr`, but deltas of one stripe are folded in memory before they are written.
    PlrM,
    /// Deltas are first appended in large writes. They are later read back in large reads, folded, and written after
    /// their chunks.
    Plm,
}

impl Layout {
    /// Whether deltas of a stripe are folded while they wait in memory (LogECMem §4.3).
    pub fn folds_in_memory(self) -> bool {
        matches!(self, Self::PlrM | Self::Plm)
    }

    /// Whether waiting data is appended to the log area in one write.
    pub fn appends(self) -> bool {
        matches!(self, Self::Pl | Self::Plm)
    }

    /// Whether chunks have slots with reserved space after them.
    pub fn has_slots(self) -> bool {
        self != Self::Pl
    }
}

/// Settings of a log. Its two spaces are ranges of addresses from 0; the driver maps them to files.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The layout on the disk.
    pub layout: Layout,
    /// Bytes of a parity chunk.
    pub chunk_bytes: usize,
    /// Number of data positions of the widest list.
    pub data_max: usize,
    /// Writes begin and end at multiples of this number of bytes: 1, or the block size of direct I/O.
    pub block_bytes: usize,
    /// Bytes reserved for deltas after each chunk. At least one record of a whole chunk must fit.
    pub reserve_bytes: usize,
    /// Number of slots in [`Space::Slots`].
    pub slots_max: u32,
    /// Bytes of [`Space::Log`].
    pub log_bytes: u64,
    /// Number of waiting bytes that starts a write.
    pub flush_bytes: usize,
    /// Number of bytes, waiting or being written, at which the log is full: no more should be given to it.
    pub buffer_max_bytes: usize,
}

impl Settings {
    /// Bytes of a slot: a chunk's record and the reserved space after it.
    pub fn slot_bytes(&self) -> usize {
        let chunk = self.chunk_record_bytes();
        self.in_blocks(chunk) + self.in_blocks(self.reserve_bytes.max(chunk))
    }

    /// Most records in the log area. Their tables are in memory, and take about as much as the waiting bytes. Without
    /// slots each chunk has a record there.
    pub(crate) fn records_max(&self) -> usize {
        let records = self.buffer_max_bytes / RECORD_TABLE_BYTES;
        records.max(if self.layout == Layout::Pl {
            2 * self.chunks_max() as usize
        } else {
            0
        })
    }

    /// Most chunks that fit. A chunk that is being rewritten is on the disk twice for some time.
    pub fn chunks_max(&self) -> u32 {
        if self.layout.has_slots() {
            return self.slots_max.saturating_sub(SPARE_SLOTS + self.slots_max / 32);
        }
        u32::try_from(self.log_bytes / (PL_AREA_SHARE * self.in_blocks(self.chunk_record_bytes()) as u64))
            .unwrap_or(u32::MAX)
    }

    /// Most chunks that are rewritten at once because their reserved space is full. Their reads take at most half of
    /// the buffer.
    pub(crate) fn compacting_max(&self) -> usize {
        (self.buffer_max_bytes / 4 / self.chunk_record_bytes()).max(SPARE_SLOTS as usize)
    }

    /// Bytes of the longest record.
    pub fn chunk_record_bytes(&self) -> usize {
        record::HEAD_BYTES + self.data_max * 12 + 8 + self.chunk_bytes
    }

    pub(crate) fn in_blocks(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.block_bytes)
    }
}

/// Without slots, chunks take at most 1/5 of the log area. They are rewritten a quarter of the area at a time.
pub const PL_AREA_SHARE: u64 = 5;
/// Slots reserved for chunks that are rewritten, and the number of chunks rewritten at once.
const SPARE_SLOTS: u32 = 4;
/// Bytes of memory for the tables of one record in the log area, about.
const RECORD_TABLE_BYTES: usize = 128;

/// An address space of a log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// One slot for each chunk.
    Slots,
    /// The log area: written from its beginning to its end, and then from its beginning again.
    Log,
}
