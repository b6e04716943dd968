//! Objects and index of one stream over its chunks, as held by its owner.
//!
//! Every operation that changes something either records all changes in the given [`Delta`], or returns [`Blocked`] and
//! changes nothing.

mod compact;
mod evict;
mod find;
mod gauges;
mod grow;
mod place;
mod records;
mod scan;
mod space;
mod usage;
mod write;

#[cfg(test)]
mod tests;

use crate::index::page;
use crate::index::shape::Shape;
use crate::index::spill;
use crate::object::{Head, KEY_BYTES_MAX, PIECE_HEAD_BYTES, VALUE_BYTES_MAX};
use crate::{Arena, Chunks, Delta, Missing, Purpose};
use paritas_base::{ALL_DATABASES, Stripe, Version};
use place::Plan;
use records::Records;
use siphasher::sip::SipHasher13;
use space::{Space, Use};
use usage::Usage;

pub use gauges::Gauges;
pub use records::RecordEvent;
#[cfg(test)]
pub(crate) use scan::CURSOR_SHIFT;
pub use scan::{CURSOR_BITS, Drawn};
pub use space::Keys;

/// Every 16th number of an index stripe is for a spill page. The others are pages, in order.
const SPILL_EVERY: u32 = 16;

/// The number of bits at the end of a hash that are the database of the key. The index and pieces use the first bits,
/// at most 50.
pub const DATABASE_BITS: u32 = 5;
const DATABASE_MASK: u64 = (1 << DATABASE_BITS) - 1;
/// What makes the hash of a key another one in each database.
const DATABASE_MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The database of a key with this hash.
#[inline]
pub const fn database_of(hash: u64) -> u8 {
    (hash & DATABASE_MASK) as u8
}

/// Why an operation cannot be done now. It has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocked {
    /// This chunk must be reconstructed first.
    Missing(Stripe),
    /// It is not yet known which stripes exist.
    Directory,
    /// No stripe credit is left (P8.2). [`ObjectStore::wants_credit`] says what to ask for.
    Credit {
        /// Whether the credit is for index pages, not for data.
        index: bool,
    },
    /// No memory is left. The caller compacts, evicts, or refuses the write with OOM.
    Memory,
    /// Too many keys with similar hashes are in one part of the index, however few keys there are in all. The caller
    /// calls [`ObjectStore::grow_for_crowd`].
    Crowded,
    /// The delta has no space left. The caller closes it and tries again with a new one.
    DeltaFull,
    /// Key or value is longer than this stream accepts ([`ObjectStore::limits`]).
    TooLarge,
}

impl From<Missing> for Blocked {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing.0)
    }
}

/// Settings of a stream. The first two are the same in the whole cluster and never change.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes in a chunk: a power of two, 256 B to 64 KiB.
    pub chunk_bytes: usize,
    /// Key of the keyed hash. It is secret, so that clients cannot choose keys of one page.
    pub hash_key: [u64; 2],
    /// Number of stripes asked for at a time.
    pub credit_batch: u32,
    /// Part of the used chunks' bytes, in percent, above which dead bytes start compaction.
    pub dead_percent: u32,
}

impl Settings {
    /// Settings with the usual values.
    pub fn new(chunk_bytes: usize, hash_key: [u64; 2]) -> Self {
        Self {
            chunk_bytes,
            hash_key,
            credit_batch: 64,
            dead_percent: 18,
        }
    }
}

/// Largest key and value that a stream accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest key in bytes.
    pub key_bytes: usize,
    /// Longest value in bytes.
    pub value_bytes: usize,
}

/// A stream. See the module's description.
#[derive(Debug)]
pub struct ObjectStore {
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
    records: Records,
    /// Ends of the credit, data and index: stripe numbers below these may be used.
    credit: (u32, u32),
    /// Most chunks for which credit is asked. The limit leaves memory to the other roles of the node.
    share: u32,
    /// Chunks set aside because their bytes were wrong, each with its number of live bytes if that was known.
    aside: Vec<(Stripe, Option<u32>)>,
    /// Most stripes, data and index, for which a command of several changes found no credit. At least this many are
    /// asked for ahead of use.
    wanted: (u32, u32),
    /// Number of free chunks that the last refused write needs, including the one left for compaction. 0 if no write
    /// was refused.
    free_wanted: u32,
    /// A buffer, reused by each write.
    plan: Plan,
}

/// What the owner knows of its index beside the pages.
#[derive(Debug, Default)]
struct Index {
    /// Number of pages. The first `pages` index pages have a version; the next one has none.
    pages: u32,
    /// Spill pages have numbers below this.
    spills: u32,
    /// Whether credit for one more spill page is asked for: a command of several changes needs to be sure of it.
    spill_wanted: bool,
    /// Index stripes below this number that are not pages may be left over from a FLUSHALL and must be freed.
    garbage_end: u32,
    /// Number of entries in the resident pages.
    keys: u64,
    /// Number of absent pages, spill pages included.
    missing: u32,
    /// Number of keys above which the next page is due.
    keys_max: u64,
    /// Part of a page's slots to fill, per mille.
    fill_max: u32,
    /// Number of inserts before a growth step that could not be done is tried again.
    grow_wait: u32,
    /// Whether keys with similar hashes came together, as in the order of SCAN. A growth step is then due whatever the
    /// number of keys.
    crowded: bool,
    /// The index has grown for the keys of a command that has not run yet. For this many more rounds, housekeeping
    /// returns no page although there are no keys.
    kept_for: u32,
    /// Where active expiry continues: page, line.
    expiry_cursor: (u32, u32),
    /// Where the search for keys to evict continues: the number of a line, counted over all pages.
    eviction_cursor: u64,
    /// Number of lines searched since a key to evict was last found.
    searched_lines: u64,
}

/// The most pieces of an object, with chunks of this length in bytes.
fn pieces_max(chunk_bytes: usize) -> usize {
    match chunk_bytes >= 16 << 10 {
        true => 8,
        false => (VALUE_BYTES_MAX / chunk_bytes + 2).min((chunk_bytes / 2 - 32) / 6),
    }
}

impl Limits {
    /// Those of a store with chunks of this length in bytes.
    pub fn of(chunk_bytes: usize) -> Self {
        Self {
            key_bytes: KEY_BYTES_MAX.min(chunk_bytes / 2),
            value_bytes: VALUE_BYTES_MAX.min((pieces_max(chunk_bytes) - 1) * (chunk_bytes - PIECE_HEAD_BYTES)),
        }
    }
}

impl ObjectStore {
    /// A new stream, empty.
    pub fn new(settings: Settings) -> Self {
        Self::with_chunks(settings, Chunks::new())
    }

    /// A stream that was taken over. Nothing is known until the directory is set and chunks are installed.
    pub fn taken_over(settings: Settings) -> Self {
        Self::with_chunks(settings, Chunks::unknown())
    }

    fn with_chunks(settings: Settings, chunks: Chunks) -> Self {
        let chunk_bytes = settings.chunk_bytes;
        Self {
            settings,
            shape: Shape::new(chunk_bytes),
            hasher: SipHasher13::new_with_keys(settings.hash_key[0], settings.hash_key[1]),
            offset_bits: chunk_bytes.trailing_zeros(),
            pieces_max: pieces_max(chunk_bytes),
            chunks,
            index: Index {
                fill_max: fill_max(chunk_bytes),
                ..Index::default()
            },
            space: Space::new(chunk_bytes),
            usage: Usage::new(settings.hash_key[0]),
            records: Records::default(),
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

    /// The chunks, for the protocol to change versions and sums. Their bytes change through the stream only.
    pub fn chunks_mut(&mut self) -> &mut Chunks {
        &mut self.chunks
    }

    /// The chunks, once this node no longer owns the stream: for a stash, or to be cleared.
    pub fn into_chunks(self) -> Chunks {
        self.chunks
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The largest key and value that it accepts.
    pub fn limits(&self) -> Limits {
        Limits::of(self.settings.chunk_bytes)
    }

    /// The hash of a key of a database. [`database_of`] tells the database from it, so that a hash and the bytes of a
    /// key are the whole key. Equal keys of two databases differ in all bits: growth of the index can separate them.
    #[inline]
    pub fn hash(&self, database: u8, key: &[u8]) -> u64 {
        let database = u64::from(database);
        (self.hasher.hash(key) ^ database.wrapping_mul(DATABASE_MIX)) & !DATABASE_MASK | database
    }

    /// The hash of the key of an object.
    fn hash_of(&self, head: &Head, chunk: &[u8]) -> u64 {
        self.hash(head.database(), head.key(chunk))
    }

    /// Sets which stripes exist (P5.5). Chunks that are already installed stay.
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
        // What was set aside before now is absent like others: its keys and live bytes have not been counted.
        self.aside.clear();
    }

    /// Makes a reconstructed chunk resident. Returns false and does nothing if it is already resident or memory is
    /// short.
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
            // The keys of a page that was set aside never left the count.
            if version != Version::ZERO && aside.is_none() {
                self.index.keys += self.entries_in(stripe, bytes);
            }
        }
        true
    }

    /// Marks a chunk whose bytes are wrong as absent until the right bytes are installed (P9.3). Returns false
    /// if it is not resident.
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

    /// Drops a chunk that can be reconstructed (P5.10). It is absent until then. Returns false if it is not
    /// resident.
    pub fn drop_chunk(&mut self, arena: &mut Arena, stripe: Stripe) -> bool {
        let dropped = self.set_aside(stripe);
        if dropped {
            self.chunks.forget_aside(arena, stripe);
        }
        dropped
    }

    /// Number of keys; `None` until all index pages are resident. Expired keys that are not yet deleted are included.
    pub fn count(&self) -> Option<u64> {
        self.index_here().then_some(self.index.keys)
    }

    /// Keys of each database; `None` until all objects are counted. After a takeover that is when all chunks are here.
    pub fn keys(&self) -> Option<[Keys; ALL_DATABASES as usize]> {
        // What was counted before it was set aside is counted still.
        let aside = self.aside.iter().filter(|(_, live)| live.is_some()).count();
        let is_counted = self.index_here() && self.space.unknown_count() as usize <= aside;
        is_counted.then(|| *self.space.by_database())
    }

    /// Number of index pages.
    pub fn page_count(&self) -> u32 {
        self.index.pages
    }

    fn index_here(&self) -> bool {
        self.chunks.directory_known() && self.index.missing == 0
    }

    /// The stripes of all pages and spill pages.
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

    /// Number of keys above which an index of `pages` pages grows.
    fn keys_max(&self, pages: u32) -> u64 {
        let slots = self.shape.lines() * page::SLOTS as u32;
        self.shape.keys_max(pages, slots, self.index.fill_max)
    }

    fn update_keys_max(&mut self) {
        self.index.keys_max = self.keys_max(self.index.pages);
    }

    /// Whether there is memory for `count` more chunks with `spare` chunks left over.
    fn has_memory(arena: &Arena, count: u32, spare: u32) -> Result<(), Blocked> {
        if count > 0 && arena.available(Purpose::Write) < count + spare {
            return Err(Blocked::Memory);
        }
        Ok(())
    }

    /// The chunk number and the offset in that chunk that a locator stands for.
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

/// How full pages may become, per mille. The fill of smaller pages varies more (docs/formats/index.md, "Fill").
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

/// A page or spill page being changed: its bytes, and the delta that records the change.
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
    /// Gives the page memory. The caller has checked that there is enough.
    fn touch(&mut self) {
        let touched = self.chunks.touch(self.arena, self.stripe);
        debug_assert!(touched);
    }

    fn change(&mut self, offset: usize, new: &[u8]) {
        self.chunks
            .change(self.arena, self.delta, self.stripe, offset, new, false);
    }
}
