//! Changing keys: put, delete, expiry, FLUSHALL.

use super::find::{At, Found};
use super::grow::{CROWD, SPILLED_MAX, TOGETHER_MAX};
use super::place::{INDEX_CHANGE_BYTES, Writer};
use super::space::Counted;
use super::{Blocked, LivePage, ObjectStore, database_of, has_room, page_stripe, spill_stripe};
use crate::delta::EXTENT_HEAD_BYTES_MAX;
use crate::index::page::{self, Lines, Room};
use crate::index::shape::PageSlot;
use crate::index::spill::{self, Spilled};
use crate::object::{Head, PIECE_HEAD_BYTES, RECORD_BYTES_MAX, Value};
use crate::{Arena, Chunks, Delta};
use paritas_base::Stripe;

/// Where a new index entry is written.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// Into the first page, which is created with it.
    First(PageSlot),
    Page(PageSlot, Room),
    /// Into a spill page, as its `nth` entry.
    Spill(PageSlot, u32, usize),
}

impl ObjectStore {
    /// Stores a value under a key, new or not. A value of the same length and kind is overwritten in place.
    pub fn put(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        hash: u64,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<(), Blocked> {
        let limits = self.limits();
        let too_long = key.len() > limits.key_bytes || value.bytes.len() > limits.value_bytes;
        if too_long || value.record.len() > RECORD_BYTES_MAX {
            return Err(Blocked::TooLarge);
        }
        let old = self.locate(arena, hash, key)?;
        if let Some(found) = old
            && found.head.same_form(&value)
        {
            self.put_in_place(arena, delta, found, &value)?;
            self.note_use(found.at);
            return Ok(());
        }
        let mut plan = core::mem::take(&mut self.plan);
        let planned = self.plan(
            arena,
            delta,
            (database_of(hash), key.len()),
            &value,
            Writer::Foreground,
            &mut plan,
        );
        self.note_space(plan.fresh, planned);
        let done = planned.and_then(|()| {
            let entry = match old {
                None => Some(self.entry_for(arena, hash, delta.is_of_several())?),
                Some(_) => None,
            };
            let locator = self.write_object(arena, delta, hash, key, &value, &plan);
            self.records.born(value.record);
            match (old, entry) {
                (Some(found), _) => {
                    self.point(arena, delta, found.at, locator);
                    self.end_object(arena, found.locator, &found.head);
                    self.note_use(found.at);
                }
                (None, Some(entry)) => self.add_entry(arena, delta, entry, locator),
                (None, None) => {}
            }
            Ok(())
        });
        self.plan = plan;
        if done.is_ok() && old.is_none() {
            self.grow_after_insert(arena, delta);
        }
        done
    }

    fn put_in_place(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        found: Found,
        value: &Value<'_>,
    ) -> Result<(), Blocked> {
        let (number, _) = self.split(found.locator);
        let head = found.head;
        let chunk = self.data(arena, number)?;
        let further: Vec<(u32, usize)> = head.pieces(chunk).collect();
        for (locator, _) in &further {
            self.data(arena, self.split(*locator).0)?;
        }
        has_room(delta, value.bytes.len() + EXTENT_HEAD_BYTES_MAX * (further.len() + 3))?;
        let mut extra = core::mem::take(&mut arena.scratch);
        extra.clear();
        value.encode_extra(&mut extra);
        let stripe = Stripe::data(number);
        self.chunks
            .change(arena, delta, stripe, head.extra_offset(), &extra, false);
        arena.scratch = extra;
        let (body, mut rest) = value.bytes.split_at((head.end as usize) - head.body_offset());
        self.chunks
            .change(arena, delta, stripe, head.body_offset(), body, false);
        for (locator, length) in further {
            let part;
            (part, rest) = rest.split_at(length);
            let (number, offset) = self.split(locator);
            let at = offset + PIECE_HEAD_BYTES;
            self.chunks.change(arena, delta, Stripe::data(number), at, part, false);
        }
        Ok(())
    }

    /// Removes a key. Returns false if it does not exist. Only its index entry changes.
    pub fn delete(&mut self, arena: &mut Arena, delta: &mut Delta, hash: u64, key: &[u8]) -> Result<bool, Blocked> {
        let Some(found) = self.locate(arena, hash, key)? else {
            return Ok(false);
        };
        self.delete_found(arena, delta, found)?;
        Ok(true)
    }

    pub(super) fn delete_found(&mut self, arena: &mut Arena, delta: &mut Delta, found: Found) -> Result<(), Blocked> {
        has_room(delta, INDEX_CHANGE_BYTES)?;
        self.end_object(arena, found.locator, &found.head);
        self.remove_entry(arena, delta, found.at);
        Ok(())
    }

    /// Sets or clears the expiry of a key, and its marks if there are some to set. Returns false if the key does not
    /// exist.
    pub fn set_expiry(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        hash: u64,
        key: &[u8],
        expiry_ms: Option<u64>,
        marks: Option<u8>,
    ) -> Result<bool, Blocked> {
        let Some(found) = self.locate(arena, hash, key)? else {
            return Ok(false);
        };
        let chunk = self.data(arena, self.split(found.locator).0)?;
        let old = Value {
            expiry_ms: found.head.expiry_ms(chunk),
            flags: found.head.flags(chunk),
            marks: found.head.marks(chunk),
            hash_kind: found.head.is_hash(),
            ..Value::default()
        };
        let new = Value {
            expiry_ms,
            marks: marks.unwrap_or(old.marks),
            ..old
        };
        if (new.expiry_ms, new.marks) == (old.expiry_ms, old.marks) {
            return Ok(true);
        }
        if new.expiry_ms.is_some() == old.expiry_ms.is_some() && (new.marks > 0) == (old.marks > 0) {
            let mut extra = core::mem::take(&mut arena.scratch);
            extra.clear();
            new.encode_extra(&mut extra);
            let done = has_room(delta, EXTENT_HEAD_BYTES_MAX + extra.len()).map(|()| {
                let stripe = Stripe::data(self.split(found.locator).0);
                let at = found.head.extra_offset();
                self.chunks.change(arena, delta, stripe, at, &extra, false);
            });
            arena.scratch = extra;
            return done.map(|()| true);
        }
        let mut bytes = core::mem::take(&mut arena.scratch_copy);
        bytes.clear();
        let done = self
            .object(arena, found.locator, found.head)
            .map(|object| {
                let record = object.record().unwrap_or_default();
                bytes.extend_from_slice(record);
                object.copy_to(&mut bytes);
                record.len()
            })
            .and_then(|record_bytes| {
                let (record, bytes) = bytes.split_at(record_bytes);
                self.put(arena, delta, hash, key, Value { bytes, record, ..new })
            });
        arena.scratch_copy = bytes;
        done.map(|()| true)
    }

    /// Removes all keys in one delta, except the one that is spared: its hash and its bytes. The first two index pages
    /// and the spill pages become zeros, so that the index has no pages; `housekeep` frees the others. If the spared
    /// key is there, its object stays where it lies, and its entry becomes the only one of a first page.
    pub fn flush(&mut self, arena: &mut Arena, delta: &mut Delta, spared: Option<(u64, &[u8])>) -> Result<(), Blocked> {
        if !self.chunks.directory_known() {
            return Err(Blocked::Directory);
        }
        let mut stays = None;
        if let Some((hash, key)) = spared
            && let Some(found) = self.locate(arena, hash, key)?
        {
            // All its pieces must be here: those that are absent would count as dead.
            self.object(arena, found.locator, found.head)?;
            stays = Some((hash, found));
        }
        let pages = self.index.pages.min(2);
        let stripes: Vec<Stripe> = (0..pages)
            .map(page_stripe)
            .chain((0..self.index.spills).map(spill_stripe))
            .collect();
        for stripe in &stripes {
            self.chunks.slot(*stripe)?;
        }
        has_room(
            delta,
            stripes.len() * (self.settings.chunk_bytes + EXTENT_HEAD_BYTES_MAX),
        )?;
        for stripe in stripes.into_iter().skip(usize::from(stays.is_some())) {
            self.chunks.free(arena, delta, stripe);
        }
        let index = &mut self.index;
        index.garbage_end = self.chunks.end(true);
        (index.pages, index.spills, index.keys, index.missing) = (0, 0, 0, 0);
        (index.crowded, index.kept_for) = (false, 0);
        index.expiry_cursor = (0, 0);
        self.usage.clear();
        self.update_keys_max();
        self.space.all_dead(&self.chunks);
        self.records.all_died();
        if let Some((hash, found)) = stays {
            self.keep_alone(arena, delta, hash, &found);
        }
        Ok(())
    }

    /// Makes an object live again after all were counted as dead. Its entry is the only one of the first page, which
    /// has its old bytes still.
    fn keep_alone(&mut self, arena: &mut Arena, delta: &mut Delta, hash: u64, found: &Found) {
        let place = self.shape.place(hash, 1);
        let room = Room::at(place.line, 0);
        let mut bytes = vec![0; self.settings.chunk_bytes];
        page::insert(
            &mut &mut bytes[..],
            self.shape,
            &room,
            place.line,
            place.tag,
            found.locator,
        );
        self.live_page(arena, delta, page_stripe(0)).change(0, &bytes);
        (self.index.pages, self.index.keys) = (1, 1);
        self.update_keys_max();
        self.usage.set_pages(1, self.shape.lines());
        self.usage.insert(0, &room, 1);

        let (number, _) = self.split(found.locator);
        let chunk = self.data(arena, number).unwrap_or_default();
        self.space.revive(number, found.head.bytes());
        for (piece, length) in found.head.pieces(chunk) {
            self.space
                .revive(self.split(piece).0, (length + PIECE_HEAD_BYTES) as u32);
        }
        self.space.count_object(number, Counted::of(&found.head), true);
        self.records.born(found.head.record(chunk).unwrap_or_default());
    }

    /// Finds a slot for a new index entry. Changes no bytes, but records if the key is in a crowd.
    fn entry_for(&mut self, arena: &Arena, hash: u64, several: bool) -> Result<Entry, Blocked> {
        let Some(place) = self.place(hash)? else {
            if self.credit.1 == 0 {
                return Err(Blocked::Credit { index: true });
            }
            // One chunk for this page, and one for the object, whose own check did not include the page.
            Self::has_memory(arena, 1, 1)?;
            return Ok(Entry::First(self.shape.place(hash, 1)));
        };
        let stripe = page_stripe(place.page);
        let bytes = self.chunks.bytes(arena, stripe)?.unwrap_or_default();
        if let Some(room) = page::room(bytes, self.shape, place.line, place.tag) {
            return Ok(Entry::Page(place, room));
        }
        let mut spilled = 0;
        let mut gap = None;
        for (spill, count) in (0..).zip(self.spilled_by_page(arena)) {
            let count = count?;
            if count < spill::capacity(self.settings.chunk_bytes) {
                gap = gap.or(Some((spill, count)));
            }
            spilled += count;
        }
        // A command of several changes has checked this before its first change.
        if spilled >= SPILLED_MAX && !several {
            return Err(Blocked::Crowded);
        }
        let (spill, nth) = match gap {
            Some(gap) => gap,
            None => {
                self.may_add_spills(arena, 1, 1)?;
                (self.index.spills, 0)
            }
        };
        self.index.crowded |= spilled >= CROWD;
        Ok(Entry::Spill(place, spill, nth))
    }

    /// Most new keys of one command that always find slots, however crowded they are: one more spill page is enough,
    /// and [`ObjectStore::may_take`] has made sure of it.
    pub fn crowd_max(&self) -> usize {
        TOGETHER_MAX.min(spill::capacity(self.settings.chunk_bytes)) * 3 / 4
    }

    /// Whether new keys with these hashes find slots, even if there are more than [`ObjectStore::crowd_max`]. Tried on
    /// copies of their pages.
    ///
    /// # Errors
    /// [`Blocked::Crowded`] if the index must grow first.
    pub fn may_insert(&self, arena: &Arena, hashes: &mut Vec<u64>) -> Result<(), Blocked> {
        // Sorted, because each page is a range of hashes. A key given twice counts once.
        hashes.sort_unstable();
        hashes.dedup();
        let pages = self.index.pages.max(1);
        let places: Vec<PageSlot> = hashes.iter().map(|hash| self.shape.place(*hash, pages)).collect();
        // Fewer keys in one page always find slots.
        let few = self.shape.lines() as usize / 8;
        let mut spilled = 0;
        let mut copy = Vec::with_capacity(self.settings.chunk_bytes);
        for together in places.chunk_by(|a, b| a.page == b.page).filter(|some| some.len() > few) {
            copy.clear();
            if self.index.pages > 0 {
                let bytes = self.chunks.bytes(arena, page_stripe(together[0].page))?;
                copy.extend_from_slice(bytes.unwrap_or_default());
            }
            copy.resize(self.settings.chunk_bytes, 0);
            for place in together {
                match page::room(&copy, self.shape, place.line, place.tag) {
                    Some(room) => page::insert(&mut &mut copy[..], self.shape, &room, place.line, place.tag, 0),
                    None => spilled += 1,
                }
            }
        }
        if spilled > self.crowd_max() {
            return Err(Blocked::Crowded);
        }
        Ok(())
    }

    /// Whether `count` more spill pages may be created with `spare` chunks of memory left over.
    pub(super) fn may_add_spills(&self, arena: &Arena, count: u32, spare: u32) -> Result<(), Blocked> {
        if count == 0 {
            return Ok(());
        }
        let spills = self.index.spills + count;
        if spills > self.spills_max() {
            return Err(Blocked::Crowded);
        }
        let stripe = spill_stripe(spills - 1);
        if stripe.number() >= self.credit.1 {
            return Err(Blocked::Credit { index: true });
        }
        self.chunks.slot(stripe)?;
        Self::has_memory(arena, count, spare)
    }

    /// Most spill pages: FLUSHALL frees all of them and two other pages in one delta.
    fn spills_max(&self) -> u32 {
        let chunks = crate::delta::DELTA_BYTES_MAX / (self.settings.chunk_bytes + EXTENT_HEAD_BYTES_MAX);
        (chunks as u32 - 2).min(64)
    }

    fn add_entry(&mut self, arena: &mut Arena, delta: &mut Delta, entry: Entry, locator: u32) {
        let shape = self.shape;
        self.index.keys += 1;
        match entry {
            Entry::First(place) => {
                self.index.pages = 1;
                self.update_keys_max();
                let room = Room::at(place.line, 0);
                self.usage.set_pages(1, shape.lines());
                self.usage.insert(0, &room, 1);
                let mut lines = self.live_page(arena, delta, page_stripe(0));
                lines.touch();
                page::insert(&mut lines, shape, &room, place.line, place.tag, locator);
            }
            Entry::Page(place, room) => {
                if self.usage.is_on() {
                    self.usage.insert(place.page, &room, self.index.keys);
                }
                let mut lines = self.live_page(arena, delta, page_stripe(place.page));
                page::insert(&mut lines, shape, &room, place.line, place.tag, locator);
            }
            Entry::Spill(place, spill, nth) => {
                self.index.spills = self.index.spills.max(spill + 1);
                let spilled = Spilled {
                    page: place.page,
                    line: place.line,
                    tag: place.tag,
                    locator,
                };
                let mut bytes = self.live_page(arena, delta, spill_stripe(spill));
                bytes.touch();
                bytes.change(nth * spill::ENTRY_BYTES, &spilled.encode());
                let mut lines = self.live_page(arena, delta, page_stripe(place.page));
                page::send_away(&mut lines, place.line, place.tag);
            }
        }
    }

    /// Changes the locator of an entry.
    pub(super) fn point(&mut self, arena: &mut Arena, delta: &mut Delta, at: At, locator: u32) {
        match at {
            At::ChunkRef { page, line, slot, .. } => {
                let mut lines = self.live_page(arena, delta, page_stripe(page));
                let new = page::with_locator(&lines.read(line), slot, locator);
                lines.write(line, &new);
            }
            At::Spill { spill, nth, .. } => {
                let at = nth * spill::ENTRY_BYTES + 4;
                self.live_page(arena, delta, spill_stripe(spill))
                    .change(at, &locator.to_le_bytes());
            }
        }
    }

    fn remove_entry(&mut self, arena: &mut Arena, delta: &mut Delta, at: At) {
        self.index.keys -= 1;
        match at {
            At::ChunkRef { page, home, line, slot } => {
                let mut lines = self.live_page(arena, delta, page_stripe(page));
                page::remove(&mut lines, line, slot, home);
            }
            At::Spill { spill, nth, page, home } => {
                let bytes = self.chunks.bytes(arena, spill_stripe(spill));
                let bytes = bytes.ok().flatten().unwrap_or_default();
                let last = spill::entries(bytes).enumerate().last();
                if let Some((last, entry)) = last {
                    // The last entry fills the gap.
                    let mut bytes = self.live_page(arena, delta, spill_stripe(spill));
                    bytes.change(nth * spill::ENTRY_BYTES, &entry.encode());
                    bytes.change(last * spill::ENTRY_BYTES, &[0; spill::ENTRY_BYTES]);
                }
                let mut lines = self.live_page(arena, delta, page_stripe(page));
                page::call_back(&mut lines, home);
            }
        }
    }

    /// The object is no longer in the stream: counts its bytes as dead, and reports its record.
    fn end_object(&mut self, arena: &Arena, locator: u32, head: &Head) {
        if head.has_record() {
            self.record_died(arena, locator, head);
        }
        self.bury(arena, locator, head);
    }

    /// Counts an object's bytes as dead.
    pub(super) fn bury(&mut self, arena: &Arena, locator: u32, head: &Head) {
        let (number, _) = self.split(locator);
        self.space.count_object(number, Counted::of(head), false);
        if head.further > 0 {
            let Self {
                chunks,
                space,
                offset_bits,
                ..
            } = self;
            let bytes = chunks.bytes(arena, Stripe::data(number));
            let bytes = bytes.ok().flatten().unwrap_or_default();
            for (piece, length) in head.pieces(bytes) {
                let dead = length + PIECE_HEAD_BYTES;
                space.sub_live(piece >> *offset_bits, dead as u32);
            }
        }
        self.space.sub_live(number, head.bytes());
    }

    pub(super) fn live_page<'a>(
        &'a mut self,
        arena: &'a mut Arena,
        delta: &'a mut Delta,
        stripe: Stripe,
    ) -> LivePage<'a> {
        let chunks: &mut Chunks = &mut self.chunks;
        LivePage {
            chunks,
            arena,
            delta,
            stripe,
        }
    }
}
