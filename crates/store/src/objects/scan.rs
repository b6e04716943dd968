//! Iteration over keys: SCAN, RANDOMKEY, active expiry.

use super::find::{At, Found};
use super::{Blocked, ObjectStore, page_stripe, spill_stripe};
use crate::index::page::{self, SLOTS};
use crate::index::spill;
use crate::object::Object;
use crate::{Arena, Delta};

/// Bits of a scan cursor, which is the first bits of a hash. The ends of lines have fewer up to 2^23 pages of 16 KiB.
pub const CURSOR_BITS: u32 = 39;
/// The other bits of a hash.
pub(crate) const CURSOR_SHIFT: u32 = u64::BITS - CURSOR_BITS;

/// A key chosen at random.
#[derive(Debug)]
pub enum Drawn<'a> {
    /// This one.
    Key(Object<'a>),
    /// There is none.
    None,
    /// None was met in the part of the index that was searched: to be tried again with another random number.
    Later,
}

impl ObjectStore {
    /// Visits keys in the order of their hashes, whole lines of the index at a time. It starts at `cursor` (0 for the
    /// first) and stops once at least `limit` keys were visited or `LINES_MAX` lines were read. Returns the next
    /// cursor, of [`CURSOR_BITS`] bits; 0 when all keys were visited. A key that stays in the stream is visited once,
    /// even if the index grows between the calls. Expired keys are visited too.
    pub fn scan(
        &self,
        arena: &Arena,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(&Object<'_>),
    ) -> Result<u64, Blocked> {
        let mut met = 0;
        self.scan_lines(arena, cursor, |objects| {
            objects.iter().for_each(&mut visit);
            met += objects.len();
            met < limit
        })
    }

    /// The same for a caller that sees each line and says whether the next one is read too.
    pub fn scan_lines(
        &self,
        arena: &Arena,
        cursor: u64,
        mut visit: impl FnMut(&[Object<'_>]) -> bool,
    ) -> Result<u64, Blocked> {
        /// Most lines read in one call, so that a nearly empty index does not delay other commands.
        const LINES_MAX: usize = 4096;
        if !self.chunks.directory_known() {
            return Err(Blocked::Directory);
        }
        let pages = self.index.pages;
        if pages == 0 {
            return Ok(0);
        }
        // Lines end at multiples of the cursor's unit. The index may have grown since, so the line that now holds this
        // hash may begin before it.
        let first_hash = cursor << CURSOR_SHIFT;
        let mut hash = first_hash;
        let (mut locators, mut objects) = (Vec::new(), Vec::new());
        for _ in 0..LINES_MAX {
            locators.clear();
            objects.clear();
            let line = self.line_locators(arena, hash, &mut locators);
            if let Err(blocked) = line.and_then(|()| self.objects(arena, &locators, &mut objects)) {
                // The lines read so far are complete: return them first. Otherwise all lines up to this one would have
                // to be resident at once.
                return if hash > first_hash {
                    Ok(hash >> CURSOR_SHIFT)
                } else {
                    Err(blocked)
                };
            }
            if hash == first_hash {
                objects.retain(|object| self.hash(object.database(), object.key()) >= first_hash);
            }
            let goes_on = visit(&objects);
            match self.shape.line_end(hash, pages) {
                Some(end) => {
                    debug_assert!(end.trailing_zeros() >= CURSOR_SHIFT);
                    hash = end;
                }
                None => return Ok(0),
            }
            if !goes_on {
                break;
            }
        }
        Ok(hash >> CURSOR_SHIFT)
    }

    /// Appends the objects at these locators. All their chunks must be resident.
    fn objects<'a>(&'a self, arena: &'a Arena, locators: &[u32], objects: &mut Vec<Object<'a>>) -> Result<(), Blocked> {
        for locator in locators {
            if let Some(head) = self.head(arena, *locator)? {
                objects.push(self.object(arena, *locator, head)?);
            }
        }
        Ok(())
    }

    /// Appends the locators of all keys whose home is the line of `hash`. The pages must be resident.
    fn line_locators(&self, arena: &Arena, hash: u64, locators: &mut Vec<u32>) -> Result<(), Blocked> {
        let first = locators.len();
        let place = self.shape.place(hash, self.index.pages);
        let bytes = self.chunks.bytes(arena, page_stripe(place.page))?;
        let Some(bytes) = bytes else {
            return Ok(());
        };
        let home = page::line(bytes, place.line);
        let own = |line: &page::Line, slot: usize| page::tag(line, slot) != 0 && !page::is_guest(line, slot);
        let here = (0..SLOTS).filter(|slot| own(home, *slot));
        locators.extend(here.map(|slot| page::locator(home, slot)));
        if page::any_away(home) {
            for number in 0..self.shape.lines() {
                let line = page::line(bytes, number);
                let guests = (0..SLOTS).filter(|slot| {
                    page::is_guest(line, *slot) && self.shape.home(number, page::tag(line, *slot)) == place.line
                });
                locators.extend(guests.map(|slot| page::locator(line, slot)));
            }
            for spill in 0..self.index.spills {
                let bytes = self.chunks.bytes(arena, spill_stripe(spill))?;
                let ours =
                    spill::entries(bytes.unwrap_or_default()).filter(|e| (e.page, e.line) == (place.page, place.line));
                locators.extend(ours.map(|e| e.locator));
            }
        }
        if self.chunks.absent_count() > 0 {
            for locator in &locators[first..] {
                if let Some(head) = self.head(arena, *locator)? {
                    self.object(arena, *locator, head)?;
                }
            }
        }
        Ok(())
    }

    /// A random key among those that `accepts` accepts, chosen by `random`.
    pub fn random_key<'a>(
        &'a self,
        arena: &'a Arena,
        random: u64,
        accepts: impl Fn(&Object<'_>) -> bool,
    ) -> Result<Drawn<'a>, Blocked> {
        /// Most lines read in one call. There are many with few keys after most keys were deleted.
        const LINES_MAX: usize = 1 << 16;
        /// Most keys looked at in one call, if most are not accepted.
        const OBJECTS_MAX: usize = 4096;
        if !self.chunks.directory_known() {
            return Err(Blocked::Directory);
        }
        let (pages, lines) = (self.index.pages, self.shape.lines());
        if pages == 0 {
            return Ok(Drawn::None);
        }
        let (mut lines_left, mut objects_left) = (LINES_MAX, OBJECTS_MAX);
        let place = self.shape.place(random, pages);
        let slots = (random as u32 as usize) % SLOTS;
        for page in (0..pages).map(|p| (place.page + p) % pages) {
            if lines_left == 0 || objects_left == 0 {
                return Ok(Drawn::Later);
            }
            lines_left = lines_left.saturating_sub(lines as usize);
            let Some(bytes) = self.chunks.bytes(arena, page_stripe(page))? else {
                continue;
            };
            for number in (0..lines).map(|l| (place.line + l) % lines) {
                let line = page::line(bytes, number);
                let slots = (0..SLOTS).map(|slot| (slots + slot) % SLOTS);
                for slot in slots.filter(|slot| page::tag(line, *slot) != 0) {
                    let locator = page::locator(line, slot);
                    if let Some(head) = self.head(arena, locator)? {
                        let object = self.object(arena, locator, head)?;
                        if accepts(&object) {
                            return Ok(Drawn::Key(object));
                        }
                        objects_left = objects_left.saturating_sub(1);
                    }
                }
            }
        }
        for spill in 0..self.index.spills {
            let bytes = self.chunks.bytes(arena, spill_stripe(spill))?;
            for entry in spill::entries(bytes.unwrap_or_default()) {
                if let Some(head) = self.head(arena, entry.locator)? {
                    let object = self.object(arena, entry.locator, head)?;
                    if accepts(&object) {
                        return Ok(Drawn::Key(object));
                    }
                }
            }
        }
        Ok(Drawn::None)
    }

    /// Active expiry: examines the next `lines` lines of the index and deletes expired keys, as many as fit in the
    /// delta. Keys whose chunks are absent are left for later. Calls `gone` with the hash of each deleted key. Returns
    /// their number.
    pub fn expire_step(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        now_ms: u64,
        lines: u32,
        mut gone: impl FnMut(u64),
    ) -> usize {
        // After a takeover, objects are counted as their chunks are reconstructed. Until then expired keys are found
        // only when commands ask for them.
        if self.space.expiring() == 0 || self.index.pages == 0 || !self.chunks.directory_known() {
            return 0;
        }
        let mut deleted = 0;
        for _ in 0..lines {
            let (page, line) = self.index.expiry_cursor;
            let page = if page < self.index.pages { page } else { 0 };
            for slot in 0..SLOTS {
                let Some(found) = self.expired_at(arena, now_ms, page, line, slot) else {
                    continue;
                };
                let key = self.data(arena, self.split(found.locator).0);
                let hash = key.map(|chunk| self.hash_of(&found.head, chunk));
                if self.delete_found(arena, delta, found).is_err() {
                    return deleted;
                }
                hash.into_iter().for_each(&mut gone);
                deleted += 1;
            }
            self.index.expiry_cursor = if line + 1 < self.shape.lines() {
                (page, line + 1)
            } else {
                (page + 1, 0)
            };
        }
        deleted
    }

    fn expired_at(&self, arena: &Arena, now_ms: u64, page: u32, number: u32, slot: usize) -> Option<Found> {
        let bytes = self.chunks.bytes(arena, page_stripe(page)).ok()??;
        let line = page::line(bytes, number);
        let tag = page::tag(line, slot);
        if tag == 0 {
            return None;
        }
        let locator = page::locator(line, slot);
        let head = self.head(arena, locator).ok()??;
        let chunk = self.data(arena, self.split(locator).0).ok()?;
        if head.expiry_ms(chunk)? > now_ms {
            return None;
        }
        let home = if page::is_guest(line, slot) {
            self.shape.home(number, tag)
        } else {
            number
        };
        let at = At::ChunkRef {
            page,
            home,
            line: number,
            slot,
        };
        Some(Found { at, locator, head })
    }
}
