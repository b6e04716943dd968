//! The parity chunks of one member, each with the versions and sums of the data chunks that it covers (P1.6, P1.7). The
//! bytes are in memory or, on a log node, on its disk (P11.1).

mod grant;
mod half;

use crate::context::Shared;
use crate::disk_log::DiskLog;
pub(crate) use grant::EarlierStripes;
use grant::Grants;
use half::Half;
use paritas_base::{ListId, Position, Stripe, Version};
use paritas_code::{mul_add, sum};
use paritas_paritylog::{Change, Content, Extents, Key};
use paritas_store::delta::{Extent, extents};
use paritas_store::{Arena, Budget, ChunkRef, Part, Stash};

/// What a member knows of one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// No delta of it has come since this member joined. It is zeros if the table is complete (P6.6), else unknown.
    Untouched,
    /// Its deltas are logged but its bytes are not known.
    Invalid,
    /// Being fetched; its deltas are buffered (P6.2).
    Fetching,
    /// The bytes are the sum of coefficient · data chunk at the table's versions. `None`: all zeros, and no chunk used.
    Valid(Option<ParityLocation>),
    /// The disk has lost the bytes (P11.2). Versions and sums are still known, so they can be encoded again.
    Lost,
}

impl State {
    /// Whether the stripe uses a chunk, or will use one once its bytes are known.
    fn is_held(self) -> bool {
        !matches!(self, Self::Untouched | Self::Valid(None))
    }

    fn has_place(self) -> bool {
        matches!(self, Self::Valid(Some(_)))
    }
}

/// Where the bytes of a parity chunk are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParityLocation {
    Memory(ChunkRef),
    Disk,
}

/// Why an extent could not be folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoldError {
    /// The table's version is not the extent's base: a fault of the protocol or of memory (P3.5).
    BaseMismatch {
        /// The version in the table.
        found: Version,
        /// The version before the extent's delta.
        base: Version,
    },
    /// No chunk is free although one was granted (P3.6).
    NoMemory,
    /// All data chunks of the stripe are freed, but by the sum of its deltas one of them is not zeros (P1.4).
    NotZeros,
}

/// The stripes of one parity member: states, versions, sums, and what is granted.
#[derive(Debug)]
pub(crate) struct ParityTable {
    k: usize,
    coefficients: Vec<u8>,
    data: Half,
    index: Half,
    /// Untouched stripes are zeros (P6.6).
    complete: bool,
    /// The list and position of chunks on disk. `None`: the chunks are in memory.
    on_disk: Option<(ListId, Position)>,
    grants: Grants,
}

impl ParityTable {
    pub(crate) fn new(coefficients: Vec<u8>, complete: bool, on_disk: Option<(ListId, Position)>) -> Self {
        let k = coefficients.len();
        Self {
            k,
            coefficients,
            data: Half::default(),
            index: Half::default(),
            complete,
            on_disk,
            grants: Grants::default(),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn set_complete(&mut self) {
        self.complete = true;
    }

    /// The key of a parity chunk in the disk's log, if it is on disk.
    pub(crate) fn disk_key(&self, stripe: Stripe) -> Option<Key> {
        let (list, _) = self.on_disk?;
        let is_there = self.state(stripe) == State::Valid(Some(ParityLocation::Disk));
        is_there.then_some(Key { list, stripe })
    }

    /// Whether chunks are on disk.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.on_disk.is_some()
    }

    /// Bytes of versions, sums and states.
    pub(crate) fn table_bytes(&self) -> u64 {
        let half =
            |h: &Half| h.states.capacity() * size_of::<State>() + h.versions.capacity() * 8 + h.sums.capacity() * 4;
        (half(&self.data) + half(&self.index)) as u64
    }

    pub(crate) fn state(&self, stripe: Stripe) -> State {
        self.half(stripe)
            .states
            .get(stripe.number() as usize)
            .copied()
            .unwrap_or(State::Untouched)
    }

    /// Whether the stripe's parity may be used: valid, or known to be zeros.
    pub(crate) fn is_valid(&self, stripe: Stripe) -> bool {
        match self.state(stripe) {
            State::Valid(_) => true,
            State::Untouched => self.complete,
            State::Invalid | State::Fetching | State::Lost => false,
        }
    }

    pub(crate) fn versions(&self, stripe: Stripe) -> impl Iterator<Item = Version> + '_ {
        let at = stripe.number() as usize * self.k;
        let found = self.half(stripe).versions.get(at..at + self.k);
        (0..self.k).map(move |i| found.map_or(Version::ZERO, |v| v[i]))
    }

    pub(crate) fn version(&self, stripe: Stripe, x: usize) -> Version {
        let at = stripe.number() as usize * self.k + x;
        self.half(stripe).versions.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn sum(&self, stripe: Stripe, x: usize) -> u32 {
        let at = stripe.number() as usize * self.k + x;
        self.half(stripe).sums.get(at).copied().unwrap_or_default()
    }

    /// Where in memory the parity chunk is; `None` if it is all zeros, on disk, or not valid.
    pub(crate) fn slot(&self, stripe: Stripe) -> Option<ChunkRef> {
        match self.state(stripe) {
            State::Valid(Some(ParityLocation::Memory(slot))) => Some(slot),
            _ => None,
        }
    }

    /// The parity chunk; `None` if it is all zeros, or on disk.
    pub(crate) fn bytes<'a>(&self, arena: &'a Arena, stripe: Stripe) -> Option<&'a [u8]> {
        self.slot(stripe).map(|slot| arena.bytes(slot))
    }

    /// Every stripe that is not `Untouched`, index pages first.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = (Stripe, State)> + '_ {
        let index = self
            .index
            .states
            .iter()
            .enumerate()
            .map(|(i, s)| (Stripe::index_page(i as u32), *s));
        let data = self
            .data
            .states
            .iter()
            .enumerate()
            .map(|(i, s)| (Stripe::data(i as u32), *s));
        index.chain(data).filter(|(_, s)| *s != State::Untouched)
    }

    /// The first stripe with a parity chunk at or after `from`. Index pages come before data.
    pub(crate) fn next_valid(&self, from: Stripe) -> Option<Stripe> {
        let after = |half: &Half, first: u32| {
            let mut rest = half.states.get(first as usize..)?.iter();
            let at = rest.position(|s| matches!(s, State::Valid(Some(_))))?;
            Some(first + at as u32)
        };
        let index = from.is_index().then(|| after(&self.index, from.number())).flatten();
        let first = if from.is_index() { 0 } else { from.number() };
        index
            .map(Stripe::index_page)
            .or_else(|| after(&self.data, first).map(Stripe::data))
    }

    /// Sets a stripe's state. A chunk that it used is given back.
    pub(crate) fn mark(&mut self, shared: &mut Shared, stripe: Stripe, state: State) {
        if let State::Valid(Some(place)) = self.state(stripe) {
            self.drop_place(shared, stripe, place);
        }
        let at = self.grow(stripe);
        self.half_mut(stripe).states[at] = state;
    }

    /// Installs a fetched stripe, which is valid then (P6.3), over earlier bytes. False, without a change, if no chunk
    /// is free.
    pub(crate) fn install(
        &mut self,
        shared: &mut Shared,
        stripe: Stripe,
        values: &[(Version, u32)],
        bytes: &[u8],
    ) -> bool {
        let any = values.iter().any(|(v, _)| *v != Version::ZERO);
        let place = if any {
            let before = match self.state(stripe) {
                State::Valid(place) => place,
                _ => None,
            };
            let Some(place) = before.or_else(|| self.take_place(shared, stripe)) else {
                return false;
            };
            match place {
                ParityLocation::Memory(slot) => shared.arena.bytes_mut(slot).copy_from_slice(bytes),
                ParityLocation::Disk => {
                    let content = Content {
                        versions: values.iter().map(|(version, _)| *version).collect(),
                        sums: values.iter().map(|(_, sum)| *sum).collect(),
                    };
                    if let (Some((list, position)), Some(disk)) = (self.on_disk, &mut shared.disk) {
                        disk.log.put(Key { list, stripe }, position, content, bytes.to_vec());
                    }
                }
            }
            Some(place)
        } else {
            self.mark(shared, stripe, State::Invalid);
            None
        };
        self.set(stripe, place, values.iter().copied());
        true
    }

    fn set(&mut self, stripe: Stripe, place: Option<ParityLocation>, values: impl Iterator<Item = (Version, u32)>) {
        let at = self.grow(stripe);
        let k = self.k;
        let half = self.half_mut(stripe);
        half.states[at] = State::Valid(place);
        for (i, (version, sum)) in values.enumerate() {
            half.versions[at * k + i] = version;
            half.sums[at * k + i] = sum;
        }
    }

    /// Folds one extent into a valid stripe; `to` is the version afterwards. A second XOR undoes it (P3.10): then `to`
    /// is the extent's base, and `check` is false, so that the base is not compared. Of a lost stripe only version and
    /// sum change. When all data chunks of the stripe are freed, its parity chunk is released (P1.4).
    pub(crate) fn fold(
        &mut self,
        shared: &mut Shared,
        x: usize,
        extent: &Extent<'_>,
        to: Option<Version>,
        check: bool,
    ) -> Result<(), FoldError> {
        let at = self.grow(extent.stripe);
        let (k, coefficient) = (self.k, self.coefficients[x]);
        let half = self.half_mut(extent.stripe);
        let found = half.versions[at * k + x];
        if let (true, Some(base)) = (check, extent.base)
            && base != found
        {
            return Err(FoldError::BaseMismatch { found, base });
        }
        let before = half.states[at];
        let place = match before {
            State::Lost => None,
            State::Valid(Some(place)) => Some(place),
            _ => Some(self.take_place(shared, extent.stripe).ok_or(FoldError::NoMemory)?),
        };
        let chunk_bytes = shared.arena.chunk_bytes();
        if let Some(ParityLocation::Memory(slot)) = place {
            let target = &mut shared.arena.bytes_mut(slot)[extent.offset..extent.offset + extent.xor.len()];
            mul_add(coefficient, extent.xor, target);
        }
        let on_disk = self.on_disk;
        let half = self.half_mut(extent.stripe);
        if place.is_some() {
            half.states[at] = State::Valid(place);
        }
        let of = at * k..(at + 1) * k;
        half.sums[at * k + x] ^= sum::of_extent(chunk_bytes, extent.offset, extent.xor);
        if let Some(to) = to {
            half.versions[at * k + x] = to;
            if to == Version::ZERO && half.versions[of.clone()].iter().all(|v| *v == Version::ZERO) {
                // Decided by the sums of the deltas, not by the bytes: a bit that memory has flipped is dropped with
                // the chunk.
                if half.sums[of].iter().any(|sum| *sum != 0) {
                    return Err(FoldError::NotZeros);
                }
                half.states[at] = State::Valid(None);
                if let Some(place) = place {
                    self.drop_place(shared, extent.stripe, place);
                }
                return Ok(());
            }
        }
        if let (Some(ParityLocation::Disk), Some((list, position)), Some(disk)) = (place, on_disk, &mut shared.disk) {
            let key = Key {
                list,
                stripe: extent.stripe,
            };
            let change = Change {
                x,
                version: half.versions[at * k + x],
                sum: half.sums[at * k + x],
            };
            if before == State::Valid(place) {
                if !disk.log.fold_data(key, change, coefficient, extent.offset, extent.xor) {
                    debug_assert!(false, "a valid chunk is in the log");
                    self.mark(shared, extent.stripe, State::Lost);
                    shared.scrub.repairs = true;
                }
            } else {
                let content = Content {
                    versions: half.versions[of.clone()].into(),
                    sums: half.sums[of].into(),
                };
                let mut extents = Extents::default();
                extents.fold_times(coefficient, extent.offset, extent.xor);
                disk.log.put_extents(key, position, content, extents);
            }
        }
        Ok(())
    }

    /// Prefetches the bytes that this delta will change. Its extents are far apart, and so their cache misses overlap.
    pub(crate) fn prefetch(&self, arena: &Arena, delta: &[u8]) {
        for extent in extents(Version::ZERO, delta, arena.chunk_bytes()).flatten() {
            if let Some(slot) = self.slot(extent.stripe) {
                arena.prefetch(slot, extent.offset);
                arena.prefetch(slot, extent.offset + extent.xor.len());
            }
        }
    }

    /// The budget that its chunks are taken from.
    fn budget<'a>(&self, shared: &'a Shared) -> &'a Budget {
        match &shared.disk {
            Some(disk) if self.is_on_disk() => disk.budget(),
            _ => shared.arena.budget(),
        }
    }

    fn disk<'a>(&self, shared: &'a mut Shared) -> Option<&'a mut DiskLog> {
        self.on_disk.and(shared.disk.as_mut())
    }

    /// Makes a stripe valid by a chunk that is on the disk already and has these versions (P6.7). False if the budget
    /// has no chunk for it.
    pub(crate) fn adopt_on_disk(
        &mut self,
        shared: &mut Shared,
        stripe: Stripe,
        values: impl Iterator<Item = (Version, u32)>,
    ) -> bool {
        let place = self.take_place(shared, stripe);
        if place.is_some() {
            self.set(stripe, place, values);
        }
        place.is_some()
    }

    /// Marks a stripe whose bytes the disk has lost.
    pub(crate) fn lose(&mut self, shared: &mut Shared, stripe: Stripe) {
        if self.disk_key(stripe).is_some() {
            self.mark(shared, stripe, State::Lost);
        }
    }

    /// The first stripe whose bytes the disk has lost. Index pages come before data.
    pub(crate) fn next_lost(&self) -> Option<Stripe> {
        let lost = |half: &Half| half.states.iter().position(|s| *s == State::Lost).map(|at| at as u32);
        let index = lost(&self.index).map(Stripe::index_page);
        index.or_else(|| lost(&self.data).map(Stripe::data))
    }

    /// Moves all chunks to a stash. The table is empty afterwards.
    pub(crate) fn stash(&mut self, arena: &mut Arena) -> Stash {
        let mut stash = Stash::new(self.k);
        // In the order of the stash: data, then index pages.
        let (data, index) = (core::mem::take(&mut self.data), core::mem::take(&mut self.index));
        for (half, stripe) in [(data, Stripe::data as fn(u32) -> Stripe), (index, Stripe::index_page)] {
            for (at, state) in half.states.iter().enumerate() {
                if let State::Valid(Some(ParityLocation::Memory(slot))) = state {
                    let of = at * self.k..(at + 1) * self.k;
                    let values = half.versions[of.clone()].iter().zip(&half.sums[of]);
                    stash.push(arena, stripe(at as u32), *slot, values.map(|(v, s)| (*v, *s)));
                }
            }
        }
        self.forget();
        arena.unreserve(core::mem::take(&mut self.grants).reserved_total());
        stash
    }

    /// Makes a stripe valid by a chunk of a stash that has these versions (P6.7). False, without a change, if the stash
    /// no longer has it, or memory is short.
    pub(crate) fn adopt(
        &mut self,
        arena: &mut Arena,
        stash: &Stash,
        stripe: Stripe,
        values: impl Iterator<Item = (Version, u32)>,
    ) -> bool {
        let from = self.grants.part_for(stripe);
        let Some(slot) = stash.redeem(arena, stripe, from) else {
            return false;
        };
        self.grants.take(stripe, from);
        self.set(stripe, Some(ParityLocation::Memory(slot)), values);
        true
    }

    /// Gives all chunks back. Bytes on disk stay there and are no longer counted.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        for half in [&self.data, &self.index] {
            for state in &half.states {
                if let State::Valid(Some(ParityLocation::Memory(slot))) = state {
                    shared.arena.give(*slot, Part::Free);
                }
            }
        }
        let grants = core::mem::take(&mut self.grants);
        match self.disk(shared) {
            Some(disk) => {
                disk.give(grants.used, Part::Free);
                disk.unreserve(grants.reserved_total());
            }
            None => shared.arena.unreserve(grants.reserved_total()),
        }
        self.forget();
    }

    fn forget(&mut self) {
        (self.data, self.index, self.complete) = (Half::default(), Half::default(), false);
    }

    fn take_place(&mut self, shared: &mut Shared, stripe: Stripe) -> Option<ParityLocation> {
        let from = self.grants.part_for(stripe);
        let place = match self.disk(shared) {
            Some(disk) => disk.take(from).then_some(ParityLocation::Disk)?,
            None => ParityLocation::Memory(shared.arena.take(from)?),
        };
        self.grants.take(stripe, from);
        Some(place)
    }

    fn drop_place(&mut self, shared: &mut Shared, stripe: Stripe, place: ParityLocation) {
        // The chunk stays reserved, because the streams that it was granted to may use the stripe again.
        let again = match place {
            ParityLocation::Memory(slot) => {
                shared.arena.give(slot, Part::Reserved);
                true
            }
            ParityLocation::Disk => self.on_disk.zip(shared.disk.as_mut()).is_some_and(|((list, _), disk)| {
                disk.log.remove(Key { list, stripe });
                disk.give(1, Part::Reserved);
                true
            }),
        };
        self.grants.give(stripe, again);
    }

    fn half(&self, stripe: Stripe) -> &Half {
        if stripe.is_index() { &self.index } else { &self.data }
    }

    fn half_mut(&mut self, stripe: Stripe) -> &mut Half {
        if stripe.is_index() {
            &mut self.index
        } else {
            &mut self.data
        }
    }

    /// Makes space for a stripe's entry; gives its index.
    fn grow(&mut self, stripe: Stripe) -> usize {
        let k = self.k;
        self.half_mut(stripe).grow(stripe.number(), k)
    }
}
