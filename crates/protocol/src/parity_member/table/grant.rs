//! Memory, or disk space, that a parity member has promised for stripes (P8.2): what is granted, reserved and used.

use super::ParityTable;
use super::half::Half;
use crate::context::Shared;
use paritas_base::Stripe;
use paritas_store::{Part, Purpose};

/// What is known of the stripes that were there before a member came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum There {
    /// All of them, and how many are still to be refilled without a reserved chunk.
    Known { backlog: u32 },
    /// They are below the ends that their owners wish for, of whom `all` have asked, or not.
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
    /// Chunks that are reserved for stripes beyond the ends that were freed: the delta that freed one may be void, and
    /// is then undone (P3.10).
    freed: u32,
}

impl Grants {
    /// Chunks that are reserved.
    pub(super) fn set_aside(&self) -> u32 {
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
    /// Whether used and reserved chunks are those that the states of the stripes say. It looks at every stripe.
    pub(crate) fn is_sound(&self) -> bool {
        let used = self.data.placed() + self.index.placed();
        let (data_end, index_end) = self.grants.ends;
        let reserved = self.data.without_place(0, data_end) + self.index.without_place(0, index_end);
        self.grants.used == used && self.grants.reserved == reserved
    }

    /// Parity chunks that hold memory.
    pub(crate) fn memory_slots(&self) -> u32 {
        if self.on_disk.is_some() { 0 } else { self.grants.used }
    }

    /// With those that memory is set aside for.
    pub(crate) fn memory_slots_granted(&self) -> u32 {
        if self.on_disk.is_some() {
            0
        } else {
            self.grants.used + self.grants.set_aside()
        }
    }

    /// Chunks of memory, or of the disk, that it uses, and those reserved for it.
    pub(crate) fn budgeted(&self) -> (u32, u32) {
        (self.grants.used, self.grants.set_aside())
    }

    /// Reserved chunks for stripes below the granted ends.
    pub(crate) fn reserved(&self) -> u32 {
        self.grants.reserved
    }

    /// Whether a stripe's chunk can be brought back beside so many that are about to be. A stand-in takes what writers
    /// may; who was planned for takes all there is, but what data positions need to serve (P10.5).
    pub(crate) fn may_refill(&self, shared: &Shared, stripe: Stripe, under_way: usize, stands_in: bool) -> bool {
        let set_aside = match self.grants.is_granted(stripe) {
            true => self.grants.reserved,
            false => self.grants.freed,
        };
        let purpose = if stands_in { Purpose::StandIn } else { Purpose::Rebuild };
        set_aside > 0 || under_way < self.budget(shared).available(purpose) as usize
    }

    /// Reserves chunks for stripes up to these ends, as far as memory or disk allow; returns the granted ends.
    pub(crate) fn grant(&mut self, shared: &mut Shared, wanted: (u32, u32), there: There) -> (u32, u32) {
        let backlog = match there {
            There::Known { backlog } => Some(backlog),
            There::Unknown { .. } => None,
        };
        // The backlog of memory has no parity chunks.
        let of_backlog = if self.is_on_disk() { backlog.unwrap_or(0) } else { 0 };
        let (data, index) = self.grants.ends;
        let (mut data_end, mut index_end) = (wanted.0.max(data), wanted.1.max(index));
        // Stripes that were there before this member came, and are beyond what it granted, have the first call.
        let awaited = self.awaited();
        if let (true, Some(disk)) = (self.is_on_disk(), &shared.disk) {
            let ahead = backlog.map_or(0, |_| disk.ahead_max(self.grants.reserved));
            let used = |half: &Half, ahead: u32| (half.states.len() as u32).saturating_add(ahead);
            data_end = data_end.min(data.max(used(&self.data, ahead)));
            index_end = index_end.min(index.max(used(&self.index, ahead.div_ceil(2))));
        }
        let available = self.budget(shared).available(Purpose::Write) + of_backlog;
        // As much as there is: what little is left must not lie idle. Of too little the index has half, without which
        // nothing grows.
        let space = (available + self.grants.freed).saturating_sub(awaited);
        let (data_more, index_more) = (self.data.unused(data, data_end), self.index.unused(index, index_end));
        if let There::Unknown { wished, all } = there {
            // What there is may be needed for what was there before: below what its owners wish for, and as much for
            // whoever has not asked yet.
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

    /// Chunks still to be refilled of stripes beyond what is granted.
    fn awaited(&self) -> u32 {
        let (data, index) = self.grants.ends;
        self.data.awaited_from(data) + self.index.awaited_from(index)
    }

    /// Those of them without a reserved chunk.
    pub(crate) fn slots_owed(&self) -> u32 {
        self.awaited().saturating_sub(self.grants.freed)
    }
}
