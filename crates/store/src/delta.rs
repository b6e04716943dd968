//! Extents of a delta: the bytes that change in each chunk (P1.3). Layout: `docs/formats/peer.md`.
//!
//! ```text
//! u8 flags, short length   [stripe number]   [offset]   [length - 8]   [distance of the version]   old XOR new
//! ```
//! All numbers but the first byte are of variable length. What follows from an earlier extent of the delta is left out.

use paritas_base::{Reader, Stripe, Version, varint};

/// The chunk is an index page.
const INDEX: u8 = 1;
/// The extent carries the chunk's remaining bytes: the chunk becomes zeros and its version 0.
const FREE: u8 = 1 << 1;
/// An earlier extent of this delta names the chunk: no version follows.
const AGAIN: u8 = 1 << 2;
/// The chunk is that of the last extent of its kind, index page or data: no number follows.
const SAME: u8 = 1 << 3;
/// The range begins where that extent ended: no offset follows.
const NEXT: u8 = 1 << 4;
/// The upper three bits: a length of 1 to 7, or 0: it follows, less eight.
const SHORT_SHIFT: u32 = 5;
const SHORT_MAX: usize = 7;

/// Most bytes of an extent beside its old XOR new: flags, number, offset, length, version.
pub const EXTENT_HEAD_BYTES_MAX: usize = 1 + 4 + 3 + 3 + varint::BYTES_MAX;

/// Most bytes of extents in one delta (P1.3).
pub const DELTA_BYTES_MAX: usize = 256 << 10;

/// Most bytes of extents in a delta that a command of several changes has begun. The limit is higher, because such a
/// delta must not be split (P1.3) and the index may grow in it, which no estimate in advance includes.
pub const COMMAND_DELTA_BYTES_MAX: usize = 1 << 20;

/// One range of bytes of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent<'a> {
    /// The stripe of the chunk.
    pub stripe: Stripe,
    /// Whether the chunk is freed: it becomes zeros and its version 0.
    pub free: bool,
    /// The chunk's version before the delta; `None` if an earlier extent of the same delta names it.
    pub base: Option<Version>,
    /// Offset of the range in the chunk, in bytes.
    pub offset: usize,
    /// Old bytes XOR new bytes.
    pub xor: &'a [u8],
}

/// A delta being built: the version that it gives to each chunk, and its extents.
#[derive(Debug)]
pub struct Delta {
    version: Version,
    bytes: Vec<u8>,
    bytes_max: usize,
    last: Last,
}

/// Where the last extent of each kind, data and index page, ended.
#[derive(Clone, Copy, Default, Debug)]
struct Last([Option<(Stripe, usize)>; 2]);

impl Last {
    fn of(&mut self, is_index: bool) -> &mut Option<(Stripe, usize)> {
        &mut self.0[usize::from(is_index)]
    }
}

impl Delta {
    /// An empty delta with this version. `bytes` is a buffer to be reused.
    pub fn new(version: Version, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self {
            version,
            bytes,
            bytes_max: DELTA_BYTES_MAX,
            last: Last::default(),
        }
    }

    /// Sets the largest length of the extents in bytes.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The largest length of the extents in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether the delta belongs to a command of several changes. Such a command has reserved space before its first
    /// change.
    pub(crate) fn is_of_several(&self) -> bool {
        self.bytes_max > DELTA_BYTES_MAX
    }

    /// The version that the delta gives to each chunk.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its extents, encoded.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of memory allocated for the extents.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Its extents, encoded.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether it holds no extent.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends an extent and returns its XOR bytes, all zeros, to be filled in. `base` is the chunk's version before
    /// this delta, or `None` if this delta already names the chunk.
    pub(crate) fn extent(
        &mut self,
        stripe: Stripe,
        free: bool,
        base: Option<Version>,
        offset: usize,
        length: usize,
    ) -> &mut [u8] {
        debug_assert!(length > 0 && offset + length <= 1 << 16);
        let last = self.last.of(stripe.is_index()).replace((stripe, offset + length));
        let same = last.is_some_and(|(before, _)| before == stripe);
        let next = last == Some((stripe, offset));
        let short = if length <= SHORT_MAX { length } else { 0 };
        let set = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = set(stripe.is_index(), INDEX)
            | set(free, FREE)
            | set(base.is_none(), AGAIN)
            | set(same, SAME)
            | set(next, NEXT);
        self.bytes.push(flags | (short as u8) << SHORT_SHIFT);
        if !same {
            varint::push(&mut self.bytes, u64::from(stripe.number()));
        }
        if !next {
            varint::push(&mut self.bytes, offset as u64);
        }
        if short == 0 {
            varint::push(&mut self.bytes, (length - SHORT_MAX - 1) as u64);
        }
        if let Some(base) = base {
            varint::push(&mut self.bytes, distance(self.version, base));
        }
        let start = self.bytes.len();
        self.bytes.resize(start + length, 0);
        &mut self.bytes[start..]
    }
}

/// The bytes of a delta are malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadExtent;

/// A version as its distance below that of the delta. Zero, a chunk of zeros, is 0: no chunk has the version of a delta
/// that has not named it yet.
fn distance(version: Version, base: Version) -> u64 {
    if base == Version::ZERO {
        return 0;
    }
    version.0.wrapping_sub(base.0)
}

/// Iterates over the extents of an encoded delta, which leaves `version`. The bytes may come from the network: each
/// extent is checked against the chunk size. Without the delta's version, those before it have no meaning.
pub fn extents(version: Version, bytes: &[u8], chunk_bytes: usize) -> Extents<'_> {
    Extents {
        version,
        rest: Reader(bytes),
        last: Last::default(),
        chunk_bytes,
    }
}

/// See [`extents`].
#[derive(Clone, Debug)]
pub struct Extents<'a> {
    version: Version,
    rest: Reader<'a>,
    last: Last,
    chunk_bytes: usize,
}

impl<'a> Extents<'a> {
    fn parse(&mut self) -> Option<Extent<'a>> {
        let r = &mut self.rest;
        let head = r.u8()?;
        let flag = |flag: u8| head & flag != 0;
        let last = self.last.of(flag(INDEX));
        let stripe = if flag(SAME) {
            (*last)?.0
        } else {
            let number = r.varint_u32().filter(|number| *number <= Stripe::NUMBER_MAX)?;
            if flag(INDEX) {
                Stripe::index_page(number)
            } else {
                Stripe::data(number)
            }
        };
        let offset = if flag(NEXT) {
            (*last).filter(|(before, _)| *before == stripe)?.1
        } else {
            r.varint_u32()? as usize
        };
        let length = match usize::from(head >> SHORT_SHIFT) {
            0 => r.varint_u32()? as usize + SHORT_MAX + 1,
            short => short,
        };
        let base = if flag(AGAIN) {
            None
        } else {
            let distance = r.varint()?;
            let before = self.version.0.wrapping_sub(distance);
            Some(if distance == 0 { Version::ZERO } else { Version(before) })
        };
        let end = offset.checked_add(length).filter(|end| *end <= self.chunk_bytes)?;
        let xor = r.bytes(length)?;
        *last = Some((stripe, end));
        Some(Extent {
            stripe,
            free: flag(FREE),
            base,
            offset,
            xor,
        })
    }
}

impl<'a> Iterator for Extents<'a> {
    type Item = Result<Extent<'a>, BadExtent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.0.is_empty() {
            return None;
        }
        let extent = self.parse();
        if extent.is_none() {
            self.rest = Reader(&[]);
        }
        Some(extent.ok_or(BadExtent))
    }
}

#[cfg(test)]
mod tests;
