//! Where an object's bytes are written: best fit among a few open chunks, and in pieces where a tail would be wasted.

use super::grow::SPILLED_MAX;
use super::space::Counted;
use super::{Blocked, ObjectStore, database_of, has_room, page_stripe, spill_stripe};
use crate::delta::EXTENT_HEAD_BYTES_MAX;
use crate::index::spill;
use crate::object::{PIECE_HEAD_BYTES, Value, encode_piece_head};
use crate::{Arena, Delta, Purpose};
use paritas_base::Stripe;

/// A tail is left unused if it is at most 1/128 of a chunk. A longer one takes a piece of the next object.
const TAIL_PART: u32 = 128;
/// Smallest payload of a piece in bytes. Smaller pieces would cost more than they save.
const PIECE_PAYLOAD_MIN: usize = 16;
/// Most bytes of extents that one change of the index takes.
pub(super) const INDEX_CHANGE_BYTES: usize = 3 << 10;
/// Most bytes of an extent's header, and the zero that ends the used part of a chunk.
const EXTENT_HEAD_BYTES: usize = EXTENT_HEAD_BYTES_MAX + 1;

/// One piece of an object to be written: `length` bytes of the value, at `offset` of chunk `number`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub number: u32,
    pub offset: u32,
    pub length: u32,
}

/// Where an object is written: its first piece, then the others in the order of the value.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub parts: Vec<Part>,
    /// Number of chunks to take. The last of them holds the first piece.
    pub fresh: usize,
}

/// Who asks for space. Foreground writes leave a chunk for compaction, which needs one to gain others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Writer {
    Foreground,
    Compaction,
}

impl Writer {
    pub(super) fn spare(self) -> u32 {
        match self {
            Self::Foreground => 1,
            Self::Compaction => 0,
        }
    }
}

impl ObjectStore {
    /// Finds space for an object. `key`: the database and the length of its key. Changes nothing but `plan`.
    pub(super) fn plan(
        &self,
        arena: &Arena,
        delta: &Delta,
        key: (u8, usize),
        value: &Value<'_>,
        writer: Writer,
        plan: &mut Plan,
    ) -> Result<(), Blocked> {
        let chunk = self.settings.chunk_bytes;
        let length = value.bytes.len();
        let whole = value.head_bytes(key.0, key.1, 0) + length;
        plan.parts.clear();
        plan.fresh = 0;
        if !self.plan_in_open(whole, length, plan) {
            let rest = self.rest_to_fill();
            if !self.plan_in_fresh(key, value, rest, plan) && !self.plan_in_fresh(key, value, None, plan) {
                return Err(Blocked::TooLarge);
            }
        }
        let heads = plan.parts.len() * (PIECE_HEAD_BYTES + EXTENT_HEAD_BYTES);
        let bytes = value.head_bytes(key.0, key.1, plan.parts.len() - 1) + length + heads;
        debug_assert!(plan.parts.iter().all(|p| (p.offset as usize) < chunk));
        has_room(delta, bytes + INDEX_CHANGE_BYTES)?;
        self.has_space(arena, plan.fresh, writer)
    }

    /// Whether `count` more chunks can be taken.
    pub(super) fn has_space(&self, arena: &Arena, count: usize, writer: Writer) -> Result<(), Blocked> {
        if count == 0 {
            return Ok(());
        }
        let needed = count + writer.spare() as usize;
        let credit = self.credit.0.min(self.numbers_end());
        if (0..needed).any(|nth| self.space.fresh(nth) >= credit) {
            return Err(Blocked::Credit { index: false });
        }
        let zeros = needed.saturating_sub(self.space.free.len()) as u32;
        // The memory limit was lowered. Without a chunk to move objects to, eviction would have to empty one by chance.
        let stuck = writer == Writer::Compaction && self.space.free.is_empty() && self.chunks.absent_count() == 0;
        if stuck && self.usage.policy().evicts() && zeros <= arena.available(Purpose::Demand) {
            return Ok(());
        }
        Self::has_memory(arena, zeros, 0)
    }

    /// Records whether a write found the `count` free chunks that it needs. If not, compaction and eviction continue
    /// until there are that many.
    #[inline]
    pub(super) fn note_space(&mut self, count: usize, space: Result<(), Blocked>) {
        let needed = count as u32 + Writer::Foreground.spare();
        match space {
            Err(Blocked::Memory | Blocked::Credit { index: false }) if count > 0 => {
                self.free_wanted = self.free_wanted.max(needed);
            }
            Ok(()) if needed >= self.free_wanted => self.free_wanted = 0,
            _ => {}
        }
    }

    /// Whether several consecutive changes will find space for `chunks` more data chunks and `pages` more index pages.
    /// Missing credit is asked for from now on ([`ObjectStore::wants_credit`]).
    ///
    /// # Errors
    /// What blocks the changes.
    pub fn may_take(&mut self, arena: &Arena, chunks: u32, pages: u32) -> Result<(), Blocked> {
        if self.spilled(arena)? >= SPILLED_MAX {
            return Err(Blocked::Crowded);
        }
        self.chunks.slot(spill_stripe(self.index.spills))?;
        if spill_stripe(self.index.spills).number() >= self.credit.1 {
            self.index.spill_wanted = true;
            return Err(Blocked::Credit { index: true });
        }
        let (first, end) = (page_stripe(self.index.pages), page_stripe(self.index.pages + pages));
        if end.number() > self.credit.1 {
            self.wanted.1 = self.wanted.1.max(end.number() - first.number());
            return Err(Blocked::Credit { index: true });
        }
        let space = self.has_space(arena, chunks as usize, Writer::Foreground);
        self.note_space(chunks as usize, space);
        if let Err(Blocked::Credit { .. }) = space {
            self.wanted.0 = self.wanted.0.max(chunks);
        }
        space?;
        let zeros = (chunks + Writer::Foreground.spare()).saturating_sub(self.space.free.len() as u32);
        // A spill page may only be created if one chunk stays free.
        Self::has_memory(arena, zeros.saturating_add(pages), 1)
    }

    /// Most index pages, spill pages included, that are created for this many new keys.
    pub fn pages_for(&self, new_keys: usize) -> u32 {
        let spills = new_keys / spill::capacity(self.settings.chunk_bytes) + 1;
        let keys = self.index.keys + new_keys as u64;
        // Overdue growth is caught up with by one page for each key.
        let grown = (0..new_keys as u32).find(|more| self.keys_max(self.index.pages + more) >= keys);
        grown.unwrap_or(new_keys as u32) + spills as u32
    }

    /// Best fit: the open chunk with the least free space that is enough.
    fn plan_in_open(&self, whole: usize, length: usize, plan: &mut Plan) -> bool {
        let chunk = self.settings.chunk_bytes;
        let fits = self.space.open.iter().filter(|o| chunk - o.offset as usize >= whole);
        let Some(open) = fits.max_by_key(|o| o.offset) else {
            return false;
        };
        plan.parts.push(Part {
            number: open.number,
            offset: open.offset,
            length: length as u32,
        });
        true
    }

    /// The open chunk that will be closed, if its tail is worth a piece.
    fn rest_to_fill(&self) -> Option<(u32, u32)> {
        if self.space.open.len() < self.space.open_max() {
            return None;
        }
        let open = self.space.open[self.space.fullest()?];
        let chunk = self.settings.chunk_bytes as u32;
        (chunk - open.offset > chunk / TAIL_PART).then_some((open.number, open.offset))
    }

    /// Plans a fresh chunk for the first piece, whole fresh chunks for what does not fit there, and a piece in an open
    /// chunk's rest. Returns false if this takes too many pieces.
    fn plan_in_fresh(&self, key: (u8, usize), value: &Value<'_>, rest: Option<(u32, u32)>, plan: &mut Plan) -> bool {
        let chunk = self.settings.chunk_bytes;
        let length = value.bytes.len();
        let payload_max = chunk - PIECE_HEAD_BYTES;
        let in_rest = rest.map_or(0, |(_, offset)| {
            let space = (chunk - offset as usize).saturating_sub(PIECE_HEAD_BYTES);
            if space.min(length) < PIECE_PAYLOAD_MIN {
                0
            } else {
                space.min(length)
            }
        });
        for full in 0..self.pieces_max {
            let further = full + usize::from(in_rest > 0);
            let head = value.head_bytes(key.0, key.1, further);
            let left = length - in_rest;
            let first = left.saturating_sub(full * payload_max);
            if head + first > chunk {
                continue;
            }
            if further + 1 > self.pieces_max {
                return false;
            }
            plan.fresh = full + 1;
            plan.parts.push(Part {
                number: self.space.fresh(full),
                offset: 0,
                length: first as u32,
            });
            let mut after = left - first;
            for nth in 0..full {
                let length = after.min(payload_max);
                plan.parts.push(Part {
                    number: self.space.fresh(nth),
                    offset: 0,
                    length: length as u32,
                });
                after -= length;
            }
            debug_assert_eq!(after, 0);
            if let Some((number, offset)) = rest.filter(|_| in_rest > 0) {
                plan.parts.push(Part {
                    number,
                    offset,
                    length: in_rest as u32,
                });
            }
            return true;
        }
        false
    }

    /// Writes an object as planned. Returns its locator.
    pub(super) fn write_object(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        hash: u64,
        key: &[u8],
        value: &Value<'_>,
        plan: &Plan,
    ) -> u32 {
        self.take_chunks(arena, plan.fresh);
        let database = database_of(hash);
        let mut bytes = core::mem::take(&mut arena.scratch);
        let first = plan.parts[0];
        let (mut body, mut rest) = value.bytes.split_at(first.length as usize);
        for (index, part) in plan.parts.iter().enumerate() {
            bytes.clear();
            if index == 0 {
                let offset_bits = self.offset_bits;
                let further = plan.parts[1..]
                    .iter()
                    .map(|p| (p.number << offset_bits | p.offset, p.length as usize));
                value.encode_head(database, key, further, &mut bytes);
            } else {
                (body, rest) = rest.split_at(part.length as usize);
                encode_piece_head(hash, body.len(), &mut bytes);
            }
            bytes.extend_from_slice(body);
            self.append(arena, delta, part.number, part.offset, &mut bytes);
        }
        debug_assert!(rest.is_empty());
        arena.scratch = bytes;
        let head_bytes = value.head_bytes(database, key.len(), plan.parts.len() - 1);
        self.open_first(plan.fresh, first, head_bytes);
        let counted = Counted {
            database,
            user_bytes: (key.len() + value.bytes.len()) as u64,
            expires: value.expiry_ms.is_some(),
        };
        self.space.count_object(first.number, counted, true);
        self.locator(first.number, first.offset as usize)
    }

    /// Finds space for `length` bytes in one piece, for compaction. Returns the place, and the number of chunks to
    /// take.
    pub(super) fn plan_bytes(&self, arena: &Arena, delta: &Delta, length: usize) -> Result<(Part, usize), Blocked> {
        has_room(delta, length + EXTENT_HEAD_BYTES + INDEX_CHANGE_BYTES)?;
        let mut plan = Plan::default();
        if self.plan_in_open(length, length, &mut plan) {
            return Ok((plan.parts[0], 0));
        }
        self.has_space(arena, 1, Writer::Compaction)?;
        let part = Part {
            number: self.space.fresh(0),
            offset: 0,
            length: length as u32,
        };
        Ok((part, 1))
    }

    /// Writes `bytes` where `plan_bytes` said. Returns the locator. May append a zero to `bytes`.
    pub(super) fn write_bytes(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        (part, fresh): (Part, usize),
        bytes: &mut Vec<u8>,
    ) -> u32 {
        self.take_chunks(arena, fresh);
        self.append(arena, delta, part.number, part.offset, bytes);
        self.open_first(fresh, part, 0);
        self.locator(part.number, part.offset as usize)
    }

    fn take_chunks(&mut self, arena: &mut Arena, count: usize) {
        for _ in 0..count {
            let number = self.space.take_fresh();
            let touched = self.chunks.touch(arena, Stripe::data(number));
            debug_assert!(touched, "the caller has checked that there is memory");
        }
    }

    /// Makes the chunk taken for a first piece an open one. The piece has `head_bytes` and a part of the value.
    fn open_first(&mut self, fresh: usize, first: Part, head_bytes: usize) {
        if fresh > 0 {
            let used = head_bytes as u32 + first.length;
            self.space.open(first.number, used);
        }
    }

    /// Writes bytes at the end of a chunk's used part, followed by the zero that ends it unless the chunk is full.
    fn append(&mut self, arena: &mut Arena, delta: &mut Delta, number: u32, offset: u32, bytes: &mut Vec<u8>) {
        let length = bytes.len() as u32;
        if ((offset + length) as usize) < self.settings.chunk_bytes {
            bytes.push(0);
        }
        let stripe = Stripe::data(number);
        self.chunks.change(arena, delta, stripe, offset as usize, bytes, false);
        self.space.add_live(number, length);
        self.space.advance(number, offset + length);
    }
}
