//! Growth of the index: one group is rebuilt with one page more (docs/formats/index.md, "Growth").

use super::{Blocked, ObjectStore, has_room, page_stripe, spill_stripe, usage};
use crate::delta::{DELTA_BYTES_MAX, EXTENT_HEAD_BYTES_MAX};
use crate::index::page::{self, LINE_BYTES, SLOTS};
use crate::index::shape::{PageSlot, Step};
use crate::index::spill::{self, Spilled};
use crate::{Arena, Delta};
use paritas_base::Stripe;

/// A growth step that was computed but not yet written: the bytes of the new pages, and the entries that do not fit in
/// them.
struct Rebuilt {
    /// Page numbers, the new page last. `bytes` has the pages one after the other.
    pages: Vec<u32>,
    bytes: Vec<u8>,
    /// The usage marks of their keys; empty if the policy keeps none.
    marks: Vec<u8>,
    spilled: Vec<Spilled>,
}

/// Number of inserts between two attempts of a step that could not be done.
const GROW_WAIT: u32 = 64;

/// Number of rounds of housekeeping for which empty pages are kept for a command that waits.
const KEPT_FOR: u32 = 1000;

/// Number of spilled entries from which keys count as crowded. With keys in random order there are almost none.
pub(super) const CROWD: usize = 32;
/// Most spilled entries; further keys there must wait until the index has grown. A growth step rewrites them, up to
/// twice, and must fit in a delta together with the keys of one command.
pub(super) const SPILLED_MAX: usize = 1024;
/// Most spilled entries that the keys of one command may add, however large a spill page is.
pub(super) const TOGETHER_MAX: usize = 1536;

impl ObjectStore {
    /// Grows the index after an insert, if growth is due. A step that cannot be done now is tried again later.
    pub(super) fn grow_after_insert(&mut self, arena: &mut Arena, delta: &mut Delta) {
        if self.index.grow_wait > 0 {
            self.index.grow_wait -= 1;
            return;
        }
        if delta.is_of_several() {
            // The command has reserved space for the growth that its own keys cause, and the rest of it must fit in its
            // delta. Its keys must not share lines with keys whose chunks are absent.
            let by_count = self.index.keys > self.index.keys_max;
            let rest = delta.bytes_max().saturating_sub(delta.bytes().len());
            if !by_count || rest < 2 * DELTA_BYTES_MAX || self.chunks.absent_count() > 0 {
                return;
            }
        }
        match self.grow_if_due(arena, delta) {
            // Retried with the next delta.
            Ok(_) | Err(Blocked::DeltaFull) => {}
            Err(_) => self.index.grow_wait = GROW_WAIT,
        }
    }

    /// Grows the index by one page if it holds too many keys or they are crowded. Returns true if it did.
    pub(super) fn grow_if_due(&mut self, arena: &mut Arena, delta: &mut Delta) -> Result<bool, Blocked> {
        let due = self.index.pages > 0 && (self.index.keys > self.index.keys_max || self.index.crowded);
        // Without the number of keys it is not known whether growth is due.
        if !due || !self.index_here() {
            return Ok(false);
        }
        self.grow(arena, delta)?;
        Ok(true)
    }

    /// Does a growth step for keys that are [`Blocked::Crowded`].
    ///
    /// # Errors
    /// What blocks the step. [`Blocked::Crowded`] if growth does not help.
    pub fn grow_for_crowd(&mut self, arena: &mut Arena, delta: &mut Delta) -> Result<(), Blocked> {
        let grown = if self.index.pages == 0 {
            self.first_page(arena, delta)
        } else {
            self.grow(arena, delta)
        };
        match grown {
            Ok(()) => self.index.kept_for = KEPT_FOR,
            // Free chunks are now returned, so that the index gets their memory.
            Err(Blocked::Memory) => self.index.grow_wait = GROW_WAIT,
            Err(_) => {}
        }
        grown
    }

    pub(super) fn grow(&mut self, arena: &mut Arena, delta: &mut Delta) -> Result<(), Blocked> {
        let pages = self.index.pages;
        let (born, after) = (page_stripe(pages), page_stripe(pages + 1));
        if born.number() >= self.credit.1 {
            return Err(Blocked::Credit { index: true });
        }
        let step = self.shape.step(pages);
        let chunk = self.settings.chunk_bytes;
        let changed = self.shape.members(step.old) as usize + 1;
        // The page after the new one must be zeros: a successor counts pages until the first that has no version (see
        // `flush`). Freeing it is a step of its own.
        if self.chunks.slot(after)?.is_some() {
            has_room(delta, chunk + EXTENT_HEAD_BYTES_MAX)?;
            self.chunks.free(arena, delta, after);
            return Ok(());
        }
        let bytes = changed * (chunk + EXTENT_HEAD_BYTES_MAX);
        has_room(delta, bytes)?;
        Self::has_memory(arena, 1, 1)?;
        for member in 0..self.shape.members(step.old) {
            // Ages the usage marks.
            self.usage.marks(self.shape.member(step.old, member));
        }
        let rebuilt = self.rebuild(arena, step)?;
        if delta.is_of_several() && rebuilt.spilled.len() > self.spilled(arena)? {
            // Two crowds of keys have met. This may need more spill pages than the command has reserved.
            return Err(Blocked::Crowded);
        }
        let spill_pages = rebuilt.spilled.len().div_ceil(spill::capacity(chunk));
        let new_spills = (spill_pages as u32).saturating_sub(self.index.spills);
        let spills = self.index.spills + new_spills;
        let room = self.may_add_spills(arena, new_spills, 2);
        if let Err(Blocked::Credit { .. }) = room {
            let end = spill_stripe(spills).number();
            self.wanted.1 = self.wanted.1.max(end - born.number());
        }
        room?;
        let spill_bytes = self.spill_bytes(arena, &rebuilt.spilled, spills)?;
        has_room(delta, bytes + spill_bytes + spills as usize * EXTENT_HEAD_BYTES_MAX)?;

        for (page, bytes) in rebuilt.pages.iter().zip(rebuilt.bytes.chunks(chunk)) {
            let stripe = page_stripe(*page);
            self.chunks.touch(arena, stripe);
            self.chunks.change(arena, delta, stripe, 0, bytes, stripe == born);
        }
        self.write_spills(arena, delta, &rebuilt.spilled, spills);
        self.index.spills = spills;
        self.index.pages += 1;
        self.index.crowded = false;
        self.usage.set_pages(self.index.pages, self.shape.lines());
        if self.usage.is_on() {
            let slots = self.shape.lines() as usize * SLOTS;
            for (page, marks) in rebuilt.pages.iter().zip(rebuilt.marks.chunks(slots)) {
                self.usage.marks(*page).copy_from_slice(marks);
            }
        }
        self.update_keys_max();
        Ok(())
    }

    /// Creates the first page, before its first key is added.
    fn first_page(&mut self, arena: &mut Arena, delta: &mut Delta) -> Result<(), Blocked> {
        if !self.chunks.directory_known() {
            return Err(Blocked::Directory);
        }
        if self.credit.1 == 0 {
            return Err(Blocked::Credit { index: true });
        }
        let chunk = self.settings.chunk_bytes;
        has_room(delta, chunk + EXTENT_HEAD_BYTES_MAX)?;
        Self::has_memory(arena, 1, 1)?;
        self.chunks.touch(arena, page_stripe(0));
        self.chunks
            .change(arena, delta, page_stripe(0), 0, &vec![0; chunk], true);
        self.index.pages = 1;
        self.usage.set_pages(1, self.shape.lines());
        self.update_keys_max();
        Ok(())
    }

    fn rebuild(&self, arena: &Arena, step: Step) -> Result<Rebuilt, Blocked> {
        let shape = self.shape;
        let members = shape.members(step.old);
        let mut pages: Vec<u32> = (0..members).map(|m| shape.member(step.old, m)).collect();
        pages.push(self.index.pages);
        let mut rebuilt = Rebuilt {
            bytes: vec![0; pages.len() * self.settings.chunk_bytes],
            marks: if self.usage.is_on() {
                vec![0; pages.len() * shape.lines() as usize * SLOTS]
            } else {
                Vec::new()
            },
            pages,
            spilled: Vec::new(),
        };
        for member in 0..members {
            let stripe = page_stripe(rebuilt.pages[member as usize]);
            let bytes = self.chunks.bytes(arena, stripe)?.unwrap_or_default();
            for (number, line) in bytes.as_chunks::<LINE_BYTES>().0.iter().enumerate() {
                for slot in 0..SLOTS {
                    let tag = page::tag(line, slot);
                    if tag == 0 {
                        continue;
                    }
                    let mut home = number as u32;
                    if page::is_guest(line, slot) {
                        home = shape.home(home, tag);
                    }
                    let locator = page::locator(line, slot);
                    let place = self.advanced(arena, step, member, home, tag, locator)?;
                    let mark = self.usage.mark(shape.member(step.old, member), number as u32, slot);
                    rebuilt.insert(self, place, locator, mark);
                }
            }
        }
        for spill in 0..self.index.spills {
            let bytes = self.chunks.bytes(arena, spill_stripe(spill))?;
            for entry in spill::entries(bytes.unwrap_or_default()) {
                let old = &rebuilt.pages[..members as usize];
                let Some(member) = old.iter().position(|page| *page == entry.page) else {
                    rebuilt.spilled.push(entry);
                    continue;
                };
                let Spilled { line, tag, locator, .. } = entry;
                let place = self.advanced(arena, step, member as u32, line, tag, locator)?;
                rebuilt.insert(self, place, locator, 0);
            }
        }
        Ok(rebuilt)
    }

    /// The place of an entry after a step. Its key is read if its tag has too few bits.
    fn advanced(
        &self,
        arena: &Arena,
        step: Step,
        member: u32,
        line: u32,
        tag: u16,
        locator: u32,
    ) -> Result<PageSlot, Blocked> {
        if let Some(place) = self.shape.advance(step, member, line, tag) {
            return Ok(place);
        }
        let (number, _) = self.split(locator);
        let Some(head) = self.head(arena, locator)? else {
            return Err(Blocked::Missing(Stripe::data(number)));
        };
        let hash = self.hash_of(&head, self.data(arena, number)?);
        Ok(self.shape.place(hash, self.index.pages + 1))
    }

    /// Number of entries in spill pages.
    pub(super) fn spilled(&self, arena: &Arena) -> Result<usize, Blocked> {
        self.spilled_by_page(arena).sum()
    }

    /// Number of entries in each spill page.
    pub(super) fn spilled_by_page(&self, arena: &Arena) -> impl Iterator<Item = Result<usize, Blocked>> {
        (0..self.index.spills).map(|spill| {
            let bytes = self.chunks.bytes(arena, spill_stripe(spill))?;
            Ok(spill::entries(bytes.unwrap_or_default()).count())
        })
    }

    /// Most bytes by which the spill pages change.
    fn spill_bytes(&self, arena: &Arena, spilled: &[Spilled], spills: u32) -> Result<usize, Blocked> {
        let entries = (self.spilled(arena)? + spilled.len()) * spill::ENTRY_BYTES;
        Ok(entries.min(spills as usize * self.settings.chunk_bytes))
    }

    fn write_spills(&mut self, arena: &mut Arena, delta: &mut Delta, spilled: &[Spilled], spills: u32) {
        let chunk = self.settings.chunk_bytes;
        let mut parts = spilled.chunks(spill::capacity(chunk));
        for spill in 0..spills {
            let mut bytes = Vec::with_capacity(chunk);
            for entry in parts.next().unwrap_or_default() {
                bytes.extend_from_slice(&entry.encode());
            }
            bytes.resize(chunk, 0);
            let mut page = self.live_page(arena, delta, spill_stripe(spill));
            page.touch();
            page.change(0, &bytes);
        }
    }

    /// Frees one index page that FLUSHALL left. Returns false if there is none.
    pub(super) fn free_garbage_page(&mut self, arena: &mut Arena, delta: &mut Delta) -> Result<bool, Blocked> {
        while self.index.garbage_end > 0 {
            let number = self.index.garbage_end - 1;
            let stripe = Stripe::index_page(number);
            if !self.is_current(stripe) && self.chunks.slot(stripe)?.is_some() {
                has_room(delta, self.settings.chunk_bytes + EXTENT_HEAD_BYTES_MAX)?;
                self.chunks.free(arena, delta, stripe);
                self.index.garbage_end = number;
                return Ok(true);
            }
            self.index.garbage_end = number;
        }
        Ok(false)
    }
}

impl Rebuilt {
    fn insert(&mut self, stream: &ObjectStore, place: PageSlot, locator: u32, mark: u8) {
        let chunk = stream.settings.chunk_bytes;
        let Some(at) = self.pages.iter().position(|page| *page == place.page) else {
            debug_assert!(false, "an entry would move to a page outside its group");
            return;
        };
        let mut bytes = &mut self.bytes[at * chunk..(at + 1) * chunk];
        let PageSlot { page, line, tag } = place;
        if let Some(room) = page::room(bytes, stream.shape, line, tag) {
            page::insert(&mut bytes, stream.shape, &room, line, tag, locator);
            if stream.usage.is_on() {
                let slots = stream.shape.lines() as usize * SLOTS;
                usage::place(&mut self.marks[at * slots..(at + 1) * slots], &room, mark);
            }
            return;
        }
        page::send_away(&mut bytes, line, tag);
        self.spilled.push(Spilled {
            page,
            line,
            tag,
            locator,
        });
    }
}
