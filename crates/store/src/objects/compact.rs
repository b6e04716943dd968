//! Housekeeping: compaction, freeing what FLUSHALL left, returning memory, and postponed growth of the index.

use super::place::{INDEX_CHANGE_BYTES, Writer};
use super::space::{Before, Counted, Use};
use super::{Blocked, ObjectStore, has_room};
use crate::delta::EXTENT_HEAD_BYTES_MAX;
use crate::object::{self, Head, Item, PIECE_HEAD_BYTES, Value};
use crate::{Arena, Delta, Purpose};
use paritas_base::Stripe;

/// A chunk is worth compacting if at least this part of it is gained: one eighth.
const GAIN_PART: u32 = 8;
/// Dead bytes, in chunks, that a small stream may have whatever their share.
const DEAD_CHUNKS_MIN: u64 = 2;
/// Free chunks kept for new objects: this many, and one for each `FREE_KEPT_PART` used chunks.
const FREE_KEPT_MIN: u32 = 1;
const FREE_KEPT_PART: u32 = 64;
/// Free chunks kept while memory is short and keys are evicted for every write.
const FREE_KEPT_EVICTING: u32 = 8;
/// Number of index pages that an empty stream keeps.
const EMPTY_PAGES_KEPT: u32 = 4;
/// Memory counts as short below this number of free chunks in the arena.
const MEMORY_SHORT_SLOTS: u32 = 8;

impl ObjectStore {
    /// Does one bounded piece of background work, writing at most about `budget` bytes of delta. Returns true if it did
    /// something; there may be more to do. The delta may stay empty even then. To be called once a turn, and repeatedly
    /// while memory or credit is short. To keep dead bytes within their share, the budget of a turn must be about three
    /// times the bytes that its commands wrote.
    pub fn housekeep(&mut self, arena: &mut Arena, delta: &mut Delta, budget: usize) -> Result<bool, Blocked> {
        if !self.chunks.directory_known() {
            return Err(Blocked::Directory);
        }
        if self.learn_one(arena)? || self.free_garbage_page(arena, delta)? {
            return Ok(true);
        }
        match self.grow_if_due(arena, delta) {
            Ok(true) => return Ok(true),
            Ok(false) | Err(Blocked::Credit { .. } | Blocked::Memory | Blocked::Crowded) => {}
            Err(blocked) => return Err(blocked),
        }
        // Not at once: a stream with few keys may often become empty.
        if self.count() == Some(0) && self.index.pages > EMPTY_PAGES_KEPT {
            if self.index.kept_for == 0 {
                self.flush(arena, delta, None)?;
                return Ok(true);
            }
            self.index.kept_for -= 1;
        }
        if self.compact(arena, delta, budget)? {
            return Ok(true);
        }
        self.free_surplus(arena, delta)
    }

    /// The chunk that compaction will empty next, if it has not begun with it. The caller checks its bytes first,
    /// because compaction copies them into other chunks unchecked.
    pub fn next_victim(&mut self, arena: &Arena) -> Option<Stripe> {
        if self.space.victim.is_none() {
            self.space.victim = self.choose_victim(arena);
        }
        let (number, offset) = self.space.victim?;
        (offset == 0).then_some(Stripe::data(number))
    }

    /// Whether compaction is due: dead bytes exceed their share, or memory or credit is short.
    fn compaction_due(&self, arena: &Arena) -> bool {
        let chunk = self.settings.chunk_bytes as u64;
        let used = u64::from(self.space.used_count()) * chunk;
        let dead = self.space.dead_bytes();
        if dead <= self.space.dead_floor {
            return false;
        }
        let percent = u64::from(self.settings.dead_percent);
        if dead * 100 > used * percent && dead > DEAD_CHUNKS_MIN * chunk {
            return true;
        }
        self.is_short(arena) && self.lacks_free_chunks()
    }

    /// Whether memory is short, or credit for the next chunks.
    fn is_short(&self, arena: &Arena) -> bool {
        let needed = self.free_needed();
        arena.available(Purpose::Write) < MEMORY_SHORT_SLOTS.max(needed)
            || self.space.fresh(needed as usize - 1) >= self.credit.0
    }

    /// Moves objects out of the emptiest chunk until it is empty or `budget` bytes of delta are written. It does not
    /// begin with another chunk: the bytes of that one must be checked first ([`ObjectStore::next_victim`]).
    pub(super) fn compact(&mut self, arena: &mut Arena, delta: &mut Delta, budget: usize) -> Result<bool, Blocked> {
        let start = delta.bytes().len();
        let mut moved = false;
        while !moved || delta.bytes().len() - start < budget {
            let victim = match self.space.victim {
                None if !moved => self.choose_victim(arena),
                victim => victim,
            };
            let Some((number, offset)) = victim else {
                break;
            };
            match self.move_item(arena, delta, number, offset) {
                // The chunk is already free if its last live bytes have moved.
                Ok(Some(next)) if self.space.used(number) == Use::Closed => {
                    self.space.victim = Some((number, next));
                }
                Ok(Some(_)) => self.space.victim = None,
                Ok(None) => {
                    // The end is reached, but some bytes still count as live: a recount counts pieces whose first piece
                    // is absent as live. They are dead.
                    self.space.victim = None;
                    self.space.nothing_live(number);
                }
                Err(_) if moved => break,
                Err(blocked) => return Err(blocked),
            }
            moved = true;
        }
        Ok(moved)
    }

    /// The emptiest chunk, if compaction is due.
    fn choose_victim(&mut self, arena: &Arena) -> Option<(u32, u32)> {
        if !self.compaction_due(arena) {
            return None;
        }
        let chunk = self.settings.chunk_bytes as u32;
        let number = self.space.emptiest(chunk / GAIN_PART)?;
        let dead = self.space.dead_bytes();
        let died = self.space.died_bytes - self.space.moved_bytes;
        let fruitless = |before: Before| dead + before.died >= before.dead + died;
        if self.space.before.take().is_some_and(fruitless) {
            // Emptying the last chunk gained nothing, so only tails are left to gain. Wait until there are more dead
            // bytes.
            self.space.dead_floor = dead + u64::from(chunk);
            return None;
        }
        self.space.dead_floor = 0;
        self.space.before = Some(Before { dead, died });
        Some((number, 0))
    }

    /// Moves the item at an offset of a chunk if it is live. Returns the offset of the next item, `None` at the end.
    fn move_item(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        number: u32,
        offset: u32,
    ) -> Result<Option<u32>, Blocked> {
        let chunk = self.data(arena, number)?;
        let locator = self.locator(number, offset as usize);
        match object::parse(chunk, offset as usize) {
            None | Some(Item::End) => Ok(None),
            Some(Item::Object(head)) => {
                self.move_object(arena, delta, locator, head)?;
                Ok(Some(head.end))
            }
            Some(Item::Piece(hash, length)) => {
                if let Owner::Here(first, index) = self.owner_of(arena, hash, locator)? {
                    self.move_piece(arena, delta, locator, length, first, index)?;
                }
                Ok(Some(offset + (PIECE_HEAD_BYTES + length) as u32))
            }
        }
    }

    fn move_object(&mut self, arena: &mut Arena, delta: &mut Delta, locator: u32, head: Head) -> Result<(), Blocked> {
        let chunk = self.data(arena, self.split(locator).0)?;
        let hash = self.hash_of(&head, chunk);
        let Some(at) = self.search_locator(arena, hash, locator)? else {
            return Ok(());
        };
        let mut copy = core::mem::take(&mut arena.scratch_copy);
        copy.clear();
        let chunk = self.data(arena, self.split(locator).0)?;
        copy.extend_from_slice(&chunk[head.start as usize..head.end as usize]);
        let moved = if head.further > 0 {
            self.move_first_piece(arena, delta, locator, head, &mut copy)
        } else {
            self.move_whole(arena, delta, hash, locator, head, &copy)
        };
        arena.scratch_copy = copy;
        let new = moved?;
        self.point(arena, delta, at, new);
        self.space.moved_bytes += u64::from(head.bytes());
        Ok(())
    }

    /// Moves an object of one piece. It may be cut into pieces at its new place.
    fn move_whole(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        hash: u64,
        locator: u32,
        head: Head,
        copy: &[u8],
    ) -> Result<u32, Blocked> {
        let here = head.shifted(head.start);
        let value = Value {
            bytes: here.body(copy),
            expiry_ms: here.expiry_ms(copy),
            flags: here.flags(copy),
            marks: here.marks(copy),
            hash_kind: here.is_hash(),
            record: here.record(copy).unwrap_or_default(),
        };
        let key = here.key(copy);
        let mut plan = core::mem::take(&mut self.plan);
        let planned = self.plan(
            arena,
            delta,
            (head.database(), key.len()),
            &value,
            Writer::Compaction,
            &mut plan,
        );
        let new = planned.map(|()| {
            let new = self.write_object(arena, delta, hash, key, &value, &plan);
            self.bury(arena, locator, &head);
            new
        });
        self.plan = plan;
        new
    }

    /// Moves the first piece of an object unchanged: its references stay valid.
    fn move_first_piece(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        locator: u32,
        head: Head,
        copy: &mut Vec<u8>,
    ) -> Result<u32, Blocked> {
        let place = self.plan_bytes(arena, delta, copy.len())?;
        let new = self.write_bytes(arena, delta, place, copy);
        let (number, _) = self.split(locator);
        let counted = Counted::of(&head);
        self.space.count_object(number, counted, false);
        self.space.count_object(self.split(new).0, counted, true);
        self.space.sub_live(number, head.bytes());
        Ok(new)
    }

    /// Moves a further piece, and changes the reference to it in the first piece.
    fn move_piece(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        locator: u32,
        length: usize,
        first: u32,
        index: usize,
    ) -> Result<(), Blocked> {
        let (number, offset) = self.split(locator);
        let bytes = PIECE_HEAD_BYTES + length;
        has_room(delta, INDEX_CHANGE_BYTES)?;
        let place = self.plan_bytes(arena, delta, bytes)?;
        let mut copy = core::mem::take(&mut arena.scratch_copy);
        copy.clear();
        copy.extend_from_slice(&self.data(arena, number)?[offset..offset + bytes]);
        let new = self.write_bytes(arena, delta, place, &mut copy);
        arena.scratch_copy = copy;
        if let Some(head) = self.head(arena, first)? {
            let stripe = Stripe::data(self.split(first).0);
            let at = head.reference_offset(index);
            self.chunks.change(arena, delta, stripe, at, &new.to_le_bytes(), false);
        }
        self.space.sub_live(number, bytes as u32);
        self.space.moved_bytes += bytes as u64;
        Ok(())
    }

    /// Finds the owner of the piece at a locator: the object whose first piece refers to it, and the index of that
    /// reference.
    fn owner_of(&self, arena: &Arena, hash: u64, piece: u32) -> Result<Owner, Blocked> {
        let Some(place) = self.place(hash)? else {
            return Ok(Owner::None);
        };
        let mut owner = Owner::None;
        self.search(arena, place, |first| {
            let Some(head) = self.head(arena, first)? else {
                return Ok(false);
            };
            let chunk = self.data(arena, self.split(first).0)?;
            let index = if head.further > 0 {
                head.pieces(chunk).position(|(locator, _)| locator == piece)
            } else {
                None
            };
            if let Some(index) = index {
                owner = Owner::Here(first, index);
            }
            Ok(index.is_some())
        })?;
        Ok(owner)
    }

    /// After a takeover: learns what is live in one resident chunk, and reports its records. False if there is no chunk
    /// to learn now. It writes nothing.
    ///
    /// # Errors
    /// [`Blocked`] if an index page that it needs is absent.
    pub fn learn_one(&mut self, arena: &Arena) -> Result<bool, Blocked> {
        if self.space.unknown_count() == 0 || !self.index_here() {
            return Ok(false);
        }
        let end = self.space.end();
        let start = self.space.recount_next;
        let next = (0..end).map(|step| (start + step) % end).find(|number| {
            self.space.used(*number) == Use::Unknown && matches!(self.chunks.slot(Stripe::data(*number)), Ok(Some(_)))
        });
        let Some(number) = next else {
            return Ok(false);
        };
        self.space.recount_next = number + 1;
        let chunk = self.data(arena, number)?;
        let (mut live, mut offset) = (0, 0);
        let (mut objects, mut records) = (Vec::new(), Vec::new());
        while let Some(item) = object::parse(chunk, offset) {
            let locator = self.locator(number, offset);
            let start = offset;
            let is_live = match item {
                Item::End => break,
                Item::Object(head) => {
                    offset = head.end as usize;
                    let hash = self.hash_of(&head, chunk);
                    let found = self.search_locator(arena, hash, locator)?.is_some();
                    if found {
                        objects.push(Counted::of(&head));
                        records.extend(head.record(chunk));
                    }
                    found
                }
                Item::Piece(hash, length) => {
                    offset += PIECE_HEAD_BYTES + length;
                    match self.owner_of(arena, hash, locator) {
                        Ok(owner) => owner != Owner::None,
                        // It is known to be live or dead once its first piece is resident. Until then it counts as
                        // live.
                        Err(_) => true,
                    }
                }
            };
            if is_live {
                live += (offset - start) as u32;
            }
        }
        for record in records {
            self.records.born(record);
        }
        self.space.recounted(number, live);
        for counted in objects {
            self.space.count_object(number, counted, true);
        }
        Ok(true)
    }

    /// Returns the memory of one free chunk, if there are more free chunks than will soon be needed.
    fn free_surplus(&mut self, arena: &mut Arena, delta: &mut Delta) -> Result<bool, Blocked> {
        // Under eviction, free chunks are used again at once, unless the index needs the memory to grow.
        let evicts = self.usage.policy().evicts() && self.index.grow_wait == 0;
        let kept = if arena.budget().is_over() {
            // One is kept for compaction, which makes space for further writes.
            u32::from(evicts)
        } else if arena.available(Purpose::Write) < MEMORY_SHORT_SLOTS {
            if evicts { FREE_KEPT_EVICTING } else { FREE_KEPT_MIN }
        } else {
            FREE_KEPT_MIN + self.space.used_count() / FREE_KEPT_PART
        };
        // A waiting write needs this many chunks together, so they are not returned one by one.
        let kept = if arena.budget().is_over() {
            kept
        } else {
            kept.max(self.free_wanted)
        };
        if self.space.free.len() as u32 <= kept {
            return Ok(false);
        }
        let Some(number) = self.space.free.first().copied() else {
            return Ok(false);
        };
        has_room(delta, self.settings.chunk_bytes + EXTENT_HEAD_BYTES_MAX)?;
        self.chunks.free(arena, delta, Stripe::data(number));
        self.space.freed(number);
        Ok(true)
    }
}

/// The owner of a further piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// None: the piece is dead.
    None,
    /// The object with this locator; the piece is its further piece with this index.
    Here(u32, usize),
}
