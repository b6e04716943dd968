//! The version of a chunk (P1.4).

use crate::Term;
use core::fmt;

/// (term, seq) of the last delta that touched a chunk, packed into 20 + 44 bits. Zero means that the chunk is all
/// zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version(pub u64);

impl Version {
    /// The version of a chunk that was never written, or was freed: all zeros.
    pub const ZERO: Self = Self(0);
    const SEQ_BITS: u32 = 44;
    /// The largest seq of a stream.
    pub const SEQ_MAX: u64 = (1 << Self::SEQ_BITS) - 1;
    /// The largest term.
    pub const TERM_MAX: Term = (1 << 20) - 1;

    /// The version that delta `seq` of `term` leaves.
    ///
    /// # Panics
    /// If either is out of range.
    pub fn new(term: Term, seq: u64) -> Self {
        assert!(
            term <= Self::TERM_MAX && seq <= Self::SEQ_MAX,
            "term or seq out of range"
        );
        Self((u64::from(term) << Self::SEQ_BITS) | seq)
    }

    /// The term of the owner that issued the delta.
    pub fn term(self) -> Term {
        (self.0 >> Self::SEQ_BITS) as Term
    }

    /// The delta's place in its stream.
    pub fn seq(self) -> u64 {
        self.0 & Self::SEQ_MAX
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.term(), self.seq())
    }
}
