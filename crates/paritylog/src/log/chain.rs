//! The places of a chunk's records, and the data on its way there.

use crate::extents::Extents;
use crate::record::{Content, Key, record_bytes};
use paritas_base::Position;
use std::collections::VecDeque;

/// A chunk or a delta that waits or is being written.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// The number of its chain. Entries of an earlier chain with the same key are ignored.
    pub(super) born: u64,
    pub(super) position: Position,
    pub(super) whole: bool,
    pub(super) content: Content,
    pub(super) extents: Extents,
}

impl Entry {
    pub(super) fn bytes(&self) -> usize {
        record_bytes(self.content.versions.len(), &self.extents)
    }

    /// Folds a later entry into this one.
    pub(super) fn fold(&mut self, later: &Self) {
        if later.whole {
            self.extents = later.extents.clone();
            self.whole = true;
        } else {
            self.extents.fold_all(&later.extents);
        }
        self.content = later.content.clone();
    }
}

/// The places of a chunk's records, in the order in which they apply: those in its slot, then those in the log area.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) born: u64,
    pub(crate) position: Position,
    /// What the chunk stands for, including waiting changes.
    pub(crate) content: Content,
    /// Number of the last record that was written.
    pub(crate) last: u64,
    pub(crate) slot: Option<InSlot>,
    pub(crate) logged: VecDeque<Logged>,
    /// The chunk is being rewritten. Until that is done, waiting entries are held back.
    pub(crate) busy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InSlot {
    pub(crate) slot: u32,
    /// Offset in the slot up to which there are records.
    pub(crate) used: usize,
    /// Number of the last record in the slot.
    pub(crate) last: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Logged {
    pub(crate) at: u64,
    pub(crate) length: usize,
    pub(crate) number: u64,
}

/// A record that is being written, and its destination.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) entry: Entry,
    pub(super) number: u64,
    pub(super) to: To,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    Slot { slot: u32, end: usize },
    Log { at: u64, length: usize },
}

impl To {
    pub(super) fn slot(self) -> Option<u32> {
        match self {
            Self::Slot { slot, .. } => Some(slot),
            Self::Log { .. } => None,
        }
    }
}
