//! Maps a hash to a place among `n` index pages by partial-expansion linear hashing (docs/formats/index.md, "Mapping").
//!
//! Pages are organised in groups. In a round, each group in turn grows from `g` to `2g` pages, one page at a time; then
//! it is split into two groups of `g`. The keys of a page always form a contiguous range of hashes. Position and tag of
//! an entry give back as many bits of its hash as growth needs, so that keys rarely have to be read.

use super::page::LINE_BYTES;

/// Number of bits of a full tag that come from the hash.
const TAG_BITS: u32 = 15;
/// Fewest of these bits that a tag keeps. They are needed to invert the position and to find the alternate line.
const TAG_BITS_MIN: u32 = 9;
/// Number of doublings after which the key must be read, because its tag has no bits left to lose.
pub(crate) const SHIFTS_MAX: u32 = TAG_BITS - TAG_BITS_MIN;

/// The place of a hash: page, line and tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageSlot {
    pub page: u32,
    pub line: u32,
    pub tag: u16,
}

/// The layout of an index, as it follows from the chunk size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    lines_log2: u32,
    group_log2: u32,
}

/// A group of pages: `pages` of them, for the hashes that begin with the `level` bits `gamma`. A negative level stands
/// for an index of fewer than `g` pages, as if that many zero bits preceded the hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    level: i32,
    gamma: u64,
    /// Number of pages at this level, counted as if the level were not negative.
    span: u32,
}

/// One growth step: the group that is rebuilt, before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub old: Group,
    new: Group,
    /// Whether the group's prefix takes one more bit of the hash.
    doubles: bool,
}

impl Shape {
    /// For chunks of 256 B to 64 KiB.
    pub(crate) fn new(chunk_bytes: usize) -> Self {
        assert!(chunk_bytes.is_power_of_two() && (256..=64 << 10).contains(&chunk_bytes));
        let lines_log2 = (chunk_bytes / LINE_BYTES).trailing_zeros();
        // A step rewrites a whole group within a delta of 256 KiB, so larger pages need smaller groups.
        let group_log2 = match chunk_bytes {
            0..=0x4000 => 2,
            0x4001..=0x8000 => 1,
            _ => 0,
        };
        Self { lines_log2, group_log2 }
    }

    /// Number of lines in a page.
    pub(crate) fn lines(self) -> u32 {
        1 << self.lines_log2
    }

    /// Number of bits of a window before those of the tag.
    fn tag_start(self) -> u32 {
        self.lines_log2 + self.group_log2 - 1
    }

    /// Number of bits of a window that determine a position.
    fn window_bits(self) -> u32 {
        self.tag_start() + TAG_BITS_MIN
    }

    fn group_pages(self) -> u32 {
        1 << self.group_log2
    }

    /// The level, the number of pages of a group that has not grown in this round, and the number of groups that have.
    fn round(self, pages: u32) -> (i32, u32, u32) {
        let level = pages.ilog2() as i32 - self.group_log2 as i32;
        if level >= 0 {
            let span = pages >> level;
            (level, span, pages - (span << level))
        } else {
            (level, pages << -level, 0)
        }
    }

    /// The group of a hash.
    fn group(self, hash: u64, pages: u32) -> Group {
        let (level, span, grown) = self.round(pages);
        if level < 0 {
            return Group { level, gamma: 0, span };
        }
        let gamma = prefix(hash, level as u32);
        if gamma >= u64::from(grown) {
            return Group { level, gamma, span };
        }
        if span + 1 < 2 * self.group_pages() {
            return Group {
                level,
                gamma,
                span: span + 1,
            };
        }
        Group {
            level: level + 1,
            gamma: prefix(hash, level as u32 + 1),
            span: self.group_pages(),
        }
    }

    /// The place of a hash among `pages` pages (at least one).
    #[inline]
    pub(crate) fn place(self, hash: u64, pages: u32) -> PageSlot {
        let group = self.group(hash, pages);
        self.place_in(group, window(hash, group.level))
    }

    #[inline]
    fn place_in(self, group: Group, window: u64) -> PageSlot {
        let bits = self.window_bits();
        let lines = u64::from(group.span) << self.lines_log2;
        let x = ((window >> (64 - bits)) * lines) >> bits;
        PageSlot {
            page: self.page(group, (x >> self.lines_log2) as u32),
            line: x as u32 & (self.lines() - 1),
            tag: ((((window << self.tag_start()) >> (64 - TAG_BITS)) as u16) << 1) | 1,
        }
    }

    /// The number of a group's `member`-th page. The numbering makes new pages appear in ascending order.
    fn page(self, group: Group, member: u32) -> u32 {
        let Group {
            mut level, mut gamma, ..
        } = group;
        let mut member = member;
        let g = self.group_pages();
        if member >= g {
            // The page is new in this round. At the end of the round it belongs to the upper half of the group.
            gamma = 2 * gamma + 1;
            level += 1;
            member -= g;
        }
        if gamma == 0 {
            return member;
        }
        let zeros = gamma.trailing_zeros();
        ((member + g) << (level as u32 - 1 - zeros)) + (gamma >> (zeros + 1)) as u32
    }

    /// The line that may hold a key instead of its home line.
    #[inline]
    pub(crate) fn alternate(self, line: u32, tag: u16) -> u32 {
        (line + self.distance(tag)) & (self.lines() - 1)
    }

    /// The home line of a key that is in its alternate line.
    pub(crate) fn home(self, alternate: u32, tag: u16) -> u32 {
        alternate.wrapping_sub(self.distance(tag)) & (self.lines() - 1)
    }

    #[inline]
    fn distance(self, tag: u16) -> u32 {
        let bits = u32::from(tag >> 7) & 127;
        let lines = self.lines();
        1 + if lines > 128 { bits } else { bits % (lines - 1) }
    }

    /// The first hash after the line that holds `hash`; `None` after the last line.
    pub(crate) fn line_end(self, hash: u64, pages: u32) -> Option<u64> {
        let group = self.group(hash, pages);
        let bits = self.window_bits();
        let lines = u64::from(group.span) << self.lines_log2;
        let x = ((window(hash, group.level) >> (64 - bits)) * lines) >> bits;
        let end = ((x + 1) << bits).div_ceil(lines);
        // If the window overflows, it carries into the group's prefix.
        let first = (u128::from(group.gamma) << bits) + u128::from(end);
        let shift = 64 - bits as i32 - group.level;
        let hash = first << shift;
        u64::try_from(hash).ok()
    }

    /// The growth step from `pages` pages to one more.
    pub(crate) fn step(self, pages: u32) -> Step {
        let (level, span, grown) = self.round(pages);
        let old = Group {
            level,
            gamma: u64::from(grown),
            span,
        };
        let (new_level, new_span, _) = self.round(pages + 1);
        if level < 0 {
            let new = Group {
                level: new_level,
                gamma: 0,
                span: new_span,
            };
            return Step {
                old,
                new,
                doubles: new_level > level,
            };
        }
        let doubles = span + 1 == 2 * self.group_pages();
        let new = if doubles {
            Group {
                level: level + 1,
                gamma: 2 * old.gamma,
                span: self.group_pages(),
            }
        } else {
            Group { span: span + 1, ..old }
        };
        Step { old, new, doubles }
    }

    /// Number of pages of a group.
    pub(crate) fn members(self, group: Group) -> u32 {
        if group.level < 0 {
            group.span >> -group.level
        } else {
            group.span
        }
    }

    /// The number of a group's `member`-th page.
    pub(crate) fn member(self, group: Group, member: u32) -> u32 {
        self.page(group, member)
    }

    /// The place of an entry after a step, from its place before: its page within the old group, its home line and its
    /// tag. `None` if its tag has no bit left; then the key must be read and hashed.
    pub(crate) fn advance(self, step: Step, member: u32, line: u32, tag: u16) -> Option<PageSlot> {
        let spent = tag.trailing_zeros();
        let window = self.window_of(step.old, member, line, tag);
        if !step.doubles {
            let place = self.place_in(step.new, window);
            return Some(PageSlot { tag, ..place });
        }
        if spent >= SHIFTS_MAX {
            return None;
        }
        let mut new = step.new;
        if step.old.level >= 0 {
            new.gamma |= window >> 63;
        }
        let place = self.place_in(new, window << 1);
        Some(PageSlot { tag: tag << 1, ..place })
    }

    /// The top bits of an entry's window, as far as they are known.
    fn window_of(self, group: Group, member: u32, line: u32, tag: u16) -> u64 {
        let bits = self.window_bits();
        let lines = u64::from(group.span) << self.lines_log2;
        let x = (u64::from(member) << self.lines_log2) | u64::from(line);
        let low = u64::from(tag >> (16 - TAG_BITS_MIN));
        let first = (x << bits).div_ceil(lines);
        let high = first.saturating_sub(low).div_ceil(1 << TAG_BITS_MIN);
        let head = (high << TAG_BITS_MIN) | low;
        debug_assert_eq!((head * lines) >> bits, x, "tag does not fit its line");
        // The bits of the tag below those that determine the position, without the end mark.
        let rest = u64::from((tag & tag.wrapping_sub(1)) & (0xffff >> TAG_BITS_MIN));
        (head << (64 - bits)) | (rest << (64 - bits - (16 - TAG_BITS_MIN)))
    }

    /// Most keys that `pages` pages should hold, with `slots` slots each, filled to `fill_max` per mille. The index may
    /// be ahead of even growth by a third of a round (P1.3; figures in docs/formats/index.md).
    pub(crate) fn keys_max(self, pages: u32, slots: u32, fill_max: u32) -> u64 {
        const AHEAD: u64 = 3;
        if pages == 0 {
            return 0;
        }
        let (level, span, grown) = self.round(pages);
        if level < 0 {
            // All pages are equally large parts of the hashes.
            return u64::from(pages) * u64::from(slots) * u64::from(fill_max) / 1000;
        }
        let groups = 1u64 << level;
        // Number of pages times AHEAD, less the part of a round that is still to come.
        let pages = u64::from(span) * groups * AHEAD - groups + u64::from(grown);
        pages * u64::from(slots) * u64::from(fill_max) / (AHEAD * 1000)
    }
}

/// The first `bits` bits of a hash, as a number.
fn prefix(hash: u64, bits: u32) -> u64 {
    if bits == 0 { 0 } else { hash >> (64 - bits) }
}

/// A hash without the bits of its group's prefix.
#[inline]
fn window(hash: u64, level: i32) -> u64 {
    if level >= 0 { hash << level } else { hash >> -level }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::CURSOR_SHIFT;
    use paritas_base::Prng;

    #[test]
    fn every_step_moves_a_hash_where_its_place_says() {
        let seed = 7;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        for chunk_bytes in [256, 512, 4096, 16384, 32768, 65536] {
            let shape = Shape::new(chunk_bytes);
            for _ in 0..300 {
                let hash = prng.next_u64();
                let mut place = shape.place(hash, 1);
                for pages in 1..300 {
                    let step = shape.step(pages);
                    let members = shape.members(step.old);
                    let member = (0..members).find(|m| shape.member(step.old, *m) == place.page);
                    let fresh = shape.place(hash, pages + 1);
                    place = match member {
                        None => place,
                        Some(m) => match shape.advance(step, m, place.line, place.tag) {
                            Some(place) => place,
                            None => fresh,
                        },
                    };
                    assert_eq!((place.page, place.line), (fresh.page, fresh.line));
                    assert!(place.page <= pages);
                    let spent = place.tag.trailing_zeros();
                    assert!(spent <= SHIFTS_MAX);
                    assert_eq!(place.tag >> (spent + 1), fresh.tag >> (spent + 1));
                }
            }
        }
    }

    #[test]
    fn the_newest_page_belongs_to_the_group_that_grows() {
        for chunk_bytes in [256, 16384, 32768, 65536] {
            let shape = Shape::new(chunk_bytes);
            for pages in 1..3000 {
                let step = shape.step(pages);
                let members = shape.members(step.old);
                let mut group: Vec<u32> = (0..members).map(|m| shape.member(step.old, m)).collect();
                assert!(group.iter().all(|p| *p < pages));
                group.push(pages);
                assert!(group.len() <= 8);
                // A hash of the group maps to one of these pages.
                let gamma = if step.old.level > 0 {
                    step.old.gamma << (64 - step.old.level)
                } else {
                    0
                };
                assert!(group.contains(&shape.place(gamma, pages + 1).page));
            }
        }
    }

    #[test]
    fn the_lines_cut_the_hashes_into_ranges() {
        for chunk_bytes in [256, 16384, 65536] {
            let shape = Shape::new(chunk_bytes);
            for pages in [1, 2, 3, 4, 5, 7, 8, 13, 40] {
                let mut hash = 0;
                let mut lines = 1;
                while let Some(end) = shape.line_end(hash, pages) {
                    assert_eq!(end % (1 << CURSOR_SHIFT), 0);
                    let (last, next) = (shape.place(end - 1, pages), shape.place(end, pages));
                    let here = shape.place(hash, pages);
                    assert_eq!((here.page, here.line), (last.page, last.line));
                    assert_ne!((next.page, next.line), (last.page, last.line));
                    hash = end;
                    lines += 1;
                }
                assert_eq!(lines, pages * shape.lines());
            }
        }
    }

    #[test]
    fn lines_end_at_cursors_also_in_the_largest_index() {
        let mut prng = Prng::new(8);
        for chunk_bytes in [4096, 16384, 32768, 65536] {
            let shape = Shape::new(chunk_bytes);
            // 64 GiB of index pages: twelve times what the 4 GiB of a stream can need.
            let pages_max = ((64 << 30) / chunk_bytes) as u32;
            for pages in [pages_max, pages_max - 1, pages_max / 3 * 2 + 1] {
                for _ in 0..1000 {
                    let hash = prng.next_u64();
                    if let Some(end) = shape.line_end(hash, pages) {
                        assert_eq!(end % (1 << CURSOR_SHIFT), 0, "{chunk_bytes} {pages} {hash:x}");
                        assert!(end > hash);
                    }
                }
            }
        }
    }
}
