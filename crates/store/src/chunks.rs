//! The chunks of one stream, as held by its owner.

use crate::{Arena, ChunkRef, Delta, Part};
use paritas_base::{Stripe, Version};

/// A chunk that must be reconstructed before the operation can continue (P5.6). Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing(pub Stripe);

/// What the owner holds of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// The chunk was never written, or was freed: all zeros, version 0, no memory.
    Zeros,
    /// The chunk exists at a known version, but its bytes are not resident.
    Absent,
    /// The chunk is resident.
    Here,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    version: Version,
    sum: u32,
    /// The number of the chunk's memory in the arena, or one of the two constants below. A u32, because there is one of
    /// these entries for every chunk.
    place: u32,
}

const PLACE_ZEROS: u32 = u32::MAX;
const PLACE_ABSENT: u32 = u32::MAX - 1;

impl Chunk {
    #[inline]
    fn state(&self) -> State {
        match self.place {
            PLACE_ZEROS => State::Zeros,
            PLACE_ABSENT => State::Absent,
            slot => State::Here(ChunkRef(slot)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Zeros,
    Absent,
    Here(ChunkRef),
}

const ZEROS: Chunk = Chunk {
    place: PLACE_ZEROS,
    sum: 0,
    version: Version::ZERO,
};

/// A stream's chunks: for each stripe its bytes, version and sum.
///
/// After a takeover the owner does not know which stripes exist until it has read the directory (P5.5). Until
/// then every stripe without a resident chunk counts as missing.
#[derive(Debug)]
pub struct Chunks {
    data: Vec<Chunk>,
    index: Vec<Chunk>,
    directory_known: bool,
    here_count: u32,
    absent_count: u32,
    /// Memory of chunks that were set aside because their bytes were wrong. It is kept for the right bytes.
    aside: Vec<(Stripe, ChunkRef)>,
}

impl Chunks {
    /// The chunks of a new stream: all zeros.
    pub fn new() -> Self {
        Self {
            data: Vec::new(),
            index: Vec::new(),
            directory_known: true,
            here_count: 0,
            absent_count: 0,
            aside: Vec::new(),
        }
    }

    /// The chunks of a stream that was taken over: nothing is known.
    pub fn unknown() -> Self {
        Self {
            directory_known: false,
            ..Self::new()
        }
    }

    /// Whether it is known which stripes exist.
    pub fn directory_known(&self) -> bool {
        self.directory_known
    }

    /// Sets which stripes exist, and at which versions. All others are zeros. Chunks that are already resident stay.
    pub fn set_directory(&mut self, stripes: impl Iterator<Item = (Stripe, Version)>) {
        for (stripe, version) in stripes {
            if version != Version::ZERO && matches!(self.chunk(stripe).state(), State::Zeros) {
                *self.chunk_mut(stripe) = Chunk {
                    place: PLACE_ABSENT,
                    sum: 0,
                    version,
                };
                self.absent_count += 1;
            }
        }
        self.directory_known = true;
    }

    /// One more than the highest stripe number that was ever touched, of data or of index pages.
    pub fn end(&self, index: bool) -> u32 {
        if index {
            self.index.len() as u32
        } else {
            self.data.len() as u32
        }
    }

    /// Number of chunks with memory.
    pub fn here_count(&self) -> u32 {
        self.here_count
    }

    /// Number of index pages and of data chunks with memory. Chunks set aside are included: their memory is needed
    /// again for the right bytes.
    pub fn held_counts(&self) -> (u32, u32) {
        let here = |c: &&Chunk| matches!(c.state(), State::Here(_));
        let index = self.index.iter().filter(here).count() as u32;
        let index_aside = self.aside.iter().filter(|(stripe, _)| stripe.is_index()).count() as u32;
        let data_aside = self.aside.len() as u32 - index_aside;
        (index + index_aside, self.here_count - index + data_aside)
    }

    /// Bytes of the tables beside the chunks.
    pub fn table_bytes(&self) -> u64 {
        ((self.data.capacity() + self.index.capacity()) * size_of::<Chunk>()) as u64
    }

    /// Number of chunks that are known to exist and are not resident.
    pub fn absent_count(&self) -> u32 {
        self.absent_count
    }

    /// What is held of a stripe's chunk; `None` while the directory is not known.
    pub fn presence(&self, stripe: Stripe) -> Option<Presence> {
        match self.chunk(stripe).state() {
            State::Here(_) => Some(Presence::Here),
            State::Absent => Some(Presence::Absent),
            State::Zeros => self.directory_known.then_some(Presence::Zeros),
        }
    }

    /// A chunk's version. Without a meaning while the directory is not known and the chunk is not resident.
    pub fn version(&self, stripe: Stripe) -> Version {
        self.chunk(stripe).version
    }

    /// A chunk's sum (P9.1).
    pub fn sum(&self, stripe: Stripe) -> u32 {
        self.chunk(stripe).sum
    }

    /// Adds to a chunk's sum. The protocol calls this for every extent of a closed delta.
    pub fn add_sum(&mut self, stripe: Stripe, sum: u32) {
        self.chunk_mut(stripe).sum ^= sum;
    }

    /// A chunk's memory; `None` if the chunk is all zeros.
    pub fn slot(&self, stripe: Stripe) -> Result<Option<ChunkRef>, Missing> {
        match self.chunk(stripe).state() {
            State::Here(slot) => Ok(Some(slot)),
            State::Zeros if self.directory_known => Ok(None),
            State::Zeros | State::Absent => Err(Missing(stripe)),
        }
    }

    /// A chunk's bytes; `None` if the chunk is all zeros.
    pub fn bytes<'a>(&self, arena: &'a Arena, stripe: Stripe) -> Result<Option<&'a [u8]>, Missing> {
        Ok(self.slot(stripe)?.map(|slot| arena.bytes(slot)))
    }

    /// Every stripe whose chunk is resident or absent, with its version. Index pages come first, then data.
    pub fn stripes(&self) -> impl Iterator<Item = (Stripe, Version)> + '_ {
        let index = self
            .index
            .iter()
            .enumerate()
            .map(|(i, c)| (Stripe::index_page(i as u32), c));
        let data = self.data.iter().enumerate().map(|(i, c)| (Stripe::data(i as u32), c));
        index
            .chain(data)
            .filter(|(_, c)| !matches!(c.state(), State::Zeros))
            .map(|(s, c)| (s, c.version))
    }

    /// Gives memory to a chunk that is all zeros, so that later changes cannot fail for lack of memory. Returns false
    /// if no memory is left. The chunk must not be missing.
    pub fn touch(&mut self, arena: &mut Arena, stripe: Stripe) -> bool {
        match self.chunk(stripe).state() {
            State::Here(_) => true,
            State::Absent => {
                debug_assert!(false, "touch of a missing chunk");
                false
            }
            State::Zeros => {
                debug_assert!(self.directory_known);
                let Some(slot) = arena.take(Part::Free) else {
                    return false;
                };
                self.chunk_mut(stripe).place = slot.0;
                self.here_count += 1;
                true
            }
        }
    }

    /// Writes `new` at `offset` and records old XOR new in the delta, trimmed to the bytes that differ. If nothing
    /// differs, nothing is recorded unless `always` is true: then one byte is recorded, so that the chunk takes the
    /// delta's version.
    ///
    /// # Panics
    /// If the chunk was not [`touch`](Self::touch)ed, or if the range lies outside it. Both are errors of the caller.
    pub fn change(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        stripe: Stripe,
        offset: usize,
        new: &[u8],
        always: bool,
    ) {
        let State::Here(slot) = self.chunk(stripe).state() else {
            panic!("change of chunk {stripe} that is not here");
        };
        let old = &mut arena.bytes_mut(slot)[offset..offset + new.len()];
        let mut first = same_at_start(old, new);
        let mut last = new.len() - same_at_end(&old[first..], &new[first..]);
        if first >= last {
            if !always || new.is_empty() {
                return;
            }
            (first, last) = (0, 1);
        }
        let base = self.rebase(stripe, delta.version());
        let xor = delta.extent(stripe, false, base, offset + first, last - first);
        let (old, new) = (&mut old[first..last], &new[first..last]);
        for ((x, o), n) in xor.iter_mut().zip(old.iter()).zip(new) {
            *x = o ^ n;
        }
        old.copy_from_slice(new);
    }

    /// Frees a chunk. The delta carries its remaining bytes, so that the chunk becomes zeros at every holder; its
    /// memory is free (P8.6). A chunk that is zeros stays so. The chunk must not be missing.
    pub fn free(&mut self, arena: &mut Arena, delta: &mut Delta, stripe: Stripe) {
        let State::Here(slot) = self.chunk(stripe).state() else {
            return;
        };
        let base = self.rebase(stripe, delta.version());
        let bytes = arena.bytes(slot);
        delta.extent(stripe, true, base, 0, bytes.len()).copy_from_slice(bytes);
        arena.give(slot, Part::Free);
        // The sum is kept here. Closing the delta adds the sum of the freed bytes, which makes it 0.
        let chunk = self.chunk_mut(stripe);
        chunk.place = PLACE_ZEROS;
        chunk.version = Version::ZERO;
        self.here_count -= 1;
    }

    /// Makes a reconstructed chunk resident. Returns false and does nothing if it is already resident or memory is
    /// short.
    pub fn install(&mut self, arena: &mut Arena, stripe: Stripe, version: Version, sum: u32, bytes: &[u8]) -> bool {
        let was = self.chunk(stripe).state();
        if matches!(was, State::Here(_)) || (self.directory_known && matches!(was, State::Zeros)) {
            return false;
        }
        if version == Version::ZERO {
            if matches!(was, State::Absent) {
                self.absent_count -= 1;
            }
            *self.chunk_mut(stripe) = ZEROS;
            if let Some(slot) = self.take_aside(stripe) {
                arena.give(slot, Part::Free);
            }
            return true;
        }
        let Some(slot) = self.take_aside(stripe).or_else(|| arena.take(Part::Free)) else {
            return false;
        };
        arena.bytes_mut(slot).copy_from_slice(bytes);
        if matches!(was, State::Absent) {
            self.absent_count -= 1;
        }
        self.here_count += 1;
        *self.chunk_mut(stripe) = Chunk {
            place: slot.0,
            sum,
            version,
        };
        true
    }

    /// Marks a chunk whose bytes are wrong as absent at its version, until the right bytes are installed (P9.3).
    /// Its memory is kept for them. Returns false and does nothing if the chunk is not resident.
    pub(crate) fn set_aside(&mut self, stripe: Stripe) -> bool {
        let State::Here(slot) = self.chunk(stripe).state() else {
            return false;
        };
        self.chunk_mut(stripe).place = PLACE_ABSENT;
        self.aside.push((stripe, slot));
        self.here_count -= 1;
        self.absent_count += 1;
        true
    }

    /// Returns the memory of a chunk that was set aside. The chunk is then an ordinary absent one.
    pub(crate) fn forget_aside(&mut self, arena: &mut Arena, stripe: Stripe) {
        if let Some(slot) = self.take_aside(stripe) {
            arena.give(slot, Part::Free);
        }
    }

    fn take_aside(&mut self, stripe: Stripe) -> Option<ChunkRef> {
        let at = self.aside.iter().position(|(s, _)| *s == stripe)?;
        Some(self.aside.swap_remove(at).1)
    }

    /// The first resident chunk at or after `from`, in the order: index pages, then data.
    pub fn next_here(&self, from: Stripe) -> Option<Stripe> {
        let here = |chunk: &Chunk| matches!(chunk.state(), State::Here(_));
        let after = |table: &[Chunk], first: u32| {
            let rest = table.get(first as usize..)?;
            rest.iter().position(here).map(|at| first + at as u32)
        };
        let index = if from.is_index() {
            after(&self.index, from.number())
        } else {
            None
        };
        let first = if from.is_index() { 0 } else { from.number() };
        let data = || after(&self.data, first).map(Stripe::data);
        index.map(Stripe::index_page).or_else(data)
    }

    /// Returns all memory to the arena. The stream is then unknown.
    pub fn clear(&mut self, arena: &mut Arena) {
        for (_, slot) in self.aside.drain(..) {
            arena.give(slot, Part::Free);
        }
        for chunk in self.data.drain(..).chain(self.index.drain(..)) {
            if let State::Here(slot) = chunk.state() {
                arena.give(slot, Part::Free);
            }
        }
        *self = Self::unknown();
    }

    /// Ends ownership of the stream. Each resident chunk goes to `take` together with its memory, in the order of
    /// stripes. Chunks set aside are freed.
    pub(crate) fn give_up(self, arena: &mut Arena, mut take: impl FnMut(&mut Arena, Stripe, Version, u32, ChunkRef)) {
        for (_, slot) in self.aside {
            arena.give(slot, Part::Free);
        }
        let data = (0..).map(Stripe::data).zip(self.data);
        for (stripe, chunk) in data.chain((0..).map(Stripe::index_page).zip(self.index)) {
            if let State::Here(slot) = chunk.state() {
                take(arena, stripe, chunk.version, chunk.sum, slot);
            }
        }
    }

    /// Sets the chunk's version. Returns the former version, unless this delta has already set it.
    fn rebase(&mut self, stripe: Stripe, version: Version) -> Option<Version> {
        let chunk = self.chunk_mut(stripe);
        if chunk.version == version {
            return None;
        }
        let base = chunk.version;
        chunk.version = version;
        Some(base)
    }

    fn chunk(&self, stripe: Stripe) -> Chunk {
        let table = if stripe.is_index() { &self.index } else { &self.data };
        table.get(stripe.number() as usize).copied().unwrap_or(ZEROS)
    }

    fn chunk_mut(&mut self, stripe: Stripe) -> &mut Chunk {
        let table = if stripe.is_index() {
            &mut self.index
        } else {
            &mut self.data
        };
        let at = stripe.number() as usize;
        if at >= table.len() {
            grow_table(table, at + 1);
            table.resize(at + 1, ZEROS);
        }
        &mut table[at]
    }
}

/// Number of equal bytes at the start of two ranges of the same length.
fn same_at_start(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let same = 8 * words.take_while(|(a, b)| a == b).count();
    let rest = a[same..].iter().zip(&b[same..]);
    same + rest.take_while(|(a, b)| a == b).count()
}

/// Number of equal bytes at the end of two ranges of the same length.
fn same_at_end(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_rchunks::<8>().1.iter().zip(b.as_rchunks::<8>().1);
    let same = 8 * words.rev().take_while(|(a, b)| a == b).count();
    let rest = a[..a.len() - same].iter().zip(&b[..b.len() - same]);
    same + rest.rev().take_while(|(a, b)| a == b).count()
}

/// Grows the table's capacity to at least `length` entries and an eighth more. Doubling would waste up to half of the
/// table.
pub fn grow_table<T>(table: &mut Vec<T>, length: usize) {
    if length > table.capacity() {
        table.reserve_exact((length + length / 8 + 4) - table.len());
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::extents;

    #[test]
    fn a_change_is_in_the_bytes_and_in_the_delta() {
        let mut arena = Arena::new(256, 4);
        let mut chunks = Chunks::new();
        let stripe = Stripe::data(3);
        assert!(chunks.touch(&mut arena, stripe));
        let mut delta = Delta::new(Version::new(1, 1), Vec::new());
        chunks.change(&mut arena, &mut delta, stripe, 10, b"hello", false);
        chunks.change(&mut arena, &mut delta, stripe, 10, b"hEllo", false);
        let found: Vec<_> = extents(delta.version(), delta.bytes(), 256)
            .map(Result::unwrap)
            .collect();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].base, found[0].offset, found[0].xor),
            (Some(Version::ZERO), 10, &b"hello"[..])
        );
        assert_eq!(
            (found[1].base, found[1].offset, found[1].xor),
            (None, 11, &[b'e' ^ b'E'][..])
        );
        assert_eq!(chunks.version(stripe), Version::new(1, 1));
    }

    #[test]
    fn extents_are_trimmed_to_the_bytes_that_differ() {
        for length in 0..40 {
            for first in 0..length {
                for last in first..length {
                    let (a, mut b) = (vec![1u8; length], vec![1u8; length]);
                    (b[first], b[last]) = (2, 3);
                    assert_eq!(same_at_start(&a, &b), first);
                    assert_eq!(same_at_end(&a, &b), length - 1 - last);
                }
            }
            let a = vec![1; length];
            assert_eq!((same_at_start(&a, &a), same_at_end(&a, &a)), (length, length));
        }
    }

    #[test]
    fn a_freed_chunk_can_be_written_again_in_the_same_delta() {
        let mut arena = Arena::new(256, 4);
        let mut chunks = Chunks::new();
        let stripe = Stripe::data(0);
        assert!(chunks.touch(&mut arena, stripe));
        let mut delta = Delta::new(Version::new(1, 1), Vec::new());
        chunks.change(&mut arena, &mut delta, stripe, 0, b"abc", false);
        chunks.free(&mut arena, &mut delta, stripe);
        assert_eq!(chunks.presence(stripe), Some(Presence::Zeros));
        assert!(chunks.touch(&mut arena, stripe));
        chunks.change(&mut arena, &mut delta, stripe, 0, b"x", false);
        let bases: Vec<_> = extents(delta.version(), delta.bytes(), 256)
            .map(|e| e.unwrap().base)
            .collect();
        assert_eq!(bases, [Some(Version::ZERO), None, Some(Version::ZERO)]);
    }

    #[test]
    fn damaged_extents_are_refused() {
        let mut delta = Delta::new(Version::new(1, 1), Vec::new());
        delta
            .extent(Stripe::data(1), false, Some(Version::ZERO), 250, 6)
            .fill(1);
        assert!(extents(delta.version(), delta.bytes(), 256).all(|e| e.is_ok()));
        assert!(
            extents(delta.version(), delta.bytes(), 128).any(|e| e.is_err()),
            "an extent beyond the chunk was accepted"
        );
        for cut in 1..delta.bytes().len() {
            assert!(
                extents(delta.version(), &delta.bytes()[..cut], 256).any(|e| e.is_err()),
                "cut at {cut}"
            );
        }
    }
}
