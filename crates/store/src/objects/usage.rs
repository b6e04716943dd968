//! Usage marks: one byte for each slot of the index, in the owner's own memory (P8.5).
//!
//! Marks are never in a chunk: a byte that a GET changed without a delta would corrupt what other nodes decode. So a
//! successor has no marks and starts cold (P8.5). Marks are kept only under a policy that reads them.

use crate::Policy;
use crate::index::page::{Room, SLOTS};

/// LRU: a mark is the value of the clock at the last use. The clock runs from `CLOCK_MIN` to 255. Then a new era
/// begins: all marks are halved, and the clock is at `CLOCK_MIN` again. So the clock never overflows, recent marks are
/// the most precise, and the order of marks stays.
const CLOCK_MIN: u8 = 128;
/// LRU: the clock ticks once for every `keys / TICKS_PER_KEYS` uses. A key without use for as many uses as there are
/// keys is 32 ticks old, so that ages are precise to 3 %.
const TICKS_PER_KEYS: u64 = 32;
/// LFU, as in Redis: first value of a new key's counter. The next constant sets how much rarer each further step is.
const COUNTER_NEW: u8 = 5;
const COUNTER_FACTOR: u32 = 10;
/// LFU: counters lose one in this many milliseconds.
const DECAY_MS: u64 = 60_000;

/// The usage marks of all pages.
#[derive(Debug, Default)]
pub(super) struct Usage {
    policy: Policy,
    pages: Vec<PageMarks>,
    clock: u8,
    /// LRU: number of eras so far. LFU: the present minute.
    era: u32,
    /// Number of uses since the last tick.
    uses: u64,
    random: u64,
}

#[derive(Debug)]
struct PageMarks {
    /// The era up to which these marks are aged.
    era: u32,
    marks: Box<[u8]>,
}

impl Usage {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            clock: CLOCK_MIN,
            random: seed | 1,
            ..Self::default()
        }
    }

    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether uses are recorded at all.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.policy.is_lru() || self.policy.is_lfu()
    }

    /// Sets the policy. Marks of the former policy are discarded, because they have another meaning.
    pub(super) fn set_policy(&mut self, policy: Policy) {
        if (policy.is_lru(), policy.is_lfu()) != (self.policy.is_lru(), self.policy.is_lfu()) {
            self.pages = Vec::new();
            (self.clock, self.era, self.uses) = (CLOCK_MIN, 0, 0);
        }
        self.policy = policy;
    }

    /// Sets the wall clock, by which LFU counters decay.
    pub(super) fn set_time(&mut self, now_ms: u64) {
        if self.policy.is_lfu() {
            self.era = self.era.max((now_ms / DECAY_MS) as u32);
        }
    }

    /// Sets the number of pages to `count`, with `lines` lines each. Marks of new pages are cold.
    pub(super) fn set_pages(&mut self, count: u32, lines: u32) {
        if !self.is_on() {
            return;
        }
        let era = self.era;
        crate::chunks::grow_table(&mut self.pages, count as usize);
        self.pages.resize_with(count as usize, || PageMarks {
            era,
            marks: vec![0; lines as usize * SLOTS].into_boxed_slice(),
        });
    }

    /// A page's marks, aged to the present; empty if no marks are kept.
    pub(super) fn marks(&mut self, page: u32) -> &mut [u8] {
        let (era, lfu) = (self.era, self.policy.is_lfu());
        let Some(page) = self.pages.get_mut(page as usize) else {
            return &mut [];
        };
        if page.era != era {
            let passed = era.saturating_sub(page.era);
            page.era = era;
            for mark in &mut page.marks {
                *mark = if lfu {
                    mark.saturating_sub(passed.min(255) as u8)
                } else {
                    mark.checked_shr(passed).unwrap_or(0)
                };
            }
        }
        &mut page.marks
    }

    /// The mark of a slot. The page's marks must have been aged to the present.
    #[inline]
    pub(super) fn mark(&self, page: u32, line: u32, slot: usize) -> u8 {
        let page = self.pages.get(page as usize);
        page.and_then(|p| p.marks.get(line as usize * SLOTS + slot))
            .copied()
            .unwrap_or(0)
    }

    /// Records a use of a key. `keys` is the number of keys.
    pub(super) fn touch(&mut self, page: u32, line: u32, slot: usize, keys: u64) {
        let random = self.next_random();
        let (lfu, clock) = (self.policy.is_lfu(), self.tick(keys));
        let Some(mark) = self.marks(page).get_mut(line as usize * SLOTS + slot) else {
            return;
        };
        if !lfu {
            *mark = clock;
        } else if *mark < u8::MAX {
            let harder = u32::from(mark.saturating_sub(COUNTER_NEW)) * COUNTER_FACTOR + 1;
            *mark += u8::from(((random >> 32) as u32).is_multiple_of(harder));
        }
    }

    /// Marks a new key. Other entries of the page may have moved for it.
    pub(super) fn insert(&mut self, page: u32, room: &Room, keys: u64) {
        let (lfu, clock) = (self.policy.is_lfu(), self.tick(keys));
        place(self.marks(page), room, if lfu { COUNTER_NEW } else { clock });
    }

    /// Discards the marks of all pages.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
    }

    fn tick(&mut self, keys: u64) -> u8 {
        self.uses += 1;
        if self.policy.is_lru() && self.uses * TICKS_PER_KEYS >= keys {
            self.uses = 0;
            (self.clock, self.era) = match self.clock {
                u8::MAX => (CLOCK_MIN, self.era.saturating_add(1)),
                clock => (clock + 1, self.era),
            };
        }
        self.clock
    }

    /// A random number for sampling and for counting. Nothing that clients or peers see depends on it.
    pub(super) fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    pub(super) fn table_bytes(&self) -> u64 {
        let marks = self.pages.first().map_or(0, |page| page.marks.len());
        (self.pages.capacity() * size_of::<PageMarks>() + self.pages.len() * marks) as u64
    }
}

/// Moves marks as entries move to make `room`, and sets the mark of the new one.
pub(super) fn place(marks: &mut [u8], room: &Room, new: u8) {
    let at = |(line, slot): (u32, usize)| line as usize * SLOTS + slot;
    if marks.is_empty() {
        return;
    }
    for (from, to) in room.moves() {
        marks[at(to)] = marks[at(from)];
    }
    marks[at(room.place())] = new;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(policy: Policy) -> Usage {
        let mut usage = Usage::new(1);
        usage.set_policy(policy);
        usage.set_pages(1, 4);
        usage
    }

    #[test]
    fn the_order_of_use_stays_through_many_eras() {
        let mut usage = usage(Policy::AllKeysLru);
        // One tick for each use, because the keys are few. Slot n is used last at time 60 n.
        for n in 0..40 {
            for _ in 0..60 {
                usage.touch(0, n / 10, (n % 10) as usize, 8);
            }
        }
        assert!(usage.era > 10, "{}", usage.era);
        let marks = usage.marks(0);
        assert!(marks.is_sorted(), "{marks:?}");
        assert!(marks[39] > marks[37] && marks[37] > marks[30], "{marks:?}");
    }

    #[test]
    fn counters_tell_often_from_seldom_and_forget() {
        let mut usage = usage(Policy::AllKeysLfu);
        for n in 0..1000 {
            usage.touch(0, 0, 0, 8);
            if n % 100 == 0 {
                usage.touch(0, 0, 1, 8);
            }
        }
        let (often, seldom) = (usage.marks(0)[0], usage.marks(0)[1]);
        assert!(often > seldom + 5, "{often} {seldom}");
        usage.set_time(DECAY_MS * 3);
        assert_eq!(usage.marks(0)[0], often - 3);
        usage.set_time(DECAY_MS * 1000);
        assert_eq!(usage.marks(0)[0], 0);
    }

    #[test]
    fn nothing_is_kept_where_nothing_asks() {
        for policy in [Policy::NoEviction, Policy::AllKeysRandom, Policy::VolatileTtl] {
            assert_eq!(usage(policy).table_bytes(), 0, "{policy}");
        }
        assert!(usage(Policy::VolatileLfu).table_bytes() > 0);
    }
}
