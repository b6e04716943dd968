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
pub use record::{Content, HEAD_BYTES, Key, Place, Record, record_bytes};
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

    /// The longest record.
    pub fn chunk_record_bytes(&self) -> usize {
        HEAD_BYTES + self.data_max * 12 + 8 + self.chunk_bytes
    }

    pub(crate) fn in_blocks(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.block_bytes)
    }
}

/// Which range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// A slot for each chunk.
    Slots,
    /// The area that is written from its beginning to its end, and then from its beginning again.
    Log,
}
