//! Sequences within frames. They are built by appending, and borrowed from the frame and decoded on demand when read.

use super::message::Message;
use super::read::{Write, tenure};
use paritas_base::Reader;
use paritas_base::configuration::Tenure;
use paritas_base::{Epoch, ListId, Position, StreamId, Stripe, Term, Version};

/// One delta of a [`Deltas`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeltaRecord<'a> {
    /// The term in which the delta was issued.
    pub term: Term,
    /// Its sequence number in the stream.
    pub seq: u64,
    /// Its extents, encoded.
    pub extents: &'a [u8],
}

/// A sequence of deltas, each length, term and seq, as numbers of variable length, and extents. The framing has been
/// checked, the extents have not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deltas<'a>(pub(super) &'a [u8]);

impl<'a> Deltas<'a> {
    /// No deltas.
    pub const EMPTY: Self = Self(&[]);

    /// Reads bytes written by [`Self::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Appends one delta to bytes being built.
    pub fn push(to: &mut Vec<u8>, term: Term, seq: u64, extents: &[u8]) {
        to.varint(extents.len() as u64);
        to.varint(u64::from(term));
        to.varint(seq);
        to.extend_from_slice(extents);
    }

    /// The deltas in order.
    pub fn iter(&self) -> impl Iterator<Item = DeltaRecord<'a>> + use<'a> {
        let mut r = Reader(self.0);
        core::iter::from_fn(move || Self::next(&mut r))
    }

    fn next(r: &mut Reader<'a>) -> Option<DeltaRecord<'a>> {
        let (length, term, seq) = (r.varint_u32()? as usize, r.varint_u32()?, r.varint()?);
        Some(DeltaRecord {
            term,
            seq,
            extents: r.bytes(length)?,
        })
    }

    pub(super) fn check(bytes: &'a [u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        while !r.0.is_empty() {
            Self::next(&mut r)?;
        }
        Some(Self(bytes))
    }
}

/// A sequence of versions, eight bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions<'a>(pub(super) &'a [u8]);

impl<'a> Versions<'a> {
    /// Reads bytes written by [`Self::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Appends one version to bytes being built.
    pub fn push(to: &mut Vec<u8>, version: Version) {
        to.u64(version.0);
    }
    /// Number of versions.
    pub fn count(&self) -> usize {
        self.0.len() / 8
    }
    /// The versions in order.
    pub fn iter(&self) -> impl Iterator<Item = Version> + use<'a> {
        self.0
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| Version(u64::from_le_bytes(*b)))
    }
}

/// A stream for which a lease is requested or granted, and the fence that both sides check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseEntry {
    /// The stream.
    pub stream: StreamId,
    /// The epoch of the sender's configuration.
    pub epoch: Epoch,
    /// Its owner's term.
    pub term: Term,
    /// Number up to which the stream is stable. It replaces a lost `Stable` while no other frames are sent.
    pub stable: u64,
}

/// A sequence of [`LeaseEntry`], each list, x (one byte), epoch, term and stable. All but x are of variable length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leases<'a>(pub(super) &'a [u8]);

impl<'a> Leases<'a> {
    /// Reads bytes written by [`Self::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Appends one entry to bytes being built.
    pub fn push(to: &mut Vec<u8>, entry: &LeaseEntry) {
        to.varint(u64::from(entry.stream.list.0));
        to.u8(entry.stream.x.0);
        to.varint(u64::from(entry.epoch.0));
        to.varint(u64::from(entry.term));
        to.varint(entry.stable);
    }
    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = LeaseEntry> + use<'a> {
        let mut r = Reader(self.0);
        core::iter::from_fn(move || Self::next(&mut r))
    }

    fn next(r: &mut Reader<'a>) -> Option<LeaseEntry> {
        let stream = StreamId {
            list: ListId(r.varint()?.try_into().ok()?),
            x: Position(r.u8()?),
        };
        Some(LeaseEntry {
            stream,
            epoch: Epoch(r.varint_u32()?),
            term: r.varint_u32()?,
            stable: r.varint()?,
        })
    }

    pub(super) fn check(bytes: &'a [u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        while !r.0.is_empty() {
            Self::next(&mut r)?;
        }
        Some(Self(bytes))
    }
}

/// A lease that a member has granted and that has not expired (P5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRecord {
    /// Its holder.
    pub holder: Tenure,
    /// Remaining time of the lease, in ns.
    pub remaining_ns: u64,
}

impl LeaseRecord {
    pub(super) const BYTES: usize = 22;

    /// Appends one record to bytes being built.
    pub fn push(&self, to: &mut Vec<u8>) {
        to.tenure(&self.holder);
        to.u64(self.remaining_ns);
    }

    /// Reads records written by [`Self::push`], in order.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = Self> + use<'_> {
        let mut r = Reader(bytes);
        core::iter::from_fn(move || {
            Some(Self {
                holder: tenure(&mut r)?,
                remaining_ns: r.u64()?,
            })
        })
    }
}

/// Bits of an object's form.
const FORM_EXPIRY: u8 = 1;
const FORM_FLAGS: u8 = 2;
const FORM_HASH: u8 = 8;
const FORM_RECORD: u8 = 16;
const FORM_SECOND: u8 = 128;
const FORM_ALL: u8 = FORM_EXPIRY | FORM_FLAGS | FORM_HASH | FORM_RECORD | FORM_SECOND;

/// One object of an [`Objects`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectRecord<'a> {
    /// The database of its key, 0 to 15.
    pub database: u8,
    /// Its key.
    pub key: &'a [u8],
    /// Its value; the tail of a large value.
    pub value: &'a [u8],
    /// The record of a large value at the sender, without the length byte; empty if it has none.
    pub record: &'a [u8],
    /// Expiry in ms since 1970.
    pub expiry_ms: Option<u64>,
    /// Flags of memcached's protocol.
    pub flags: Option<u32>,
    /// Whether the value is a packed hash.
    pub hash_kind: bool,
}

/// A sequence of whole objects, each key length, value length, `u8 form, [u8 database × 16], [u64 expiry],
/// [u32 flags], [u8 record length, record], key, value`. `form` has the bits of an object's kind
/// (`docs/formats/object.md`), except that of pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Objects<'a>(pub(super) &'a [u8]);

impl<'a> Objects<'a> {
    /// No objects.
    pub const EMPTY: Self = Self(&[]);

    /// Reads bytes written by [`Self::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Appends one object to bytes being built.
    pub fn push(to: &mut Vec<u8>, object: &ObjectRecord<'_>) {
        to.varint(object.key.len() as u64);
        to.varint(object.value.len() as u64);
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        to.u8(bit(object.expiry_ms.is_some(), FORM_EXPIRY)
            | bit(object.flags.is_some(), FORM_FLAGS)
            | bit(object.hash_kind, FORM_HASH)
            | bit(!object.record.is_empty(), FORM_RECORD)
            | bit(object.database > 0, FORM_SECOND));
        if object.database > 0 {
            to.u8(object.database << 4);
        }
        object.expiry_ms.iter().for_each(|at| to.u64(*at));
        object.flags.iter().for_each(|flags| to.u32(*flags));
        if !object.record.is_empty() {
            to.u8(object.record.len() as u8);
            to.extend_from_slice(object.record);
        }
        to.extend_from_slice(object.key);
        to.extend_from_slice(object.value);
    }

    /// The first object, and the rest of the sequence.
    pub fn split_first(&self) -> Option<(ObjectRecord<'a>, Self)> {
        let mut r = Reader(self.0);
        let (key, value, form) = (
            usize::from(u16::try_from(r.varint()?).ok()?),
            r.varint_u32()? as usize,
            r.u8()?,
        );
        if form & !FORM_ALL != 0 {
            return None;
        }
        let database = match form & FORM_SECOND {
            0 => 0,
            // As in an object: only strings are known, and database 0 has no such byte.
            _ => Some(r.u8()?).filter(|byte| byte & 0xf == 0 && *byte > 0)? >> 4,
        };
        let expiry_ms = if form & FORM_EXPIRY != 0 { Some(r.u64()?) } else { None };
        let flags = if form & FORM_FLAGS != 0 { Some(r.u32()?) } else { None };
        let record = match form & FORM_RECORD {
            0 => &[],
            _ => {
                let length = Some(r.u8()?).filter(|length| *length > 0)?;
                r.bytes(usize::from(length))?
            }
        };
        let object = ObjectRecord {
            database,
            key: r.bytes(key)?,
            value: r.bytes(value)?,
            record,
            expiry_ms,
            flags,
            hash_kind: form & FORM_HASH != 0,
        };
        Some((object, Self(r.0)))
    }

    pub(super) fn check(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Self(bytes);
        while !rest.0.is_empty() {
            (_, rest) = rest.split_first()?;
        }
        Some(Self(bytes))
    }

    /// Of objects that were refused: the bits of the first refused one that this version does not know.
    pub(super) fn unknown_bits(bytes: &'a [u8]) -> Option<u8> {
        let mut rest = Self(bytes);
        while let Some((_, after)) = rest.split_first() {
            rest = after;
        }
        let mut r = Reader(rest.0);
        // Lengths of key and value.
        r.varint()?;
        r.varint()?;
        Some(r.u8()? & !FORM_ALL).filter(|bits| *bits != 0)
    }
}

/// Bytes of one entry of a [`Message::Directory`] or [`Message::Alloc`].
pub(super) const DIRECTORY_ENTRY_BYTES: usize = 12;

/// Reading and writing of those entries.
impl Message<'_> {
    /// Appends one entry to bytes being built.
    pub fn push_directory_entry(to: &mut Vec<u8>, stripe: Stripe, version: Version) {
        to.u32(stripe.0);
        to.u64(version.0);
    }

    /// The entries, except those whose stripe id is not valid.
    pub fn directory_entries(bytes: &[u8]) -> impl Iterator<Item = (Stripe, Version)> + use<'_> {
        let mut r = Reader(bytes);
        core::iter::from_fn(move || Some((Stripe(r.u32()?), Version(r.u64()?)))).filter(|(s, _)| s.is_valid())
    }
}

/// The name of a part of a large value: a group of parts of the stream, and a number in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartName {
    /// The group's id.
    pub group: u64,
    /// The part's number.
    pub number: u8,
}

impl PartName {
    pub(super) fn encode(self, to: &mut Vec<u8>) {
        to.u64(self.group);
        to.u8(self.number);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            group: r.u64()?,
            number: r.u8()?,
        })
    }
}

/// Ids of groups of parts, eight bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups<'a>(pub(super) &'a [u8]);

impl<'a> Groups<'a> {
    /// The most ids in one message. A frame with more is refused.
    pub const COUNT_MAX: usize = 1024;

    /// Reads bytes written by [`Self::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Appends one id to bytes being built.
    pub fn push(to: &mut Vec<u8>, group: u64) {
        to.u64(group);
    }

    /// The ids in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.0.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id))
    }

    pub(super) fn check(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len().is_multiple_of(8) && bytes.len() <= 8 * Self::COUNT_MAX).then_some(Self(bytes))
    }
}

/// Groups of parts that are alive, each `u64 id, u8 staged, record`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AliveGroups<'a>(pub(super) &'a [u8]);

impl<'a> AliveGroups<'a> {
    /// The most groups in one page (P14.6). A frame with more is refused.
    pub const COUNT_MAX: usize = 256;

    /// Reads bytes written by [`Self::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Appends one group to bytes being built. `record` begins with its length.
    pub fn push(to: &mut Vec<u8>, group: u64, is_staging: bool, record: &[u8]) {
        to.u64(group);
        to.u8(u8::from(is_staging));
        to.extend_from_slice(record);
    }

    /// Id, whether it is being staged, and record of each group in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, bool, &'a [u8])> + use<'a> {
        let mut r = Reader(self.0);
        core::iter::from_fn(move || Self::next(&mut r))
    }

    fn next(r: &mut Reader<'a>) -> Option<(u64, bool, &'a [u8])> {
        let (group, staged) = (r.u64()?, r.u8()?);
        let length = 1 + usize::from(*r.0.first()?);
        (staged < 2).then_some((group, staged == 1, r.bytes(length)?))
    }

    pub(super) fn check(bytes: &'a [u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        for _ in 0..Self::COUNT_MAX {
            if r.0.is_empty() {
                break;
            }
            Self::next(&mut r)?;
        }
        r.0.is_empty().then_some(Self(bytes))
    }
}
