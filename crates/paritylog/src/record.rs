//! A record on disk: a parity chunk, or a delta to one (`docs/formats/paritylog.md`).

use crate::extents::Extents;
use paritas_base::{ListId, Position, Reader, Stripe, Version};
use paritas_code::sum::crc32c;

const MAGIC: u32 = u32::from_le_bytes(*b"plog");
/// Bytes of a record before the versions.
pub(crate) const HEAD_BYTES: usize = 48;
const VERSION_BYTES: usize = 8;
const SUM_BYTES: usize = 4;
pub(crate) const EXTENT_BYTES: usize = 8;
/// Most bytes of a record besides the bytes that it changes.
const LONGEST_HEAD_BYTES: usize = HEAD_BYTES + 255 * (VERSION_BYTES + SUM_BYTES) + EXTENT_BYTES;
/// Upper limit of record numbers. A log continues after the numbers that it finds, so a higher one is an error.
const NUMBER_MAX: u64 = 1 << 62;

/// A parity chunk of a log node, which holds at most one parity position of a list; or a unit of a large value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The list.
    pub list: ListId,
    /// The stripe; of a unit, its number with [`Key::UNIT_BIT`].
    pub stripe: Stripe,
}

impl Key {
    /// Set in the keys of units of large values. No stripe has it on a disk.
    pub const UNIT_BIT: u32 = 1 << 28;

    /// The key of a unit with this number, less than [`Key::UNIT_BIT`].
    pub fn of_unit(list: ListId, number: u32) -> Self {
        debug_assert!(number < Self::UNIT_BIT);
        Self {
            list,
            stripe: Stripe(Self::UNIT_BIT | number),
        }
    }

    /// Whether it is the key of a unit of a large value.
    pub fn is_unit(self) -> bool {
        self.stripe.0 & !(Self::UNIT_BIT - 1) == Self::UNIT_BIT
    }
}

/// What a parity chunk stands for (P1.6): the version and the sum of each data chunk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Content {
    /// The versions (`vec`), one for each data position.
    pub versions: Box<[Version]>,
    /// The sums (`sum`), one for each data position.
    pub sums: Box<[u32]>,
}

/// The place of a record among those of its chunk, and in its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskLocation {
    /// A random number drawn when the log was made. It excludes records of an older log on the same disk.
    pub log: u32,
    /// Number of the record. It grows by one with every record of the log.
    pub number: u64,
    /// Number of the preceding record of this chunk; 0 for a whole chunk.
    pub before: u64,
}

/// A record as read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The chunk.
    pub key: Key,
    /// The parity position, which determines the coefficients.
    pub position: Position,
    /// The place among the records.
    pub place: DiskLocation,
    /// Whether it is the chunk itself, and not a delta to it.
    pub whole: bool,
    /// What the chunk stands for after this record is applied.
    pub content: Content,
    /// The bytes to be XORed into the chunk.
    pub extents: Extents,
}

/// Number of bytes of a record.
pub fn record_bytes(data: usize, extents: &Extents) -> usize {
    HEAD_BYTES + data * (VERSION_BYTES + SUM_BYTES) + extents.iter().len() * EXTENT_BYTES + extents.bytes()
}

impl Record {
    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let length = record_bytes(self.content.versions.len(), &self.extents);
        let word = |out: &mut Vec<u8>, value: usize| out.extend_from_slice(&(value as u32).to_le_bytes());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        word(out, 0);
        word(out, length);
        out.extend_from_slice(&[
            u8::from(self.whole),
            self.position.0,
            self.content.versions.len() as u8,
            0,
        ]);
        word(out, usize::from(self.key.list.0));
        out.extend_from_slice(&self.key.stripe.0.to_le_bytes());
        out.extend_from_slice(&self.place.number.to_le_bytes());
        out.extend_from_slice(&self.place.before.to_le_bytes());
        word(out, self.extents.iter().len());
        out.extend_from_slice(&self.place.log.to_le_bytes());
        for version in &self.content.versions {
            out.extend_from_slice(&version.0.to_le_bytes());
        }
        for sum in &self.content.sums {
            out.extend_from_slice(&sum.to_le_bytes());
        }
        for (offset, bytes) in self.extents.iter() {
            word(out, offset);
            word(out, bytes.len());
        }
        for (_, bytes) in self.extents.iter() {
            out.extend_from_slice(bytes);
        }
        debug_assert_eq!(out.len() - start, length);
        if let Some(record) = out.get_mut(start..)
            && let Some((head, rest)) = record.split_at_mut_checked(8)
            && let Some(crc) = head.get_mut(4..)
        {
            crc.copy_from_slice(&crc32c(rest).to_le_bytes());
        }
    }

    /// Parses the record at the start of `bytes`. Returns it and its length; `None` if there is no complete, undamaged
    /// record.
    pub fn parse(bytes: &[u8], chunk_bytes: usize) -> Option<(Self, usize)> {
        let mut read = Reader(bytes);
        if read.u32()? != MAGIC {
            return None;
        }
        let crc = read.u32()?;
        let length = read.u32()? as usize;
        if length > LONGEST_HEAD_BYTES + chunk_bytes {
            return None;
        }
        if crc32c(bytes.get(8..length)?) != crc {
            return None;
        }
        // The checksum was right, so an inconsistency from here on is an error of the writer. It is refused all the
        // same.
        let mut read = Reader(bytes.get(12..length)?);
        let [whole, position, data, _] = read.array()?;
        let (list, stripe) = (read.u32()?, read.u32()?);
        let (number, before) = (read.u64()?, read.u64()?);
        if number > NUMBER_MAX {
            return None;
        }
        let (count, log) = (read.u32()? as usize, read.u32()?);
        let data = usize::from(data);
        let content = Content {
            versions: (0..data).map(|_| read.u64().map(Version)).collect::<Option<_>>()?,
            sums: (0..data).map(|_| read.u32()).collect::<Option<_>>()?,
        };
        if count > read.0.len() / EXTENT_BYTES {
            return None;
        }
        let places: Vec<(usize, usize)> = (0..count)
            .map(|_| Some((read.u32()? as usize, read.u32()? as usize)))
            .collect::<Option<_>>()?;
        let mut extents = Extents::default();
        for (offset, length) in places {
            let bytes = read.bytes(length)?;
            if offset.checked_add(length)? > chunk_bytes {
                return None;
            }
            extents.fold(offset, bytes);
        }
        let record = Self {
            key: Key {
                list: ListId(list.try_into().ok()?),
                stripe: Stripe(stripe),
            },
            position: Position(position),
            place: DiskLocation { log, number, before },
            whole: whole == 1,
            content,
            extents,
        };
        Some((record, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mut extents = Extents::default();
        extents.fold(8, &[1, 2, 3]);
        extents.fold(100, &[4; 20]);
        Record {
            key: Key {
                list: ListId(7),
                stripe: Stripe(9),
            },
            position: Position(5),
            place: DiskLocation {
                log: 11,
                number: 13,
                before: 12,
            },
            whole: false,
            content: Content {
                versions: Box::new([Version(1 << 44 | 3), Version::ZERO]),
                sums: Box::new([17, 0]),
            },
            extents,
        }
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        record().encode(&mut bytes);
        assert_eq!(bytes.len(), record_bytes(2, &record().extents));
        let head: String = bytes.iter().take(HEAD_BYTES).map(|b| format!("{b:02x}")).collect();
        let golden = concat!(
            "706c6f67",
            "CRC_____",
            "6f000000",
            "00050200",
            "07000000",
            "09000000",
            "0d00000000000000",
            "0c00000000000000",
            "02000000",
            "0b000000"
        );
        assert_eq!(head[..8], golden[..8]);
        assert_eq!(head[16..], golden[16..]);
    }

    #[test]
    fn what_was_written_comes_back_and_nothing_else_does() {
        let mut bytes = Vec::new();
        record().encode(&mut bytes);
        let length = bytes.len();
        bytes.extend_from_slice(&[0; 9]);
        assert_eq!(Record::parse(&bytes, 128), Some((record(), length)));
        assert_eq!(
            Record::parse(&bytes, 119),
            None,
            "an extent outside the chunk was accepted"
        );
        for cut in 0..length {
            assert_eq!(Record::parse(&bytes[..cut], 128), None, "cut at {cut}");
        }
        for at in 0..length {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x20;
            assert_eq!(Record::parse(&wrong, 128), None, "changed at {at}");
        }
    }
}
