//! An allocator that records the largest single allocation of a thread, and the most memory that it held at once.

#![allow(unsafe_code)] // An allocator's interface is unsafe; this one passes every call on unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    // Constants without destructors, because counting must not allocate.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The allocations during a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The largest single allocation in bytes.
    pub largest_bytes: usize,
    /// The most bytes held at once, beyond those held before the run.
    pub peak_bytes: usize,
}

/// Runs a function on this thread and counts its allocations.
pub(crate) fn count(run: impl FnOnce()) -> Use {
    let before = HELD.get();
    PEAK.set(before);
    LARGEST.set(0);
    run();
    Use {
        largest_bytes: LARGEST.get(),
        peak_bytes: usize::try_from(PEAK.get() - before).unwrap_or(0),
    }
}

fn took(bytes: usize) {
    let held = HELD.get() + bytes as isize;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
    LARGEST.set(LARGEST.get().max(bytes));
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as our caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        took(bytes);
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: as our caller promises.
        unsafe { System.realloc(at, layout, bytes) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_and_the_peak_are_seen() {
        let seen = count(|| {
            drop(vec![0_u8; 5_000]);
            let _kept = [vec![1_u8; 3_000], vec![2_u8; 3_000]];
        });
        assert_eq!(seen.largest_bytes, 5_000);
        assert!((6_000..7_000).contains(&seen.peak_bytes), "{seen:?}");
    }
}
