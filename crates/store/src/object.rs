//! Encoding of objects in chunks (docs/formats/object.md).
//!
//! ```text
//! object:  u8 key length (255: a u16 follows)   varint (value length × 2 + plain)
//!          [u8 kind  [u8 database × 16 + type]  [6 B expiry]  [4 B flags]  [u8 marks]  [u8 length, record]]   key
//!          [u8 n, n × { u32 locator, u16 length - 1 }]   value
//! piece:   u8 254   u16 length - 1   5 B first bits of the hash   that part of the value
//! ```
//! A zero byte where an object would begin ends the used part of a chunk.

use crate::{Arena, Chunks};
use paritas_base::{Stripe, database};

/// Largest value in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Longest key in bytes. With small chunks the limit is half a chunk instead.
pub const KEY_BYTES_MAX: usize = 8 << 10;
/// Longest record in bytes: its length is one byte.
pub const RECORD_BYTES_MAX: usize = 255;

/// First byte of a piece. Keys of this length or longer have their length in a u16.
const PIECE_MARK: u8 = 254;
const LONG_KEY: u8 = 255;
/// Bytes before a piece's payload.
pub(crate) const PIECE_HEAD_BYTES: usize = 8;
/// Bytes of a reference to a piece.
pub(crate) const PIECE_ENTRY_BYTES: usize = 6;

const KIND_EXPIRY: u8 = 1;
const KIND_FLAGS: u8 = 2;
const KIND_PIECES: u8 = 4;
const KIND_HASH: u8 = 8;
const KIND_RECORD: u8 = 16;
const KIND_MARKS: u8 = 64;
/// A byte follows: the type of the object in its low four bits, the database of the key in the others.
const KIND_SECOND: u8 = 128;
const KIND_ALL: u8 = 31 | KIND_MARKS | KIND_SECOND;

/// A value to store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Value<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Expiry in milliseconds since 1970 (48 bits).
    pub expiry_ms: Option<u64>,
    /// Flags of memcached's protocol.
    pub flags: Option<u32>,
    /// Marks of memcached's protocol; 0: it has none. The store only keeps them.
    pub marks: u8,
    /// Whether the bytes are a packed hash and not a string.
    pub hash_kind: bool,
    /// The record, without its length byte; empty if there is none. At most [`RECORD_BYTES_MAX`] bytes. The store never
    /// looks into it.
    pub record: &'a [u8],
}

impl Value<'_> {
    /// Whether it is longer than `small_max` bytes and has no parts yet. What has a record has parts: its bytes are its
    /// tail.
    pub fn lacks_parts(&self, small_max: usize) -> bool {
        self.record.is_empty() && self.bytes.len() > small_max
    }

    fn kind(&self, database: u8, in_pieces: bool) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(database > 0, KIND_SECOND)
            | bit(self.expiry_ms.is_some(), KIND_EXPIRY)
            | bit(self.flags.is_some(), KIND_FLAGS)
            | bit(self.marks > 0, KIND_MARKS)
            | bit(in_pieces, KIND_PIECES)
            | bit(self.hash_kind, KIND_HASH)
            | bit(!self.record.is_empty(), KIND_RECORD)
    }

    /// Bytes before the value, for an object of a key of this database and length with `further` pieces after its
    /// first.
    pub(crate) fn head_bytes(&self, database: u8, key_bytes: usize, further: usize) -> usize {
        let kind = self.kind(database, further > 0);
        let extra = usize::from(kind != 0)
            + usize::from(kind & KIND_SECOND != 0)
            + 6 * usize::from(kind & KIND_EXPIRY != 0)
            + 4 * usize::from(kind & KIND_FLAGS != 0)
            + usize::from(kind & KIND_MARKS != 0)
            + usize::from(kind & KIND_RECORD != 0)
            + self.record.len();
        let key_head = if key_bytes == 0 || key_bytes >= usize::from(PIECE_MARK) {
            3
        } else {
            1
        };
        let table = if further > 0 {
            1 + further * PIECE_ENTRY_BYTES
        } else {
            0
        };
        let length = ((self.bytes.len() as u64) << 1 | 1).ilog2() as usize / 7 + 1;
        key_head + length + extra + key_bytes + table
    }

    /// Appends all bytes before the value.
    pub(crate) fn encode_head(
        &self,
        database: u8,
        key: &[u8],
        further: impl ExactSizeIterator<Item = (u32, usize)>,
        out: &mut Vec<u8>,
    ) {
        if key.is_empty() || key.len() >= usize::from(PIECE_MARK) {
            out.push(LONG_KEY);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        } else {
            out.push(key.len() as u8);
        }
        let kind = self.kind(database, further.len() > 0);
        let mut length = (self.bytes.len() as u64) << 1 | u64::from(kind == 0);
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        if kind != 0 {
            out.push(kind);
        }
        if kind & KIND_SECOND != 0 {
            out.push(database::to_byte(database));
        }
        self.encode_extra(out);
        if !self.record.is_empty() {
            out.push(self.record.len() as u8);
            out.extend_from_slice(self.record);
        }
        out.extend_from_slice(key);
        if further.len() > 0 {
            out.push(further.len() as u8);
            for (locator, length) in further {
                out.extend_from_slice(&locator.to_le_bytes());
                out.extend_from_slice(&((length - 1) as u16).to_le_bytes());
            }
        }
    }

    /// Appends the first optional fields after the kind and the database: expiry, flags and marks.
    pub(crate) fn encode_extra(&self, out: &mut Vec<u8>) {
        if let Some(expiry) = self.expiry_ms {
            out.extend_from_slice(&expiry.to_le_bytes()[..6]);
        }
        if let Some(flags) = self.flags {
            out.extend_from_slice(&flags.to_le_bytes());
        }
        if self.marks > 0 {
            out.push(self.marks);
        }
    }
}

/// Appends the bytes before a piece's payload.
pub(crate) fn encode_piece_head(hash: u64, length: usize, out: &mut Vec<u8>) {
    out.push(PIECE_MARK);
    out.extend_from_slice(&((length - 1) as u16).to_le_bytes());
    out.extend_from_slice(&hash.to_be_bytes()[..5]);
}

/// What begins at a given offset of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Object(Head),
    /// A further piece: first bits of its object's hash, and length of its payload in bytes.
    Piece(u64, usize),
    /// The end of the used part.
    End,
}

/// The parts of an object, or of its first piece, as offsets into its chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub start: u32,
    kind: u8,
    database: u8,
    extra: u32,
    key: u32,
    key_length: u32,
    pub value_length: u32,
    /// Offset of the references to the further pieces.
    table: u32,
    pub further: u32,
    body: u32,
    pub end: u32,
}

/// Parses what begins at offset `at`. `None` if the bytes are malformed: the chunk is corrupt.
pub(crate) fn parse(chunk: &[u8], at: usize) -> Option<Item> {
    let Some(first) = chunk.get(at) else {
        return Some(Item::End);
    };
    match *first {
        0 => Some(Item::End),
        PIECE_MARK => {
            let head: &[u8; PIECE_HEAD_BYTES] = chunk.get(at..)?.first_chunk()?;
            let length = usize::from(u16::from_le_bytes([head[1], head[2]])) + 1;
            let hash = u64::from_be_bytes([head[3], head[4], head[5], head[6], head[7], 0, 0, 0]);
            (at + PIECE_HEAD_BYTES + length <= chunk.len()).then_some(Item::Piece(hash, length))
        }
        _ => parse_object(chunk, at).map(Item::Object),
    }
}

/// Parses the object that begins at offset `at`. `None` if the bytes are malformed.
#[inline]
pub(crate) fn parse_object(chunk: &[u8], at: usize) -> Option<Head> {
    let mut next = at;
    let mut byte = || {
        let byte = chunk.get(next).copied();
        next += 1;
        byte.map(usize::from)
    };
    let mut key_length = byte()?;
    if key_length == usize::from(LONG_KEY) {
        key_length = byte()? | byte()? << 8;
    } else if key_length == 0 || key_length == usize::from(PIECE_MARK) {
        return None;
    }
    let mut length = 0;
    for shift in [0, 7, 14] {
        let part = byte()?;
        length |= (part & 0x7f) << shift;
        if part & 0x80 == 0 {
            break;
        }
    }
    let kind = if length & 1 == 0 { byte()? as u8 } else { 0 };
    let value_length = length >> 1;
    let mut database = 0;
    let mut extra = next;
    let mut key = extra;
    if kind != 0 {
        if kind & !KIND_ALL != 0 {
            return None;
        }
        if kind & KIND_SECOND != 0 {
            database = database::of_byte(*chunk.get(extra)?)?;
            extra += 1;
        }
        key = record_offset(kind, extra);
        if kind & KIND_MARKS != 0 && *chunk.get(key - 1)? == 0 {
            return None;
        }
        if kind & KIND_RECORD != 0 {
            let record_length = usize::from(*chunk.get(key)?);
            if record_length == 0 {
                return None;
            }
            key += 1 + record_length;
        }
    }
    let table = key + key_length;
    let (mut body, mut body_length, mut further) = (table, value_length, 0);
    if kind & KIND_PIECES != 0 {
        further = usize::from(*chunk.get(table)?);
        body = table + 1 + further * PIECE_ENTRY_BYTES;
        for entry in chunk.get(table + 1..body)?.as_chunks().0 {
            body_length = body_length.checked_sub(reference(entry).1)?;
        }
    }
    let end = body + body_length;
    if end > chunk.len() || value_length > VALUE_BYTES_MAX {
        return None;
    }
    Some(Head {
        start: at as u32,
        kind,
        database,
        extra: extra as u32,
        key: key as u32,
        key_length: key_length as u32,
        value_length: value_length as u32,
        table: table as u32 + u32::from(further > 0),
        further: further as u32,
        body: body as u32,
        end: end as u32,
    })
}

/// Offset of what follows expiry, flags and marks, which begin at `extra`: the record's length byte, or the key.
#[inline]
fn record_offset(kind: u8, extra: usize) -> usize {
    extra
        + 6 * usize::from(kind & KIND_EXPIRY != 0)
        + 4 * usize::from(kind & KIND_FLAGS != 0)
        + usize::from(kind & KIND_MARKS != 0)
}

/// Locator and length of a further piece.
fn reference(entry: &[u8; PIECE_ENTRY_BYTES]) -> (u32, usize) {
    (
        u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
        usize::from(u16::from_le_bytes([entry[4], entry[5]])) + 1,
    )
}

impl Head {
    /// That of a value in one piece whose object begins at offset 0 and has `head_bytes` bytes before the value.
    pub(crate) fn of(value: &Value<'_>, database: u8, key_bytes: usize, head_bytes: usize) -> Self {
        let kind = value.kind(database, false);
        let key = head_bytes - key_bytes;
        let record = usize::from(!value.record.is_empty()) + value.record.len();
        let extra = key - record - record_offset(kind, 0);
        let end = (head_bytes + value.bytes.len()) as u32;
        Self {
            start: 0,
            kind,
            database,
            extra: extra as u32,
            key: key as u32,
            key_length: key_bytes as u32,
            value_length: value.bytes.len() as u32,
            table: head_bytes as u32,
            further: 0,
            body: head_bytes as u32,
            end,
        }
    }

    /// The same head for bytes that begin `by` bytes later.
    pub(crate) fn shifted(&self, by: u32) -> Self {
        Self {
            start: self.start - by,
            extra: self.extra - by,
            key: self.key - by,
            table: self.table - by,
            body: self.body - by,
            end: self.end - by,
            ..*self
        }
    }

    /// Bytes that the object takes in this chunk.
    pub(crate) fn bytes(&self) -> u32 {
        self.end - self.start
    }

    pub(crate) fn key<'a>(&self, chunk: &'a [u8]) -> &'a [u8] {
        &chunk[self.key as usize..][..self.key_length as usize]
    }

    /// The database of the key.
    pub(crate) const fn database(&self) -> u8 {
        self.database
    }

    /// The part of the value that is in this chunk.
    pub(crate) fn body<'a>(&self, chunk: &'a [u8]) -> &'a [u8] {
        &chunk[self.body as usize..self.end as usize]
    }

    /// Offset of the body in the chunk.
    pub(crate) fn body_offset(&self) -> usize {
        self.body as usize
    }

    /// Offset of expiry, flags and marks in the chunk.
    pub(crate) fn extra_offset(&self) -> usize {
        self.extra as usize
    }

    pub(crate) fn expiry_ms(&self, chunk: &[u8]) -> Option<u64> {
        if self.kind & KIND_EXPIRY == 0 {
            return None;
        }
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&chunk[self.extra as usize..][..6]);
        Some(u64::from_le_bytes(bytes))
    }

    pub(crate) fn flags(&self, chunk: &[u8]) -> Option<u32> {
        if self.kind & KIND_FLAGS == 0 {
            return None;
        }
        let at = self.extra as usize + 6 * usize::from(self.kind & KIND_EXPIRY != 0);
        chunk[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    pub(crate) fn marks(&self, chunk: &[u8]) -> u8 {
        match self.kind & KIND_MARKS {
            0 => 0,
            _ => chunk[record_offset(self.kind, self.extra as usize) - 1],
        }
    }

    pub(crate) fn is_hash(&self) -> bool {
        self.kind & KIND_HASH != 0
    }

    pub(crate) fn has_record(&self) -> bool {
        self.kind & KIND_RECORD != 0
    }

    pub(crate) fn record<'a>(&self, chunk: &'a [u8]) -> Option<&'a [u8]> {
        if !self.has_record() {
            return None;
        }
        let at = record_offset(self.kind, self.extra as usize) + 1;
        Some(&chunk[at..self.key as usize])
    }

    /// Bytes of key and value, as users count them.
    pub(crate) fn user_bytes(&self) -> u64 {
        u64::from(self.key_length) + u64::from(self.value_length)
    }

    pub(crate) fn has_expiry(&self) -> bool {
        self.kind & KIND_EXPIRY != 0
    }

    /// Locators and lengths of the further pieces.
    pub(crate) fn pieces<'a>(&self, chunk: &'a [u8]) -> impl ExactSizeIterator<Item = (u32, usize)> + 'a {
        let table = &chunk[self.table as usize..][..self.further as usize * PIECE_ENTRY_BYTES];
        table.as_chunks().0.iter().map(reference)
    }

    /// Offset of the reference to the `index`-th further piece.
    pub(crate) fn reference_offset(&self, index: usize) -> usize {
        self.table as usize + index * PIECE_ENTRY_BYTES
    }

    /// Whether encoding this value under the same key gives the same bytes except in expiry, flags, marks and value.
    /// Never with a record: a record enters and leaves the stream only with a whole object.
    pub(crate) fn same_form(&self, value: &Value<'_>) -> bool {
        self.value_length as usize == value.bytes.len()
            && self.kind & !KIND_PIECES == value.kind(self.database, false)
            && !self.has_record()
    }
}

/// An object found in a stream.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    pub(crate) chunks: &'a Chunks,
    pub(crate) arena: &'a Arena,
    pub(crate) chunk: &'a [u8],
    pub(crate) head: Head,
    pub(crate) offset_bits: u32,
}

impl<'a> Object<'a> {
    /// Its key.
    pub fn key(&self) -> &'a [u8] {
        self.head.key(self.chunk)
    }

    /// The database of its key.
    #[inline]
    pub fn database(&self) -> u8 {
        self.head.database
    }

    /// Length of its value in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty value needs no special treatment")]
    pub fn len(&self) -> usize {
        self.head.value_length as usize
    }

    /// Expiry in milliseconds since 1970. The caller compares it with the clock.
    pub fn expiry_ms(&self) -> Option<u64> {
        self.head.expiry_ms(self.chunk)
    }

    /// Flags of memcached's protocol.
    pub fn flags(&self) -> Option<u32> {
        self.head.flags(self.chunk)
    }

    /// Marks of memcached's protocol; 0: it has none.
    #[inline]
    pub fn marks(&self) -> u8 {
        self.head.marks(self.chunk)
    }

    /// Whether the value is a packed hash.
    pub fn is_hash(&self) -> bool {
        self.head.is_hash()
    }

    /// Whether it has a record.
    #[inline]
    pub fn has_record(&self) -> bool {
        self.head.has_record()
    }

    /// The record, without its length byte; `None` if it has none.
    pub fn record(&self) -> Option<&'a [u8]> {
        self.head.record(self.chunk)
    }

    /// Bytes that it takes in data chunks.
    pub fn stored_bytes(&self) -> usize {
        let further = self.head.pieces(self.chunk);
        further.map(|(_, length)| length + PIECE_HEAD_BYTES).sum::<usize>() + self.head.bytes() as usize
    }

    /// The value, if it is in one piece.
    pub fn whole(&self) -> Option<&'a [u8]> {
        (self.head.further == 0).then(|| self.head.body(self.chunk))
    }

    /// The parts of the value, in order.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + 'a {
        let (chunks, arena, bits) = (self.chunks, self.arena, self.offset_bits);
        let further = self.head.pieces(self.chunk).map(move |(locator, length)| {
            let stripe = Stripe::data(locator >> bits);
            let at = (locator & ((1 << bits) - 1)) as usize + PIECE_HEAD_BYTES;
            // All pieces were resident when the object was found, and the borrow keeps them resident. A damaged
            // reference gives an empty part.
            chunks
                .bytes(arena, stripe)
                .ok()
                .flatten()
                .and_then(|bytes| bytes.get(at..at + length))
                .unwrap_or_default()
        });
        core::iter::once(self.head.body(self.chunk)).chain(further)
    }

    /// Appends the value.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        match self.whole() {
            Some(bytes) => out.extend_from_slice(bytes),
            None => self.parts().for_each(|part| out.extend_from_slice(part)),
        }
    }
}

#[cfg(test)]
mod tests;
