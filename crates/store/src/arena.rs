//! Chunk-sized slots in one reserved range of address space (P8.3).
#![allow(unsafe_code)]

use crate::budget::{Budget, Part, Purpose};
use core::ptr::NonNull;
use std::collections::VecDeque;

const HUGE_BYTES: usize = 2 << 20;

/// How many huge pages of what will surely be written are made ready ahead of it: the thread that does it may have to
/// wait for a core while the shard goes on, and what the shard has touched by then is copied.
const AHEAD: usize = 32;

/// Of Linux 5.14 and 6.1; libc has no name for them on every platform.
const MADV_POPULATE_WRITE: libc::c_int = 23;
const MADV_COLLAPSE: libc::c_int = 25;

/// Free memory that is not given back, in bytes; in a small arena a 64th of it.
const KEPT_BYTES: usize = 4 << 20;

/// One slot of an [`Arena`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChunkRef(pub(crate) u32);

/// A slot that was *lent*: it is free by the budget, and its bytes can be read until the memory is used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan(u64);

/// All chunks of a shard, data, index and parity alike: `slots_max` slots of one size.
///
/// Address space is reserved at once; memory is taken when it is touched. Freed slots are used again last in, first
/// out. While more than some of them are free, [`Self::give_back`] returns memory to the system. Slots that fill a huge
/// page and are all in use can become one huge page ([`Self::next_huge`]): lookups then need fewer page walks, and no
/// huge page is partly unused.
#[derive(Debug)]
pub struct Arena {
    mapping: NonNull<u8>,
    /// Where slots begin.
    base: NonNull<u8>,
    chunk_bytes: usize,
    /// Counts slots and decides who may take one.
    budget: Budget,
    touched: u32,
    /// Slots that a rebuild is about to take. Writers may not be allowed to take all of them.
    expected: u32,
    /// Number of ranges that `next_huge` has returned when full, and the end of those returned before.
    huge: usize,
    ahead: usize,
    free: Vec<FreeSlot>,
    /// Free slots whose memory has been given back.
    returned: u32,
    /// The operating system takes no memory back.
    cannot_return: bool,
    /// Lent slots, oldest first; `None` if the loan has ended. `lent_first` is the loan number of the first entry,
    /// `lent_count` the number of loans that have not ended.
    lent: VecDeque<Option<ChunkRef>>,
    lent_first: u64,
    lent_count: u32,
    /// Buffers that the streams of the shard share: for bytes being written, and for bytes being copied.
    pub(crate) scratch: Vec<u8>,
    pub(crate) scratch_copy: Vec<u8>,
}

/// A range of an arena to be made one huge page of, on whatever thread can wait for it.
#[derive(Debug)]
pub struct HugeRange {
    at: usize,
    how: libc::c_int,
}

impl HugeRange {
    /// Makes the huge page. It takes milliseconds, because the system may have to find a page first; the arena can be
    /// used meanwhile. If the system cannot do it (Linux before 6.1), nothing changes.
    pub fn make(self) {
        let at = self.at as *mut libc::c_void;
        // SAFETY: none of these changes a byte of whatever is mapped there, and each may fail: harmless even if the
        // arena is gone by now. The last keeps the system from filling up the page with zeros by itself when some of
        // its slots are given back.
        unsafe {
            libc::madvise(at, HUGE_BYTES, libc::MADV_HUGEPAGE);
            libc::madvise(at, HUGE_BYTES, self.how);
            libc::madvise(at, HUGE_BYTES, libc::MADV_NOHUGEPAGE);
        }
    }
}

#[derive(Debug)]
struct FreeSlot {
    slot: u32,
    /// Its memory is with the system, and reads as zeros when touched again.
    returned: bool,
}

// SAFETY: the arena owns its mapping; nothing else refers to it.
unsafe impl Send for Arena {}

impl Arena {
    /// Reserves address space for `slots_max` slots of `chunk_bytes` (a power of two).
    ///
    /// # Panics
    /// If the system refuses the address space.
    pub fn new(chunk_bytes: usize, slots_max: u32) -> Self {
        assert!(chunk_bytes.is_power_of_two() && slots_max > 0);
        let bytes = chunk_bytes * slots_max as usize + HUGE_BYTES;
        // SAFETY: an anonymous private mapping at an address of the system's choice touches no memory of ours.
        let mapping = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(
            mapping != libc::MAP_FAILED,
            "cannot reserve {bytes} bytes of address space"
        );
        // SAFETY: the range is the mapping made above. Advice may fail without harm.
        unsafe { libc::madvise(mapping, bytes, libc::MADV_NOHUGEPAGE) };
        let mapping: NonNull<u8> = NonNull::new(mapping.cast()).unwrap_or(NonNull::dangling());
        // Slots begin where a huge page can: the mapping is larger by one.
        let skip = mapping.as_ptr().align_offset(HUGE_BYTES);
        let base = NonNull::new(mapping.as_ptr().wrapping_add(skip)).unwrap_or(mapping);
        Self {
            mapping,
            base,
            chunk_bytes,
            budget: Budget::of_memory(slots_max),
            touched: 0,
            expected: 0,
            huge: 0,
            ahead: 0,
            free: Vec::new(),
            returned: 0,
            cannot_return: false,
            lent: VecDeque::new(),
            lent_first: 0,
            lent_count: 0,
            scratch: Vec::new(),
            scratch_copy: Vec::new(),
        }
    }

    /// Bytes in a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Counts slots and decides who may take one. Lent slots do not count as used.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The largest number of slots.
    pub fn slots_max(&self) -> u32 {
        self.budget.capacity()
    }

    /// Slots in use; lent ones are not.
    pub fn used(&self) -> u32 {
        self.budget.used()
    }

    /// Slots that may still be taken for this purpose.
    #[inline]
    pub fn available(&self, purpose: Purpose) -> u32 {
        self.budget.available(purpose)
    }

    /// Slots lent.
    pub fn lent_count(&self) -> u32 {
        self.lent_count
    }

    /// Bytes of slots that hold memory: in use, lent, or free and not given back.
    pub fn resident_bytes(&self) -> u64 {
        u64::from(self.touched - self.returned) * self.chunk_bytes as u64
    }

    /// Bytes of what it holds beside the slots.
    pub fn buffer_bytes(&self) -> u64 {
        let scratch = self.scratch.capacity() + self.scratch_copy.capacity();
        let lent = self.lent.capacity() * size_of::<Option<ChunkRef>>();
        (scratch + lent + self.free.capacity() * size_of::<FreeSlot>()) as u64
    }

    /// [`Budget::set_limit`]. The oldest loans end if used and lent slots exceed the new limit.
    pub fn set_limit(&mut self, slots: u32) {
        self.budget.set_limit(slots);
        self.call_in();
    }

    /// [`Budget::set_headroom`].
    pub fn set_headroom(&mut self, slots: u32) {
        self.budget.set_headroom(slots);
    }

    /// [`Budget::set_backlog`].
    pub fn set_backlog(&mut self, slots: u32) {
        self.budget.set_backlog(slots);
    }

    /// [`Budget::reserve`].
    pub fn reserve(&mut self, count: u32, of_backlog: u32) -> bool {
        self.budget.reserve(count, of_backlog)
    }

    /// [`Budget::unreserve`].
    pub fn unreserve(&mut self, count: u32) {
        self.budget.unreserve(count);
    }

    /// Sets how many slots chunks that come back will soon take, data and parity: their memory is made ready ahead.
    pub fn set_expected(&mut self, slots: u32) {
        self.expected = slots;
    }

    /// A slot of zeros, or `None` when this part of the budget has none.
    pub fn take(&mut self, from: Part) -> Option<ChunkRef> {
        self.budget.take(from).then(|| self.zeros())
    }

    /// Gives a slot back.
    pub fn give(&mut self, slot: ChunkRef, to: Part) {
        self.budget.give(1, to);
        self.put_back(slot);
        self.check();
    }

    /// Asserts that the budget counts as used what is neither free nor lent.
    fn check(&self) {
        debug_assert_eq!(self.used(), self.touched - self.free.len() as u32 - self.lent_count);
    }

    /// A slot with these bytes, and zeros behind them. `None` as for [`Self::take`], and if they are more than a chunk.
    pub fn take_for(&mut self, bytes: &[u8], from: Part) -> Option<ChunkRef> {
        if bytes.len() > self.chunk_bytes || !self.budget.take(from) {
            return None;
        }
        let (slot, is_clear) = self.any();
        let (front, rest) = self.bytes_mut(slot).split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        if !is_clear {
            rest.fill(0);
        }
        Some(slot)
    }

    /// A slot of zeros that the budget counts already.
    fn zeros(&mut self) -> ChunkRef {
        let (slot, is_clear) = self.any();
        if !is_clear {
            self.bytes_mut(slot).fill(0);
        }
        slot
    }

    /// A slot that the budget counts already, and whether all its bytes are zero.
    fn any(&mut self) -> (ChunkRef, bool) {
        self.call_in();
        if let Some(FreeSlot { slot, returned }) = self.free.pop() {
            self.returned -= u32::from(returned);
            return (ChunkRef(slot), returned);
        }
        let slot = ChunkRef(self.touched);
        self.touched += 1;
        self.check();
        (slot, true)
    }

    /// Lends a slot in use (P2.4). When memory is needed, the oldest loans end first.
    pub fn lend(&mut self, slot: ChunkRef) -> Loan {
        self.lent.push_back(Some(slot));
        self.lent_count += 1;
        self.budget.give(1, Part::Free);
        let loan = Loan(self.lent_first + self.lent.len() as u64 - 1);
        self.call_in();
        loan
    }

    /// The bytes of a lent slot, if the loan has not ended.
    pub fn lent(&self, loan: Loan) -> Option<&[u8]> {
        let at = loan.0.checked_sub(self.lent_first)?;
        self.lent.get(at as usize)?.map(|slot| self.bytes(slot))
    }

    /// Takes a lent slot into use again, with its bytes. `None` if the loan has ended, or this part of the budget has
    /// no slot.
    pub fn redeem(&mut self, loan: Loan, from: Part) -> Option<ChunkRef> {
        if !self.budget.take(from) {
            return None;
        }
        let slot = self.end_loan(loan);
        if slot.is_none() {
            self.budget.give(1, from);
        }
        slot
    }

    /// Ends a loan whose bytes are no longer wanted, and frees the slot.
    pub fn end_lent(&mut self, loan: Loan) {
        if let Some(slot) = self.end_loan(loan) {
            self.put_back(slot);
        }
    }

    fn end_loan(&mut self, loan: Loan) -> Option<ChunkRef> {
        let at = loan.0.checked_sub(self.lent_first)?;
        let slot = self.lent.get_mut(at as usize)?.take()?;
        self.lent_count -= 1;
        while self.lent.front().is_some_and(Option::is_none) {
            self.lent.pop_front();
            self.lent_first += 1;
        }
        if self.lent.is_empty() {
            self.lent = VecDeque::new();
        }
        Some(slot)
    }

    /// Frees the oldest loans until slots used and lent are within what writers may fill.
    fn call_in(&mut self) {
        while self.lent_count > 0 && self.used() + self.lent_count > self.budget.limit() {
            self.end_lent(Loan(self.lent_first));
        }
    }

    /// The next range of slots to make one huge page of. The caller passes it to another thread, because that takes
    /// milliseconds.
    ///
    /// Ranges that a rebuild will fill are given ahead of use, so that the rebuild does not take its memory page by
    /// page. Every other range is given once, when all its slots lie before the newest slot: they are in use, because a
    /// new slot is touched only if none is free. No such range is given while memory of freed slots is with the system:
    /// a huge page would take that memory again unnoticed.
    pub fn next_huge(&mut self) -> Option<HugeRange> {
        // Powers of two, both: this is asked every turn.
        let shift = HUGE_BYTES.trailing_zeros() - self.chunk_bytes.trailing_zeros();
        let first = self.base.as_ptr() as usize;
        let range = |n: usize, how| HugeRange {
            at: first + n * HUGE_BYTES,
            how,
        };
        let touched = self.touched as usize;
        if self.expected > 0 {
            let untouched = (touched + (1 << shift) - 1) >> shift;
            // A rebuild takes lent slots again, or their memory.
            let there = self.free.len() + self.lent_count as usize;
            let sure = touched + (self.expected as usize).saturating_sub(there);
            let end = (sure.min(self.slots_max() as usize) >> shift).min(untouched + AHEAD);
            let next = self.ahead.max(untouched);
            if next < end {
                self.ahead = next + 1;
                return Some(range(next, MADV_POPULATE_WRITE));
            }
        }
        if self.huge >= touched.saturating_sub(1) >> shift || self.returned > 0 {
            return None;
        }
        self.huge += 1;
        Some(range(self.huge - 1, MADV_COLLAPSE))
    }

    /// Puts a slot among the free ones.
    fn put_back(&mut self, slot: ChunkRef) {
        self.free.push(FreeSlot {
            slot: slot.0,
            returned: false,
        });
    }

    /// Free slots whose memory is to be given back to the operating system. 1 % of the slots ever touched may stay, and
    /// always some that the next large value takes again: to give memory back and to touch it costs more than to fill
    /// it.
    pub fn surplus(&self) -> u32 {
        let resident = self.free.len() as u32 - self.returned;
        let always = (KEPT_BYTES / self.chunk_bytes) as u32;
        let kept = always.min(self.slots_max() / 64).max(self.touched / 100);
        match self.chunk_bytes >= 4096 && !self.cannot_return {
            true => resident.saturating_sub(kept),
            false => 0,
        }
    }

    /// Gives the memory of some free slots back, at most `slots_max`. It takes about as long as clearing them, so that
    /// freeing a value of many slots must not do it at once. Slots that adjoin are given back together.
    pub fn give_back(&mut self, slots_max: u32) {
        let count = self.surplus().min(slots_max) as usize;
        // Given back slots lie at the bottom, so that resident ones are used first.
        let (from, chunk_bytes) = (self.returned as usize, self.chunk_bytes);
        let Some(given) = self.free.get_mut(from..from + count) else {
            return;
        };
        given.sort_unstable_by_key(|free| free.slot);
        let runs: Vec<(u32, usize)> = given
            .chunk_by(|one, next| one.slot + 1 == next.slot)
            .filter_map(|run| Some((run.first()?.slot, run.len())))
            .collect();
        for (slot, slots) in runs {
            let at = self.bytes_mut(ChunkRef(slot)).as_mut_ptr();
            // SAFETY: the range is slots of our mapping that are no longer used, and page-aligned because slots are
            // whole pages from the mapping's start. Its bytes read as zeros afterwards.
            if unsafe { libc::madvise(at.cast(), slots * chunk_bytes, libc::MADV_DONTNEED) } != 0 {
                self.cannot_return = true;
                return;
            }
            let first = self.returned as usize;
            for free in &mut self.free[first..first + slots] {
                free.returned = true;
            }
            self.returned += slots as u32;
        }
    }

    /// A slot's bytes.
    pub fn bytes(&self, slot: ChunkRef) -> &[u8] {
        assert!(slot.0 < self.touched);
        // SAFETY: the slot lies within the mapping (checked above), which lives as long as self; anonymous
        // memory is always initialised; `&self` keeps writers away.
        unsafe {
            core::slice::from_raw_parts(
                self.base.as_ptr().add(slot.0 as usize * self.chunk_bytes),
                self.chunk_bytes,
            )
        }
    }

    /// A slot's bytes, to change.
    pub fn bytes_mut(&mut self, slot: ChunkRef) -> &mut [u8] {
        assert!(slot.0 < self.touched);
        // SAFETY: as in `bytes`; `&mut self` keeps every other access away.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.base.as_ptr().add(slot.0 as usize * self.chunk_bytes),
                self.chunk_bytes,
            )
        }
    }

    /// Hints that bytes at `offset` in a slot will be read soon.
    #[inline]
    pub fn prefetch(&self, slot: ChunkRef, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if slot.0 < self.touched && offset < self.chunk_bytes {
            // SAFETY: the address is within the mapping; a prefetch has no other effect.
            unsafe {
                use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                let at = self.base.as_ptr().add(slot.0 as usize * self.chunk_bytes + offset);
                _mm_prefetch::<_MM_HINT_T0>(at.cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (slot, offset);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = self.chunk_bytes * self.slots_max() as usize + HUGE_BYTES;
        // SAFETY: unmaps exactly what `new` mapped; no borrow outlives self.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_comes_back_as_zeros() {
        let mut arena = Arena::new(4096, 300);
        let slots: Vec<ChunkRef> = (0..300).map(|_| arena.take(Part::Free).unwrap()).collect();
        assert!(arena.take(Part::Free).is_none());
        for slot in &slots {
            arena.bytes_mut(*slot).fill(7);
        }
        for slot in slots {
            arena.give(slot, Part::Free);
        }
        assert_eq!((arena.used(), arena.surplus()), (0, 296));
        arena.give_back(100);
        assert_eq!((arena.resident_bytes(), arena.surplus()), (200 * 4096, 196));
        arena.give_back(u32::MAX);
        assert_eq!(arena.surplus(), 0);
        assert!(
            arena.resident_bytes() <= 4 * 4096,
            "all but a 64th goes back to the system"
        );
        for _ in 0..300 {
            let slot = arena.take(Part::Free).unwrap();
            assert!(arena.bytes(slot).iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn a_slot_taken_for_bytes_has_zeros_behind_them() {
        let mut arena = Arena::new(4096, 3);
        let slots: Vec<ChunkRef> = (0..2)
            .map(|_| arena.take_for(&[7; 4096], Part::Free).unwrap())
            .collect();
        assert!(arena.bytes(slots[0]).iter().all(|byte| *byte == 7));
        for slot in slots {
            arena.give(slot, Part::Free);
        }
        // Two slots that were used, and one that never was.
        for _ in 0..3 {
            let slot = arena.take_for(&[9; 100], Part::Free).unwrap();
            let (front, rest) = arena.bytes(slot).split_at(100);
            assert!(front.iter().all(|byte| *byte == 9) && rest.iter().all(|byte| *byte == 0));
        }
        assert!(arena.take_for(&[], Part::Free).is_none());
    }

    #[test]
    fn full_ranges_become_huge_once_each_and_keep_their_bytes() {
        let mut arena = Arena::new(64 << 10, 100);
        let slots: Vec<ChunkRef> = (0..33).map(|_| arena.take(Part::Free).unwrap()).collect();
        for (value, slot) in (0..).zip(&slots) {
            arena.bytes_mut(*slot).fill(value);
        }
        let range = arena.next_huge().unwrap();
        assert!(
            arena.next_huge().is_none(),
            "32 slots are a huge page, and one is begun"
        );
        range.make();
        for (value, slot) in (0..).zip(&slots) {
            assert!(arena.bytes(*slot).iter().all(|byte| *byte == value));
        }
    }

    #[test]
    fn memory_for_what_comes_back_is_made_ready_ahead_and_no_more_than_that() {
        let mut arena = Arena::new(64 << 10, 200);
        assert!(arena.take(Part::Free).is_some());
        arena.set_expected(31);
        assert!(arena.next_huge().is_none(), "they end in the range that is begun");
        arena.set_expected(31 + 70);
        let ranges: Vec<HugeRange> = core::iter::from_fn(|| arena.next_huge()).collect();
        assert_eq!(ranges.len(), 2, "the third would not be filled");
        ranges.into_iter().for_each(HugeRange::make);
        for value in 0..96 {
            let slot = arena.take(Part::Free).unwrap();
            assert!(arena.bytes(slot).iter().all(|byte| *byte == 0));
            arena.bytes_mut(slot).fill(value);
        }
    }

    #[test]
    fn memory_given_back_is_not_taken_again_by_a_huge_page() {
        let mut arena = Arena::new(64 << 10, 100);
        let slots: Vec<ChunkRef> = (0..33).map(|_| arena.take(Part::Free).unwrap()).collect();
        for slot in &slots[..4] {
            arena.give(*slot, Part::Free);
        }
        arena.give_back(u32::MAX);
        assert!(arena.resident_bytes() < 33 * (64 << 10), "some has gone back");
        assert!(arena.next_huge().is_none());
        (0..4).for_each(|_| assert!(arena.take(Part::Free).is_some()));
        assert!(arena.next_huge().is_some(), "all in use again");
    }

    #[test]
    fn what_is_lent_can_be_read_until_the_memory_is_needed() {
        let mut arena = Arena::new(256, 8);
        arena.set_limit(6);
        let slots: Vec<ChunkRef> = (0..4).map(|_| arena.take(Part::Free).unwrap()).collect();
        for (value, slot) in (1..).zip(&slots) {
            arena.bytes_mut(*slot).fill(value);
        }
        let loans: Vec<Loan> = slots.into_iter().map(|slot| arena.lend(slot)).collect();
        let there = |arena: &Arena| loans.iter().map(|l| arena.lent(*l).map(|b| b[0])).collect::<Vec<_>>();
        assert_eq!(
            (arena.used(), arena.available(Purpose::Write), arena.lent_count()),
            (0, 6, 4)
        );
        let mut taken: Vec<ChunkRef> = (0..2).map(|_| arena.take(Part::Free).unwrap()).collect();
        assert_eq!(
            there(&arena),
            [Some(1), Some(2), Some(3), Some(4)],
            "two slots were free"
        );
        taken.push(arena.take(Part::Free).unwrap());
        assert_eq!(
            there(&arena),
            [None, Some(2), Some(3), Some(4)],
            "the oldest goes first"
        );
        let again = arena.redeem(loans[2], Part::Free).unwrap();
        assert_eq!(arena.bytes(again)[0], 3);
        assert_eq!(there(&arena), [None, Some(2), None, Some(4)]);
        assert_eq!((arena.used(), arena.redeem(loans[2], Part::Free)), (4, None));
        arena.set_limit(5);
        assert_eq!(there(&arena), [None, None, None, Some(4)]);
        taken.extend((0..4).map(|_| arena.take(Part::Free).unwrap()));
        assert_eq!((arena.lent_count(), arena.used()), (0, 8));
        let zeros = taken[3..].iter().all(|slot| arena.bytes(*slot).iter().all(|b| *b == 0));
        assert!(zeros && arena.take(Part::Free).is_none());
    }

    #[test]
    fn what_is_reserved_is_not_given_to_others() {
        let mut arena = Arena::new(256, 4);
        assert!(arena.reserve(3, 0));
        assert!(!arena.reserve(2, 0));
        assert!(arena.take(Part::Free).is_some());
        assert!(arena.take(Part::Free).is_none());
        assert!(arena.take(Part::Reserved).is_some());
        arena.unreserve(2);
        assert_eq!(arena.available(Purpose::Write), 2);
    }
}
