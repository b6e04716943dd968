//! Room `paritylog`: where a log node keeps the parity chunks that are not in memory (LogECMem §4.3, §5; PROTOCOL 11).
//!
//! Functions over bytes, without a file: a [`ParityLog`] says what is to be written and read, the driver does it and
//! says when it is done. What is here is a copy of what data nodes can make again: a record that is torn, lost or
//! stale is found out by its checksum and its number, and what it belonged to is fetched anew.

mod extents;
mod log;
mod record;
mod recovery;
#[cfg(test)]
mod tests;

pub use extents::Extents;
pub use log::{Answer, Bad, Change, Counters, Io, IoId, Outcome, ParityLog, Work};
pub use record::{Content, Key, Place, Record, record_bytes};
pub use recovery::Recovery;

/// How parity and its deltas lie on the disk (LogECMem §5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Parity logging: everything is appended; a chunk's deltas lie apart.
    Pl,
    /// With reserved space: each delta is written behind its chunk, one write each.
    Plr,
    /// The same, deltas of one stripe folded in memory before they are written.
    PlrM,
    /// Appended first, in large writes; read back in large reads, folded, and written behind their chunks.
    Plm,
}

impl Layout {
    /// Whether deltas of a stripe fold into one while they wait in memory (LogECMem §4.3).
    pub fn folds_in_memory(self) -> bool {
        matches!(self, Self::PlrM | Self::Plm)
    }

    /// Whether what waited in memory is appended to the log area, in one write.
    pub fn appends(self) -> bool {
        matches!(self, Self::Pl | Self::Plm)
    }

    /// Whether chunks have slots with reserved space behind them.
    pub fn has_slots(self) -> bool {
        self != Self::Pl
    }
}

/// Sizes of a log. Its two spaces are ranges of addresses from 0; the driver maps them to files.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How it lies on the disk.
    pub layout: Layout,
    /// Bytes of a parity chunk.
    pub chunk_bytes: usize,
    /// Data positions of the widest list.
    pub data_max: usize,
    /// Writes begin and end at multiples of this: 1, or what direct I/O asks for.
    pub block_bytes: usize,
    /// Space for deltas behind each chunk; there is room for one of a whole chunk at least.
    pub reserve_bytes: usize,
    /// Slots of [`Space::Slots`].
    pub slots_max: u32,
    /// Bytes of [`Space::Log`].
    pub log_bytes: u64,
    /// So much waiting is written at once.
    pub flush_bytes: usize,
    /// At so much waiting and being written the log is full: nothing more should be given to it.
    pub buffer_max_bytes: usize,
}

impl Settings {
    /// Bytes of a slot: a chunk's record, and the space behind it.
    pub fn slot_bytes(&self) -> usize {
        let chunk = self.chunk_record_bytes();
        self.in_blocks(chunk) + self.in_blocks(self.reserve_bytes.max(chunk))
    }

    /// Records in the log area at most: what is known of them lies in memory, and takes about as much as what waits.
    /// Without slots each chunk has one there.
    pub(crate) fn records_max(&self) -> usize {
        let records = self.buffer_max_bytes / RECORD_TABLE_BYTES;
        records.max(if self.layout == Layout::Pl {
            2 * self.chunks_max() as usize
        } else {
            0
        })
    }

    /// Chunks that there can be: of those that are written anew, the old and the new one lie on the disk for a while.
    pub fn chunks_max(&self) -> u32 {
        if self.layout.has_slots() {
            return self.slots_max.saturating_sub(SPARE_SLOTS + self.slots_max / 32);
        }
        u32::try_from(self.log_bytes / (PL_AREA_SHARE * self.in_blocks(self.chunk_record_bytes()) as u64))
            .unwrap_or(u32::MAX)
    }

    /// Chunks written anew at once at most because no space is left behind them: with their reads, half of what may
    /// wait.
    pub(crate) fn compacting_max(&self) -> usize {
        (self.buffer_max_bytes / 4 / self.chunk_record_bytes()).max(SPARE_SLOTS as usize)
    }

    /// The longest record.
    pub fn chunk_record_bytes(&self) -> usize {
        record::HEAD_BYTES + self.data_max * 12 + 8 + self.chunk_bytes
    }

    pub(crate) fn in_blocks(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.block_bytes)
    }
}

/// Without slots chunks have so much less than the log area: they are written anew a quarter of it at a time.
pub const PL_AREA_SHARE: u64 = 5;
/// Slots kept for chunks that are written anew, and how many of them at once.
const SPARE_SLOTS: u32 = 4;
/// What is known of a record in the log area takes, about.
const RECORD_TABLE_BYTES: usize = 128;

/// Which range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// A slot for each chunk.
    Slots,
    /// The area that is written from its beginning to its end, and then from its beginning again.
    Log,
}
