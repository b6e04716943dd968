//! The parity chunks of one member, with the versions and sums they stand for (PROTOCOL 1.6, 1.7).

use paritas_base::{Stripe, Version};
use paritas_code::{mul_add, sum};
use paritas_store::delta::{Extent, extents};
use paritas_store::{Arena, Slot, Stash, grow_table};

/// What a member knows of one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Nothing was heard of it since this member joined. Zeros once the table is complete (6.6), unknown before.
    Untouched,
    /// Its deltas are logged but its bytes are not known.
    Invalid,
    /// Being fetched; its deltas are buffered (6.2).
    Fetching,
    /// `bytes = Σ coef · D@vec`. No slot: all zeros.
    Valid(Option<Slot>),
}

/// Why an extent could not be folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoldError {
    /// `vec` is not the extent's base: a protocol bug or corrupt memory (3.5).
    BaseMismatch {
        /// What the table has.
        found: Version,
        /// What the extent says.
        base: Version,
    },
    /// No memory although it was granted (3.6).
    NoMemory,
    /// Every chunk of the stripe has been freed, and what was said of one did not make it zeros (1.4).
    NotZeros,
}

#[derive(Debug, Default)]
struct Half {
    states: Vec<State>,
    /// `k` versions a stripe.
    versions: Vec<Version>,
    /// `k` sums a stripe.
    sums: Vec<u32>,
}

/// All stripes of a list as one parity member has them.
#[derive(Debug)]
pub(crate) struct ParityTable {
    k: usize,
    coefficients: Vec<u8>,
    data: Half,
    index: Half,
    /// Stripes never heard of are zeros (6.6).
    complete: bool,
    slots: u32,
    reserved: u32,
}

impl ParityTable {
    pub(crate) fn new(coefficients: Vec<u8>, complete: bool) -> Self {
        let k = coefficients.len();
        Self {
            k,
            coefficients,
            data: Half::default(),
            index: Half::default(),
            complete,
            slots: 0,
            reserved: 0,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn set_complete(&mut self) {
        self.complete = true;
    }

    /// Parity chunks that hold memory.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
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
            State::Invalid | State::Fetching => false,
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

    /// Where the parity chunk is; `None` if it is all zeros, or not valid.
    pub(crate) fn slot(&self, stripe: Stripe) -> Option<Slot> {
        match self.state(stripe) {
            State::Valid(slot) => slot,
            State::Untouched | State::Invalid | State::Fetching => None,
        }
    }

    /// The parity chunk; `None` if it is all zeros.
    pub(crate) fn bytes<'a>(&self, arena: &'a Arena, stripe: Stripe) -> Option<&'a [u8]> {
        self.slot(stripe).map(|slot| arena.bytes(slot))
    }

    /// Every stripe that was ever heard of, index pages first.
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

    /// The first stripe with a parity chunk at or after a place in the order: index pages, then data.
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

    /// Marks a stripe. A slot that it held is freed.
    pub(crate) fn mark(&mut self, arena: &mut Arena, stripe: Stripe, state: State) {
        if let State::Valid(Some(slot)) = self.state(stripe) {
            self.drop_slot(arena, slot);
        }
        let at = self.grow(stripe);
        self.half_mut(stripe).states[at] = state;
    }

    /// Puts a fetched stripe in place, valid (6.3), over what was there. False, and nothing done, if memory is short.
    pub(crate) fn install(
        &mut self,
        arena: &mut Arena,
        stripe: Stripe,
        values: &[(Version, u32)],
        bytes: &[u8],
    ) -> bool {
        let any = values.iter().any(|(v, _)| *v != Version::ZERO);
        let slot = if any {
            let Some(slot) = self.slot(stripe).or_else(|| self.take_slot(arena)) else {
                return false;
            };
            arena.bytes_mut(slot).copy_from_slice(bytes);
            Some(slot)
        } else {
            self.mark(arena, stripe, State::Invalid);
            None
        };
        let at = self.grow(stripe);
        let k = self.k;
        let half = self.half_mut(stripe);
        half.states[at] = State::Valid(slot);
        for (i, (version, sum)) in values.iter().enumerate() {
            half.versions[at * k + i] = *version;
            half.sums[at * k + i] = *sum;
        }
        true
    }

    /// Folds one extent into a valid stripe: `to` is the version afterwards. With `undo`, `to` is the base to go
    /// back to and the base check is left out: XOR again undoes (3.10).
    pub(crate) fn fold(
        &mut self,
        arena: &mut Arena,
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
        let slot = match half.states[at] {
            State::Valid(Some(slot)) => slot,
            _ => {
                let Some(slot) = self.take_slot(arena) else {
                    return Err(FoldError::NoMemory);
                };
                self.half_mut(extent.stripe).states[at] = State::Valid(Some(slot));
                slot
            }
        };
        let chunk_bytes = arena.chunk_bytes();
        let target = &mut arena.bytes_mut(slot)[extent.offset..extent.offset + extent.xor.len()];
        mul_add(coefficient, extent.xor, target);
        let half = self.half_mut(extent.stripe);
        half.sums[at * k + x] ^= sum::of_extent(chunk_bytes, extent.offset, extent.xor);
        if let Some(to) = to {
            half.versions[at * k + x] = to;
            if to == Version::ZERO && half.versions[at * k..(at + 1) * k].iter().all(|v| *v == Version::ZERO) {
                // By what was said, not by what lies here: a bit that memory has flipped goes with the chunk.
                if half.sums[at * k..(at + 1) * k].iter().any(|sum| *sum != 0) {
                    return Err(FoldError::NotZeros);
                }
                half.states[at] = State::Valid(None);
                self.drop_slot(arena, slot);
            }
        }
        Ok(())
    }

    /// Brings closer the bytes that folding this delta will change: its extents lie anywhere, and their waits overlap.
    pub(crate) fn prefetch(&self, arena: &Arena, delta: &[u8]) {
        for extent in extents(delta, arena.chunk_bytes()).flatten() {
            if let State::Valid(Some(slot)) = self.state(extent.stripe) {
                arena.prefetch(slot, extent.offset);
                arena.prefetch(slot, extent.offset + extent.xor.len());
            }
        }
    }

    /// Sets memory aside so that `stripes` parity chunks can be held in all. False if memory is short.
    pub(crate) fn reserve(&mut self, arena: &mut Arena, stripes: u32) -> bool {
        let have = self.slots + self.reserved;
        let Some(more) = stripes.checked_sub(have) else {
            return true;
        };
        let fits = arena.reserve(more);
        if fits {
            self.reserved += more;
        }
        fits
    }

    /// Whether one more chunk can be held beside so many that are about to be, within what writers may take.
    pub(crate) fn has_room(&self, arena: &Arena, about_to_be_held: usize) -> bool {
        about_to_be_held < self.reserved as usize || arena.has_room(about_to_be_held - self.reserved as usize)
    }

    /// How many parity chunks there can be in all, as memory stands.
    pub(crate) fn slots_max(&self, arena: &Arena) -> u32 {
        self.slots + self.reserved + arena.available()
    }

    /// Gives all chunks up, to a stash. Nothing is here afterwards.
    pub(crate) fn stash(&mut self, arena: &mut Arena) -> Stash {
        let mut stash = Stash::new(self.k);
        // As the stash has them: data before index.
        let (data, index) = (core::mem::take(&mut self.data), core::mem::take(&mut self.index));
        for (half, stripe) in [(data, Stripe::data as fn(u32) -> Stripe), (index, Stripe::index_page)] {
            for (at, state) in half.states.iter().enumerate() {
                if let State::Valid(Some(slot)) = state {
                    let of = at * self.k..(at + 1) * self.k;
                    let values = half.versions[of.clone()].iter().zip(&half.sums[of]);
                    stash.push(arena, stripe(at as u32), *slot, values.map(|(v, s)| (*v, *s)));
                }
            }
        }
        self.clear(arena);
        stash
    }

    /// Takes a chunk out of a stash, valid for these versions, of a stripe that is not. False, and nothing done, if it
    /// has gone, or memory is short.
    pub(crate) fn adopt(
        &mut self,
        arena: &mut Arena,
        stash: &Stash,
        stripe: Stripe,
        values: impl Iterator<Item = (Version, u32)>,
    ) -> bool {
        let granted = self.reserved > 0;
        if granted {
            arena.unreserve(1);
        }
        let Some(slot) = stash.redeem(arena, stripe) else {
            // What was given up a moment ago is there.
            self.reserved -= u32::from(granted && !arena.reserve_again());
            return false;
        };
        self.reserved -= u32::from(granted);
        self.slots += 1;
        let at = self.grow(stripe);
        let k = self.k;
        let half = self.half_mut(stripe);
        half.states[at] = State::Valid(Some(slot));
        for (i, (version, sum)) in values.enumerate() {
            half.versions[at * k + i] = version;
            half.sums[at * k + i] = sum;
        }
        true
    }

    /// Gives all memory back.
    pub(crate) fn clear(&mut self, arena: &mut Arena) {
        for half in [&mut self.data, &mut self.index] {
            for state in half.states.drain(..) {
                if let State::Valid(Some(slot)) = state {
                    arena.free(slot);
                }
            }
            half.versions.clear();
            half.sums.clear();
        }
        arena.unreserve(self.reserved);
        (self.slots, self.reserved, self.complete) = (0, 0, false);
    }

    fn take_slot(&mut self, arena: &mut Arena) -> Option<Slot> {
        let slot = if self.reserved > 0 {
            let slot = arena.alloc_reserved()?;
            self.reserved -= 1;
            slot
        } else {
            arena.alloc()?
        };
        self.slots += 1;
        Some(slot)
    }

    fn drop_slot(&mut self, arena: &mut Arena, slot: Slot) {
        arena.free(slot);
        self.slots -= 1;
        // It stays granted to the streams that may use the stripe again.
        if arena.reserve_again() {
            self.reserved += 1;
        }
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

    /// Makes room for a stripe's entry; gives its place.
    fn grow(&mut self, stripe: Stripe) -> usize {
        let k = self.k;
        let at = stripe.number() as usize;
        let half = self.half_mut(stripe);
        if at >= half.states.len() {
            grow_table(&mut half.states, at + 1);
            grow_table(&mut half.versions, (at + 1) * k);
            grow_table(&mut half.sums, (at + 1) * k);
            half.states.resize(at + 1, State::Untouched);
            half.versions.resize((at + 1) * k, Version::ZERO);
            half.sums.resize((at + 1) * k, 0);
        }
        at
    }
}
