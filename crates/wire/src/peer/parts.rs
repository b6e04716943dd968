//! Sequences within frames. They are built by appending, and borrowed from the frame and decoded on demand when read.

use super::field::{Field, Num, fields};
use super::message::Message;
use paritas_base::configuration::Tenure;
use paritas_base::database;
use paritas_base::{Epoch, Reader, StreamId, Stripe, Term, Version};

/// What fills a frame: entries that are read and checked one after the other.
macro_rules! runs {
    ($($type:ident)*) => { $(
        impl<'a> Field<'a> for $type<'a> {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(self.0);
            }

            fn read(r: &mut Reader<'a>) -> Option<Self> {
                Self::check(r.rest())
            }
        }
    )* };
}
runs!(AliveGroups Deltas Groups Leases Objects);

/// Entries in order, up to one that is malformed.
fn each<'a, T: Field<'a>>(bytes: &'a [u8]) -> impl Iterator<Item = T> + use<'a, T> {
    let mut r = Reader(bytes);
    core::iter::from_fn(move || T::read(&mut r))
}

/// The bytes, if they are whole entries and nothing else.
fn whole<'a, T: Field<'a>>(bytes: &'a [u8]) -> Option<&'a [u8]> {
    let mut r = Reader(bytes);
    while !r.0.is_empty() {
        T::read(&mut r)?;
    }
    Some(bytes)
}

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
        DeltaRecord { term, seq, extents }.write(to);
    }

    /// The deltas in order.
    pub fn iter(&self) -> impl Iterator<Item = DeltaRecord<'a>> + use<'a> {
        each(self.0)
    }

    fn check(bytes: &'a [u8]) -> Option<Self> {
        whole::<DeltaRecord<'_>>(bytes).map(Self)
    }
}

impl<'a> Field<'a> for DeltaRecord<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        Num(self.extents.len() as u64).write(to);
        Num(self.term).write(to);
        Num(self.seq).write(to);
        to.extend_from_slice(self.extents);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        let (length, term, seq) = (r.varint_u32()? as usize, r.varint_u32()?, r.varint()?);
        let extents = r.bytes(length)?;
        Some(Self { term, seq, extents })
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
        version.write(to);
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

/// After their number.
impl<'a> Field<'a> for Versions<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(self.count() as u8);
        to.extend_from_slice(self.0);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        let count = usize::from(r.u8()?);
        r.bytes(count * 8).map(Self)
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

fields!(LeaseEntry { stream, epoch as Num, term as Num, stable as Num });

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
        entry.write(to);
    }
    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = LeaseEntry> + use<'a> {
        each(self.0)
    }

    fn check(bytes: &'a [u8]) -> Option<Self> {
        whole::<LeaseEntry>(bytes).map(Self)
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
        self.write(to);
    }

    /// Reads records written by [`Self::push`], in order.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = Self> + use<'_> {
        each(bytes)
    }
}

fields!(LeaseRecord { holder, remaining_ns });

/// Bits of an object's form.
const FORM_EXPIRY: u8 = 1;
const FORM_FLAGS: u8 = 2;
const FORM_HASH: u8 = 8;
const FORM_RECORD: u8 = 16;
const FORM_MARKS: u8 = 64;
const FORM_SECOND: u8 = 128;
const FORM_ALL: u8 = FORM_EXPIRY | FORM_FLAGS | FORM_HASH | FORM_RECORD | FORM_MARKS | FORM_SECOND;

/// One object of an [`Objects`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectRecord<'a> {
    /// The database of its key, 0 to 16.
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
    /// Marks of memcached's protocol; 0: it has none.
    pub marks: u8,
    /// Whether the value is a packed hash.
    pub hash_kind: bool,
}

/// A sequence of whole objects, each key length, value length, `u8 form, [u8 type and database], [u64 expiry],
/// [u32 flags], [u8 marks], [u8 record length, record], key, value`. `form` has the bits of an object's kind
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
        Num(object.key.len() as u64).write(to);
        Num(object.value.len() as u64).write(to);
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        to.push(
            bit(object.expiry_ms.is_some(), FORM_EXPIRY)
                | bit(object.flags.is_some(), FORM_FLAGS)
                | bit(object.marks > 0, FORM_MARKS)
                | bit(object.hash_kind, FORM_HASH)
                | bit(!object.record.is_empty(), FORM_RECORD)
                | bit(object.database > 0, FORM_SECOND),
        );
        if object.database > 0 {
            to.push(database::to_byte(object.database));
        }
        object.expiry_ms.iter().for_each(|at| at.write(to));
        object.flags.iter().for_each(|flags| flags.write(to));
        if object.marks > 0 {
            to.push(object.marks);
        }
        if !object.record.is_empty() {
            to.push(object.record.len() as u8);
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
            _ => database::of_byte(r.u8()?)?,
        };
        let expiry_ms = if form & FORM_EXPIRY != 0 { Some(r.u64()?) } else { None };
        let flags = if form & FORM_FLAGS != 0 { Some(r.u32()?) } else { None };
        let marks = match form & FORM_MARKS {
            0 => 0,
            _ => Some(r.u8()?).filter(|marks| *marks > 0)?,
        };
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
            marks,
            hash_kind: form & FORM_HASH != 0,
        };
        Some((object, Self(r.0)))
    }

    fn check(bytes: &'a [u8]) -> Option<Self> {
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
        stripe.write(to);
        version.write(to);
    }

    /// The entries, except those whose stripe id is not valid.
    pub fn directory_entries(bytes: &[u8]) -> impl Iterator<Item = (Stripe, Version)> + use<'_> {
        let mut r = Reader(bytes);
        core::iter::from_fn(move || Some((Stripe(r.u32()?), Version(r.u64()?)))).filter(|(s, _)| s.is_valid())
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
        group.write(to);
    }

    /// The ids in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.0.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id))
    }

    fn check(bytes: &'a [u8]) -> Option<Self> {
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
        group.write(to);
        to.push(u8::from(is_staging));
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

    fn check(bytes: &'a [u8]) -> Option<Self> {
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
