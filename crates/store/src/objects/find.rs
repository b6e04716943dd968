//! Finding keys.

use super::{Blocked, ObjectStore, database_of, page_stripe, spill_stripe};
use crate::index::page;
use crate::index::shape::PageSlot;
use crate::index::spill;
use crate::object::{self, Head, Object};
use crate::{Arena, Missing};
use paritas_base::Stripe;

/// The place of an index entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// In a line of its page.
    ChunkRef {
        page: u32,
        home: u32,
        line: u32,
        slot: usize,
    },
    /// In a spill page, as its `nth` entry.
    Spill {
        spill: u32,
        nth: usize,
        page: u32,
        home: u32,
    },
}

/// A key's index entry and the head of its object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub at: At,
    pub locator: u32,
    pub head: Head,
}

impl ObjectStore {
    /// The object of a key, expired or not.
    pub fn find<'a>(&'a self, arena: &'a Arena, hash: u64, key: &[u8]) -> Result<Option<Object<'a>>, Blocked> {
        let Some(found) = self.locate(arena, hash, key)? else {
            return Ok(None);
        };
        self.object(arena, found.locator, found.head).map(Some)
    }

    /// As [`ObjectStore::find`], and records a use of the key.
    #[inline]
    pub fn access<'a>(&'a mut self, arena: &'a Arena, hash: u64, key: &[u8]) -> Result<Option<Object<'a>>, Blocked> {
        let Some(found) = self.locate(arena, hash, key)? else {
            return Ok(None);
        };
        self.note_use(found.at);
        self.object(arena, found.locator, found.head).map(Some)
    }

    /// Prefetches a key's index line, which will be read soon: the first of two stages.
    #[inline]
    pub fn prefetch_line(&self, arena: &Arena, hash: u64) {
        if self.index.pages == 0 {
            return;
        }
        let place = self.shape.place(hash, self.index.pages);
        if let Ok(Some(slot)) = self.chunks.slot(page_stripe(place.page)) {
            arena.prefetch(slot, place.line as usize * page::LINE_BYTES);
        }
    }

    /// Prefetches a key's object, which will be read soon: the second stage, once the index line is in cache.
    #[inline]
    pub fn prefetch_object(&self, arena: &Arena, hash: u64) {
        if self.index.pages == 0 {
            return;
        }
        let place = self.shape.place(hash, self.index.pages);
        let Ok(Some(bytes)) = self.chunks.bytes(arena, page_stripe(place.page)) else {
            return;
        };
        let line = page::line(bytes, place.line);
        if let Some(slot) = page::matches(line, place.tag, false).next() {
            let (number, offset) = self.split(page::locator(line, slot));
            if let Ok(Some(slot)) = self.chunks.slot(Stripe::data(number)) {
                arena.prefetch(slot, offset);
                arena.prefetch(slot, offset + 64);
            }
        }
    }

    /// The object whose first piece is at a locator. All its pieces must be resident.
    pub(super) fn object<'a>(&'a self, arena: &'a Arena, locator: u32, head: Head) -> Result<Object<'a>, Blocked> {
        let chunk = self.data(arena, self.split(locator).0)?;
        if head.further > 0 {
            for (locator, _) in head.pieces(chunk) {
                self.chunks.slot(Stripe::data(self.split(locator).0))?;
            }
        }
        Ok(Object {
            chunks: &self.chunks,
            arena,
            chunk,
            head,
            offset_bits: self.offset_bits,
        })
    }

    /// A key's index entry and the head of its object. Further pieces may be absent.
    #[inline]
    pub(super) fn locate(&self, arena: &Arena, hash: u64, key: &[u8]) -> Result<Option<Found>, Blocked> {
        let Some(place) = self.place(hash)? else {
            return Ok(None);
        };
        let mut head = None;
        let found = self.search(arena, place, |locator| {
            head = self.head_if(arena, locator, database_of(hash), key)?;
            Ok(head.is_some())
        })?;
        Ok(found.zip(head).map(|((at, locator), head)| Found { at, locator, head }))
    }

    /// Whether all chunks are resident that a lookup of any key with this hash may read. A removal may move other
    /// entries, so this covers every order in which the entries may come to lie.
    ///
    /// # Errors
    /// [`Blocked::Missing`], or what blocks any search.
    pub fn may_compare(&self, arena: &Arena, hash: u64) -> Result<(), Blocked> {
        if let Some(place) = self.place(hash)? {
            self.search(arena, place, |locator| {
                self.data(arena, self.split(locator).0)?;
                Ok(false)
            })?;
        }
        Ok(())
    }

    /// The place of a hash; `None` in an empty index.
    #[inline]
    pub(super) fn place(&self, hash: u64) -> Result<Option<PageSlot>, Blocked> {
        if !self.chunks.directory_known() {
            return Err(Blocked::Directory);
        }
        let pages = self.index.pages;
        Ok((pages > 0).then(|| self.shape.place(hash, pages)))
    }

    /// The head of the object at a locator, if it has this key.
    #[inline]
    fn head_if(&self, arena: &Arena, locator: u32, database: u8, key: &[u8]) -> Result<Option<Head>, Blocked> {
        let (number, offset) = self.split(locator);
        let Some(slot) = self.chunks.slot(Stripe::data(number & Stripe::NUMBER_MAX))? else {
            return Ok(None);
        };
        // Most objects extend over two cache lines: fetch both at once.
        arena.prefetch(slot, offset + 64);
        let chunk = arena.bytes(slot);
        let head = object::parse_object(chunk, offset);
        Ok(head.filter(|head| head.key(chunk) == key && head.database() == database))
    }

    /// The head of the object at a locator.
    pub(super) fn head(&self, arena: &Arena, locator: u32) -> Result<Option<Head>, Missing> {
        let (number, offset) = self.split(locator);
        Ok(object::parse_object(self.data(arena, number)?, offset))
    }

    /// The bytes of a data chunk. Empty if the chunk is zeros; no entry points at such a chunk.
    #[inline]
    pub(super) fn data<'a>(&self, arena: &'a Arena, number: u32) -> Result<&'a [u8], Missing> {
        let stripe = Stripe(number & Stripe::NUMBER_MAX);
        Ok(self.chunks.bytes(arena, stripe)?.unwrap_or_default())
    }

    /// The first entry at a place whose locator passes the test.
    #[inline]
    pub(super) fn search(
        &self,
        arena: &Arena,
        place: PageSlot,
        mut test: impl FnMut(u32) -> Result<bool, Blocked>,
    ) -> Result<Option<(At, u32)>, Blocked> {
        let PageSlot { page, line: home, tag } = place;
        let Some(bytes) = self.chunks.bytes(arena, page_stripe(page))? else {
            return Ok(None);
        };
        let home_line = page::line(bytes, home);
        for slot in page::matches(home_line, tag, false) {
            let locator = page::locator(home_line, slot);
            if test(locator)? {
                let at = At::ChunkRef {
                    page,
                    home,
                    line: home,
                    slot,
                };
                return Ok(Some((at, locator)));
            }
        }
        if !page::may_be_away(home_line, tag) {
            return Ok(None);
        }
        let line = self.shape.alternate(home, tag);
        let other = page::line(bytes, line);
        for slot in page::matches(other, tag, true) {
            let locator = page::locator(other, slot);
            if test(locator)? {
                return Ok(Some((At::ChunkRef { page, home, line, slot }, locator)));
            }
        }
        for spill in 0..self.index.spills {
            let bytes = self.chunks.bytes(arena, spill_stripe(spill))?;
            for (nth, entry) in spill::entries(bytes.unwrap_or_default()).enumerate() {
                if (entry.page, entry.line) == (page, home) && page::tag_matches(entry.tag, tag) && test(entry.locator)?
                {
                    let at = At::Spill { spill, nth, page, home };
                    return Ok(Some((at, entry.locator)));
                }
            }
        }
        Ok(None)
    }

    /// The entry that points at a locator, for a key with this hash.
    pub(super) fn search_locator(&self, arena: &Arena, hash: u64, wanted: u32) -> Result<Option<At>, Blocked> {
        let Some(place) = self.place(hash)? else {
            return Ok(None);
        };
        let found = self.search(arena, place, |locator| Ok(locator == wanted))?;
        Ok(found.map(|(at, _)| at))
    }
}
