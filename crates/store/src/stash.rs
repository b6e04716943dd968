//! Chunks of a position that this node no longer holds (P2.4), each with the versions that it stands for. They
//! are read-only, and dropped when their memory is needed.

use crate::arena::{ChunkRef, Loan};
use crate::{Arena, Chunks, Part};
use paritas_base::{Stripe, Version};

/// Old chunks of one position of a stripe list. A data chunk stands for one version; a parity chunk stands for one
/// version of each data position.
#[derive(Debug)]
pub struct Stash {
    width: usize,
    /// In the order of stripes.
    chunks: Vec<(Stripe, Loan)>,
    /// `width` versions for each chunk. `sums` has the sums of the data chunks at these versions.
    versions: Vec<Version>,
    sums: Vec<u32>,
}

/// One chunk of a stash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Old<'a> {
    /// The stripe of the chunk.
    pub stripe: Stripe,
    /// The versions that the chunk stands for: one for each data position that it covers.
    pub versions: &'a [Version],
    /// Sums of the data chunks at those versions.
    pub sums: &'a [u32],
    /// The bytes of the chunk.
    pub bytes: &'a [u8],
}

impl Stash {
    /// An empty stash. `width` is the number of versions for each chunk.
    pub fn new(width: usize) -> Self {
        Self {
            width,
            chunks: Vec::new(),
            versions: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// A stash of the chunks of a stream that this node no longer owns. Chunks touched after `newest` are left out:
    /// their delta was never closed, so no node can ask for that version.
    pub fn of_data(chunks: Chunks, arena: &mut Arena, newest: Version) -> Self {
        let mut stash = Self::new(1);
        chunks.give_up(arena, |arena, stripe, version, sum, slot| {
            if version.term() == newest.term() && version > newest {
                arena.give(slot, Part::Free);
            } else {
                stash.push(arena, stripe, slot, [(version, sum)].into_iter());
            }
        });
        stash
    }

    /// Adds a chunk, whose memory is in use. Stripes must come in ascending order.
    pub fn push(
        &mut self,
        arena: &mut Arena,
        stripe: Stripe,
        slot: ChunkRef,
        values: impl Iterator<Item = (Version, u32)>,
    ) {
        debug_assert!(self.chunks.last().is_none_or(|(last, _)| *last < stripe));
        self.chunks.push((stripe, arena.lend(slot)));
        for (version, sum) in values {
            self.versions.push(version);
            self.sums.push(sum);
        }
        debug_assert_eq!(self.versions.len(), self.chunks.len() * self.width);
    }

    /// All chunks that were not dropped.
    pub fn iter<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = Old<'a>> {
        (0..self.chunks.len()).filter_map(|at| self.at(arena, at))
    }

    /// A stripe's chunk, unless it was dropped.
    pub fn get<'a>(&'a self, arena: &'a Arena, stripe: Stripe) -> Option<Old<'a>> {
        self.at(arena, self.find(stripe)?)
    }

    /// Takes a stripe's chunk out of the stash; its memory is in use again. `None` if the chunk was dropped or this
    /// part of the budget has no chunk.
    pub fn redeem(&self, arena: &mut Arena, stripe: Stripe, from: Part) -> Option<ChunkRef> {
        arena.redeem(self.chunks[self.find(stripe)?].1, from)
    }

    /// Drops a stripe's chunk.
    pub fn forget(&self, arena: &mut Arena, stripe: Stripe) {
        if let Some(at) = self.find(stripe) {
            arena.end_lent(self.chunks[at].1);
        }
    }

    /// Merges with an older stash of the same position: chunks of stripes that this stash does not have are added.
    pub fn with_older(self, older: Self, arena: &mut Arena) -> Self {
        debug_assert_eq!(self.width, older.width);
        let mut all = Self::new(self.width);
        let (mut mine, mut theirs) = (0, 0);
        loop {
            let next = |stash: &Self, at: usize| stash.chunks.get(at).copied();
            let (stash, at) = match (next(&self, mine), next(&older, theirs)) {
                (None, None) => return all,
                (Some(new), Some(old)) if new.0 == old.0 => {
                    arena.end_lent(old.1);
                    theirs += 1;
                    continue;
                }
                (Some(new), old) if old.is_none_or(|old| new.0 < old.0) => {
                    mine += 1;
                    (&self, mine - 1)
                }
                _ => {
                    theirs += 1;
                    (&older, theirs - 1)
                }
            };
            if arena.lent(stash.chunks[at].1).is_some() {
                all.chunks.push(stash.chunks[at]);
                all.versions.extend(stash.versions_at(at));
                all.sums.extend(stash.sums_at(at));
            }
        }
    }

    /// Returns all memory to the arena.
    pub fn clear(self, arena: &mut Arena) {
        for (_, loan) in self.chunks {
            arena.end_lent(loan);
        }
    }

    /// Bytes of the tables beside the chunks.
    pub fn table_bytes(&self) -> u64 {
        let chunks = self.chunks.capacity() * size_of::<(Stripe, Loan)>();
        (chunks + self.versions.capacity() * size_of::<Version>() + self.sums.capacity() * 4) as u64
    }

    fn find(&self, stripe: Stripe) -> Option<usize> {
        self.chunks.binary_search_by_key(&stripe, |(stripe, _)| *stripe).ok()
    }

    fn at<'a>(&'a self, arena: &'a Arena, at: usize) -> Option<Old<'a>> {
        let (stripe, loan) = self.chunks[at];
        Some(Old {
            stripe,
            versions: self.versions_at(at),
            sums: self.sums_at(at),
            bytes: arena.lent(loan)?,
        })
    }

    fn versions_at(&self, at: usize) -> &[Version] {
        &self.versions[at * self.width..(at + 1) * self.width]
    }

    fn sums_at(&self, at: usize) -> &[u32] {
        &self.sums[at * self.width..(at + 1) * self.width]
    }
}
