//! One stream's objects and index over its chunks, as their owner holds them.
//!
//! Every operation that changes something records all of it in the given [`Delta`], or returns [`Blocked`] and has
//! changed nothing.

mod compact;
mod evict;
mod find;
mod gauges;
mod grow;
mod place;
mod scan;
mod space;
mod usage;
mod write;

#[cfg(test)]
mod tests;

use crate::index::page;
use crate::index::shape::Shape;
use crate::index::spill;
use crate::object::{KEY_BYTES_MAX, PIECE_HEAD_BYTES, VALUE_BYTES_MAX};
use crate::{Arena, Chunks, Delta, Missing, Purpose};
use paritas_base::{Stripe, Version};
use place::Plan;
use siphasher::sip::SipHasher13;
use space::{Space, Use};
use usage::Usage;

pub use gauges::Gauges;

/// Every 16th index stripe number is a spill page's; the others are pages, in order.
const SPILL_EVERY: u32 = 16;

/// Why an operation could not be done. It has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocked {
    /// This chunk must be materialised first.
    Missing(Stripe),
    /// It is not known yet which stripes exist.
    Directory,
    /// No stripe credit is left (PROTOCOL 8.2): see [`Stream::wants_credit`].
    Credit {
        /// Of index pages, not data.
        index: bool,
    },
    /// No memory is left: compact, evict, or say OOM.
    Memory,
    /// Keys that hash alike crowd in a part of the index, however few they are: [`Stream::grow_for_crowd`].
    Crowded,
    /// The delta has no room left: close it and try again with a fresh one.
    DeltaFull,
    /// Key or value is longer than this stream takes: see [`Stream::limits`].
    TooLarge,
}

impl From<Missing> for Blocked {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing.0)
    }
}

/// How a stream is set up. The first two are the cluster's and never change.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes in a chunk: a power of two, 256 B to 64 KiB.
    pub chunk_bytes: usize,
    /// Key of the hash, so that clients cannot aim at a page.
    pub hash_key: [u64; 2],
    /// Stripes asked for at a time.
    pub credit_batch: u32,
    /// Compaction begins when more of the used chunks' bytes is dead, in percent.
    pub dead_percent: u32,
}

impl Settings {
    /// With the usual figures.
    pub fn new(chunk_bytes: usize, hash_key: [u64; 2]) -> Self {
        Self {
            chunk_bytes,
            hash_key,
            credit_batch: 64,
            dead_percent: 18,
        }
    }
}

/// What keys and values a stream takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest key.
    pub key_bytes: usize,
    /// The longest value.
    pub value_bytes: usize,
}

/// A stream. See the module.
#[derive(Debug)]
pub struct Stream {
    settings: Settings,
    shape: Shape,
    hasher: SipHasher13,
    offset_bits: u32,
    /// Most pieces of an object.
    pieces_max: usize,
    chunks: Chunks,
    index: Index,
    space: Space,
    usage: Usage,
    /// Where credit ends, data and index.
    credit: (u32, u32),
    /// No more chunks than so many are asked for: others of the node must find memory too.
    share: u32,
    /// Chunks set aside because their bytes were wrong, and how many bytes of each are live if that was known.
    aside: Vec<(Stripe, Option<u32>)>,
    /// The most stripes, data and index, that a command of several changes found no credit for: so many are asked for
    /// ahead.
    wanted: (u32, u32),
    /// Free chunks that the last refused write needs, with the one that is left for compaction; 0 if no write was
    /// refused.
    free_wanted: u32,
    /// Reused.
    plan: Plan,
}

/// What the owner knows of its index beside the pages.
#[derive(Debug, Default)]
struct Index {
    /// Pages: the first `pages` index pages have a version; the next has none.
    pages: u32,
    /// Spill pages have numbers below this.
    spills: u32,
    /// Credit is asked for one more spill page than there are: a command of several changes must be sure of it.
    spill_wanted: bool,
    /// Index stripes below this number that are no page of ours may be left over from a FLUSHALL, to be freed.
    garbage_end: u32,
    /// Entries in the pages that are here.
    keys: u64,
    /// Pages, spill pages among them, that are not here yet.
    missing: u32,
    /// Keys above which the next page is due.
    keys_max: u64,
    /// Slots of a page to fill, per mille.
    fill_max: u32,
    /// Inserts to wait before a growth step that could not be done is tried again.
    grow_wait: u32,
    /// Keys that hash alike came together, as in the order of SCAN: a growth step is due however few keys there are.
    crowded: bool,
    /// It grew for keys of a command that has not run yet: though there is no key, so many times housekeeping gives no
    /// page back.
    kept_for: u32,
    /// Where active expiry goes on: page, line.
    expiry_cursor: (u32, u32),
    /// Where the search for keys with an expiry to evict goes on: a line, counted over all pages.
    eviction_cursor: u64,
    /// Lines that it has passed since a key to evict was found.
    searched_lines: u64,
}

impl Stream {
    /// A stream born empty.
    pub fn new(settings: Settings) -> Self {
        Self::with_chunks(settings, Chunks::new())
    }

    /// A stream taken over: nothing is known until the directory is set and chunks are installed.
    pub fn taken_over(settings: Settings) -> Self {
        Self::with_chunks(settings, Chunks::unknown())
    }

    fn with_chunks(settings: Settings, chunks: Chunks) -> Self {
        let chunk_bytes = settings.chunk_bytes;
        let pieces_max = if chunk_bytes >= 16 << 10 {
            8
        } else {
            (VALUE_BYTES_MAX / chunk_bytes + 2).min((chunk_bytes / 2 - 32) / 6)
        };
        Self {
            settings,
            shape: Shape::new(chunk_bytes),
            hasher: SipHasher13::new_with_keys(settings.hash_key[0], settings.hash_key[1]),
            offset_bits: chunk_bytes.trailing_zeros(),
            pieces_max,
            chunks,
            index: Index {
                fill_max: fill_max(chunk_bytes),
                ..Index::default()
            },
            space: Space::new(chunk_bytes),
            usage: Usage::new(settings.hash_key[0]),
            credit: (0, 0),
            share: u32::MAX,
            aside: Vec::new(),
            wanted: (0, 0),
            free_wanted: 0,
            plan: Plan::default(),
        }
    }

    /// The chunks.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// The chunks, for the protocol: versions, sums. Bytes change through the stream only.
    pub fn chunks_mut(&mut self) -> &mut Chunks {
        &mut self.chunks
    }

    /// The chunks, when the stream is no longer ours: a stash, or to be cleared.
    pub fn into_chunks(self) -> Chunks {
        self.chunks
    }

    /// How it is set up.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What keys and values it takes.
    pub fn limits(&self) -> Limits {
        let chunk = self.settings.chunk_bytes;
        Limits {
            key_bytes: KEY_BYTES_MAX.min(chunk / 2),
            value_bytes: VALUE_BYTES_MAX.min((self.pieces_max - 1) * (chunk - PIECE_HEAD_BYTES)),
        }
    }

    /// A key's hash.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Says which stripes exist (PROTOCOL 5.5). Chunks already installed stay.
    pub fn set_directory(&mut self, arena: &Arena, stripes: impl Iterator<Item = (Stripe, Version)>) {
        self.chunks.set_directory(stripes);
        let end = self.chunks.end(true);
        let exists = |chunks: &Chunks, stripe: Stripe| chunks.version(stripe) != Version::ZERO;
        let index = &mut self.index;
        index.pages = (0..)
            .find(|page| !exists(&self.chunks, page_stripe(*page)))
            .unwrap_or(0);
        index.spills = (0..end.div_ceil(SPILL_EVERY))
            .rfind(|spill| exists(&self.chunks, spill_stripe(*spill)))
            .map_or(0, |spill| spill + 1);
        index.garbage_end = end;
        (index.keys, index.missing) = (0, 0);
        for stripe in self.index_stripes().collect::<Vec<_>>() {
            match self.chunks.bytes(arena, stripe) {
                Ok(bytes) => self.index.keys += bytes.map_or(0, |b| self.entries_in(stripe, b)),
                Err(Missing(_)) => self.index.missing += 1,
            }
        }
        self.update_keys_max();
        self.usage.set_pages(self.index.pages, self.shape.lines());
        self.space.learn(&self.chunks);
    }

    /// Puts a materialised chunk in place. False, and nothing done, if it is here already, or memory is short.
    pub fn install(&mut self, arena: &mut Arena, stripe: Stripe, version: Version, sum: u32, bytes: &[u8]) -> bool {
        if !self.chunks.install(arena, stripe, version, sum, bytes) {
            return false;
        }
        if !self.chunks.directory_known() {
            return true;
        }
        let aside = self.aside.iter().position(|(s, _)| *s == stripe);
        let aside = aside.map(|at| self.aside.swap_remove(at).1);
        if !stripe.is_index() {
            match aside.flatten() {
                Some(live) if self.space.used(stripe.number()) == Use::Unknown => {
                    self.space.recounted(stripe.number(), live);
                }
                _ => self.space.installed(stripe.number(), version == Version::ZERO),
            }
        } else if self.is_current(stripe) {
            self.index.missing -= 1;
            // The keys of a page that was set aside have been counted all the while.
            if version != Version::ZERO && aside.is_none() {
                self.index.keys += self.entries_in(stripe, bytes);
            }
        }
        true
    }

    /// Takes a chunk whose bytes are wrong out of use (PROTOCOL 9.3): it is absent until what is right is installed.
    /// False if it is not here.
    pub fn set_aside(&mut self, stripe: Stripe) -> bool {
        if !self.chunks.set_aside(stripe) {
            return false;
        }
        let mut live = None;
        if !stripe.is_index() {
            let counted = self.space.is_counted(stripe.number());
            let bytes = self.space.set_aside(stripe.number());
            live = counted.then_some(bytes);
        } else if self.is_current(stripe) {
            self.index.missing += 1;
        }
        self.aside.push((stripe, live));
        true
    }

    /// Gives up a chunk that can be had again (PROTOCOL 5.10): it is absent until then. False if it is not here.
    pub fn drop_chunk(&mut self, arena: &mut Arena, stripe: Stripe) -> bool {
        let dropped = self.set_aside(stripe);
        if dropped {
            self.chunks.forget_aside(arena, stripe);
        }
        dropped
    }

    /// Keys; `None` until all index pages are here. Expired keys that nobody has met yet are among them.
    pub fn count(&self) -> Option<u64> {
        self.index_here().then_some(self.index.keys)
    }

    /// Index pages.
    pub fn page_count(&self) -> u32 {
        self.index.pages
    }

    fn index_here(&self) -> bool {
        self.chunks.directory_known() && self.index.missing == 0
    }

    /// All pages and spill pages.
    fn index_stripes(&self) -> impl Iterator<Item = Stripe> + use<> {
        (0..self.index.pages)
            .map(page_stripe)
            .chain((0..self.index.spills).map(spill_stripe))
    }

    fn is_current(&self, stripe: Stripe) -> bool {
        let number = stripe.number();
        if number % SPILL_EVERY == SPILL_EVERY - 1 {
            number / SPILL_EVERY < self.index.spills
        } else {
            number - number / SPILL_EVERY < self.index.pages
        }
    }

    fn entries_in(&self, stripe: Stripe, bytes: &[u8]) -> u64 {
        if stripe.number() % SPILL_EVERY == SPILL_EVERY - 1 {
            return spill::entries(bytes).count() as u64;
        }
        (0..self.shape.lines())
            .map(|line| u64::from(page::count(page::line(bytes, line))))
            .sum()
    }

    /// Keys above which an index of so many pages grows.
    fn keys_max(&self, pages: u32) -> u64 {
        let slots = self.shape.lines() * page::SLOTS as u32;
        self.shape.keys_max(pages, slots, self.index.fill_max)
    }

    fn update_keys_max(&mut self) {
        self.index.keys_max = self.keys_max(self.index.pages);
    }

    /// Whether memory for `count` more chunks is there, `spare` of them left over.
    fn has_memory(arena: &Arena, count: u32, spare: u32) -> Result<(), Blocked> {
        if count > 0 && arena.available(Purpose::Write) < count + spare {
            return Err(Blocked::Memory);
        }
        Ok(())
    }

    /// The number of a chunk, and the offset in it, that a locator names.
    #[inline]
    fn split(&self, locator: u32) -> (u32, usize) {
        (
            locator >> self.offset_bits,
            (locator & ((1 << self.offset_bits) - 1)) as usize,
        )
    }

    fn locator(&self, number: u32, offset: usize) -> u32 {
        number << self.offset_bits | offset as u32
    }
}

/// The stripe of index page `page`.
#[inline]
fn page_stripe(page: u32) -> Stripe {
    Stripe::index_page((page + page / (SPILL_EVERY - 1)).min(Stripe::NUMBER_MAX))
}

/// The stripe of spill page `spill`.
fn spill_stripe(spill: u32) -> Stripe {
    Stripe::index_page((spill * SPILL_EVERY + SPILL_EVERY - 1).min(Stripe::NUMBER_MAX))
}

/// How full pages may become, per mille: smaller pages vary more (docs/formats/index.md, "Fill").
fn fill_max(chunk_bytes: usize) -> u32 {
    let slots = chunk_bytes / page::LINE_BYTES * page::SLOTS;
    // 1 - 3 σ, with σ = 1/√slots.
    1000 - 3000 / slots.isqrt() as u32
}

/// Whether a delta can take `bytes` more.
fn has_room(delta: &Delta, bytes: usize) -> Result<(), Blocked> {
    if delta.bytes().len() + bytes > delta.bytes_max() {
        return Err(Blocked::DeltaFull);
    }
    Ok(())
}

/// A page, or spill page, of a stream being changed: its lines, or bytes, and the delta that records it.
struct LivePage<'a> {
    chunks: &'a mut Chunks,
    arena: &'a mut Arena,
    delta: &'a mut Delta,
    stripe: Stripe,
}

impl page::Lines for LivePage<'_> {
    fn read(&self, line: u32) -> page::Line {
        match self.chunks.bytes(self.arena, self.stripe) {
            Ok(Some(bytes)) => *page::line(bytes, line),
            _ => [0; page::LINE_BYTES],
        }
    }

    fn write(&mut self, line: u32, new: &page::Line) {
        let at = line as usize * page::LINE_BYTES;
        let (entries, rest) = new.split_at(page::SLOTS * 6);
        self.change(at, entries);
        self.change(at + entries.len(), rest);
    }
}

impl LivePage<'_> {
    /// Gives it memory. There is enough: that was looked for before.
    fn touch(&mut self) {
        let touched = self.chunks.touch(self.arena, self.stripe);
        debug_assert!(touched);
    }

    fn change(&mut self, offset: usize, new: &[u8]) {
        self.chunks
            .change(self.arena, self.delta, self.stripe, offset, new, false);
    }
}
