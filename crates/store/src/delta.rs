//! Extents of a delta: the bytes that change in each chunk (P1.3). Layout: `docs/formats/peer.md`.
//!
//! ```text
//! u32 stripe | flags   u16 offset   u16 length - 1   [u64 base_ver]   length bytes of old XOR new
//! ```
//! Flag AGAIN (bit 29): an earlier extent of this delta already names the chunk, so no `base_ver` follows.
//! Flag FREE (bit 30): the extent carries the chunk's remaining bytes, so that the chunk becomes zeros and its version
//! 0.

use paritas_base::{Stripe, Version};

const AGAIN: u32 = 1 << 29;
const FREE: u32 = 1 << 30;
const HEAD_BYTES: usize = 8;

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
}

impl Delta {
    /// An empty delta with this version. `bytes` is a buffer to be reused.
    pub fn new(version: Version, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self {
            version,
            bytes,
            bytes_max: DELTA_BYTES_MAX,
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
        let flags = if free { FREE } else { 0 } | if base.is_none() { AGAIN } else { 0 };
        self.bytes.extend_from_slice(&(stripe.0 | flags).to_le_bytes());
        self.bytes.extend_from_slice(&(offset as u16).to_le_bytes());
        self.bytes.extend_from_slice(&((length - 1) as u16).to_le_bytes());
        if let Some(base) = base {
            self.bytes.extend_from_slice(&base.0.to_le_bytes());
        }
        let start = self.bytes.len();
        self.bytes.resize(start + length, 0);
        &mut self.bytes[start..]
    }
}

/// The bytes of a delta are malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadExtent;

/// Iterates over the extents of an encoded delta. The bytes may come from the network: each extent is checked against
/// the chunk size.
pub fn extents(bytes: &[u8], chunk_bytes: usize) -> Extents<'_> {
    Extents {
        rest: bytes,
        chunk_bytes,
    }
}

/// See [`extents`].
#[derive(Clone, Debug)]
pub struct Extents<'a> {
    rest: &'a [u8],
    chunk_bytes: usize,
}

impl<'a> Extents<'a> {
    fn parse(&mut self) -> Option<Extent<'a>> {
        let (head, rest) = self.rest.split_first_chunk::<HEAD_BYTES>()?;
        let word = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let offset = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let length = usize::from(u16::from_le_bytes([head[6], head[7]])) + 1;
        let stripe = Stripe(word & !(AGAIN | FREE));
        let (base, rest) = if word & AGAIN != 0 {
            (None, rest)
        } else {
            let (base, rest) = rest.split_first_chunk::<8>()?;
            (Some(Version(u64::from_le_bytes(*base))), rest)
        };
        if !stripe.is_valid() || offset + length > self.chunk_bytes || rest.len() < length {
            return None;
        }
        let (xor, rest) = rest.split_at(length);
        self.rest = rest;
        Some(Extent {
            stripe,
            free: word & FREE != 0,
            base,
            offset,
            xor,
        })
    }
}

impl<'a> Iterator for Extents<'a> {
    type Item = Result<Extent<'a>, BadExtent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let extent = self.parse();
        if extent.is_none() {
            self.rest = &[];
        }
        Some(extent.ok_or(BadExtent))
    }
}

#[cfg(test)]
mod tests;
