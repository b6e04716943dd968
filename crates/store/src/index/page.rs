//! Lines of an index page (docs/formats/index.md, "Line").
//!
//! ```text
//! 10 × { u16 tag, u32 locator }   u16 guests (10 bits) | away (6 bits)   u16 bloom of those away
//! ```
//! An entry is in its key's home line or, as a *guest*, in the alternate line of the same page. A line counts its own
//! keys that are *away*: guests elsewhere, or in a spill page. The count saturates: its maximum means "this many or
//! more", and it then stays until the page is rebuilt.
#![allow(unsafe_code)]

use super::shape::Shape;

pub(crate) const LINE_BYTES: usize = 64;
pub(crate) const SLOTS: usize = 10;
const ENTRY_BYTES: usize = 6;
const GUESTS_AT: usize = SLOTS * ENTRY_BYTES;
const BLOOM_AT: usize = GUESTS_AT + 2;
/// Largest count of keys away: six bits. Keys in random order stay far below it.
const AWAY_MAX: u16 = 63;
/// Longest chain of entries moved to free a slot. The next constant limits the lines searched for such a chain.
const MOVES_MAX: usize = 6;
const LINES_SEEN_MAX: usize = 96;

/// The bytes of one line.
pub(crate) type Line = [u8; LINE_BYTES];

/// Line `number` of a page.
#[inline]
pub(crate) fn line(page: &[u8], number: u32) -> &Line {
    let at = number as usize * LINE_BYTES;
    // The number comes from the page's shape, so the page has that line.
    page[at..].first_chunk().expect("a line within the page")
}

#[inline]
fn u16_at(line: &Line, at: usize) -> u16 {
    u16::from_le_bytes([line[at], line[at + 1]])
}

fn set_u16(line: &mut Line, at: usize, value: u16) {
    line[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// The tag of an entry; 0 if the slot is empty.
#[inline]
pub(crate) fn tag(line: &Line, slot: usize) -> u16 {
    u16_at(line, slot * ENTRY_BYTES)
}

/// An entry's locator.
#[inline]
pub(crate) fn locator(line: &Line, slot: usize) -> u32 {
    let at = slot * ENTRY_BYTES + 2;
    u32::from_le_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]])
}

/// Whether a slot's entry is a guest.
pub(crate) fn is_guest(line: &Line, slot: usize) -> bool {
    u16_at(line, GUESTS_AT) >> slot & 1 != 0
}

/// A copy of the line with the locator of one slot changed.
pub(crate) fn with_locator(line: &Line, slot: usize, locator: u32) -> Line {
    let mut line = *line;
    let at = slot * ENTRY_BYTES + 2;
    line[at..at + 4].copy_from_slice(&locator.to_le_bytes());
    line
}

fn away(line: &Line) -> u16 {
    u16_at(line, GUESTS_AT) >> SLOTS
}

/// Whether any key of this home line is away.
pub(crate) fn any_away(line: &Line) -> bool {
    away(line) > 0
}

fn bloom_bit(tag: u16) -> u16 {
    1 << (tag >> 7 & 15)
}

/// Whether a key with this tag may be away from this home line.
#[inline]
pub(crate) fn may_be_away(line: &Line, tag: u16) -> bool {
    u16_at(line, BLOOM_AT) & bloom_bit(tag) != 0
}

/// Number of entries in the line.
pub(crate) fn count(line: &Line) -> u32 {
    (0..SLOTS).filter(|slot| tag(line, *slot) != 0).count() as u32
}

fn free_slot(line: &Line) -> Option<usize> {
    (0..SLOTS).find(|slot| tag(line, *slot) == 0)
}

/// Slots of a line whose tags match that of a key. Guests and own entries are found separately.
#[derive(Clone, Copy)]
pub(crate) struct Matches {
    mask: u32,
    guests: u16,
    wanted: bool,
}

impl Iterator for Matches {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.mask != 0 {
            let slot = (self.mask.trailing_zeros() / 3) as usize;
            self.mask &= self.mask - 1;
            if (self.guests >> slot & 1 != 0) == self.wanted {
                return Some(slot);
            }
        }
        None
    }
}

/// Slots whose entries match a full tag and are guests, or are not.
#[inline]
pub(crate) fn matches(line: &Line, full_tag: u16, guests: bool) -> Matches {
    Matches {
        mask: match_mask(line, full_tag),
        guests: u16_at(line, GUESTS_AT),
        wanted: guests,
    }
}

/// Whether a stored tag matches a full one. The stored tag may have lost low bits.
#[inline]
pub(crate) fn tag_matches(stored: u16, full: u16) -> bool {
    stored != 0 && stored ^ full <= stored ^ (stored - 1)
}

/// Positions of the tags, which are every third u16 of a line, as bits of a 32-bit mask.
const TAG_LANES: u32 = 0x0924_9249;

#[cfg(target_arch = "x86_64")]
#[inline]
fn match_mask(line: &Line, full_tag: u16) -> u32 {
    // SAFETY: SSE2 is part of every x86-64.
    unsafe { match_mask_sse2(line, full_tag) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn match_mask_sse2(line: &Line, full_tag: u16) -> u32 {
    use core::arch::x86_64::{
        __m128i, _mm_add_epi16, _mm_andnot_si128, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
        _mm_set1_epi16, _mm_setzero_si128, _mm_subs_epu16, _mm_xor_si128,
    };
    let query = _mm_set1_epi16(full_tag as i16);
    let ones = _mm_set1_epi16(-1);
    let zero = _mm_setzero_si128();
    let hit = |at: usize| -> __m128i {
        // SAFETY: 16 bytes at 0, 16, 32 or 48 of 64; the load may be unaligned.
        let e = unsafe { _mm_loadu_si128(line.as_ptr().add(at).cast()) };
        let differs = _mm_xor_si128(e, query);
        let ignored = _mm_xor_si128(e, _mm_add_epi16(e, ones));
        let within = _mm_cmpeq_epi16(_mm_subs_epu16(differs, ignored), zero);
        _mm_andnot_si128(_mm_cmpeq_epi16(e, zero), within)
    };
    let low = _mm_movemask_epi8(_mm_packs_epi16(hit(0), hit(16))) as u32;
    let high = _mm_movemask_epi8(_mm_packs_epi16(hit(32), hit(48))) as u32;
    (low | high << 16) & TAG_LANES
}

#[cfg(not(target_arch = "x86_64"))]
fn match_mask(line: &Line, full_tag: u16) -> u32 {
    match_mask_portable(line, full_tag)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn match_mask_portable(line: &Line, full_tag: u16) -> u32 {
    (0..SLOTS)
        .filter(|slot| tag_matches(tag(line, *slot), full_tag))
        .fold(0, |mask, slot| mask | 1 << (3 * slot))
}

/// Lines that can be changed: of a page being rebuilt, or of a chunk together with its delta.
pub(crate) trait Lines {
    fn read(&self, line: u32) -> Line;
    fn write(&mut self, line: u32, new: &Line);
}

impl Lines for &mut [u8] {
    fn read(&self, number: u32) -> Line {
        *line(self, number)
    }

    fn write(&mut self, line: u32, new: &Line) {
        let at = line as usize * LINE_BYTES;
        self[at..at + LINE_BYTES].copy_from_slice(new);
    }
}

/// A way to free a slot for a new entry. `chain[0]` is a free slot; the entry at `chain[i + 1]` moves to `chain[i]`;
/// the new entry takes the last slot of the chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    chain: [(u16, u8); MOVES_MAX + 1],
    length: usize,
}

impl Room {
    /// A slot that is already free.
    pub(crate) fn at(line: u32, slot: usize) -> Self {
        let mut chain = [(0, 0); MOVES_MAX + 1];
        chain[0] = (line as u16, slot as u8);
        Self { chain, length: 1 }
    }

    /// The moves of entries, in the order in which they must be done: from slot, to slot.
    pub(crate) fn moves(&self) -> impl Iterator<Item = ((u32, usize), (u32, usize))> + '_ {
        let wide = |(line, slot): (u16, u8)| (u32::from(line), usize::from(slot));
        let chain = &self.chain[..self.length];
        chain.windows(2).map(move |pair| (wide(pair[1]), wide(pair[0])))
    }

    /// The line and slot that the new entry takes.
    pub(crate) fn place(&self) -> (u32, usize) {
        let (line, slot) = self.chain[self.length - 1];
        (u32::from(line), usize::from(slot))
    }
}

/// A slot for a key in its page: in its home line, else in its alternate line, else by moving other entries to their
/// other line.
pub(crate) fn room(page: &[u8], shape: Shape, home: u32, tag: u16) -> Option<Room> {
    if let Some(slot) = free_slot(line(page, home)) {
        return Some(Room::at(home, slot));
    }
    let alternate = shape.alternate(home, tag);
    if let Some(slot) = free_slot(line(page, alternate)) {
        return Some(Room::at(alternate, slot));
    }
    room_by_moving(page, shape, home, alternate)
}

/// Breadth first, so that the fewest entries move.
fn room_by_moving(page: &[u8], shape: Shape, home: u32, alternate: u32) -> Option<Room> {
    struct Seen {
        line: u32,
        /// The entry that would move here: index of a line in the list of lines seen, and slot.
        from: Option<(usize, usize)>,
        moves: usize,
    }
    let mut seen: Vec<Seen> = Vec::with_capacity(LINES_SEEN_MAX);
    let mut marks = [0u64; 16];
    for line in [home, alternate] {
        marks[line as usize / 64] |= 1 << (line % 64);
        seen.push(Seen {
            line,
            from: None,
            moves: 0,
        });
    }
    let mut next = 0;
    while next < seen.len() {
        let (from_line, moves) = (seen[next].line, seen[next].moves);
        if moves == MOVES_MAX {
            break;
        }
        let bytes = line(page, from_line);
        for slot in 0..SLOTS {
            let tag = tag(bytes, slot);
            let to = if is_guest(bytes, slot) {
                shape.home(from_line, tag)
            } else {
                shape.alternate(from_line, tag)
            };
            let mark = 1 << (to % 64);
            if marks[to as usize / 64] & mark != 0 {
                continue;
            }
            marks[to as usize / 64] |= mark;
            if let Some(free) = free_slot(line(page, to)) {
                let mut room = Room::at(to, free);
                let mut step = Some((next, slot));
                while let Some((index, slot)) = step {
                    room.chain[room.length] = (seen[index].line as u16, slot as u8);
                    room.length += 1;
                    step = seen[index].from;
                }
                return Some(room);
            }
            if seen.len() < LINES_SEEN_MAX {
                seen.push(Seen {
                    line: to,
                    from: Some((next, slot)),
                    moves: moves + 1,
                });
            }
        }
        next += 1;
    }
    None
}

/// Puts an entry into the slot found for it.
pub(crate) fn insert(lines: &mut impl Lines, shape: Shape, room: &Room, home: u32, tag: u16, locator: u32) {
    for i in 0..room.length - 1 {
        let ((to_line, to_slot), (from_line, from_slot)) = (room.chain[i], room.chain[i + 1]);
        let (to_line, from_line) = (u32::from(to_line), u32::from(from_line));
        let source = lines.read(from_line);
        let moved = self::tag(&source, usize::from(from_slot));
        let pointer = self::locator(&source, usize::from(from_slot));
        let home = if is_guest(&source, usize::from(from_slot)) {
            shape.home(from_line, moved)
        } else {
            from_line
        };
        remove(lines, from_line, usize::from(from_slot), home);
        fill(lines, to_line, usize::from(to_slot), home, moved, pointer);
    }
    let (line, slot) = room.place();
    fill(lines, line, slot, home, tag, locator);
}

fn fill(lines: &mut impl Lines, line: u32, slot: usize, home: u32, tag: u16, locator: u32) {
    let mut bytes = with_locator(&lines.read(line), slot, locator);
    set_u16(&mut bytes, slot * ENTRY_BYTES, tag);
    if line != home {
        let guests = u16_at(&bytes, GUESTS_AT) | 1 << slot;
        set_u16(&mut bytes, GUESTS_AT, guests);
    }
    lines.write(line, &bytes);
    if line != home {
        send_away(lines, home, tag);
    }
}

/// Removes an entry from its slot. `home` is the home line of its key.
pub(crate) fn remove(lines: &mut impl Lines, line: u32, slot: usize, home: u32) {
    let mut bytes = lines.read(line);
    bytes[slot * ENTRY_BYTES..(slot + 1) * ENTRY_BYTES].fill(0);
    let guests = u16_at(&bytes, GUESTS_AT) & !(1 << slot);
    set_u16(&mut bytes, GUESTS_AT, guests);
    lines.write(line, &bytes);
    if line != home {
        call_back(lines, home);
    }
}

/// Counts one more key of a home line as away.
pub(crate) fn send_away(lines: &mut impl Lines, home: u32, tag: u16) {
    let mut bytes = lines.read(home);
    if away(&bytes) < AWAY_MAX {
        let word = u16_at(&bytes, GUESTS_AT) + (1 << SLOTS);
        set_u16(&mut bytes, GUESTS_AT, word);
    }
    let bloom = u16_at(&bytes, BLOOM_AT) | bloom_bit(tag);
    set_u16(&mut bytes, BLOOM_AT, bloom);
    lines.write(home, &bytes);
}

/// Counts one key of a home line less as away.
pub(crate) fn call_back(lines: &mut impl Lines, home: u32) {
    let mut bytes = lines.read(home);
    if away(&bytes) == AWAY_MAX {
        return;
    }
    let word = u16_at(&bytes, GUESTS_AT).saturating_sub(1 << SLOTS);
    set_u16(&mut bytes, GUESTS_AT, word);
    if away(&bytes) == 0 {
        set_u16(&mut bytes, BLOOM_AT, 0);
    }
    lines.write(home, &bytes);
}

#[cfg(test)]
mod tests;
