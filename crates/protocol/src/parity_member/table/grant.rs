//! Memory, or disk space, that a parity member has promised for stripes (P8.2): what is granted, reserved and used.

use super::ParityTable;
use super::half::Half;
use crate::context::Shared;
use paritas_base::Stripe;
use paritas_store::{Part, Purpose};

/// What a member knows of the stripes that were in use before it joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EarlierStripes {
    /// It knows all of them. `backlog` counts those that are still to be refilled and have no reserved chunk.
    Known { backlog: u32 },
    /// It does not know all. They are below the ends that owners have asked for: `wished`, of data and index stripes.
    /// `all`: every owner has asked.
    Unknown { wished: (u32, u32), all: bool },
}

/// What a table has granted, and the chunks of the budget that it has for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grants {
    /// Ends of the data and index stripes that are granted. Each stripe below has its chunk, or a reserved one.
    ends: (u32, u32),
    /// Chunks that are used, in memory or on disk.
    pub(super) used: u32,
    /// Chunks that are reserved for stripes below the ends.
    reserved: u32,
    /// Chunks that are reserved for freed stripes beyond the ends. The delta that freed one may be undone (P3.10),
    /// which needs the chunk again.
    freed: u32,
}

impl Grants {
    /// All reserved chunks.
    pub(super) fn reserved_total(&self) -> u32 {
        self.reserved + self.freed
    }

    fn is_granted(&self, stripe: Stripe) -> bool {
        let (data_end, index_end) = self.ends;
        stripe.number() < if stripe.is_index() { index_end } else { data_end }
    }

    /// The count of reserved chunks that a stripe's chunk is taken from.
    fn reserved_for(&mut self, stripe: Stripe) -> &mut u32 {
        if self.is_granted(stripe) {
            &mut self.reserved
        } else {
            &mut self.freed
        }
    }

    /// The part of the budget that a stripe's chunk is taken from.
    pub(super) fn part_for(&mut self, stripe: Stripe) -> Part {
        match *self.reserved_for(stripe) {
            0 => Part::Free,
            _ => Part::Reserved,
        }
    }

    /// A chunk was taken for a stripe.
    pub(super) fn take(&mut self, stripe: Stripe, from: Part) {
        *self.reserved_for(stripe) -= u32::from(from == Part::Reserved);
        self.used += 1;
    }

    /// A stripe's chunk was given back. `reserved`: it stays reserved for the streams, which may use the stripe again.
    pub(super) fn give(&mut self, stripe: Stripe, reserved: bool) {
        self.used -= 1;
        *self.reserved_for(stripe) += u32::from(reserved);
    }
}

impl ParityTable {
    /// Whether the counts of used and reserved chunks agree with the states of the stripes. It reads all states.
    pub(crate) fn is_sound(&self) -> bool {
        let used = self.data.placed() + self.index.placed();
        let (data_end, index_end) = self.grants.ends;
        let reserved = self.data.without_place(0, data_end) + self.index.without_place(0, index_end);
        self.grants.used == used && self.grants.reserved == reserved
    }

    /// Number of parity chunks in memory.
    pub(crate) fn memory_slots(&self) -> u32 {
        if self.on_disk.is_some() { 0 } else { self.grants.used }
    }

    /// The same, with reserved chunks.
    pub(crate) fn memory_slots_granted(&self) -> u32 {
        if self.on_disk.is_some() {
            0
        } else {
            self.grants.used + self.grants.reserved_total()
        }
    }

    /// Used and reserved chunks, of memory or of the disk.
    pub(crate) fn budgeted(&self) -> (u32, u32) {
        (self.grants.used, self.grants.reserved_total())
    }

    /// Reserved chunks for stripes below the granted ends.
    pub(crate) fn reserved(&self) -> u32 {
        self.grants.reserved
    }

    /// Whether a stripe can be refilled while `under_way` other chunks are being rebuilt. A stand-in may use the chunks
    /// that writers may use. Any other member may use all but those that data positions need to serve (P10.5).
    pub(crate) fn may_refill(&self, shared: &Shared, stripe: Stripe, under_way: usize, stands_in: bool) -> bool {
        let reserved = match self.grants.is_granted(stripe) {
            true => self.grants.reserved,
            false => self.grants.freed,
        };
        let purpose = if stands_in { Purpose::StandIn } else { Purpose::Rebuild };
        reserved > 0 || under_way < self.budget(shared).available(purpose) as usize
    }

    /// Reserves chunks for stripes up to these ends, as far as memory or disk allow; returns the granted ends.
    pub(crate) fn grant(&mut self, shared: &mut Shared, wanted: (u32, u32), earlier: EarlierStripes) -> (u32, u32) {
        let backlog = match earlier {
            EarlierStripes::Known { backlog } => Some(backlog),
            EarlierStripes::Unknown { .. } => None,
        };
        // The backlog of the memory's budget does not count parity chunks.
        let of_backlog = if self.is_on_disk() { backlog.unwrap_or(0) } else { 0 };
        let (data, index) = self.grants.ends;
        let (mut data_end, mut index_end) = (wanted.0.max(data), wanted.1.max(index));
        // Stripes that were in use before this member joined, and are beyond its granted ends, come first.
        let awaited = self.awaited();
        if let (true, Some(disk)) = (self.is_on_disk(), &shared.disk) {
            let ahead = backlog.map_or(0, |_| disk.ahead_max(self.grants.reserved));
            let used = |half: &Half, ahead: u32| (half.states.len() as u32).saturating_add(ahead);
            data_end = data_end.min(data.max(used(&self.data, ahead)));
            index_end = index_end.min(index.max(used(&self.index, ahead.div_ceil(2))));
        }
        let available = self.budget(shared).available(Purpose::Write) + of_backlog;
        // If fewer chunks are free than wanted, all are granted, so that none lies idle. Index stripes then get up to
        // half, because a stream without further index pages cannot grow.
        let space = (available + self.grants.freed).saturating_sub(awaited);
        let (data_more, index_more) = (self.data.unused(data, data_end), self.index.unused(index, index_end));
        if let EarlierStripes::Unknown { wished, all } = earlier {
            // The free chunks may be needed for stripes that were in use before. Those of owners that have asked are
            // below their wished ends. As many again are assumed for owners that have not asked yet.
            let of_all =
                self.data.unused(data, wished.0.max(data_end)) + self.index.unused(index, wished.1.max(index_end));
            let needed = of_all.saturating_mul(if all { 1 } else { 2 });
            if space < needed {
                return self.grants.ends;
            }
        }
        let index_more = index_more.min(space.div_ceil(2).max(space.saturating_sub(data_more)));
        let data_end = self.data.reach(data, data_end, data_more.min(space - index_more));
        let index_end = self.index.reach(index, index_end, index_more);
        let more = self.data.without_place(data, data_end) + self.index.without_place(index, index_end);
        let freed = more.min(self.grants.freed);
        let fits = match self.disk(shared) {
            Some(disk) => disk.reserve(more - freed, of_backlog),
            None => shared.arena.reserve(more - freed, of_backlog),
        };
        if fits {
            self.grants.ends = (data_end, index_end);
            (self.grants.reserved, self.grants.freed) = (self.grants.reserved + more, self.grants.freed - freed);
        }
        self.grants.ends
    }

    /// Stripes beyond the granted ends that are still to be refilled.
    fn awaited(&self) -> u32 {
        let (data, index) = self.grants.ends;
        self.data.awaited_from(data) + self.index.awaited_from(index)
    }

    /// Of these, the stripes without a reserved chunk.
    pub(crate) fn refill_backlog(&self) -> u32 {
        self.awaited().saturating_sub(self.grants.freed)
    }
}
