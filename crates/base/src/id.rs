//! Identifiers. Each is a type of its own, so that one cannot be used in place of another.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A node: one shard with its own memory (ARCHITECTURE.md). Ids are small and dense; the maker of the cluster assigns
/// them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// One run of a node's process: a random number drawn at start. A restarted process is another incarnation, without any
/// state of the former one (P0.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// As [`fmt::Display`]: an incarnation has one written form, by which logs can be searched.
impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A cluster: a random number drawn at its creation. Peers of another cluster are refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ClusterId(pub u64);

/// A stripe list: an ordered set of `k+m` nodes that hold stripes together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ListId(pub u16);

/// A position in a stripe list: `0..k` hold data, `k..k+m` parity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Position(pub u8);

impl Position {
    /// The position as an index into a list's positions.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A stream: one data position of one list. It has one owner and one sequence of deltas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StreamId {
    /// The stripe list.
    pub list: ListId,
    /// The data position in that list.
    pub x: Position,
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.list.0, self.x.0)
    }
}

/// The number of a list's configuration. It only grows (P1.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Epoch(pub u32);

/// The term of a stream's owner: the epoch at which its tenure began (P1.2).
pub type Term = u32;

/// A stripe's id within its list. The top bit is set for stripes that hold index pages (P7.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Stripe(pub u32);

impl Stripe {
    /// Bit that is set in the id of a stripe of index pages.
    pub const INDEX_BIT: u32 = 1 << 31;
    /// Largest stripe number. Ids use the low 22 bits and the index bit; the other bits are flags of extents
    /// (`docs/formats/peer.md`).
    pub const NUMBER_MAX: u32 = (1 << 22) - 1;

    /// The stripe of data chunk `number`.
    pub fn data(number: u32) -> Self {
        debug_assert!(number <= Self::NUMBER_MAX);
        Self(number)
    }

    /// The stripe of index page `number`.
    pub fn index_page(number: u32) -> Self {
        debug_assert!(number <= Self::NUMBER_MAX);
        Self(number | Self::INDEX_BIT)
    }

    /// Whether chunks of this stripe are index pages.
    pub fn is_index(self) -> bool {
        self.0 & Self::INDEX_BIT != 0
    }

    /// The id without the index bit.
    pub fn number(self) -> u32 {
        self.0 & Self::NUMBER_MAX
    }

    /// Whether the bits are a possible stripe id: no flag bit is set.
    pub fn is_valid(self) -> bool {
        self.0 & !(Self::INDEX_BIT | Self::NUMBER_MAX) == 0
    }
}

impl fmt::Display for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_index() { "i" } else { "d" }, self.number())
    }
}

/// A client's connection to a node. A number is not used again within an incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ConnId(pub u64);
