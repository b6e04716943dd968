//! `Record`: what the object of a large value says about its parts (`docs/formats/large.md`).

use crate::class::BLOCKS_MAX;
use crate::{Class, Content, Group, Layout, Part, Placement, PlacementError};
use paritas_base::Term;

/// The name of a group of parts: unique within its stream for ever. Term of the owner that made it (20 bits), and the
/// number of the group in that term, from 1 (44 bits). Ids of one stream grow with time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(u64);

impl GroupId {
    const NUMBER_BITS: u32 = 44;

    /// The id of a group. `None` if the number is 0 or does not fit.
    pub fn new(term: Term, number: u64) -> Option<Self> {
        let fits = u64::from(term) >> (64 - Self::NUMBER_BITS) == 0 && number > 0 && number >> Self::NUMBER_BITS == 0;
        fits.then_some(Self(u64::from(term) << Self::NUMBER_BITS | number))
    }

    /// The id with these bits. `None` for 0, which names no group.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits & ((1 << Self::NUMBER_BITS) - 1) > 0).then_some(Self(bits))
    }

    /// The newest id of a term in which `issued` ids were given out. With none it is above all ids of earlier terms,
    /// and names no group.
    pub fn newest(term: Term, issued: u64) -> Self {
        Self(u64::from(term) << Self::NUMBER_BITS | issued)
    }

    /// The last id of a page, from its bits. Unlike [`Self::from_bits`] it may name no group (see [`Self::newest`]).
    pub fn limit(bits: u64) -> Self {
        Self(bits)
    }

    /// The id as a number.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The term of the owner that made the group.
    pub fn term(self) -> Term {
        (self.0 >> Self::NUMBER_BITS) as Term
    }
}

/// The name of a part within its stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartName {
    /// The group that it belongs to.
    pub group: GroupId,
    /// Its number in the group.
    pub number: u8,
}

/// Longest record, its length byte included.
pub const RECORD_BYTES_MAX: usize = 1 + FIXED_BYTES + 4 * BLOCKS_MAX as usize;

const _: () = assert!(RECORD_BYTES_MAX <= 256, "the length of a record is one byte");

/// Bytes before the checks, without the length byte.
const FIXED_BYTES: usize = 4 + 6 + 16;

const REP: u8 = 0;
const EC: u8 = 1;
const EOR: u8 = 2;

/// Where the parts of a large value are, and what their checks are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its redundancy.
    pub class: Class,
    /// Position of data block 0 in the stripe list.
    pub first: u8,
    /// Number of parity blocks on log nodes.
    pub logged: u8,
    /// Length of the body in bytes.
    pub body_bytes: u64,
    /// The group of copies or data blocks.
    pub data_group: GroupId,
    /// The other group, if the class has one.
    pub other_group: Option<GroupId>,
    /// The check of each different block (see [`Record::checks_of`]).
    pub checks: Vec<u32>,
}

impl Record {
    /// Number of checks that a record of this class has. `ec`: of each data block, then of each parity block. `eor`:
    /// of each data block, then of the whole copy. `rep`: of the copies.
    pub fn checks_of(class: Class) -> usize {
        match class {
            Class::Rep { .. } => 1,
            Class::Ec { data, parity } => usize::from(data) + usize::from(parity),
            Class::Eor { data, .. } => usize::from(data) + 1,
        }
    }

    /// Its groups: one or two.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        core::iter::once(self.data_group).chain(self.other_group)
    }

    /// The group that a part of this value belongs to.
    pub fn group_of(&self, part: &Part) -> GroupId {
        match part.group {
            Group::Data => self.data_group,
            Group::Other => self.other_group.unwrap_or(self.data_group),
        }
    }

    /// The name of a part of this value.
    pub fn name_of(&self, part: &Part) -> PartName {
        PartName {
            group: self.group_of(part),
            number: part.number,
        }
    }

    /// Whether a client may send its parts to the holders itself (P14.18).
    pub fn may_be_by_client(&self) -> bool {
        matches!(self.class, Class::Rep { .. } | Class::Ec { .. }) && self.logged == 0
    }

    /// The check of a part of this value.
    pub fn check_of(&self, part: &Part) -> u32 {
        self.checks.get(self.check_index(part)).copied().unwrap_or_default()
    }

    /// Which of the checks is that of this part.
    pub(crate) fn check_index(&self, part: &Part) -> usize {
        let data = usize::from(self.class.data());
        match (self.class, part.content) {
            (Class::Rep { .. }, _) => 0,
            (_, Content::Block(i)) => usize::from(i),
            (_, Content::Parity(j)) => data + usize::from(j),
            (_, Content::Whole) => data,
        }
    }

    /// How the body is cut. `None` if the record is not one that [`Self::decode`] accepts.
    pub fn layout(&self, unit_bytes: u32) -> Option<Layout> {
        Layout::of_body(self.body_bytes, self.class.data(), unit_bytes)
    }

    /// The same for a writer, who is told what is wrong.
    pub(crate) fn cut(&self, unit_bytes: u32) -> Result<Layout, PlacementError> {
        self.layout(unit_bytes).ok_or(PlacementError::NoSuchPosition {
            first: self.first,
            logged: self.logged,
        })
    }

    /// Where the parts are, in a stripe list with `positions` positions in memory.
    pub fn placement(&self, positions: u8) -> Result<Placement, PlacementError> {
        Placement::at(self.class, self.first, positions, self.logged)
    }

    /// Appends the record's bytes.
    ///
    /// # Panics
    /// If the number of checks is not that of the class, or the body is 2⁴⁸ bytes or more.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert_eq!(
            self.checks.len(),
            Self::checks_of(self.class),
            "one check for each block"
        );
        assert!(self.class.check().is_ok() && self.body_bytes >> 48 == 0 && self.logged < 16);
        out.push((FIXED_BYTES + 4 * self.checks.len()) as u8);
        let (class, one, other) = match self.class {
            Class::Rep { copies } => (REP, copies, 0),
            Class::Ec { data, parity } => (EC, data, parity),
            Class::Eor { copies, data } => (EOR, data, copies),
        };
        out.extend_from_slice(&[class | self.logged << 4, one, other, self.first]);
        out.extend_from_slice(&self.body_bytes.to_le_bytes()[..6]);
        out.extend_from_slice(&self.data_group.bits().to_le_bytes());
        let other_group = self.other_group.map_or(0, GroupId::bits);
        out.extend_from_slice(&other_group.to_le_bytes());
        for check in &self.checks {
            out.extend_from_slice(&check.to_le_bytes());
        }
    }

    /// Reads a record, and returns it with the number of its bytes. `None` if these bytes are no record.
    pub fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (&length, rest) = bytes.split_first()?;
        let rest = rest.get(..usize::from(length))?;
        let (fixed, checks) = rest.split_first_chunk::<FIXED_BYTES>()?;
        let class = match (fixed[0] & 15, fixed[1], fixed[2]) {
            (REP, copies, 0) => Class::Rep { copies },
            (EC, data, parity) => Class::Ec { data, parity },
            (EOR, data, copies) => Class::Eor { copies, data },
            _ => return None,
        };
        class.check().ok()?;
        let number = |at: usize, count: usize| {
            let mut bytes = [0; 8];
            bytes[..count].copy_from_slice(&fixed[at..at + count]);
            u64::from_le_bytes(bytes)
        };
        let (checks, uneven) = checks.as_chunks::<4>();
        let record = Self {
            class,
            first: fixed[3],
            logged: fixed[0] >> 4,
            body_bytes: number(4, 6),
            data_group: GroupId::from_bits(number(10, 8))?,
            other_group: GroupId::from_bits(number(18, 8)),
            checks: checks.iter().map(|check| u32::from_le_bytes(*check)).collect(),
        };
        let has_other = !matches!(class, Class::Rep { .. });
        let is_one = uneven.is_empty()
            && record.checks.len() == Self::checks_of(class)
            && record.body_bytes > 0
            && record.logged <= class.parity().saturating_sub(1)
            && record.other_group.is_some() == has_other;
        is_one.then_some((record, 1 + usize::from(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Record {
        Record {
            class: Class::Ec { data: 4, parity: 2 },
            first: 3,
            logged: 1,
            body_bytes: 0x0102_0304_0506,
            data_group: GroupId::new(7, 9).expect("an id"),
            other_group: GroupId::new(7, 10),
            checks: (1..=6).collect(),
        }
    }

    #[test]
    fn bytes_are_as_documented() {
        let mut bytes = Vec::new();
        example().encode(&mut bytes);
        let page = include_str!("../../../docs/formats/large.md");
        let (_, example_of_page) = page.split_once("```text\n").expect("the page has an example");
        let (hex, _) = example_of_page.split_once("```").expect("the example ends");
        let golden: Vec<u8> = hex
            .split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
            .collect();
        assert_eq!(bytes, golden);
        assert_eq!(bytes.len(), 51);
        assert_eq!(Record::decode(&bytes), Some((example(), 51)));
    }

    #[test]
    fn ids_of_a_later_term_are_greater() {
        let (old, new) = (GroupId::new(3, 1 << 40), GroupId::new(4, 1));
        assert!(old < new);
        assert_eq!(new.map(GroupId::term), Some(4));
        assert_eq!((GroupId::new(1 << 20, 1), GroupId::new(1, 0)), (None, None));
        assert_eq!((GroupId::new(1, 1 << 44), GroupId::from_bits(0)), (None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_that_encodes_to_them_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some((record, used)) = Record::decode(&bytes) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..used]);
            }
        }

        #[test]
        fn a_changed_byte_never_panics_and_a_cut_is_none(at in 0usize..51, value in any::<u8>()) {
            let mut bytes = Vec::new();
            example().encode(&mut bytes);
            prop_assert_eq!(Record::decode(&bytes[..at]), None);
            bytes[at] = value;
            if let Some((record, _)) = Record::decode(&bytes) {
                let _ = record.layout(16 << 10);
                let _ = record.placement(6);
            }
        }
    }
}
