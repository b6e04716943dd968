//! Types of single fields.

use super::field::{Field, Num, codes, fields};
use super::parts::Versions;
use paritas_base::{ClusterId, Incarnation, NodeId, PartState, Reader, Term};

/// The first frame on a link, sent by both ends (P2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The sender's cluster.
    pub cluster: ClusterId,
    /// The sender's node id.
    pub node: NodeId,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The node that the sender wants to reach.
    pub to_node: NodeId,
    /// The incarnation that the sender wants to reach.
    pub to_incarnation: Incarnation,
    /// Whether the link is for bulk transfers of chunks.
    pub bulk: bool,
    /// The lowest protocol version that the sender speaks.
    pub version_low: u16,
    /// The highest protocol version that the sender speaks.
    pub version_high: u16,
    /// Feature bits. Unknown ones are ignored.
    pub features: u64,
    /// Number of the link. It grows with every link that this dialer makes to this node; the acceptor repeats it.
    pub session: u64,
}

fields!(Hello {
    cluster,
    node,
    incarnation,
    to_node,
    to_incarnation,
    bulk,
    version_low,
    version_high,
    features,
    session
});

/// A number that is sent as how far it is behind another number of its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behind(u64);

impl Behind {
    /// For a number that is behind `other`, or ahead of it.
    pub fn new(number: u64, other: u64) -> Self {
        Self(other.wrapping_sub(number))
    }

    /// The number, if it is that far behind `other`.
    pub fn number(self, other: u64) -> u64 {
        other.wrapping_sub(self.0)
    }
}

/// In zigzag: small if it is near zero, on either side.
impl Field<'_> for Behind {
    fn write(&self, to: &mut Vec<u8>) {
        Num((self.0 << 1) ^ ((self.0 as i64) >> 63) as u64).write(to);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        r.varint().map(|n| Self((n >> 1) ^ (n & 1).wrapping_neg()))
    }
}

codes! {
    /// Whether a node has the chunk that it was asked for.
    pub enum ChunkStatus {
        /// It does not have the wanted version.
        None = 0,
        /// It has it. Empty bytes mean a chunk of zeros.
        Here = 1,
    }
}

codes! {
    /// How far a value is that is sent ahead of its command.
    pub enum StageState {
        /// Further bytes are wanted.
        Open = 0,
        /// No more bytes are wanted: the command will tell why.
        Over = 1,
        /// The receiver does not own the stream, or not yet: nothing of the value was taken.
        NotOwner = 2,
        /// No more bytes are wanted: a holder has no memory for its part.
        NoMemory = 3,
        /// The whole value is here, and so is its command.
        Running = 4,
    }
}

codes! {
    /// The result of an import (P10.8).
    pub enum ImportStatus {
        /// Every member has acknowledged it.
        Done = 0,
        /// The receiver has no memory for it.
        NoRoom = 1,
        /// The receiver does not know this attempt, or not a value of it: the sender must begin another.
        Unknown = 2,
        /// The whole body is there already.
        Kept = 3,
    }
}

/// The state, and a number that is 0 in the states without one.
impl Field<'_> for PartState {
    fn write(&self, to: &mut Vec<u8>) {
        let (state, number) = match *self {
            Self::Open(units) => (0, units),
            Self::Taken(units) => (1, units),
            Self::Kept(check) => (2, check),
            Self::Making => (3, 0),
            Self::Broken => (4, 0),
            Self::NoRoom => (5, 0),
            Self::Declined => (6, 0),
            Self::Unknown => (7, 0),
        };
        to.push(state);
        number.write(to);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        match (r.u8()?, r.u32()?) {
            (0, units) => Some(Self::Open(units)),
            (1, units) => Some(Self::Taken(units)),
            (2, check) => Some(Self::Kept(check)),
            (3, 0) => Some(Self::Making),
            (4, 0) => Some(Self::Broken),
            (5, 0) => Some(Self::NoRoom),
            (6, 0) => Some(Self::Declined),
            (7, 0) => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// A parity chunk as held by one member (P5.7a).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parity<'a> {
    /// Highest sequence number in the member's log of the asking stream.
    pub recv: u64,
    /// The term of that log.
    pub term: Term,
    /// Sum of the asking stream's data chunk at its version.
    pub sum: u32,
    /// The version of each data chunk that the bytes stand for.
    pub versions: Versions<'a>,
    /// The bytes of the chunk. Empty means all zeros.
    pub bytes: &'a [u8],
}

fields!(Parity<'a> { recv, term, sum, versions, bytes });

/// The name of a part of a large value: a group of parts of the stream, and a number in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartName {
    /// The group's id.
    pub group: u64,
    /// The part's number.
    pub number: u8,
}

fields!(PartName { group, number });
