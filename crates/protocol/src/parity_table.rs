//! The parity chunks of one member, with the versions and sums they stand for (P1.6, P1.7). The bytes are in
//! memory, or, on a log node, on its disk (P11.1).

use crate::context::Shared;
use crate::disk_log::DiskLog;
use paritas_base::{ListId, Position, Stripe, Version};
use paritas_code::{mul_add, sum};
use paritas_paritylog::{Change, Content, Extents, Key};
use paritas_store::delta::{Extent, extents};
use paritas_store::{Arena, Budget, ChunkRef, Part, Purpose, Stash, grow_table};

/// What a member knows of one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Nothing was heard of it since this member joined. Zeros once the table is complete (P6.6), unknown before.
    Untouched,
    /// Its deltas are logged but its bytes are not known.
    Invalid,
    /// Being fetched; its deltas are buffered (P6.2).
    Fetching,
    /// `bytes = Σ coef · D@vec`. No place: all zeros.
    Valid(Option<ParityLocation>),
    /// The disk has lost the bytes (P11.2). What they stand for is still known, and they can be made again.
    Lost,
}

impl State {
    /// It takes room, or will as soon as its bytes are here.
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
    /// `vec` is not the extent's base: a protocol bug or corrupt memory (P3.5).
    BaseMismatch {
        /// What the table has.
        found: Version,
        /// What the extent says.
        base: Version,
    },
    /// No memory although it was granted (P3.6).
    NoMemory,
    /// Every chunk of the stripe has been freed, and what was said of one did not make it zeros (P1.4).
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

impl Half {
    fn state(&self, number: u32) -> State {
        self.states.get(number as usize).copied().unwrap_or(State::Untouched)
    }

    /// Stripes from this number on that will take room and do not yet.
    fn awaited_from(&self, first: u32) -> u32 {
        let rest = self.states.get(first as usize..).unwrap_or_default();
        rest.iter()
            .filter(|state| state.is_held() && !state.has_place())
            .count() as u32
    }

    /// Of the numbers from `first` to `end`, those that take no room and need not.
    fn unused(&self, first: u32, end: u32) -> u32 {
        let known = (self.states.len() as u32).clamp(first, end.max(first));
        let unused = (first..known).filter(|number| !self.state(*number).is_held()).count();
        unused as u32 + end.max(first) - known
    }

    /// How far from `first` towards `end` so many of those reach.
    fn reach(&self, first: u32, end: u32, mut unused: u32) -> u32 {
        let known = (self.states.len() as u32).min(end);
        for number in first..known {
            if !self.state(number).is_held() {
                let Some(left) = unused.checked_sub(1) else {
                    return number;
                };
                unused = left;
            }
        }
        first.max(known).saturating_add(unused).min(first.max(end))
    }

    /// Of these numbers, those without a place.
    fn without_place(&self, first: u32, end: u32) -> u32 {
        let known = (self.states.len() as u32).min(end);
        let placed = (first..known).filter(|number| self.state(*number).has_place()).count();
        end - first - placed as u32
    }
}

/// What is known of the stripes that were there before a member came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum There {
    /// All of them, and how many are still to be refilled without room set aside.
    Known { owed: u32 },
    /// They are below the ends that their owners wish for, of whom `all` have asked, or not.
    Unknown { wished: (u32, u32), all: bool },
}

/// All stripes of a list as one parity member has them.
#[derive(Debug)]
pub(crate) struct ParityTable {
    k: usize,
    coefficients: Vec<u8>,
    data: Half,
    index: Half,
    /// Stripes never heard of are zeros (P6.6).
    complete: bool,
    /// Chunks are on disk, and these name them there.
    on_disk: Option<(ListId, Position)>,
    /// Ends of the data and index stripes that are granted (P8.2). Each below has its chunk, or room set aside for it.
    granted: (u32, u32),
    /// Chunks that take room, in memory or on disk, and those that room is set aside for.
    slots: u32,
    reserved: u32,
    /// Room kept for stripes beyond those ends that were freed: what freed them may be void, and is then undone
    /// (P3.10).
    freed: u32,
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
            granted: (0, 0),
            slots: 0,
            reserved: 0,
            freed: 0,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn set_complete(&mut self) {
        self.complete = true;
    }

    /// Parity chunks that hold memory.
    pub(crate) fn memory_slots(&self) -> u32 {
        if self.on_disk.is_some() { 0 } else { self.slots }
    }

    /// With those that memory is set aside for.
    pub(crate) fn memory_slots_granted(&self) -> u32 {
        if self.on_disk.is_some() {
            0
        } else {
            self.slots + self.reserved + self.freed
        }
    }

    /// Chunks of memory, or of the disk, that it uses, and those reserved for it.
    pub(crate) fn budgeted(&self) -> (u32, u32) {
        (self.slots, self.reserved + self.freed)
    }

    /// The name of a parity chunk on the disk, if it is there.
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

    /// Marks a stripe. A place that it held is free.
    pub(crate) fn mark(&mut self, shared: &mut Shared, stripe: Stripe, state: State) {
        if let State::Valid(Some(place)) = self.state(stripe) {
            self.drop_place(shared, stripe, place);
        }
        let at = self.grow(stripe);
        self.half_mut(stripe).states[at] = state;
    }

    /// Puts a fetched stripe in place, valid (P6.3), over what was there. False, and nothing done, if memory is short.
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

    /// Folds one extent into a valid stripe: `to` is the version afterwards. With `undo`, `to` is the base to go
    /// back to and the base check is left out: XOR again undoes (P3.10). Of a lost stripe only what it stands for
    /// changes.
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
                // By what was said, not by what lies here: a bit that memory has flipped goes with the chunk.
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

    /// Brings closer the bytes that folding this delta will change: its extents lie anywhere, and their waits overlap.
    pub(crate) fn prefetch(&self, arena: &Arena, delta: &[u8]) {
        for extent in extents(delta, arena.chunk_bytes()).flatten() {
            if let Some(slot) = self.slot(extent.stripe) {
                arena.prefetch(slot, extent.offset);
                arena.prefetch(slot, extent.offset + extent.xor.len());
            }
        }
    }

    /// Chunks that room is set aside for.
    pub(crate) fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Whether a stripe's chunk can be brought back beside so many that are about to be. A stand-in takes what writers
    /// may; who was planned for takes all there is, but what data positions need to serve (P10.5).
    pub(crate) fn may_refill(&self, shared: &Shared, stripe: Stripe, under_way: usize, stands_in: bool) -> bool {
        let set_aside = match self.is_granted(stripe) {
            true => self.reserved,
            false => self.freed,
        };
        let purpose = if stands_in { Purpose::StandIn } else { Purpose::Rebuild };
        set_aside > 0 || under_way < self.budget(shared).available(purpose) as usize
    }

    /// Sets room aside for stripes up to these ends, as far as memory or disk stand; gives the ends that are granted.
    pub(crate) fn grant(&mut self, shared: &mut Shared, wanted: (u32, u32), there: There) -> (u32, u32) {
        let owed = match there {
            There::Known { owed } => Some(owed),
            There::Unknown { .. } => None,
        };
        // The backlog of memory has no parity chunks.
        let of_backlog = if self.is_on_disk() { owed.unwrap_or(0) } else { 0 };
        let (data, index) = self.granted;
        let (mut data_end, mut index_end) = (wanted.0.max(data), wanted.1.max(index));
        // Stripes that were there before this member came, and are beyond what it granted, have the first call.
        let awaited = self.awaited();
        if let (true, Some(disk)) = (self.is_on_disk(), &shared.disk) {
            let ahead = owed.map_or(0, |_| disk.ahead_max(self.reserved));
            let used = |half: &Half, ahead: u32| (half.states.len() as u32).saturating_add(ahead);
            data_end = data_end.min(data.max(used(&self.data, ahead)));
            index_end = index_end.min(index.max(used(&self.index, ahead.div_ceil(2))));
        }
        let available = self.budget(shared).available(Purpose::Write) + of_backlog;
        // As much as there is: what little is left must not lie idle. Of too little the index has half, without which
        // nothing grows.
        let room = (available + self.freed).saturating_sub(awaited);
        let (data_more, index_more) = (self.data.unused(data, data_end), self.index.unused(index, index_end));
        if let There::Unknown { wished, all } = there {
            // What there is may be needed for what was there before: below what its owners wish for, and as much for
            // whoever has not asked yet.
            let of_all =
                self.data.unused(data, wished.0.max(data_end)) + self.index.unused(index, wished.1.max(index_end));
            let needed = of_all.saturating_mul(if all { 1 } else { 2 });
            if room < needed {
                return self.granted;
            }
        }
        let index_more = index_more.min(room.div_ceil(2).max(room.saturating_sub(data_more)));
        let data_end = self.data.reach(data, data_end, data_more.min(room - index_more));
        let index_end = self.index.reach(index, index_end, index_more);
        let more = self.data.without_place(data, data_end) + self.index.without_place(index, index_end);
        let freed = more.min(self.freed);
        let fits = match self.disk(shared) {
            Some(disk) => disk.reserve(more - freed, of_backlog),
            None => shared.arena.reserve(more - freed, of_backlog),
        };
        if fits {
            self.granted = (data_end, index_end);
            (self.reserved, self.freed) = (self.reserved + more, self.freed - freed);
        }
        self.granted
    }

    /// Chunks still to be refilled of stripes beyond what is granted.
    fn awaited(&self) -> u32 {
        let (data, index) = self.granted;
        self.data.awaited_from(data) + self.index.awaited_from(index)
    }

    /// Those of them that nothing is set aside for.
    pub(crate) fn slots_owed(&self) -> u32 {
        self.awaited().saturating_sub(self.freed)
    }

    fn is_granted(&self, stripe: Stripe) -> bool {
        let (data_end, index_end) = self.granted;
        stripe.number() < if stripe.is_index() { index_end } else { data_end }
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

    /// Takes up again a chunk that is on the disk, valid for these versions, of a stripe that is not. False if there is
    /// no room.
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

    /// The disk has lost these bytes.
    pub(crate) fn lose(&mut self, shared: &mut Shared, stripe: Stripe) {
        if self.disk_key(stripe).is_some() {
            self.mark(shared, stripe, State::Lost);
        }
    }

    /// The first stripe at or after this one whose bytes the disk has lost.
    pub(crate) fn next_lost(&self) -> Option<Stripe> {
        let lost = |half: &Half| half.states.iter().position(|s| *s == State::Lost).map(|at| at as u32);
        let index = lost(&self.index).map(Stripe::index_page);
        index.or_else(|| lost(&self.data).map(Stripe::data))
    }

    /// Gives all chunks up, to a stash. Nothing is here afterwards.
    pub(crate) fn stash(&mut self, arena: &mut Arena) -> Stash {
        let mut stash = Stash::new(self.k);
        // As the stash has them: data before index.
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
        arena.unreserve(self.reserved + self.freed);
        (self.slots, self.reserved, self.freed, self.granted) = (0, 0, 0, (0, 0));
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
        let from = self.part_for(stripe);
        let Some(slot) = stash.redeem(arena, stripe, from) else {
            return false;
        };
        self.taken(stripe, from);
        self.set(stripe, Some(ParityLocation::Memory(slot)), values);
        true
    }

    /// Gives all memory back. What is on disk stays there, as nobody's.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        for half in [&self.data, &self.index] {
            for state in &half.states {
                if let State::Valid(Some(ParityLocation::Memory(slot))) = state {
                    shared.arena.give(*slot, Part::Free);
                }
            }
        }
        match self.disk(shared) {
            Some(disk) => {
                disk.give(self.slots, Part::Free);
                disk.unreserve(self.reserved + self.freed);
            }
            None => shared.arena.unreserve(self.reserved + self.freed),
        }
        self.forget();
        (self.slots, self.reserved, self.freed, self.granted) = (0, 0, 0, (0, 0));
    }

    fn forget(&mut self) {
        (self.data, self.index, self.complete) = (Half::default(), Half::default(), false);
    }

    /// What is set aside for a stripe's bytes: for others' it is not.
    fn set_aside(&mut self, stripe: Stripe) -> &mut u32 {
        if self.is_granted(stripe) {
            &mut self.reserved
        } else {
            &mut self.freed
        }
    }

    /// The part of the budget that a stripe's chunk is taken from.
    fn part_for(&mut self, stripe: Stripe) -> Part {
        match *self.set_aside(stripe) {
            0 => Part::Free,
            _ => Part::Reserved,
        }
    }

    /// A chunk was taken for a stripe.
    fn taken(&mut self, stripe: Stripe, from: Part) {
        *self.set_aside(stripe) -= u32::from(from == Part::Reserved);
        self.slots += 1;
    }

    fn take_place(&mut self, shared: &mut Shared, stripe: Stripe) -> Option<ParityLocation> {
        let from = self.part_for(stripe);
        let place = match self.disk(shared) {
            Some(disk) => disk.take(from).then_some(ParityLocation::Disk)?,
            None => ParityLocation::Memory(shared.arena.take(from)?),
        };
        self.taken(stripe, from);
        Some(place)
    }

    fn drop_place(&mut self, shared: &mut Shared, stripe: Stripe, place: ParityLocation) {
        self.slots -= 1;
        // It stays granted to the streams that may use the stripe again.
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
        *self.set_aside(stripe) += u32::from(again);
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
